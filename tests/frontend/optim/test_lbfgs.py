"""LBFGS and ASGD against PyTorch."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import tilewright as tw
from tilewright.optim.lbfgs import Point, Search
from tilewright.runtime import tiers


@pytest.fixture(autouse=True)
def op_by_op(monkeypatch):
    """A search evaluates few points of each line: compiling them takes longer."""
    monkeypatch.setattr(tiers, "mode", tiers.AUTO)


LBFGS = [
    {},
    {"lr": 0.5, "history_size": 3, "max_iter": 4},
    {"line_search_fn": "strong_wolfe", "max_iter": 5},
]
SEARCHES = [
    {"lr": 20.0},
    {"lr": 0.01},
    {"lr": 1.0, "history_size": 2},
]
ASGD = [
    {"lr": 0.1},
    {"lr": 0.1, "t0": 2, "lambd": 0.1, "weight_decay": 0.1},
    {"lr": 0.01, "t0": 0, "maximize": True},
]


def trained(m, name, options, steps=3):
    """The losses and parameters of a few steps."""
    rng = np.random.default_rng(0)
    x, y = m.tensor(rng.normal(size=(20, 6))), m.tensor(rng.normal(size=20))
    w = m.tensor(rng.normal(size=6), requires_grad=True)
    b = m.tensor(rng.normal(size=(2, 3)), requires_grad=True)
    optimizer = getattr(m.optim, name)([w, b], **options)

    def closure():
        optimizer.zero_grad()
        z = (x @ w).tanh() + b.reshape(-1)[:1]
        loss = ((z - y) ** 2).mean() + (b**4).sum() * 0.1
        loss.backward()
        return loss

    out = []
    for _ in range(steps):
        loss = optimizer.step(closure)
        out.append([loss.item(), *w.tolist(), *b.reshape(-1).tolist()])
    return np.array(out), optimizer


@pytest.mark.parametrize("options", LBFGS, ids=str)
def test_lbfgs_is_pytorchs(torch, options):
    (ours, mine), (theirs, yours) = (trained(m, "LBFGS", options) for m in (tw, torch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    states = [next(iter(o.state.values())) for o in (mine, yours)]
    assert states[0]["func_evals"] == states[1]["func_evals"]
    assert states[0]["n_iter"] == states[1]["n_iter"]


def test_complex_parameters(torch):
    def seen(m):
        z = m.nn.Parameter(m.tensor([1 + 2j, 3 - 1j], dtype=m.complex128))
        x = m.nn.Parameter(m.tensor([2.0], dtype=m.float64))
        optimizer = m.optim.LBFGS([z, x], lr=0.3, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            loss = (z * z + 1).abs().square().sum() + (z.real.sum() - x).square().sum()
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3)]
        return [*losses, *z.tolist(), x.item()]

    np.testing.assert_allclose(seen(tw), seen(torch), rtol=1e-6)


@pytest.mark.parametrize("options", SEARCHES, ids=str)
@pytest.mark.parametrize("max_iter", [1, 2, 3, 5, 12])
def test_searches_try_pytorchs_steps(torch, options, max_iter):
    options = {**options, "max_iter": max_iter, "line_search_fn": "strong_wolfe"}
    (ours, mine), (theirs, yours) = (trained(m, "LBFGS", options, 6) for m in (tw, torch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    states = [next(iter(o.state.values())) for o in (mine, yours)]
    assert states[0]["func_evals"] == states[1]["func_evals"]


LINES = {
    "parabola": lambda t: ((t - 3) ** 2, 2 * (t - 3)),
    "narrow": lambda t: ((t - 0.01) ** 2, 2 * (t - 0.01)),
    "waves": lambda t: (0.1 * t * t + math.sin(3 * t - 2), 0.2 * t + 3 * math.cos(3 * t - 2)),
    "quartic": lambda t: ((t - 40) ** 4, 4 * (t - 40) ** 3),
    "pole": lambda t: (math.nan, math.nan) if t >= 2 else (1 / (2 - t) - 3 * t, (2 - t) ** -2 - 3),
}


@pytest.mark.parametrize("first", [1e-3, 0.3, 1.0, 50.0])
@pytest.mark.parametrize("name", LINES)
def test_a_search_meets_the_strong_wolfe_conditions(name, first):
    def at(t):
        return Point(t, LINES[name](t)[0], None, LINES[name](t)[1])

    start = at(0.0)
    assert start.slope < 0
    search = Search(at, start, 1e-9, 60)
    found = search.from_step(first)
    assert found.loss <= start.loss + 1e-4 * found.t * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope) and search.count < 60


def test_a_search_ends():
    calls = []

    def at(t):  # falls for ever
        calls.append(t)
        return Point(t, -t, None, -1.0)

    assert Search(at, Point(0.0, 0.0, None, -1.0), 1e-9, 25).from_step(1.0).loss < 0
    assert len(calls) == 1 + 25


def test_a_search_ends_where_two_points_are_the_same():
    def at(t):  # a rounded loss that no step lowers
        return Point(0.5, 1.0, None, 1.0)

    search = Search(at, Point(0.5, 1.0, None, -1.0), 0.0, 25)
    assert search.from_step(0.5).loss == 1.0 and search.count == 26


@pytest.mark.parametrize("options", ASGD, ids=str)
def test_asgd_is_pytorchs(torch, options):
    (ours, mine), (theirs, yours) = (trained(m, "ASGD", options, 6) for m in (tw, torch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    for a, b in zip(mine.state.values(), yours.state.values(), strict=True):
        np.testing.assert_allclose(a["ax"].numpy(), b["ax"].numpy(), rtol=1e-6)


def test_lbfgs_says_what_is_wrong():
    w = tw.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="parameter groups"):
        tw.optim.LBFGS([{"params": [w]}, {"params": [tw.zeros(1, requires_grad=True)]}])
    with pytest.raises(TypeError, match="closure"):
        tw.optim.LBFGS([w]).step()
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        tw.optim.LBFGS([w], line_search_fn="armijo").step(lambda: w.sum())


def test_a_longer_history_is_no_other_graph() -> None:
    """Steps that each remember one more meet no new plan after the first few."""
    from tilewright.recording import flushing

    x = tw.tensor(np.linspace(-1, 1, 12), dtype=tw.float64, requires_grad=True)
    optimizer = tw.optim.LBFGS([x], lr=0.1, max_iter=1, history_size=20)

    def closure() -> tw.Tensor:
        optimizer.zero_grad()
        loss = (x**4 - x).sum()
        loss.backward()
        return loss

    def steps(count: int) -> int:
        for _ in range(count):
            optimizer.step(closure)
        return len(flushing._outcomes)

    early = steps(4)
    assert steps(10) == early
    assert len(optimizer.state[x]["ro"]) > 10


def test_a_step_needs_a_closure(torch):
    for m in (tw, torch):
        optimizer = m.optim.LBFGS([m.ones(1, requires_grad=True)])
        asked = inspect.signature(optimizer.step).parameters["closure"]
        assert asked.default is inspect.Parameter.empty
        with pytest.raises(TypeError, match="closure"):
            optimizer.step()
