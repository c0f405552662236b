"""Elementwise kernels of the pack beside NumPy's functions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.runtime.baseline.forms import elementwise

SHAPES: list[tuple[int, ...]] = [(), (70, 70), (70, 1), (1, 70), (3, 1, 70)]
EMPTY: list[tuple[int, ...]] = [(0, 70), (1, 70), ()]
DTYPES = [
    dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn,
    dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int64, dtypes.bool_,
    dtypes.complex32, dtypes.complex64, dtypes.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_choices_of_any_shapes_keep_all_bits(dtype: DType) -> None:
    """Also those of numbers that aren't."""
    rng = np.random.default_rng(0)
    where = elementwise(ops.where, (dtypes.bool_, dtype, dtype), dtype)

    def drawn(shape: tuple[int, ...]) -> Any:
        bits = rng.integers(0, 256, (*shape, dtype.np.itemsize), dtype=np.uint8)
        if dtype is dtypes.bool_:
            bits &= 1
        found = np.ascontiguousarray(bits).view(dtype.np).reshape(shape)
        if dtype in (dtypes.float32, dtypes.float64):  # a signalling NaN becomes a quiet one
            found = np.where(np.isnan(found), dtype.np.type(np.nan), found)
        return found

    every = (itertools.product(shapes, repeat=3) for shapes in (SHAPES, EMPTY))
    for of_condition, *of_values in itertools.chain(*every):
        condition = np.asarray(rng.random(of_condition) < 0.5)
        values = [drawn(shape) for shape in of_values]
        found, expected = where(condition, *values), np.where(condition, *values)
        assert found.dtype == dtype.np and found.shape == expected.shape
        assert found.tobytes() == expected.tobytes(), (of_condition, *of_values)
