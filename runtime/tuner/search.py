"""The order in which schedules are tried, and when it is enough.

First the default, what was best for similar kernels, and what the cost model puts in front; then
from the best one along each choice, as long as that helps. Of each batch the slow ones are dropped
after a round, the others measured again (successive halving), always side by side with the default:
machines get slower and faster by the minute, and what is compared is the ratio within a round. In
the end the best few are measured against one another until one of them is clear of the noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tilewright.codegen.space import Space

S = TypeVar("S")

EFFORTS = {"quick": (0.06, 24), "full": (0.19, 128), "exhaustive": (1.0, None)}
"""The share of a space that a search measures, and the most candidates."""
LEAST = 6
"""Candidates that are measured in any case, if there are so many."""
BATCH = 6
SLACK = (1.5, 1.2, 1.08)
"""How much slower than the best a candidate may be after each round to be measured again."""
FINALISTS = 4
CLOSE = 1.06
"""How much slower than the best a finalist may seem."""
ROUNDS = 24
"""The most rounds of the final."""
CLEAR = 2.0
"""Standard errors by which a winner is clear of the noise."""

Measure = Callable[[Sequence[S], int], Mapping[S, Sequence[float]]]
"""measure(schedules, rounds): seconds of each in each round, all in turn; bad ones are left out."""


@dataclass(frozen=True)
class Times:
    """What a schedule took. ratio: over the default's time, by the median of rounds; spread:
    between quartiles, over the median."""

    ratio: float
    spread: float
    rounds: int

    @staticmethod
    def of(seconds: Sequence[float], others: Sequence[float], factor: float = 1.0) -> Times:
        """By the time of another schedule in the same rounds, which takes `factor` of the
        default's."""
        ratios = [factor * a / b for a, b in zip(seconds, others)]
        middle = statistics.median(ratios)
        low, high = middle, middle
        if len(ratios) > 3:
            low, _, high = statistics.quantiles(ratios, n=4)
        return Times(middle, (high - low) / middle, len(ratios))


@dataclass
class State(Generic[S]):
    """What a search knows: the ratios to the default of what was measured, and what is bad."""

    ratios: dict[S, float] = field(default_factory=dict)
    bad: set[S] = field(default_factory=set)

    def knows(self, schedule: S) -> bool:
        return schedule in self.ratios or schedule in self.bad

    @property
    def best(self) -> S | None:
        return min(self.ratios, key=lambda s: self.ratios[s], default=None)


def count(space: Space[S], effort: str) -> int:
    """How many candidates a search of this effort measures at most."""
    share, most = EFFORTS[effort]
    wanted = max(LEAST, math.floor(share * len(space)))
    return min(len(space), wanted if most is None else min(wanted, most))


def batches(
    space: Space[S], state: State[S], effort: str, seeds: Iterable[S] = ()
) -> Iterable[list[S]]:
    """What to measure, a few at a time. `state` is to be kept up between two batches; what it
    knows isn't asked for again, but counts."""
    most = count(space, effort)

    def new(wanted: Iterable[S], limit: int) -> list[S]:
        left = most - sum(state.knows(s) for s in space.schedules)
        found = [s for s in dict.fromkeys(wanted) if s in space.places and not state.knows(s)]
        return found[: min(limit, max(left, 0))]

    first = [space.default, *seeds]
    batch = new([*first, *space.ranked], max(BATCH, len(first) + 1))
    while batch:
        yield batch
        batch = []
        for schedule in sorted(state.ratios, key=lambda s: state.ratios[s])[:3]:
            batch += new(space.neighbours(schedule), BATCH)
            if batch:
                break
        # Half of a batch goes by the model: a best one may be far from all others.
        others = new([s for s in space.ranked if s not in batch], BATCH)
        batch = [*batch[: BATCH // 2 or 1], *others][:BATCH] if batch else others
        batch = new(batch, BATCH)


def measure_batch(batch: Sequence[S], default: S, measure: Measure[S]) -> dict[S, Times]:
    """The times of a batch, of which slow ones have fewer rounds. What is missing is bad; all of
    it if the default doesn't run."""
    alive = list(dict.fromkeys([default, *batch]))
    seconds: dict[S, list[float]] = {}
    for slack in SLACK:
        seen = measure(alive, 2)
        if default not in seen:
            return {}
        for schedule, each in seen.items():
            seconds.setdefault(schedule, []).extend(each)
        alive = [s for s in alive if s in seen]
        ratio = {s: Times.of(seconds[s], seconds[default]).ratio for s in alive}
        best = min(alive, key=lambda s: ratio[s])
        alive = [s for s in alive if s == default or ratio[s] <= slack * ratio[best]]
        if alive == [default]:
            break
    # One that was dropped is compared with the best, in the rounds that it was in: a round in which
    # the default was slow says nothing about it.
    factor = Times.of(seconds[best], seconds[default]).ratio
    return {s: Times.of(each, seconds[best], factor) for s, each in seconds.items()}


def final(
    state: State[S],
    default: S,
    measure: Measure[S],
    expired: Callable[[], bool] = lambda: False,
) -> tuple[S, dict[S, Times]]:
    """The winner among the best, and what was measured.

    The default wins unless another one is clear of the noise.
    """
    close = sorted(state.ratios, key=lambda s: state.ratios[s])
    least = state.ratios[close[0]]
    alive = [s for s in close[:FINALISTS] if state.ratios[s] <= CLOSE * least and s != default]
    alive.append(default)
    seconds: dict[S, list[float]] = {s: [] for s in alive}
    rounds = 0
    while len(alive) > 1 and rounds < ROUNDS and not (expired() and rounds):
        seen = measure(alive, 4)
        if default not in seen:
            break
        rounds += 4
        alive = [s for s in alive if s in seen]
        for schedule in alive:
            seconds[schedule] += seen[schedule]
        ratio = {s: Times.of(seconds[s], seconds[default]).ratio for s in alive}
        best = min(alive, key=lambda s: ratio[s])
        alive = [
            s for s in alive if s in (best, default) or not is_slower(seconds[s], seconds[best])
        ]
        if best != default and len(alive) == 2 and is_slower(seconds[default], seconds[best]):
            break
    measured = {s: Times.of(t, seconds[default]) for s, t in seconds.items() if t}
    if not measured:
        return default, {}
    best = min((s for s in alive if s in measured), key=lambda s: measured[s].ratio)
    if best != default and not is_slower(seconds[default], seconds[best]):
        best = default
    return best, measured


def is_slower(seconds: Sequence[float], best: Sequence[float]) -> bool:
    """Whether it is, clear of the noise, by the rounds that both were in."""
    pairs = [math.log(a / b) for a, b in zip(seconds, best)]
    if len(pairs) < 4:
        return False
    middle = statistics.median(pairs)
    # The standard error of a median, from the median deviation of normal noise.
    deviation = 1.4826 * statistics.median(abs(p - middle) for p in pairs)
    return middle > CLEAR * 1.2533 * deviation / math.sqrt(len(pairs)) and middle > 0
