"""Extrema whose gradient goes to the one element they were taken from, as in torch.max(x, dim)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..node import Node
from ..op import Aval, Kind, Op
from .binary import eq
from .generate import iota
from .movement import reshape
from .reduce import argmax, argmin, max, min
from .ternary import where
from .unary import zeros_like


def at_position(position: Node, shape: Sequence[int], axes: Sequence[int]) -> Node:
    """True in `shape` at the row-major `position` within `axes`. `position` has size 1 along
    `axes`."""
    sizes = [s if i in axes else 1 for i, s in enumerate(shape)]
    return eq(reshape(iota(math.prod(sizes)), sizes), position)


def _selection(name: str, fold: Callable[..., Node], place: Op) -> Op:
    def infer(x: Node, axes: tuple[int, ...]) -> Aval:
        return fold(x, axes).shape, x.dtype

    def vjp(g: Node, out: Node, x: Node, axes: tuple[int, ...]) -> tuple[Node]:
        if not axes:
            return (g,)
        return (where(at_position(place(x, axes), x.shape, axes), g, zeros_like(x)),)

    return Op(name, Kind.COMPOSITE, infer, params=("axes",), vjp=vjp, decompose=fold, cost=2)


first_max = _selection("first_max", max, argmax)
"""first_max(x, axes): the largest element over `axes`; its gradient goes to the first such."""
first_min = _selection("first_min", min, argmin)
"""first_min(x, axes): the smallest element over `axes`; its gradient goes to the first such."""
