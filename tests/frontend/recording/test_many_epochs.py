"""Gradients and hooks of tensors that several epochs use, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from epoch_programs import calls_at_once, difference

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


def views_of_views_after_a_write(m: Any) -> list[Any]:
    x = leaf(m) * 2
    first = x[:2]
    second, windows = first[1:], x[...].unfold(0, 2, 1)
    last = windows[1]
    first.mul_(3.0)
    grads = m.autograd.grad(
        (second * second).sum() + last.sum(), [first, windows, x], allow_unused=True
    )
    return [*grads]


def a_write_to_an_empty_view(m: Any) -> list[Any]:
    x = leaf(m) * 2
    y = x + 1
    x[1:1].mul_(3.0)
    x[3:] = 5.0
    before = m.autograd.grad(y.sum(), [x], allow_unused=True, retain_graph=True)
    x.sum().item()
    x[1:1] = 2.0
    return [*before, x.requires_grad, *m.autograd.grad(x.sum(), [x])]


def a_view_of_a_view_of_an_earlier_epoch(m: Any) -> list[Any]:
    p = leaf(m)
    x = p * 2
    v = x[:2]
    x.sum().item()
    w = v[1:]
    u = w.reshape(())
    u.item()  # ends the epoch that made both
    return [*m.autograd.grad((u * u).sum(), [w, v, x, p])]


def a_hook_after_a_write_without_gradients(m: Any) -> list[Any]:
    x, seen = leaf(m) * 2, []
    y = x * 3
    with m.no_grad():
        x.copy_(m.ones(3, dtype=m.float64))
    x.register_hook(lambda g: seen.append(g.tolist()))
    (y + x).sum().backward()
    return [x.detach(), *seen]


def a_hook_on_a_view_that_is_written_to(m: Any) -> list[Any]:
    x, seen = leaf(m) * 2, []
    v = x[...]
    v.register_hook(lambda g: seen.append(g.tolist()))
    v.sub_(1.0)
    (x * x).sum().backward(retain_graph=True)
    v.sum().item()
    v.mul_(2.0)
    (v * x).sum().backward()
    return seen


def one_tensor_asked_for_twice_after_its_epoch(m: Any) -> list[Any]:
    x = leaf(m) * 2
    x.sum().item()
    return [*m.autograd.grad(x.sum(), [x, x.contiguous()])]


def hooks_on_results_of_one_expression(m: Any) -> list[Any]:
    p, seen = leaf(m), []
    one, other = p * p, p * p
    y = one * other * other
    other.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward(retain_graph=True)
    y.sum().item()
    one.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward(retain_graph=True)
    return [*seen, *m.autograd.grad(y.sum(), [one, other])]


def a_result_whose_expression_was_overwritten(m: Any) -> list[Any]:
    x = leaf(m) * 2
    one = x * 2
    y = one * 3
    one.add_(1.0)
    other = x * 2
    return [*m.autograd.grad(y.sum() + one.sum(), [other, x], allow_unused=True)]


def numbers_that_meet_in_views(m: Any) -> list[Any]:
    p = m.tensor(3.0, dtype=m.float64, requires_grad=True)
    x = p * 2
    row = x.reshape(1)
    (x * 0.25 + row.sum() + x * 2 + row.reshape(()) * 3).backward()
    return [p.grad]


def a_step_over_tensors_that_share_memory(m: Any) -> list[Any]:
    p = leaf(m)
    part = p.detach()[:2].requires_grad_()
    (p.square().sum() + (part * 3).sum()).backward()
    m.optim.SGD([p, part], lr=0.5).step()
    return [p.detach(), part.detach()]


def a_write_to_a_detached_part(m: Any) -> list[Any]:
    x = leaf(m) * 2
    row = x[1:]
    part = row[:1].detach()
    y = row * 0.25 - part
    part.fill_(5.0)
    return [*m.autograd.grad(y.sum(), [x], retain_graph=True), x.detach()]


PROGRAMS = (
    a_write_to_a_detached_part,
    views_of_views_after_a_write,
    a_write_to_an_empty_view,
    a_view_of_a_view_of_an_earlier_epoch,
    a_hook_after_a_write_without_gradients,
    a_hook_on_a_view_that_is_written_to,
    one_tensor_asked_for_twice_after_its_epoch,
    hooks_on_results_of_one_expression,
    a_result_whose_expression_was_overwritten,
    numbers_that_meet_in_views,
    a_step_over_tensors_that_share_memory,
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


@pytest.mark.parametrize("at_once", [False, True], ids=["recorded", "at once"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_in_pytorch(torch: Any, program: Callable[[Any], list[Any]], at_once: bool) -> None:
    with calls_at_once(at_once):
        ours = program(tw)
    theirs = program(torch)
    assert [_plain(v) for v in ours] == [_plain(v) for v in theirs]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize("at_once", [False, True], ids=["recorded", "at once"])
def test_random_programs(torch: Any, at_once: bool) -> None:
    for seed in range(100, 124):
        assert difference(seed, tw, torch, at_once=at_once) is None
