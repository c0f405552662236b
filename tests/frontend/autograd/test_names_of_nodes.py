"""The names of `grad_fn` that printed tensors show, against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw

REDUCTIONS = ("none", "mean", "sum")


def losses(m: Any, w: Any, reduction: str) -> dict[str, Any]:
    F = m.nn.functional
    classes, image = m.tensor([0, 1, 2, 0]), m.ones(1, 3, 2, 2, requires_grad=True)
    even = m.full((4, 3), 1 / 3)
    log = m.zeros(5, 1, 4, requires_grad=True).log_softmax(-1)
    lengths = m.tensor([[1, 2]]), m.tensor([5]), m.tensor([2])
    return {
        "cross entropy": F.cross_entropy(w, classes, reduction=reduction),
        "smoothed": F.cross_entropy(w, classes, label_smoothing=0.1, reduction=reduction),
        "of probabilities": F.cross_entropy(w, even, reduction=reduction),
        "of images": F.cross_entropy(image, m.zeros(1, 2, 2).long(), reduction=reduction),
        "nll": F.nll_loss(w, classes, reduction=reduction),
        "l1": F.l1_loss(w, even, reduction=reduction),
        "kl": F.kl_div(w, even, reduction=reduction),
        "kl of logarithms": F.kl_div(w, even, reduction=reduction, log_target=True),
        "ctc": F.ctc_loss(log, *lengths, reduction=reduction),
        "mse": F.mse_loss(w, even, reduction=reduction),
    }


def layers(m: Any, w: Any) -> dict[str, Any]:
    F, nn = m.nn.functional, m.nn
    found = {
        "linear": F.linear(w, m.ones(2, 3), m.ones(2)),
        "linear without bias": F.linear(w, m.ones(2, 3)),
        "linear 3-d": F.linear(w[None], m.ones(2, 3), m.ones(2)),
        "linear 3-d without bias": F.linear(w[None], m.ones(2, 3)),
        "bilinear": F.bilinear(w, w, m.ones(5, 3, 3), m.ones(5)),
        "layer norm": F.layer_norm(w, (3,)),
        "rms norm": F.rms_norm(w, (3,)),
        "normalize": F.normalize(w),
        "cosine": F.cosine_similarity(w, w),
        "dropout": F.dropout(w),
        "logsigmoid": F.logsigmoid(w),
        "relu6": F.relu6(w),
        "prelu": F.prelu(w, m.ones(1)),
        "bicubic": F.interpolate(w[None, None], scale_factor=2, mode="bicubic"),
        "attention": F.scaled_dot_product_attention(*[w[None, None]] * 3),
        "heads": nn.MultiheadAttention(3, 1, batch_first=True)(*[w[None]] * 3)[0],
        "lstm": nn.LSTM(3, 4)(w[None])[0],
        "gru": nn.GRU(3, 4)(w[None])[0],
        "lstm cell": nn.LSTMCell(3, 4)(w)[0],
        "gru cell": nn.GRUCell(3, 4)(w),
        "rnn cell": nn.RNNCell(3, 4)(w),
        "grid": F.grid_sample(w[None, None], m.zeros(1, 2, 2, 2), align_corners=False),
    }
    for dims in (1, 2, 3):
        x = m.ones(2, 3, *(4,) * dims, requires_grad=True)
        mode = ("linear", "bilinear", "trilinear")[dims - 1]
        for name in ("max_pool", "avg_pool"):
            found[f"{name}{dims}d"] = getattr(F, f"{name}{dims}d")(x, 2)
        for size in (1, 2):
            pooled = getattr(F, f"adaptive_avg_pool{dims}d")(x, size)
            found[f"adaptive{dims}d to {size}"] = pooled
        found[f"batch norm {dims}d"] = getattr(nn, f"BatchNorm{dims}d")(3)(x)
        found[f"instance norm {dims}d"] = getattr(nn, f"InstanceNorm{dims}d")(3)(x)
        found[f"group norm {dims}d"] = F.group_norm(x, 3)
        found[f"nearest {dims}d"] = F.interpolate(x, scale_factor=2)
        found[f"linear {dims}d"] = F.interpolate(x, scale_factor=2, mode=mode)
        for mode in ("constant", "reflect", "replicate"):
            found[f"{mode} {dims}d"] = F.pad(x, (1, 1) * dims, mode=mode)
    return found


def arithmetic(m: Any, w: Any) -> dict[str, Any]:
    return {
        "max": w.max(),
        "min": w.min(),
        "amax": (w * 1).amax(),
        "amax of rows": w.amax(1),
        "clamp": w.clamp(0, 1),
        "clamp from": w.clamp(min=0),
        "clamp by tensors": w.clamp(m.zeros(3), m.ones(3)),
        "1 - x": 1 - w,
        "x - 1": w - 1,
        "tensor - x": m.ones(3) - w,
        "2 ** x": 2**w,
        "x ** 2": w**2,
        "x ** x": w**w,
        "log1p": w.log1p(),
    }


def forms(m: Any, w: Any) -> dict[str, Any]:
    """Calls whose forms PyTorch numbers, and compounds that have a name of their own there."""
    at, image = m.tensor([[0], [1], [0], [2]]), m.ones(1, 1, 4, 4, requires_grad=True)
    F, ones = m.nn.functional, m.ones(4, 3)
    pooled, where = F.max_pool2d(image, 2, return_indices=True)
    return {
        "square": w.square(),
        "deg2rad": m.deg2rad(w),
        "remainder": w % 2,
        "remainder by a tensor": w % ones,
        "fmod": w.fmod(2),
        "fmod by a tensor": w.fmod(ones),
        "copysign": w.copysign(-1),
        "copysign of a tensor": w.copysign(ones),
        "div, floor": m.div(w, ones, rounding_mode="floor"),
        "div, trunc": m.div(w, ones, rounding_mode="trunc"),
        "lerp": w.lerp(ones, 0.5),
        "lerp by a tensor": w.lerp(ones, ones),
        "masked_fill": w.masked_fill(w > 0, 0.0),
        "masked_fill by a tensor": w.masked_fill(w > 0, m.tensor(0.0)),
        "masked_select": w.masked_select(w > 0),
        "take": w.take(at),
        "scatter": w.scatter(1, at, ones),
        "scatter a number": w.scatter(1, at, 1.0),
        "scatter_add": w.scatter_add(1, at, ones),
        "index_fill": w.index_fill(0, at[:, 0], 1.0),
        "index_fill by a tensor": w.index_fill(0, at[:, 0], m.tensor(1.0)),
        "median": w.median(),
        "median of rows": w.median(1)[0],
        "nanmedian of rows": w.nanmedian(1)[0],
        "nansum": w.nansum(1),
        "aminmax": w.aminmax()[1],
        "var_mean": m.var_mean(w)[1],
        "std_mean": m.std_mean(w, 0)[0],
        "dist": m.dist(w, ones),
        "pdist": F.pdist(w),
        "cdist": m.cdist(w, ones, p=3),
        "trace": w.trace(),
        "vdot": m.vdot(w[0], ones[0]),
        "squeeze": w[:, :1].squeeze(),
        "squeeze one": w[:, :1].squeeze(1),
        "squeeze some": w[:1, :1].squeeze((0, 1)),
        "unpooled": F.max_unpool2d(pooled, where, 2),
        "selu": F.selu(w),
        "softsign": F.softsign(w),
        "tanhshrink": F.tanhshrink(w),
        "rrelu": F.rrelu(w, training=True),
        "triplet": F.triplet_margin_loss(w, w * 2, w * 3),
        "cosine loss": F.cosine_embedding_loss(w, w * 2, m.ones(4), reduction="sum"),
        "ranking": F.margin_ranking_loss(w, w * 2, ones),
        "hinge": F.hinge_embedding_loss(w, ones, reduction="none"),
        "poisson": F.poisson_nll_loss(w, w),
        "gaussian": F.gaussian_nll_loss(w, w, w),
        "soft margin": F.multilabel_soft_margin_loss(w, ones),
        "float_power": w.float_power(2),
        "float_power of a number": m.float_power(2, w),
        "float_power by a tensor": w.float_power(ones),
        "vecdot": m.linalg.vecdot(w, ones),
        "vecdot of vectors": m.linalg.vecdot(w[0], ones[0]),
        "take_along_dim": w.take_along_dim(at, 1),
        "responses": F.local_response_norm(image, 2),
    }


def writes(m: Any, w: Any) -> dict[str, Any]:
    def after(change: Callable[[Any], Any]) -> Any:
        x = w * 1
        change(x)
        return x

    return {
        "zero_": after(lambda x: x.zero_()),
        "fill_": after(lambda x: x.fill_(2.0)),
        "copy_": after(lambda x: x.copy_(m.ones(4, 3))),
        "mul_": after(lambda x: x.mul_(2)),
        "a row": after(lambda x: x.__setitem__(0, 1.0)),
        "a column": after(lambda x: x.__setitem__((slice(None), 1), w[:, 0])),
        "through a view": after(lambda x: x[:, 0].mul_(2)),
        "a read after it": after(lambda x: x[0].zero_())[0],
    }


def sums_of_products(m: Any, w: Any) -> dict[str, Any]:
    sizes = dict(zip("abcd", (4, 3, 4, 2), strict=True))
    equations = (
        "ab->ba", "ab->b", "aab->ab", "ab,ab->ab", "ab,c->ac", "ab,ac->bc", "ab,ac->abc",
        "a,ab->ab", "ab,bc,cd->ad", "ab,bc,cd->abcd", "ab,ab", "ab,bc",
    )  # fmt: skip
    found = {}
    for equation in equations:
        terms = equation.split("->")[0].split(",")
        parts = [m.ones([sizes[c] for c in t], requires_grad=True) for t in terms]
        found[equation] = m.einsum(equation, *parts)
    return found


def picked(m: Any, w: Any) -> dict[str, Any]:
    x = (w * 2).reshape(2, 2, 3)
    return {
        "row, slice": x[0, :1],
        "row, slice, all": x[0, :1, :],
        "row, all, slice": x[0, :, :2],
        "slice, place": x[:1, :1, 1],
        "row, all": x[0, :],
    }


FAMILIES: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "layers": layers,
    "arithmetic": arithmetic,
    "forms": forms,
    "writes": writes,
    "sums of products": sums_of_products,
    "parts": picked,
    **{f"losses, {r}": lambda m, w, r=r: losses(m, w, r) for r in REDUCTIONS},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_names(torch: Any, family: str) -> None:
    def names(m: Any) -> dict[str, str]:
        w = m.full((4, 3), 0.5, requires_grad=True)
        return {k: t.grad_fn.name() for k, t in FAMILIES[family](m, w).items()}

    assert names(tw) == names(torch)


@pytest.mark.filterwarnings("ignore")
def test_nodes_without_a_formula_have_a_prefix(torch: Any) -> None:
    def found(m: Any) -> list[str]:
        w = m.ones(3, requires_grad=True)
        x = w * 1
        x[0] = 2.0
        node = x.grad_fn
        ends = (w * 2).grad_fn.next_functions[0][0]
        return [node.name(), type(node).__name__, repr(node).split(" ")[0], ends.name()]

    assert found(tw) == found(torch)
