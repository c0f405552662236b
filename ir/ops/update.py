"""The arithmetic of optimizers' updates. Each is one record, since a step has many of them."""

from __future__ import annotations

from ..node import Node
from ..op import Aval, Kind, Op
from .unary import sqrt


def _like_first(x: Node, *_: Node | float) -> Aval:
    return x.shape, x.dtype


descended = Op(
    "descended",
    Kind.COMPOSITE,
    _like_first,
    complex=True,
    decompose=lambda x, direction, rate: x - direction * rate,
)
"""descended(x, direction, rate): x - direction * rate, for a 0-d `rate`."""

running_mean = Op(
    "running_mean",
    Kind.COMPOSITE,
    _like_first,
    params=("beta",),
    complex=True,
    decompose=lambda mean, x, beta: mean + (x - mean) * (1 - beta),
)
"""running_mean(mean, x, beta): beta mean + (1 - beta) x."""

running_square = Op(
    "running_square",
    Kind.COMPOSITE,
    _like_first,
    params=("beta",),
    complex=True,
    decompose=lambda mean, x, beta: mean * beta + x * x * (1 - beta),
)
"""running_square(mean, x, beta): beta mean + (1 - beta) x^2."""

adam_update = Op(
    "adam_update",
    Kind.COMPOSITE,
    _like_first,
    params=("eps",),
    complex=True,
    decompose=lambda x, first, second, rate, root, eps: (
        x - first / (sqrt(second) / root + eps) * rate
    ),
    aten="_fused_adam_",
)
"""adam_update(x, first, second, rate, root, eps): x - rate first / (sqrt(second) / root + eps), for
0-d `rate` and `root`; Kingma and Ba, arXiv 1412.6980."""
