"""Folds of the baseline tier, beside NumPy's in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.op import Op
from tilewright.ir.ops.movement import windows
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import folds, kernels, step_forms
from tilewright.runtime.baseline.program import Program

SHAPES = [
    ((40, 3, 9, 11), (0, 2, 3)),
    ((300, 5, 7), (0, 2)),
    ((200, 6), (0,)),
    ((2, 32, 3, 2), (1, 0)),
    ((7, 30_000), (1,)),
    ((600, 3, 4), (1, 2)),
    ((600, 2, 3), (2,)),
    ((5, 3, 4), (1, 2)),
    ((70, 70), (0, 1)),
    ((1, 4, 1), (0, 2)),
]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("shape,axes", SHAPES)
def test_sums_and_sums_of_products(shape: Size, axes: tuple[int, ...], dtype: dtypes.DType) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 1, shape).astype(dtype.np) for _ in range(2))
    node = ops.leaf(0, Size(shape), dtype)
    tolerance = 1e-6 if dtype is dtypes.float32 else 1e-13
    for array in (a, np.asfortranarray(a)):
        found = folds.total(node, axes)(array)
        assert found.dtype == dtype.np
        np.testing.assert_allclose(found, a.sum(axes, np.float64, keepdims=True), tolerance)
        found = folds.products(node, axes)(array, b)
        expected = (a.astype(np.float64) * b).sum(axes, keepdims=True)
        assert found.dtype == dtype.np
        np.testing.assert_allclose(found, expected, tolerance)


@pytest.mark.parametrize("shape,axes", SHAPES)
def test_extrema_and_their_first_positions(shape: Size, axes: tuple[int, ...]) -> None:
    """Among few values, so that there are ties, and with NaN."""
    x = np.random.default_rng(0).integers(-2, 3, shape).astype(np.float32)
    x.flat[:: x.size // 50 + 3] = np.nan
    for values in (x, np.nan_to_num(x)):
        node = ops.leaf(0, Size(shape), dtypes.float32)
        roots = [f(node, axes) for f in (ops.max, ops.min, ops.argmax, ops.argmin)]
        largest, smallest, first, last = Program(roots).run([values], ())
        np.testing.assert_array_equal(largest, values.max(axes, keepdims=True))
        np.testing.assert_array_equal(smallest, values.min(axes, keepdims=True))
        kept = [i for i in range(values.ndim) if i not in axes]
        rows = values.transpose(*kept, *axes).reshape(*[shape[i] for i in kept], -1)
        np.testing.assert_array_equal(first.reshape(rows.shape[:-1]), rows.argmax(-1))
        np.testing.assert_array_equal(last.reshape(rows.shape[:-1]), rows.argmin(-1))


def test_windows_are_folded_where_they_are() -> None:
    x = np.random.default_rng(0).normal(size=(4, 40, 40)).astype(np.float32)
    seen = windows(ops.leaf(0, Size(x.shape), dtypes.float32), (1, 2), (3, 2), (2, 2), (1, 2))
    (found,) = Program([ops.max(seen, (3, 4))]).run([x], ())
    expected = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))[:, ::2, ::2, :, ::2]
    np.testing.assert_array_equal(found, expected.max((3, 4), keepdims=True))


@pytest.mark.parametrize("half", dtypes.HALVES, ids=lambda d: d.name)
def test_sums_and_products_of_halves(half: dtypes.DType) -> None:
    """Summed in float32 and rounded once."""
    rng, eps = np.random.default_rng(0), 8e-3 if half is dtypes.bfloat16 else 1e-3
    for shape, axes in SHAPES:
        values = rng.uniform(0.5, 1, shape).astype(half.np)
        node = ops.leaf(0, Size(shape), half)
        (found,) = Program([ops.sum(node, axes)]).run([values], ())
        assert found.dtype == half.np
        exact = values.astype(np.float64).sum(axes, keepdims=True)
        np.testing.assert_allclose(found.astype(np.float64), exact, eps)
    for a, b in (
        ((2, 300), (300, 70)),
        ((40, 30), (30, 50)),
        ((3, 4, 5), (3, 5, 6)),
        ((0, 3), (3, 2)),
    ):
        arrays = [rng.standard_normal(s).astype(half.np) for s in (a, b)]
        turned = [arrays[0], np.ascontiguousarray(arrays[1].swapaxes(-1, -2))]
        leaves = [ops.leaf(i, Size(x.shape), half) for i, x in enumerate(turned)]
        order = (*range(len(b) - 2), len(b) - 1, len(b) - 2)
        (found,) = Program([ops.matmul(leaves[0], ops.permute(leaves[1], order))]).run(turned, ())
        assert found.dtype == half.np and found.flags.c_contiguous
        wide = [x.astype(np.float64) for x in arrays]
        np.testing.assert_allclose(found.astype(np.float64), wide[0] @ wide[1], eps, eps)


@pytest.mark.parametrize("half", dtypes.HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("rows", [0, 1, 3, 7, 8])
def test_few_rows_times_a_large_matrix_of_halves(rows: int, half: dtypes.DType) -> None:
    """The matrix is read as it lies in memory, and never converted as a whole."""
    rng, eps = np.random.default_rng(0), 8e-3 if half is dtypes.bfloat16 else 1e-3
    x = rng.standard_normal((rows, 520)).astype(half.np)
    weight = rng.standard_normal((521, 520)).astype(half.np)
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    a, b = ops.leaf(0, Size(x.shape), half), ops.leaf(1, Size(weight.shape), half)
    turned = np.ascontiguousarray(weight.T)
    lying = ops.leaf(1, Size(turned.shape), half)
    for root, buffers in (
        (ops.matmul(a, ops.permute(b, (1, 0))), [x, weight]),
        (ops.matmul(a, lying), [x, turned]),
    ):
        (found,) = Program([root]).run(buffers, ())
        assert found.dtype == half.np and found.shape == exact.shape
        np.testing.assert_allclose(found.astype(np.float64), exact, eps, 20 * eps)
    kept = kernels._plans.keys()
    assert not rows or any(key[2][0][0] == (rows, 520) for key in kept) == (rows < 8)


@pytest.mark.parametrize("kind", ["f4", "f8", "f2"])
@pytest.mark.parametrize(
    "shape", [(64, 64), (3, 40, 70), (5, 4096), (2, 12_288), (3, 5000)], ids=str
)
@pytest.mark.parametrize("op", [ops.prod, ops.max, ops.min, ops.sum], ids=lambda op: op.__name__)
def test_folds_of_rows(op: Any, shape: tuple[int, ...], kind: str) -> None:
    """By native code where there is some; an extremum is NaN where an element is."""
    rng = np.random.default_rng(0)
    given = (1 + rng.normal(size=shape) / 100).astype(kind)
    if op in (ops.max, ops.min):
        given[0, 3], given[1] = np.nan, -np.inf
    x = ops.leaf(0, Size(shape), dtypes.from_numpy(given.dtype))
    axis = len(shape) - 1
    expected = getattr(np, op.__name__)(given.astype("f8"), axis, keepdims=True)
    for each in (given, np.asfortranarray(given)):
        (found,) = Program([op(x, (axis,))]).run([each], ())
        assert found.dtype == given.dtype
        tolerance = {"f4": 3e-5, "f8": 1e-12, "f2": 2e-3}[kind]
        found = found.reshape(expected.shape).astype("f8")
        np.testing.assert_allclose(found, expected, tolerance)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_places_of_extrema_of_halves(dtype: dtypes.DType) -> None:
    given = np.random.default_rng(0).normal(size=(9, 80)).astype(dtype.np)
    x = ops.leaf(0, Size(given.shape), dtype)
    for axis in (0, 1):
        (found,) = Program([ops.argmax(x, (axis,))]).run([given], ())
        np.testing.assert_array_equal(found.ravel(), given.astype("f4").argmax(axis))


ROW_SHAPES = [
    (1,), (7,), (8,), (9,), (127,), (128,), (129,), (1000,), (4095,), (4096,), (3, 20), (20, 3),
    (31, 2), (32, 2), (600, 5), (2, 3, 40), (5, 4, 3), (200, 4, 5), (2, 0), (0, 3),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [ops.sum_op, ops.max_op, ops.min_op], ids=lambda op: op.name)
def test_folds_of_last_axes_have_the_bits_of_those_that_look_at_sizes(
    op: Op, dtype: dtypes.DType
) -> None:
    generator = np.random.default_rng(0)
    for shape in ROW_SHAPES:
        drawn = generator.normal(size=shape).astype(dtype.np)
        if drawn.size > 4:
            drawn.ravel()[[0, 3]] = -0.0, np.inf
        for first in range(len(shape)):
            axes = tuple(range(first, len(shape)))
            if op is not ops.sum_op and 0 in [shape[a] for a in axes]:
                continue
            form = step_forms.direct(op, (axes,), (dtype,), dtype)
            assert form is not None
            by_sizes = step_forms.sized(op, (dtype,), dtype, None)
            strided = np.repeat(drawn, 2, -1)[..., ::2]
            for array in (drawn, strided, drawn.astype(dtype.np, order="F")):
                wanted = by_sizes((axes,), (array,))(array)
                made = form(array)
                assert made.shape == wanted.shape and made.dtype == wanted.dtype
                np.testing.assert_array_equal(made, wanted, strict=True)
        if len(shape) > 1:  # not the last axis: another function's
            form = step_forms.direct(op, ((0,),), (dtype,), dtype)
            assert form is not None
            if shape[0] or op is ops.sum_op:
                wanted = by_sizes(((0,),), (drawn,))(drawn)
                np.testing.assert_array_equal(form(drawn), wanted)


def test_an_extremum_of_a_row_is_nan_if_an_element_is() -> None:
    for length in (3, 8, 13, 40, 200):
        rows = np.zeros((length, length), np.float32)
        np.fill_diagonal(rows, np.nan)
        for op in (ops.max_op, ops.min_op):
            form = step_forms.direct(op, ((1,),), (dtypes.float32,), dtypes.float32)
            assert form is not None and np.isnan(form(rows)).all()
