"""Plan: a graph compiled once, replayed each time its nodes are met again.

A plan is cut into segments, one for each device and each step of copying between devices. A
segment is a flat list of launches over numbered slots; slots that don't leave the segment live in
the device's arena at places fixed when the plan is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.check import made_alone, unmet

from . import debug, devices
from .run import as_one_call, copy_of, run_segment

if TYPE_CHECKING:
    from tilewright.codegen.program import Program


class Incomplete(Exception):
    """Some launches of a run failed. values: those of the roots, or the error that each met."""

    def __init__(self, values: list[Any], error: Exception):
        super().__init__(str(error))
        self.values, self.error = values, error


class Plan:
    """The compiled form of a tuple of nodes.

    runs, run_seconds: how often and how long it ran; compile_seconds: what it took to make.
    """

    def __init__(self, roots: Sequence[Node], fallible: Sequence[Node] = ()):
        # The compiler is loaded when it is first needed: importing the package is fast without it.
        from tilewright.ir.passes.pipeline import lower_graph

        from .segments import segments_of

        start = perf_counter()
        self.recorded = tuple(roots)
        lowered = lower_graph([*roots, *fallible], check=debug.level() > 0)
        count = len(self.recorded)
        checks = unmet(lowered[:count], lowered[count:])
        self.lowered = (*lowered[:count], *map(made_alone, checks))
        self.crossings: dict[Node, int] = {}
        # As recorded: of what is computed from constants alone, rewriting loses the device.
        self._places = [n.device or "cpu" for n in (*self.recorded, *checks)]
        self._wanted = count if checks else None  # values of checks made alone are nobody's
        self.segments = segments_of(self.lowered, self._places, self.crossings, devices.get)
        self.result_places = self._find_results()
        # Two tensors of one node get memory of their own, for either may be written to.
        places = self.result_places
        self._twins = [i for i, place in enumerate(places) if place in places[:i]]
        # Whether what the one segment there is gives are the values asked for, in order.
        self._is_one = len(self.segments) == 1 and self.segments[0].roots == self.lowered
        self._whole = as_one_call(self.segments[0]) if self._is_one and not self._twins else None
        self._nothing_given: list[list[tuple[int, int]]] = [[] for _ in self.segments]
        self._taken: dict[Any, list[list[tuple[int, int]]]] = {}  # by `donated` and `into`
        self.runs = 0
        self.run_seconds = 0.0
        self.compile_seconds = perf_counter() - start
        debug.compiled(self)

    @property
    def launches(self) -> int:
        """How many kernels one run launches."""
        return sum(launch_count(s.program) for s in self.segments)

    def _find_results(self) -> list[tuple[int, int]]:
        """(segment, place among its roots) of each root."""
        where = {
            (s.device.name, r): (i, k)
            for i, s in enumerate(self.segments)
            for k, r in enumerate(s.roots)
        }
        return [where[p, r] for p, r in zip(self._places, self.lowered)]

    def run(
        self,
        buffers: Sequence[Any],
        scalars: Sequence[Any],
        donated: Sequence[tuple[int, int]] = (),
        into: Sequence[tuple[int, int]] = (),
    ) -> list[Any]:
        """The buffers of the roots. `buffers` and `scalars` are those of the epoch, by number.

        donated: (root, leaf) for leaves that nobody will read again and that the value of the root
            replaces: where the kernels allow it they are overwritten.
        into: (root, number in `buffers`) for roots in `homes`, of memory that no leaf has: the
            value is written there.
        """
        start = perf_counter()
        if self._whole is not None and not donated and not into:
            values = self._whole(buffers, scalars)
            if values is not None:
                self.runs += 1
                self.run_seconds += perf_counter() - start
                return values[: self._wanted]
        given = self._nothing_given
        if donated or into:
            given = self._given(tuple(donated), tuple(into))
        failures: list[Exception] = []
        if self._is_one:
            values = run_segment(self.segments[0], buffers, scalars, {}, given[0], failures)
        else:
            values = self._run_all(buffers, scalars, given, failures)
        self.runs += 1
        self.run_seconds += perf_counter() - start
        for place in self._twins:
            device = self.segments[self.result_places[place][0]].device
            values[place] = copy_of(device, values[place], device.copied, failures)
        if failures:
            raise Incomplete(values[: self._wanted], failures[0])
        return values[: self._wanted]

    def _run_all(
        self,
        buffers: Sequence[Any],
        scalars: Sequence[Any],
        given: Sequence[Sequence[tuple[int, int]]],
        failures: list[Exception],
    ) -> list[Any]:
        """Run one segment after the other, and take what crosses from device to device along."""
        crossed: dict[int, Any] = {}
        outputs: list[list[Any]] = []
        for segment, donated in zip(self.segments, given, strict=True):
            values = run_segment(segment, buffers, scalars, crossed, donated, failures)
            outputs.append(values)
            for node, number in self.crossings.items():
                source = node.operands[0]
                if source in segment.roots:
                    value = values[segment.roots.index(source)]
                    target = devices.get(node.attrs[0])
                    copy = target.fetched if node.op is ops.fetch else target.copied
                    crossed[number] = copy_of(segment.device, value, copy, failures)
        return [outputs[i][k] for i, k in self.result_places]

    def _is_read_behind(self, segment: int, leaf: int) -> bool:
        """Whether a later segment reads a leaf, which the donors of one know nothing of."""
        later = self.segments[segment + 1 :]
        return any(source == leaf for each in later for _, source in each.inputs)

    @functools.cached_property
    def homes(self) -> dict[int, tuple[int, ...]]:
        """The roots whose values can be written to memory of the caller's, and its shape."""
        out = {}
        for root, (i, k) in enumerate(self.result_places):
            segment = self.segments[i]
            slot, _, copied = segment.results[k]
            if root not in self._twins and not copied and slot in dict(segment.makers):
                out[root] = tuple(segment.program.slots[slot].shape)
        return out

    def hasten(self) -> None:
        """Have its launches made by one call from the next run on, where a device waits with that
        for repeats."""
        for segment in self.segments:
            for run, _ in segment.runs.values():
                segment.device.hasten(run)

    def _given(
        self, donated: tuple[tuple[int, int], ...], into: tuple[tuple[int, int], ...]
    ) -> list[list[tuple[int, int]]]:
        """(slot, number of the buffer) of the memory that each segment takes."""
        found = self._taken.get((donated, into))
        if found is None:
            found = self._taken[donated, into] = [[] for _ in self.segments]
            for root, number in into:
                i, k = self.result_places[root]
                found[i].append((self.segments[i].results[k][0], number))
            for root, leaf in donated:
                i, k = self.result_places[root]
                slot = self.segments[i].donors.get((k, leaf))
                if slot is not None and not self._is_read_behind(i, leaf):
                    found[i].append((slot, leaf))
        return found


_plans: dict[Any, Plan] = {}
_held = 0
on_new: Callable[[Plan], None] | None = None
"""Is told of each new plan."""


def plan_for(roots: tuple[Node, ...], fallible: tuple[Node, ...] = ()) -> Plan:
    """The plan that computes `roots`, and makes the checks of what `fallible` are computed from."""
    global _held
    key = (roots, fallible) if fallible else roots
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = Plan(roots, fallible)
        _held += plan.launches
        if on_new is not None:
            on_new(plan)
    return plan


def held() -> int:
    """How many launches all plans have together."""
    return _held


def launch_count(program: Program) -> int:
    """How many kernels one run of a program launches."""
    from tilewright.codegen.program import Loop

    kernels = (step.kernel for step in program.steps)
    return sum(k.count * launch_count(k.body) if isinstance(k, Loop) else 1 for k in kernels)


def plans() -> list[Plan]:
    """Every plan made since the tables were last cleared."""
    return list(_plans.values())


def clear() -> None:
    """Forget all plans, and what was found out while they were made."""
    global _held
    from tilewright.codegen.fusion import twins
    from tilewright.ir import rewrite

    _held = 0
    _plans.clear()
    rewrite.clear()
    twins.clear()
