"""Folds down the columns of what lies in rows, in two phases, so that memory is read row by row.

A chunk takes a block of neighbouring rows, with lanes along them, and adds each to sums of its own,
one for each column, which stay in the cache. Then the sums of all blocks are folded. What is stored
at each point, and folds along the rows, are done while a row is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.op import REGISTRY
from tilewright.ir.shape import contiguous_strides

from ..analysis import Analysis
from ..canonical import copied
from ..index import Axis, linearize, of
from ..kernel import Apply, Buffer, Kernel, Load, Reduce, Store, Value, data_values
from . import folds, points
from .arguments import Arguments
from .body import Body
from .code import module_text
from .convert import to_memory
from .form import CHUNK, Form, form_of, work_per_point
from .machine import Machine
from .phases import Phase, Written, chunks_of, function, write_kernel
from .types import Ref, constant

UPDATES = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "any", "all": "all"}
"""The folds that can be made in parts, and the update that adds an element to one."""
LEAST_ROWS, LEAST_POINTS = 64, 1 << 17
"""With fewer rows, or points that the cache holds, a chunk rather folds some columns in registers."""
LEAST_BLOCK, MOST_BLOCKS = 32, 1 << 11
"""Rows of a chunk at least, and blocks of rows at most: their sums are written and read again."""
MOST_SUMS = 1 << 14
"""Columns at most: their sums have to stay in the cache."""


@dataclass(frozen=True)
class Plan:
    """rows: the kernel of the first phase, in its form, over whose blocks of rows the axis `block`
    runs; sums: what it leaves to the second one, `columns`."""

    rows: Kernel
    form: Form
    block: Axis
    sums: tuple[Sum, ...]
    columns: Kernel


@dataclass(frozen=True)
class Sum:
    """The part of a fold that is made of a block; `size` elements of a buffer for each block."""

    op: str
    buffer: Buffer
    size: int


def plan(kernel: Kernel, machine: Machine) -> Plan | None:
    """None if this isn't how a kernel is best computed; a chained one can't be in any other way."""
    down = _down(kernel)
    across = tuple(a for a in (*kernel.parallel, *kernel.reduction) if a not in down)
    folded = [v for v in kernel.values if isinstance(v, Reduce) and v.over == down]
    if not folded or kernel.is_update or any(v.op not in UPDATES for v in folded):
        return None
    after = _after(kernel, folded)
    late = [s for s in kernel.stores if id(s.value) in after]
    early = [s for s in kernel.stores if id(s.value) not in after]
    analysis = Analysis(kernel)
    varying = {a for s in late for a in (*analysis.axes(s.value), *analysis.index_axes(s.offset))}
    again = (v for v in kernel.values if isinstance(v, Reduce) and id(v.arg) in after)
    if varying & set(down) or any(again):
        return None
    found = _form(kernel, down, across, early, machine)
    if found is None:
        return None
    form, rows = found
    along = form.vector
    assert along is not None
    places = (*(a for a in across if a is not along), along)
    extents = [a.extent for a in places]
    size = -(-math.prod(extents) // form.lanes) * form.lanes
    block = Axis("block", -(-math.prod(a.extent for a in down) // rows))
    place = linearize([of(a) for a in places], contiguous_strides(extents)) + of(block) * size
    made: dict[int, Value] = {}
    sums = []
    for value in kernel.values:
        if not any(value is v for v in folded):
            made[id(value)] = copied(value, made, lambda index: index)
            continue
        assert isinstance(value, Reduce)
        element = _element(value)
        buffer = Buffer(f"sums{len(sums)}", element.dtype, block.extent * size)
        sums.append(Sum(value.op, buffer, size))
        early.append(Store(buffer, place, element, UPDATES[value.op]))
        part = Load(buffer, place, element.dtype)
        made[id(value)] = Reduce(value.op, part, (block,), value.dtype)
    stores = tuple(Store(s.buffer, s.offset, made[id(s.value)]) for s in late)
    parallel = down if kernel.is_chained else (*down, *places)
    reduction = across if kernel.is_chained else ()
    return Plan(
        Kernel(kernel.name, parallel, reduction, tuple(early)),
        form,
        block,
        tuple(sums),
        Kernel(kernel.name, across, (block,), stores),
    )


def _down(kernel: Kernel) -> tuple[Axis, ...]:
    """The axes that run from row to row: those in front, of a chained kernel."""
    if not kernel.is_chained:
        return kernel.reduction
    first = kernel.reduction[0]
    return next(
        (v.over for v in kernel.values if isinstance(v, Reduce) and first in v.over), ()
    )


def _after(kernel: Kernel, folded: Sequence[Reduce]) -> set[int]:
    """The values that depend on one of `folded`, by id."""
    found = {id(v) for v in folded}
    for value in kernel.values:
        below = (*value.operands(), *(d for i in value.indices() for d in data_values(i)))
        if any(id(v) in found for v in below):
            found.add(id(value))
    return found


def _element(value: Reduce) -> Value:
    """What is folded, in the type of the fold."""
    if value.op in ("sum", "prod") and value.arg.dtype is not value.dtype:
        return Apply(REGISTRY["cast"], (value.arg,), value.dtype)
    return value.arg


def _form(
    kernel: Kernel,
    down: tuple[Axis, ...],
    across: tuple[Axis, ...],
    early: Sequence[Store],
    machine: Machine,
) -> tuple[Form, int] | None:
    """That of the first phase, and how many rows a chunk takes."""
    inner = Kernel("", down, across, tuple(early)) if kernel.is_chained else kernel
    form = form_of(inner, machine)
    along = form.vector
    count, size = (math.prod(a.extent for a in axes) for axes in (down, across))
    if along not in across or along is None or size > MOST_SUMS:
        return None
    short = count < LEAST_ROWS or count * size < LEAST_POINTS or along.extent <= form.lanes
    if short and not kernel.is_chained:
        return None
    rows = max(int(CHUNK // (work_per_point(kernel) * size)), LEAST_BLOCK, -(-count // MOST_BLOCKS))
    if kernel.is_chained:
        return Form(along, form.lanes, down, rows, 1, form.peeled), rows
    rest = tuple(a for a in across if a is not along)
    points = rows * math.prod(a.extent for a in rest)
    return Form(along, form.lanes, (*down, *rest), points, along.extent, form.peeled), rows


def write(kernel: Kernel, machine: Machine, found: Plan) -> Written:
    arguments = Arguments(kernel)
    for each in found.sums:
        arguments.keep(each.buffer)
    rows = Body(found.rows, machine, found.form, arguments.part("rows"), function("rows"))
    _clear(rows, found)
    points.write(rows)
    form = form_of(found.columns, machine)
    columns = Body(found.columns, machine, form, arguments.part("columns"), function("columns"))
    points.write(columns)
    phases = [
        Phase("rows", found.block.extent),
        Phase("columns", form.chunks(found.columns)),
    ]
    body = Body(kernel, machine, found.form, arguments)
    write_kernel(body, phases)
    text = module_text([body.code, rows.code, columns.code])
    return Written(text, arguments, chunks_of(phases), arguments.space)


def _clear(body: Body, found: Plan) -> None:
    """The sums of this chunk's block as they are before the first row."""
    code, chunk = body.code, Ref("%chunk", "i64")
    body.bind(found.block, chunk)
    for each in found.sums:
        dtype = each.buffer.dtype
        first = folds.start(each.op, dtype, body.lanes)
        raw = to_memory(body, first, dtype, code.level)
        size = body.size(each.size, "sums of a block", baked=False)
        start = code.binary("mul", chunk, size)
        base = body.buffer(each.buffer)
        loop = code.open_loop(constant(0, "i64"), size, body.lanes, stem="c")
        place = code.binary("add", start, loop.variable)
        at = code.let(f"getelementptr {raw.type}, ptr {base.text}, i64 {place.text}", "ptr")
        code.add(f"store {raw.typed}, ptr {at.text}, align {dtype.itemsize}")
        code.close_loop(loop)
