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


FAMILIES: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "layers": layers,
    "arithmetic": arithmetic,
    **{f"losses, {r}": lambda m, w, r=r: losses(m, w, r) for r in REDUCTIONS},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_names(torch: Any, family: str) -> None:
    def names(m: Any) -> dict[str, str]:
        w = m.full((4, 3), 0.5, requires_grad=True)
        return {k: t.grad_fn.name() for k, t in FAMILIES[family](m, w).items()}

    assert names(tw) == names(torch)
