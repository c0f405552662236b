"""What `getrefcount` gives for an object that only a list holds."""

from __future__ import annotations

from sys import getrefcount


def _calibrate() -> tuple[int, int]:
    probe = [object()]
    (mapped,), (walked,) = map(getrefcount, probe), [getrefcount(each) for each in probe]
    return mapped, walked


BASE_COUNT, WALKED_COUNT = _calibrate()
"""By map(), and in a comprehension."""
