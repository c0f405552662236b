"""The form of rows of joined tensors that are taken in any order, as of an image with reflected
borders: native code writes them once, and the joined tensor isn't made."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.codegen.llvm import joins
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.numeric.positions import are_inside

from . import linking
from .copies import merged

Form = Callable[..., Any]

_FROM = 1 << 14
"""Elements from which native code is faster."""
_SIZES = (4, 8)
"""The bytes of elements that it moves."""


def rows(node: Node) -> tuple[list[Node], Form] | None:
    """What a gather of rows, along the axis before the last one, of tensors that are joined along
    the last one reads, and its form; None for others."""
    joined, *indices = node.operands
    if joined.op is not ops.cat_op or len(indices) != 1 or indices[0].rank != 1:
        return None
    fits = node.attrs == (joined.rank - 2,) and joined.attrs == (joined.rank - 1,)
    if not fits or node.shape.numel() < _FROM or len(joined.operands) > joins.PARTS:
        return None
    run = _native(node.dtype.np.itemsize)
    if run is None:
        return None
    return [indices[0], *joined.operands], _form(tuple(node.shape), joined.shape[-2], run)


def _form(shape: tuple[int, ...], size: int, run: Callable[..., Any]) -> Form:
    *outer, count, width = shape

    def form(index: Any, *parts: Any) -> Any:
        if not are_inside(index, size):
            raise IndexError("a position is out of range")
        numbers: list[int] = []
        for part in parts:
            strides = [s // part.itemsize for s in part.strides]
            _, (plane,) = merged(outer, [strides[:-2]])
            if len(plane) > 1:
                return np.concatenate(parts, -1).take(index, -2)
            numbers += [part.shape[-1], *(plane or [0]), *strides[-2:]]
        missing = joins.PARTS - len(parts)
        out = np.empty(shape, parts[0].dtype)
        index = np.ascontiguousarray(index)
        sizes = (math.prod(outer), count, width)
        run((out, index, *parts, *[out] * missing), (*sizes, *numbers, *[0] * 4 * missing))
        return out

    return form


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for itemsize in _SIZES:
        yield _name(itemsize), joins.text(itemsize)


def _name(itemsize: int) -> str:
    return f"rows joined of {itemsize} bytes"


@functools.cache
def _native(itemsize: int) -> Callable[..., Any] | None:
    if itemsize not in _SIZES:
        return None
    code = linking.linked(_name(itemsize), lambda: joins.text(itemsize))
    return None if code is None else linking.function(code, joins.WORDS, len(joins.BUFFERS))
