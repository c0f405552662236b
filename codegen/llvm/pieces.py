"""The pieces of a row in which no guard changes: each is computed by itself.

A roll, a concatenation and the inside of a border are copies of what lies together in memory. A
loop over the whole row would ask in each step which part a lane is in. Here a loop over pieces asks
once, so that what a guard keeps is a branch that its whole piece takes, and loads need no masks.
"""

from __future__ import annotations

from collections.abc import Callable

from . import stages
from .body import Body
from .cuts import cutting, places
from .types import Ref, constant
from .values import within_bounds

Loop = Callable[[Ref, Ref, bool, bool], None]
"""Writes a loop from one place to another: (first, last, whether all lanes exist, whether the last
ones go back to end with the piece)."""


def write_pieces(
    body: Body, along: Loop, single: Callable[[Ref, Ref], None], first: Ref, last: Ref
) -> None:
    """Fills the loop over the pieces between two places of a row. single: writes a loop that
    computes elements one by one."""
    code, axis = body.code, body.form.vector
    assert axis is not None
    loop = code.open_loop(first, last, 1, stem="piece")
    start, end, level = loop.variable, last, code.level
    for condition in cutting(body.kernel, axis):
        place = code.binary("add", start, body.constant_of(condition.index))
        body.settled[condition] = within_bounds(body, condition, place, level), level.depth
    for number, cut in enumerate(places(body.kernel, axis)):
        change = body.size(cut, ("cut", number), baked=False)
        later = code.compare("icmp sgt", change, start)
        end = code.intrinsic("smin", [end, code.select(later, change, last)])
    count = code.binary("sub", end, start)
    if any(stages.read_later(body, store) for store in body.kernel.stores):
        middle = stages.whole_end(body, start, end)
        along(start, middle, True, False)
    else:
        long = code.compare("icmp sge", count, constant(body.lanes, "i64"))
        middle = code.select(long, end, start)
        along(start, middle, True, True)
    single(middle, end)
    body.settled.clear()
    loop.step = count
    code.close_loop(loop)
