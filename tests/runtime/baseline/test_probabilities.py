"""Softmax along any axis, by native code, beside NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import probabilities
from tilewright.runtime.baseline.program import Program

OPS = {"softmax": ops.softmax, "safe": ops.safe_softmax, "log": ops.log_softmax}


def _found(kind: str, x: Any, axis: int) -> Any:
    node = OPS[kind](ops.leaf(0, Size(x.shape), dtypes.from_numpy(x.dtype)), axis)
    return Program([node]).run([x], ())[0]


def _expected(kind: str, x: Any, axis: int) -> Any:
    with np.errstate(all="ignore"):
        x = x.astype("f8")
        top = x.max(axis, keepdims=True)
        if kind == "safe":
            top = np.where(top == -np.inf, 0, top)
        e = np.exp(x - top)
        total = e.sum(axis, keepdims=True)
        if kind == "safe":
            total = np.where(total == 0, 1, total)
        return e / total if kind != "log" else x - top - np.log(total)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("kind", OPS)
@pytest.mark.parametrize(
    "shape, axis",
    [((1,), 0), ((5, 1), 1), ((9, 7), 1), ((9, 16), 1), ((3, 40), 1), ((2, 5, 3), 1), ((5, 33), 0),
     ((2, 3, 2, 16), 1), ((70, 1000), 1), ((3, 300, 100), 1), ((0, 4), 1)],
    ids=str,
)  # fmt: skip
def test_beside_numpy(shape: tuple[int, ...], axis: int, kind: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) * 8).astype(dtype)
    eps = {"f4": 2e-6, "f8": 1e-14}[dtype]
    for each in (x, np.asfortranarray(x), np.ascontiguousarray(x[::-1])[::-1]):
        found = _found(kind, each, axis)
        assert found.dtype == x.dtype and found.shape == x.shape
        if not x.size:
            continue
        scale = 10 if kind == "log" else 1
        np.testing.assert_allclose(found, _expected(kind, x, axis), eps * scale, eps * scale)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("kind", OPS)
@pytest.mark.parametrize("axis", [0, 1])
def test_edges(kind: str, axis: int, dtype: str) -> None:
    """NaN and infinities make NaN where PyTorch has it; -inf has no part in a line."""
    x = np.zeros((6, 19), dtype)
    x[0, 3], x[1, 17], x[2] = np.nan, np.inf, -np.inf
    x[3, 1:], x[4, 18], x[5, 2] = -np.inf, -200, 88
    given = x if axis == 1 else np.ascontiguousarray(x.T)
    found, expected = _found(kind, given, axis), _expected(kind, given, axis)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-37)


@pytest.mark.parametrize("kind", OPS)
def test_of_one_number(kind: str) -> None:
    """What NumPy computes of a 0-d array is a scalar of its own, without memory."""
    x = ops.neg(ops.leaf(0, Size(()), dtypes.float32))
    (found,) = Program([OPS[kind](x, 0)]).run([np.array(3.0, np.float32)], ())
    assert found.shape == () and found == (0 if kind == "log" else 1)


def test_a_long_line_is_summed_in_float64() -> None:
    x = np.zeros(1 << 20, "f4")
    x[0] = math.log(1 << 20)
    found = _found("log", x, 0)
    np.testing.assert_allclose(found[0], -math.log(2), 1e-6)


def test_native_code_makes_them() -> None:
    if probabilities._native("softmax", dtypes.float32, 1) is None:
        pytest.skip("the engine of the CPU runs no native code")
    x = ops.leaf(0, Size((3, 4)), dtypes.float32)
    (step,) = Program([ops.softmax(x, 1)]).steps
    assert step[0].__module__ == probabilities.__name__
