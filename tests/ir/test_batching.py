"""The rules of batching: each record on a batch, against itself on one example after another."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from graph_oracle import Case, run
from op_cases import CASES
from probes import probe

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.batching import Batching
from tilewright.ir.shape import Size

SIZE = 3
SLOW = {"grouped_matmul", "grouped_weight_grad"}
"""Ops that may run on one example after another."""


@dataclasses.dataclass(frozen=True, eq=False)
class Batch(Case):
    """A case on examples of a batch. places: of the inputs that differ between the examples."""

    places: tuple[int, ...] = ()

    def leaves(self, dtype: Any = None) -> dict[Node, np.ndarray]:
        found: dict[Node, np.ndarray] = {}
        for i, (leaf, array) in enumerate(super().leaves(dtype).items()):
            node = leaf.operands[0] if leaf.op is ops.variable else leaf
            if i in self.places:
                whole = ops.leaf(("batch", i), Size((SIZE, *node.shape)), node.dtype)
                node = ops.example(whole, 0)
            found[ops.variable(node, i) if leaf.op is ops.variable else node] = array
        return found


def examples(array: np.ndarray, moves: bool) -> list[np.ndarray]:
    """The array and, as another example, its elements in reverse order. Symmetric matrices stay
    symmetric."""
    turned = array.reshape(-1)[::-1].reshape(array.shape) if moves else array
    return [array, turned, array]


def check(each: Case, places: tuple[int, ...], derivatives: bool) -> set[str]:
    """Compare a batch with its examples; returns the names of ops without a rule."""
    roots, values, _ = probe(each)
    of = Batch(each.name, each.f, each.torch, each.inputs, places)
    batched, given, _ = probe(of)
    if not derivatives:
        roots, batched = roots[:1], batched[:1]
    batch = Batching(0, SIZE)
    made = [batch.whole(root) for root in batched]
    assert [tuple(m.shape) for m in made] == [(SIZE, *r.shape) for r in roots]
    # Positions and bounds have an order that must stay.
    parts = [
        examples(a, a.dtype.kind in "fV") if i in places else [a] * SIZE
        for i, a in enumerate(each.inputs)
    ]
    whole: dict[Node, np.ndarray] = {}
    for i, (node, array) in enumerate(given.items()):
        if i in places:
            inner = node.operands[0] if node.op is ops.variable else node
            whole[inner.operands[0]] = np.stack(parts[i])
        else:
            whole[node] = array
    actual = run(made, whole)
    for k in range(SIZE):
        own = dict(values)
        for node, part in zip(values, parts):
            own[node] = part[k]
        for mine, theirs in zip(actual, run(roots, own), strict=True):
            np.testing.assert_allclose(mine[k], theirs, rtol=1e-9, atol=1e-9)
    return batch.slow


def variants(each: Case) -> list[tuple[int, ...]]:
    """All inputs differ, or all but one, or one alone."""
    every = tuple(range(len(each.inputs)))
    found = {every, *((i,) for i in every), *(tuple(j for j in every if j != i) for i in every)}
    return sorted(found - {()})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)
def test_each_record_on_a_batch(each: Case) -> None:
    places = tuple(range(len(each.inputs)))
    if places:
        assert check(each, places, derivatives=False) <= SLOW


@pytest.mark.slow
@pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)
def test_derivatives_and_shared_operands(each: Case) -> None:
    for places in variants(each):
        assert check(each, places, derivatives=True) <= SLOW


def test_an_op_without_a_rule_runs_on_each_example() -> None:
    x = ops.leaf("x", Size((2, 3)), dtypes.float64)
    value = ops.leaf("value", Size((2,)), dtypes.float64)
    padded = ops.pad(ops.example(x, 0), (1,), (2,), value=ops.example(value, 0))
    batch = Batching(0, 2)
    made = batch.whole(padded)
    assert batch.slow == {"pad"}
    given = {x: np.arange(6.0).reshape(2, 3), value: np.array([7.0, 8.0])}
    assert run([made], given)[0].tolist() == [[7, 0, 1, 2, 7, 7], [8, 3, 4, 5, 8, 8]]
    empty = Batching(0, 0)
    none = ops.leaf("none", Size((0, 3)), dtypes.float64)
    shared = ops.leaf("shared", Size((0,)), dtypes.float64)
    padded = ops.pad(ops.example(none, 0), (1,), (2,), value=ops.example(shared, 0))
    assert empty.whole(padded).shape == (0, 6)
