"""Products of few rows by native code, beside float64; products with rows of repeated operands."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tilewright.codegen.llvm import products as code
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import linking, products
from tilewright.runtime.baseline.program import Program

SIZES = [(1, 1, 1), (3, 5, 7), (8, 16, 48), (9, 300, 100), (65, 257, 49), (4, 8, 2000)]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("vector_bytes", [32, 64])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_any_sizes_and_rows_apart(
    size: tuple[int, ...], by_columns: bool, vector_bytes: int, dtype: Any
) -> None:
    m, k, n = size
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(dtype.np) for s in ((m, k + 3), (k, n + 5)))
    held = np.ascontiguousarray(b.T) if by_columns else b
    out = np.full((m, n + 2), np.nan, dtype.np)
    linked = linking.linked("", lambda: code.text(dtype, vector_bytes, by_columns))
    if linked is None:
        pytest.skip("no native code here")
    for chunks in (1, 3):
        width = code.columns(dtype, vector_bytes)
        each = -(-n // (chunks * width)) * width
        run = linking.function(linked, code.WORDS, len(code.BUFFERS), chunks)
        line = k if by_columns else n + 5
        run((out, a, held), (m, n, k, n + 2, k + 3, 1, line, each))
        expected = a[:, :k].astype("f8") @ b[:, :n].astype("f8")
        tolerance = 1e-5 if dtype is dtypes.float32 else 1e-13
        np.testing.assert_allclose(out[:, :n], expected, tolerance, tolerance * k)
        assert np.isnan(out[:, n:]).all()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_as_matmul(dtype: Any) -> None:
    """Of matrices in any order of memory, with and without memory for the result."""
    rng = np.random.default_rng(0)
    product = products.matmul
    for m, k, n in ((2, 3, 4), (16, 40, 300), (300, 600, 70)):
        a, b = (rng.standard_normal(s).astype(dtype.np) for s in ((2, m, k), (2, k, n)))
        out = np.empty((2, n, m), dtype.np)
        for x, y in ((a, b), (np.asfortranarray(a), b), (a, np.asfortranarray(b))):
            np.testing.assert_allclose(product(x, y), np.matmul(a, b), 1e-4, 1e-4)
            np.testing.assert_allclose(
                product(x, y, out.swapaxes(1, 2)), np.matmul(a, b), 1e-4, 1e-4
            )


@pytest.mark.parametrize("op", [ops.add, ops.sub, ops.mul], ids=lambda op: op.name)
def test_short_rows_of_operands_that_broadcast(op: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("f4") for s in ((10, 1, 10, 1), (1, 90, 1, 9)))
    shape = Size(np.broadcast_shapes(a.shape, b.shape))
    leaves = [ops.leaf(i, Size(x.shape), dtypes.float32) for i, x in enumerate((a, b))]
    node = op(*[ops.expand(leaf, shape) for leaf in leaves])
    expected = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op.name](a, b)
    np.testing.assert_array_equal(Program([node]).run([a, b], ())[0], expected)


@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "i4", "i8", "u8"])
def test_whole_numbers(kind: str) -> None:
    """By floats where these are exact, and as NumPy has them: sums lose their upper bits."""
    rng, limits = np.random.default_rng(0), np.iinfo(kind)
    for bound in (3, 100, 1 << 20, limits.max):
        low, high = max(-bound, int(limits.min)), min(bound, int(limits.max))
        a, b = (rng.integers(low, high, s, kind, True) for s in ((3, 40, 50), (50, 33)))
        np.testing.assert_array_equal(products.matmul(a, b), np.matmul(a, b))
        np.testing.assert_array_equal(products.matmul(a, b.T.copy().T), np.matmul(a, b))


@pytest.mark.parametrize("op", [ops.matmul, ops.matmul_wide], ids=lambda o: o.name)
@pytest.mark.parametrize("form", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_large_products_of_bfloat16(op: Any, form: str, batch: tuple[int, ...]) -> None:
    """Before and after the product's sizes have been met often enough to be compiled for a
    processor's matrix registers; elsewhere nothing changes."""
    m, n, k = 130, 512, 300
    rng, half = np.random.default_rng(0), dtypes.bfloat16.np
    a, b = (rng.standard_normal((*batch, *s)).astype(half) for s in ((m, k), (k, n)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    leaves = [ops.leaf(i, Size(x.shape), dtypes.bfloat16) for i, x in enumerate((a, b))]
    program = Program((op(*leaves),), ())
    # Transposed in memory: what is given lies as a transpose of it would.
    given = [
        np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if t == "T" else x
        for x, t in zip((a, b), form)
    ]
    rtol, atol = (2.0**-8, 1e-2) if op is ops.matmul else (1e-5, 2e-4)
    for _ in range(10):
        (found,) = program.run(given, ())
        found = np.asarray(found)
        assert found.dtype == (half if op is ops.matmul else np.float32)
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=rtol, atol=atol)


def test_products_of_infinities_warn_nobody() -> None:
    """NumPy's own do: infinity times 0 is an invalid value."""
    a, b = np.full((12, 3), np.inf, np.float32), np.zeros((3, 2), np.float32)
    with pytest.warns(RuntimeWarning, match="invalid value"):
        expected = a @ b
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(products.quiet(a, b), expected)
