"""Graphs that run op by op under a clock, for profiles of a program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from tilewright.ir.interruption import pass_on
from tilewright.ir.node import Node

from .. import debug
from .program import CannotRun, Program, _in_order

Told = Callable[[Node | None, float, float], None]
"""Is told of a recorded node, and when its computation began and ended, in seconds of
`perf_counter`. A compiled plan that can't run op by op counts as a whole: None stands for it."""

_HOSTS = (None, "cpu")

tell: Told | None = None
"""Who is told of the ops that run; None as long as nobody profiles."""


def watch(told: Told | None) -> None:
    """Have `told` told of the ops that run. None ends it, and drops the programs that were made."""
    global tell
    tell = told
    if told is None:
        _program.cache_clear()


class Timed(Program):
    """A program that tells of the time of each recorded node. The parts of a composite count as the
    composite."""

    def __init__(self, roots: Sequence[Node], fallible: Sequence[Node] = ()):
        self._is_within = False
        self._nodes: dict[int, Node] = {}  # by the slots of the steps
        super().__init__(roots, fallible)

    def _add(self, roots: Sequence[Node]) -> None:
        if self._is_within:
            super()._add(roots)
            return
        self._is_within = True
        for node in _in_order(roots, self._slots):
            before = len(self.steps)
            super()._add((node,))
            self._nodes.update((made, node) for _, _, made, _ in self.steps[before:])
        self._is_within = False

    def compute(self, buffers: Sequence[Any], numbers: Sequence[Any] = ()) -> list[Any]:
        """As `Program.compute`, with a look at the clock between any two nodes."""
        values = self._begun(buffers, numbers)
        owner, begin = None, 0.0
        for form, operands, slot, dead in self.steps:
            node = self._nodes[slot]
            if node is not owner:
                now = perf_counter()
                if owner is not None and tell is not None:
                    tell(owner, begin, now)
                owner, begin = node, perf_counter()
            values[slot] = form(*map(values.__getitem__, operands))
            for i in dead:
                values[i] = None
        if owner is not None and tell is not None:
            tell(owner, begin, perf_counter())
        return [values[i] for i in self.results]


def run(
    plan: Any,
    fallible: tuple[Node, ...],
    buffers: Sequence[Any],
    scalars: Sequence[Any],
    donated: Sequence[tuple[int, int]],
) -> list[Any]:
    """The values of a plan's roots, op by op. A graph that only a compiled plan computes, or an op
    that fails, leaves the work to the plan, which counts as a whole."""
    program = _program(plan.recorded, fallible)
    if program is not None:
        try:
            return program.run(buffers, scalars)
        except Exception as error:  # the plan knows which results remain
            pass_on(error)
            debug.say(f"not op by op: {error!r}")
    begin = perf_counter()
    try:
        values: list[Any] = plan.run(buffers, scalars, donated)
        return values
    finally:
        if tell is not None:
            tell(None, begin, perf_counter())


@functools.lru_cache(256)
def _program(roots: tuple[Node, ...], fallible: tuple[Node, ...]) -> Timed | None:
    if not all(n.device in _HOSTS for n in roots):
        return None
    try:
        return Timed(roots, fallible)
    except CannotRun:
        return None
