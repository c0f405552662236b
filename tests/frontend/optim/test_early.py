"""The first steps of optimizers, which are computed at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.optim import early
from tilewright.recording import epoch, novelty
from tilewright.recording.epoch import clock

MAKE: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda m, ps: m.optim.SGD(ps, 0.1),
    "momentum": lambda m, ps: m.optim.SGD(ps, 0.1, momentum=0.9, dampening=0.2, weight_decay=0.1),
    "nesterov": lambda m, ps: m.optim.SGD(ps, 0.1, momentum=0.9, nesterov=True, maximize=True),
    "Adam": lambda m, ps: m.optim.Adam(ps, 0.05, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda m, ps: m.optim.AdamW(ps, 0.05),
    "RMSprop": lambda m, ps: m.optim.RMSprop(ps, 0.05, centered=True, momentum=0.3),
    "Adagrad": lambda m, ps: m.optim.Adagrad(ps, 0.05, lr_decay=0.1),
    "Adadelta": lambda m, ps: m.optim.Adadelta(ps, 0.5),
    "Adamax": lambda m, ps: m.optim.Adamax(ps, 0.05),
    "NAdam": lambda m, ps: m.optim.NAdam(ps, 0.05),
    "RAdam": lambda m, ps: m.optim.RAdam(ps, 0.05),
    "ASGD": lambda m, ps: m.optim.ASGD(ps, 0.05, t0=3),
    "Rprop": lambda m, ps: m.optim.Rprop(ps, 0.05),
}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Calls are computed at once. Whether each group of an optimizer's step was."""
    found: list[bool] = []
    plain = early.stepped

    def stepped(*args: Any) -> bool:
        found.append(plain(*args))
        return found[-1]

    epoch.known.clear()
    monkeypatch.setattr(early, "stepped", stepped)
    monkeypatch.setattr(novelty, "REPEATS", 1 << 60)
    monkeypatch.setattr(clock, "volatile", True)
    monkeypatch.setattr(clock, "taping", True)
    yield found
    tw.zeros(1).add_(1).item()


def _steps(m: Any, name: str, count: int = 12) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = ((4, 3), (3,), (1, 5), (2, 3, 2, 2))
    ps = [m.nn.Parameter(m.tensor(rng.normal(size=s).astype(np.float32))) for s in shapes]
    updates = MAKE[name](m, ps)
    for _ in range(count):
        for p in ps:
            p.grad = m.tensor(rng.normal(size=tuple(p.shape)).astype(np.float32))
        updates.step()
    return [p.detach().numpy() for p in ps]


@pytest.mark.parametrize("name", MAKE)
def test_as_in_pytorch(torch: Any, name: str, at_once: list[bool]) -> None:
    for ours, theirs in zip(_steps(tw, name), _steps(torch, name), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    # The first steps at once, whose number is the same for all optimizers, and the others not.
    steps = len(at_once) // 12
    assert at_once == [True] * steps * early.STEPS + [False] * steps * (12 - early.STEPS)


@pytest.mark.parametrize("name", ["momentum", "AdamW"])
def test_with_the_bits_of_recorded_steps(name: str, at_once: list[bool]) -> None:
    made = _steps(tw, name, early.STEPS)
    assert all(at_once)
    clock.volatile = False
    for a, b in zip(made, _steps(tw, name, early.STEPS), strict=True):
        assert (a == b).all()


def test_others_see_what_is_written(at_once: list[bool]) -> None:
    p, q = (tw.nn.Parameter(tw.ones(3)) for _ in range(2))
    detached, seen = p.detach(), q.detach().numpy()
    kept = dict(tw.nn.ParameterDict({"p": p}).state_dict())
    updates = tw.optim.SGD([p, q], 0.5)
    loss = (p * q).sum()
    loss.backward(retain_graph=True)
    updates.step()
    assert at_once == [True]
    assert p.tolist() == detached.tolist() == kept["p"].tolist() == seen.tolist() == [0.5] * 3
    detached.fill_(2)
    assert p.tolist() == [2] * 3
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_part_of_a_memory_is_recorded(at_once: list[bool]) -> None:
    flat = tw.zeros(6)
    ps = [tw.nn.Parameter(part) for part in flat.view(2, 3)]
    updates = tw.optim.SGD(ps, 1.0)
    for i, p in enumerate(ps):
        p.grad = tw.full((3,), float(i + 1))
    updates.step()
    assert flat.tolist() == [-1] * 3 + [-2] * 3
    assert at_once == [False]


def test_parameters_of_one_memory_are_updated_one_after_the_other(
    torch: Any, at_once: list[bool]
) -> None:
    def run(m: Any) -> Any:
        p = m.nn.Parameter(m.ones(3))
        q = m.nn.Parameter(p.data)
        updates = m.optim.SGD([p, q], 1.0)
        p.grad, q.grad = m.full((3,), 2.0), m.full((3,), 5.0)
        updates.step()
        return p.tolist(), q.tolist()

    assert run(tw) == run(torch)
    assert at_once == [False]


def test_large_parameters_are_recorded(
    at_once: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(novelty, "LARGE", 5)
    ps = [tw.nn.Parameter(tw.ones(n)) for n in (3, 6)]
    updates = tw.optim.SGD(ps, 1.0)
    for p in ps:
        p.grad = tw.ones(p.shape)
    updates.step()
    assert [p.tolist() for p in ps] == [[0] * 3, [0] * 6] and at_once == [False]
