"""Gradients and hooks of tensors that several epochs use, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw


def leaf(m: Any) -> Any:
    return m.tensor([1.0, 2.0, 3.0], dtype=m.float64, requires_grad=True)


def a_write_without_gradients(m: Any) -> list[Any]:
    x = leaf(m) * 2
    x.sum().item()
    with m.no_grad():
        x.sub_(1.0)
    return [*m.autograd.grad(x.sum(), [x])]


def a_write_with_gradients(m: Any) -> list[Any]:
    x = leaf(m) * 2
    x.sum().item()
    x.mul_(3.0)
    return [*m.autograd.grad((x * x).sum(), [x])]


def uses_before_and_after_a_write_without_gradients(m: Any) -> list[Any]:
    x = leaf(m) * 2
    y = x * 2
    with m.no_grad():
        x.add_(1.0)
    z = x * 3
    return [*m.autograd.grad((y + z).sum(), [x])]


def a_hook_on_a_view(m: Any) -> list[Any]:
    x, seen = leaf(m) * 2, []
    v = x[:2]
    v.register_hook(lambda g: seen.append(g.tolist()))
    y = v * v
    y.sum().item()
    z = v * 3
    (y.sum() + z.sum()).backward(retain_graph=True)
    w = v * 2
    w.sum().item()
    v.register_hook(lambda g: seen.append(g.tolist()))
    (y.sum() + z.sum() + w.sum() + (v * 5).sum()).backward(retain_graph=True)
    x.add_(1.0)  # the view is new to autograd after it
    (v * 2).sum().backward()
    return seen


def the_kept_gradient_of_a_view(m: Any) -> list[Any]:
    v = (leaf(m) * 2)[:2]
    v.retain_grad()
    y = v * v
    y.sum().item()
    (y.sum() + (v * 3).sum()).backward()
    return [v.grad]


def hooks_before_and_after_a_write(m: Any) -> list[Any]:
    x, seen = leaf(m) * 2, []
    x.register_hook(lambda g: seen.append(("before", g.tolist())))
    x.mul_(3.0)
    x.register_hook(lambda g: seen.append(("after", g.tolist())))
    (x * x).sum().backward()
    return seen


def a_hook_on_the_tensor_asked_for(m: Any) -> list[Any]:
    x, seen = leaf(m) * 2, []
    x.register_hook(lambda g: seen.append(g.tolist()))
    x.sum().item()
    (g,) = m.autograd.grad(x.sum(), [x])
    return [*seen, g]


def a_tensor_asked_for_twice(m: Any) -> list[Any]:
    x, seen = leaf(m), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    return [*m.autograd.grad((x * x).sum(), [x, x]), *seen]


def a_second_derivative_by_a_result(m: Any) -> list[Any]:
    x = leaf(m)
    y = x * 2
    loss = (y**3).sum()
    loss.item()
    (first,) = m.autograd.grad(loss, y, create_graph=True)
    return [first, *m.autograd.grad(first.sum(), [x, y])]


def a_gradient_that_reads_nothing_overwritten(m: Any) -> list[Any]:
    x = leaf(m) * 2
    y = x * x
    z = y * 3
    z.sum().item()
    with m.no_grad():
        x.zero_()
    return [*m.autograd.grad(z.sum(), [y])]


PROGRAMS = (
    a_write_without_gradients,
    a_write_with_gradients,
    uses_before_and_after_a_write_without_gradients,
    a_hook_on_a_view,
    the_kept_gradient_of_a_view,
    hooks_before_and_after_a_write,
    a_hook_on_the_tensor_asked_for,
    a_tensor_asked_for_twice,
    a_second_derivative_by_a_result,
    a_gradient_that_reads_nothing_overwritten,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_in_pytorch(torch: Any, program: Callable[[Any], list[Any]]) -> None:
    ours, theirs = program(tw), program(torch)
    assert [_plain(v) for v in ours] == [_plain(v) for v in theirs]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
