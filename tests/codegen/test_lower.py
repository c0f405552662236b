"""Every family of ops through codegen, on every engine of the CPU, against node-by-node NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from engines import device
from graph_forms import (
    GRAPHS,
    leaf,
)
from graphs import check

from tilewright.codegen.target import CUDA, LLVM, NUMPY, Target
from tilewright.ir import ops
from tilewright.ir.dtype import bfloat16, float16, float32, int32, int64
from tilewright.runtime.device import Device

TARGETS = pytest.mark.parametrize("target", [NUMPY, CUDA], ids=lambda t: t.name)


def each_way(*ways: tuple[str, Target]) -> pytest.MarkDecorator:
    """A test's `engine`, beside the target whose partition it runs: they fuse differently.

    "numbers" interprets kernels one number at a time."""
    return pytest.mark.parametrize(
        ("engine", "target"), ways, ids=[f"{engine}-{target.name}" for engine, target in ways]
    )


NUMBERS = (("numbers", NUMPY), ("numbers", CUDA))
ON_NUMPY = ("numpy", NUMPY)


def on(engine: str) -> Device | None:
    return None if engine == "numbers" else device(engine)


@pytest.mark.sampled(4)
@each_way(*NUMBERS, ON_NUMPY, ("numpy", CUDA), ("llvm", LLVM), ("llvm", NUMPY), ("llvm", CUDA))
@pytest.mark.parametrize("name", GRAPHS)
def test_values(name: str, engine: str, target: Target) -> None:
    check(GRAPHS[name](), target, device=on(engine))


@each_way(*NUMBERS, ON_NUMPY)
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
def test_half_types(dtype, engine: str, target: Target) -> None:
    x, w = leaf(0, 4, 6, dtype=dtype), leaf(1, 6, 3, dtype=dtype)
    roots = [
        ops.matmul(ops.relu(x), w) + 1,
        ops.sum(x * x, (1,)),
        ops.softmax(x, 1),
        ops.cast(ops.cast(leaf(2, 4, 6, dtype=float32), dtype), float32) * 3,
        ops.argmax(x, (0,)),
    ]
    check(roots, target, tolerance=1e-5 if dtype is float32 else 4e-2, device=on(engine))


def test_a_cast_to_a_half_type_rounds_inside_of_a_kernel() -> None:
    x = leaf(0, 5, dtype=float32)
    check([ops.cast(ops.cast(x * 1.37, bfloat16), float32) + 0], CUDA, tolerance=0)


@each_way(*NUMBERS, ON_NUMPY)
def test_sort_with_nan(engine: str, target: Target) -> None:
    x = leaf(0, 2, 7)
    value = np.array([[3, np.nan, -1, 3, np.inf, np.nan, 0], [1, 1, 1, -np.inf, 2, 2, -np.inf]])
    check([ops.argsort(x, 1), ops.argsort(x, 1, True)], target, {x: value}, device=on(engine))
    check([ops.cummax_index(x, 1), ops.cummin_index(x, 1)], target, {x: value}, device=on(engine))


@each_way(*NUMBERS, ON_NUMPY)
def test_an_index_out_of_range_is_found(engine: str, target: Target) -> None:
    x, i = leaf(0, 4, 2), leaf(1, 3, dtype=int64)
    with pytest.raises(IndexError, match="out of bounds"):
        leaves = {x: np.zeros((4, 2)), i: np.array([0, 4, 1])}
        check([ops.gather(x, i, 0)], target, leaves, device=on(engine))


@pytest.mark.parametrize("engine", ["numbers", "numpy"])
def test_a_deep_chain_needs_no_deep_stack(engine: str) -> None:
    x = leaf(0, 3)
    y = x
    for _ in range(1100):  # more than Python lets functions call each other
        y = y * 1.5 - x
    program = check([y], CUDA, {x: np.full(3, 1e-3)}, tolerance=1e-3, device=on(engine))
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
