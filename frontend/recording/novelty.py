"""How new a program's work is: the rule by which calls are computed at once (`volatile.py`).

The rule counts, and never looks at a clock. Each graph that wasn't met before is one more, each one
that was is one less. From `DUE` on calls are computed at once, until the same work comes again and
again between reads of values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.runtime import debug, tiers

from .epoch import clock

DUE = 8
"""The number of new graphs, more than known ones, from which calls are computed at once."""
KNOWN, REPEATS = 3, 8
"""How often work must have come before to count as known, and the known work in a row after which
calls are recorded again."""
UNTAPED = 256
"""The number of calls on the tape, more than backward passes went through, from whose graphs on
calls with gradient are recorded."""
_REMEMBERED = 4096
"""The kinds of work that are remembered."""

_seen: dict[int, int] = {}  # work -> how often it came
_work = _repeats = 0  # the work since the last read of a value, and known work in a row
_effects = -1
_untaped = 0  # how many more calls on the tape were built as graphs than were gone through


def clear() -> None:
    """Forget the program's work, and record calls again."""
    global _work, _repeats, _untaped
    _seen.clear()
    _work = _repeats = _untaped = 0
    clock.news, clock.volatile, clock.taping = 0, False, True


def is_new() -> None:
    """Note a graph that wasn't met before."""
    if tiers.mode == tiers.FUSED:
        return
    clock.news = min(clock.news + 1, 2 * DUE)
    if clock.news >= DUE and not clock.volatile:
        clock.volatile = True
        debug.say("graphs keep being new: calls are computed when they are made")


def is_known() -> None:
    """Note a graph that was met before."""
    if not clock.volatile:
        clock.news -= 1


def note(call: Any) -> None:
    """Note a call that was computed at once, as it differs from others."""
    global _work
    _work = hash((_work, call))


def is_untaped() -> None:
    """Note a call on the tape whose graph was built, which costs more than to record it."""
    global _untaped
    _untaped += 1
    if _untaped > UNTAPED and clock.taping:
        clock.taping = False
        debug.say("backward passes ask for more than a tape has: calls with gradient are recorded")


@contextmanager
def untaped() -> Iterator[None]:
    """Record the calls of the block that gradients flow through."""
    before, clock.taping = clock.taping, False
    try:
        yield
    finally:
        clock.taping = before


def is_passed(calls: int) -> None:
    """Note calls on the tape that a backward pass went through."""
    global _untaped
    _untaped = max(0, _untaped - calls)


def lasts() -> bool:
    """Whether calls are still computed at once."""
    if clock.effects != _effects:
        _look()
    return clock.volatile


def _look() -> None:
    """Note the work since the last read of a value."""
    global _work, _repeats, _effects
    _effects = clock.effects
    if not _work:
        return
    count = _seen[_work] = _seen.get(_work, 0) + 1
    _work = 0
    _repeats = _repeats + 1 if count > KNOWN else 0
    if len(_seen) > _REMEMBERED:
        _seen.clear()
    if _repeats >= REPEATS:
        clear()
        debug.say("the same work comes again: calls are recorded")
