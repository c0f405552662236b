"""Running products of complex numbers along rows.

The next product needs the last one, so a row alone waits for each of them. Several rows at a time
fill that time.
"""

from __future__ import annotations

from .code import Code, module_text
from .machine import Machine
from .types import Ref, constant, vector

ROWS = 8


def emit(kind: str, machine: Machine) -> str:
    """kernel(z, out, m, n): the running products along the rows of complex z[m, n], m and n > 0.
    kind: of the parts."""
    code = Code("kernel", "ptr %z, ptr %out, i64 %m, i64 %n")
    last = code.binary("sub", Ref("%m", "i64"), constant(1, "i64"))
    rows = code.open_loop(constant(0, "i64"), Ref("%m", "i64"), ROWS)
    starts = []
    for i in range(ROWS):  # rows behind the last one repeat it
        row = code.intrinsic("smin", [code.binary("add", rows.variable, constant(i, "i64")), last])
        starts.append(code.binary("mul", row, Ref("%n", "i64")))
    pair = vector(kind, 2)
    align = 4 if kind == "float" else 8

    def address(base: str, start: Ref, j: Ref) -> Ref:
        place = code.binary("add", start, j)
        return code.let(f"getelementptr {pair}, ptr {base}, {place.typed}", "ptr")

    def load(start: Ref, j: Ref) -> Ref:
        return code.let(f"load {pair}, {address('%z', start, j).typed}, align {align}", kind, 2)

    def store(value: Ref, start: Ref, j: Ref) -> None:
        code.add(f"store {value.typed}, {address('%out', start, j).typed}, align {align}")

    def picked(x: Ref, first: int, second: int) -> Ref:
        text = f"shufflevector {x.typed}, {pair} poison, <2 x i32> <i32 {first}, i32 {second}>"
        return code.let(text, kind, 2)

    none, one = constant(0, "i64"), constant(1, "i64")
    firsts = [load(start, none) for start in starts]
    for first, start in zip(firsts, starts, strict=True):
        store(first, start, none)
    columns = code.open_loop(one, Ref("%n", "i64"), initial=firsts)
    minus, plus = constant(-1, kind), constant(1, kind)
    signs = Ref(f"<{minus.typed}, {plus.typed}>", kind, 2)
    following = []
    for (product, _), start in zip(columns.carried, starts, strict=True):
        z = load(start, columns.variable)
        real = code.binary("fmul", picked(z, 0, 0), product)
        turned = code.binary("fmul", picked(z, 1, 1), signs)
        product = code.binary("fadd", real, code.binary("fmul", turned, picked(product, 1, 0)))
        store(product, start, columns.variable)
        following.append(product)
    code.close_loop(columns, following)
    code.close_loop(rows)
    return module_text([code]) + machine.attributes
