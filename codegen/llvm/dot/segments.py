"""The place of a chunk in a product in segments: its rows and its part of the sum are data.

Blocks of rows are numbered as the tiles of a GPU's program, see `triton/segments.py`: the blocks of
segment i, with the rows first to stop, begin at number first // rows + i. The rows behind the last
segment count as one more, without a sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...kernel import Segment
from ..body import Body
from ..types import Ref, constant
from ..values import evaluate
from .cut import Tiling

ZERO, ONE = constant(0, "i64"), constant(1, "i64")


@dataclass(frozen=True)
class Place:
    """Rows `row` to `end` of a group, maybe none, which are summed up to `length` of K."""

    group: Ref
    row: Ref
    end: Ref
    length: Ref


def find(body: Body, cut: Tiling, number: Ref, rows: Ref, length: Ref) -> Place:
    """The place of the block of rows with a number. length: the places of K that a segment's row
    sums."""
    code, group, segment = body.code, cut.group, cut.dot.segment
    assert group is not None and segment is not None
    groups = body.size(group.extent, "segments", baked=False)
    loop = code.open_loop(ZERO, groups, 1, [ZERO], stem="group")
    ((before, _),) = loop.carried
    body.bind(group, loop.variable)
    last = code.binary("udiv", evaluate(body, segment.stop), rows)
    over = code.compare("icmp ult", code.binary("add", last, loop.variable), number)
    more = code.binary("add", before, code.convert("zext", over, "i64"))
    (ahead,) = code.close_loop(loop, [more])
    inside = code.compare("icmp ult", ahead, groups)
    own = code.select(inside, ahead, code.binary("sub", groups, ONE))
    body.bind(group, own)
    first, stop = bounds(body, segment)
    begin = code.select(inside, first, stop)
    end = code.select(inside, stop, body.size(cut.m.extent, ("extent", cut.m.name)))
    block = code.binary("sub", code.binary("sub", number, ahead), code.binary("udiv", begin, rows))
    row = code.binary("add", begin, code.binary("mul", block, rows))
    return Place(own, row, end, code.select(inside, length, ZERO))


def bounds(body: Body, segment: Segment) -> tuple[Ref, Ref]:
    """The begin and the end of a group's segment."""
    return evaluate(body, segment.first), evaluate(body, segment.stop)
