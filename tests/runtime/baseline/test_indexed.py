"""Reads and writes at positions, op by op, beside the reference: any axes, strides and modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.gather import MODES, put_along, take_along
from tilewright.ir.shape import Size
from tilewright.runtime.baseline.program import Program

KINDS = [np.float32, np.float64, np.int64, np.float16, np.bool_, np.uint8, np.int16, np.complex64]


def _leaves(*arrays: Any) -> list[Node]:
    return [ops.leaf(i, Size(a.shape), dtypes.from_numpy(a.dtype)) for i, a in enumerate(arrays)]


def _values(shape: tuple[int, ...], kind: Any, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).integers(-4, 5, shape) / 2
    if np.dtype(kind).kind in "iu":
        drawn = drawn.astype(np.int64) * 77  # sums and products beyond a byte
    if np.dtype(kind).kind == "f":
        drawn.flat[5::17], drawn.flat[3::13] = np.nan, -0.0
    return drawn.astype(kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: np.dtype(k).name)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_along_an_axis(axis: int, kind: Any) -> None:
    given = _values((9, 11, 13), kind)
    shape = tuple([17 if i == axis else n - 2 for i, n in enumerate(given.shape)])
    at = np.random.default_rng(1).integers(0, given.shape[axis], shape)
    x, index = _leaves(given, at)
    turned = ops.permute(ops.permute(x, (2, 0, 1)), (1, 2, 0))
    part = tuple([slice(None) if i == axis else slice(n) for i, n in enumerate(shape)])
    expected = np.take_along_axis(given[part], at, axis)
    for source in (x, turned):
        (found,) = Program([take_along(source, index, axis)]).run([given, at], ())
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: np.dtype(k).name)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axis", [0, 1])
def test_writes_along_an_axis(axis: int, mode: str, kind: Any) -> None:
    base, values = _values((20, 30), kind), _values((20, 30), kind, 1)
    at = np.random.default_rng(1).integers(0, 20, (20, 30))
    leaves = _leaves(base, values, at)
    node = put_along(*leaves, axis, mode)
    (found,) = Program([node]).run([base, values, at], ())
    grid = list(np.indices((20, 30)))
    grid[axis] = at
    reference: Any = ops.scatter.numpy
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, reference(base, values, *grid, 0, mode))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_two_indices_and_strided_ones(axis: int) -> None:
    """Indices that broadcast, before, between and behind other dimensions."""
    given = _values((8, 9, 10, 6), np.float32)
    rng = np.random.default_rng(2)
    first, second = rng.integers(0, given.shape[axis], (7, 1, 5)), rng.integers(0, 6, (3, 5))
    if axis == 2:
        second %= 6
    x, a, b = _leaves(given, first, second)
    read = ops.gather(x, a, b, axis)
    reference: Any = ops.gather.numpy
    expected = reference(given, first, second, axis)
    (found,) = Program([read]).run([given, first, second], ())
    np.testing.assert_array_equal(found, expected)
    values = _values(expected.shape, np.float32, 3)
    v = ops.leaf(3, Size(values.shape), dtypes.float32)
    for mode in ("add", "max"):
        node = ops.scatter(x, v, a, b, axis, mode)
        (found,) = Program([node]).run([given, first, second, values], ())
        place: Any = ops.scatter.numpy
        np.testing.assert_array_equal(found, place(given, values, first, second, axis, mode))


def test_a_position_out_of_range() -> None:
    given, at = _values((9, 11), np.float32), np.full((9, 11), 3)
    for bad in (9, -1):
        at[4, 5] = bad
        x, index = _leaves(given, at)
        for node in (take_along(x, index, 0), put_along(x, x, index, 0, "add")):
            with pytest.raises(IndexError):
                Program([node]).run([given, at], ())


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: np.dtype(k).name)
@pytest.mark.parametrize("width", [1, 7, 64, 67])
def test_rows_at_one_position_each(width: int, kind: Any) -> None:
    """What an index tells for a whole row is read once, and the row is moved in vectors."""
    rng = np.random.default_rng(2)
    given = _values((5, 6, 7, width), kind)
    i, j = rng.integers(0, 5, (4, 3, 1)), rng.integers(0, 7, (4, 1, 8))
    x, first, second = _leaves(given, i, j)
    rows = ops.permute(x, (0, 2, 1, 3))
    lines = ops.permute(ops.permute(x, (3, 0, 1, 2)), (1, 3, 2, 0))  # the same, far apart
    for source in (rows, lines):
        (found,) = Program([ops.gather(source, first, second, 0)]).run([given, i, j], ())
        np.testing.assert_array_equal(found, given.transpose(0, 2, 1, 3)[i, j])
    values = _values((4, 3, 8, 6, width), kind, 1)
    base, new, first, second = _leaves(given.transpose(0, 2, 1, 3).copy(), values, i, j)
    node = ops.scatter(base, new, first, second, 0, "set")
    buffers = [given.transpose(0, 2, 1, 3).copy(), values, i, j]
    (found,) = Program([node]).run(buffers, ())
    reference: Any = ops.scatter.numpy
    np.testing.assert_array_equal(found, reference(*buffers, 0, "set"))


def test_a_row_that_is_out_of_range() -> None:
    given, i, j = _values((5, 6, 70), np.float32), np.array([[1], [5]]), np.array([[0, 2, 1]])
    x, first, second = _leaves(given, i, j)
    for bad in (5, -1):
        i[1, 0] = bad
        with pytest.raises(IndexError):
            Program([ops.gather(x, first, second, 0)]).run([given, i, j], ())


@pytest.mark.parametrize("rank", [5, 6, 7])
def test_many_dimensions(rank: int) -> None:
    """Each index has axes of its own, so that none can be walked as one with its neighbour."""
    sizes = (3, 4, 2, 3, 2, 5, 2)[:rank]
    given = _values(sizes[:2], np.float32)
    own = [tuple([n if a % 2 == k else 1 for a, n in enumerate(sizes)]) for k in range(2)]
    at = [np.random.default_rng(k).integers(0, given.shape[k], own[k]) for k in range(2)]
    x, first, second = _leaves(given, *at)
    (found,) = Program([ops.gather(x, first, second, 0)]).run([given, *at], ())
    np.testing.assert_array_equal(found, given[at[0], at[1]])


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.float16])
def test_more_dimensions_than_the_code_has(kind: Any) -> None:
    shape = (3, 2, 3, 2, 3, 2, 3)
    base, values = _values(shape, kind), _values(shape, kind, 1)
    at = np.random.default_rng(1).integers(0, 3, shape)
    nodes = _leaves(base, values, at)
    grid = list(np.indices(shape))
    grid[2] = at
    reference: Any = ops.scatter.numpy
    for mode in MODES:
        (found,) = Program([put_along(*nodes, 2, mode)]).run([base, values, at], ())
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, reference(base, values, *grid, 0, mode))
