"""torch.cond and while_loop. PyTorch's own aren't called here: they load its compiler, which sets
defaults of the whole process (checks of distributions, how Python calls functions)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_on_a_value_has_its_gradient(sign: int) -> None:
    data = sign * np.array([0.5, 1.0, 2.0])
    x = tw.tensor(data, requires_grad=True)
    y = tw.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    y.sum().backward()
    value, slope = (np.sin, np.cos) if sign > 0 else (np.cos, lambda v: -np.sin(v))
    np.testing.assert_allclose(y.detach().numpy(), value(data), rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), slope(data), rtol=1e-12)


def test_a_loop_carries_its_values() -> None:
    def halve(i: Any, x: Any) -> tuple[Any, Any]:
        return i + 1, x / 2

    i, x = tw.while_loop(lambda i, x: i < 3, halve, (tw.tensor(0), tw.ones(3)))
    assert i.item() == 3 and x.tolist() == [0.125] * 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f: tw.cond(tw.ones(2) > 0, f, f, (tw.ones(3),)), "single-element tensor"),
        (lambda f: tw.cond(tw.tensor(True), f, 3, (tw.ones(3),)), "branches to be callable"),
        (lambda f: tw.cond(tw.tensor(True), f, f, (3,)), "consists of tensor leaves"),
        (lambda f: tw.while_loop(lambda x: True, f, tw.ones(3)), "tuple or list"),
        (lambda f: tw.while_loop(lambda x: True, f, (tw.ones(3),)), "tuple of 1 values"),
    ],
)
def test_errors(call: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        call(lambda x: x)
