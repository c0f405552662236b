"""Several Python threads: one at a time owns the recording, and others take over.

With one thread an op call pays nothing for this. Every path beyond a plain table hit checks that
this thread is the owner (`claim`). Another thread waits until the owner is between two calls,
computes the pending values and takes over, with its own grad mode, casts and hooks. From then on
`Guard` stands before the tables, so that hits are checked too, until the other threads have ended.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from threading import get_ident
from types import CodeType
from typing import Any, TypeVar

from tilewright import codegen, ir, runtime
from tilewright.ir import node as graph
from tilewright.runtime import forks as forks  # its hooks are registered before this module's

from . import epoch
from .epoch import clock

F = TypeVar("F", bound=Callable[..., Any])

PATIENCE = 60.0
"""Seconds to wait until the other thread is between two calls."""

_owner = get_ident()
_turn = threading.RLock()
_modes: dict[int, tuple[bool, Any, Any]] = {}
PACKAGE = (
    *(  # an editable install maps its layers one by one
        os.path.dirname(os.path.abspath(file)) + os.sep
        for file in (os.path.dirname(__file__), codegen.__file__, ir.__file__, runtime.__file__)
    ),
    "<tilewright",
)
"""Prefixes of the file names of the package's code, written or generated."""


# Set by recording: functions that end the epoch, swap the modes, and put the guard before the
# tables.
def _unset(*_: Any) -> None:
    raise AssertionError("recording sets this when it is imported")


flush: Callable[[], None] = _unset
set_mode: Callable[[bool, Any, Any], None] = _unset
arm: Callable[[], None] = _unset
guarded = False
on_turn: Callable[[], None] | None = None
"""Called in a thread that takes over, before its calls continue."""


class Guard:
    """Stands before the tables of calls, and checks the calling thread."""

    def get(self, key: Any) -> Any:
        if get_ident() != _owner:
            take_over()
            return None  # the key's nodes belong to the other thread's epoch
        if clock.watching is not None or (clock.saving is not None and graph.grad_enabled()):
            return None
        return epoch.table(graph.grad_enabled(), clock.casts).get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        epoch.table(graph.grad_enabled(), clock.casts)[key] = value


def claim() -> bool:
    """Make the calling thread the owner. Returns whether it wasn't before."""
    if get_ident() == _owner:
        return False
    take_over()
    return True


def take_over() -> None:
    """Become the owner as soon as the present owner is between two calls."""
    me = get_ident()
    while not _turn.acquire(timeout=0.001):
        if _owner == me:  # given back: this thread's call had begun
            return
    try:
        _take_from(_owner, me)
    finally:
        _turn.release()


def _take_from(before: int, me: int) -> None:
    global _owner, guarded
    if before == me:
        return
    guarded = True
    deadline = time.monotonic() + PATIENCE
    while True:
        arm()
        if not clock.holding and not _is_in_call(before):
            # Calls that it begins after this line ask for the recording first.
            _owner = me
            arm()  # once more: a call that ended just now may have put the tables back
            if not clock.holding and not _is_in_call(before):
                break
            _owner = before
        if time.monotonic() > deadline:
            raise RuntimeError(
                "another thread is in the middle of a call that doesn't end, such as a backward "
                "pass with a hook that waits for this thread"
            )
        time.sleep(2e-5)
    guarded = True  # again: the former owner may have found no other that recorded
    _modes[before] = graph.grad_enabled(), clock.casts, clock.saving
    mine = _modes.pop(me, (True, None, None))
    try:
        flush()
    finally:
        set_mode(*mine)
        if on_turn is not None:
            on_turn()


def relax() -> None:
    """Remove the guard if no other thread that has recorded is left. One that never did, such as a
    writer of logs, is met as in a process without a guard."""
    global guarded
    alive = sys._current_frames()
    for each in [t for t in _modes if t not in alive]:
        del _modes[each]  # its number may become that of another thread
    if all(each == _owner for each in _modes):
        guarded = False
        set_mode(graph.grad_enabled(), clock.casts, clock.saving)


_open: set[CodeType] = set()


def gives_way(function: F) -> F:
    """Mark a function that waits or calls the user's code while none of its own work is half done.
    Another thread may take over meanwhile."""
    _open.add(function.__code__)
    return function


def _is_in_call(thread: int) -> bool:
    """Whether `thread` is inside a function of this package, and not in one that gives way.

    The innermost frame decides nothing: during a call it may belong to another library, to a method
    that `dataclasses` wrote, or to a callback of the garbage collector.
    """
    # In CPython 3.11 the collector may run while a frame object is made for another thread's frame.
    # If one of its callbacks lets that thread continue, the object refers to a dead frame.
    collecting = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread)
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                return frame.f_code not in _open
            frame = frame.f_back
        return False
    finally:
        if collecting:
            gc.enable()


@gives_way
def _before_fork() -> None:
    # The thread with the turn may wait for this one to leave the call that forks, as a loader's.
    _turn.acquire()
    claim()


def _in_child() -> None:
    global _turn
    _turn = threading.RLock()
    _modes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=lambda: _turn.release(), after_in_child=_in_child
    )
