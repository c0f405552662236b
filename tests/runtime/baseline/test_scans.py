"""Running folds of the baseline tier beside NumPy, for any sizes, axes and special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.op import Op
from tilewright.ir.ops.scan import cummax_index_op, cummin_index_op
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import scans
from tilewright.runtime.baseline.program import Program

SHAPES = [(1, 1), (5, 7), (3, 40, 33), (2, 3, 16), (1000,), (4, 1, 17)]
KINDS = [
    np.float32, np.float64, np.int64, np.complex64, np.complex128, np.float16, np.int32, np.uint8
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: np.dtype(k).name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", scans.FOLDS, ids=lambda op: op.name)
def test_beside_numpy(op: Op, shape: tuple[int, ...], kind: Any) -> None:
    if np.dtype(kind).kind == "c" and op not in (ops.cumsum_op, ops.cumprod_op):
        pytest.skip("complex numbers have no order")
    rng = np.random.default_rng(0)
    drawn = rng.integers(-3, 4, shape) / (1 if np.dtype(kind).kind in "iu" else 2)
    if np.dtype(kind).kind == "c":
        drawn = drawn + 1j * rng.integers(-3, 4, shape)
    given = drawn.astype(kind)
    if np.dtype(kind).kind == "f":
        given.flat[3::11], given.flat[1::13] = -0.0, np.inf
        if op not in (ops.cumsum_op, ops.cumprod_op):
            given.flat[7::29] = np.nan
    x = ops.leaf(0, Size(shape), dtypes.from_numpy(given.dtype))
    for axis in range(len(shape)):
        with np.errstate(all="ignore"):
            expected = op.numpy(given, axis)  # type: ignore[operator]
        (found,) = Program([op(x, axis)]).run([given], ())
        assert found.dtype == expected.dtype
        if np.dtype(kind).kind == "c" and op is ops.cumprod_op:
            np.testing.assert_allclose(found, expected, 1e-5)
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 100])
def test_extrema_in_long_rows(length: int, kind: Any) -> None:
    """Rows that rise, fall or stay, so that all elements or none of a block are better."""
    steps = np.arange(length)
    rows = np.stack([steps, -steps, steps * 0, steps % 5, steps % 16, -(steps % 16)]).astype(kind)
    if kind is not np.int64:
        odd = rows[[0, 1, 3]].copy()
        odd[0, length // 2], odd[1, -1], odd[2, 0] = np.nan, np.inf, np.nan
        zeros = np.where(steps % 3, -0.0, 0.0).astype(kind)
        rows = np.concatenate([rows, odd, zeros[None]])
    x = ops.leaf(0, Size(rows.shape), dtypes.from_numpy(rows.dtype))
    for op in (ops.cummax_op, ops.cummin_op, cummax_index_op, cummin_index_op):
        for given in (rows, np.asfortranarray(rows)):
            (found,) = Program([op(x, 1)]).run([given], ())
            np.testing.assert_array_equal(found, op.numpy(rows, 1))  # type: ignore[operator]


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_products_beside_wider_ones(kind: Any) -> None:
    """Of signed parts and infinities. As in PyTorch, a line begins with 1 times its first number,
    whose other part is NaN if that is infinite."""
    rng = np.random.default_rng(0)
    given = np.exp(1j * rng.normal(size=(3, 50, 2))).astype(kind)
    given[0, 7], given[1, 3] = complex(np.inf, 0), 0
    x = ops.leaf(0, Size(given.shape), dtypes.from_numpy(given.dtype))
    for axis in range(3):
        with np.errstate(invalid="ignore"):
            wide = np.insert(given.astype(np.complex128), 0, 1, axis)
            expected = np.delete(np.cumprod(wide, axis), 0, axis)
            (found,) = Program([ops.cumprod_op(x, axis)]).run([given], ())
        for ours, theirs in ((found.real, expected.real), (found.imag, expected.imag)):
            np.testing.assert_allclose(ours, theirs, 0, 1e-6 if kind is np.complex64 else 1e-13)
