"""Backward passes through as many histories as a loop has rounds: their values, and that what they
cost grows as the work does."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from epoch_programs import calls_at_once

import tilewright as tw


def by_a_view(m: Any, n: int) -> list[Any]:
    x = m.ones(4, dtype=m.float64, requires_grad=True)
    views = [(x * float(i + 1)).view(2, 2) for i in range(n)]
    total = sum((v**3).sum() for v in views)
    total.item()
    (g,) = m.autograd.grad(total, x, create_graph=True)
    return list(m.autograd.grad((g * g).sum(), [views[0], x]))


def by_all_views(m: Any, n: int) -> list[Any]:
    x = m.ones(4, dtype=m.float64, requires_grad=True)
    views = [(x * float(i + 1)).view(2, 2) for i in range(n)]
    total = sum((v**3).sum() for v in views)
    total.item()
    return list(m.autograd.grad(total, views))


def by_parts(m: Any, n: int) -> list[Any]:
    x = m.arange(1.0, n + 1, dtype=m.float64).requires_grad_()
    parts = x.unbind()
    first = m.autograd.grad(sum(p**3 for p in parts), parts, create_graph=True)
    total = sum(first)
    total.item()
    return [*first, *m.autograd.grad(total, parts)]


def by_states(m: Any, n: int) -> list[Any]:
    w = (m.eye(3, dtype=m.float64) * 0.9).requires_grad_()
    state, states = m.ones(3, dtype=m.float64), []
    for _ in range(n):
        state = m.tanh(w @ state)
        states.append(state)
        state.sum().item()
    found = m.autograd.grad(m.stack(states).sum(), [w, *states], create_graph=True)
    return [*found, *m.autograd.grad(sum((g**2).sum() for g in found), w)]


def with_hooks(m: Any, n: int) -> list[Any]:
    x = m.ones(4, dtype=m.float64, requires_grad=True)
    seen: list[Any] = []
    hidden = [x * float(i + 1) for i in range(n)]
    for h in hidden:
        h.register_hook(seen.append)
        h.retain_grad()
    sum((h**3).sum() for h in hidden).backward()
    return [x.grad, m.stack(seen).sum(0), *(h.grad for h in hidden)]


def hooked_layers(m: Any, n: int) -> list[Any]:
    seen: list[Any] = []
    layers = [m.nn.Linear(2, 2).double() for _ in range(n)]
    with m.no_grad():
        for i, layer in enumerate(layers):
            layer.weight.copy_(m.eye(2) + 0.01 * i)
            layer.bias.fill_(0.1)
    model = m.nn.Sequential(*layers)
    for layer in layers:
        layer.register_full_backward_hook(lambda layer, down, up: seen.append(up[0].sum()))
        layer.register_forward_hook(lambda layer, args, made: seen.append(made.mean()))
    model(m.ones(1, 2, dtype=m.float64).requires_grad_()).sum().backward()
    return [m.stack(seen), *(layer.weight.grad for layer in layers)]


def inner_steps(m: Any, n: int) -> list[Any]:
    w = m.tensor([0.5, -1.0, 2.0], dtype=m.float64, requires_grad=True)
    fast = w
    for _ in range(n):
        (g,) = m.autograd.grad((fast**2).sum(), fast, create_graph=True)
        fast = fast - 0.01 * g
    (fast**2).sum().backward()
    return [fast.detach(), w.grad]


def products(m: Any, n: int) -> list[Any]:
    parameters = [m.full((2,), 1 + 0.01 * i, dtype=m.float64).requires_grad_() for i in range(n)]
    state = m.ones(2, dtype=m.float64)
    for p in parameters:
        state = state * m.tanh(p)
        state[0].item()
    state.sum().backward()
    return [p.grad for p in parameters]


PROGRAMS: list[Callable[..., Any]] = [
    by_a_view, by_all_views, by_parts, by_states, with_hooks, hooked_layers, inner_steps, products,
]  # fmt: skip


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_pytorch(torch: Any, program: Callable[..., Any], at_once: bool) -> None:
    with calls_at_once(at_once):
        ours = [program(tw, 12) for _ in range(2)]
    expected = program(torch, 12)
    for found in ours:
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("count", [5, 100])
def test_a_second_pass_is_an_error(count: int, at_once: bool) -> None:
    """However many leaf tensors and histories the first one has freed."""
    with calls_at_once(at_once):
        parameters = [tw.full((2,), 1 + 0.01 * i).requires_grad_() for i in range(count)]
        state, middle = tw.ones(2), tw.ones(2)
        for i, p in enumerate(parameters):
            state = state * tw.tanh(p)
            middle = state if i == count // 2 else middle
            state[0].item()
        state.sum().backward()
        for by in (parameters[0], middle):
            with pytest.raises(RuntimeError, match="second time"):
                tw.autograd.grad(state.sum(), by)
        with pytest.raises(RuntimeError, match="second time"):
            state.sum().backward()
        other = tw.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match="at index 1 appears to not have been used"):
            tw.autograd.grad((other * 2).sum(), [other, parameters[0]])
        (g,) = tw.autograd.grad((state * other).sum(), other)
        np.testing.assert_array_equal(g, state.detach())


def _calls(program: Callable[..., Any], n: int) -> int:
    """How many functions a program calls."""
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        program(tw, n)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_grows_as_the_work_does(program: Callable[..., Any], at_once: bool) -> None:
    with calls_at_once(at_once):
        _calls(program, 10)
        few, many = _calls(program, 50), _calls(program, 400)
    assert many < 3 * 8 * few  # the square of 8 would be 64
