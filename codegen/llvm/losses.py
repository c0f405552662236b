"""The sum of one element of each row, as of a loss of classes: LLVM IR for any sizes.

    out[0] = -sum of x[i, target[i]] over the rows whose target counts
    out[1] = how many count

A target that is `ignored` doesn't count. flag[0] becomes 1 if another one is no column; nothing is
read for it. The sum is taken in float64.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .code import Code, module_text
from .types import Ref, computed, constant

BUFFERS = ("out", "x", "target", "flag")
WORDS = (*BUFFERS, "rows", "columns", "ignored")
"""The argument words."""


def text(dtype: DType) -> str:
    """The module with a function `kernel`."""
    kind = computed(dtype)
    code = Code("kernel", "ptr %words, i64 %chunk")
    words = code.words(WORDS, len(BUFFERS))

    def element(name: str, place: Ref, of: str) -> Ref:
        return code.let(f"getelementptr {of}, {words[name].typed}, {place.typed}", "ptr")

    zero = constant(0, "i64")
    initial = [constant(0, "double"), zero, constant(False, "i1")]
    rows = code.open_loop(zero, words["rows"], 1, initial)
    total, count, bad = [phi for phi, _ in rows.carried]
    target = code.let(f"load i64, {element('target', rows.variable, 'i64').typed}", "i64")
    counts = code.compare("icmp ne", target, words["ignored"])
    fits = code.compare("icmp ult", target, words["columns"])
    column = code.select(fits, target, zero)
    place = code.binary("add", code.binary("mul", rows.variable, words["columns"]), column)
    value = code.convert(
        "fpext", code.let(f"load {kind}, {element('x', place, kind).typed}", kind), "double"
    )
    value = code.select(counts, value, constant(0, "double"))
    missing = code.binary("and", counts, code.binary("xor", fits, constant(True, "i1")))
    one = code.let(f"zext {counts.typed} to i64", "i64")
    total, count, bad = code.close_loop(
        rows,
        [
            code.binary("fsub", total, value),
            code.binary("add", count, one),
            code.binary("or", bad, missing),
        ],
    )
    counted = code.let(f"sitofp {count.typed} to double", "double")
    for result, made in ((zero, total), (constant(1, "i64"), counted)):
        code.add(f"store {made.typed}, {element('out', result, 'double').typed}, align 8")
    flag = code.let(f"zext {bad.typed} to i64", "i64")
    code.add(f"store {flag.typed}, {words['flag'].typed}, align 8")
    return module_text([code])
