"""Locks that a fork waits for: in the child nobody would release what another thread holds."""

from __future__ import annotations

import os
import threading

_held: list[threading.RLock] = []  # type: ignore[valid-type]
_taken: list[threading.RLock] = []  # type: ignore[valid-type]


def waits_for_lock() -> threading.RLock:  # type: ignore[valid-type]
    """A lock that the forking thread holds during each fork.

    The hooks before a fork run in the reverse order of their registration. This module's are
    registered before the frontend's, so a thread has the recording when it asks for these locks:
    one that records, and needs them, has ended its call by then.
    """
    lock = threading.RLock()
    _held.append(lock)
    return lock


def _before() -> None:
    _taken.extend(_held)  # another thread may make one meanwhile
    for lock in _taken:
        lock.acquire()  # type: ignore[attr-defined]


def _after() -> None:
    while _taken:
        _taken.pop().release()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
