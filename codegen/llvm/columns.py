"""Folds down columns, in two phases, so that memory is read row by row.

A chunk takes a block of neighbouring rows, with lanes along them, and adds each row to sums of its
own, one for each column, which stay in the cache. Then the sums of all blocks are folded. While a
row is there, its own stores and folds are done too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.ir import ops
from tilewright.ir.op import Fold
from tilewright.ir.shape import contiguous_strides

from ..kernel import UPDATES, Apply, Buffer, Kernel, Load, Reduce, Store, Value
from ..kernel.canonical import copied
from ..kernel.columns import LEAST_ROWS, Columns, columns
from ..kernel.index import Axis, linearize, of
from . import folds, points
from .arguments import Arguments
from .body import Body
from .code import module_text
from .convert import to_memory
from .form import CHUNK, Form, form_of, lanes_along, work_per_point
from .machine import Machine
from .phases import Phase, Written, chunks_of, function, write_kernel
from .schedule import DEFAULT, Schedule
from .types import Ref, constant
from .values import evaluate

_MODES = {fold: mode for mode, fold in UPDATES.items()}
LEAST_POINTS = 1 << 17
"""The least points. With fewer, which a cache holds, a chunk folds some columns each in registers.
That needs no second phase, but walks from row to row in memory."""
LEAST_BLOCK, MOST_BLOCKS = 32, 1 << 11
"""The least rows of a chunk, and the most blocks of rows: their sums are written and read again."""
MOST_SUMS = 1 << 14
"""The most columns: their sums have to stay in the cache."""


@dataclass(frozen=True)
class Sum:
    """A fold in parts: each block of rows writes `size` elements of the buffer."""

    op: Fold
    buffer: Buffer
    size: int


@dataclass(frozen=True)
class Plan:
    """rows: the kernel of the first phase, in its form; the axis `block` counts the blocks of rows.
    columns: the kernel of the second phase, which reads `sums`."""

    rows: Kernel
    form: Form
    block: Axis
    columns: Kernel
    sums: tuple[Sum, ...]


def plan(kernel: Kernel, machine: Machine, schedule: Schedule = DEFAULT) -> Plan | None:
    """The two phases of a kernel; None if it is better computed otherwise. A chained kernel has
    no other way."""
    found = columns(kernel)
    if found is None or not (kernel.is_chained or _is_worth_it(kernel, found, machine)):
        return None
    down, across = found.down, found.across
    count, width = (math.prod(a.extent for a in axes) for axes in (down, across))
    work = work_per_point(kernel) * width
    rows = max(int((schedule.work or CHUNK) // work), LEAST_BLOCK, -(-count // MOST_BLOCKS))
    form = _form(kernel, found, rows, machine, schedule)
    assert form.vector is not None
    places = (*(a for a in across if a is not form.vector), form.vector)
    block = Axis("block", -(-count // rows))
    extents = [*(a.extent for a in places[:-1]), -(-form.vector.extent // form.lanes) * form.lanes]
    size, steps = math.prod(extents), contiguous_strides(extents)
    place = linearize([of(a) for a in places], steps) + of(block) * size
    made: dict[int, Value] = {}
    early = list(found.early)
    sums: list[Sum] = []
    for value in kernel.values:
        if not isinstance(value, Reduce) or value.over != down:
            made[id(value)] = copied(value, made, lambda index: index)
            continue
        element = _element(value)
        buffer = Buffer(f"sums{len(sums)}", element.dtype, block.extent * size)
        sums.append(Sum(value.op, buffer, size))
        early.append(Store(buffer, place, element, _MODES[value.op]))
        part = Load(buffer, place, element.dtype)
        made[id(value)] = Reduce(value.op, part, (block,), value.dtype)
    late = tuple(Store(s.buffer, s.offset, made[id(s.value)]) for s in found.late)
    first = (down, across) if kernel.is_chained else ((*down, *places), ())
    return Plan(
        Kernel(kernel.name, *first, tuple(early)),
        form,
        block,
        Kernel(kernel.name, across, (block,), late),
        tuple(sums),
    )


def _is_worth_it(kernel: Kernel, found: Columns, machine: Machine) -> bool:
    form = form_of(kernel, machine)
    count, width = (math.prod(a.extent for a in axes) for axes in (found.down, found.across))
    if form.vector not in found.across or form.vector.extent <= form.lanes or width > MOST_SUMS:
        return False
    return count >= LEAST_ROWS and count * width >= LEAST_POINTS


def _form(kernel: Kernel, found: Columns, rows: int, machine: Machine, schedule: Schedule) -> Form:
    """The form of the first phase, with `rows` rows in a chunk."""
    form = form_of(kernel, machine, schedule=replace(schedule, along=None))
    if kernel.is_chained:
        along = found.across[-1]
        lanes = lanes_along(kernel, machine, along, schedule)
        return Form(along, lanes, found.down, rows, 1, form.peeled)
    assert form.vector is not None
    rest = tuple(a for a in found.across if a is not form.vector)
    count = rows * math.prod(a.extent for a in rest)
    extent = form.vector.extent
    return Form(form.vector, form.lanes, (*found.down, *rest), count, extent, form.peeled)


def _element(value: Reduce) -> Value:
    """The operand of a fold, in the type of the fold."""
    if value.op in (Fold.SUM, Fold.PROD) and value.arg.dtype is not value.dtype:
        return Apply(ops.cast, (value.arg,), value.dtype)
    return value.arg


def write(kernel: Kernel, machine: Machine, found: Plan) -> Written:
    arguments = Arguments(kernel)
    for each in found.sums:
        arguments.keep(each.buffer)
    rows = Body(found.rows, machine, found.form, evaluate, arguments.part("rows"), function("rows"))
    rows.padded = {each.buffer for each in found.sums}
    _clear(rows, found)
    points.write(rows)
    form = form_of(found.columns, machine)
    down = Body(
        found.columns, machine, form, evaluate, arguments.part("columns"), function("columns")
    )
    points.write(down)
    phases = [
        Phase("rows", found.block.extent),
        Phase("columns", form.chunks(found.columns)),
    ]
    body = Body(kernel, machine, found.form, evaluate, arguments)
    write_kernel(body, phases)
    text = module_text([body.code, rows.code, down.code])
    return Written(text, arguments, chunks_of(phases), arguments.space)


def _clear(body: Body, found: Plan) -> None:
    """Sets the sums of the chunk's block to their start values, before its first row."""
    code, chunk = body.code, Ref("%chunk", "i64")
    body.bind(found.block, chunk)
    for each in found.sums:
        dtype = each.buffer.dtype
        raw = to_memory(body, folds.start(each.op, dtype, body.lanes), dtype, code.level)
        size = body.size(each.size, "sums of a block", baked=False)
        start = code.binary("mul", chunk, size)
        base = body.buffer(each.buffer)
        loop = code.open_loop(constant(0, "i64"), size, body.lanes, stem="c")
        place = code.binary("add", start, loop.variable)
        at = code.let(f"getelementptr {raw.type}, ptr {base.text}, i64 {place.text}", "ptr")
        code.add(f"store {raw.typed}, ptr {at.text}, align {dtype.itemsize}")
        code.close_loop(loop)
