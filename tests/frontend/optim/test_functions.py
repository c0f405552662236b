"""Optimizers as functions of lists, beside PyTorch's."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.computes

MOMENTS = {"beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": 0.01, "eps": 1e-8}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "adam": (3, {**MOMENTS, "amsgrad": True, "maximize": False}),
    "adamw": (3, {**MOMENTS, "amsgrad": False, "maximize": True}),
    "adamax": (2, MOMENTS),
    "adadelta": (2, {"lr": 0.5, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.01, "maximize": False}),
    "adagrad": (
        1,
        {"lr": 0.5, "lr_decay": 0.1, "eps": 1e-6, "weight_decay": 0.01, "maximize": False},
    ),
    "asgd": (1, {"lambd": 0.1, "lr": 0.1, "t0": 1.0, "alpha": 0.7, "weight_decay": 0.1}),
    "nadam": (2, {**MOMENTS, "momentum_decay": 4e-3}),
    "radam": (2, MOMENTS),
    "rmsprop": (
        3,
        {"lr": 0.1, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1, "momentum": 0.5,
         "centered": True},
    ),
    "rprop": (
        2,
        {"step_size_min": 1e-6, "step_size_max": 50, "etaminus": 0.5, "etaplus": 1.2},
    ),
    "sgd": (
        1,
        {"lr": 0.1, "weight_decay": 0.01, "momentum": 0.9, "dampening": 0, "nesterov": True,
         "maximize": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_steps_are_pytorchs(torch: Any, name: str) -> None:
    lists, options = CASES[name]

    def run(m: Any) -> Any:
        function = getattr(importlib.import_module(f"{m.__name__}.optim.{name}"), name)
        params = [m.arange(1.0, 4).requires_grad_(), m.ones(2, 2).requires_grad_()]
        grads = [m.sin(p.detach() * 3) for p in params]
        if name == "sgd":
            states: list[Any] = [[None, None]]
        else:
            fill = 0.1 if name == "rprop" else 0.0
            states = [[m.full(p.shape, fill) for p in params] for _ in range(lists)]
            if name == "nadam":
                states.append([m.ones(()) for _ in params])
            if name == "asgd":
                states += [[m.ones(()) for _ in params], [m.tensor(0.1) for _ in params]]
            states.append([m.tensor(0.0) for _ in params])
        with m.no_grad():
            for _ in range(4):
                function(params, grads, *states, **options)
        flat = [p.detach() for p in params] + [s for each in states for s in each]
        return (
            [t.tolist() for t in flat],
            [p.grad for p in params],
            list(inspect.signature(function).parameters),
        )

    mine, theirs = run(tw), run(torch)
    for a, b in zip(mine[0], theirs[0], strict=True):
        tw.testing.assert_close(tw.tensor(a), tw.tensor(b), rtol=1e-5, atol=1e-6)
    assert mine[1] == theirs[1] == [None, None]
    assert mine[2] == theirs[2]


def test_they_stand_together(torch: Any) -> None:
    ours, theirs = (importlib.import_module(f"{m.__name__}.optim._functional") for m in (tw, torch))
    for name in (*CASES, "sparse_adam"):
        mine, yours = (inspect.signature(getattr(m, name)) for m in (ours, theirs))
        assert list(mine.parameters) == list(yours.parameters), name


def test_steps_of_rows_are_pytorchs(torch: Any) -> None:
    def run(m: Any) -> Any:
        step = importlib.import_module(f"{m.__name__}.optim._functional").sparse_adam
        p, mean, square = m.ones(4, 2), m.zeros(4, 2), m.zeros(4, 2)
        options = {"eps": 1e-8, "beta1": 0.9, "beta2": 0.99, "lr": 0.1, "maximize": False}
        for i in range(1, 4):
            g = m.sparse_coo_tensor(
                m.tensor([[0, 2]]), m.ones(2, 2) * i, (4, 2), check_invariants=True
            )
            step([p], [g.coalesce()], [mean], [square], [i], **options)
        return p.tolist(), mean.tolist(), square.tolist()

    for a, b in zip(run(tw), run(torch), strict=True):
        tw.testing.assert_close(tw.tensor(a), tw.tensor(b))
