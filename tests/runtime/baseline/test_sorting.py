"""Sorts of the baseline tier beside the reference: stable, NaN last, also of a few leading ones."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.ops.scan import positions_in_order
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import sorting
from tilewright.runtime.baseline.program import Program

KINDS = [
    np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.int16, np.int8,
    np.uint8, np.uint16, np.bool_,
]  # fmt: skip


def _rows(kind: Any, shape: tuple[int, ...], spread: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape) * spread
    if np.dtype(kind).kind in "fV":
        values.flat[::7], values.flat[3::11], values.flat[5::13] = 0.0, -0.0, np.nan
        values.flat[2::17], values.flat[4::19] = np.inf, -np.inf
        return values.astype(kind)
    if np.dtype(kind).kind in "ub":
        values = np.abs(values)
    return values.astype(np.int64).astype(kind)


def _sorted(array: np.ndarray, axis: int, descending: bool, cut: Any = None) -> list[np.ndarray]:
    x = ops.leaf(0, Size(array.shape), dtypes.from_numpy(array.dtype))
    order = ops.argsort(x, axis, descending)
    roots = [order] if cut is None else [ops.slice_axis(order, axis, *cut)]
    return Program(roots).run([array], ())


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("spread", [2.0, 1e4])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: np.dtype(k).name)
def test_positions_are_those_of_the_reference(kind: Any, spread: float, descending: bool) -> None:
    for shape, axis in (
        ((40, 30), 1),
        ((40, 30), 0),
        ((3, 700), 1),
        ((5, 1, 300), 0),
        ((2000,), 0),
    ):
        x = _rows(kind, shape, spread)
        expected = positions_in_order(x, axis, descending)
        (found,) = _sorted(x, axis, descending)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)
        size = shape[axis]
        for cut in ((0, max(size // 10, 1)), (size // 8, size // 7), (0, 0), (0, size)):
            (found,) = _sorted(x, axis, descending, cut)
            expected_part = np.take(expected, range(*cut), axis)
            np.testing.assert_array_equal(found, expected_part)


def test_integers_of_64_bits_that_lie_far_apart() -> None:
    x = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, (4, 300))
    np.testing.assert_array_equal(_sorted(x, 1, False)[0], np.argsort(x, 1, kind="stable"))
    near = x % 1000 + (1 << 61)
    np.testing.assert_array_equal(_sorted(near, 1, False)[0], np.argsort(near, 1, kind="stable"))


def test_a_sort_that_is_read_elsewhere_too_stays_whole(monkeypatch: Any) -> None:
    """Then its beginning costs nothing."""
    calls: list[int] = []
    inner = sorting.leading
    monkeypatch.setattr(sorting, "leading", lambda n, count: calls.append(count) or inner(n, count))
    array = np.random.default_rng(0).normal(size=(8, 200)).astype(np.float32)
    x = ops.leaf(0, Size(array.shape), dtypes.float32)
    order = ops.argsort(x, 1)
    few, more = (ops.slice_axis(order, 1, 0, n) for n in (5, 9))
    expected = np.argsort(array, 1, kind="stable")
    for roots, count in (
        ([few], [5]),
        ([few, more], [9]),
        ([few, order], []),
        ([order + 1, few], []),
    ):
        calls.clear()
        found = Program(roots).run([array], ())
        assert calls == count
        np.testing.assert_array_equal(found[roots.index(few)], expected[:, :5])


def test_reading_few_leading_ones_keeps_ties_and_nan() -> None:
    x = np.zeros((3, 100), np.float32)
    x[1, 40:] = np.nan
    for descending in (False, True):
        (found,) = _sorted(x, 1, descending, (0, 7))
        np.testing.assert_array_equal(found, positions_in_order(x, 1, descending)[:, :7])
