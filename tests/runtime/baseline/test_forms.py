"""Forms of single primitives that take a way of their own, beside the reference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.reference import evaluate
from tilewright.ir.shape import Size
from tilewright.runtime.baseline.program import Program

OTHERS = (
    dtypes.bool_, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.float64
)  # fmt: skip


def _agree(node: Any, *arrays: Any) -> None:
    (found,) = Program([node]).run(list(arrays), ())
    with np.errstate(all="ignore"):
        expected = np.asarray(evaluate(node, list(arrays)))
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype.kind == "V":
        found, expected = found.astype("f4"), expected.astype("f4")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("half", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("other", OTHERS, ids=lambda d: d.name)
def test_conversions_of_halves(half: Any, other: Any) -> None:
    """By way of float32, as NumPy converts them one by one."""
    rng = np.random.default_rng(0)
    for source, target in ((half, other), (other, half)):
        given = rng.integers(0, 120, (50, 60)).astype(source.np)
        if other is dtypes.float64:
            given = rng.normal(size=(50, 60)).astype(source.np)
        x = ops.leaf(0, Size(given.shape), source)
        _agree(ops.cast(x, target), given)


@pytest.mark.parametrize("half", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [ops.neg, ops.abs], ids=lambda op: op.name)
def test_signs_of_halves(half: Any, op: Any) -> None:
    """The sign is a bit, of zeros and infinities too."""
    given = np.array([0, -0.0, 1.5, -2, np.inf, -np.inf, np.nan, 60000, -1e-7], "f4").astype(
        half.np
    )
    square = given.reshape(3, 3)
    for each in (given, square.T, np.asarray(square[1, 0])):
        x = ops.leaf(0, Size(each.shape), half)
        (found,) = Program([op(x)]).run([each], ())
        wanted = each.astype("f4")
        wanted = -wanted if op is ops.neg else abs(wanted)
        np.testing.assert_array_equal(found.astype("f4"), wanted)
        is_number = ~np.isnan(wanted)
        signs = np.signbit(found.astype("f4"))
        np.testing.assert_array_equal(signs[is_number], np.signbit(wanted)[is_number])


@pytest.mark.parametrize("source", [dtypes.complex64, dtypes.complex128], ids=lambda d: d.name)
@pytest.mark.parametrize("target", [*OTHERS, dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_conversions_of_complex_numbers(source: Any, target: Any) -> None:
    """The real part is converted; a bool tells whether either part is there."""
    rng = np.random.default_rng(0)
    given = (rng.integers(0, 3, (40, 50)) + 1j * rng.integers(0, 3, (40, 50))).astype(source.np)
    for each in (given, given.T, np.asarray(given[0, 0])):
        _agree(ops.cast(ops.leaf(0, Size(each.shape), source), target), each)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "i4", "i8"])
def test_signs_of_whole_numbers(kind: str) -> None:
    given = np.array([0, 1, 5, np.iinfo(kind).max, np.iinfo(kind).min], kind)
    _agree(ops.sign(ops.leaf(0, Size(given.shape), dtypes.from_numpy(given.dtype))), given)


@pytest.mark.parametrize("kind", ["c8", "c16"])
def test_negative_complex_numbers(kind: str) -> None:
    parts = [0.0, -0.0, 1.5, -np.inf, np.nan]
    given = np.array([complex(*each) for each in itertools.product(parts, parts)], kind)
    x = ops.leaf(0, Size((5, 5)), dtypes.from_numpy(given.dtype))
    square = given.reshape(5, 5)
    for each in (square, square.T, square[0, 0]):
        node = ops.neg(x if each.ndim else ops.leaf(0, Size(()), x.dtype))
        (found,) = Program([node]).run([each], ())
        part = f"f{each.itemsize // 2}"
        expected = np.negative(np.array(each, order="C").reshape(-1).view(part))
        np.testing.assert_array_equal(found.reshape(-1).view(part), expected)
        np.testing.assert_array_equal(
            np.signbit(found.reshape(-1).view(part)), np.signbit(expected)
        )


@pytest.mark.parametrize("half", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("right", [False, True])
def test_places_among_halves(half: Any, right: bool) -> None:
    rng = np.random.default_rng(0)
    lines = np.sort(rng.integers(-9, 9, (3, 40)).astype("f4"), -1).astype(half.np)
    values = rng.integers(-10, 10, (3, 7)).astype(half.np)
    leaves = [ops.leaf(i, Size(a.shape), half) for i, a in enumerate((lines, values))]
    _agree(ops.insertion(*leaves, right), lines, values)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "i4", "i8"])
@pytest.mark.parametrize("op", [ops.maximum, ops.minimum], ids=lambda op: op.name)
def test_extrema_with_one_number(op: Any, kind: str) -> None:
    given = np.random.default_rng(0).integers(0, 99, (20, 30)).astype(kind)
    one, many = np.asarray(50, kind), np.full((20, 30), 50, kind)
    for a, b in ((given, one), (one, given), (given, many), (one, np.asarray(7, kind))):
        leaves = [
            ops.leaf(i, Size(x.shape), dtypes.from_numpy(x.dtype)) for i, x in enumerate((a, b))
        ]
        spread = [ops.expand(x, np.broadcast_shapes(a.shape, b.shape)) for x in leaves]
        _agree(op(*leaves), a, b)
        _agree(op(*spread), a, b)
