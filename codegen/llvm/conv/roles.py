"""Roles in a product over windows: which contractions are one, and which operand has the
windows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ...kernel import ALONG, Dot, Guard, Kernel, Load, Reduce, Value, collect
from ...kernel.analysis import analyzed
from ...kernel.index import Axis
from ...kernel.roles import roles
from ..machine import CannotLower


@dataclass(frozen=True)
class Product:
    """The one contraction of a kernel: a sum over k of rows * columns.

    rows: the operand that is read through windows; m: its axes. columns: the other operand; n: its
    axes. batch: the parallel axes of both.
    """

    dot: Dot
    rows: Value
    columns: Value
    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]


def size(axes: Iterable[Axis]) -> int:
    return math.prod(a.extent for a in axes)


def product(kernel: Kernel, flipped: bool) -> Product:
    """The product that a kernel is. flipped: whether the rows are the second operand. CannotLower
    if the kernel isn't one contraction with work around it."""
    dots = [v for v in kernel.values if isinstance(v, Dot)]
    if len(dots) != 1 or any(isinstance(v, (Reduce, *ALONG)) for v in kernel.values):
        raise CannotLower("more than one contraction")
    (dot,) = dots
    if dot.segment is not None:
        raise CannotLower("a product in groups")
    if not dot.dtype.is_floating_point or any(v.dtype is not dot.dtype for v in (dot.a, dot.b)):
        raise CannotLower("a contraction of integers")
    analysis, summed = analyzed(kernel), set(kernel.reduction)
    for store in kernel.stores:
        axes = analysis.axes(store.value) | analysis.index_axes(store.offset)
        if store.mode is not None or summed & axes:
            raise CannotLower("stores along the axes of a sum")
    found = roles(kernel, analysis, dot)
    if flipped:
        return Product(dot, dot.b, dot.a, found.batch, found.n, found.m, found.k)
    return Product(dot, dot.a, dot.b, found.batch, found.m, found.n, found.k)


def is_flipped(kernel: Kernel) -> bool:
    """Whether a contraction's second operand is read through windows, and not its first;
    CannotLower if none is."""
    dot = next((v for v in kernel.values if isinstance(v, Dot)), None)
    first, second = (0, 0) if dot is None else (windows_in(dot.a), windows_in(dot.b))
    if not first and not second:
        raise CannotLower("a contraction without windows")
    return second > first


def windows_in(value: Value) -> int:
    """The number of windows that an operand is read through. In a window one axis moves along
    another, between bounds or in strides."""
    values: dict[int, Value] = {}
    collect(value, values)
    count = 0
    for each in values.values():
        if isinstance(each, Guard):
            count += len(each.conditions)
        elif isinstance(each, Load):
            count += sum(len(group) > 1 for group in overlaps(each))
            count += all(abs(c) > 1 for _, c in each.offset.terms)
    return count


def overlaps(load: Load) -> list[list[Axis]]:
    """The axes of an affine load in groups: steps overlap within a group, as in a window."""
    groups: list[list[Axis]] = []
    span = 0
    steps = [(abs(c), a) for a, c in load.offset.terms if isinstance(a, Axis)]
    for step, axis in sorted(steps, key=lambda each: each[0]):
        if groups and step <= span:
            groups[-1].append(axis)
        else:
            groups.append([axis])
        span += step * (axis.extent - 1)
    return groups
