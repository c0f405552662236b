"""The order in which schedules are tried, and the end of a search.

A search begins with the default, the best schedules of similar kernels, the cost model's
favourites, and some that are far from all of these. Then it takes by turns the most promising ones
on a surface fitted to the times, and neighbours of the best that differ in one choice. In each
batch slow schedules are dropped early and the others measured again (successive halving). The
default is always measured beside them and ratios within a round are compared, because a machine's
speed changes by the minute. At the end the best few are measured against one another until one of
them is clear of the noise.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from tilewright.codegen.schedule.space import Space

S = TypeVar("S")

EFFORTS = {"quick": (0.06, 24), "full": (0.19, 128), "exhaustive": (1.0, None)}
"""The share of a space that a search measures, and the most candidates."""
LEAST = 6
"""The fewest candidates that a search measures, if there are so many."""
BATCH = 6
RIDGE = 1e-3
"""The penalty on the coefficients of the surface."""
SLACK = (1.5, 1.2, 1.08)
"""After each round, how many times as slow as the best a candidate may be to be measured again."""
FINALISTS = 4
CLOSE = 1.06
"""How many times as slow as the best a finalist may seem."""
ROUNDS = 24
"""The most rounds of the final."""
CLEAR = 2.0
"""Standard errors by which a winner is clear of the noise."""

Measure = Callable[[Sequence[S], int], Mapping[S, Sequence[float]]]
"""measure(schedules, rounds): seconds of each schedule in each round, all in turn, without bad
ones."""


@dataclass(frozen=True)
class Times:
    """The times of a schedule. ratio: the median over rounds of its time divided by the default's;
    spread: between quartiles, divided by the median."""

    ratio: float
    spread: float
    rounds: int

    @staticmethod
    def of(seconds: Sequence[float], others: Sequence[float], factor: float = 1.0) -> Times:
        """Times relative to another schedule in the same rounds, which takes `factor` times the
        default's time."""
        ratios = [factor * a / b for a, b in zip(seconds, others)]
        middle = statistics.median(ratios)
        low, high = middle, middle
        if len(ratios) > 3:
            low, _, high = statistics.quantiles(ratios, n=4)
        return Times(middle, (high - low) / middle, len(ratios))


@dataclass
class State(Generic[S]):
    """The knowledge of a search: ratios of measured schedules to the default, and bad schedules."""

    ratios: dict[S, float] = field(default_factory=dict)
    bad: set[S] = field(default_factory=set)

    def knows(self, schedule: S) -> bool:
        return schedule in self.ratios or schedule in self.bad

    @property
    def best(self) -> S | None:
        return min(self.ratios, key=lambda s: self.ratios[s], default=None)


def count(space: Space[S], effort: str) -> int:
    """The most candidates that a search of this effort measures."""
    share, most = EFFORTS[effort]
    wanted = max(LEAST, math.floor(share * len(space)))
    return min(len(space), wanted if most is None else min(wanted, most))


def batches(
    space: Space[S], state: State[S], effort: str, seeds: Iterable[S] = ()
) -> Iterable[list[S]]:
    """Schedules to measure, in batches. The caller updates `state` between batches. Schedules in
    `state` aren't repeated, but count."""
    most = count(space, effort)
    surface = Surface(space)

    def new(*orders: Iterable[S]) -> list[S]:
        """The first unknown schedules of several orders, taken by turns."""
        left = most - sum(state.knows(s) for s in space.schedules)
        mixed = (s for each in itertools.zip_longest(*orders) for s in each if s in space.places)
        fresh = (s for s in dict.fromkeys(mixed) if not state.knows(s))
        return list(itertools.islice(fresh, max(min(BATCH, left), 0)))

    first = [space.default, *seeds, *space.ranked[:2]]
    batch = new([*first, *surface.spread(first, BATCH)])
    while batch:
        yield batch
        order = surface.order(state.ratios)
        best = state.best
        near = set() if best is None else set(space.neighbours(best))
        batch = new(order, [s for s in order if s in near])


class Surface(Generic[S]):
    """Times as a smooth function of the choices: a quadratic response surface, fitted to the
    measurements (Box and Wilson, On the Experimental Attainment of Optimum Conditions, 1951). The
    cost model's prediction, where there is one, is one more variable."""

    def __init__(self, space: Space[S]):
        self.space = space
        self.placed = [s for s in space.schedules if space.places[s]]
        self.apart = [s for s in space.schedules if not space.places[s]]
        places = np.array([space.places[s] for s in self.placed], float).reshape(
            len(self.placed), -1
        )
        span = np.ptp(places, axis=0) if len(places) else np.zeros(places.shape[1])
        several = span > 0
        x = places[:, several] - places.min(axis=0, initial=0.0)[several]
        self.x = x / span[several]
        columns = [np.ones(len(x)), *self.x.T]
        columns += [a * b for a, b in itertools.combinations_with_replacement(self.x.T, 2)]
        if space.predicted:
            columns.append(np.log([space.predicted[s] for s in self.placed]))
            columns[-1] = columns[-1] - columns[-1].min()
        self.terms = np.stack(columns, 1) if len(x) else np.zeros((0, 1))
        self.index = {s: i for i, s in enumerate(self.placed)}

    def spread(self, near: Iterable[S], number: int) -> list[S]:
        """`number` schedules far from those in `near` and from one another, of the half that the
        cost model prefers."""
        rows = [self.index[s] for s in near if s in self.index]
        if not rows or not self.x.shape[1]:
            return list(self.space.ranked[:number])
        allowed = np.ones(len(self.placed), bool)
        if self.space.predicted:
            rank = np.array([self.space.rank[s] for s in self.placed])
            allowed = rank <= np.median(rank)
        away = np.min([np.sum((self.x - self.x[r]) ** 2, 1) for r in rows], axis=0)
        out = []
        for _ in range(min(number, int(allowed.sum()))):
            far = int(np.argmax(np.where(allowed, away, -1.0)))
            out.append(self.placed[far])
            away = np.minimum(away, np.sum((self.x - self.x[far]) ** 2, 1))
        return out

    def order(self, ratios: Mapping[S, float]) -> list[S]:
        """All schedules, in the order of their expected time."""
        rows = [self.index[s] for s in ratios if s in self.index]
        if len(rows) < 3:
            return list(self.space.ranked)
        known = np.log([ratios[s] for s in ratios if s in self.index])
        # Slow schedules weigh less, and a penalty keeps unknown ones near the mean.
        weight = np.exp(-(known - known.min()))[:, None]
        terms, mean = self.terms[rows], float(np.average(known, weights=weight[:, 0]))
        penalty = math.sqrt(RIDGE) * np.eye(terms.shape[1])
        penalty[0, 0] = 0.0
        left = np.concatenate([terms * weight, penalty])
        right = np.concatenate([(known - mean) * weight[:, 0], np.zeros(len(penalty))])
        fitted = np.linalg.lstsq(left, right, rcond=None)[0]
        expected = self.terms @ fitted
        order = [self.placed[i] for i in np.argsort(expected, kind="stable")]
        return [*self.apart, *order]


def measure_batch(batch: Sequence[S], default: S, measure: Measure[S]) -> dict[S, Times]:
    """The times of a batch. Slow schedules get fewer rounds, bad ones are missing. Nothing is
    returned if the default doesn't run."""
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
    # A dropped schedule is compared with the best in the rounds that both were in. So a round in
    # which the default was slow doesn't distort its ratio.
    factor = Times.of(seconds[best], seconds[default]).ratio
    return {s: Times.of(each, seconds[best], factor) for s, each in seconds.items()}


def final(
    state: State[S],
    default: S,
    measure: Measure[S],
    expired: Callable[[], bool] = lambda: False,
) -> tuple[S, dict[S, Times]]:
    """The winner among the best, and the times of the finalists.

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
    """Whether a schedule is slower than the best, clear of the noise, in their common rounds."""
    pairs = [math.log(a / b) for a, b in zip(seconds, best)]
    if len(pairs) < 4:
        return False
    middle = statistics.median(pairs)
    # The standard error of a median, from the median deviation of normal noise.
    deviation = 1.4826 * statistics.median(abs(p - middle) for p in pairs)
    return middle > CLEAR * 1.2533 * deviation / math.sqrt(len(pairs))
