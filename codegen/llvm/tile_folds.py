"""Parts of the sums or products of rows, of which a tile has some elements: LLVM IR for any sizes.

    out[row + start / tile] = fold of x[i] over the i of `row`, where (start + i) / length = row

Each row has a part for each of its tiles, in float64. The next row in a tile has the next part, and
so has the next tile of a row.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .code import Code, module_text
from .types import Ref, computed, constant, vector

WORDS = ("out", "x", "count", "start", "length", "tile")
"""The argument words. length: the elements of a row."""

_LANES = (32, 8, 1)
NEUTRAL = {"fadd": 0.0, "fmul": 1.0}


def text(dtype: DType, op: str) -> str:
    """The module with a function `kernel`. op: fadd or fmul."""
    kind, itemsize = computed(dtype), dtype.itemsize
    code = Code("kernel", "ptr %words, i64 %chunk")

    def word(name: str) -> Ref:
        at = code.let(f"getelementptr i64, ptr %words, i64 {WORDS.index(name)}", "ptr")
        loaded = "ptr" if name in ("out", "x") else "i64"
        return code.let(f"load {loaded}, {at.typed}, align 8", loaded)

    out, x, count, start, length, tile = map(word, WORDS)
    number = code.binary("udiv", start, tile)
    runs = code.open_loop(_int(0), count)
    place = code.binary("add", start, runs.variable)
    row = code.binary("udiv", place, length)
    left = code.binary("sub", length, code.binary("urem", place, length))
    run = code.intrinsic("smin", [left, code.binary("sub", count, runs.variable)])
    end, begin = code.binary("add", runs.variable, run), runs.variable
    total: Ref | None = None
    for lanes in _LANES:
        full = code.binary("and", code.binary("sub", end, begin), _int(-lanes))
        whole = code.binary("add", begin, full)
        loop = code.open_loop(begin, whole, lanes, [constant(NEUTRAL[op], kind, lanes)])
        at = code.let(f"getelementptr {kind}, {x.typed}, {loop.variable.typed}", "ptr")
        loaded = code.let(f"load {vector(kind, lanes)}, {at.typed}, align {itemsize}", kind, lanes)
        (part,) = code.close_loop(loop, [code.binary(op, loop.carried[0][0], loaded)])
        while part.lanes > 1:
            half = part.lanes // 2
            part = code.binary(op, _half(code, part, 0, half), _half(code, part, half, half))
        total = part if total is None else code.binary(op, total, part)
        begin = whole
    assert total is not None
    at = code.let(
        f"getelementptr double, {out.typed}, {code.binary('add', row, number).typed}", "ptr"
    )
    code.add(f"store {code.convert('fpext', total, 'double').typed}, {at.typed}, align 8")
    runs.step = run
    code.close_loop(runs)
    return module_text([code])


def _half(code: Code, x: Ref, first: int, lanes: int) -> Ref:
    if lanes == 1:
        return code.extract(x, first)
    mask = ", ".join(f"i32 {first + i}" for i in range(lanes))
    text = f"shufflevector {x.typed}, {vector(x.type, x.lanes)} poison, <{lanes} x i32> <{mask}>"
    return code.let(text, x.type, lanes)


def _int(value: int) -> Ref:
    return constant(value, "i64")
