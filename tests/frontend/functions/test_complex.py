"""Complex tensors beside PyTorch: values, gradients of both orders, views, writes, files.

The cases call complex, polar, view_as_real, view_as_complex, real, imag, conj, resolve_conj,
resolve_neg, is_conj, is_neg, is_complex, cfloat and cdouble, among others.
"""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
from complex_cases import REFUSED, SMOOTH, VALUES

import tilewright as tw
from tilewright.runtime import tiers

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.computes, pytest.mark.filterwarnings("ignore")]

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


X, Y, R = numbers(3, 4), numbers(3, 4) / 2, RNG.normal(size=(3, 4))


def arrays(found: Any) -> list[Any]:
    """Everything in a result, tensors as arrays."""
    if isinstance(found, (tuple, list)):
        return [each for part in found for each in arrays(part)]
    if hasattr(found, "detach"):
        return [found.detach().resolve_conj().numpy()]
    return [found]


def agree(ours: Any, theirs: Any, tolerance: float = 1e-10) -> None:
    pairs = list(zip(arrays(ours), arrays(theirs), strict=True))
    for a, b in pairs:
        assert type(a) is type(b)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def derived(m: Any, call: Any, order: int) -> list[Any]:
    """The value of a call, its gradients, and those of their squares."""
    given = [m.tensor(v).requires_grad_() for v in (X, Y, R)]
    out = call(m, *given)
    weight = np.random.default_rng(1).normal(size=(2, *out.shape))
    seed = m.tensor(weight[0] + 1j * weight[1] if out.is_complex() else weight[0])
    found = m.autograd.grad(out, given, seed, create_graph=order > 1, allow_unused=True)
    used = [g for g in found if g is not None]
    if order > 1:
        total = sum((g.abs() ** 2).sum() for g in used if g.requires_grad)
        if not isinstance(total, int):
            again = m.autograd.grad(total, given, allow_unused=True)
            # A gradient of zeros may be None in one of the two.
            used += [m.zeros_like(v) if g is None else g for g, v in zip(again, given, strict=True)]
    return [out, *used]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name: str, order: int) -> None:
    agree(derived(tw, SMOOTH[name], order), derived(torch, SMOOTH[name], order), 1e-8)


@pytest.mark.parametrize(
    "name", "mul|pow|abs|matmul|set parts|prod|prod of rows|logsumexp".split("|")
)
def test_gradients_op_by_op(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "mode", tiers.BASELINE)
    agree(derived(tw, SMOOTH[name], 2), derived(torch, SMOOTH[name], 2), 1e-8)


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    ours, theirs = (VALUES[name](m, *(m.tensor(v) for v in (X, Y, R))) for m in (tw, torch))
    if name == "pending":
        assert ours == (False, False)
    else:
        agree(ours, theirs)


@pytest.mark.parametrize(
    "name", ["mul", "abs", "matmul", "sum", "cat", "index", "exp", "set parts"]
)
def test_single_precision_on_the_gpu_path(name: str) -> None:
    given = [v.astype(np.complex64 if np.iscomplexobj(v) else np.float32) for v in (X, Y, R)]
    ours = SMOOTH[name](tw, *(tw.tensor(v, device="interpret") for v in given))
    theirs = SMOOTH[name](torch, *map(torch.tensor, given))
    agree(ours.cpu(), theirs, 1e-4)


@pytest.mark.parametrize("name", REFUSED)
def test_errors(name: str) -> None:
    given = [[m.tensor(v) for v in (X, Y, R)] for m in (tw, torch)]
    with pytest.raises(Exception) as theirs:
        REFUSED[name](torch, *given[1])
    with pytest.raises(RuntimeError) as ours:
        REFUSED[name](tw, *given[0])
    assert isinstance(ours.value, theirs.type)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
@pytest.mark.parametrize("reduce", ["prod", "sum", "mean"])
@pytest.mark.parametrize("include_self", [True, False])
def test_reductions_at_positions(kind: str, reduce: str, include_self: bool) -> None:
    def program(m: Any) -> Any:
        x, y = (m.tensor(v).to(getattr(m, kind)) for v in (X, source))
        return x.scatter_reduce(0, m.tensor(places), y, reduce, include_self=include_self)

    source, places = numbers(20, 4), RNG.integers(0, 2, (20, 4))
    agree(program(tw), program(torch), 1e-10 if kind == "complex128" else 1e-4)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_products_at_positions(zeros: int) -> None:
    """Beside PyTorch's gradient of a product: it has none of `scatter_reduce`. A factor of zero
    takes no part in the quotients that give those of the others."""
    x, y = numbers(2), numbers(8)
    y[:zeros] = 0
    place = (np.arange(8) > 5).astype(np.int64)
    ours = [tw.tensor(v, requires_grad=True) for v in (x, y)]
    theirs = [torch.tensor(v, requires_grad=True) for v in (x, y)]
    a = ours[0].scatter_reduce(0, tw.tensor(place), ours[1], "prod")
    first, second = theirs
    b = torch.stack([(first[i] * second[torch.tensor(place == i)].prod()) for i in range(2)])
    agree(a, b)
    seed = numbers(2)
    agree(
        tw.autograd.grad(a, ours, tw.tensor(seed)),
        torch.autograd.grad(b, theirs, torch.tensor(seed)),
    )


DTYPES = "bool uint8 int32 int64 bfloat16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("b", DTYPES)
@pytest.mark.parametrize("a", DTYPES)
def test_promotion(a: str, b: str) -> None:
    def kinds(m: Any) -> list[str]:
        x, y = m.ones(2, dtype=getattr(m, a)), m.ones(2, dtype=getattr(m, b))
        return [
            str(m.result_type(*each))
            for each in ((x, y), (x[0], y), (x, y[0]), (x, 1j), (x[0], 2j), (x, 1.0))
        ] + [str(m.can_cast(x.dtype, y.dtype)), str(m.promote_types(x.dtype, y.dtype))]

    assert kinds(tw) == kinds(torch)


def test_parts_are_views() -> None:
    def program(m: Any) -> list[Any]:
        z = m.tensor(X)
        parts = m.view_as_real(z)
        z.real.mul_(2)
        z.imag[0] = 0
        before = parts.sum().item()
        parts[..., 1].add_(1)
        z.imag = z.real
        pairs = m.zeros(3, 2)
        whole = m.view_as_complex(pairs)
        whole += 1 + 2j
        whole.T.imag[1] = 5
        layouts = [
            (t.stride(), t.storage_offset()) for t in (z.imag, z.T.real, parts, z[1:, ::2].imag)
        ]
        return [z, before, parts, pairs, whole, z.T[1:].imag, *layouts]

    agree(program(tw), program(torch))


def test_memory_is_shared_with_numpy() -> None:
    z = tw.tensor(X)
    seen = z.numpy()
    z.real.fill_(3)
    assert (seen.real == 3).all()
    z.imag.numpy()[...] = 7
    assert (z == 3 + 7j).all()
    array = X.copy()
    tw.from_numpy(array).imag.zero_()
    assert (array.imag == 0).all()


def test_printing() -> None:
    def texts(m: Any) -> list[str]:
        x = m.tensor([1 + 2j, 3 - 1j])
        return [
            repr(t)
            for t in (
                x, m.zeros(2, 2, dtype=m.complex64), m.tensor([1e10 + 1e-5j, 0j]),
                x.cdouble(),
                m.tensor([complex("nan+1j"), complex("inf")]), m.arange(2000).view(40, 50) * 1j,
                m.tensor([1 - 2j, 3.25 + 4j]), m.zeros(0, dtype=m.complex64),
                x.clone().requires_grad_() * 2,
            )
        ]  # fmt: skip

    assert texts(tw) == texts(torch)


def test_files_and_copies() -> None:
    z = tw.tensor(X)
    kept = {"z": z, "real": z.real, "p": tw.nn.Parameter(z), "dtype": tw.complex128}
    for load, m in ((torch.load, torch), (tw.load, tw)):
        file = io.BytesIO()
        tw.save(kept, file)
        file.seek(0)
        found = load(file)
        assert found["dtype"] is m.complex128
        agree([found["z"], found["real"], found["p"]], [z, z.real, z])
    file = io.BytesIO()
    torch.save(torch.tensor(X, dtype=torch.complex64), file)
    file.seek(0)
    agree(tw.load(file), z.cfloat())
    agree([copy.deepcopy(z), pickle.loads(pickle.dumps(z))], [z, z])
    assert (np.from_dlpack(z) == X).all()
    agree(tw.from_dlpack(torch.tensor(X)), z)


def train(m: Any, name: str, options: dict[str, Any]) -> list[Any]:
    weight, bias = m.nn.Parameter(m.tensor(X[:, :3])), m.nn.Parameter(m.tensor(Y[0, :3]))
    scale = m.nn.Parameter(m.ones(3, dtype=m.float64))
    optimizer = getattr(m.optim, name)([weight, bias, scale], **options)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        made = (m.tensor(Y[:, :3]) @ weight + bias) * scale
        loss = (made - m.tensor(X[:, 1:])).abs().pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, weight, bias, scale]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": 0.05}),
        ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        ("Adam", {"lr": 0.05}),
        ("AdamW", {"lr": 0.05, "amsgrad": True}),
        ("RMSprop", {"lr": 0.01}),
        ("Rprop", {}),
    ],
)
def test_training(name: str, options: dict[str, Any]) -> None:
    agree(train(tw, name, options), train(torch, name, options), 1e-9)


def test_a_function_of_the_users() -> None:
    def program(m: Any) -> list[Any]:
        class Square(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return g * 2 * x.conj()

        x = m.tensor(X, requires_grad=True)
        seen: list[Any] = []
        y = Square.apply(x)
        y.register_hook(lambda g: seen.append(g) or g * 1j)
        (y.real * m.tensor(R)).sum().backward()
        return [x.grad, *seen]

    agree(program(tw), program(torch))


def test_random_numbers() -> None:
    tw.manual_seed(0)
    z = tw.randn(20000, dtype=tw.complex64)
    assert abs(z.real.var().item() - 0.5) < 0.02 and abs(z.imag.var().item() - 0.5) < 0.02
    u = tw.rand_like(z)
    assert u.imag.min().item() >= 0 and u.real.max().item() < 1
    layer = tw.nn.Linear(4, 3, dtype=tw.complex64)
    assert layer(tw.tensor(X).cfloat()).dtype is tw.complex64


def test_export_refuses_complex_numbers() -> None:
    class Model(tw.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x * 1j).abs()

    pytest.importorskip("onnx")
    with pytest.raises(tw.onnx.UnsupportedOperatorError, match="complex"):
        tw.onnx.export(Model(), (tw.ones(2),), io.BytesIO())


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_logcumsumexp(torch: Any, dtype: str) -> None:
    """Terms beside which others vanish, zeros and no terms at all; the gradient, too."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((3, 37)) * 9 + 1j * rng.standard_normal((3, 37))).astype(dtype)
    x[0, 20], x[1, 5] = 300, -300 + 1j
    tolerance = 2e-5 if dtype == "complex64" else 1e-12
    for dim in (0, 1):
        found = []
        for m in (tw, torch):
            leaf = m.tensor(x, requires_grad=True)
            made = m.logcumsumexp(leaf, dim)
            made.abs().sum().backward()
            found.append((m.exp(made - made.real.detach()), made.real, leaf.grad))
        for ours, theirs in zip(*found, strict=True):
            ours, theirs = ours.detach().numpy(), theirs.detach().resolve_conj().numpy()
            np.testing.assert_allclose(ours, theirs, tolerance, tolerance)
    assert tw.logcumsumexp(tw.zeros(2, 0, dtype=getattr(tw, dtype)), 1).shape == (2, 0)
    nothing = tw.full((2,), -float("inf"), dtype=getattr(tw, dtype))
    assert (tw.logcumsumexp(nothing, 0).real == -float("inf")).all()


# PyTorch's logaddexp overflows to NaN in complex64 beyond, where ours doesn't.
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.complex64, 0.3), (np.complex64, 5), (np.complex128, 3), (np.complex128, 30)],
)
def test_sums_of_exponentials_keep_their_phase(dtype: Any, scale: float) -> None:
    """Beyond a turn it is that of the larger term, not the one nearest to 0."""
    a, b = (np.random.default_rng(i).normal(size=(2, 7, 30)) for i in range(2))
    a, b = ((scale * (x[0] + 1j * x[1])).astype(dtype) for x in (a, b))
    tolerance = 2e-4 if dtype is np.complex64 else 1e-11
    for call in (
        lambda m, x, y: m.logaddexp(x, y),
        lambda m, x, y: m.logcumsumexp(x, 0),
        lambda m, x, y: m.logcumsumexp(y, 1),
    ):
        found = []
        for m in (tw, torch):
            x, y = (m.tensor(v, requires_grad=True) for v in (a, b))
            result = call(m, x, y)
            (result.real * 0.3 + result.imag).sum().backward()
            grads = [None if v.grad is None else v.grad for v in (x, y)]
            found.append([result, *[g for g in grads if g is not None]])
        agree(*found, tolerance)
