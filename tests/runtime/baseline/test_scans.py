"""Running folds of the baseline tier beside NumPy, for any sizes, axes and special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.op import Op
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import scans
from tilewright.runtime.baseline.program import Program

SHAPES = [(1, 1), (5, 7), (3, 40, 33), (2, 3, 16), (1000,), (4, 1, 17)]
KINDS = [np.float32, np.float64, np.int64, np.complex64, np.complex128, np.float16]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: np.dtype(k).name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", scans.FOLDS, ids=lambda op: op.name)
def test_beside_numpy(op: Op, shape: tuple[int, ...], kind: Any) -> None:
    if np.dtype(kind).kind == "c" and op not in (ops.cumsum_op, ops.cumprod_op):
        pytest.skip("complex numbers have no order")
    rng = np.random.default_rng(0)
    drawn = rng.integers(-3, 4, shape) / (1 if kind is np.int64 else 2)
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
