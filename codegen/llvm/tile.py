"""Products and transposes of tiles: matrices in scratch memory, some registers wide.

A tile's rows lie `stride` elements apart, a multiple of the lanes, and are aligned like a register.
Its sizes are part of the code; the number of rows in use is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .code import Code
from .dot import micro
from .machine import Machine
from .types import Ref, constant, vector


@dataclass(frozen=True)
class Tile:
    """`rows` rows of `stride` elements of type `kind`, at `address`, in steps of `lanes`."""

    address: Ref
    rows: int
    stride: int
    kind: str
    lanes: int

    @property
    def bytes(self) -> int:
        return self.rows * self.stride * _size(self.kind)


def _size(kind: str) -> int:
    return 8 if kind == "double" else 4


def scratch(code: Code, rows: int | Ref, stride: int, kind: str, lanes: int) -> Tile:
    """A new tile on the stack, its contents unspecified."""
    entry = code.levels[0]
    if isinstance(rows, Ref):
        count = code.binary("mul", rows, constant(stride, "i64"), entry).text
    else:
        count = str(rows * stride)
    address = code.let(f"alloca {kind}, i64 {count}, align 64", "ptr", at=entry)
    return Tile(address, rows if isinstance(rows, int) else 0, stride, kind, lanes)


def at(code: Code, tile: Tile, row: Ref, column: Ref) -> Ref:
    """The address of an element."""
    start = code.binary("mul", row, constant(tile.stride, "i64"))
    return _moved(code, tile.address, code.binary("add", start, column), tile.kind)


def load(code: Code, tile: Tile, row: Ref, column: Ref) -> Ref:
    """The lanes of a row from `column` on, a multiple of the number of lanes."""
    return _load(code, at(code, tile, row, column), tile.kind, tile.lanes)


def store(code: Code, tile: Tile, row: Ref, column: Ref, value: Ref) -> None:
    _store(code, at(code, tile, row, column), code.spread(value, tile.lanes))


def clear(code: Code, tile: Tile, rows: Ref) -> None:
    """Zeroes the first rows."""
    size = code.binary("mul", rows, constant(tile.stride * _size(tile.kind), "i64"))
    code.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    code.add(
        f"call void @llvm.memset.p0.i64(ptr align 64 {tile.address.text}, i8 0, "
        f"i64 {size.text}, i1 false)"
    )


# Products

ROWS = 8
"""Few rows at a time: the sizes of tiles are multiples of a product's rows."""


@dataclass(frozen=True)
class Factor:
    """The left matrix of a product, in a tile: element (m, k) lies at m * row + k * step."""

    tile: Tile
    row: int
    step: int


def rows_of(tile: Tile) -> Factor:
    """The matrix that a tile holds."""
    return Factor(tile, tile.stride, 1)


def columns_of(tile: Tile) -> Factor:
    """The transpose of the matrix that a tile holds."""
    return Factor(tile, 1, tile.stride)


def step(machine: Machine, kind: str) -> tuple[int, int]:
    """(rows, columns) that a product computes at a time."""
    block = micro.tile_for(machine, kind, rows=ROWS)
    return block.rows, block.columns


def multiply(
    code: Code,
    machine: Machine,
    out: Tile,
    a: Factor,
    b: Tile,
    rows: Ref,
    columns: Ref,
    inner: Ref,
    fresh: bool = False,
) -> None:
    """out[:rows, :columns] += a[:rows, :inner] @ b[:inner, :columns], or = if it is `fresh`.

    `rows` is rounded up to a multiple of `step`'s, which `out` and `a` must have. `columns` is a
    multiple of the lanes.
    """
    product = _Product(micro.tile_for(machine, out.kind, rows=ROWS), out, a, b, fresh)
    sizes = "_".join(map(str, (out.stride, a.row, a.step, b.stride)))
    name = f"tw_{'set' if fresh else 'add'}_product_{out.kind}_{sizes}"
    pointers = "ptr noalias %c, ptr noalias readonly %a, ptr noalias readonly %b"
    symbol = code.function(name, f"{pointers}, i64 %m, i64 %n, i64 %k", product.write)
    given = [out.address, a.tile.address, b.address, rows, columns, inner]
    code.add(f"call void {symbol}({', '.join(g.typed for g in given)})")


@dataclass(frozen=True)
class _Product:
    """The text of a product: one panel of columns after another, each times all rows."""

    block: micro.Tile
    out: Tile
    a: Factor
    b: Tile
    fresh: bool

    def write(self, code: Code) -> None:
        columns, nothing = Ref("%n", "i64"), constant(0, "i64")
        wide = self.block.columns
        whole = code.binary("sub", columns, code.binary("urem", columns, constant(wide, "i64")))
        self._panels(code, nothing, whole, self.block)
        self._panels(code, whole, columns, replace(self.block, vectors=1))

    def _panels(self, code: Code, first: Ref, stop: Ref, block: micro.Tile) -> None:
        c, a, b = (Ref(f"%{name}", "ptr") for name in "cab")
        panel = code.open_loop(first, stop, block.columns, stem="n")
        right = micro.Operand(
            (micro.offset(code, block, b, panel.variable),), constant(self.b.stride, "i64")
        )
        loop = code.open_loop(constant(0, "i64"), Ref("%m", "i64"), block.rows, stem="m")
        row = code.binary("mul", loop.variable, constant(self.a.row, "i64"))
        left = micro.Operand(
            (micro.offset(code, block, a, row),),
            constant(self.a.step, "i64"),
            tuple(constant(m * self.a.row, "i64") for m in range(block.rows)),
        )
        start = code.binary("mul", loop.variable, constant(self.out.stride, "i64"))
        target = micro.offset(code, block, c, code.binary("add", start, panel.variable))
        held = micro.zeros(block) if self.fresh else self._held(code, block, target)
        sums = micro.accumulate(code, block, left, right, Ref("%k", "i64"), held)
        micro.write_tile(code, block, sums, target, constant(self.out.stride, "i64"), None)
        code.close_loop(loop)
        code.close_loop(panel)

    def _held(self, code: Code, block: micro.Tile, at: Ref) -> list[Ref]:
        return [
            micro.load(
                code, block, micro.offset(code, block, at, m * self.out.stride + v * block.lanes)
            )
            for m in range(block.rows)
            for v in range(block.vectors)
        ]


# Transposes


def transpose(code: Code, out: Tile, x: Tile) -> None:
    """out[c, r] = x[r, c] for all of `x`, whose rows are a multiple of the lanes."""
    lanes = x.lanes
    name = f"tw_transpose_{x.kind}_{x.rows}_{x.stride}_{out.stride}"

    def write(inside: Code) -> None:
        zero = constant(0, "i64")
        target, source = (Ref(n, "ptr") for n in ("%out", "%x"))
        outer = inside.open_loop(zero, constant(x.rows, "i64"), lanes, stem="r")
        loop = inside.open_loop(zero, constant(x.stride, "i64"), lanes, stem="c")
        r, c = outer.variable, loop.variable
        rows = []
        for i in range(lanes):
            row = inside.binary("add", r, constant(i, "i64"))
            rows.append(load(inside, _placed(x, source), row, c))
        for i, value in enumerate(_turned(inside, rows)):
            row = inside.binary("add", c, constant(i, "i64"))
            store(inside, _placed(out, target), row, r, value)
        inside.close_loop(loop)
        inside.close_loop(outer)

    symbol = code.function(name, "ptr noalias %out, ptr noalias readonly %x", write)
    code.add(f"call void {symbol}({out.address.typed}, {x.address.typed})")


def _placed(tile: Tile, address: Ref) -> Tile:
    return Tile(address, tile.rows, tile.stride, tile.kind, tile.lanes)


def _turned(code: Code, rows: list[Ref]) -> list[Ref]:
    """The columns of as many rows as there are lanes. Blocks are exchanged, each time of half the
    size (Eklundh's method)."""
    lanes = len(rows)
    distance = lanes // 2
    while distance:
        turned = list(rows)
        for i in range(lanes):
            if i & distance:
                continue
            a, b = rows[i], rows[i + distance]
            low = [lanes + q - distance if q & distance else q for q in range(lanes)]
            high = [lanes + q if q & distance else q + distance for q in range(lanes)]
            turned[i], turned[i + distance] = (
                _shuffled(code, a, b, low),
                _shuffled(code, a, b, high),
            )
        rows = turned
        distance //= 2
    return rows


def _shuffled(code: Code, a: Ref, b: Ref, order: list[int]) -> Ref:
    mask = f"<{len(order)} x i32> <{', '.join(f'i32 {i}' for i in order)}>"
    return code.let(f"shufflevector {a.typed}, {b.typed}, {mask}", a.type, a.lanes)


def _moved(code: Code, address: Ref, by: Ref, kind: str) -> Ref:
    if by.text == "0":
        return address
    return code.let(f"getelementptr {kind}, ptr {address.text}, i64 {by.text}", "ptr")


def _load(code: Code, address: Ref, kind: str, lanes: int) -> Ref:
    align = lanes * _size(kind)
    return code.let(f"load {vector(kind, lanes)}, ptr {address.text}, align {align}", kind, lanes)


def _store(code: Code, address: Ref, value: Ref) -> None:
    align = value.lanes * _size(value.type)
    code.add(f"store {value.typed}, ptr {address.text}, align {align}")
