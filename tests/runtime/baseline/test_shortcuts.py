"""Nodes that are computed without their operands, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import joins, samples, shortcuts
from tilewright.runtime.baseline.program import Program


@pytest.fixture(autouse=True)
def _of_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (joins, samples, shortcuts):
        monkeypatch.setattr(module, "_FROM", 1)


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


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_sums_of_numbers_along_columns(kind: str) -> None:
    """NaN counts as zero; infinities of both signs make NaN."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 3, 4)).astype(kind)
    for axes in ((0,), (0, 1)):
        for odd in ((), (np.nan,), (np.nan, np.inf), (np.inf, -np.inf)):
            given = x.copy()
            given[range(len(odd)), 1, 2] = odd
            leaf = _leaf(0, given)
            chosen = ops.where(ops.ne(leaf, leaf), ops.full_like(leaf, 0), leaf)
            made = Program([ops.sum(chosen, axes)])
            with np.errstate(invalid="ignore"):
                expected = np.nansum(given, axes, keepdims=True, dtype="f8")
            (found,) = made.run([given], ())
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
            assert len(made.steps) == 1


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("masks", [0, 1, 2])
def test_samples_are_sums_of_rows(masks: int, kind: str) -> None:
    """Of a table [n, h, w, c] in any order of memory; what a mask leaves out is not read."""
    rng = np.random.default_rng(0)
    table = np.moveaxis(rng.standard_normal((2, 5, 6, 7)).astype(kind), 1, 3)
    i, j = rng.integers(0, 6, (2, 3, 4, 2, 1)), rng.integers(0, 7, (2, 3, 4, 1, 2))
    weight = rng.standard_normal((2, 3, 4, 2, 2)).astype(kind)
    seen = [rng.random((2, 3, 4, 2, 1)) < 0.7, rng.random((2, 3, 4, 1, 2)) < 0.7][:masks]
    if masks:
        table[0, i[0, 0, 0, 0, 0], j[0, 0, 0, 0, 0]] = np.nan
        seen[0][(i == i[0, 0, 0, 0, 0])[:, :, :, :, :1]] = False
    arrays = [table, i, j, weight, *seen]
    leaves = [_leaf(number, array) for number, array in enumerate(arrays)]
    row = ops.reshape(ops.iota(2), (2, 1, 1, 1, 1))
    value = ops.gather(leaves[0], row, leaves[1], leaves[2], 0)
    value = value * ops.expand(ops.unsqueeze(leaves[3], 5), value.shape)
    for mask in leaves[4:]:
        zero = ops.full_like(value, 0)
        value = ops.where(ops.expand(ops.unsqueeze(mask, 5), value.shape), value, zero)
    expected = table[np.arange(2).reshape(2, 1, 1, 1, 1), i, j] * weight[..., None]
    for mask in seen:
        expected = np.where(mask[..., None], expected, 0)
    made = Program([ops.sum(value, (3, 4))])
    (found,) = made.run(arrays, ())
    np.testing.assert_allclose(found, expected.sum((3, 4), keepdims=True), 1e-5, 1e-6)
    assert all(step[3] == () or len(step[1]) < 8 for step in made.steps)
    arrays[1] = arrays[1] + 9
    with pytest.raises(IndexError):
        made.run(arrays, ())


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "f2"])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_of_joined_parts(turned: bool, kind: str) -> None:
    """Parts that go backwards, and tensors whose dimensions lie in another order."""
    x = np.random.default_rng(0).integers(-9, 9, (2, 3, 20, 20)).astype(kind)
    given = x.swapaxes(-1, -2) if turned else x
    leaf = _leaf(0, given)
    left = ops.flip(ops.slice_axis(leaf, 3, 1, 4), (3,))
    order = np.array([2, 1, 0, 19, 5, 5])
    node = ops.gather(ops.cat([left, leaf, left], 3), _leaf(1, order), 2)
    back = given[..., 3:0:-1]
    expected = np.concatenate([back, given, back], 3)[:, :, order]
    np.testing.assert_array_equal(Program([node]).run([given, order], ())[0], expected)
    with pytest.raises(IndexError):
        Program([node]).run([given, order + 1], ())
