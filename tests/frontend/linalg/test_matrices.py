"""Linear algebra against PyTorch: values, errors and types."""

from __future__ import annotations

from typing import Any

import pytest
from api_cases import MATRICES
from oracle import compare, sample

pytestmark = pytest.mark.computes

NARROW = ("int64", "float16")
DTYPES = ("float32", "float64", *NARROW)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("call", "shapes"), [pytest.param(call, shapes, id=name) for name, call, shapes in MATRICES]
)
def test_api(torch: Any, call: Any, shapes: Any, dtype: str) -> None:
    if dtype in NARROW and any(0 in s for s in shapes):
        pytest.skip("PyTorch never asks LAPACK about a matrix without elements")
    if dtype == "float16" and "matrix_exp" in call.__code__.co_names:
        pytest.skip("PyTorch's overflows in halves")
    arrays = tuple(sample(s, dtype, i) for i, s in enumerate(shapes))
    compare(torch, call, arrays, (dtype,) * len(shapes))
