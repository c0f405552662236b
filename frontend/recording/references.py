"""References to objects: the framework's own weak ones, and how many `getrefcount` gives for an
object that only a list holds."""

from __future__ import annotations

import weakref
from sys import getrefcount
from typing import Any


class OwnReference(weakref.ref[Any]):
    """A weak reference that no user has made, so that a tensor without others may be swapped."""

    __slots__ = ()


def _calibrate() -> tuple[int, int]:
    probe = [object()]
    (mapped,), (walked,) = map(getrefcount, probe), [getrefcount(each) for each in probe]
    return mapped, walked


BASE_COUNT, WALKED_COUNT = _calibrate()
"""By map(), and in a comprehension."""
