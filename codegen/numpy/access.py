"""Positions, and buffers seen as arrays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..kernel import Buffer
from ..kernel.index import Axis, Data, FloorDiv, Index
from .domain import Domain, has_data, tabulate
from .emission import Context, Emission, common, np_name
from .program import Array


def position(e: Emission, index: Index, context: Context) -> Array:
    """The values of an index in the context's domain, int64."""
    domain = context.domain
    if not has_data(index):
        name = e.argument("at", tabulate(index, domain), (index, domain))
        return Array(name, np.dtype(np.int64), e.arguments[name].shape, name, False)
    mask = context.mask.name if context.mask else ""
    return e.once(("at", index, domain, mask), lambda: _moving(e, index, context))


def _moving(e: Emission, index: Index, context: Context) -> Array:
    """The values of an index that contains data."""
    moving = [(a, c) for a, c in index.terms if has_data(Index(((a, c),)))]
    fixed = Index(tuple(t for t in index.terms if t not in moving), index.const)
    total = position(e, fixed, context) if fixed.terms or fixed.const else None
    for atom, coefficient in moving:
        assert not isinstance(atom, Axis)
        if isinstance(atom, Data):
            part = data(e, atom, context)
        else:
            inner = position(e, atom.index, context)
            call = "np.floor_divide" if isinstance(atom, FloorDiv) else "np.remainder"
            call = f"{call}({inner.name}, {e.argument('n', atom.divisor)})"
            part = e.let(call, np.int64, inner.extent, (inner,), stem="at_", ufunc=True)
        if coefficient != 1:
            call = f"np.multiply({part.name}, {e.argument('n', coefficient)})"
            part = e.let(call, np.int64, part.extent, (part,), stem="at_", ufunc=True)
        if total is None:
            total = part
        else:
            pair = (total, part)
            call = f"np.add({total.name}, {part.name})"
            total = e.let(call, np.int64, common(pair), pair, stem="at_", ufunc=True)
    assert total is not None
    return total


def data(e: Emission, atom: Data, context: Context) -> Array:
    """A position read at run time, checked."""
    value = e.cast(e.of(atom.value, context), np.int64)
    mask = context.mask

    def check() -> Array:
        size = e.argument("n", atom.size)
        error = e.argument("error", atom.check.error, atom.check)
        masked = "" if mask is None else f", {mask.name}"
        call = f"support.check({value.name}, {size}, {error}{masked})"
        reads = (value,) if mask is None else (value, mask)
        # The result may be the argument itself.
        return e.let(call, np.int64, value.extent, reads, stem="at_", by_rows=True, alias=value)

    checked = e.once(("data", atom, value.name, mask.name if mask else ""), check)
    return replace(checked, owned=False)


def memory(
    e: Emission, buffer: Buffer, shape: tuple[int, ...], strides: list[int], start: int
) -> Array:
    """A view of a buffer; strides and start count elements."""

    def make() -> Array:
        out = e.fresh("v")
        e.prelude.append(f"{out} = {_view_call(e, buffer, shape, strides, start)}")
        return Array(out, buffer.dtype.np, shape, e.buffers[buffer], False, tuple(strides))

    return e.once(("memory", buffer, shape, tuple(strides), start), make)


def view(e: Emission, buffer: Buffer, index: Index, domain: Domain) -> Array:
    """The elements at affine offsets, as a view."""
    strides = [0] * domain.rank
    for atom, coefficient in index.terms:
        assert isinstance(atom, Axis)
        strides[domain.axes.index(atom)] = coefficient
    extent = tuple(a.extent if s else 1 for a, s in zip(domain.axes, strides))
    return memory(e, buffer, extent, strides, index.const)


def _view_call(
    e: Emission, buffer: Buffer, extent: tuple[int, ...], strides: list[int], start: int
) -> str:
    name = e.buffers[buffer]
    shape = e.argument("shape", extent)
    if start == 0 and math.prod(extent) == buffer.size and is_dense(extent, strides):
        return f"{name}.reshape({shape})"
    item = buffer.dtype.itemsize
    steps = e.argument("strides", tuple(s * item for s in strides))
    offset = e.argument("n", start * item)
    return f"np.ndarray({shape}, {np_name(buffer.dtype.np)}, {name}, {offset}, {steps})"


def is_dense(extent: tuple[int, ...], strides: list[int]) -> bool:
    """Whether these are the row-major strides of the shape."""
    step = 1
    for size, stride in zip(reversed(extent), reversed(strides)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True
