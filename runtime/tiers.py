"""Tiers: who computes a graph, ready functions op by op or a compiled plan.

A graph that was not met before runs op by op (`runtime/baseline/`). It is compiled when it has
been met so often that its compilation would have paid, which is at once for large tensors. The rule
counts and never looks at a clock, so the results of a program depend on the program alone.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir.interruption import pass_on
from tilewright.ir.node import Node

from . import debug, devices
from .baseline import loops, program
from .baseline.program import CannotRun, Program
from .plan import Plan
from .plan import clear as clear_compiler
from .shapes import Shapes, is_absent

AUTO, FUSED, BASELINE = MODES = ("auto", "fused", "baseline")
OFTEN = 512
"""The runs after which a large graph of small tensors is compiled. Its compilation takes about two
milliseconds for each op, and saves about four microseconds for each in a run."""
GRAPH, PRODUCT = 4, 20
"""The ops whose compilation takes as long as what a graph takes besides, and as a product."""
COMPILER = 30_000
"""The ops of small tensors that are run in the time in which the compiler is loaded."""
MOST_STEPS = 400_000
"""The steps of all programs together, about 0.4 KB each, from which they are forgotten."""
SMALL = 16 << 10
"""The bytes of a tensor that are written in the time of a call."""


def _mode() -> str:
    said = os.environ.get("TW_TIER", "").lower() or AUTO
    if said not in MODES:
        raise RuntimeError(f"TW_TIER: expected one of {', '.join(MODES)}, got {said!r}")
    return BASELINE if devices.flag("TW_EAGER") else said


mode = _mode()


def expect_repeats() -> None:
    """Compile a graph the second time it is met, as a program asks that says what it repeats."""
    global OFTEN, GRAPH, PRODUCT, COMPILER
    OFTEN, GRAPH, PRODUCT, COMPILER = 2, 0, 0, 0


@contextmanager
def fused() -> Iterator[None]:
    """Compile graphs at once inside the block, for callers that want to see or repeat them."""
    global mode
    before = mode
    try:
        mode = FUSED if mode == AUTO else mode
        yield
    finally:
        mode = before


def _share(program: Program) -> float:
    """How much of a step's time is that of a call."""
    return SMALL / (SMALL + program.mean_bytes)


def _patience(program: Program) -> float:
    """The runs after which the graph of `program` is compiled, if none that resembles it was."""
    share = _share(program)
    besides = (GRAPH + PRODUCT * program.products) / max(len(program.steps), 1)
    return OFTEN * share * (1 + share * besides)


_ran = 0.0
"""The ops of small tensors that would take the time of all that ran op by op."""


def _may_compile(patience: float) -> bool:
    """Whether to compile what has run so often. The first compilation loads the compiler."""
    return mode != BASELINE and (patience < 1 or _held > 0 or _ran >= COMPILER)


def _steps_are_due(runs: int, more: int, program: Program) -> bool:
    """Whether to compile the step of loops that ran so often, `more` of them last."""
    global _ran
    _ran += more * len(program.steps) / _share(program)
    patience = _patience(program)
    return runs >= int(patience) and _may_compile(patience)


loops.is_due = _steps_are_due


_siblings: Counter[int] = Counter()
"""Structure -> the number of compiled plans that have it."""


class Baseline:
    """A graph that runs op by op, with the interface of a plan.

    ops: how many they are. due: whether to compile it the next time. A program that repeats one
    structure in many sizes has to repeat a size more often.
    """

    def __init__(self, roots: tuple[Node, ...], fallible: tuple[Node, ...]):
        self.recorded, self.fallible = roots, fallible
        self.program: Program | None = Program(roots, fallible)
        self.structure, self.runs = self.program.structure, 0
        self.ops = len(self.program.steps)
        self._work = self.ops / _share(self.program)
        self._patience = _patience(self.program)
        self.due = mode != BASELINE and self._patience < 1
        _hold(self.program)

    @property
    def patience(self) -> int:
        """The number of runs after which the graph is compiled."""
        return int(self._patience * (1 + _siblings[self.structure]))

    def run(
        self,
        buffers: Sequence[Any],
        scalars: Sequence[Any],
        donated: Sequence[tuple[int, int]] = (),
    ) -> list[Any]:
        """The buffers of the roots, in memory of their own or, where parts of a tensor are
        written, in that of a leaf that `donated` names."""
        global _ran
        self.runs += 1
        try:
            program = self.program
            if program is None:
                program = self.program = Program(self.recorded, self.fallible)
                _hold(program)
            _ran += self._work
            if self.runs >= self._patience - 1:  # most don't get that far
                self.due = self.runs >= self.patience and _may_compile(self._patience)
            if self.runs > 1 and not program.is_settled:
                program.settle()
            host = devices.get("cpu")
            if host.concurrent:  # values may be on their way from another device
                host.meet(buffers, ())
            return program.run(buffers, scalars, donated)
        except Exception as error:
            pass_on(error)
            # An op refuses a value, or there is no memory. The plan knows which results remain.
            self.due = True
            debug.say(f"compiled, as an op failed: {error!r}")
            return compiled_for(self.recorded, self.fallible).run(buffers, scalars)


def _hold(program: Program) -> None:
    """Count the steps of a new program. Past a bound all others are forgotten, and made again when
    they run: a loop whose graph grows at each step has many long ones."""
    global _steps
    if _steps > MOST_STEPS:
        _steps = 0
        for each in baselines():
            each.program = None
    _steps += len(program.steps)


_steps = 0
_plans: dict[Any, Plan | Baseline] = {}
_held = 0
on_new: Callable[[Plan], None] | None = None
"""Called with each new compiled plan."""


def plan_for(roots: tuple[Node, ...], fallible: tuple[Node, ...] = ()) -> Plan | Baseline | Shapes:
    """What computes `roots` the next time, and makes all checks beneath the nodes `fallible`."""
    if any(map(is_absent, roots)):
        return Shapes(roots, fallible, plan_for)
    found = _plans.get((roots, fallible))
    if found is None and mode != FUSED and _suits(roots):
        found = _begun(roots, fallible)
    if found is None or found.due:
        found = compiled_for(roots, fallible)
    return found


_HOSTS = (None, "cpu")


def _suits(roots: tuple[Node, ...]) -> bool:
    """Whether the baseline tier may compute `roots`: on the host, with each half rounded."""
    return devices.rounds_halves() and all(n.device in _HOSTS for n in roots)


def _begun(roots: tuple[Node, ...], fallible: tuple[Node, ...]) -> Baseline | None:
    try:
        made = Baseline(roots, fallible)
    except CannotRun as reason:
        debug.say(f"compiled at once: {reason}")
        return None
    when = f"after {made.patience} runs" if made.patience else "at once"
    debug.say(f"{len(roots)} results op by op: compiled {when}")
    if not made.due:
        _plans[roots, fallible] = made
    return made


def compiled_for(roots: tuple[Node, ...], fallible: tuple[Node, ...] = ()) -> Plan:
    """The compiled plan of `roots`."""
    global _held
    found = _plans.get((roots, fallible))
    if found is None or isinstance(found, Baseline):
        if found is not None:
            _siblings[found.structure] += 1
        found = _plans[roots, fallible] = Plan(roots, fallible)
        _held += found.launches
        if on_new is not None:
            on_new(found)
    return found


def held() -> int:
    """The number of launches of all plans together."""
    return _held


def plans() -> list[Plan]:
    """Every compiled plan made since the tables were last cleared."""
    return [p for p in _plans.values() if not isinstance(p, Baseline)]


def baselines() -> list[Baseline]:
    """The graphs that run op by op so far."""
    return [p for p in _plans.values() if isinstance(p, Baseline)]


def clear() -> None:
    """Forget all plans, and the caches filled while they were made."""
    global _held, _steps
    _held = _steps = 0
    _plans.clear()
    _siblings.clear()
    clear_compiler()
    program.clear()
