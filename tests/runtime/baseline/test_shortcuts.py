"""Nodes that are computed without their operands, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import shortcuts
from tilewright.runtime.baseline.program import Program


@pytest.fixture(autouse=True)
def _of_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "_FROM", 1)


def _leaf(number: int, array: Any) -> Node:
    return ops.leaf(number, Size(array.shape), dtypes.from_numpy(array.dtype))


@pytest.mark.parametrize("kind", ["i8", "i4", "f4", "f8"])
@pytest.mark.parametrize("count", [2, 9, 200])
def test_membership(count: int, kind: str) -> None:
    """NaN is equal to nothing, and both zeros are."""
    rng = np.random.default_rng(0)
    x = rng.integers(-40, 40, (13, 11)).astype(kind)
    values = rng.integers(-40, 40, count).astype(kind)
    if kind[0] == "f":
        x[0, :3], values[0], values[-1] = (np.nan, -0.0, np.inf), np.nan, 0.0
    equal = ops.eq(ops.reshape(_leaf(0, x), (13, 11, 1)), _leaf(1, values))
    node = ops.any(equal, (2,))
    expected = (x[..., None] == values).any(-1, keepdims=True)
    made = Program([node])
    assert all(tuple(v.shape) != (13, 11, count) for v in made.compute([x, values]))
    np.testing.assert_array_equal(made.run([x, values], ())[0], expected)
    found, whole = Program([node, equal]).run([x, values], ())  # what else is read stays
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(whole, x[..., None] == values)


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.float32], ids=lambda d: d.name)
def test_one_hot(dtype: dtypes.DType) -> None:
    """An index out of range, which nothing checks here, has no one."""
    index = np.array([[0, 4, 2], [-1, 5, 4]])
    hit = ops.eq(ops.reshape(_leaf(0, index), (2, 3, 1)), ops.reshape(ops.iota(5), (1, 1, 5)))
    (found,) = Program([ops.cast(hit, dtype)]).run([index], ())
    expected = (index[..., None] == np.arange(5)).astype(dtype.np)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    (found,) = Program([ops.cast(hit, dtype)]).run([index.clip(0, 4)], ())
    np.testing.assert_array_equal(found.sum(-1), 1)


def test_what_looks_alike() -> None:
    """Comparisons of tensors, along other axes, and with other numbers are no shortcuts."""
    x, y = np.arange(12).reshape(3, 4), np.arange(12).reshape(3, 4) % 5
    a, b = _leaf(0, x), _leaf(1, y)
    row = ops.reshape(_leaf(2, x[0]), (1, 4))
    roots = [
        ops.any(ops.eq(a, b), (1,)),
        ops.any(ops.eq(a, row), (0,)),
        ops.cast(ops.eq(a, b), dtypes.int64),
        ops.cast(ops.eq(ops.reshape(_leaf(3, y[:, 0]), (3, 1)), row), dtypes.int64),
    ]
    expected = [
        (x == y).any(1, keepdims=True),
        (x == x[0]).any(0, keepdims=True),
        (x == y).astype(int),
        (y[:, :1] == x[0]).astype(int),
    ]
    for found, wanted in zip(Program(roots).run([x, y, x[0], y[:, 0]], ()), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
