"""The gradient of a strided convolution, taken apart so that no product with a zero is computed.

The remainder of a position modulo the stride decides which windows cover the position. For each
remainder these windows lie a stride apart. So the positions with one remainder are a product over
windows of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...kernel import Condition, Constant, Dot, Guard, Kernel, Value, collect
from ...kernel import index as ix
from ...kernel.canonical import copied, with_axes
from ...kernel.index import Axis, Index, Mod
from ...lower.movement import simplified
from ..machine import CannotLower


@dataclass(frozen=True)
class Residue:
    """The condition that `index` is a multiple of `stride`. It mentions the parallel axis `place`
    and perhaps the axis of a window."""

    index: Index
    stride: int
    place: Axis
    window: Axis | None

    def taps(self, remainder: int) -> list[int]:
        """The places of the window that meet the condition if `place` has this remainder."""
        count = 1 if self.window is None else self.window.extent
        start = self.index.const + self.index.coefficient(self.place) * remainder
        step = 0 if self.window is None else self.index.coefficient(self.window)
        return [j for j in range(count) if (start + step * j) % self.stride == 0]


def split(kernel: Kernel) -> list[Kernel]:
    """`kernel` itself, or one kernel for each remainder, without conditions on remainders.

    A kernel whose product vanishes has no Dot.
    """
    found = list(_residues(kernel))
    places = [r.place for r in found]
    windows = [r.window for r in found if r.window is not None]
    if len({*places, *windows}) < len(places) + len(windows):
        raise CannotLower("strides that share an axis")
    ranges = [range(min(r.stride, r.place.extent)) for r in found]
    return [_part(kernel, found, each) for each in itertools.product(*ranges)]


def _residues(kernel: Kernel) -> Iterator[Residue]:
    seen: set[tuple[Index, int]] = set()
    for value in _factors(kernel):
        if not isinstance(value, Guard):
            continue
        for condition in value.conditions:
            found = _remainder(condition, kernel)
            if found is not None and found not in seen:
                seen.add(found)
                yield _residue(*found, kernel)


def _factors(kernel: Kernel) -> list[Value]:
    """The values that the operands of contractions are computed from."""
    found: dict[int, Value] = {}
    for value in kernel.values:
        if isinstance(value, Dot):
            collect(value.a, found)
            collect(value.b, found)
    return list(found.values())


def _remainder(condition: Condition, kernel: Kernel) -> tuple[Index, int] | None:
    """(index, stride) of a condition that says that index is a multiple of stride."""
    index = condition.index
    if len(index.terms) != 1 or index.const or (condition.low, condition.high) != (0, 1):
        return None
    ((atom, coefficient),) = index.terms
    if isinstance(atom, Mod) and coefficient == 1:
        return atom.index, atom.divisor
    # An axis with `stride` places may be the remainder of an axis that was split.
    if isinstance(atom, Axis) and atom in kernel.parallel and coefficient == 1:
        return index, atom.extent
    return None


def _residue(index: Index, stride: int, kernel: Kernel) -> Residue:
    axes = [a for a, _ in index.terms if isinstance(a, Axis)]
    places = [a for a in axes if a in kernel.parallel]
    windows = [a for a in axes if a in kernel.reduction]
    if len(axes) < len(index.terms) or len(places) != 1 or len(windows) > 1:
        raise CannotLower("a stride that isn't along one axis")
    return Residue(index, stride, places[0], windows[0] if windows else None)


def _part(kernel: Kernel, found: list[Residue], remainders: tuple[int, ...]) -> Kernel:
    if not found:
        return kernel
    axes: dict[Axis, Index] = {}
    become: dict[Axis, list[Axis]] = {}

    def thin(axis: Axis, first: int, step: int, count: int) -> None:
        new = Axis(axis.name, count)
        axes[axis] = ix.of(new) * step + first
        become[axis] = [new] if count != 1 else []

    nothing = False
    for residue, remainder in zip(found, remainders):
        place, window = residue.place, residue.window
        thin(place, remainder, residue.stride, -(-(place.extent - remainder) // residue.stride))
        taps = residue.taps(remainder)
        nothing |= not taps
        if window is not None and taps:
            step = taps[1] - taps[0] if len(taps) > 1 else 1
            assert taps == list(range(taps[0], taps[-1] + 1, step))
            thin(window, taps[0], step, len(taps))
    if nothing:
        kernel = _without_products(kernel)
    return _simplified(with_axes(kernel, axes, lambda axis: become.get(axis, [axis])))


def _without_products(kernel: Kernel) -> Kernel:
    made: dict[int, Value] = {}
    for value in kernel.values:
        if isinstance(value, Dot):
            made[id(value)] = Constant(value.dtype.np.type(0), value.dtype)
        else:
            made[id(value)] = copied(value, made, lambda index: index)
    stores = tuple(replace(s, value=made[id(s.value)]) for s in kernel.stores)
    return Kernel(kernel.name, kernel.parallel, (), stores, kernel.notes)


def _simplified(kernel: Kernel) -> Kernel:
    """The kernel without conditions on constants, and with common factors taken out of conditions.
    A condition that always holds here stays if it may fail in another part, so that the parts can
    read one image."""
    made: dict[int, Value] = {}
    for value in kernel.values:
        done = copied(value, made, lambda index: index)
        if isinstance(done, Guard):
            vary = tuple(_divided(c) for c in done.conditions if c.index.terms)
            if simplified(done.conditions) is None:
                done = done.outside
            else:
                done = replace(done, conditions=vary) if vary else done.inside
        made[id(value)] = done
    stores = tuple(replace(s, value=made[id(s.value)]) for s in kernel.stores)
    return Kernel(kernel.name, kernel.parallel, kernel.reduction, stores, kernel.notes)


def _divided(condition: Condition) -> Condition:
    index = condition.index
    step = math.gcd(*(c for _, c in index.terms)) if index.terms else 1
    if step < 2 or index.const % step:
        return condition
    terms = tuple((a, c // step) for a, c in index.terms)
    low, high = (-(-bound // step) for bound in (condition.low, condition.high))
    return Condition(Index(terms, index.const // step), low, high)
