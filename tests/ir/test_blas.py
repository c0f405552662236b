"""Products of matrices by NumPy's BLAS, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.numeric import blas


@pytest.mark.parametrize("rows", range(6))
@pytest.mark.parametrize("dtype", ["f", "d", "F"])
def test_few_rows_times_a_large_matrix(rows: int, dtype: str) -> None:
    rng = np.random.default_rng(rows)
    for inner, columns in ((130, 140), (1, 20000), (20000, 1), (0, 20000), (8, 9)):
        a = rng.standard_normal((inner, rows)).astype(dtype).T  # not contiguous
        b = rng.standard_normal((inner, columns)).astype(dtype)
        wide = np.complex128 if dtype == "F" else np.float64
        exact = a.astype(wide) @ b.astype(wide)
        for x in (a, np.ascontiguousarray(a)):
            for y in (b, np.asfortranarray(b), b.repeat(2, 1)[:, ::2]):
                made = blas.matmul(x, y)
                assert made.dtype == a.dtype and made.flags.c_contiguous
                tolerance = 1e-13 if dtype == "d" else 1e-5
                np.testing.assert_allclose(made, exact, tolerance, tolerance * inner**0.5)


def test_values_that_are_not_finite_stay_in_their_rows() -> None:
    a, b = np.ones((3, 200), "f"), np.ones((200, 200), "f")
    a[1, 3] = np.nan
    made = blas.matmul(a, b)
    assert np.isnan(made[1]).all() and (made[[0, 2]] == 200).all()


def test_stacks_are_numpys() -> None:
    a, b = np.ones((5, 2, 3), "f"), np.ones((3, 70000), "f")
    assert blas.matmul(a, b).shape == (5, 2, 70000)
