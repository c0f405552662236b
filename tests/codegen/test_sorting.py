"""Sorting and grouped updates as kernels of GPUs, interpreted, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from interpreting import LARGE, SMALL, interpret

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.legalize import grouping, sorting
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import default_schedule, points, predict
from tilewright.codegen.target import CUDA, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton
both = pytest.mark.parametrize("device", [LARGE, SMALL], ids=["large", "small"])
LONG = 2 * sorting.MOST + 77  # four runs, the last one shorter


def sample(shape: Sequence[int], dtype: DType) -> np.ndarray:
    """Many elements alike; for floats both zeros, infinities and both kinds of NaN."""
    rng = np.random.default_rng(sum(shape))
    if dtype is dt.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.category != dt.FLOAT:
        limits = np.iinfo(dtype.np)
        x = rng.integers(limits.min, limits.max, shape, dtype.np, endpoint=True)
        special: list[Any] = [limits.min, limits.max, 0, 1]
    else:
        x = rng.standard_normal(shape).round(1).astype(dtype.np)
        special = [np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0]
    places = rng.integers(0, 3 * len(special), shape)
    for number, value in enumerate(special):
        x[places == number] = value
    return x


def argsorted(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    key = x.astype(np.float32) if x.dtype.kind == "V" else x
    if not descending:
        return np.argsort(key, axis=axis, kind="stable")
    order = np.argsort(np.flip(key, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(order, axis)


def order_of(x: np.ndarray, dtype: DType, axis: int, descending: bool, device: Any) -> np.ndarray:
    leaf = ops.leaf(0, Size(x.shape), dtype)
    return interpret([ops.argsort(leaf, axis, descending)], {leaf: x}, CUDA, device)[0]


@pytest.mark.sampled(3)
@both
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "dtype", [d for d in dt.ALL if d not in dt.FLOAT8 and not d.is_complex], ids=str
)
@pytest.mark.parametrize("shape, axis", [((3, 70), 1), ((70, 3), 0), ((2, 1, 2), 2)])
def test_short_rows(
    device: InterpretDevice, shape: tuple[int, ...], axis: int, dtype: DType, descending: bool
) -> None:
    x = sample(shape, dtype)
    found = order_of(x, dtype, axis, descending, device)
    np.testing.assert_array_equal(found, argsorted(x, axis, descending))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.int64, dt.float64], ids=str)
@pytest.mark.parametrize("shape, axis", [((LONG,), 0), ((2, LONG, 2), 1)])
def test_long_rows(shape: tuple[int, ...], axis: int, dtype: DType, descending: bool) -> None:
    x = sample(shape, dtype)
    found = order_of(x, dtype, axis, descending, LARGE)
    np.testing.assert_array_equal(found, argsorted(x, axis, descending))


@pytest.mark.parametrize("length", [sorting.MOST - 1, sorting.MOST, sorting.MOST + 1])
def test_lengths_about_the_most_of_a_program(length: int) -> None:
    x = sample((length,), dt.float32)
    found = order_of(x, dt.float32, 0, False, LARGE)
    np.testing.assert_array_equal(found, argsorted(x, 0, False))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_to_sort(shape: tuple[int, ...]) -> None:
    assert not kernels(ops.argsort(ops.leaf(0, Size(shape), dt.float32), 0))


@pytest.mark.parametrize("start, count", [(0, 1), (0, 50), (7, 20)])
@pytest.mark.parametrize("length", [100, 3 * LONG])
def test_first_elements(length: int, start: int, count: int) -> None:
    """The k largest, the k-th largest."""
    x = sample((2, length), dt.float32)
    leaf = ops.leaf(0, Size(x.shape), dt.float32)
    root = ops.slice_axis(ops.argsort(leaf, 1, True), 1, start, start + count)
    (found,) = interpret([root], {leaf: x}, CUDA, LARGE)
    np.testing.assert_array_equal(found, argsorted(x, 1, True)[:, start : start + count])


def kernels(root: Node) -> list[Kernel]:
    return [s.kernel for s in compile_graph(lower_graph([root]), CUDA).steps]  # type: ignore[misc]


def test_a_million_elements() -> None:
    """Each kernel goes through them once, and there are as many as a merge sort takes."""
    count = 1 << 20
    found = kernels(ops.argsort(ops.leaf(0, Size((count,)), dt.float32), 0))
    assert len(found) == 1 + (count // sorting.MOST).bit_length() - 1 + 1
    assert all(points(k.parallel) * points(k.reduction) == count for k in found)


def test_the_first_few_take_no_merges() -> None:
    x = ops.leaf(0, Size((8, 50257)), dt.float32)
    first, second, _ = kernels(ops.slice_axis(ops.argsort(x, 1, True), 1, 0, 50))
    runs = -(-50257 // sorting.MOST)
    assert (points(first.parallel), points(second.parallel)) == (8 * runs, 8)
    assert points(second.reduction) == 50 * runs


def test_a_short_row_is_one_kernel() -> None:
    """Keys, order and the elements in order."""
    x = ops.leaf(0, Size((64, 100)), dt.float16)
    order = ops.argsort(x, 1)
    roots = lower_graph([ops.take_along(x, order, 1), order])
    assert len(compile_graph(roots, CUDA).steps) == 1


# -- updates


def scattered(
    base: np.ndarray, values: np.ndarray, indices: Sequence[np.ndarray], axis: int, mode: str
) -> tuple[np.ndarray, np.ndarray]:
    """By the grouped kernels, and by NumPy."""
    arrays = [base, values, *indices]
    kinds = [dt.from_numpy(a.dtype) for a in arrays]
    leaves = [ops.leaf(i, Size(a.shape), k) for i, (a, k) in enumerate(zip(arrays, kinds))]
    root = ops.scatter(*leaves, axis, mode)
    (found,) = interpret([root], dict(zip(leaves, arrays)), CUDA, LARGE)
    return found, ops.scatter.numpy(*arrays, axis, mode)  # type: ignore[operator, misc]


def close(found: np.ndarray, expected: np.ndarray) -> None:
    precision = 1e-2 if found.dtype.itemsize == 2 else 1e-5
    wide = [a.astype(np.float64) for a in (found, expected)]
    np.testing.assert_allclose(*wide, rtol=precision, atol=precision)


@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.int64, dt.uint8], ids=str)
def test_updates(mode: str, dtype: DType) -> None:
    """Rows of a table at positions of a matrix, as in the gradient of an embedding."""
    rng = np.random.default_rng(0)
    base, values = (rng.uniform(0.5, 1.5, s).astype(dtype.np) for s in ((20, 3), (5, 12, 3)))
    close(*scattered(base, values, [rng.integers(0, 20, (5, 12))], 0, mode))


def test_in_several_dimensions() -> None:
    rng = np.random.default_rng(1)
    base, values = rng.standard_normal((2, 4, 5, 3)), rng.standard_normal((2, 9, 8, 3))
    indices = [rng.integers(0, 4, (9, 1)), rng.integers(0, 5, (9, 8))]
    close(*scattered(base, values, indices, 1, "add"))


@pytest.mark.parametrize("dtype", [dt.float32, dt.float16], ids=str)
def test_long_groups_are_summed_in_parts(dtype: DType) -> None:
    """With few places, also where the parts don't end with the updates."""
    rng = np.random.default_rng(2)
    base, values = (rng.uniform(0, 0.1, s).astype(dtype.np) for s in ((3, 2), (1001, 2)))
    found, expected = scattered(base, values, [rng.integers(0, 3, 1001)], 0, "add")
    assert grouping._parts(1001, 3) > 1
    close(found, expected)


def test_the_order_of_additions_is_fixed() -> None:
    rng = np.random.default_rng(3)
    values, index = rng.standard_normal((500, 4)).astype(np.float32), rng.integers(0, 7, 500)
    base = np.zeros((7, 4), np.float32)
    found = [scattered(base, values, [index], 0, "add")[0].tobytes() for _ in range(3)]
    assert len(set(found)) == 1


@pytest.mark.parametrize("wrong", [-1, 20, 1 << 40])
def test_positions_out_of_range(wrong: int) -> None:
    index = np.arange(64) % 20
    index[40] = wrong
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds .* size 20"):
        scattered(np.zeros((20, 2)), np.ones((64, 2)), [index], 0, "add")


def test_few_updates_are_made_one_after_another() -> None:
    base, values = ops.leaf(0, Size((20, 3)), dt.float32), ops.leaf(1, Size((5, 3)), dt.float32)
    index = ops.leaf(2, Size((5,)), dt.int64)
    assert not any(k.is_grouped for k in kernels(ops.scatter(base, values, index, 0, "add")))


def test_positions_that_are_known_need_no_order() -> None:
    """Each row of a matrix gets one value; unless several positions are made of one."""
    base, count = ops.leaf(0, Size((100, 7)), dt.float32), ops.iota(100)
    values, column = ops.leaf(1, Size((100,)), dt.float32), ops.leaf(2, Size((100,)), dt.int64)
    for index, grouped in ((count, False), (ops.expand(ops.iota(1), (100,)), True)):
        found = kernels(ops.scatter(base, values, index, column, 0, "add"))
        assert any(k.is_grouped for k in found) is grouped


def test_the_gradient_of_a_vocabulary() -> None:
    """GPT-2's, of 8,192 tokens: by the cost model, not twice what storing the result takes."""
    target = gpu("sm_90")
    zeros = ops.expand(ops.constant(0, dt.float32), (50257, 768))
    g, index = ops.leaf(0, Size((8192, 768)), dt.float32), ops.leaf(1, Size((8192,)), dt.int64)
    steps = compile_graph(lower_graph([ops.scatter(zeros, g, index, 0, "add")]), target).steps
    takes = [predict(s.kernel, default_schedule(s.kernel, target), target) for s in steps]  # type: ignore[arg-type]
    assert sum(t.seconds for t in takes) < 2 * 50257 * 768 * 4 / target.chip.bandwidth
    assert takes[-1].programs > 100 * target.chip.multiprocessors
