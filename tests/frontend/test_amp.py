"""autocast and GradScaler, against PyTorch's lists of ops and PyTorch itself."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import nn, recording
from tilewright.amp import GradScaler, autocast, casts, custom_bwd, custom_fwd
from tilewright.nn import functional as F
from tilewright.recording import builders

tw_optim = __import__("tilewright.optim", fromlist=["SGD"])

# Calls by the name their list has for them: call(torch, F, make), where make(*shape) is a tensor of
# numbers in (0, 1).
Call = Callable[[Any, Any, Callable[..., Any]], Any]
CALLS: dict[str, Call] = {
    "matmul": lambda t, F, x: x(2, 3) @ x(3, 2),
    "mm": lambda t, F, x: t.mm(x(2, 3), x(3, 2)),
    "einsum": lambda t, F, x: t.einsum("ij,jk->ik", x(2, 3), x(3, 2)),
    "linear": lambda t, F, x: F.linear(x(2, 3), x(4, 3), x(4)),
    "conv1d": lambda t, F, x: F.conv1d(x(1, 2, 5), x(3, 2, 3), x(3)),
    "conv2d": lambda t, F, x: F.conv2d(x(1, 2, 5, 5), x(3, 2, 3, 3)),
    "conv3d": lambda t, F, x: F.conv3d(x(1, 2, 3, 3, 3), x(3, 2, 3, 3, 3)),
    "conv_transpose1d": lambda t, F, x: F.conv_transpose1d(x(1, 2, 5), x(2, 3, 3)),
    "conv_transpose2d": lambda t, F, x: F.conv_transpose2d(x(1, 2, 5, 5), x(2, 3, 3, 3)),
    "conv_transpose3d": lambda t, F, x: F.conv_transpose3d(x(1, 2, 3, 3, 3), x(2, 3, 3, 3, 3)),
    "scaled_dot_product_attention": lambda t, F, x: F.scaled_dot_product_attention(
        x(1, 2, 4, 8), x(1, 2, 4, 8), x(1, 2, 4, 8)
    ),
    "prelu": lambda t, F, x: F.prelu(x(2, 3), x(3)),
    "mv": lambda t, F, x: t.mv(x(2, 3), x(3)),
    "addmm": lambda t, F, x: t.addmm(x(2, 2), x(2, 3), x(3, 2), alpha=2),
    "baddbmm": lambda t, F, x: t.baddbmm(x(1, 2, 2), x(1, 2, 3), x(1, 3, 2)),
    "addbmm": lambda t, F, x: t.addbmm(x(2, 2), x(4, 2, 3), x(4, 3, 2)),
    "addmv": lambda t, F, x: t.addmv(x(2), x(2, 3), x(3)),
    "addr": lambda t, F, x: t.addr(x(2, 3), x(2), x(3)),
    "cdist": lambda t, F, x: t.cdist(x(30, 3), x(4, 3)),
    **{
        name: lambda t, F, x, name=name: getattr(t, name)(x(2, 3))  # type: ignore[misc]
        for name in "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh "
        "tan sum prod".split()
    },
    "pow": lambda t, F, x: x(2, 3) ** 2,
    "number by tensor": lambda t, F, x: 2.0 / x(2, 3),
    "softplus": lambda t, F, x: F.softplus(x(2, 3)),
    "softmax": lambda t, F, x: x(2, 3).softmax(-1),
    "log_softmax": lambda t, F, x: F.log_softmax(x(2, 3), -1),
    "layer_norm": lambda t, F, x: F.layer_norm(x(2, 3), (3,), x(3), x(3)),
    "rms_norm": lambda t, F, x: F.rms_norm(x(2, 3), (3,), x(3)),
    "group_norm": lambda t, F, x: F.group_norm(x(2, 4, 3), 2, x(4), x(4)),
    "norm": lambda t, F, x: x(2, 3).norm(),
    "cosine_similarity": lambda t, F, x: F.cosine_similarity(x(2, 3), x(2, 3)),
    "cumsum": lambda t, F, x: x(2, 3).cumsum(0),
    "cumprod": lambda t, F, x: x(2, 3).cumprod(0),
    "logsumexp": lambda t, F, x: x(2, 3).logsumexp(0),
    "cross_entropy": lambda t, F, x: F.cross_entropy(x(2, 3), t.tensor([0, 2])),
    "nll_loss": lambda t, F, x: F.nll_loss(x(2, 3), t.tensor([0, 2])),
    "mse_loss": lambda t, F, x: F.mse_loss(x(2, 3), x(2, 3)),
    "l1_loss": lambda t, F, x: F.l1_loss(x(2, 3), x(2, 3)),
    "smooth_l1_loss": lambda t, F, x: F.smooth_l1_loss(x(2, 3), x(2, 3)),
    "huber_loss": lambda t, F, x: F.huber_loss(x(2, 3), x(2, 3)),
    "kl": lambda t, F, x: F.kl_div(x(2, 3), x(2, 3), reduction="sum"),
    "poisson": lambda t, F, x: F.poisson_nll_loss(x(2, 3), x(2, 3)),
    "bce_logits": lambda t, F, x: F.binary_cross_entropy_with_logits(x(2, 3), x(2, 3)),
    "bce": lambda t, F, x: F.binary_cross_entropy(x(2, 3), x(2, 3)),
    "hinge_embedding": lambda t, F, x: F.hinge_embedding_loss(x(2, 3), x(2, 3).ceil()),
    "margin_ranking": lambda t, F, x: F.margin_ranking_loss(x(3), x(3), x(3)),
    "soft_margin": lambda t, F, x: F.soft_margin_loss(x(2, 3), x(2, 3)),
    "multi_margin": lambda t, F, x: F.multi_margin_loss(x(2, 3), t.tensor([0, 2])),
    "multilabel_margin": lambda t, F, x: F.multilabel_margin_loss(x(2), t.tensor([1, -1])),
    "interpolate": lambda t, F, x: F.interpolate(x(1, 1, 4, 4), scale_factor=2, mode="bilinear"),
    "normalize": lambda t, F, x: F.normalize(x(2, 3)),
    "avg_pool3d": lambda t, F, x: F.avg_pool3d(x(1, 1, 4, 4, 4), 2),
    "max_pool3d": lambda t, F, x: F.max_pool3d(x(1, 1, 4, 4, 4), 2),
    "adaptive_avg_pool3d": lambda t, F, x: F.adaptive_avg_pool3d(x(1, 1, 4, 4, 4), 2),
    "dist": lambda t, F, x: t.dist(x(2, 3), x(2, 3)),
    "cdist by p": lambda t, F, x: t.cdist(x(2, 3), x(4, 3), p=3.0),
    "pdist": lambda t, F, x: F.pdist(x(3, 2)),
    "vdot": lambda t, F, x: t.vdot(x(3), x(3)),
    "scatter_add": lambda t, F, x: x(2, 3).scatter_add(1, t.tensor([[0], [2]]), x(2, 1)),
    # Not on any list.
    "relu": lambda t, F, x: x(2, 3).relu(),
    "add": lambda t, F, x: x(2, 3) + x(2, 3),
    "mean": lambda t, F, x: x(2, 3).mean(),
    "max_pool2d": lambda t, F, x: F.max_pool2d(x(1, 1, 4, 4), 2),
    "gelu": lambda t, F, x: F.gelu(x(2, 3)),
    "batch_norm": lambda t, F, x: F.batch_norm(x(2, 3), None, None, training=True),
    "sigmoid": lambda t, F, x: x(2, 3).sigmoid(),
}


def _definite(t: Any, x: Any) -> Any:
    a = x(3, 3)
    return a + a.mT + 3 * t.eye(3, dtype=a.dtype)


# Compared on the CPU alone: elsewhere PyTorch has no halves of them.
ON_THE_CPU: dict[str, Callable[[Any, Any, Callable[..., Any]], Any]] = {
    "cholesky": lambda t, F, x: t.linalg.cholesky(_definite(t, x)),
    "det": lambda t, F, x: t.linalg.det(_definite(t, x)),
    "slogdet": lambda t, F, x: t.linalg.slogdet(_definite(t, x))[1],
    "eig": lambda t, F, x: t.linalg.eig(_definite(t, x))[0].abs().sort()[0],
    "eigvals": lambda t, F, x: t.linalg.eigvals(_definite(t, x)).abs().sort()[0],
    "eigh": lambda t, F, x: t.linalg.eigh(_definite(t, x))[0],
    "eigvalsh": lambda t, F, x: t.linalg.eigvalsh(_definite(t, x)),
    "inv_ex": lambda t, F, x: t.linalg.inv_ex(_definite(t, x))[0],
    "solve_ex": lambda t, F, x: t.linalg.solve_ex(_definite(t, x), x(3, 2))[0],
    "qr": lambda t, F, x: t.linalg.qr(_definite(t, x))[1].abs(),
    "svd": lambda t, F, x: t.linalg.svd(_definite(t, x))[1],
    "svdvals": lambda t, F, x: t.linalg.svdvals(_definite(t, x)),
    "householder_product": lambda t, F, x: t.linalg.householder_product(x(3, 2), x(2)),
    "ormqr": lambda t, F, x: t.ormqr(x(3, 2), x(2), x(3, 3)),
    "affine_grid": lambda t, F, x: F.affine_grid(x(1, 2, 3), [1, 1, 4, 4], align_corners=False),
    "grid_sample": lambda t, F, x: F.grid_sample(x(1, 1, 4, 4), x(1, 3, 3, 2), align_corners=False),
    "ctc_loss": lambda t, F, x: F.ctc_loss(
        -x(5, 2, 4), t.tensor([[1, 2], [2, 3]]), t.tensor([5, 5]), t.tensor([2, 2])
    ),
    "sparse mm": lambda t, F, x: t.sparse.mm(x(2, 3).to_sparse(), x(3, 2)),
    "antialias": lambda t, F, x: F.interpolate(
        x(1, 1, 8, 8), size=(3, 3), mode="bilinear", antialias=True
    ),
}


def maker(torch: Any, dtype: Any, device: str = "cpu") -> Callable[..., Any]:
    rng = np.random.default_rng(0)

    def make(*shape: int) -> Any:
        numbers = rng.uniform(0.1, 0.9, shape).astype(np.float32)
        return torch.tensor(numbers).to(device).to(dtype)

    return make


@pytest.mark.parametrize("given", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", [*CALLS, *ON_THE_CPU])
def test_dtypes_on_the_cpu_are_pytorchs(name: str, given: str) -> None:
    torch = pytest.importorskip("torch")
    call = CALLS.get(name) or ON_THE_CPU[name]
    outcomes = []
    for t in (tw, torch):
        functional = F if t is tw else torch.nn.functional
        try:
            with t.autocast("cpu", t.bfloat16), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = call(t, functional, maker(t, getattr(t, given)))
            outcomes.append((str(y.dtype), y.double().numpy()))
        except (RuntimeError, NotImplementedError) as error:
            outcomes.append(("error", error))
    ours, theirs = outcomes
    if theirs[0] == "error":
        pytest.skip(f"PyTorch refuses: {theirs[1]}"[:80])
    assert ours[0] == theirs[0]
    half = "bfloat16" in ours[0] + given
    np.testing.assert_allclose(ours[1], theirs[1], rtol=0.02 if half else 1e-5, atol=half * 0.02)


# The lists for GPUs, as far as they are in CALLS; binary_cross_entropy is refused.
LOWER = set(
    "matmul mm einsum linear conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d "
    "scaled_dot_product_attention prelu mv addmm baddbmm addbmm addmv addr".split()
)
FLOAT32 = set(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan sum prod pow "
    "softplus softmax log_softmax layer_norm rms_norm group_norm norm cosine_similarity cumsum "
    "cumprod logsumexp cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl "
    "poisson bce_logits hinge_embedding margin_ranking soft_margin multi_margin multilabel_margin "
    "interpolate normalize cdist dist pdist".split()
) | {"number by tensor", "cdist by p"}


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"bce"}))
def test_dtypes_on_a_gpu_are_those_of_the_documentation(name: str) -> None:
    """https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior"""
    for given in (tw.float32, tw.float16):
        with autocast("interpret"):
            y = CALLS[name](_On("interpret"), F, maker(tw, given, "interpret"))
        if name in LOWER:
            expected = tw.float16
        elif name in FLOAT32:
            expected = tw.float32
        else:
            expected = given
        assert y.dtype is expected


def test_a_number_by_a_tensor_is_a_reciprocal() -> None:
    """As in PyTorch, whose list for GPUs has that in float32, and division on none."""
    x = tw.tensor([0.3, 3.0], dtype=tw.float16, device="interpret")
    with autocast("interpret"):
        y = 2.0 / x
        assert y.dtype is tw.float32 and (x / 2.0).dtype is tw.float16
    np.testing.assert_allclose(y.tolist(), 2 / x.cpu().numpy().astype(np.float64), rtol=1e-6)
    assert (2.0 / x).dtype is tw.float16 and (2 / tw.tensor([4])).tolist() == [0.5]
    with autocast("cpu"):
        assert (2.0 / tw.ones(2, dtype=tw.bfloat16)).dtype is tw.bfloat16


class _On:
    """tilewright with tensors of integers on a device."""

    def __init__(self, device: str):
        self._device = device

    def __getattr__(self, name: str) -> Any:
        if name == "tensor":
            return lambda values: tw.tensor(values, device=self._device)
        return getattr(tw, name)


def test_every_class_that_is_declared_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: set[Any] = set()

    def cast_of(build: Any, kind: str) -> Any:
        tried.add(build)
        return known(build, kind)

    known = casts.cast_of
    monkeypatch.setattr(casts, "cast_of", cast_of)
    recording.flush()
    recording.clear_tables()  # a call that was met before is not cast again
    for kind in ("cpu", "interpret"):
        for call in (*CALLS.values(), *(ON_THE_CPU.values() if kind == "cpu" else ())):
            with autocast(kind), contextlib.suppress(RuntimeError):
                call(_On(kind), F, maker(tw, tw.float32, kind))
    elsewhere = {
        "multi_head_attention_forward", "rnn", "rnn_cell", "atan2", "bilinear", "dot", "tensordot",
        "cat", "stack", "index_put", "scatter", "index_copy", "softmin",
        # that of nested tensors
        "scaled_dot_product_attention",
    }  # fmt: skip
    declared = {build: facts for build, facts in builders.all_facts() if facts.casts}
    untried = {facts.name for build, facts in declared.items() if build not in tried}
    assert untried <= elsewhere and len(declared) > 60


def test_index_put_and_index_copy_take_the_widest(torch: Any) -> None:
    for t in (tw, torch):
        x, index = t.zeros(3, dtype=t.bfloat16), t.tensor([1])
        with t.autocast("cpu", t.bfloat16):
            assert x.index_copy(0, index, t.ones(1)).dtype is t.float32
    h, index = tw.zeros(3, device="interpret").half(), tw.tensor([1], device="interpret")
    with autocast("interpret"):
        y = h.index_put((index,), tw.ones(1, device="interpret"))
        assert y.dtype is tw.float32 and y.tolist() == [0, 1, 0]
        h[index] = tw.ones(1, device="interpret")
        assert h.dtype is tw.float16 and h.tolist() == [0, 1, 0]


@pytest.mark.torch
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "RNN", "GRU", "LSTMCell", "GRUCell", "RNNCell"])
def test_recurrent_layers_on_the_cpu(torch: Any, kind: str, half: bool) -> None:
    if kind in ("GRU", "RNNCell") and not half:
        pytest.skip("PyTorch takes one of them for a layer and one for a cell")

    def result(t: Any) -> Any:
        layer, x = getattr(t.nn, kind)(4, 6), t.ones(3, 2, 4)
        for p in layer.parameters():
            p.data.fill_(0.1)
        with t.autocast("cpu", t.bfloat16):
            x = x.bfloat16() if half else x
            found = layer(x[0] if kind.endswith("Cell") else x)
            return found if kind in ("GRUCell", "RNNCell") else found[0]

    ours = result(tw)
    try:
        theirs = result(torch)
    except RuntimeError as error:
        if "could not create a primitive" not in str(error):
            raise
        pytest.skip("PyTorch's library has no such layer for this processor")
    assert str(ours.dtype) == str(theirs.dtype)
    found, wanted = ours.float().detach().numpy(), theirs.float().detach().numpy()
    np.testing.assert_allclose(found, wanted, atol=2e-2)


def test_the_widest_dtype_wins() -> None:
    x, h = tw.ones(2, 2, device="interpret"), tw.ones(2, 2, device="interpret").half()
    i = tw.zeros(2, 2, dtype=tw.int64, device="interpret")
    with autocast("interpret"):
        assert tw.cat([x, h]).dtype is tw.float32
        assert tw.stack([h, h]).dtype is tw.float16
        assert tw.atan2(x, h).dtype is tw.float32
        assert tw.dot(x[0], h[0]).dtype is tw.float32
        assert tw.dot(x[0], x[0]).dtype is tw.float32
        assert tw.tensordot(x, h).dtype is tw.float32
        assert h.scatter_add(0, i, x).dtype is tw.float32
        assert F.bilinear(h, x, tw.ones(3, 2, 2, device="interpret")).dtype is tw.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
    with autocast("cpu"):
        assert tw.zeros(3).index_copy(0, tw.tensor([1]), tw.ones(1).bfloat16()).dtype is tw.float32


def test_recurrent_layers_and_attention() -> None:
    x = tw.rand(3, 2, 8, device="interpret")
    lstm = nn.LSTM(8, 8).to("interpret")
    cell = nn.GRUCell(8, 8).to("interpret")
    attention = nn.MultiheadAttention(8, 2).to("interpret")
    with autocast("interpret"):
        y, (h, _) = lstm(x)
        assert y.dtype is h.dtype is tw.float16
        assert cell(x[0]).dtype is tw.float16
        z, weights = attention(x, x, x)
        assert z.dtype is tw.float16 and weights is not None
    np.testing.assert_allclose(
        y.float().cpu().detach().numpy(), lstm(x)[0].cpu().detach().numpy(), atol=3e-3
    )


def test_only_tensors_of_that_device_are_cast() -> None:
    x = tw.ones(2, 2)
    with autocast("interpret"):
        assert (x @ x).dtype is tw.float32
        assert (x.to("interpret") @ x.to("interpret")).dtype is tw.float16
        with autocast("cpu"):
            assert (x @ x).dtype is tw.bfloat16
            assert (x.to("interpret") @ x.to("interpret")).dtype is tw.float16


def test_modes_nest_and_end() -> None:
    x = tw.ones(2, 2)

    def dtype() -> Any:
        return (x @ x).dtype

    assert not tw.is_autocast_enabled("cpu")
    with autocast("cpu"):
        assert tw.is_autocast_enabled("cpu") and not tw.is_autocast_enabled()
        assert dtype() is tw.bfloat16
        with autocast("cpu", enabled=False):
            assert dtype() is tw.float32 and not tw.is_autocast_enabled("cpu")
            with autocast("cpu", tw.float16):
                assert dtype() is tw.float16 is tw.get_autocast_dtype("cpu")
        with pytest.raises(ZeroDivisionError), autocast("cpu", enabled=False):
            raise ZeroDivisionError
        assert dtype() is tw.bfloat16
    assert dtype() is tw.float32

    @autocast("cpu")
    def product() -> Any:
        assert tw.is_autocast_enabled("cpu")
        return dtype()

    assert product() is tw.bfloat16 and dtype() is tw.float32
    tw.set_autocast_enabled("cpu", True)
    assert dtype() is tw.bfloat16
    tw.set_autocast_enabled("cpu", False)
    assert dtype() is tw.float32 and recording.clock.casts is None


def test_the_default_dtype_can_be_chosen() -> None:
    x = tw.ones(2, 2)
    assert tw.get_autocast_dtype("cpu") is tw.bfloat16
    tw.set_autocast_dtype("cpu", tw.float16)
    try:
        with autocast("cpu"):
            assert (x @ x).dtype is tw.float16
    finally:
        tw.set_autocast_dtype("cpu", tw.bfloat16)


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'tpu'"):
        autocast("tpu")
    with pytest.raises(ValueError, match="of type `str`"):
        autocast(tw.bfloat16)  # type: ignore[arg-type]
    x = tw.ones(2, 2)
    with pytest.warns(UserWarning, match="not supported"), autocast("cpu", tw.float32):
        assert (x @ x).dtype is tw.float32
    if not tw.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"), autocast("cuda"):
            assert (x @ x).dtype is tw.float32


def test_gradients_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=s).astype(np.float32) for s in ((6, 5), (5, 7), (7,), (7, 3))]
    found = []
    for t in (tw, torch):
        x, w, b, v = (t.tensor(a, requires_grad=True) for a in arrays)
        with t.autocast("cpu", t.bfloat16):
            h = t.relu(x @ w + b)
            y = h @ v
            loss = (y.float() ** 2).mean()
        loss.backward()
        assert str(h.dtype) == "torch.float32" and str(y.dtype) == "torch.bfloat16"
        assert {str(p.grad.dtype) for p in (x, w, b, v)} == {"torch.float32"}
        found.append([loss.detach().numpy(), *(p.grad.numpy() for p in (x, w, b, v))])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.04, atol=0.04 * np.abs(theirs).max())


def test_the_mode_belongs_to_a_thread() -> None:
    x, seen = tw.ones(2, 2), []
    entered, asked = threading.Event(), threading.Event()

    def other() -> None:
        entered.wait(10)
        seen.append((x @ x).dtype)
        with autocast("cpu", tw.float16):
            seen.append((x @ x).dtype)
        asked.set()

    worker = threading.Thread(target=other)
    worker.start()
    with autocast("cpu"):
        assert (x @ x).dtype is tw.bfloat16
        entered.set()
        asked.wait(10)
        assert (x @ x).dtype is tw.bfloat16
    worker.join(10)
    assert seen == [tw.float32, tw.float16]


def test_compiled_calls_know_the_mode() -> None:
    @tw.compile
    def product(a: Any, b: Any) -> Any:
        return a @ b

    x = tw.ones(4, 4)
    for _ in range(4):
        assert product(x, x).dtype is tw.float32
        with autocast("cpu"):
            assert product(x, x).dtype is tw.bfloat16


def test_functions_with_modes_of_their_own() -> None:
    seen = []

    class Square(tw.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=tw.float32)
        def forward(ctx: Any, x: Any) -> Any:
            seen.append((x.dtype, tw.is_autocast_enabled("cpu")))
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            seen.append((g.dtype, tw.is_autocast_enabled("cpu")))
            return 2 * g * ctx.saved_tensors[0]

    x = tw.ones(2, 2, requires_grad=True)
    with autocast("cpu"):
        y = Square.apply(x @ x)
        y.sum().backward()
    assert seen == [(tw.float32, False), (tw.float32, False)]
    np.testing.assert_allclose(x.grad.numpy(), np.full((2, 2), 16.0))


# ---- the scaler ------------------------------------------------------------------------------


def test_training_with_overflows_is_pytorchs() -> None:
    """Scales, skipped steps and weights over a run in which some losses overflow."""
    torch = pytest.importorskip("torch")
    logs = []
    for t, optim, scaler_of in ((tw, tw_optim, GradScaler), (torch, torch.optim, None)):
        make = scaler_of or torch.amp.GradScaler
        scaler = make("cpu", init_scale=8.0, growth_interval=2)
        w = t.tensor([1.0, -2.0], requires_grad=True)
        optimizer = optim.SGD([w], lr=0.1, momentum=0.9)
        log = []
        for k in range(8):
            optimizer.zero_grad()
            factor = 1e38 if k in (3, 4) else 1.0
            loss = ((w * factor) ** 2).sum() if k == 3 else (w * w * factor).sum() * factor
            scaler.scale(loss).backward()
            if k % 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            log.append((scaler.get_scale(), *w.detach().numpy().tolist()))
        log.append(tuple(scaler.state_dict().values()))
        logs.append(log)
    np.testing.assert_allclose(
        np.concatenate(logs[0]), np.concatenate(logs[1]), rtol=1e-6, equal_nan=True
    )


def test_the_scaler_refuses_what_pytorch_refuses() -> None:
    scaler = GradScaler("cpu")
    w = tw.ones(2, requires_grad=True)
    optimizer = tw_optim.SGD([w], lr=0.1)
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    np.testing.assert_array_equal(w.grad.numpy(), [1, 1])
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(RuntimeError, match="Closure use"):
        scaler.step(optimizer, lambda: None)
    half = tw.ones(2).half().requires_grad_()
    half.grad = tw.ones(2).half()
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.unscale_(tw_optim.SGD([half], lr=0.1))
    assert [y.item() for y in scaler.scale([tw.ones(()), tw.ones(())])] == [2.0**16] * 2


def test_a_scaler_that_is_off() -> None:
    scaler = GradScaler("cpu", enabled=False)
    w = tw.ones(2, requires_grad=True)
    optimizer = tw_optim.SGD([w], lr=1.0)
    loss = w.sum()
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0, 0]


def test_the_state_of_a_scaler_goes_on() -> None:
    one, two = GradScaler("cpu", init_scale=4.0), GradScaler("cpu")
    two.load_state_dict(one.state_dict())
    assert two.get_scale() == 4.0 and two.state_dict() == one.state_dict()
    with pytest.raises(RuntimeError, match="empty"):
        two.load_state_dict({})


def test_changing_scales_do_not_compile_anew() -> None:
    from tilewright.runtime import tiers

    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=1)
    w = tw.ones(3, requires_grad=True)
    optimizer = tw_optim.SGD([w], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        scaler.scale((w * w).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    for _ in range(3):
        step()
    before = len(tiers._plans)
    for _ in range(4):
        step()
    assert len(tiers._plans) == before and scaler.get_scale() == 8.0 * 2**7
