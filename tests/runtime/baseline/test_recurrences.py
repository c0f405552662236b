"""Recurrent cells by the pack's kernels, beside the reference in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from graph_oracle import assert_close

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.recurrence import (
    CELLS,
    cell_cotangents,
    cell_grad,
    cell_state,
    recurrence_grad,
    recurrence_op,
)
from tilewright.ir.reference import evaluate
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import recurrences
from tilewright.runtime.baseline.program import Program
from tilewright.runtime.native import pack

pytestmark = pytest.mark.skipif(not pack.is_here(), reason="the kernels are in the pack")
FLOATS = (dtypes.float32, dtypes.float64)


def _leaves(shapes: list[tuple[int, ...]], dtype: dtypes.DType) -> tuple[list[Node], list[Any]]:
    rng = np.random.default_rng(len(shapes))
    nodes = [ops.leaf(i, Size(shape), dtype) for i, shape in enumerate(shapes)]
    return nodes, [rng.uniform(-0.7, 0.7, shape).astype(dtype.np) for shape in shapes]


def _check(roots: list[Node], nodes: list[Node], arrays: list[Any]) -> None:
    """The roots by a program and by the reference in float64, both op by op."""

    def wide(array: Any) -> Any:
        return array.astype(np.float64) if array.dtype == np.float32 else array

    known = {node: wide(array) for node, array in zip(nodes, arrays, strict=True)}

    def value(node: Node) -> Any:
        if node not in known:
            known[node] = wide(evaluate(node, [value(o) for o in node.operands]))
        return known[node]

    for root, found in zip(roots, Program(roots).run(arrays, ()), strict=True):
        assert found.dtype == root.dtype.np
        tolerance = 1e-12 if root.dtype is dtypes.float64 else 2e-5
        assert_close(found, value(root), tolerance)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", CELLS)
def test_layers_and_their_gradients(name: str, dtype: dtypes.DType) -> None:
    cell = CELLS[name]
    for masked, reverse, biased, keep in itertools.product((False, True), repeat=4):
        steps, batch, width = (5, 3, 9) if masked or reverse else (1, 1, 4)
        gates, state = cell.gates * width, (batch, width)
        shapes = [(steps, batch, gates), *[state] * cell.states, (width, gates)]
        nodes, arrays = _leaves(shapes + [(gates,)] * biased, dtype)
        valid = ops.leaf(len(nodes), Size((steps, batch, 1)), dtypes.bool_)
        mask = np.arange(steps * batch).reshape(steps, batch, 1) % 3 > 0
        operands = [nodes[0], *[valid] * masked, *nodes[1:]]
        attrs = (1 + masked, cell.states, reverse, name, biased, keep)
        layer = recurrence_op(*operands, *attrs)
        assert recurrences.form_of(layer) is not None
        _check([layer], [*nodes, valid], [*arrays, mask])

        count = 2 * cell.states + cell.kept
        shapes = [(steps, batch, width)] * count + [state] * cell.states + [(gates, width)]
        nodes, arrays = _leaves(shapes, dtype)
        valid = ops.leaf(len(nodes), valid.shape, dtypes.bool_)
        operands = [*nodes[:count], *[valid] * masked, *nodes[count:]]
        back = recurrence_grad(*operands, count + masked, cell.states, reverse, name)
        assert recurrences.form_of(back) is not None
        _check([back], [*nodes, valid], [*arrays, mask])


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("batch", [1, 4])
def test_cells_and_their_gradients(name: str, dtype: dtypes.DType, batch: int) -> None:
    cell, width = CELLS[name], 7
    product, state = (batch, cell.gates * width), (batch, width)
    nodes, arrays = _leaves([state, product, product, *[state] * cell.states], dtype)
    for index in range(cell.states):
        new = cell_state(*nodes[1:], name, index)
        assert recurrences.parts_of(new) is not None
        _check([new], nodes, arrays)
        grads = [cell_grad(*nodes, name, index, i) for i in range(len(nodes) - 1)]
        assert all(recurrences.parts_of(g) is not None for g in grads)
        expected = cell_cotangents(nodes[0], nodes[1:], name, index)
        found = Program(grads).run(arrays, ())
        for ours, theirs in zip(found, Program(expected).run(arrays, ()), strict=True):
            assert_close(ours, theirs, 1e-12 if dtype is dtypes.float64 else 2e-5)


@pytest.mark.parametrize(("dtype", "batch"), [(dtypes.float16, 2), (dtypes.float32, 0)])
def test_what_has_no_kernel_runs_as_before(dtype: dtypes.DType, batch: int) -> None:
    nodes, arrays = _leaves([(3, batch, 4), (batch, 4), (4, 4)], dtype)
    layer = recurrence_op(*nodes, 1, 1, False, "rnn_tanh", False, False)
    assert recurrences.form_of(layer) is None
    x, h, w = arrays
    states = []
    for each in x:
        h = np.tanh(each + h @ w)
        states.append(h.ravel())
    assert_close(Program([layer]).run(arrays, ())[0], np.concatenate(states), 2e-3)
