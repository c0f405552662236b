"""Plan: a graph that is compiled once and runs again whenever its nodes come up again.

A plan is cut into segments, one for each device and depth of copies between devices. A segment is a
flat list of launches over numbered slots. Temporary slots live in the device's arena, at places
fixed when the plan is made.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
    """Some launches of a run failed. values: for each root its value or its error."""

    def __init__(self, values: list[Any], error: Exception):
        super().__init__(str(error))
        self.values, self.error = values, error


class Plan:
    """The compiled form of a tuple of nodes.

    runs, run_seconds: number and total time of its runs; compile_seconds: time to make it.
    """

    due = False

    def __init__(self, roots: Sequence[Node], fallible: Sequence[Node] = ()):
        # The compiler is imported late, to keep the import of the package fast.
        from tilewright.ir.passes.pipeline import lower_graph

        from .segments import segments_of

        start = perf_counter()
        self.recorded = tuple(roots)
        lowered = lower_graph([*roots, *fallible], check=debug.level() > 0)
        count = len(self.recorded)
        checks = unmet(lowered[:count], lowered[count:])
        self.lowered = (*lowered[:count], *map(made_alone, checks))
        self.crossings: dict[Node, int] = {}
        # Taken from the recorded nodes: rewriting loses the device of values computed from
        # constants.
        self._places = [n.device or "cpu" for n in (*self.recorded, *checks)]
        self._wanted = count if checks else None  # nobody asked for values of checks
        self.segments = segments_of(self.lowered, self._places, self.crossings, devices.get)
        self.result_places = self._find_results()
        # Two tensors of one node need separate memory, since either may be written to.
        places = self.result_places
        self._twins = [i for i, place in enumerate(places) if place in places[:i]]
        # Whether there is one segment, and it returns the wanted values in order.
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
        """The number of kernels that one run launches."""
        return sum(launch_count(s.program) for s in self.segments)

    def _find_results(self) -> list[tuple[int, int]]:
        """(segment, index among its roots) of each root."""
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
        """The buffers of the roots. `buffers` and `scalars` are the epoch's, by number.

        donated: (root, leaf) for leaves that nobody reads again once the root has its value, and
            that have its shape and dtype. Where the kernels allow it, the root overwrites the
            leaf's buffer.
        into: (root, number in `buffers`) for roots in `homes`. The root's value is written to that
            buffer, which is no leaf's memory.
        """
        start = perf_counter()
        whole = self._whole
        if whole is not None and not donated and not into:
            values = whole(buffers, scalars)
            if values is not None:
                self.runs += 1
                self.run_seconds += perf_counter() - start
                return values if self._wanted is None else values[: self._wanted]
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
        """Run the segments in order, and copy values that cross between devices."""
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
        """Whether a segment after `segment` reads a leaf. A segment's donors don't know that."""
        later = self.segments[segment + 1 :]
        return any(source == leaf for each in later for _, source in each.inputs)

    @functools.cached_property
    def homes(self) -> dict[int, tuple[int, ...]]:
        """Roots whose values can be written to the caller's memory -> the shape of that memory."""
        out = {}
        for root, (i, k) in enumerate(self.result_places):
            segment = self.segments[i]
            slot, _, copied = segment.results[k]
            if root not in self._twins and not copied and slot in dict(segment.makers):
                out[root] = tuple(segment.program.slots[slot].shape)
        return out

    def hasten(self) -> None:
        """Make all launches by one call from the next run on, on devices that otherwise wait for
        repeats first."""
        for segment in self.segments:
            for run, _ in segment.runs.values():
                segment.device.hasten(run)

    def _given(
        self, donated: tuple[tuple[int, int], ...], into: tuple[tuple[int, int], ...]
    ) -> list[list[tuple[int, int]]]:
        """For each segment the (slot, number of the buffer) of the memory that it may overwrite."""
        found = self._taken.get((donated, into))
        if found is None:
            found = self._taken[donated, into] = [[] for _ in self.segments]
            for root, number in into:
                i, k = self.result_places[root]
                found[i].append((self.segments[i].results[k][0], number))
            for root, leaf in donated:
                i, k = self.result_places[root]
                segment = self.segments[i]
                slot = segment.donors.get((k, leaf))
                if slot is None and root not in self._twins and not self._is_read_behind(-1, leaf):
                    whole = segment.results[k][1:] == (None, False)
                    slot = segment.takers.get(k) if whole else None
                if slot is not None and not self._is_read_behind(i, leaf):
                    found[i].append((slot, leaf))
        return found


def launch_count(program: Program) -> int:
    """The number of kernels that one run of a program launches."""
    from tilewright.codegen.program import Loop

    kernels = (step.kernel for step in program.steps)
    return sum(k.count * launch_count(k.body) if isinstance(k, Loop) else 1 for k in kernels)


def clear() -> None:
    """Forget what was cached while plans were made."""
    from tilewright.codegen.fusion import precedents, twins
    from tilewright.ir import loop, rewrite

    loop.clear()
    rewrite.clear()
    twins.clear()
    precedents.clear()
