"""Space: the schedules that a kernel may have, for a tuner to search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Space(Generic[S]):
    """Distinct schedules. Schedules with the same effect count as one.

    schedules: the default first. places: for each schedule its position along each choice; () if it
        has no place among the others. predicted: seconds by a cost model, or {} if there is none.
    """

    schedules: tuple[S, ...]
    places: Mapping[S, tuple[int, ...]]
    predicted: Mapping[S, float]

    def __len__(self) -> int:
        return len(self.schedules)

    @property
    def default(self) -> S:
        return self.schedules[0]

    def neighbours(self, schedule: S) -> list[S]:
        """The schedules that differ from this one in a single choice, the nearest and best
        first."""
        here = self.places[schedule]
        near = []
        for other, there in self.places.items():
            if len(there) == len(here) and sum(a != b for a, b in zip(here, there)) == 1:
                near.append((sum(abs(a - b) for a, b in zip(here, there)), self.rank[other], other))
        return [s for *_, s in sorted(near, key=lambda each: each[:2])]

    @cached_property
    def rank(self) -> Mapping[S, int]:
        """The place of each schedule in the order in which they are worth trying."""
        return {s: i for i, s in enumerate(self.ranked)}

    @cached_property
    def ranked(self) -> tuple[S, ...]:
        """The schedules in the order of the cost model; without one, by distance from the default.
        A schedule with no place among the others (another library) comes early."""
        if self.predicted:
            return tuple(sorted(self.schedules, key=lambda s: self.predicted.get(s, 0.0)))
        origin = self.places[self.default]

        def distance(schedule: S) -> int:
            there = self.places[schedule]
            if len(there) != len(origin):
                return 0
            return sum((a - b) ** 2 for a, b in zip(origin, there))

        return tuple(sorted(self.schedules, key=distance))


def grid(
    default: S,
    choices: Mapping[str, Sequence[Any]],
    make: Callable[..., S],
    effect: Callable[[S], Any],
) -> dict[S, tuple[int, ...]]:
    """The places of the default and of all combinations of choices.

    make: a schedule from named choices. effect: the values of the choices, in their order, after
    the sizes of a kernel have limited them; None for a schedule that can't be had.
    """
    origin = effect(default)
    values = []
    for own, given in zip(origin, choices.values(), strict=True):
        known = list(given)
        if own not in known:
            known = sorted([*known, own])
        values.append(known)
    places = {default: tuple(v.index(own) for v, own in zip(values, origin))}
    seen = {origin}
    for each in itertools.product(*values):
        schedule = make(**dict(zip(choices, each)))
        found = effect(schedule)
        if found is not None and found not in seen:
            seen.add(found)
            places[schedule] = tuple(v.index(own) for v, own in zip(values, each))
    return places
