"""Layer norm by native code, beside NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import moments
from tilewright.runtime.baseline.program import Program

EPS = 1e-5


def _leaf(place: int, array: Any) -> Any:
    return ops.leaf(place, Size(array.shape), dtypes.from_numpy(array.dtype))


def _found(arrays: list[Any], axes: int) -> Any:
    nodes = [_leaf(i, a) for i, a in enumerate(arrays)]
    node = ops.layer_norm(nodes[0], axes, *nodes[1:], eps=EPS)
    return Program([node]).run(arrays, ())[0]


def _expected(x: Any, axes: int, *parameters: Any) -> Any:
    x = x.astype("f8")
    last = tuple(range(x.ndim - axes, x.ndim))
    centred = x - x.mean(last, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(last, keepdims=True) + EPS)
    for parameter, op in zip(parameters, (np.multiply, np.add)):
        y = op(y, parameter.astype("f8"))
    return y


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("parameters", [0, 1, 2])
@pytest.mark.parametrize(
    "shape, axes",
    [((1, 1), 1), ((4,), 1), ((3, 16), 1), ((5, 7, 33), 1), ((2, 3, 4, 5), 2), ((70, 1500), 1),
     ((0, 4), 1)],
    ids=str,
)  # fmt: skip
def test_beside_numpy(shape: tuple[int, ...], axes: int, parameters: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) * 3 + 5).astype(dtype)
    given = [rng.normal(size=shape[-axes:]).astype(dtype) for _ in range(parameters)]
    eps = {"f4": 4e-6, "f8": 1e-13}[dtype]
    for each in (x, np.asfortranarray(x), np.ascontiguousarray(x[::-1])[::-1]):
        found = _found([each, *given], axes)
        assert found.dtype == x.dtype and found.shape == x.shape
        np.testing.assert_allclose(found, _expected(x, axes, *given), eps, eps)


def test_edges() -> None:
    """A row with NaN or an infinity is NaN; a far mean costs no digits of the deviation."""
    x = np.ones((4, 19), "f4")
    x[0, 3], x[1, 18] = np.nan, -np.inf
    x[2] = 1e4 + np.arange(19)
    found = _found([x], 1)
    assert np.isnan(found[:2]).all() and (found[3] == 0).all()
    np.testing.assert_allclose(found[2], _expected(x[2:3], 1)[0], 1e-4, 1e-4)


def test_native_code_makes_them() -> None:
    if not moments.has_code(dtypes.float32):
        pytest.skip("the engine of the CPU runs no native code")
    x = np.ones((3, 4), "f4")
    mean, scale = moments.of_rows(x, 4, np.zeros(1))
    assert mean.tolist() == [1, 1, 1] and scale.tolist() == [0, 0, 0]
