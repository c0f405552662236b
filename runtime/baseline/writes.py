"""Writes to parts of arrays, in place where nobody else refers to the memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.passes.writes import Step, Write


class Overwrite:
    """The form of a write: (base, value) -> `base` with `value` in its part.

    is_last: whether nothing reads the slot of `base` afterwards. Then the write happens in its
        memory, unless that is referred to from elsewhere.
    spare: the number of references from elsewhere that don't count, as the leaf is donated.
    """

    __slots__ = ("is_last", "part", "spare")

    def __init__(self, write: Write):
        self.part = _part(write.steps)
        self.is_last = False
        self.spare = 0

    def __call__(self, base: Any, value: Any) -> Any:
        if not (self.is_last and getrefcount(base) - self.spare <= _ALONE and _is_whole(base)):
            base = np.array(base, order="C")
        self.part(base)[...] = value
        return base


def _is_whole(x: Any) -> bool:
    """Whether an array has its own memory, in order."""
    flags = x.flags
    return type(x) is np.ndarray and flags.owndata and flags.c_contiguous and flags.writeable


def _part(steps: Sequence[Step]) -> Callable[[Any], Any]:
    """The function that gives the view of an array to which `steps` lead."""
    views = [_view(op, attrs) for op, attrs in steps]
    if len(views) == 1:
        return views[0]

    def part(x: Any) -> Any:
        for view in views:
            x = view(x)
        return x

    return part


def _view(op: Any, attrs: tuple[Any, ...]) -> Callable[[Any], Any]:
    if op is ops.slice_op:
        place = tuple(map(slice, *attrs))
        return lambda x: x[place]
    (said,) = attrs
    if op is ops.permute_op:
        return lambda x: x.transpose(said)
    return lambda x: x.reshape(said)


def reader(slots: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The function that gives the values in these slots."""
    if len(slots) > 1:
        return operator.itemgetter(*slots)
    at = slots[0] if slots else 0
    return operator.itemgetter(slice(at, at + len(slots)))


class _Probe:
    def __call__(self, base: Any, value: Any) -> int:
        return getrefcount(base)


def _alone() -> int:
    """What getrefcount tells a form of an array that only the slot of a program refers to."""
    slots, form = [np.empty(0), np.empty(0)], _Probe()
    return form(*reader((0, 1))(slots))


_ALONE = _alone()
