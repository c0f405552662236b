"""Nodes that are other nodes or views of them: nothing is computed for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.shape import Size
from tilewright.runtime.baseline.program import Program


def _leaf(number: int, array: Any) -> Node:
    return ops.leaf(number, Size(array.shape), dtypes.from_numpy(array.dtype))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_part_of_a_cat_is_the_operand(axis: int) -> None:
    arrays = [np.arange(6.0).reshape(2, 3) + 10 * i for i in range(3)]
    whole = ops.cat([_leaf(i, a) for i, a in enumerate(arrays)], axis)
    size = arrays[0].shape[axis]
    middle = ops.slice_axis(whole, axis, size, 2 * size)
    program = Program([middle + 1])
    assert len(program.steps) == 1
    np.testing.assert_array_equal(program.run(arrays, ())[0], arrays[1] + 1)


def test_other_parts_of_a_cat() -> None:
    arrays = [np.arange(6.0).reshape(2, 3) + 10 * i for i in range(3)]
    whole = ops.cat([_leaf(i, a) for i, a in enumerate(arrays)], 0)
    expected = np.concatenate(arrays)
    roots = [
        ops.slice_axis(whole, 0, 2, 5),
        ops.slice_axis(whole, 0, 2, 4, 2),
        ops.slice_(whole, (2, 1), (4, 3), (1, 1)),
        ops.slice_axis(whole, 0, 0, 2),
    ]
    wanted = [expected[2:5], expected[2:4:2], expected[2:4, 1:3], arrays[0]]
    for found, each in zip(Program(roots).run(arrays, ()), wanted, strict=True):
        np.testing.assert_array_equal(found, each)


def test_the_whole_cat_may_be_a_result_too() -> None:
    arrays = [np.arange(2.0), np.arange(3.0)]
    whole = ops.cat([_leaf(i, a) for i, a in enumerate(arrays)], 0)
    found = Program([ops.slice_axis(whole, 0, 0, 2), whole]).run(arrays, ())
    np.testing.assert_array_equal(found[0], arrays[0])
    np.testing.assert_array_equal(found[1], np.concatenate(arrays))
    assert not any(np.shares_memory(a, b) for a in found for b in arrays)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_parts_of_complex_numbers(shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    z = (rng.standard_normal(shape) - 1j * rng.standard_normal(shape)).astype(dtype)
    x = _leaf(0, z)
    pairs = ops.view_as_real(x)
    parts = [ops.reshape(ops.slice_axis(pairs, len(shape), i, i + 1), shape) for i in range(2)]
    real, imag, both = Program([*parts, pairs]).run([z], ())
    np.testing.assert_array_equal(real, z.real)
    np.testing.assert_array_equal(imag, z.imag)
    np.testing.assert_array_equal(both, np.stack([z.real, z.imag], -1))
    for found in (real, imag):  # in memory of its own
        assert found.dtype == z.real.dtype and found.flags.c_contiguous
        assert not np.shares_memory(found, z)


def test_zero_added_to_whole_numbers() -> None:
    given = np.array([-3, 0, 2**62])
    x, zero = _leaf(0, given), ops.constant(0, dtypes.int64)
    program = Program([(zero + x) * x])
    assert len(program.steps) == 1
    np.testing.assert_array_equal(program.run([given], ())[0], given * given)
    floats = np.array([-0.0, 1.0])  # -0 + 0 is 0
    (found,) = Program([_leaf(0, floats) + ops.constant(0.0, dtypes.float64)]).run([floats], ())
    assert not np.signbit(found).any()


LAYOUTS = [
    ((3, 4), (5, 1), 2),
    ((3, 4), (1, 5), 0),
    ((4, 4, 2), (2, 1, 3), 1),
    ((3, 5), (0, 2), 4),
    ((1, 6), (7, 3), 0),
    ((5, 1, 3), (4, 9, 1), 3),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.complex64])
def test_strides_are_a_view(layout: Any, dtype: Any) -> None:
    shape, strides, offset = layout
    given = np.arange(24).astype(dtype)
    node = ops.strided(_leaf(0, given), shape, strides, offset)
    program = Program([node])
    assert len(program.steps) <= 2  # the memory as one line, and the view
    (found,) = program.run([given], ())
    places = offset + sum(s * n for s, n in zip(strides, np.indices(shape), strict=True))
    np.testing.assert_array_equal(found, given[places])
    assert found.flags.owndata and found.flags.writeable


def test_strides_over_memory_in_another_order() -> None:
    given = np.arange(12.0).reshape(3, 4)
    node = ops.strided(ops.permute(_leaf(0, given), (1, 0)), (3, 3), (3, 2), 1)
    places = 1 + 3 * np.arange(3)[:, None] + 2 * np.arange(3)
    np.testing.assert_array_equal(Program([node]).run([given], ())[0], given.T.ravel()[places])


def test_positions_that_are_no_strides_are_read_as_they_are() -> None:
    given, size = np.arange(30.0), 5
    x, row = _leaf(0, given), ops.iota(size)
    square = row * row
    (found,) = Program([ops.gather(x, square, 0)]).run([given], ())
    np.testing.assert_array_equal(found, given[np.arange(size) ** 2])
    joined = ops.reshape(ops.expand(ops.reshape(row, (size, 1)), (size, 2)), (2 * size,))
    (found,) = Program([ops.gather(x, joined, 0)]).run([given], ())
    np.testing.assert_array_equal(found, given[np.repeat(np.arange(size), 2)])
    for bad in (row + 26, row - 1):
        with pytest.raises(IndexError):
            Program([ops.gather(x, bad, 0)]).run([given], ())


def test_a_line_of_sums_that_doubles_takes_no_double_time() -> None:
    index = ops.constant(0, dtypes.int64) * ops.iota(3)
    for _ in range(20):
        index = index + index
    given = np.arange(4.0)
    (found,) = Program([ops.gather(_leaf(0, given), index, 0)]).run([given], ())
    np.testing.assert_array_equal(found, [0, 0, 0])


@pytest.mark.parametrize("kind", ["f4", "f8", "i8"])
def test_each_element_repeated(kind: str) -> None:
    """As of `repeat_interleave`, of tensors in any order, and of a single element."""
    x = np.arange(20_000).reshape(100, 200).astype(kind)
    for given in (x, x.T, np.asfortranarray(x), np.broadcast_to(x[:1, :1], x.shape)):
        leaf = ops.leaf(0, Size(given.shape), dtypes.from_numpy(given.dtype))
        wide = ops.expand(ops.unsqueeze(leaf, 2), (*given.shape, 4))
        node = ops.reshape(wide, (given.shape[0], -1))
        (found,) = Program([node]).run([given], ())
        np.testing.assert_array_equal(found, np.repeat(given, 4, 1))
