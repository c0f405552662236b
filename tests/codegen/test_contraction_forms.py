"""Contractions in other forms: interleaved strides, sums over windows and along rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graphs import check, random_leaves, reference

from tilewright.codegen.legalize.interleave import InterleaveStrides
from tilewright.codegen.legalize.sums import SumDepthwise, SumVectors
from tilewright.codegen.target import CUDA, LLVM, Target
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import float64
from tilewright.ir.node import Node
from tilewright.ir.shape import Size


def leaf(index: int, shape: tuple[int, ...], dtype: Any = float64) -> Node:
    return ops.leaf(index, Size(shape), dtype)


def agree(node: Node, other: Node | None, tolerance: float = 1e-12) -> None:
    """Two graphs over the same leaves have the same value."""
    assert other is not None and other.shape == node.shape and other.dtype is node.dtype
    leaves = random_leaves([node])
    wanted, found = reference([node, other], leaves)
    np.testing.assert_allclose(
        found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=10 * tolerance
    )


# image, weight, size of the result, strides, padding, groups
TRANSPOSED: list[tuple[Any, ...]] = [
    ((2, 4, 5), (4, 3, 3), (9,), (2,), ((1, 1),), 1),
    ((2, 4, 5), (4, 3, 4), (10,), (2,), ((1, 1),), 1),
    ((2, 4, 5), (4, 3, 2), (15,), (3,), ((0, 0),), 1),  # gaps that no tap reaches
    ((2, 4, 5), (4, 3, 7), (11,), (3,), ((4, 4),), 1),
    ((2, 4, 5), (4, 3, 3), (2,), (2,), ((4, 5),), 1),  # padding beyond the kernel
    ((2, 4, 5), (4, 3, 3), (10,), (2,), ((1, 0),), 1),  # output padding
    ((2, 4, 4, 5), (4, 3, 3, 3), (7, 10), (2, 2), ((1, 1), (1, 0)), 1),
    ((2, 4, 4, 5), (4, 3, 3, 5), (4, 13), (1, 3), ((1, 1), (2, 2)), 2),
    ((1, 4, 3, 2, 3), (4, 1, 3, 5, 2), (6, 4, 6), (2, 2, 2), ((1, 0), (2, 2), (0, 0)), 4),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=range(len(TRANSPOSED)))
def test_interleaved_strides(case: tuple[Any, ...]) -> None:
    g, w, size, strides, padding, groups = case
    ones = (1,) * len(size)
    node = ops.conv_input_grad(leaf(0, g), leaf(1, w), size, strides, padding, ones, groups)
    agree(node, InterleaveStrides(CUDA)(node))
    assert InterleaveStrides(LLVM)(node) is None


def test_interleaving_leaves_the_rest() -> None:
    g, w = leaf(0, (2, 4, 5)), leaf(1, (4, 3, 3))
    for strides, dilation in (((1,), (1,)), ((2,), (2,))):
        node = ops.conv_input_grad(g, w, (9,), strides, ((1, 1),), dilation, 1)
        assert InterleaveStrides(CUDA)(node) is None


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((2, 5, 9), (5, 1, 3), ((1,), ((0, 0),), (1,))),
        ((2, 5, 9, 8), (5, 1, 3, 5), ((2, 1), ((1, 2), (2, 2)), (1, 2))),
        ((2, 3, 4, 5, 6), (3, 1, 2, 3, 1), ((1, 1, 2), ((1, 1), (0, 0), (0, 1)), (1, 1, 1))),
    ],
)
def test_depthwise_sums(x: Any, w: Any, attrs: Any) -> None:
    node = ops.conv(leaf(0, x), leaf(1, w), *attrs, x[1])
    agree(node, SumDepthwise(CUDA)(node))
    assert SumDepthwise(LLVM)(node) is None
    halves = ops.conv(leaf(0, x, dt.float16), leaf(1, w, dt.float16), *attrs, x[1])
    agree(halves, SumDepthwise(CUDA)(halves), 2e-3)
    weight = ops.conv_weight_grad(leaf(2, node.shape), leaf(0, x), w[2:], *attrs, x[1])
    agree(weight, SumDepthwise(CUDA)(weight))
    image = ops.conv_input_grad(leaf(2, node.shape), leaf(1, w), x[2:], *attrs, x[1])
    if set(attrs[0]) == {1}:
        agree(image, SumDepthwise(CUDA)(image))
    else:
        assert SumDepthwise(CUDA)(image) is None


def test_a_wide_border_of_a_gradient_stays() -> None:
    """Of whose places nothing would be seen through the turned kernel."""
    node = ops.conv_input_grad(
        leaf(0, (2, 5, 13)), leaf(1, (5, 1, 3)), (9,), (1,), ((3, 3),), (1,), 5
    )
    assert SumDepthwise(CUDA)(node) is None


def test_only_depthwise_is_a_sum() -> None:
    for x, w, groups in (
        ((2, 6, 9), (6, 2, 3), 3),
        ((2, 3, 9), (3, 3, 3), 1),
        ((2, 1, 9), (6, 1, 3), 1),
    ):
        node = ops.conv(leaf(0, x), leaf(1, w), (1,), ((0, 0),), (1,), groups)
        assert SumDepthwise(CUDA)(node) is None


def test_several_channels_of_each() -> None:
    x, w = leaf(0, (2, 3, 9, 8)), leaf(1, (12, 1, 3, 2))
    node = ops.conv(x, w, (1, 1), ((1, 1), (0, 1)), (1, 1), 3)
    agree(node, SumDepthwise(CUDA)(node))


@pytest.mark.parametrize(
    ("a", "b"),
    [((200, 300), (300, 1)), ((2, 3, 70, 90), (90, 1)), ((70, 90), (2, 3, 90, 1))],
)
def test_a_matrix_times_a_vector(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    node = ops.matmul(leaf(0, a), leaf(1, b))
    agree(node, SumVectors(LLVM)(node))
    agree(node, SumVectors(CUDA)(node))
    halves = ops.matmul(leaf(0, a, dt.bfloat16), leaf(1, b, dt.bfloat16))
    agree(halves, SumVectors(LLVM)(halves), 1e-2)
    assert SumVectors(CUDA)(halves) is None  # tensor cores read them as fast


def test_which_products_stay() -> None:
    for a, b in (((20, 30), (30, 1)), ((200, 300), (300, 2)), ((1, 300), (300, 200))):
        node = ops.matmul(leaf(0, a), leaf(1, b))
        assert SumVectors(LLVM)(node) is None


def test_kernels() -> None:
    """A depthwise convolution with what follows it is one kernel; what is interleaved is stored by
    the kernel that computes what follows."""
    x, w, bias = leaf(0, (2, 5, 9, 8)), leaf(1, (5, 1, 3, 3)), leaf(2, (5, 1, 1))
    deep = ops.conv(x, w, (1, 1), ((1, 1), (1, 1)), (1, 1), 5)
    assert len(check([ops.relu(deep + bias)], CUDA).steps) == 1
    w = leaf(1, (5, 3, 3, 3))
    wide = ops.conv_input_grad(x, w, (18, 16), (2, 2), ((1, 0), (1, 0)), (1, 1), 1)
    assert len(check([ops.tanh(wide)], CUDA).steps) <= 3


def test_a_weight_is_turned_for_many_rows() -> None:
    """Where threads multiply float32 without tensor cores. Few rows read it as it lies."""

    def kernels(rows: int, dtype: dt.DType = dt.float32, target: Target = CUDA) -> list[str]:
        x, w = leaf(0, (rows, 64), dtype), leaf(1, (48, 64), dtype)
        product = ops.matmul(x, ops.permute(w, (1, 0)))
        return [s.kernel.name for s in check([product], target).steps]

    assert kernels(256) == ["permute_copy", "matmul_dot"]
    assert kernels(64) == ["matmul_dot"]
    assert kernels(256, dt.bfloat16) == kernels(256, dt.float8_e5m2) == ["matmul_dot"]
    assert kernels(256, target=replace(CUDA, tf32=True)) == ["matmul_dot"]
    assert kernels(256, target=LLVM) == ["matmul_dot"]
