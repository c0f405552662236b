"""Many results that live until one backward pass, over several epochs."""

from __future__ import annotations

from typing import Any

import pytest
from epoch_programs import calls_at_once

import tilewright as tw


def growing_lives(lib: Any, count: int) -> tuple[float, list[float]]:
    """Many results that live until one backward pass, over several epochs, and after it."""
    w = lib.ones(3, requires_grad=True)
    parts = []
    for i in range(count):
        v = (w * (i * 0.01)).sin().sum()
        parts.append(v * v)
    total = lib.stack(parts).sum()
    total.backward()
    value = total.item()
    with pytest.raises(RuntimeError, match="second time"):
        parts[count // 2].backward()
    return value, w.grad.tolist()


@pytest.mark.parametrize("count", [40, 1500])
def test_many_results_live_until_the_pass(count: int, torch: Any) -> None:
    with calls_at_once(True):
        total, grads = growing_lives(tw, count)
    expected, others = growing_lives(torch, count)
    assert total == pytest.approx(expected, rel=1e-4)
    assert grads == pytest.approx(others, rel=1e-4)
