"""Maps that read memory along other axes than they write it, such as transposes and copies to
channels last.

In the order of the store, neighbouring threads would load elements that lie far apart. Such a map
is cut into rectangles instead: one side lies along the axes of the store, the other one along those
of the loads. So both move whole vectors, and the compiler brings elements from one order to the
other through shared memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..kernel import Kernel, Load
from ..kernel.analysis import analyzed
from ..kernel.index import Axis, FloorDiv, Index, Mod
from .schedule import points

LEAST = 16
"""The least points along a side for which rectangles are worth it."""
SHARED = 8
"""The most points that share an element of a load that counts: others are mostly read from a
cache."""
SECTOR = 32
"""Bytes that one access reads at least: elements that are nearer to each other share it."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The axes of a map that is cut into rectangles, the innermost last.

    down: along which the loads run. across: along which the stores run. outer: all others, of which
    a program has one point.
    """

    outer: tuple[Axis, ...]
    down: tuple[Axis, ...]
    across: tuple[Axis, ...]


def sides(kernel: Kernel) -> Sides | None:
    """The sides of a map's rectangles; None if its loads run along the axes of its stores."""
    if kernel.reduction or kernel.is_update:
        return None
    axes = tuple(a for a in kernel.parallel if a.extent != 1)
    stored = {_run(s.offset)[:1] for s in kernel.stores}
    if len(stored) != 1 or not (store := _run(kernel.stores[0].offset)):
        return None
    analysis = analyzed(kernel)
    least = points(axes) // SHARED
    loads = (v for v in kernel.values if isinstance(v, Load))
    large = [v for v in loads if points(analysis.axes(v)) >= least]
    near = [a for a in store[1:] if abs(kernel.stores[0].offset.coefficient(a)) < LEAST]
    near.append(store[0])
    turned = [run for v in large if _is_turned(v, run := _run(v.offset), near)]
    if not turned:
        return None
    load = max(turned, key=turned.count)
    across = _until(store, {load[0]})
    down = _until(load, across)
    if min(points(across), points(down)) < LEAST:
        return None
    outer = tuple(a for a in axes if a not in across and a not in down)
    return Sides(outer, down[::-1], across[::-1])


def _run(offset: Index) -> tuple[Axis, ...]:
    """The axes along which neighbours lie side by side, the innermost first: each step along one is
    as long as the whole of those before it."""
    steps = {a: abs(c) for a, c in offset.terms if isinstance(a, Axis) and a.extent != 1}
    for atom, _ in offset.terms:
        if isinstance(atom, (FloorDiv, Mod)):
            for axis in atom.index.axes():
                steps.pop(axis, None)
    if not steps:
        return ()
    axis = min(steps, key=lambda a: steps[a])
    run, span = [axis], steps[axis] * axis.extent
    while (axis := next((a for a, c in steps.items() if c == span), axis)) is not run[-1]:
        run.append(axis)
        span *= axis.extent
    return tuple(run)


def _is_turned(load: Load, run: tuple[Axis, ...], axes: Collection[Axis]) -> bool:
    """Whether neighbours along any of `axes` lie far from each other where they are loaded."""
    step = max(_step(load.offset, axis) for axis in axes) * load.buffer.dtype.itemsize
    return bool(run) and run[0] not in axes and step >= SECTOR


def _step(offset: Index, axis: Axis) -> float:
    """The mean distance of neighbours along `axis`: some have a division's result in common."""
    step: float = abs(offset.coefficient(axis))
    for atom, coefficient in offset.terms:
        if isinstance(atom, FloorDiv):
            step += abs(coefficient) * _step(atom.index, axis) / atom.divisor
        elif isinstance(atom, Mod):
            step += abs(coefficient) * _step(atom.index, axis)
    return step


def _until(run: tuple[Axis, ...], others: Collection[Axis]) -> tuple[Axis, ...]:
    """The axes of a run in front of the first one of `others`."""
    stop = next((i for i, axis in enumerate(run) if axis in others), len(run))
    return run[:stop]
