"""Packing: operands are copied to panels of a few rows, as the micro kernel reads them.

A panel of width W holds rows r to r + W of an operand (columns of `b`) as packed[k][i]. In memory
either neighbours along K lie together ("along"), so that blocks are transposed in registers, or
those of a row of the panel ("across"). Rows beyond the last one repeat it; nothing reads their
results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir.dtype import DType, int8

from ..code import Code, Level
from ..convert import widened
from ..types import Ref, computed, constant, stored, vector
from .squares import columns, head, store, transposed
from .words import BYTES

AHEAD = 256
"""The bytes ahead at which the rows of a panel are fetched before they are packed. There are more
rows than the processor follows by itself."""
LATER = 16
"""The places along K ahead at which neighbours are fetched: each may lie on another page, where the
processor reads nothing ahead by itself."""
TOGETHER = 96
"""The number of neighbours that are copied to panels before the next place along K."""
BEHIND = 1
"""The vectors of memory behind the last panel that packing may write."""
ZERO, ONE = constant(0, "i64"), constant(1, "i64")


def function(name: str, dtype: DType, width: int, lanes: int, along: bool) -> Code:
    """Packs rows * depth elements at `from`, where rows (along) or places of K are `stride` apart:

    void name(ptr from, i64 stride, i64 rows, i64 depth, ptr to, i64 panel)

    panel: the distance of panels, in elements.
    """
    parameters = "ptr noalias %from, i64 %stride, i64 %rows, i64 %depth, ptr noalias %to"
    code = Code(name, f"{parameters}, i64 %panel", internal=True)
    if along:
        _along(code, dtype, width, lanes)
    else:
        _across(code, dtype, width)
    return code


def _argument(name: str) -> Ref:
    return Ref(f"%{name}", "i64")


def _at(code: Code, kind: str, start: Ref, elements: Ref, at: Level | None = None) -> Ref:
    text = f"getelementptr {kind}, ptr {start.text}, i64 {elements.text}"
    return code.let(text, "ptr", at=at)


def packed(dtype: DType) -> str:
    """The type of elements in panels. Bytes become floats here; `words.py` keeps them."""
    return "float" if dtype in BYTES else computed(dtype)


def _load(code: Code, dtype: DType, at: Ref, lanes: int) -> Ref:
    kind = stored(dtype)
    text = f"load {vector(kind, lanes)}, ptr {at.text}, align {dtype.itemsize}"
    loaded = code.let(text, kind, lanes)
    if dtype in BYTES:
        return code.convert("sitofp" if dtype is int8 else "uitofp", loaded, "float")
    return widened(code, loaded, dtype)


def _branch(code: Code, condition: Ref) -> tuple[str, str]:
    """Begins the block where the condition holds; `_otherwise` and `_join` go on."""
    yes, no, done = (code.fresh_label(s) for s in ("yes", "no", "done"))
    code.add(f"br i1 {condition.text}, label %{yes}, label %{no}")
    code.level.block(yes)
    return no, done


def _otherwise(code: Code, labels: tuple[str, str]) -> None:
    code.add(f"br label %{labels[1]}")
    code.level.block(labels[0])


def _join(code: Code, labels: tuple[str, str]) -> None:
    code.add(f"br label %{labels[1]}")
    code.level.block(labels[1])


def _panel(code: Code, kind: str, row: Ref, width: int) -> Ref:
    """The place of the panel whose first row is `row`."""
    number = code.binary("udiv", row, constant(width, "i64"))
    return _at(code, kind, Ref("%to", "ptr"), code.binary("mul", number, _argument("panel")))


def _one_by_one(
    code: Code, dtype: DType, width: int, row: Ref, first: Ref, stop: Ref, to: Ref, along: bool
) -> None:
    """Copies the part of a panel from `first` to `stop` along K element by element, for panels or
    rows that are too short."""
    last = code.binary("sub", _argument("rows"), ONE)
    k = code.open_loop(first, stop, 1, stem="k")
    i = code.open_loop(ZERO, constant(width, "i64"), 1, stem="i")
    place = code.intrinsic("umin", [code.binary("add", row, i.variable), last])
    slow, fast = (place, k.variable) if along else (k.variable, place)
    offset = code.binary("add", code.binary("mul", slow, _argument("stride")), fast)
    value = _load(code, dtype, _at(code, stored(dtype), Ref("%from", "ptr"), offset), 1)
    target = code.binary("mul", k.variable, constant(width, "i64"))
    store(code, value, _at(code, value.type, to, code.binary("add", target, i.variable)))
    code.close_loop(i)
    code.close_loop(k)


def _across(code: Code, dtype: DType, width: int) -> None:
    depth, rows, wide = _argument("depth"), _argument("rows"), constant(width, "i64")
    whole = code.binary("sub", rows, code.binary("urem", rows, wide))
    kind, source = packed(dtype), Ref("%from", "ptr")
    group = code.open_loop(ZERO, whole, TOGETHER // width * width, stem="group")
    last = code.binary("add", group.variable, constant(TOGETHER // width * width, "i64"))
    last = code.intrinsic("umin", [last, whole])
    start = _panel(code, kind, group.variable, width)
    later = code.binary("mul", _argument("stride"), constant(LATER, "i64"))
    k = code.open_loop(ZERO, depth, 1, stem="k")
    line = code.binary("mul", k.variable, _argument("stride"))
    first = _at(code, kind, start, code.binary("mul", k.variable, wide))
    panel = code.open_loop(group.variable, last, width, [first], stem="row")
    ((to, _),) = panel.carried
    at = _at(code, stored(dtype), source, code.binary("add", line, panel.variable))
    code.prefetch(_at(code, stored(dtype), at, later))
    store(code, _load(code, dtype, at, width), to)
    code.close_loop(panel, [_at(code, kind, to, _argument("panel"))])
    code.close_loop(k)
    code.close_loop(group)
    labels = _branch(code, code.compare("icmp ult", whole, rows))
    to = _panel(code, kind, whole, width)
    _one_by_one(code, dtype, width, whole, ZERO, depth, to, along=False)
    _otherwise(code, labels)
    _join(code, labels)


def _along(code: Code, dtype: DType, width: int, lanes: int) -> None:
    depth, rows = _argument("depth"), _argument("rows")
    panel = code.open_loop(ZERO, rows, width, stem="row")
    row = panel.variable
    to = _panel(code, packed(dtype), row, width)
    labels = _branch(code, code.compare("icmp uge", depth, constant(lanes, "i64")))
    last = code.binary("sub", rows, ONE)
    starts = []
    for i in range(width):
        place = code.intrinsic("umin", [code.binary("add", row, constant(i, "i64")), last])
        offset = code.binary("mul", place, _argument("stride"))
        starts.append(_at(code, stored(dtype), Ref("%from", "ptr"), offset))
    # The last block ends where K does, and copies a part of the block before again.
    final = code.binary("sub", depth, constant(lanes, "i64"))
    k = code.open_loop(ZERO, depth, lanes, stem="k")
    here = code.intrinsic("umin", [k.variable, final])
    base = _at(code, packed(dtype), to, code.binary("mul", here, constant(width, "i64")))
    later = code.binary("add", here, constant(AHEAD // dtype.itemsize, "i64"))
    for first in range(0, width, lanes):
        some = starts[first : first + lanes]
        for start in some:
            code.prefetch(_at(code, stored(dtype), start, later))
        # What a column that is alone leaves open, the next one fills, or the next panel.
        is_whole = len(some) == lanes or width < lanes
        for number, column in enumerate(_columns(code, dtype, some, here, lanes)):
            part = column if is_whole else head(code, column, len(some))
            store(code, part, _at(code, part.type, base, constant(number * width + first, "i64")))
    code.close_loop(k)
    _otherwise(code, labels)
    _one_by_one(code, dtype, width, row, ZERO, depth, to, along=True)
    _join(code, labels)
    code.close_loop(panel)


def _columns(
    code: Code, dtype: DType, starts: Sequence[Ref], first: Ref, lanes: int
) -> Iterator[Ref]:
    """So many columns of rows, from the one at `first`."""
    kind = packed(dtype)
    if stored(dtype) != kind:
        yield from transposed(
            code, [_load(code, dtype, _at(code, stored(dtype), s, first), lanes) for s in starts]
        )
        return
    inside = 16 // dtype.itemsize
    for number in range(0, lanes, inside):
        here = code.binary("add", first, constant(number, "i64"))
        pieces = [_load(code, dtype, _at(code, kind, s, here), inside) for s in starts]
        yield from columns(code, pieces, lanes)
