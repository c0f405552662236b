"""Values that are read while the epoch is held: right, and each round of a loop computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.node import beneath
from tilewright.recording import flushing


class Loop(tw.autograd.Function):
    """x, with a backward pass that reads numbers as it goes on."""

    rounds = 0
    seen: list[float]

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        y, Loop.seen = grad.clone(), []
        for i in range(Loop.rounds):
            z = tw.tanh(y * 1.01 + x * 0.1)
            error = (z - y).abs().max()
            y = z + 0.001 * i
            Loop.seen.append(error.item())
            Loop.seen.append(float(y.sum()))
            y[0] = 0.5  # an overwritten value isn't the one that was read
            Loop.seen.append(float(y[0]))
        return y


def _expected(x: Any, rounds: int) -> tuple[Any, list[float]]:
    y, seen = np.ones_like(x), []
    for i in range(rounds):
        z = np.tanh(y * 1.01 + x * 0.1)
        error = np.abs(z - y).max()
        y = z + 0.001 * i
        seen += [error, y.sum()]
        y[0] = 0.5
        seen.append(0.5)
    return y, seen


def _backward(rounds: int) -> int:
    """Run `rounds` in a backward pass; the number of nodes that its reads computed."""
    counted = 0
    whole = flushing.computed

    def counting(roots: Any, buffers: Any) -> Any:
        nonlocal counted
        counted += len(beneath(roots))
        return whole(roots, buffers)

    x = np.linspace(-2, 2, 32)
    t = tw.tensor(x, requires_grad=True)
    Loop.rounds = rounds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flushing, "computed", counting)
        Loop.apply(t).sum().backward()
    grad, seen = _expected(x, rounds)
    np.testing.assert_allclose(t.grad.numpy(), grad, rtol=1e-12)
    np.testing.assert_allclose(Loop.seen, seen, rtol=1e-12)
    return counted


def test_a_backward_function_that_reads_computes_each_round_once() -> None:
    few, many = _backward(10), _backward(40)
    assert many < 5 * few


def test_a_value_is_forgotten_with_its_tensor() -> None:
    """Reads in a long backward pass keep few values of tensors that are gone."""
    from tilewright.recording import reading

    most = 0

    class Watch(tw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            nonlocal most
            y = grad
            for _ in range(50):
                y = y.sin() + 1
                y.sum().item()
                most = max(most, len(reading._known.values))
            return y

    x = tw.ones(8, requires_grad=True)
    Watch.apply(x).sum().backward()
    assert 0 < most <= 3 * reading.FEW
    expected = np.ones(8, np.float32)
    for _ in range(50):
        expected = np.sin(expected) + 1
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


def test_an_error_beneath_another_tensor_is_not_that_of_the_value_read() -> None:
    class Reads(tw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            table = tw.arange(3.0)
            wrong = table[tw.tensor([5])]
            assert (grad + 1).sum().item() == 8
            with pytest.raises(IndexError):
                wrong.sum().item()
            del wrong
            return grad * 3

    x = tw.ones(4, requires_grad=True)
    with pytest.raises(IndexError):  # a call that failed is told of at the end, as on GPUs
        Reads.apply(x).sum().backward()
        x.grad.tolist()


def _inner_gradients(rounds: int) -> int:
    """A backward pass that takes gradients of a small graph in each round, as an adjoint method
    does; the number of nodes that they walked through."""
    from tilewright.recording import derivations

    walked = 0

    def counting(roots: Any) -> Any:
        nonlocal walked
        found = beneath(roots)
        walked += len(found)
        return found

    class Adjoint(tw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            state, total = x.clone(), tw.zeros(4, dtype=tw.float64)
            for _ in range(rounds):
                with tw.enable_grad():
                    y = state.detach().requires_grad_()
                    out = (y.sin() * y).sum()
                    (slope,) = tw.autograd.grad(out, y)
                total += slope * 0.1
                state = state - 0.01 * slope
            return grad * total

    x = np.linspace(0.5, 2, 4)
    t = tw.tensor(x, requires_grad=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivations, "beneath", counting)
        Adjoint.apply(t).sum().backward()
        found = t.grad.numpy()
    state, total = x.copy(), np.zeros(4)
    for _ in range(rounds):
        slope = np.cos(state) * state + np.sin(state)
        total += slope * 0.1
        state = state - 0.01 * slope
    np.testing.assert_allclose(found, total, rtol=1e-12)
    return walked


def test_a_gradient_within_a_pass_walks_through_its_own_graph_alone() -> None:
    few, many = _inner_gradients(10), _inner_gradients(40)
    assert many <= 5 * few + 100
