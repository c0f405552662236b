"""The functions that pack the operands of a contraction, whatever their expressions.

    void name(ptr args, i64 at..., i64 row, i64 rows, i64 k, i64 depth, ptr to, i64 panel)

packs `rows` rows (of `a`; columns of `b`) from `row` on and `depth` places of K from `k` on; `at`
are the positions along the axes outside of the tile. Elements that lie in memory in rows or columns
are copied. Anything else is evaluated, along the direction in which more of its loads read
neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernel import Kernel, Load, Value, collect
from ...kernel.index import Axis, Index
from ..arguments import Arguments
from ..body import Body
from ..code import Code
from ..form import Form
from ..machine import Machine
from ..positions import uniform
from ..stages import bind_vector
from ..types import Ref, constant, stored
from ..values import evaluate, load_ahead
from . import matrix, packing, words
from .cut import Tiling, is_matrix, source
from .squares import head, store


class Operand:
    """One operand of a contraction. row: its axis of the tile beside `k`. width: that of a panel.
    depth: the most places along `k` that are packed at a time."""

    def __init__(self, cut: Tiling, is_a: bool):
        self.name = "a" if is_a else "b"
        value, self.row = (cut.a, cut.m) if is_a else (cut.b, cut.n)
        self.value = source(value)
        self.k, self.tile = cut.k, cut.tile
        self.width = cut.tile.rows if is_a else cut.tile.columns
        self.depth = cut.most[2]

    @property
    def in_memory(self) -> bool:
        """Whether the operand consists of elements in memory, neighbours along a row or along K."""
        value = self.value
        if self.tile.words is not None:
            return True  # the cut saw to it
        if not isinstance(value, Load) or packing.packed(value.buffer.dtype) != self.tile.kind:
            return False
        dtype = value.buffer.dtype
        known = dtype.is_floating_point or dtype in words.BYTES
        return known and is_matrix(value, self.row, self.k)

    @property
    def in_place(self) -> bool:
        """Whether the micro kernel may read it in place: its rows have the type of the
        computation."""
        value = self.value
        if not self.in_memory or not isinstance(value, Load):
            return False
        return value.offset.coefficient(self.k) == 1 and value.buffer.dtype.itemsize >= 4

    @property
    def along(self) -> bool:
        """Whether neighbours lie along K rather than along the row axis."""
        seen: dict[int, Value] = {}
        collect(self.value, seen)
        loads = [v.offset for v in seen.values() if isinstance(v, Load)]
        return sum(o.coefficient(self.k) == 1 for o in loads) > sum(
            o.coefficient(self.row) == 1 for o in loads
        )


def write(
    name: str,
    operand: Operand,
    kernel: Kernel,
    machine: Machine,
    arguments: Arguments,
    outer: Sequence[Axis],
) -> list[Code]:
    """The packing function of an operand, and the functions it calls."""
    names = [f"%at{i}" for i in range(len(outer))]
    parameters = ["ptr %args", *(f"i64 {n}" for n in names), "i64 %row", "i64 %rows", "i64 %k"]
    parameters += ["i64 %depth", "ptr %to", "i64 %panel"]
    code = Code(name, ", ".join(parameters), internal=True)
    along = operand.along
    lanes = operand.tile.lanes if along else 1 << (operand.width - 1).bit_length()
    form = Form(operand.k if along else operand.row, lanes, (), 1, 1, False)
    body = Body(kernel, machine, form, evaluate, arguments, code)
    for axis, position in zip(outer, names):
        body.bind(axis, Ref(position, "i64"))
    if operand.in_memory:
        return _copied(body, operand, name)
    return (_staged if along else _evaluated)(body, operand, name)


def _copied(body: Body, operand: Operand, name: str) -> list[Code]:
    code, value, along = body.code, operand.value, operand.along
    assert isinstance(value, Load)
    start, row, k = element(body, operand, Ref("%row", "i64"), Ref("%k", "i64"))
    own = f"{name}_from"
    code.add(
        f"call void @{own}({start.typed}, {(row if along else k).typed}, i64 %rows, i64 %depth, "
        "ptr %to, i64 %panel)"
    )
    width, lanes, dtype = operand.width, operand.tile.lanes, value.buffer.dtype
    kind = operand.tile.words
    if kind is not None and kind.squares and operand.name == "a":
        return [code, matrix.packing(own, kind.places, width, along)]
    if kind is not None:
        shifts = kind.shifts and operand.name == "a"
        return [code, words.function(own, dtype, width, lanes, kind, shifts, along)]
    return [code, packing.function(own, dtype, width, lanes, along)]


def element(body: Body, operand: Operand, row: Ref, k: Ref) -> tuple[Ref, Ref, Ref]:
    """The address of the element at (row, k) of an operand in memory, and the distances to its
    neighbours along the rows and along K."""
    code, value = body.code, operand.value
    assert isinstance(value, Load)
    offset = value.offset
    total = uniform(
        body,
        Index(tuple(t for t in offset.terms if t[0] not in (operand.row, operand.k)), offset.const),
        None,
    )
    strides = []
    for axis, position in ((operand.row, row), (operand.k, k)):
        stride = body.size(offset.coefficient(axis), ("stride of", operand.name, axis.name))
        total = code.binary("add", total, code.binary("mul", position, stride))
        strides.append(stride)
    base, kind = body.buffer(value.buffer), stored(value.buffer.dtype)
    start = code.let(f"getelementptr {kind}, ptr {base.text}, i64 {total.text}", "ptr")
    return start, strides[0], strides[1]


def _panels(code: Code, operand: Operand):  # type: ignore[no-untyped-def]
    """A loop over the panels: (loop, the place of the panel)."""
    loop = code.open_loop(packing.ZERO, Ref("%rows", "i64"), operand.width, stem="panel")
    number = code.binary("udiv", loop.variable, constant(operand.width, "i64"))
    place = code.binary("mul", number, Ref("%panel", "i64"))
    to = code.let(f"getelementptr {operand.tile.kind}, ptr %to, i64 {place.text}", "ptr")
    return loop, to


def _evaluated(body: Body, operand: Operand, name: str) -> list[Code]:
    """Packs with lanes along the rows of a panel, which are stored as they are."""
    code, width, kind = body.code, operand.width, operand.tile.kind
    end = code.binary("add", Ref("%row", "i64"), Ref("%rows", "i64"))
    stop = code.binary("add", Ref("%k", "i64"), Ref("%depth", "i64"))
    loop, to = _panels(code, operand)
    first = code.binary("add", Ref("%row", "i64"), loop.variable)
    body.bind(operand.row, first)
    bind_vector(body, operand.row, first, end, whole=False)
    steps = code.open_loop(Ref("%k", "i64"), stop, 1, stem=operand.k.name)
    body.bind(operand.k, steps.variable)
    load_ahead(body, [operand.value])
    value = code.spread(evaluate(body, operand.value), body.lanes)
    place = code.binary("sub", steps.variable, Ref("%k", "i64"))
    place = code.binary("mul", place, constant(width, "i64"))
    at = code.let(f"getelementptr {kind}, ptr {to.text}, i64 {place.text}", "ptr")
    store(code, head(code, value, width), at)
    code.close_loop(steps)
    code.close_loop(loop)
    return [code]


def _staged(body: Body, operand: Operand, name: str) -> list[Code]:
    """Packs with lanes along K, through memory that holds the rows of a panel."""
    code, width, kind = body.code, operand.width, operand.tile.kind
    size, most = width * operand.depth, operand.depth
    stage = code.let(f"alloca [{size} x {kind}], align 64", "ptr", at=body.entry)
    first, rows = Ref("%row", "i64"), Ref("%rows", "i64")
    stop = code.binary("add", Ref("%k", "i64"), Ref("%depth", "i64"))
    loop, to = _panels(code, operand)
    left = code.binary("sub", rows, loop.variable)
    count = code.intrinsic("umin", [left, constant(width, "i64")])
    inner = code.open_loop(packing.ZERO, count, 1, stem=operand.row.name)
    place = code.binary("add", loop.variable, inner.variable)
    body.bind(operand.row, code.binary("add", first, place))
    row = code.let(
        f"getelementptr [{most} x {kind}], ptr {stage.text}, i64 {inner.variable.text}", "ptr"
    )
    steps = code.open_loop(Ref("%k", "i64"), stop, body.lanes, stem=operand.k.name)
    body.bind(operand.k, steps.variable)
    bind_vector(body, operand.k, steps.variable, stop, whole=False)
    load_ahead(body, [operand.value])
    value = code.spread(evaluate(body, operand.value), body.lanes)
    where = code.binary("sub", steps.variable, Ref("%k", "i64"))
    at = code.let(f"getelementptr {kind}, ptr {row.text}, i64 {where.text}", "ptr")
    store(code, value, at)
    code.close_loop(steps)
    code.close_loop(inner)
    own = f"{name}_from"
    code.add(
        f"call void @{own}(ptr {stage.text}, i64 {most}, {count.typed}, i64 %depth, "
        f"ptr {to.text}, i64 %panel)"
    )
    code.close_loop(loop)
    dtype = operand.value.dtype
    return [code, packing.function(own, dtype, width, operand.tile.lanes, True)]
