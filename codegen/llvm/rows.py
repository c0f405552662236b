"""Rows added to rows of a table, one after the other: LLVM IR for any sizes.

    table[positions[i], j] += values[i, j]
    table[positions[i], j] += values[sources[i], j] * factors[i]

The order is that of the positions, so the sums are those of a loop. Positions are in range. The
second form is the product of a sparse matrix by a dense one.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .code import Code, module_text
from .types import Ref, computed, integer, vector

BUFFERS = ("table", "values", "positions")
NUMBERS = ("rows", "width")
WORDS = (*BUFFERS, *NUMBERS)
"""The argument words. rows: the number of positions. width: the elements of a row."""
SCALED = (*BUFFERS, "sources", "factors")
"""The buffers of the second form."""

_BYTES = 32  # of a vector


def text(dtype: DType, scaled: bool = False) -> str:
    """The module with a function `kernel`. scaled: whether it has the second form."""
    kind, itemsize = computed(dtype), dtype.itemsize
    code = Code("kernel", "ptr %words, i64 %chunk")
    buffers = SCALED if scaled else BUFFERS
    names = (*buffers, *NUMBERS)
    words = code.words(names, len(buffers))

    def address(base: Ref, place: Ref, of: str = kind) -> Ref:
        return code.let(f"getelementptr {of}, {base.typed}, {place.typed}", "ptr")

    rows = code.open_loop(integer(0), words["rows"])
    at = code.let(f"load i64, {address(words['positions'], rows.variable, 'i64').typed}", "i64")
    target = address(words["table"], code.binary("mul", at, words["width"]))
    row = rows.variable
    if scaled:
        row = code.let(f"load i64, {address(words['sources'], row, 'i64').typed}", "i64")
    source = address(words["values"], code.binary("mul", row, words["width"]))
    if scaled:
        factor = code.let(f"load {kind}, {address(words['factors'], rows.variable).typed}", kind)
    lanes = _BYTES // itemsize
    whole = code.binary("and", words["width"], integer(-lanes))
    for start, stop, step in ((integer(0), whole, lanes), (whole, words["width"], 1)):
        columns = code.open_loop(start, stop, step)
        total, added = (address(base, columns.variable) for base in (target, source))
        full = vector(kind, step)
        before, more = (
            code.let(f"load {full}, {each.typed}, align {itemsize}", kind, step)
            for each in (total, added)
        )
        if scaled:
            more = code.binary("fmul", more, factor)
        made = code.binary("fadd", before, more)
        code.add(f"store {made.typed}, {total.typed}, align {itemsize}")
        code.close_loop(columns)
    code.close_loop(rows)
    return module_text([code])
