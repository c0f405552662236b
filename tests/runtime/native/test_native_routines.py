"""LAPACK in a native loop gives what its calls from Python give, and what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tilewright.ir.numeric import batches, elimination, lapack, products
from tilewright.runtime.native import host, routines

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)
if not lapack.serves(np.eye(lapack.SMALL)):
    pytest.skip("NumPy came without OpenBLAS", allow_module_level=True)


def computed(a: Any) -> list[Any]:
    b = a[..., :2].copy()
    return [
        *lapack.inv(a),
        *lapack.solve(a, b),
        *lapack.lu(a),
        *lapack.qr(a),
        lapack.svd(a, "S")[1],
        lapack.eigh(a + np.swapaxes(a, -1, -2).conj(), True, True)[0],
        lapack.solve_triangular(a, b, True, False),
    ]


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
@pytest.mark.parametrize("n", [1, 5, 40])
def test_a_batch(dtype: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((7, n, n)) + (
        1j * rng.standard_normal((7, n, n)) if dtype in "FD" else 0
    )
    a = (a + 5 * np.eye(n)).astype(dtype)
    found = []
    for repeat in (routines.repeat, None):
        monkeypatch.setattr(lapack, "repeat", repeat)
        assert lapack.serves(a) == (repeat is not None or n >= lapack.SMALL)
        found.append(computed(a))
    for native, plain in zip(*found, strict=True):
        np.testing.assert_array_equal(native, plain)
    eps = 300 * np.finfo(dtype).eps
    np.testing.assert_allclose(found[0][0], np.linalg.inv(a), rtol=eps, atol=eps)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangles(upper: bool, unit: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 9, 9)) + 4 * np.eye(9), rng.standard_normal((3, 9, 2))
    for factor in (a, np.swapaxes(a, -1, -2)):  # a view of memory in another order
        found = lapack.solve_triangular(factor, b, upper, unit)
        expected = elimination.solve_triangular(factor, b, upper, unit)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (8, 1), (21, 7), (2, 5, 9)])
def test_running_products(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "running", routines.running)
    rng = np.random.default_rng(0)
    z = np.exp(rng.normal(size=shape) * 0.2 + 1j * rng.uniform(-3, 3, shape)).astype(dtype)
    z[0, ..., -1] = complex(np.inf, np.nan)
    out = np.empty_like(z)
    with np.errstate(invalid="ignore"):
        (found,) = products.running_product(z, z.ndim - 1, out)
        expected = np.cumprod(z, -1)
    assert found is out
    eps = np.finfo(z.real.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=4 * shape[-1] * eps)


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 50), (8, 1), (2, 70), (2, 5, 129), (1, 100_001), (3, 9000)]
)
def test_products_of_rows(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    z = np.exp(rng.normal(size=shape) * 0.01 + 1j * rng.uniform(-3, 3, shape)).astype(dtype)
    expected = np.prod(z.astype("D"), -1)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(products, "total", routines.total)
        monkeypatch.setattr(batches, "threads", lambda threads=threads: threads)
        out = np.empty(shape[:-1], dtype)
        (result,) = products.total_product(z, out)
        assert result is out
        found.append(result)
    np.testing.assert_array_equal(found[0].view(z.real.dtype), found[1].view(z.real.dtype))
    eps = np.finfo(z.real.dtype).eps
    np.testing.assert_allclose(found[0], expected, rtol=4 * np.sqrt(shape[-1]) * eps)
    monkeypatch.setattr(products, "total", None)
    np.testing.assert_allclose(products.total_product(z)[0], expected, rtol=4 * shape[-1] * eps)
    z[0, ..., -1] = complex(np.inf, np.nan)
    monkeypatch.setattr(products, "total", routines.total)
    assert np.isnan(products.total_product(z)[0][0]).all()


def test_products_that_vanish_take_no_longer_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a row are so short that few of their products are subnormal numbers."""
    z = np.full((1, 1 << 16), 0.99 + 0.01j, "F")
    monkeypatch.setattr(products, "total", routines.total)
    lengths: list[int] = []

    def total(rows: np.ndarray, out: np.ndarray) -> None:
        lengths.append(rows.shape[1])
        routines.total(rows, out)

    monkeypatch.setattr(products, "total", total)
    assert products.total_product(z)[0][0] == 0
    assert max(lengths) < 2 * products._PIECE
