"""A graph of a known structure is fused as it was in other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.nn.functional as F
from tilewright import recording
from tilewright.codegen import fusion
from tilewright.codegen.fusion import precedents
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.target import CUDA, LLVM, NUMPY, Target
from tilewright.ir import ops
from tilewright.ir.dtype import float32
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    recording.clear_tables()
    yield
    recording.clear_tables()


def leaf(number: int, *shape: int) -> Node:
    return ops.leaf(number, Size(shape), float32)


def network(rows: int, width: int = 24) -> list[Node]:
    """Two layers that normalize, and the sums of a loss."""
    x = leaf(0, rows, width)
    for i in (1, 2):
        x = x + ops.softmax(ops.matmul(ops.tanh(x), leaf(i, width, width)), 1)
    return [x, ops.mean(x * x, (0,))]


def update(rows: int) -> list[Node]:
    """A step of gradient descent: bundles of updates."""
    parameters = [leaf(i, rows, 5 + i) for i in range(3)]
    gradients = [ops.tanh(p) * p for p in parameters]
    return [p - g * ops.constant(0.1, float32) for p, g in zip(parameters, gradients)]


def compiled(roots: list[Node], target: Target) -> Program:
    return compile_graph(lower_graph(roots), target)


def searches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each search for merges from now on."""
    seen: list[Any] = []
    usual = fusion.Partition.merge

    def merge(self: Any, state_only: bool = False) -> None:
        seen.append(self)
        usual(self, state_only)

    monkeypatch.setattr(fusion.Partition, "merge", merge)
    return seen


def steps(program: Program) -> list[tuple[str, ...]]:
    return [tuple(n.op.name for n in step.nodes) for step in program.steps]


@pytest.mark.parametrize("target", [LLVM, NUMPY, CUDA], ids=lambda t: t.name)
@pytest.mark.parametrize("make", [network, update])
def test_other_sizes_are_fused_without_a_search(
    make: Callable[[int], list[Node]], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = compiled(make(50), target)
    recording.clear_tables()
    compiled(make(44), target)
    seen = searches(monkeypatch)
    found = compiled(make(50), target)
    assert not seen
    assert steps(found) == steps(alone)
    assert sorted(s.shape for s in found.slots) == sorted(s.shape for s in alone.slots)
    assert found.report == alone.report


def test_twice_the_size_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pays for a few elements may not pay for many."""
    compiled(network(44), LLVM)
    seen = searches(monkeypatch)
    compiled(network(88), LLVM)
    assert seen


def test_sizes_that_only_happen_to_agree_are_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds of equally many rows share a kernel. Others can't, and the graph is fused anew."""

    def two(rows: int) -> list[Node]:
        factor = leaf(2, 1)
        return [ops.sum(leaf(i, n, 8) * factor, (1,)) for i, n in enumerate((rows, 40))]

    apart = compiled(two(50), LLVM)
    recording.clear_tables()
    assert len(compiled(two(40), LLVM).steps) == 1
    seen = searches(monkeypatch)
    found = compiled(two(50), LLVM)
    assert seen
    assert steps(found) == steps(apart) and len(found.steps) == 2


def test_precedents_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(network(1), LLVM)
    (key,) = precedents._precedents[LLVM]
    monkeypatch.setattr(precedents, "MOST", 4 * len(key))
    counts = []
    for power in range(4, 12):
        compiled(network(1 << power), LLVM)
        found = precedents._precedents[LLVM]
        assert sum(map(len, found)) <= 4 * len(key)
        counts.append(len(found))
    assert max(counts) > 1 and counts != sorted(counts), "they came, and were forgotten"


def test_values_in_many_sizes() -> None:
    """Rows of any number, through kernels that were fused for others."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(12, 12)).astype(np.float32)
    for rows in (33, 40, 41, 47, 48, 50, 63, 64, 65, 1, 2):
        x = rng.normal(size=(rows, 12)).astype(np.float32)
        a = tw.tensor(x, requires_grad=True)
        loss = F.layer_norm(F.softmax(a @ tw.tensor(w), -1), (12,)).square().mean()
        loss.backward()
        p = np.exp(x.astype(np.float64) @ w)
        p /= p.sum(-1, keepdims=True)
        n = (p - p.mean(-1, keepdims=True)) / np.sqrt(p.var(-1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(loss.item(), (n**2).mean(), rtol=1e-4)
        assert a.grad is not None and np.isfinite(a.grad.numpy()).all()


def test_other_orders_of_dimensions_are_another_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(order: tuple[int, ...]) -> list[Node]:
        x = leaf(0, 9, 10, 11)
        return [ops.tanh(ops.permute(x, order)) + ops.permute(x, order), ops.sum(x, (0,))]

    compiled(turned((1, 0, 2)), LLVM)
    seen = searches(monkeypatch)
    compiled(turned((2, 1, 0)), LLVM)
    assert seen
