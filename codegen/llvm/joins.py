"""Rows of several tensors, joined and in any order, as in a padded image: LLVM IR for any sizes.

    out[p, r] = (x0[p, index[r]], x1[p, index[r]], ...)

Strides count elements. A part whose elements lie side by side is copied in vectors. Others, as
those of a reflected border, are copied one by one.
"""

from __future__ import annotations

from .code import Code, module_text
from .types import Ref, integer, vector

PARTS = 3
BUFFERS = ("out", "index", *[f"x{i}" for i in range(PARTS)])
NUMBERS = ("planes", "rows", "width")
OF_PART = ("columns", "plane", "row", "step")
WORDS = (*BUFFERS, *NUMBERS, *[f"{name}{i}" for i in range(PARTS) for name in OF_PART])
"""The argument words. width: the columns of all parts. A part that is missing has none."""

_BYTES = 32  # of a vector


def text(itemsize: int) -> str:
    """The module with a function `kernel`."""
    kind = f"i{8 * itemsize}"
    code = Code("kernel", "ptr %words, i64 %chunk")
    words = code.words(WORDS, len(BUFFERS))

    def address(base: Ref, place: Ref, of: str = kind) -> Ref:
        return code.let(f"getelementptr {of}, {base.typed}, {place.typed}", "ptr")

    planes = code.open_loop(integer(0), words["planes"])
    rows = code.open_loop(integer(0), words["rows"])
    line = code.binary("add", code.binary("mul", planes.variable, words["rows"]), rows.variable)
    target = address(words["out"], code.binary("mul", line, words["width"]))
    at = address(words["index"], rows.variable, "i64")
    row = code.let(f"load i64, {at.typed}, align 8", "i64")
    lanes = _BYTES // itemsize
    for i in range(PARTS):
        columns, plane, by, step = (words[f"{name}{i}"] for name in OF_PART)
        place = code.binary(
            "add", code.binary("mul", planes.variable, plane), code.binary("mul", row, by)
        )
        source = address(words[f"x{i}"], place)
        whole = code.binary("and", columns, integer(-lanes))
        side_by_side = code.compare("icmp eq", step, integer(1))
        whole = code.select(side_by_side, whole, integer(0))
        for first, stop, width in ((integer(0), whole, lanes), (whole, columns, 1)):
            loop = code.open_loop(first, stop, width)
            read = address(source, code.binary("mul", loop.variable, step))
            full = vector(kind, width)
            value = code.let(f"load {full}, {read.typed}, align {itemsize}", kind, width)
            there = address(target, loop.variable)
            code.add(f"store {value.typed}, {there.typed}, align {itemsize}")
            code.close_loop(loop)
        target = address(target, columns)
    code.close_loop(rows)
    code.close_loop(planes)
    return module_text([code])
