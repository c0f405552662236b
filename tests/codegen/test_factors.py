"""Factors of matrices in the routines of a GPU's library: the same results, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import reference

from tilewright.codegen.legalize.factors import FORMS, USES, by_library
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import intern, reachable
from tilewright.ir.ops import factors, solving
from tilewright.ir.passes.legalize import decompose_composites
from tilewright.ir.rewrite import rewrite
from tilewright.ir.shape import Size

CASES: dict[str, tuple[Any, tuple[Any, ...], list[tuple[int, ...]]]] = {
    "cholesky": (factors.cholesky, (), [(2, 5, 5)]),
    "lu": (factors.lu, (), [(2, 5, 5)]),
    "lu, wide": (factors.lu, (), [(3, 4, 6)]),
    "lu, tall": (factors.lu, (), [(6, 4)]),
    "solve": (solving.solve, (), [(2, 3, 4, 4), (2, 3, 4, 2)]),
    "inv": (solving.inv, (), [(2, 4, 4)]),
    "det": (solving.det, (), [(2, 3, 5, 5)]),
    "slogdet": (solving.slogdet, (), [(2, 5, 5)]),
    "slogdet of one": (solving.slogdet, (), [(5, 5)]),
    "geqrf": (factors.geqrf, (), [(2, 6, 4)]),
    "geqrf, wide": (factors.geqrf, (), [(4, 6)]),
    "qr": (factors.qr, (False,), [(2, 6, 4)]),
    "qr, wide": (factors.qr, (False,), [(2, 4, 6)]),
    "qr, complete": (factors.qr, (True,), [(6, 4)]),
    "qr, complete and wide": (factors.qr, (True,), [(2, 4, 6)]),
    "eigh": (factors.eigh, (True,), [(2, 4, 4)]),
    "eigh, upper": (factors.eigh, (False,), [(4, 4)]),
    "eigvalsh": (factors.eigvalsh, (True,), [(2, 4, 4)]),
    "eigvalsh, upper": (factors.eigvalsh, (False,), [(4, 4)]),
    "eig": (factors.eig, (), [(2, 4, 4)]),
    "eigvals": (factors.eigvals, (), [(2, 4, 4)]),
    "svd": (factors.svd, (False,), [(2, 6, 4)]),
    "svd, wide": (factors.svd, (False,), [(2, 4, 6)]),
    "svd, full": (factors.svd, (True,), [(6, 4)]),
    "svd, full and wide": (factors.svd, (True,), [(2, 4, 6)]),
    "svd, larger": (factors.svd, (False,), [(2, 33, 4)]),
    "svd, larger and wide": (factors.svd, (True,), [(2, 4, 33)]),
    "svdvals, larger": (factors.svdvals, (), [(2, 33, 4)]),
    "svdvals": (factors.svdvals, (), [(2, 6, 4)]),
    "svdvals, wide": (factors.svdvals, (), [(4, 6)]),
    "one number": (factors.svd, (True,), [(2, 1, 1)]),
}
"""The op, its attrs, the shapes of its operands."""


def drawn(dtype: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(s) for s in shapes]
    if dtype[0] == "c":
        parts = [p + 1j * rng.standard_normal(p.shape) for p in parts]
    return [p.astype(dtype) for p in parts]


def adjoint(a: np.ndarray) -> np.ndarray:
    return a.swapaxes(-1, -2).conj()


def of_eigh(a: np.ndarray, w: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    return [w, (v * w[..., None, :]) @ adjoint(v)]


def in_order(w: np.ndarray) -> np.ndarray:
    """Conjugate values have one real part, but for rounding."""
    return np.argsort(w.round(3), -1)


def of_eig(a: np.ndarray, w: np.ndarray, v: np.ndarray, info: np.ndarray) -> list[np.ndarray]:
    order = in_order(w)
    w = np.take_along_axis(w, order, -1)
    v = np.take_along_axis(v, order[..., None, :], -1)
    with np.errstate(invalid="ignore"):
        return [w, abs(v), a @ v - v * w[..., None, :], info]


def of_eigvals(a: np.ndarray, w: np.ndarray, info: np.ndarray) -> list[np.ndarray]:
    return [np.take_along_axis(w, in_order(w), -1), info]


def of_svd(
    a: np.ndarray, u: np.ndarray, s: np.ndarray, vh: np.ndarray, info: np.ndarray
) -> list[np.ndarray]:
    k = s.shape[-1]
    product = (u[..., :k] * s[..., None, :]) @ vh[..., :k, :]
    return [adjoint(u) @ u, s, vh @ adjoint(vh), product, info]


TOLD: dict[Any, Callable[..., list[np.ndarray]]] = {
    factors.eigh: of_eigh,
    factors.eig: of_eig,
    factors.eigvals: of_eigvals,
    factors.svd: of_svd,
}
"""What is compared where vectors may have any phase, or values any order."""


def compared(op: Any, attrs: tuple[Any, ...], arrays: list[np.ndarray]) -> None:
    """The op's form beside the op itself."""
    given = {
        ops.leaf(i, Size(a.shape), dtypes.from_numpy(a.dtype)): a for i, a in enumerate(arrays)
    }
    expected = op.routine(*arrays, *attrs)
    roots = FORMS[op](*given, *attrs)
    assert [(r.shape, r.dtype.np) for r in roots] == [(e.shape, e.dtype) for e in expected]
    found = reference(rewrite(roots, [decompose_composites]), given)
    if op in TOLD:
        found, expected = (TOLD[op](arrays[0], *each) for each in (found, expected))
    eps = np.finfo(arrays[0].dtype).eps if arrays[0].dtype.kind in "fc" else 0
    for a, b in zip(found, expected, strict=True):
        scale = max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0.0))
        np.testing.assert_allclose(a, b, rtol=0, atol=500 * eps * scale)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_results(name: str, dtype: str) -> None:
    op, attrs, shapes = CASES[name]
    arrays = drawn(dtype, *shapes)
    if op in (factors.cholesky, factors.eigh, factors.eigvalsh):
        # Only one triangle is read.
        arrays[0] += 9 * np.eye(arrays[0].shape[-1], dtype=dtype)
    compared(op, attrs, arrays)


def test_a_permutation() -> None:
    pivots = np.array([[3, 2, 4, 4], [1, 4, 3, 4]], np.int32)
    compared(factors.permutation, (6,), [pivots])


@pytest.mark.parametrize("name", ["cholesky", "solve", "inv", "lu", "det", "slogdet"])
def test_one_matrix_of_a_batch_without_a_result(name: str) -> None:
    op, attrs, shapes = CASES[name]
    arrays = drawn("float64", *shapes)
    arrays[0] = arrays[0] @ adjoint(arrays[0])
    arrays[0][1] = np.diag([1.0, 2.0, 0.0, *[3.0] * (shapes[0][-1] - 3)])
    compared(op, attrs, arrays)


@pytest.mark.parametrize("name", ["eigh", "eigvalsh", "eig", "eigvals", "svd", "svdvals"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_one_matrix_of_a_batch_that_is_not_finite(name: str, dtype: str) -> None:
    op, attrs, shapes = CASES[name]
    arrays = drawn(dtype, *shapes)
    arrays[0][0, 2, 1] = np.inf
    compared(op, attrs, arrays)


def test_what_stays_as_it_is() -> None:
    """A routine of the host, and one that a kernel computes where its operands are."""
    shape = Size((2, 4, 4))
    for device in ("cpu", "cuda:0"):
        node = intern(ops.leaf, (), (0, shape, dtypes.float64), device)
        assert by_library(factors.cholesky(node, 0)) is None
    node = intern(ops.leaf, (), (0, shape, dtypes.complex128), "cuda:0")
    found = by_library(factors.cholesky(node, 0))
    assert found is not None
    assert {n.op for n in reachable([found])} & set(USES[factors.cholesky])
