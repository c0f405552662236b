"""The order in which schedules are tried, on landscapes of times with noise."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tilewright.codegen.schedule.space import Space, grid
from tilewright.runtime.tuner import (
    search,
)


def test_a_grid_holds_the_default_and_what_differs_from_it() -> None:
    def effect(s: tuple[int, int]) -> Any:
        x, y = s
        return None if x * y > 12 else (min(x, 4), y)  # from 4 on, x makes no difference

    places = grid((3, 2), {"x": (1, 2, 4, 6), "y": (1, 2, 3)}, lambda x, y: (x, y), effect)
    assert places[3, 2] == (2, 1)  # among its own choices, in order
    assert set(places) == {(3, 2), *itertools.product((1, 2, 3, 4), (1, 2, 3))}
    space = Space(tuple(places), places, {})
    assert space.neighbours((3, 2))[:2] == [(2, 2), (3, 1)]
    assert space.ranked[0] == (3, 2)


class Landscape:
    """Times of a space with one valley, and noise; counts what is measured."""

    def __init__(self, width: int = 12, noise: float = 0.02, seed: int = 0):
        sizes = range(width)
        places = grid((2, 3), {"x": sizes, "y": sizes}, lambda x, y: (x, y), lambda s: s)
        self.space: Space[tuple[int, int]] = Space(tuple(places), places, {})
        self.noise, self.random = noise, random.Random(seed)
        self.asked: dict[tuple[int, int], int] = {}

    def true(self, s: tuple[int, int]) -> float:
        x, y = s
        return 1.0 + 0.08 * abs(x - 8) ** 0.8 + 0.1 * abs(y - 6) + 0.04 * ((x + y) % 3 == 0)

    def measure(
        self, schedules: Sequence[tuple[int, int]], rounds: int
    ) -> Mapping[tuple[int, int], Sequence[float]]:
        # The machine is slower in some rounds than in others, for all alike.
        speed = [self.random.choice((1.0, 1.0, 1.6)) for _ in range(rounds)]
        for schedule in schedules:
            self.asked[schedule] = self.asked.get(schedule, 0) + 1
        return {
            s: [self.true(s) * f * (1 + self.noise * self.random.random()) for f in speed]
            for s in schedules
        }

    def run(self, effort: str, state: search.State[Any] | None = None) -> tuple[int, int]:
        state = state or search.State()
        for batch in search.batches(self.space, state, effort):
            assert not any(state.knows(s) for s in batch)
            for s, times in search.measure_batch(batch, self.space.default, self.measure).items():
                state.ratios[s] = times.ratio
        self.state = state
        return search.final(state, self.space.default, self.measure)[0]


@pytest.mark.parametrize("seed", range(8))
def test_a_search_finds_the_valley_and_measures_little(seed: int) -> None:
    landscape = Landscape(seed=seed)
    winner = landscape.run("full")
    assert landscape.true(winner) <= 1.09, winner
    assert len(landscape.asked) <= 0.2 * len(landscape.space) + 1


def test_an_exhaustive_search_measures_everything_and_a_quick_one_less() -> None:
    everything, quick = Landscape(6), Landscape()
    assert everything.true(everything.run("exhaustive")) == min(
        everything.true(s) for s in everything.space.schedules
    )
    assert set(everything.asked) == set(everything.space.schedules)
    quick.run("quick")
    assert len(quick.asked) <= search.count(quick.space, "quick") + 1 <= 10


def test_the_default_stays_unless_another_is_clear_of_the_noise() -> None:
    """Of a flat landscape the winner is the default, however noisy it is."""
    kept = 0
    for seed in range(10):
        flat = Landscape(noise=0.3, seed=seed)
        flat.true = lambda s: 1.0  # type: ignore[method-assign]
        kept += flat.run("full") == flat.space.default
    assert kept >= 7  # the best of several by chance may seem clear
    flat = Landscape(noise=0.0)
    flat.true = lambda s: 1.0  # type: ignore[method-assign]
    assert flat.run("full") == flat.space.default


def test_a_search_goes_on_where_it_was_left() -> None:
    whole = Landscape(noise=0.0)
    whole.run("full")
    part = Landscape(noise=0.0)
    state: search.State[Any] = search.State()
    for batch in itertools.islice(search.batches(part.space, state, "full"), 2):
        for s, times in search.measure_batch(batch, part.space.default, part.measure).items():
            state.ratios[s] = times.ratio
    before = dict(part.asked)
    rest = Landscape(noise=0.0)
    rest.run("full", state)
    again = set(rest.asked) & set(before) - {rest.space.default}
    # What is measured once more are finalists, which are compared with one another.
    assert len(again) <= search.FINALISTS
    assert len(state.ratios) == search.count(whole.space, "full")
