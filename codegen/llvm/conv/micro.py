"""The innermost loop: a tile of rows and columns in registers, and how tiles are turned around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..code import Code
from ..machine import Machine
from ..types import Ref, constant, vector

TILE = "tile"


@dataclass(frozen=True)
class Tile:
    """rows x (vectors * lanes) sums of a type in registers."""

    kind: str
    rows: int
    lanes: int
    vectors: int = 2

    @property
    def width(self) -> int:
        return self.lanes * self.vectors

    @property
    def itemsize(self) -> int:
        return 8 if self.kind == "double" else 4


def tile_of(machine: Machine, kind: str) -> Tile:
    """As many rows as leave registers for two vectors of columns and an element of a row."""
    # AVX has 16 registers, AVX-512 and ARM have 32.
    few = machine.triple.startswith("x86") and machine.vector_bytes < 64
    lanes = machine.vector_bytes // (8 if kind == "double" else 4)
    return Tile(kind, 6 if few else 12, lanes)


def write_tile(tile: Tile) -> Code:
    """sums[row][column] += the sum over `count` steps of a[rows[row] + steps[step]] *
    b[step][column]."""
    parameters = "ptr %rows, ptr %a, ptr %steps, ptr %b, i64 %count, ptr %sums"
    code = Code(TILE, parameters, internal=True)
    kind, lanes = tile.kind, tile.lanes
    rows = [_offset(code, kind, "%a", _table(code, "%rows", str(i))) for i in range(tile.rows)]
    zeros = [constant(0, kind, lanes)] * (tile.rows * tile.vectors)
    loop = code.open_loop(constant(0, "i64"), Ref("%count", "i64"), 1, zeros, stem="k")
    held = [phi for phi, _ in loop.carried]
    step = _table(code, "%steps", loop.variable.text)
    start = code.binary("mul", loop.variable, constant(tile.width, "i64"))
    columns = []
    for j in range(tile.vectors):
        place = code.binary("add", start, constant(j * lanes, "i64"))
        columns.append(load(code, tile, _offset(code, kind, "%b", place)))
    sums = []
    for i, row in enumerate(rows):
        address = _offset(code, kind, row.text, step)
        element = code.let(f"load {kind}, ptr {address.text}, align {tile.itemsize}", kind)
        wide = code.splat(element, lanes)
        for j, column in enumerate(columns):
            old = held[i * tile.vectors + j]
            sums.append(code.intrinsic("fmuladd", [wide, column, old]))
    for at, total in enumerate(code.close_loop(loop, sums)):
        address = _offset(code, kind, "%sums", constant(at * lanes, "i64"))
        new = code.binary("fadd", load(code, tile, address), total)
        store(code, tile, new, address)
    return code


def _table(code: Code, table: str, place: str) -> Ref:
    at = code.let(f"getelementptr i32, ptr {table}, i64 {place}", "ptr")
    return code.convert("sext", code.let(f"load i32, ptr {at.text}, align 4", "i32"), "i64")


def _offset(code: Code, kind: str, base: str, place: Ref) -> Ref:
    return code.let(f"getelementptr {kind}, ptr {base}, {place.typed}", "ptr")


def load(code: Code, tile: Tile, address: Ref) -> Ref:
    """A vector from a place that is a multiple of an element's size."""
    full = vector(tile.kind, tile.lanes)
    text = f"load {full}, ptr {address.text}, align {tile.itemsize}"
    return code.let(text, tile.kind, tile.lanes)


def store(code: Code, tile: Tile, value: Ref, address: Ref) -> None:
    code.add(f"store {value.typed}, ptr {address.text}, align {tile.itemsize}")


def transposed(code: Code, rows: Sequence[Ref]) -> list[Ref]:
    """The columns of a square of vectors: its quarters change places, then theirs, and so on."""
    out = list(rows)
    lanes = len(out)
    distance = 1
    while distance < lanes:
        low = [i if not i & distance else i - distance + lanes for i in range(lanes)]
        high = [i + distance if not i & distance else i + lanes for i in range(lanes)]
        for i in range(lanes):
            if not i & distance:
                a, b = out[i], out[i + distance]
                out[i], out[i + distance] = _shuffled(code, a, b, low), _shuffled(code, a, b, high)
        distance *= 2
    return out


def _shuffled(code: Code, a: Ref, b: Ref, order: Sequence[int]) -> Ref:
    indices = ", ".join(f"i32 {i}" for i in order)
    text = f"shufflevector {a.typed}, {b.typed}, <{len(order)} x i32> <{indices}>"
    return code.let(text, a.type, a.lanes)
