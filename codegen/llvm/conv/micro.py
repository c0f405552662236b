"""The innermost loop: a tile of the result in registers, its rows gathered by tables."""

from __future__ import annotations

from ..code import Code
from ..dot.micro import Tile, load, offset
from ..types import Ref, constant

NAME = "gathered"


def function(tile: Tile) -> Code:
    """sums[row][column] += the sum over `count` steps of a[rows[row] + steps[step]] *
    b[step][column]; `sums` has as many columns as the tile."""
    parameters = "ptr noalias %rows, ptr noalias %a, ptr noalias %steps, ptr noalias %b"
    code = Code(NAME, f"{parameters}, i64 %count, ptr noalias %sums", internal=True)
    a, b, sums = (Ref(name, "ptr") for name in ("%a", "%b", "%sums"))
    rows = [
        offset(code, tile, a, entry(code, Ref("%rows", "ptr"), constant(i, "i64")))
        for i in range(tile.rows)
    ]
    zeros = [constant(0, tile.kind, tile.lanes)] * (tile.rows * tile.vectors)
    loop = code.open_loop(constant(0, "i64"), Ref("%count", "i64"), 1, zeros, stem="k")
    step = entry(code, Ref("%steps", "ptr"), loop.variable)
    start = code.binary("mul", loop.variable, constant(tile.columns, "i64"))
    start = offset(code, tile, b, start)
    columns = [
        load(code, tile, offset(code, tile, start, constant(j * tile.lanes, "i64")), tile.lanes)
        for j in range(tile.vectors)
    ]
    held = iter([phi for phi, _ in loop.carried])
    added = []
    for row in rows:
        element = code.splat(load(code, tile, offset(code, tile, row, step), 1), tile.lanes)
        added += [code.intrinsic("fmuladd", [element, c, next(held)]) for c in columns]
    for i, total in enumerate(code.close_loop(loop, added)):
        at = offset(code, tile, sums, constant(i * tile.lanes, "i64"))
        total = code.binary("fadd", load(code, tile, at, tile.lanes), total)
        code.add(f"store {total.typed}, ptr {at.text}, align {tile.itemsize}")
    return code


def entry(code: Code, table: Ref, place: Ref) -> Ref:
    """An entry of a table of int32, as 64 bits."""
    at = code.let(f"getelementptr i32, ptr {table.text}, {place.typed}", "ptr")
    return code.convert("sext", code.let(f"load i32, ptr {at.text}, align 4", "i32"), "i64")
