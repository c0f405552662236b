"""Sparse matrices times dense ones, op by op, beside SciPy: no product is written to memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import rows
from tilewright.runtime.baseline.program import Program


def _product(width: int, dtype: dtypes.DType) -> tuple[Node, list[Any], Any]:
    """(node, arrays, what SciPy computes) for a sparse matrix [40, 30] by a dense one."""
    rng = np.random.default_rng(0)
    at, sources = rng.integers(0, 40, 200), rng.integers(0, 30, 200)
    factors = rng.normal(size=(200, 1)).astype(dtype.np)
    table = rng.normal(size=(30, width)).astype(dtype.np)
    arrays = [np.zeros((40, width), dtype.np), table, sources, factors, at]
    base, x, i, v, p = (
        ops.leaf(n, Size(a.shape), dtypes.from_numpy(a.dtype)) for n, a in enumerate(arrays)
    )
    scaled = ops.mul(ops.gather(x, i, 0), v)
    matrix = scipy.sparse.coo_matrix((factors[:, 0], (at, sources)), (40, 30))
    return ops.scatter(base, scaled, p, 0, "add"), arrays, matrix @ table


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("width", [1, 7, 8, 64, 70])
def test_beside_scipy(width: int, dtype: dtypes.DType) -> None:
    node, arrays, expected = _product(width, dtype)
    made = Program([node])
    (found,) = made.run(arrays, ())
    assert found.dtype == dtype.np
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    if rows._native(dtype, True) is not None:
        assert len(made.steps) == 1
        # The bits are those of the steps: elements of a row are seldom side by side here.
        (apart, _) = Program([node, node.operands[1]]).run(arrays, ())
        np.testing.assert_array_equal(found, apart)


def test_products_that_are_read_stay() -> None:
    node, arrays, expected = _product(16, dtypes.float32)
    whole, products = Program([node, node.operands[1]]).run(arrays, ())
    np.testing.assert_allclose(whole, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(products, arrays[1][arrays[2]] * arrays[3])


@pytest.mark.parametrize("which", [2, 4])
@pytest.mark.parametrize("bad", [-1, 50])
def test_a_position_out_of_range(which: int, bad: int) -> None:
    node, arrays, _ = _product(8, dtypes.float32)
    arrays[which][7] = bad
    with pytest.raises(IndexError):
        Program([node]).run(arrays, ())


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("width", [1, 7, 8, 70])
def test_sums_of_rows_beside_numpy(width: int, dtype: dtypes.DType) -> None:
    """Rows at positions[bags, size] are added from where they are, unless somebody reads them."""
    rng = np.random.default_rng(0)
    table, index = rng.normal(size=(30, width)).astype(dtype.np), rng.integers(0, 30, (9, 5))
    x = ops.leaf(0, Size(table.shape), dtype)
    taken = ops.gather(x, ops.leaf(1, Size(index.shape), dtypes.int64), 0)
    node = ops.sum(taken, (1,))
    expected = table.astype(np.float64)[index].sum(1, keepdims=True)
    for roots in ([node], [node, taken], [node]):
        made = Program(roots)
        found = made.run([table, index], ())
        assert found[0].shape == (9, 1, width) and found[0].dtype == dtype.np
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-5)
        if rows._native(dtype, True) is not None:
            assert len(made.steps) == len(roots)
    index[3, 2] = 30
    with pytest.raises(IndexError):
        Program([node]).run([table, index], ())


@pytest.mark.parametrize("index", [dtypes.int32, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("order", ["sorted", "as drawn", "one row"])
def test_times_a_vector(order: str, dtype: dtypes.DType, index: dtypes.DType) -> None:
    """Rows of more and fewer elements than lanes, none and all of the matrix."""
    for count in (1, 7, 8, 9, 64, 333):
        rng = np.random.default_rng(count)
        at, sources = (rng.integers(0, 20, count).astype(index.np) for _ in range(2))
        at = {"sorted": np.sort(at), "as drawn": at, "one row": at * 0 + 3}[order]
        factors = rng.normal(size=(count, 1)).astype(dtype.np)
        table = rng.normal(size=(20, 1)).astype(dtype.np)
        table[5] = np.inf
        base = np.full((20, 1), -0.5, dtype.np)
        given = [base, table, sources, factors, at]
        leaves = [
            ops.leaf(n, Size(a.shape), dtypes.from_numpy(a.dtype)) for n, a in enumerate(given)
        ]
        b, x, i, v, p = leaves
        i, p = (ops.cast(n, dtypes.int64) if index is dtypes.int32 else n for n in (i, p))
        node = ops.scatter(b, ops.mul(ops.gather(x, i, 0), v), p, 0, "add")
        made = Program([node])
        (found,) = made.run(given, ())
        expected = base.astype(np.float64)
        with np.errstate(invalid="ignore"):
            np.add.at(expected, at, table[sources].astype(np.float64) * factors)
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
        if rows._times_vector(dtype, index) is not None:
            assert len(made.steps) == 1
            for bad, which in ((20, 2), (-1, 4)):
                wrong = [a.copy() for a in given]
                wrong[which][-1] = bad
                with pytest.raises(IndexError):
                    made.run(wrong, ())
