"""Reads at offsets that are no affine function of the axes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..kernel import Buffer
from ..kernel.index import Atom, Axis, Index, constant
from . import access
from .access import memory, position
from .domain import has_data, tabulate
from .emission import Context, Emission
from .program import Array


def gather(e: Emission, buffer: Buffer, index: Index, context: Context, *, clip: bool) -> Array:
    """The elements at `index`. clip: whether some lie outside of the buffer, behind a guard."""
    split = None if clip else rows_of(e, buffer, index, context)
    if split is not None:
        return _taken(e, buffer, split, context)
    at = position(e, index, context)
    name, limit = e.buffers[buffer], max(buffer.size - 1, 0)
    if clip and at.name in e.arguments:
        table = np.clip(e.arguments[at.name], 0, limit)
        clipped = e.argument("at", table, (at.name, "clipped"))
        at = Array(clipped, at.dtype, at.extent, clipped, False)
    elif clip:
        call = f"np.clip({at.name}, 0, {e.argument('n', limit)})"
        at = e.let(call, np.int64, at.extent, (at,), stem="at_", by_rows=True)
    call = f"{name}.reshape(-1)[{at.name}]"
    source = Array(name, buffer.dtype.np, (), name, False)
    return e.let(call, buffer.dtype.np, at.extent, (source, at), by_rows=True)


@dataclass(frozen=True)
class Rows:
    """An offset in two parts: the terms of single axes, and a position that selects a row.

    memory: the buffer as [outer..., positions, inner...]. outer and inner are dimensions of the
        domain on which the offset depends in an affine way, `mixed` those on which the position
        depends.
    is_dense: whether there is no outer part and the rows lie one after another.
    """

    memory: Array
    position: Array
    outer: tuple[int, ...]
    mixed: tuple[int, ...]
    inner: tuple[int, ...]
    is_dense: bool


def rows_of(e: Emission, buffer: Buffer, index: Index, context: Context) -> Rows | None:
    """The split of an offset; None if nothing splits off."""
    domain = context.domain
    mixed: set[int] = set()
    for atom, _ in index.terms:
        part = Index(((atom, 1),))
        if has_data(part):
            mixed |= {d for d, n in enumerate(position(e, part, context).extent) if n != 1}
        elif not isinstance(atom, Axis):
            mixed |= domain.dimensions(part)
    strides: dict[int, int] = {}
    taken: list[tuple[Atom, int]] = []
    for atom, coefficient in index.terms:
        d = domain.axes.index(atom) if isinstance(atom, Axis) else -1
        if d < 0 or d in mixed:
            taken.append((atom, coefficient))
        else:
            strides[d] = coefficient
    if not strides or min(strides.values()) < 0:
        return None
    step = math.gcd(*(c for _, c in taken))
    steps = Index(tuple((a, c // step) for a, c in taken))
    low, high = steps.bounds()
    if not has_data(steps):
        table = tabulate(steps, domain)
        low, high = int(table.min()), int(table.max())
    start = index.const + low * step
    reach = sum(s * (domain.shape[d] - 1) for d, s in strides.items())
    if start < 0 or start + (high - low) * step + reach >= buffer.size:
        return None  # by these bounds, elements outside of the buffer might be read
    at = position(e, steps + constant(-low), context)
    outer = sorted((d for d, s in strides.items() if s >= step), key=lambda d: -strides[d])
    inner = sorted((d for d, s in strides.items() if s < step), key=lambda d: -strides[d])
    shape = [*(domain.shape[d] for d in outer), high - low + 1, *(domain.shape[d] for d in inner)]
    gaps = [*(strides[d] for d in outer), step, *(strides[d] for d in inner)]
    held = memory(e, buffer, tuple(shape), gaps, start)
    is_dense = not outer and access.is_dense(tuple(shape), gaps)
    return Rows(held, at, tuple(outer), tuple(sorted(mixed)), tuple(inner), is_dense)


def flat_position(e: Emission, rows: Rows) -> str:
    """The position as text, with only the dimensions it depends on."""
    at = rows.position
    if not at.extent:
        return at.name
    sizes = tuple(at.extent[d] for d in rows.mixed)
    if at.name in e.arguments:
        return e.argument("at", e.arguments[at.name].reshape(sizes), (at.name, "flat"))
    return f"{at.name}.reshape({e.argument('shape', sizes)})"


def _taken(e: Emission, buffer: Buffer, rows: Rows, context: Context) -> Array:
    """Whole rows, moved by NumPy and then brought into the order of the domain."""
    domain, at = context.domain, rows.position
    flat = flat_position(e, rows)
    if rows.is_dense:
        call = f"{rows.memory.name}.take({flat}, axis=0)"
    else:
        call = f"{rows.memory.name}[{':, ' * len(rows.outer)}{flat}]"
    made = [*rows.outer, *(rows.mixed if at.extent else ()), *rows.inner]
    back = tuple(made.index(d) for d in sorted(made))
    if back != tuple(range(len(back))):
        call += f".transpose({back})"
    single = {*rows.outer, *rows.inner}
    extent = tuple(
        n if d in single else at.extent[d] if d in made else 1 for d, n in enumerate(domain.shape)
    )
    call += f".reshape({e.argument('shape', extent)})"
    return e.let(call, buffer.dtype.np, extent, (rows.memory, at))
