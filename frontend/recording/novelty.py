"""How new a program's work is: the rule by which calls are computed at once (`volatile.py`).

The rule counts, and never looks at a clock. A program begins with calls at once, as all of its work
is new. Calls are recorded from where the same work comes again and again between reads of values
and steps of optimizers, and much more of it than was new lately. From `DUE` new graphs on calls are
computed at once again, unless the graphs in between that were met before have many more ops. So
learning from episodes of any length is new work, though each of the many acts in between is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.runtime import debug, tiers

from .epoch import clock

DUE = 8
"""The number of new graphs from which calls are computed at once."""
COST = 4
"""How many known ops have to be met for each new one, which costs so many times what they save."""
OPS = 4
"""The ops of a call with its derivative, by and large."""
KNOWN, REPEATS = 3, 8
"""How often work must have come before to count as known, and the known work in a row after which
calls are recorded again: in pieces, and in sizes of the largest new piece."""
FEW, ELEMENTS, OFTEN = 8, 4096, 1024
"""The ops of a graph, or the calls of a piece of work, and the elements of its tensors, up to which
it costs less to compute its calls at once than to end an epoch, even if it is known; and how often
in a row such graphs come until that is done."""
LARGE = 1 << 22
"""The elements of a tensor from which on to record a call costs little beside what it computes, and
to fuse it saves much."""
UNTAPED = 256
"""The number of calls on the tape, more than backward passes went through, from whose graphs on
calls with gradient are recorded."""
PLAIN = 16
"""The backward passes in a row that ask for no more than a tape has, after which such calls are on
the tape again."""
AMID = 1 << 16
"""The elements of tensors up to which a program whose hooks read values has its calls computed at
once, even if its work is known: each read amid a recorded pass computes a piece of it alone."""
_REMEMBERED = 4096
"""The kinds of work that are remembered."""

_begins = True  # whether calls are computed at once as the program begins
_seen: dict[int, int] = {}  # work -> how often it came
_surplus = 0  # COST times the ops of graphs that were new lately, less those that were known
noted: deque[tuple[int, int]] = deque(maxlen=1 << 16)
"""The calls since the last read that were computed at once: what tells each from others, and the
elements of the largest tensor that it reads or writes whole."""
looked = -1
"""clock.effects when they were looked at."""
_is_step = False  # whether they end in a step of an optimizer
_repeats = _known = 0  # known work in a row, and its calls
_largest = 0  # the calls of the largest new work, lately
_untaped = 0  # how many more calls on the tape were built as graphs than were gone through
_amid = 0  # reads amid backward passes, lately
_plain = 0  # passes over recorded calls in a row that a tape would do for


def clear() -> None:
    """Forget the program's work, and record calls again."""
    global _begins, _surplus, _repeats, _known, _largest, _untaped, _plain, _amid
    _begins = False
    _seen.clear()
    noted.clear()
    _surplus = _repeats = _known = _largest = _untaped = _plain = _amid = 0
    clock.news = clock.few = 0
    clock.volatile, clock.taping = False, True


def settle(at_once: bool) -> None:
    """Compute all calls at once from now on, or record all, whatever the program does: for tests,
    in which all work is new."""
    global DUE, OFTEN, REPEATS, UNTAPED, _begins
    _begins = False
    DUE = OFTEN = REPEATS = UNTAPED = 1 << 60
    clock.volatile = at_once


def is_new(ops: int) -> None:
    """Note a graph of so many ops that wasn't met before."""
    global _begins, _surplus, _largest
    if tiers.mode == tiers.FUSED:
        return
    _surplus += COST * ops
    _largest = max(ops // OPS, _largest - ops // OPS)
    clock.news += 1
    if clock.news >= DUE:
        _begins = False
    if clock.news >= DUE and not clock.volatile:
        clock.volatile = True
        debug.say("graphs keep being new: calls are computed when they are made")


def is_known(ops: int, is_small: bool) -> None:
    """Note a graph of so many ops that was met before. is_small: whether it costs less to compute
    its calls at once."""
    global _surplus
    clock.few = clock.few + 1 if is_small else 0
    if clock.few >= OFTEN and not clock.volatile and tiers.mode != tiers.FUSED:
        clock.few, clock.volatile = 0, True
        debug.say("graphs are of few calls: these are computed when they are made")
    _surplus -= ops
    if _surplus <= 0 and not clock.volatile:
        _surplus = clock.news = 0


def is_step() -> None:
    """Note a step of an optimizer, which ends a piece of work as a read does."""
    global _is_step
    _is_step = True
    clock.effects += 1


def is_read_amid() -> None:
    """Note that a function of the program has read a value amid a backward pass."""
    global _amid
    _amid += 1
    if _amid >= DUE and not clock.volatile and tiers.mode != tiers.FUSED:
        clock.volatile = True
        debug.say("values are read amid backward passes: calls are computed when they are made")


def is_large() -> None:
    """Note a call on a large tensor. Programs of such calls are recorded from their first one on,
    unless their work keeps being new."""
    if _begins:
        clear()


def is_untaped() -> None:
    """Note a call on the tape whose graph was built, which costs more than to record it."""
    global _untaped
    _untaped += 1
    if _untaped > UNTAPED and clock.taping:
        clock.taping = False
        debug.say("backward passes ask for more than a tape has: calls with gradient are recorded")


def is_recorded(is_plain: bool) -> None:
    """Note a backward pass over recorded calls. is_plain: whether a tape would do for it."""
    global _plain, _untaped
    if clock.taping or not clock.volatile:
        return
    _plain = _plain + 1 if is_plain else 0
    if _plain >= PLAIN:
        _plain = _untaped = 0
        clock.taping = True
        debug.say("backward passes ask for no more than a tape has: calls are on the tape again")


@contextmanager
def recorded() -> Iterator[None]:
    """Record the calls of the block."""
    before, clock.volatile = clock.volatile, False
    try:
        yield
    finally:
        clock.volatile = before


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
    if clock.effects != looked:
        _look()
    return clock.volatile


def _look() -> None:
    """Note the work since the last read of a value."""
    global _is_step, _repeats, _known, _largest, _amid, looked
    looked = clock.effects
    calls = len(noted)
    if calls <= FEW and not _is_step:
        for _, elements in noted:
            if elements > ELEMENTS:
                break
        else:
            noted.clear()  # recorded they would cost as much
            return
    if _amid and any([elements > AMID for _, elements in noted]):
        _amid = 0
    work = hash(tuple(noted))
    noted.clear()
    _is_step = False
    count = _seen[work] = _seen.get(work, 0) + 1
    if count > KNOWN:
        _repeats += 1
        _known += calls
    else:
        _repeats = _known = 0
        _largest = max(calls, _largest - calls)
    if len(_seen) > _REMEMBERED:
        _seen.clear()
    if _repeats >= REPEATS and _known >= REPEATS * _largest:
        if _amid:  # and until that many more come
            _amid = _repeats = _known = 0
            return
        clear()
        debug.say("the same work comes again: calls are recorded")
