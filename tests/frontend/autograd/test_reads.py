"""What a backward pass reads is known without deriving it: the values to keep until it comes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from api_cases import every_case

import tilewright as tw
from tilewright.recording import histories

CASES = list(every_case())


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("tracked", [(True, False), (False, True), (True, True)])
def test_all_that_the_derived_graph_reads_is_kept(tracked: tuple[bool, bool], part: int) -> None:
    same = count = 0
    for name, call, shapes in CASES[part::4]:
        with contextlib.suppress(IndexError, RuntimeError, TypeError, ValueError):  # some raise
            tensors = [
                (tw.rand(*s) + 0.25).detach().requires_grad_(tracked[i % 2])
                for i, s in enumerate(shapes)
            ]
            made = call(tw, *[t * 1.5 for t in tensors])
            for y in made if isinstance(made, (tuple, list)) else (made,):
                if not isinstance(y, tw.Tensor):
                    continue
                for root in (y, y.sin() * y, (y * y).sum()):
                    node = root._node
                    if node is None or not node.requires_grad or histories.has_calls(node):
                        continue
                    read = set(histories.derive(node, histories.placeholder(node)).saved)
                    kept = set(histories.reads_of(node))
                    assert read <= kept, name
                    same, count = same + (read == kept), count + 1
    assert count > 50 and same > 0.9 * count  # steps have no slope, so nothing flows through them


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
    (total, grads), (expected, others) = growing_lives(tw, count), growing_lives(torch, count)
    assert total == pytest.approx(expected, rel=1e-4)
    assert grads == pytest.approx(others, rel=1e-4)
