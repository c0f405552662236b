"""Loads and stores."""

from __future__ import annotations

from tilewright.ir.dtype import FLOAT8

from ..kernel import Load, Store, data_values
from ..kernel.index import Data, Index
from .access import position, view
from .emission import Context, Emission, np_name
from .gather import Rows, flat_position, gather, rows_of
from .program import Array, Statement


def load(e: Emission, value: Load, context: Context) -> Array:
    index = context.domain.rewrite(value.offset)
    low, high = index.bounds()
    inside = low >= 0 and high < value.buffer.size
    if 0 in context.domain.shape:
        array = nothing(e, value, index, context)
    elif index.is_affine and inside:
        array = view(e, value.buffer, index, context.domain)
    else:
        array = gather(e, value.buffer, index, context, clip=not inside)
    return e.cast(array, value.dtype.np)


def nothing(e: Emission, value: Load, index: Index, context: Context) -> Array:
    """Elements of a domain without points. (Where the shape is not empty, nothing reads them.)"""
    shape = [1] * context.domain.rank
    for d in context.domain.dimensions(index):
        shape[d] = context.domain.shape[d]
    for atom, _ in index.terms:
        if isinstance(atom, Data):
            extent = e.of(atom.value, context).extent
            shape = [max(a, b) if a and b else 0 for a, b in zip(shape, extent or shape)]
    call = f"np.zeros({e.argument('shape', tuple(shape))}, {np_name(value.dtype.np)})"
    return e.let(call, value.dtype.np, tuple(shape))


def store(e: Emission, store: Store, value: Array) -> None:
    context = Context(e.root)
    index = e.root.rewrite(store.offset)
    buffer = store.buffer
    if 0 in e.root.shape and 0 in [e.root.shape[d] for d in e.root.dimensions(index)]:
        return
    if buffer.dtype in FLOAT8:
        value = e.cast(value, buffer.dtype.np)
    if value.dtype != buffer.dtype.np:
        e.program.may_warn = True
    apart = store.mode is None or (store.mode == "set" and not e.kernel.reduction)
    if apart and index.is_affine:
        place = view(e, buffer, index, e.root)
        call = f"{place.name}[...] = {value.name}"
        e.program.add(Statement(call, None, (value,), by_rows=True, writes=place))
        return
    for held in data_values(store.offset):
        e.evaluate(held, context)
    e.program.may_warn = True
    mode = store.mode or "set"
    rows = rows_of(e, buffer, index, context)
    if rows is not None and rows.is_dense and rows.position.extent:
        covered = {*rows.mixed, *rows.inner}
        if all(n == 1 or d in covered for d, n in enumerate(value.extent)):
            _update_rows(e, rows, value, mode)
            return
    at = position(e, index, context)
    name = e.buffers[buffer]
    target = Array(name, buffer.dtype.np, (), name, False)
    call = f"support.update({name}, {at.name}, {value.name}, {mode!r})"
    e.program.add(Statement(call, None, (at, value), writes=target))


def _update_rows(e: Emission, rows: Rows, value: Array, mode: str) -> None:
    """An update of whole rows, in the order of their positions."""
    domain = e.root
    extent = [1] * domain.rank
    for d in (*rows.mixed, *rows.inner):
        extent[d] = domain.shape[d]
    spread = e.broadcast(value, tuple(extent))
    order = [*rows.mixed, *rows.inner]
    order += [d for d in range(domain.rank) if d not in order]
    text = spread.name if order == sorted(order) else f"{spread.name}.transpose({tuple(order)})"
    call = f"support.update_rows({rows.memory.name}, {flat_position(e, rows)}, {text}, {mode!r})"
    e.program.add(Statement(call, None, (rows.position, spread), writes=rows.memory))
