"""Native elimination of small matrices beside NumPy's loops, which have the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tilewright.ir.numeric import elimination as eliminations
from tilewright.ir.numeric import matrices
from tilewright.runtime.native import elimination, host

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

SHAPES = [(37, 8, 8), (17, 1, 1), (33, 5, 3), (4, 9, 17, 17), (19, 24, 24), (16, 2, 2)]


@pytest.fixture
def numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eliminations, "native", None)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors(numpy: None, shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    a: Any = rng.standard_normal(shape).astype(dtype)
    a[1] = rng.integers(-2, 3, shape[1:])  # pivots of one size
    a[2, ..., -1] = 0  # no pivot
    a[3, ..., 0] = np.nan
    assert elimination.serves(a)
    for found, expected in zip(elimination.lu(a), eliminations.lu(a), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    transposed = np.swapaxes(np.ascontiguousarray(np.swapaxes(a, -1, -2)), -1, -2)
    np.testing.assert_array_equal(elimination.lu(transposed)[0], elimination.lu(a)[0])


def test_determinants() -> None:
    a = np.random.default_rng(1).integers(-3, 4, (100, 5, 5)).astype(np.float64)
    found = matrices.det(a)[0]
    np.testing.assert_allclose(found, np.rint(found), rtol=0, atol=1e-11)
    np.testing.assert_allclose(found, np.linalg.det(a), rtol=1e-9, atol=1e-9)


def test_what_it_leaves_to_others() -> None:
    for shape in ((40, 3, 5), (40, 25, 25), (0, 4, 4)):
        assert not elimination.serves(np.ones(shape))
    assert not elimination.serves(np.ones((40, 4, 4), complex))


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_few_right_sides(unit: bool, upper: bool, dtype: str) -> None:
    """The other triangle isn't read, and neither is a diagonal of ones. A zero pivot divides."""
    rng = np.random.default_rng(0)
    for shape, k in (
        ((1, 1), 1),
        ((5, 5), 3),
        ((2, 3, 16, 16), 4),
        ((70, 70), 8),
        ((3, 33, 33), 5),
    ):
        n = shape[-1]
        a = (rng.standard_normal(shape) / n + 2 * np.eye(n)).astype(dtype)
        b = rng.standard_normal((*shape[:-1], k)).astype(dtype)
        whole = np.triu(a) if upper else np.tril(a)
        if unit:
            whole = whole * (1 - np.eye(n, dtype=dtype)) + np.eye(n, dtype=dtype)
            a = np.where(np.eye(n, dtype=bool), np.nan, a)
        hidden = np.tri(n, k=-1, dtype=bool) if upper else np.tri(n, k=-1, dtype=bool).T
        a = np.where(hidden, np.nan, a).astype(dtype)
        found = elimination.solve_triangular(np.asfortranarray(a), b, upper, unit)
        expected = np.linalg.solve(whole.astype("d"), b.astype("d"))
        np.testing.assert_allclose(found, expected, *[3e-5 if dtype == "f" else 1e-12] * 2)
    with np.errstate(all="ignore"):
        zero = np.zeros((2, 2), dtype)
        found = elimination.solve_triangular(zero, np.ones((2, 2), dtype), upper, False)
    row = found[-1 if upper else 0]
    assert np.isinf(row).all()


def test_which_triangles_are_served() -> None:
    for n, k, dtype in ((128, 2, "f"), (200, 4, "d")):
        a, b = np.eye(n, dtype=dtype), np.ones((n, k), dtype)
        assert elimination.substitutes(a, b)
        assert not elimination.substitutes(a, b[:, :1])
        assert not elimination.substitutes(a[:9, :9], b[:9])
        assert not elimination.substitutes(a[None], b)
        assert not elimination.substitutes(a * 1j, b * 1j)
        (found,) = matrices.solve_triangular(a * 2, b, True, False)
        np.testing.assert_array_equal(found, b / 2)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 1)])
def test_fewer_matrices_than_lanes(batch: tuple[int, ...], dtype: str) -> None:
    a = np.random.default_rng(0).standard_normal((40, 5, 4)).astype(dtype)
    whole = elimination.lu(a)
    few = a[: int(np.prod(batch))].reshape(*batch, 5, 4)
    for found, all_of_them in zip(elimination.lu(few), whole, strict=True):
        expected = all_of_them[: int(np.prod(batch))].reshape((*batch, *all_of_them.shape[1:]))
        np.testing.assert_array_equal(found, expected)
