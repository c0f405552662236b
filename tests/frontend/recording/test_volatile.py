"""Calls that are computed at once where a program's graphs keep being new."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import RunPython

import tilewright as torch
from tilewright import recording
from tilewright.recording import epoch, novelty
from tilewright.recording.epoch import clock
from tilewright.runtime import tiers

F = torch.nn.functional


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls are computed at once, whatever work comes again."""
    epoch.families.clear()
    epoch.known.clear()
    monkeypatch.setattr(novelty, "REPEATS", 1 << 60)
    monkeypatch.setattr(clock, "volatile", True)
    yield


@pytest.fixture
def usual_rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The rule of programs, which no other test follows, in a program that begins."""
    monkeypatch.setattr(novelty, "DUE", 8)
    monkeypatch.setattr(novelty, "OFTEN", 128)
    monkeypatch.setattr(novelty, "REPEATS", 8)
    novelty.clear()
    yield
    novelty.clear()


def recorded(call: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """The results of a call that isn't computed at once."""
    clock.volatile = False
    try:
        return arrays(call(*args))
    finally:
        clock.volatile = True


def arrays(results: Any) -> list[np.ndarray]:
    rows = results if isinstance(results, (tuple, list)) else (results,)
    return [np.array(r.detach().numpy()) for r in rows]


def sample(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    drawn = np.random.default_rng(seed).normal(size=shape)
    if dtype is np.bool_:
        return torch.tensor(drawn > 0)
    return torch.tensor(
        (drawn if np.dtype(dtype).kind == "f" else np.trunc(4 * drawn)).astype(dtype)
    )


Make = Callable[[int], tuple[Any, ...]]


def x(n: int) -> tuple[Any, ...]:
    return (sample(n, n, 6),)


def two(n: int) -> tuple[Any, ...]:
    return sample(n, n, 6), sample(n + 50, n, 6)


def heads(n: int) -> tuple[Any, ...]:
    return tuple(sample(n + i, 1, 2, n, 4) for i in range(3))


def row(n: int) -> tuple[Any, ...]:
    return (sample(n, n),)


def layer(n: int) -> tuple[Any, ...]:
    return sample(n, 2, n, 6), sample(1, 5, 6), sample(2, 5), sample(3, 6), sample(4, 6)


def whole(n: int) -> tuple[Any, ...]:
    return (sample(n, n, 3, dtype=np.int64),)


def picks(n: int) -> tuple[Any, ...]:
    return sample(n, n, 6), sample(n, 3 * n, dtype=np.int64).remainder(n), sample(n, n, 6)


def square(n: int) -> tuple[Any, ...]:
    return (sample(n, n, n) @ sample(n, n, n).T + torch.eye(n),)


def of_signals(a: Any) -> tuple[Any, ...]:
    fft = torch.fft
    return fft.fft(a), fft.ifft(a, dim=0), fft.rfft(a, 4), fft.fft2(a), fft.hfft(a).to(fft.fft(a))


def of_matrices(a: Any) -> tuple[Any, ...]:
    linalg = torch.linalg
    return linalg.det(a), linalg.cholesky(a), linalg.solve(a, a[0]), *linalg.slogdet(a)


CALLS: list[tuple[str, Make, Callable[..., Any]]] = [
    ("sums", two, lambda a, b: (a + b, a - b, a * b, a / (b.abs() + 1), -a)),
    ("numbers", x, lambda a: (a * 2, 2 - a, a / 3, a**2, 2**a, a + True, a * 0.0, a * -0.0)),
    ("functions", x, lambda a: (a.exp(), a.tanh(), a.sin(), a.abs().sqrt(), a.abs().log1p())),
    ("activations", x, lambda a: (F.relu(a), F.gelu(a), F.silu(a), F.elu(a), F.softplus(a))),
    ("comparisons", two, lambda a, b: (a > b, a <= 0.5, a == b, torch.maximum(a, b), a.isnan())),
    ("choices", two, lambda a, b: (torch.where(a > b, a, b), a.clamp(-0.5, 0.5), a.clamp(min=0))),
    ("masks", two, lambda a, b: (a.masked_fill(b > 0, -1.0), a.masked_fill(b > 0, float("-inf")))),
    ("totals", x, lambda a: (a.sum(), a.sum(0), a.sum(1), a.sum((0, 1), keepdim=True), a.prod(1))),
    ("means", x, lambda a: (a.mean(), a.mean(0), a.mean(1), a.var(), a.std(1), a.norm())),
    ("extrema", x, lambda a: (a.max(), a.min(0).values, a.max(1).indices, a.amax(1), a.argmin(1))),
    ("orders", x, lambda a: (*a.sort(0), *a.sort(1, descending=True), *a.topk(2, 1))),
    ("scans", x, lambda a: (a.cumsum(0), a.cumsum(1), a.cumprod(1), a.logcumsumexp(1))),
    ("softmax", x, lambda a: (a.softmax(0), a.softmax(1), a.log_softmax(1), a.logsumexp(1))),
    (
        "linear",
        layer,
        lambda a, w, b, *_: (F.linear(a, w, b), F.linear(a, w), F.linear(a[0], w, b)),
    ),
    ("norms", layer, lambda a, _, __, w, b: (F.layer_norm(a, (6,), w, b), F.rms_norm(a, (6,), w))),
    ("products", two, lambda a, b: (a @ b.T, a.T @ b, a.T @ b[:, 0], (a * b).sum(1) @ a)),
    ("attention", heads, lambda q, k, v: F.scaled_dot_product_attention(q, k, v)),
    ("causal", heads, lambda *a: F.scaled_dot_product_attention(*a, is_causal=True)),
    ("joined", two, lambda a, b: (torch.cat([a, b]), torch.cat([a, b], 1), torch.stack([a, b]))),
    ("shapes", x, lambda a: (a.T.reshape(-1), a.reshape(2, -1), a.T.contiguous(), a.flatten())),
    (
        "repeats",
        x,
        lambda a: (a.repeat(2, 1), a.flip(0), a.roll(1, 0), a[None].expand(2, -1, -1) + 1),
    ),
    (
        "positions",
        picks,
        lambda a, i, _: (a[i], a[i, 0], a[:, i % 6], a[i][:, 1:], F.embedding(i, a)),
    ),
    ("gathers", picks, lambda a, _, b: (a.gather(1, b.abs().long() % 6), a.index_select(0, _ * 0))),
    ("integers", whole, lambda a: (a + 1, a * a, a // 2, a % 3, a.float(), a.sum(), a > 0, ~a)),
    ("conversions", x, lambda a: (a.double(), a.half(), a.bfloat16().float(), a.int(), a.bool())),
    (
        "distances",
        two,
        lambda a, b: (torch.cdist(a, b), F.cosine_similarity(a, b), F.mse_loss(a, b)),
    ),
    ("losses", x, lambda a: F.cross_entropy(a, a.argmax(1), reduction="none")),
    ("triangles", row, lambda a: (torch.outer(a, a).tril(), a.diff(), a.unfold(0, 2, 1).sum(1))),
    ("transforms", x, lambda a: tuple(map(torch.view_as_real, of_signals(a)))),
    ("factors", square, lambda a: (*of_matrices(a), *torch.linalg.lu_factor(a), torch.inverse(a))),
    ("pads", x, lambda a: (F.pad(a, (1, 2)), F.pad(a, (0, 0, 1, 0), value=2.0))),
]


@pytest.mark.parametrize(("make", "call"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
@pytest.mark.parametrize("sizes", [(4, 6, 10, 2, 8, 6, 1, 12, 4), (6, 6, 12, 1, 3, 1, 18)])
@pytest.mark.usefixtures("at_once")
def test_results_are_those_of_recorded_calls(
    make: Make, call: Callable[..., Any], sizes: tuple[int, ...]
) -> None:
    for n in sizes:
        given = make(n)
        for t in given:
            t.sum().item()
        try:
            expected = recorded(call, *given)
        except RuntimeError as error:
            with pytest.raises(type(error)):
                arrays(call(*given))
            continue
        for found, wanted in zip(arrays(call(*given)), expected, strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            np.testing.assert_allclose(
                found.astype(np.float64), wanted.astype(np.float64), rtol=2e-6, atol=1e-6
            )
    assert any(family.templates for family in epoch.families.values())


@pytest.mark.usefixtures("at_once")
def test_results_have_values_and_memory_of_their_own() -> None:
    for n in (3, 4, 5):
        a = sample(n, n, 4)
        for b in (a.clone(), a.T.reshape(-1), a + 0, a.float(), a.contiguous().clone()):
            if b is a:
                continue
            before = a.tolist()
            b.add_(1)
            assert a.tolist() == before
        whole = a * 2
        part = whole[1:]
        part.mul_(0)
        assert whole[1:].abs().sum().item() == 0 and whole[0].abs().sum().item() > 0


@pytest.mark.usefixtures("at_once")
def test_writes_in_place() -> None:
    for n in (3, 4, 5):
        a = sample(n, n, 4)
        expected = a.numpy().copy() * 2 + 1
        version = a._version
        alias = a[:]
        a.mul_(2)
        a += 1
        np.testing.assert_array_equal(a.numpy(), expected)
        np.testing.assert_array_equal(alias.numpy(), expected)
        assert a._version == version + 2
        with pytest.raises(RuntimeError):
            a.add_(torch.zeros(2, n, 4))
        a[0].zero_()
        assert a[0].tolist() == [0] * 4 and a[1].tolist() == expected[1].tolist()


@pytest.mark.usefixtures("at_once")
def test_gradients_flow_through_calls_that_need_them() -> None:
    weight = torch.nn.Parameter(sample(0, 4, 4))
    for n in (3, 4, 5, 6):
        a = sample(n, n, 4)
        with torch.no_grad():
            target = (a @ weight.T).tanh()
            assert not target.requires_grad
        loss = ((F.linear(a, weight) - target * 0.5) ** 2).mean()
        assert loss.requires_grad
        (grad,) = torch.autograd.grad(loss, weight)
        w, data = weight.detach().double().numpy(), a.double().numpy()
        residual = data @ w.T - 0.5 * np.tanh(data @ w.T)
        np.testing.assert_allclose(grad.numpy(), 2 / residual.size * residual.T @ data, rtol=1e-4)


@pytest.mark.usefixtures("at_once")
def test_routines_of_the_host_are_called_at_once() -> None:
    """Results of one routine share its call, also with the derivative. A routine's failure is the
    error of the call."""
    linalg = torch.linalg
    for n in (3, 4, 5, 4):
        (a,) = square(n)
        data = a.double().numpy()
        for found, wanted in (
            (torch.fft.fft(a).abs(), np.abs(np.fft.fft(data))),
            (torch.fft.irfft(a), np.fft.irfft(data)),
            (linalg.inv(a), np.linalg.inv(data)),
            (linalg.slogdet(a)[1], np.linalg.slogdet(data)[1]),
            (linalg.eigh(a)[0], np.linalg.eigvalsh(data)),
        ):
            assert found._node is None  # no graph waits for it
            np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-3, atol=2e-4)
        a.requires_grad_()
        (grad,) = torch.autograd.grad(linalg.slogdet(a)[1], a)
        np.testing.assert_allclose(grad.numpy(), np.linalg.inv(data).T, rtol=2e-3, atol=2e-4)
        (grad,) = torch.autograd.grad(torch.fft.rfft(a).abs().square().sum(), a)
        seed = np.fft.rfft(data) * 2
        weight = np.where((np.arange(n // 2 + 1) == 0) | (2 * np.arange(n // 2 + 1) == n), 1, 0.5)
        np.testing.assert_allclose(
            grad.numpy(), n * np.fft.irfft(seed * weight, n), rtol=2e-3, atol=2e-3
        )
        with pytest.raises(linalg.LinAlgError, match="singular"):
            linalg.inv(torch.zeros(n, n))


@pytest.mark.usefixtures("at_once")
def test_errors_are_those_of_recorded_calls() -> None:
    for n in (3, 4, 5):
        with pytest.raises(RuntimeError, match="broadcast"):
            sample(n, n, 4) + sample(n, n, 3)
        with pytest.raises(IndexError):
            sample(n, n, 4)[torch.tensor([n])].sum().item()
        with pytest.raises(ValueError, match="step"):
            sample(n, n, 4)[::-1, torch.tensor([0])]
        with pytest.raises(RuntimeError, match=r"[Zz]ero"):
            (torch.arange(n) // torch.zeros(n, dtype=torch.int64)).sum().item()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (torch.ones(n) / sample(n, n).mul(0)).isinf().all().item()


@pytest.mark.usefixtures("at_once")
def test_inference_mode_marks_results() -> None:
    for n in (3, 4, 5):
        with torch.inference_mode():
            made = sample(n, n, 4) * 2
        assert made.is_inference()
        with pytest.raises(RuntimeError, match=r"[Ii]nference"):
            made.add_(1)


@pytest.mark.usefixtures("at_once")
def test_sizes_that_examples_confuse() -> None:
    """A template of examples with equal sizes asks for more before it computes with others."""
    for rows, columns in ((3, 3), (4, 4), (5, 5), (4, 7), (6, 2), (8, 3)):
        a = sample(rows, rows, columns)
        assert a.T.reshape(columns * rows).tolist() == a.numpy().T.reshape(-1).tolist()
        b = a.sum(0, keepdim=True).expand(rows, columns) * 1
        np.testing.assert_allclose(b.numpy(), np.tile(a.numpy().sum(0), (rows, 1)), rtol=1e-6)


@pytest.mark.usefixtures("at_once")
def test_an_epoch_goes_on_to_its_backward_pass() -> None:
    weight = torch.nn.Parameter(sample(0, 4, 4))
    total = torch.zeros(())
    for n in (3, 4, 5, 6):
        before = clock.number
        loss = (sample(n, n, 4) @ weight).pow(2).sum()
        total = total + loss.detach()  # waits for the loss
        loss.backward()
        assert clock.number == before
        weight.grad = None
    assert total.item() > 0


@pytest.mark.usefixtures("at_once")
def test_draws_are_made_in_their_epoch() -> None:
    for n in (300, 400, 500):
        kept = F.dropout(torch.ones(n, 4) * torch.rand(n, 1).clamp(0.5), 0.5)
        assert 0 < (kept == 0).sum().item() < 4 * n


def _weights(*shape: int, dtype: Any = np.float32) -> Any:
    made = np.random.default_rng(0).random(shape).astype(dtype)
    made[made < 0.2] = 0
    return torch.tensor(made)


_OTHERS = {"dtype": torch.float64}
DRAWS: list[tuple[str, Callable[[], Any]]] = [
    ("rand", lambda: (torch.rand(7, 5), torch.rand(33, **_OTHERS), torch.rand(0, 3))),
    ("randn", lambda: (torch.randn(7, 5), torch.randn(33, **_OTHERS), torch.randn(()))),
    ("like", lambda: (torch.rand_like(_weights(9)), torch.randn_like(_weights(2, 3)))),
    ("randint", lambda: (torch.randint(-3, 9, (41,)), torch.randint(5, (4,), dtype=torch.uint8))),
    ("randint of many", lambda: (torch.randint(0, 2**31, (9,)), torch.randint(0, 2**40, (9,)))),
    ("randint of floats", lambda: torch.randint(0, 9, (9,), dtype=torch.float32)),
    ("randperm", lambda: (torch.randperm(12), torch.randperm(700), torch.randperm(0))),
    ("randperm of ints", lambda: torch.randperm(12, dtype=torch.int32)),
    (
        "bernoulli",
        lambda: (torch.bernoulli(_weights(6, 7)), _weights(9, dtype=np.float64).bernoulli()),
    ),
    ("bernoulli of one", lambda: (_weights(9).bernoulli(0.3), torch.ones(9).long().bernoulli(0.5))),
    ("normal", lambda: (torch.normal(2.0, 0.1, (5,)), torch.normal(_weights(3, 1), _weights(4)))),
    ("normal of one", lambda: (torch.normal(_weights(4), 1e30), torch.normal(0.1, _weights(4)))),
    ("multinomial", lambda: (_weights(4, 9).multinomial(1), _weights(4, 900).multinomial(2))),
    (
        "classes again",
        lambda: (_weights(9).multinomial(20, True), _weights(4, 9).multinomial(3, True)),
    ),
    ("normal_", lambda: (torch.empty(6).normal_(), _weights(5).normal_(-1, 0.3))),
    ("uniform_", lambda: (torch.empty(6).uniform_(), _weights(5).uniform_(-1, 0.3))),
    ("random_", lambda: (torch.empty(6).random_(), torch.arange(5).random_(2, 9))),
    (
        "bernoulli_",
        lambda: (torch.empty(6).bernoulli_(0.4), torch.ones(3, 4).bernoulli_(_weights(4))),
    ),
    ("part", lambda: torch.zeros(4, 3)[1:3].normal_()),
    ("half", lambda: (torch.rand(5, dtype=torch.float16), torch.ones(4).half().normal_())),
]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("call", [c for _, c in DRAWS], ids=[name for name, _ in DRAWS])
def test_draws_have_the_same_bits_in_each_tier(
    call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn() -> tuple[list[np.ndarray], int]:
        torch.manual_seed(5)
        return arrays(call()), torch.default_generator.get_offset()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, draws = drawn()
    for mode in (tiers.BASELINE, tiers.FUSED):
        monkeypatch.setattr(tiers, "mode", mode)
        clock.volatile = False
        expected, count = drawn()
        assert draws == count
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_, np.float16])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_along_an_axis_of_any_size(dtype: Any, axis: int) -> None:
    for n in (3, 4, 6):
        a = sample(n, n + 1, n, 5).numpy().astype(dtype)
        shape = [n, n - 1, 4]
        at = np.random.default_rng(n).permuted(
            np.broadcast_to(np.arange(4) % shape[axis], (n, n - 1, 4)).copy(), axis=-1
        )
        x, index = torch.tensor(a), torch.tensor(at)
        part = a[tuple(slice(None) if i == axis else slice(s) for i, s in enumerate(shape))]
        expected = np.take_along_axis(part, at, axis)
        np.testing.assert_array_equal(x.gather(axis, index).numpy(), expected)
        turned = index.transpose(0, 2).contiguous().transpose(0, 2)
        np.testing.assert_array_equal(x.gather(axis, turned).numpy(), expected)
        unique = np.argsort(np.random.default_rng(n).random((n, n - 1, 4)), axis=axis)
        written, ones = a.copy(), np.ones(unique.shape, dtype)
        view = written[tuple(slice(None) if i == axis else slice(s) for i, s in enumerate(shape))]
        np.put_along_axis(view, unique, ones, axis)
        found = x.scatter(axis, torch.tensor(unique), torch.tensor(ones))
        np.testing.assert_array_equal(found.numpy(), written)
        for wrong in (-1, a.shape[axis]):
            bad = index.clone()
            bad[0, 0, 0] = wrong
            with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
                print(x.gather(axis, bad))


@pytest.mark.usefixtures("at_once")
def test_draws_that_are_errors() -> None:
    for call in (
        lambda: torch.bernoulli(torch.tensor([0.5, 1.5])),
        lambda: torch.ones(2).bernoulli_(torch.tensor([0.5, float("nan")])),
        lambda: torch.multinomial(torch.tensor([0.5, -1.0]), 1),
        lambda: torch.multinomial(torch.zeros(2, 3), 1),
        lambda: torch.multinomial(torch.tensor([1.0, float("inf")]), 1),
        lambda: torch.normal(torch.zeros(2), torch.tensor([1.0, -1.0])),
        lambda: torch.ones(2, requires_grad=True).normal_(),
    ):
        with pytest.raises(RuntimeError):
            print(call())


@pytest.mark.usefixtures("at_once")
def test_what_is_drawn_over_is_another_value_to_all() -> None:
    x = sample(0, 4)
    view, w = x.view(2, 2), torch.ones(4, requires_grad=True)
    kept = (x * w).sum()
    x.uniform_(5, 6)
    assert (view > 4).all()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()
    with torch.no_grad():
        w.normal_()
    assert w.requires_grad and w.is_leaf and (w != 1).all()
    (w * 2).sum().backward()
    assert w.grad.tolist() == [2] * 4
    y = w * 1
    y.normal_()  # which takes its gradient
    y.sum().backward()
    assert w.grad.tolist() == [2] * 4


@pytest.mark.usefixtures("at_once")
def test_wrong_calls_leave_the_right_ones_at_once() -> None:
    for n in (3, 4):
        x = sample(n, n, 5)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="inner sizes"):
                x @ sample(0, 4, 2)
        assert (x @ sample(1, 5, 2))._node is None
        with pytest.raises(RuntimeError):
            F.linear(x, sample(2, 3, 4))
        assert F.linear(x, sample(2, 3, 5))._node is None
    assert not any(family.failed for family in epoch.families.values())


@pytest.mark.usefixtures("usual_rule")
def test_new_work_turns_it_on_and_known_work_off() -> None:
    def read(n: int) -> float:
        a = torch.ones(n, 7)
        for _ in range(novelty.FEW):
            a = a * 3 - 2
        return float((a * 3 + 1).sum().item())

    for n in range(200, 200 + 2 * novelty.DUE):
        assert read(n) == n * 28
    assert clock.volatile
    for _ in range(novelty.KNOWN + novelty.REPEATS + 3):
        assert read(300) == 300 * 28
    assert not clock.volatile


TRAINED = """
import tilewright as tw
from tilewright.recording.epoch import clock
nn = tw.nn
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
updates = tw.optim.SGD(model.parameters(), lr=0.1)
said = []
for step in range(40):
    updates.zero_grad()
    loss = model(tw.full((5, 4), 0.5)).square().mean()
    loss.backward()
    updates.step()
    said.append(clock.volatile)
print(said[0], said[-1], said.index(False) < 20, loss.item() < 0.01)
"""

LARGE = """
import tilewright as tw
from tilewright.recording import novelty
from tilewright.recording.epoch import clock
x, y = tw.ones(8), tw.ones(novelty.LARGE + 1)
x.sum().item(), y.sum().item()
a = (x * 2).exp()
print(clock.volatile, a._node is None)
b = (y * 2).exp()
print(clock.volatile, b._node is None)
"""


def test_a_program_begins_at_once_until_its_work_comes_again(run_python: RunPython) -> None:
    """Also if nothing reads a value: an optimizer's step ends a piece of work, too."""
    assert run_python(TRAINED, env={"TW_TIER": "auto"}) == "True False True True\n"


def test_a_program_of_large_calls_is_recorded_from_the_first_on(run_python: RunPython) -> None:
    assert run_python(LARGE, env={"TW_TIER": "auto"}) == "True True\nFalse False\n"


@pytest.mark.usefixtures("usual_rule")
def test_few_calls_on_many_elements_are_recorded_when_they_come_again() -> None:
    clock.volatile = True
    x = torch.ones(novelty.ELEMENTS + 1)
    for _ in range(novelty.KNOWN + novelty.REPEATS + 3):
        float((x * 2).sum())
    assert not clock.volatile


@pytest.mark.usefixtures("usual_rule")
def test_a_flush_ends_a_piece_of_work_as_a_read_does() -> None:
    clock.volatile = True
    x = torch.ones(novelty.ELEMENTS + 1)
    for _ in range(novelty.KNOWN + novelty.REPEATS + 3):
        x.exp()
        recording.flush()
    assert not clock.volatile


@pytest.mark.usefixtures("usual_rule")
def test_tensors_of_which_few_elements_are_picked_are_no_large_work() -> None:
    table, at = torch.ones(novelty.ELEMENTS, 4), torch.arange(5)
    for call in (
        lambda: F.embedding(at, table),
        lambda: table[at],
        lambda: F.nll_loss(table, at[:1].expand(len(table)).contiguous() % 4),
    ):
        clock.volatile = True
        for _ in range(novelty.KNOWN + novelty.REPEATS + 3):
            call().sum().item()
        assert clock.volatile


@pytest.mark.usefixtures("usual_rule")
def test_few_calls_on_few_elements_are_computed_at_once_however_often_they_come() -> None:
    small, large = torch.ones(64), torch.ones(novelty.ELEMENTS + 1)
    for _ in range(3 * novelty.OFTEN):
        assert float((large * 2).sum()) == 2 * (novelty.ELEMENTS + 1)
    assert not clock.volatile
    for turn in range(3 * novelty.OFTEN):
        assert float((small * turn).sum()) == 64 * turn
        assert clock.volatile == (turn > novelty.OFTEN) or 0 < turn - novelty.OFTEN < 16


@pytest.mark.usefixtures("usual_rule")
def test_episodes_of_any_length_are_new_though_each_act_is_known() -> None:
    model, learned = torch.nn.Linear(4, 2), 0
    with torch.no_grad():
        for length in (*range(20, 40), *[25] * 60):
            acts = []
            state = torch.ones(4)
            for _ in range(length):
                chances = model(state).softmax(-1)
                acts.append(chances[int(chances.argmax().item())])
            total = sum(a.log() * (i + 1) for i, a in enumerate(acts))
            assert total.item() < 0
            learned += clock.volatile
            if length == 39:
                assert clock.volatile and learned >= 10
    assert not clock.volatile


@pytest.mark.usefixtures("usual_rule")
def test_a_program_that_repeats_is_recorded() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(5, 5) for _ in range(30)])
    data = [sample(i, 4 + i % 3, 5) for i in range(6)]
    with torch.no_grad():
        for _ in range(5):
            for batch in data:
                model(batch).sum().item()
    assert not clock.volatile


@pytest.mark.usefixtures("at_once")
def test_calls_on_another_device_stay_there() -> None:
    """Its memory may be an array of NumPy, as the host's."""
    x = torch.ones(3, 3, device="interpret")
    places = torch.zeros(3, 3, dtype=torch.int64, device="interpret")
    found = [x * 2, x.sum(), x @ x, x.gather(0, places)]
    assert [t.device.type for t in found] == ["interpret"] * 4


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("tracked", [False, True])
def test_calls_of_new_sizes_run_by_the_routine_of_their_family(tracked: bool) -> None:
    """Sizes of 0 and 1 are other families; what broadcasts is, too."""
    layer = torch.nn.Linear(6, 4)
    weight = layer.weight.detach().numpy().astype(np.float64)

    def call(x: Any) -> Any:
        return [x + x, x.tanh(), x.mean(), x.sum(-1), x.norm(), x * x[:1], layer(x)]

    for n in (5, 3, 7, 1, 0, 2, 9, 5, 7, 3000, 8):
        x = sample(n, n, 6).requires_grad_(tracked)
        made = call(x)
        a = x.detach().numpy().astype(np.float64)
        first = a[:1] if n else np.zeros((0, 6))
        wanted = [a + a, np.tanh(a), a.mean() if n else np.nan, a.sum(-1), np.linalg.norm(a),
                  a * first, a @ weight.T + layer.bias.detach().numpy()]  # fmt: skip
        for found, expected in zip(made, wanted, strict=True):
            np.testing.assert_allclose(found.detach().numpy(), expected, 2e-5, 1e-5)
        if tracked and n:
            made[0].sum().backward(retain_graph=True)
            (made[2] * 3).backward()
            np.testing.assert_allclose(x.grad.numpy(), 2 + 3 / a.size, 1e-5)
    routines = [f.only for f in epoch.families.values() if f.only is not None]
    assert any(r.is_free and r.run is not None for r in routines)


@pytest.mark.usefixtures("at_once")
def test_elements_are_views_like_others() -> None:
    x = sample(0, 4, 5) * 1
    values = x.numpy().copy()
    for at in [(0, 0), (3, 4), (-1, 2), (2, -5), (-4, -1)]:
        part = x[at]
        assert part.shape == () and part.item() == values[at] and part.data_ptr() != 0
        assert part.storage_offset() == (at[0] % 4) * 5 + at[1] % 5 and part.stride() == ()
    x.t()[1, 2] += 1
    values[2, 1] += 1
    assert x[2, 1].item() == values[2, 1] == x[2][1].item()
    part = x[1, 3]
    part.mul_(2)
    values[1, 3] *= 2
    np.testing.assert_array_equal(x.numpy(), values)
    again = pickle.loads(pickle.dumps(part))
    assert again.item() == values[1, 3]
    assert x[True, 1].shape == (1, 5)  # a bool is no place
    for at in [(4, 0), (0, 5), (-5, 0), (0, -6)]:
        with pytest.raises(IndexError, match=r"out of (range|bounds)"):
            x[at]
    w = sample(1, 3, 3).requires_grad_()
    (w[1, 2] * w[-1, 0]).backward()
    wanted = np.zeros((3, 3), np.float32)
    wanted[1, 2], wanted[2, 0] = w[2, 0].item(), w[1, 2].item()
    np.testing.assert_array_equal(w.grad.numpy(), wanted)


@pytest.mark.usefixtures("at_once")
def test_a_base_of_views_is_an_operand_like_others() -> None:
    w = sample(2, 3, 4).requires_grad_()
    y = w * 2
    part = y[1]
    total = (y + y).sum() + part.sum()
    with torch.no_grad():
        flat = w.view(-1)
        assert not (w * 2).requires_grad and flat.shape == (12,)
    total.backward()
    wanted = np.full((3, 4), 4, np.float32)
    wanted[1] += 2
    np.testing.assert_array_equal(w.grad.numpy(), wanted)
    z = sample(3, 4)
    view, shared = z[1:], z.numpy()
    shared[0] = 7  # NumPy writes to the memory that a call has read
    double = z * 2
    shared[1] = 9
    assert double[0].item() == 14 and view[0].item() == 9 and (z * 2)[1].item() == 18


@pytest.mark.usefixtures("at_once")
def test_errors_of_values_come_in_their_line_where_gradients_flow() -> None:
    table, layer = torch.nn.Embedding(30, 8), torch.nn.Linear(8, 5)
    updates = torch.optim.SGD([*table.parameters(), *layer.parameters()], lr=0.1)
    for n in (4, 4, 4, 7):
        places = torch.arange(n)
        loss = F.cross_entropy(layer(table(places)), places % 5)
        updates.zero_grad()
        loss.backward()
        for wrong in ([31], [3, 31, 4, 5]):
            with pytest.raises(IndexError, match="out of range"):
                layer(table(torch.tensor(wrong)))
        updates.step()
        assert loss.item() > 0


@pytest.mark.usefixtures("at_once")
def test_writes_in_place_at_once() -> None:
    """Of any memory that nobody else reads, also where its latest value waits."""
    for make in (
        lambda: torch.tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4)),
        lambda: torch.arange(12.0).view(3, 4).t().contiguous().t(),
        lambda: torch.zeros(3, 4),
    ):
        x = make()
        expected = np.array(x.numpy().copy())
        x = make()
        for call, compute in (
            (lambda t: t.add_(1), lambda a: a + 1),
            (lambda t: t.mul_(torch.full((3, 4), 2.0)), lambda a: a * 2),
            (lambda t: t.tanh_(), np.tanh),
            (lambda t: t.clamp_(0.2, 0.9), lambda a: np.clip(a, np.float32(0.2), np.float32(0.9))),
            (lambda t: t.sub_(0.5, alpha=2), lambda a: a - np.float32(1)),
        ):
            assert call(x) is x
            assert (x._storage or x)._node is None
            expected = compute(expected)
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)


@pytest.mark.usefixtures("at_once")
def test_a_write_in_place_leaves_what_others_have() -> None:
    x, y = sample(0, 4), sample(1, 4)
    kept, before = x.view(2, 2), x.numpy().copy()
    z = x.clone()
    z.tanh_()
    z.copy_(y)
    z.add_(1)
    np.testing.assert_array_equal(y.numpy(), sample(1, 4).numpy())
    x.sigmoid_()
    np.testing.assert_array_equal(kept.numpy().ravel(), x.numpy())
    np.testing.assert_allclose(x.numpy(), 1 / (1 + np.exp(-before)), rtol=1e-6)
    w = sample(2, 4).requires_grad_()
    saved = sample(3, 4)
    product = w * saved
    saved.exp_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("write", ["setitem", "copy_", "add_"])
def test_rows_of_one_memory_are_written_at_once(write: str) -> None:
    x, expected = sample(0, 5, 3), sample(0, 5, 3).numpy().copy()
    for i in range(20):
        to, by = i % 5, (i * 3 + 1) % 5
        if write == "setitem":
            x[to] = x[by]
        elif write == "copy_":
            x[to].copy_(x[by])
        else:
            x[to].add_(x[by])
        assert x._node is None and (x._storage is None or x._storage._node is None)
        expected[to] = expected[by] + (expected[to] if write == "add_" else 0)
    x[1:] = x[:-1]  # overlapping parts, as with NumPy
    expected[1:] = expected[:-1].copy()
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5)


@pytest.mark.usefixtures("at_once")
def test_leaves_are_written_at_once_without_grad_mode_or_through_their_data() -> None:
    """As averages of weights and updates by hand write them."""
    w, other = torch.nn.Parameter(sample(0, 3, 4)), torch.nn.Parameter(sample(1, 3, 4))
    expected, by = w.detach().numpy().copy(), other.detach().numpy().copy()
    (w * other).sum().backward()
    version = w._version

    def at_rest() -> bool:
        return (w._storage or w)._node is None

    with torch.no_grad():
        for write, compute in (
            (lambda: w.lerp_(other, 0.25), lambda a: a + np.float32(0.25) * (by - a)),
            (lambda: w.mul_(0.5), lambda a: a * np.float32(0.5)),
            (lambda: w.add_(other, alpha=0.1), lambda a: a + np.float32(0.1) * by),
            (lambda: w.sub_(w.grad * 2), lambda a: a - 2 * by),
            (lambda: w[1].fill_(3), lambda a: np.where(np.arange(3)[:, None] == 1, 3, a)),
        ):
            write()
            assert at_rest()
            expected = compute(expected).astype(np.float32)
    assert w._version == version + 5 and w.requires_grad and w.is_leaf
    for write, compute in (
        (lambda: w.data.mul_(0.9), lambda a: a * np.float32(0.9)),
        (lambda: w.data.add_(other.data, alpha=-0.2), lambda a: a - np.float32(0.2) * by),
        (lambda: w.detach().zero_(), np.zeros_like),
    ):
        write()
        assert at_rest()
        expected = compute(expected)
    assert w._version == version + 6  # PyTorch doesn't count what is written through `.data`
    np.testing.assert_allclose(w.detach().numpy(), expected, rtol=1e-5)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        w.mul_(2)
    with torch.no_grad():
        w.copy_(other)
    np.testing.assert_array_equal(w.detach().numpy(), by)
    (w * w).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 3 * by, rtol=1e-6)


@pytest.mark.usefixtures("at_once")
def test_a_leaf_that_a_derivative_reads_is_no_longer_what_it_was() -> None:
    for write in (lambda w: w.mul_(2), lambda w: w.detach().mul_(2)):
        w = torch.nn.Parameter(sample(0, 4))
        y = w * w
        with torch.no_grad():
            write(w)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    w = torch.nn.Parameter(sample(0, 4))
    y = w * w
    w.data.mul_(2)
    y.sum().backward()  # reads what is there
    np.testing.assert_allclose(w.grad.numpy(), 4 * sample(0, 4).numpy(), rtol=1e-6)


@pytest.mark.usefixtures("at_once")
def test_small_new_tensors_have_their_memory_at_once() -> None:
    for made, expected in (
        (torch.zeros(2, 3), np.zeros((2, 3), np.float32)),
        (torch.ones((), dtype=torch.int16), np.ones((), np.int16)),
        (torch.ones(0, 2, dtype=torch.bool), np.ones((0, 2), bool)),
        (torch.arange(7), np.arange(7)),
        (torch.arange(9, 2, -3), np.arange(9, 2, -3)),
        (torch.bernoulli(torch.ones(())), np.ones((), np.float32)),
    ):
        assert made._node is None and type(made._buffer) is np.ndarray
        assert made._buffer.dtype == expected.dtype and made.shape == expected.shape
        np.testing.assert_array_equal(made.numpy(), expected)
    assert torch.zeros(novelty.ELEMENTS + 1)._node is not None
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.zeros(-1)
    w = torch.ones(3, requires_grad=True)
    (w * 2).sum().backward()
    assert w.is_leaf and w.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("removes", [False, True])
def test_hooks_of_forgotten_tensors_are_not_looked_at(
    removes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a loop without reads each backward pass looks at its own, however many came before."""
    from tilewright.autograd import hook_calls

    seen, looked = [], []
    as_one = hook_calls.as_one
    monkeypatch.setattr(
        "tilewright.autograd.engine.as_one", lambda *args: looked.append(1) or as_one(*args)
    )
    w = torch.ones(3, requires_grad=True)
    for i in range(60):
        y = w * 2
        handle = y.register_hook(lambda g, i=i: seen.append(i))
        before = len(looked)
        (y * y).sum().backward()
        assert len(looked) - before <= 17
        if removes:
            handle.remove()
    assert seen == list(range(60)) and w.grad.tolist() == [480.0] * 3


@pytest.mark.usefixtures("at_once")
def test_sparse_and_nested_operands_beside_calls_at_once() -> None:
    sparse = torch.arange(16.0).reshape(4, 2, 2).to_sparse(2)
    assert sparse.clone().to_dense().tolist() == sparse.to_dense().tolist()
    assert torch.narrow_copy(sparse, 0, 1, 2).to_dense().tolist() == sparse.to_dense()[1:3].tolist()
    assert (sparse * 2).to_dense().sum().item() == 240
    sparse.mul_(3)
    assert sparse.to_dense().sum().item() == 360
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert (nested * 2).values().tolist() == nested.clone().values().mul(2).tolist()


@pytest.mark.usefixtures("at_once")
def test_parts_of_complex_numbers_are_views_like_others() -> None:
    for n in (3, 4, 5):
        data = sample(n, n, 4).numpy() + 1j * sample(n + 9, n, 4).numpy()
        a = torch.tensor(data)
        real, imag = a.real, a[1:].imag.t()
        assert real.dtype is torch.float32 and real._node is None and imag._node is None
        swapped = torch.complex(a.imag, real)
        assert swapped._node is None
        np.testing.assert_array_equal(swapped.numpy(), data.imag + 1j * data.real)
        np.testing.assert_array_equal(imag.sum(1).numpy(), data[1:].imag.sum(0))
        real.mul_(2)
        imag[0] = 7.0
        data.real *= 2
        data.imag[1:, 0] = 7
        np.testing.assert_array_equal(a.numpy(), data)
        np.testing.assert_array_equal(torch.view_as_complex(torch.view_as_real(a)).numpy(), data)
        assert real[0, 0].item() == data[0, 0].real and a._version == 2


@pytest.mark.usefixtures("at_once")
def test_what_follows_from_sizes_alone_is_kept_and_not_handed_out() -> None:
    for n in (3, 4, 5):
        a = sample(n, n, 6)
        for _ in range(20):  # so often that the call's function is written
            lower, alike = a.tril(1), a.isreal()
            np.testing.assert_array_equal(lower.numpy(), np.tril(a.numpy(), 1))
            assert alike.all().item()
            lower.fill_(7)
            alike.zero_()
            grown = F.interpolate(a[None, None], (2 * n, 12), mode="bilinear")
            rows = grown[0, 0, :, 0].numpy()
            np.testing.assert_allclose(
                rows[1:-1:2], a[:-1, 0].numpy() * 0.75 + a[1:, 0].numpy() * 0.25, 1e-5, 1e-6
            )


@pytest.mark.usefixtures("at_once")
def test_numpy_warns_of_no_call() -> None:
    """Also not of calls whose forms say by themselves what they make."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (3, 4, 5):
            big, place = torch.full((n, 6), 6e4), torch.zeros(n, 6, dtype=torch.int64)
            for _ in range(20):
                half = big.half().scatter_add(1, place, big.half())
                assert half[:, 0].isinf().all() and (half[:, 1:] == 6e4).all()
                assert (big * 1e38).sum(0).isinf().all() and (big * 1e38).cumsum(1)[
                    :, -1
                ].isinf().all()
                assert torch.fft.fft(big / 0).real.isnan().any()
                assert big.gather(1, place)[:, -1].tolist() == [6e4] * n
