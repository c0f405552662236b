"""Rules of the graph's algebra: what is left of a graph, and that it has the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_oracle import assert_close, run

import tilewright as tw
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node, reachable
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size


def products(roots: list[Node]) -> int:
    return sum(n.op in (ops.matmul, ops.matmul_wide) for n in reachable(lower_graph(roots)))


def full(number: float, shape: tuple[int, ...], dtype: DType) -> Node:
    return ops.expand(ops.constant(number, dtype), Size(shape))


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("number", [1.0, -0.25])
@pytest.mark.parametrize("wide", [False, True])
def test_a_product_with_one_number_is_a_sum(dtype: DType, number: float, wide: bool) -> None:
    """Also in batches, turned, and with an infinite or undefined element."""
    build = ops.matmul_wide if wide and dtype in dt.HALVES else ops.matmul
    x = ops.leaf(0, Size((2, 5, 4)), dtype)
    values = np.random.default_rng(0).normal(size=(2, 5, 4))
    values[0, 1, 2], values[1, 0, 0] = np.inf, np.nan
    given = {x: values.astype(dtype.np)}
    turned = ops.permute(full(number, (6, 4), dtype), (1, 0))
    roots = [build(full(number, (3, 5), dtype), x), build(x, turned)]
    assert products(roots) == 0
    exact = given[x].astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = [np.full((3, 5), number) @ exact, exact @ np.full((4, 6), number)]
    tolerance = {2: 8e-3, 4: 1e-6, 8: 1e-14}[roots[0].dtype.itemsize]
    for found, wanted in zip(run(roots, given), expected):
        assert_close(found.astype(np.float64), wanted, tolerance)


@pytest.mark.usefixtures("fused")
def test_gradients_of_what_is_added_up(torch: Any) -> None:
    def gradients(T: Any, x: Any, w: Any, b: Any) -> list[Any]:
        T.nn.functional.linear(x, w, b).mean().backward()
        return [a.grad for a in (x, w, b)]

    arrays = [np.random.default_rng(i).normal(size=s) for i, s in enumerate(((7, 5), (3, 5), (3,)))]
    found, expected = (
        gradients(T, *(T.tensor(a).requires_grad_() for a in arrays)) for T in (tw, torch)
    )
    for mine, theirs in zip(found, expected):
        assert_close(mine.numpy(), theirs.numpy(), 1e-14)
