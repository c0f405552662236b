"""Elements of a small tensor, spread over a tile of a large one: LLVM IR for any sizes.

    out[i] = x[(start + i) / inner % middle]    for each i below `count`

So a row is repeated where `inner` is 1, and else each element is, `inner` times in succession.
"""

from __future__ import annotations

from .code import Code, module_text
from .types import Ref, integer, vector

WORDS = ("out", "x", "count", "start", "middle", "inner")
"""The argument words."""

_BYTES = 32  # of a vector


def text(itemsize: int) -> str:
    """The module with a function `kernel`, for elements of so many bytes."""
    kind = f"i{8 * itemsize}"
    code = Code("kernel", "ptr %words, i64 %chunk")

    def word(name: str) -> Ref:
        at = code.let(f"getelementptr i64, ptr %words, i64 {WORDS.index(name)}", "ptr")
        loaded = "ptr" if name in ("out", "x") else "i64"
        return code.let(f"load {loaded}, {at.typed}, align 8", loaded)

    def address(base: Ref, place: Ref) -> Ref:
        return code.let(f"getelementptr {kind}, {base.typed}, {place.typed}", "ptr")

    def load(at: Ref, lanes: int) -> Ref:
        text = f"load {vector(kind, lanes)}, {at.typed}, align {itemsize}"
        return code.let(text, kind, lanes)

    out, x, count, start, middle, inner = map(word, WORDS)
    is_row = code.compare("icmp eq", inner, integer(1))
    runs = code.open_loop(integer(0), count)
    place = code.binary("add", start, runs.variable)
    at = code.binary("urem", code.binary("udiv", place, inner), middle)
    whole = code.binary("sub", inner, code.binary("urem", place, inner))
    whole = code.select(is_row, code.binary("sub", middle, at), whole)
    length = code.intrinsic("smin", [whole, code.binary("sub", count, runs.variable)])
    source, target = address(x, at), address(out, runs.variable)
    element = load(source, 1)
    lanes = _BYTES // itemsize
    full = code.binary("and", length, integer(-lanes))
    for first, stop, step in ((integer(0), full, lanes), (full, length, 1)):
        copied = code.open_loop(first, code.select(is_row, stop, first), step)
        moved = load(address(source, copied.variable), step)
        to = address(target, copied.variable)
        code.add(f"store {moved.typed}, {to.typed}, align {itemsize}")
        code.close_loop(copied)
        filled = code.open_loop(first, code.select(is_row, first, stop), step)
        to = address(target, filled.variable)
        code.add(f"store {code.spread(element, step).typed}, {to.typed}, align {itemsize}")
        code.close_loop(filled)
    runs.step = length
    code.close_loop(runs)
    return module_text([code])
