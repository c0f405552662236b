"""Transposes: light kernels that read neighbours along one axis and write them along another.

A square of elements is computed row by row, with lanes along the axis that is read, and transposed
in registers, so that both memories are walked in whole vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from ..kernel import Apply, Constant, Kernel, Load, Scalar
from ..kernel.index import Axis, Index
from . import points
from .body import Body
from .dot.squares import transposed
from .form import Form
from .machine import Machine
from .positions import uniform
from .types import Ref, computed, constant, stored, vector
from .values import evaluate, load_ahead

CHUNK = 1 << 15
"""The elements of a chunk."""
FEW = 16
"""The most values of a kernel that isn't a layout: each row of a square is a step."""
LEAST = 4
"""The least elements along the axes that are read and written."""


@dataclass(frozen=True)
class Turn:
    """form: of the loops, with lanes along the axis that is read. across: the axis written
    along."""

    form: Form
    across: Axis


def is_plain(kernel: Kernel) -> bool:
    """Whether a kernel reads elements that exist at places that follow from its axes, and computes
    little."""
    if kernel.draws or kernel.is_update or len(kernel.values) > FEW:
        return False
    return all(
        v.offset.is_affine if isinstance(v, Load) else isinstance(v, (Apply, Constant, Scalar))
        for v in kernel.values
    )


def turn_of(kernel: Kernel, machine: Machine) -> Turn | None:
    """The Turn of a kernel; None unless it is one store across its reads, along axes long
    enough."""
    if kernel.reduction or len(kernel.stores) != 1:
        return None
    (store,) = kernel.stores
    dtype = store.buffer.dtype
    if store.value.dtype is not dtype or dtype.itemsize < 4 or store.mode is not None:
        return None
    places = [v.offset for v in kernel.values if isinstance(v, Load)]
    axes = [a for a in kernel.parallel if a.extent != 1]
    read = [a for a in axes if any(p.coefficient(a) == 1 for p in places) and a.extent >= LEAST]
    if len(read) != 1:
        return None
    (along,) = read
    written = [a for a in axes if store.offset.coefficient(a) == 1 and a.extent >= LEAST]
    if not written or not store.offset.is_affine:
        return None
    across = written[0]
    if along is across or any(p.coefficient(across) == 1 for p in places):
        return None
    # Fewer lanes than a register has for a short axis, as that of a small kernel's taps.
    side = min(along.extent, across.extent)
    lanes = min(machine.vector_bytes // dtype.itemsize, 1 << side.bit_length() - 1)
    outer = tuple(a for a in axes if a is not along and a is not across)
    block = min(along.extent, -(-CHUNK // across.extent // lanes) * lanes)
    rows = max(CHUNK // (along.extent * across.extent), 1) if block == along.extent else 1
    rows = min(rows, math.prod(a.extent for a in outer))
    return Turn(Form(along, lanes, outer, rows, block, False), across)


def write(body: Body, across: Axis) -> None:
    """Fills the function of a chunk. The last lanes and the last square end where their axes do, so
    some elements are computed twice: the kernel must not overwrite its inputs."""
    points.write(body, partial(_squares, across=across), overlapping=True)


def _squares(body: Body, across: Axis) -> None:
    """All squares along `across`, for one step of the lanes."""
    code, lanes, step = body.code, body.lanes, body.vector
    assert step is not None
    (store,) = body.kernel.stores
    kind, align = stored(store.buffer.dtype), store.buffer.dtype.itemsize
    assert kind == computed(store.value.dtype)
    text = f"alloca {kind}, i64 {lanes * lanes}, align 64"
    square = code.once("square", body.entry, lambda: code.let(text, "ptr", at=body.entry))

    def at(base: Ref, place: Ref) -> Ref:
        return code.let(f"getelementptr {kind}, ptr {base.text}, {place.typed}", "ptr")

    def move(ref: Ref, address: Ref) -> None:
        code.add(f"store {ref.typed}, ptr {address.text}, align {align}")

    def row(number: int) -> Ref:
        address = at(square, constant(number * lanes, "i64"))
        text = f"load {vector(kind, lanes)}, ptr {address.text}, align {align}"
        return code.let(text, kind, lanes)

    first, width = constant(0, "i64"), constant(lanes, "i64")
    extent = body.extent(across)
    squares = code.open_loop(first, extent, lanes, stem="square")
    begin = code.intrinsic("smin", [squares.variable, code.binary("sub", extent, width)])
    rows = code.open_loop(first, width, stem="row")
    body.bind(across, code.binary("add", begin, rows.variable))
    load_ahead(body, [store.value])
    value = code.spread(evaluate(body, store.value), lanes)
    move(value, at(square, code.binary("mul", rows.variable, width)))
    code.close_loop(rows)
    body.bind(across, begin)
    columns = transposed(code, [row(i) for i in range(lanes)])
    rest = tuple((a, c) for a, c in store.offset.terms if a is not step.axis)
    target = at(body.buffer(store.buffer), uniform(body, Index(rest, store.offset.const), None))
    factor = store.offset.coefficient(step.axis)
    pitch = body.size(factor, ("coefficient", store.offset, step.axis))
    target = at(target, code.binary("mul", step.variable, pitch))
    for i, column in enumerate(columns):
        move(column, at(target, code.binary("mul", constant(i, "i64"), pitch)))
    code.close_loop(squares)
