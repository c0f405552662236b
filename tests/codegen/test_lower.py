"""Every family of ops through codegen: kernels run number by number against node-by-node NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from graphs import check

from tilewright.codegen.target import CUDA, NUMPY, Target
from tilewright.ir import ops
from tilewright.ir.dtype import bfloat16, bool_, float16, float32, float64, int32, int64
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

TARGETS = pytest.mark.parametrize("target", [NUMPY, CUDA], ids=lambda t: t.name)


def leaf(index: int, *shape: int, dtype=float64) -> Node:
    return ops.leaf(index, Size(shape), dtype)


def _elementwise() -> list[Node]:
    a, b, c = leaf(0, 3, 4), leaf(1, 4), leaf(2, 3, 1)
    return [ops.exp(a) * b + c, ops.where(a > 0, b, c), ops.cast(a * 3, int64)]


def _scalars() -> list[Node]:
    a, lr, step = leaf(0, 3, 4), ops.scalar(1, float64), ops.scalar(2, int64)
    return [a * lr, ops.cast(step, float64) + lr, lr]


def _movement() -> list[Node]:
    a = leaf(0, 4, 6, 2)
    moved = ops.permute(ops.reshape(a, (4, 2, 3, 2)), (2, 0, 3, 1))
    return [
        moved + 1,
        ops.reshape(moved, (6, 8)),
        ops.slice_(a, (1, 0, 0), (4, 6, 2), (2, 3, 1)),
        ops.flip(a, (0, 2)) * a,
        ops.expand(ops.slice_axis(a, 1, 2, 3), (4, 6, 2)) - a,
        ops.reshape(ops.permute(a, (2, 1, 0)), (12, 4)),
    ]


def _reshape_chain() -> list[Node]:
    a = leaf(0, 6, 8)
    b = ops.permute(ops.reshape(a, (2, 3, 4, 2)), (1, 3, 0, 2))
    c = ops.reshape(ops.exp(b), (6, 8))
    return [c, ops.reshape(ops.permute(ops.reshape(c, (3, 16)), (1, 0)), (48,)) * 2]


def _pad() -> list[Node]:
    a = leaf(0, 3, 4)
    return [
        ops.pad(a, (1, 0), (2, 1), (1, 2)),
        ops.pad(a, (1, 2), (0, 1), (0, 0), ops.constant(5.0, float64)) * 2,
        ops.pad(ops.slice_axis(a, 0, 0, 0), (2, 0), (1, 0)) + 1,
        ops.pad(leaf(1, 1, 2), (2, 1), (1, 1), (3, 1)),
    ]


def _cat() -> list[Node]:
    a, b, c = leaf(0, 2, 3), leaf(1, 4, 3), leaf(2, 1, 3)
    joined = ops.cat([a, b, ops.slice_axis(a, 0, 0, 0), ops.exp(c)], 0)
    return [joined * 2, ops.slice_axis(joined, 0, 1, 3), ops.reshape(joined, (3, 7))]


def _windows() -> list[Node]:
    a = leaf(0, 2, 9, 7)
    w = ops.windows(ops.exp(a), (1, 2), (3, 2), (2, 1), (2, 3))
    return [ops.max(w, (3, 4)), ops.fold(w, a.shape, (1, 2), (3, 2), (2, 1), (2, 3))]


def _gather() -> list[Node]:
    x, i, j = leaf(0, 5, 4, 3), leaf(1, 2, 3, dtype=int64), leaf(2, 3, dtype=int64)
    rows = ops.gather(x, i, 0)
    position = ops.iota(3)
    return [
        rows,
        ops.gather(x, i, j, 0),
        ops.gather(ops.exp(x) * 2, j, 1),
        ops.gather(x, position + 1, j, 0),
        ops.gather(x, ops.constant(2, int64), 1),
    ]


def _reduce() -> list[Node]:
    x, b = leaf(0, 3, 4, 5), leaf(1, 3, 4, dtype=bool_)
    whole = [f(x, (0, 2)) for f in (ops.sum, ops.prod, ops.max, ops.min)]
    return [
        *whole,
        ops.argmax(x, (1, 2)),
        ops.argmin(x, (0,)),
        ops.any(b, (1,)),
        ops.all(b, (0,)),
        ops.sum(ops.permute(x, (2, 0, 1)), (0, 1)),
        ops.sum(ops.exp(ops.sum(x, (2,))), (0,)),
        ops.prod(ops.expand(leaf(2, 3, 1), (3, 4)), (1,)),
        ops.sum(ops.slice_axis(x, 1, 0, 1), (1,)),
    ]


def _empty() -> list[Node]:
    x = leaf(0, 3, 0, 2)
    return [
        ops.sum(x, (1,)) + 1,
        ops.prod(x, (1, 2)),
        ops.all(x > 0, (1,)),
        ops.any(x > 0, (0, 1)),
        ops.exp(x),
        ops.sum(x, (0,)),
        ops.matmul(leaf(1, 2, 0), leaf(2, 0, 3)),
        ops.gather(x, ops.slice_axis(leaf(3, 2, dtype=int64), 0, 0, 0), 0),
        ops.scatter(leaf(4, 3, 2), ops.slice_axis(leaf(4, 3, 2), 0, 0, 0),
                    ops.slice_axis(leaf(3, 2, dtype=int64), 0, 0, 0), 0, "add"),
    ]  # fmt: skip


def _normalization() -> list[Node]:
    x, w, b = leaf(0, 3, 4, 6), leaf(1, 6), leaf(2, 6)
    return [ops.softmax(x, 1), ops.layer_norm(x, 1, w, b, 1e-5), ops.log_softmax(x, 2)]


def _scan() -> list[Node]:
    x = leaf(0, 3, 5)
    return [
        ops.cumsum(x, 1),
        ops.exp(ops.cumprod(x * 2, 0)) + 1,
        ops.cumsum(ops.sum(x, (0,)), 1),
        ops.cummax_index(x, 1),
        ops.cummin_index(x, 0),
        ops.cumsum(ops.cumsum(x, 0), 1),
        ops.cumsum(ops.softmax(x, 1), 1),
        ops.sum(ops.cumsum(x, 1), (1,)),
    ]


def _sort() -> list[Node]:
    x, i = leaf(0, 3, 6), leaf(1, 2, 7, dtype=int64)
    order = ops.argsort(ops.exp(x), 1)
    return [order, ops.argsort(i, 1, True), ops.argsort(x, 0), ops.take_along(x, order, 1)]


def _matmul() -> list[Node]:
    a, b, bias = leaf(0, 4, 3), leaf(1, 3, 5), leaf(2, 5)
    y = ops.relu(ops.matmul(a, b) + bias)
    return [y, ops.matmul(ops.transpose(a), ops.exp(y)), ops.permute(ops.matmul(a * 2, b), (1, 0))]


def _batched() -> list[Node]:
    a, b, c = leaf(0, 2, 1, 3, 4), leaf(1, 5, 4, 2), leaf(2, 3, 1)
    heads = ops.matmul(ops.permute(a, (1, 0, 2, 3)), leaf(3, 2, 4, 2))
    merged = ops.reshape(ops.permute(heads, (0, 2, 1, 3)), (3, 4))
    return [ops.matmul(a, b), ops.matmul(c, leaf(4, 1, 3)), ops.matmul(merged, leaf(5, 4, 2))]


def _conv(**settings: tuple) -> Callable[[], list[Node]]:
    def build() -> list[Node]:
        stride, padding = settings["stride"], settings["padding"]
        dilation, groups = settings["dilation"], settings["groups"]
        x, w, bias = leaf(0, 2, 4, 6, 5), leaf(1, 6, 4 // groups, 3, 2), leaf(2, 6, 1, 1)
        attrs = (stride, padding, dilation, groups)
        y = ops.conv(x, w, *attrs)
        g = leaf(3, *y.shape)
        return [
            ops.relu(y + bias),
            ops.conv_input_grad(g, w, (6, 5), *attrs),
            ops.conv_weight_grad(g, x, (3, 2), *attrs),
        ]

    return build


def _scatter() -> list[Node]:
    x, v = leaf(0, 5, 3), leaf(1, 4, 3)
    i, j = leaf(2, 4, dtype=int64), leaf(3, 5, dtype=int64)
    own = ops.iota(5)
    return [
        *(ops.scatter(x, v * 2, i, 0, mode) for mode in ("set", "add", "mul", "max", "min")),
        ops.scatter(ops.zeros_like(x), leaf(4, 5), own, j, 0, "add"),
        ops.scatter(ops.scatter(x, v, i, 0, "add"), v, i, 0, "set") + 1,
        ops.scatter(ops.exp(x), ops.expand(v, (2, 4, 3)), leaf(5, 2, 4, dtype=int64), 0, "add"),
    ]


def _random() -> list[Node]:
    seed, offset = ops.scalar(0, int64), ops.scalar(1, int64)
    bits = ops.random_bits(seed, offset, (3, 4))
    x = leaf(0, 3, 4)
    keep = ops.cast(bits, float64) * (1 / 2**32) > 0.5
    return [bits, ops.where(keep, x, ops.zeros_like(x)) * 2, ops.transpose(bits)]


def _copies() -> list[Node]:
    x = leaf(0, 3, 4)
    return [
        x,
        ops.reshape(x, (12,)),
        ops.transpose(x),
        ops.constant(3.0, float64),
        ops.zeros_like(x),
        ops.reshape(ops.exp(x), (2, 6)),
        ops.exp(x),
        ops.iota(4),
        ops.scalar(1, float64),
    ]


def _shared() -> list[Node]:
    x = leaf(0, 4, 6)
    y = ops.exp(ops.sin(x)) * 2
    return [
        ops.sum(y, (0,)),
        ops.sum(y, (1,)),
        ops.transpose(y) + 1,
        ops.matmul(y, ops.transpose(y)),
    ]


GRAPHS: dict[str, Callable[[], list[Node]]] = {
    "elementwise": _elementwise,
    "scalars": _scalars,
    "movement": _movement,
    "reshape_chain": _reshape_chain,
    "pad": _pad,
    "cat": _cat,
    "windows": _windows,
    "gather": _gather,
    "reduce": _reduce,
    "empty": _empty,
    "normalization": _normalization,
    "scan": _scan,
    "sort": _sort,
    "matmul": _matmul,
    "batched": _batched,
    "scatter": _scatter,
    "random": _random,
    "copies": _copies,
    "shared": _shared,
}
for number, (stride, padding, dilation, groups) in enumerate(
    [
        ((1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        ((1, 1), ((1, 1), (1, 0)), (1, 1), 1),
        ((2, 1), ((2, 1), (0, 1)), (1, 2), 1),
        ((2, 3), ((1, 1), (1, 1)), (2, 1), 2),
    ]
):
    GRAPHS[f"conv{number}"] = _conv(
        stride=stride, padding=padding, dilation=dilation, groups=groups
    )


@TARGETS
@pytest.mark.parametrize("name", GRAPHS)
def test_values(name: str, target: Target) -> None:
    check(GRAPHS[name](), target)


@TARGETS
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
def test_half_types(dtype, target: Target) -> None:
    x, w = leaf(0, 4, 6, dtype=dtype), leaf(1, 6, 3, dtype=dtype)
    roots = [
        ops.matmul(ops.relu(x), w) + 1,
        ops.sum(x * x, (1,)),
        ops.softmax(x, 1),
        ops.cast(ops.cast(leaf(2, 4, 6, dtype=float32), dtype), float32) * 3,
        ops.argmax(x, (0,)),
    ]
    check(roots, target, tolerance=1e-5 if dtype is float32 else 4e-2)


def test_a_cast_to_a_half_type_rounds_inside_of_a_kernel() -> None:
    x = leaf(0, 5, dtype=float32)
    check([ops.cast(ops.cast(x * 1.37, bfloat16), float32) + 0], CUDA, tolerance=0)


@TARGETS
def test_sort_with_nan(target: Target) -> None:
    x = leaf(0, 2, 7)
    value = np.array([[3, np.nan, -1, 3, np.inf, np.nan, 0], [1, 1, 1, -np.inf, 2, 2, -np.inf]])
    check([ops.argsort(x, 1), ops.argsort(x, 1, True)], target, {x: value})
    check([ops.cummax_index(x, 1), ops.cummin_index(x, 1)], target, {x: value})


@TARGETS
def test_an_index_out_of_range_is_found(target: Target) -> None:
    x, i = leaf(0, 4, 2), leaf(1, 3, dtype=int64)
    with pytest.raises(IndexError, match="out of bounds"):
        check([ops.gather(x, i, 0)], target, {x: np.zeros((4, 2)), i: np.array([0, 4, 1])})


def test_a_deep_chain_needs_no_deep_stack() -> None:
    x = leaf(0, 3)
    y = x
    for _ in range(1500):
        y = y * 1.5 - x
    program = check([y], CUDA, {x: np.full(3, 1e-3)}, tolerance=1e-3)
    assert len(program.steps) < 40


@TARGETS
def test_integer_arithmetic_on_positions_needs_no_data(target: Target) -> None:
    x = leaf(0, 8)
    at = ops.iota(3) * 2 + ops.constant(1, int64)
    program = check([ops.gather(x, at, 0)], target)
    assert [len(s.kernel.values) for s in program.steps] == [1]


@TARGETS
def test_int_matmul(target: Target) -> None:
    check([ops.matmul(leaf(0, 2, 3, dtype=int32), leaf(1, 3, 2, dtype=int32))], target)


@TARGETS
@pytest.mark.parametrize(
    "shape, order", list(itertools.product([(4, 6), (2, 3, 4)], ["flat", "back"]))
)
def test_roots_that_are_permuted(shape, order, target: Target) -> None:
    x = leaf(0, *shape)
    y = ops.exp(x) * 2
    axes = tuple(range(len(shape)))[::-1]
    turned = ops.permute(y, axes)
    roots = [y, turned] if order == "flat" else [ops.reshape(turned, (-1,)), turned + 1]
    check(roots, target)
