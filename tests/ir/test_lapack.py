"""LAPACK's routines on batches of matrices, beside NumPy's linear algebra and by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir.numeric import batches, elimination, lapack, matrices

pytestmark = pytest.mark.skipif(
    not lapack.serves(np.eye(lapack.SMALL)), reason="NumPy came without OpenBLAS"
)


def drawn(dtype: str, *shape: int) -> Any:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype in "FD" else 0)
    return (a + 10 * np.eye(*shape[-2:])).astype(dtype)


def adjoint(a: Any) -> Any:
    return np.swapaxes(a, -1, -2).conj()


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype and found.flags.c_contiguous
    eps = np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=200 * eps * np.abs(expected).max())


SHAPES = [(3, 40, 40), (40, 40), (2, 1, 33, 50), (2, 50, 33), (1, 7), (2, 7, 1)]


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
@pytest.mark.parametrize("shape", SHAPES)
def test_factors(dtype: str, shape: tuple[int, ...]) -> None:
    a = drawn(dtype, *shape)
    k = min(shape[-2:])
    q, r = lapack.qr(a)
    same(q @ r, a)
    same(adjoint(q) @ q, np.broadcast_to(np.eye(k, dtype=dtype), (*shape[:-2], k, k)))
    assert not np.tril(r, -1).any()
    for vectors, full in (("S", False), ("A", True)):
        u, s, vh = lapack.svd(a, vectors)
        expected = np.linalg.svd(a, full)
        assert [x.shape for x in (u, s, vh)] == [x.shape for x in expected]
        same((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a)
        same(s, expected[1])
    same(lapack.svd(a, "N")[1], s)
    packed, tau = lapack.geqrf(a)
    raw, factors = np.linalg.qr(a, "raw")
    same(packed, np.ascontiguousarray(np.swapaxes(raw, -1, -2)))
    same(tau, factors)
    for found, other in zip(lapack.lu(a), elimination.lu(a), strict=True):
        same(found, other) if found.dtype == a.dtype else np.testing.assert_array_equal(
            found, other
        )


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("size", [5, 40])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_matrices(dtype: str, columns: int, size: int, upper: bool) -> None:
    a, b = drawn(dtype, 3, size, size), drawn(dtype, 3, size, columns)
    for unit in (False, True):
        if unit:
            a = a / size  # which keeps the solutions small
        triangle = np.triu(a) if upper else np.tril(a)
        if unit:
            triangle[..., range(size), range(size)] = 1
        same(triangle @ lapack.solve_triangular(a, b, upper, unit), b)


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_square_matrices(dtype: str) -> None:
    a = drawn(dtype, 3, 40, 40)
    b = a[..., :3]
    same(lapack.inv(a)[0], np.linalg.inv(a))
    same(lapack.solve(a, b)[0], np.linalg.solve(a, b))
    for found, expected in zip(matrices.slogdet(a), np.linalg.slogdet(a), strict=True):
        same(found, expected)
    definite = a @ adjoint(a)
    same(lapack.cholesky(np.tril(definite))[0], np.linalg.cholesky(definite))
    for lower in (True, False):
        half = np.tril(definite) if lower else np.triu(definite)
        values, vectors = lapack.eigh(half, lower, True)
        same(values, np.linalg.eigvalsh(definite))
        same(vectors * values[..., None, :], definite @ vectors)
        same(lapack.eigh(half, lower, False)[0], values)


def test_matrices_without_a_result() -> None:
    a = np.repeat(np.eye(40)[None], 3, 0)
    a[1, 5, 5] = 0
    for found, info in (lapack.inv(a), lapack.cholesky(a), lapack.solve(a, a[..., :2])):
        assert info.tolist() == [0, 6, 0] and info.dtype == np.int32
        assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()
    assert lapack.lu(a)[2].tolist() == [0, 6, 0]
    assert matrices.slogdet(a)[0].tolist() == [1, 0, 1]
    a[1] = np.nan
    found = matrices.svd(a, False)
    assert found[3].tolist() == [0, 2, 0] and np.isnan(found[0][1]).all()


def test_the_bits_of_a_batch_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    a = drawn("f", 5, 40, 40)
    definite = a @ adjoint(a)
    whole = []
    for threads in (1, 3):
        monkeypatch.setattr(batches, "threads", lambda threads=threads: threads)
        monkeypatch.setattr(batches, "WORTH", 1)
        whole.append((matrices.inv(a)[0], matrices.cholesky(definite)[0], matrices.qr(a, False)[0]))
    for one, other in zip(*whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_threads_of_the_library_come_back() -> None:
    count = lapack._library().scipy_openblas_get_num_threads64_
    before = count()
    with lapack.threads(before + 1):
        assert count() == before + 1
    assert count() == before


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
@pytest.mark.parametrize("shape", [(3, 40, 30), (2, 30, 70), (2, 1, 6, 6), (5, 9, 4), (1, 1)])
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares(driver: str, shape: tuple[int, ...], dtype: str) -> None:
    a = drawn(dtype, *shape)
    k, cut = min(shape[-2:]), 1e-4 if dtype in "fF" else 1e-10
    if driver != "gels" and k > 1:
        a[..., :, 1] = a[..., :, 0]  # a rank less
    b = drawn(dtype, *shape[:-1], 2)
    x, rank, s, info = matrices.lstsq(a, b, cut, driver)
    assert not info.any() and info.dtype == np.int32
    same(x, (np.linalg.pinv(a, cut) @ b).astype(dtype))
    if driver != "gels":
        assert rank.dtype == np.int64
        np.testing.assert_array_equal(rank, np.linalg.matrix_rank(a, rtol=cut))
    if driver in ("gelsd", "gelss"):
        same(s, np.linalg.svd(a, compute_uv=False))
    for found, other in zip((x, info), matrices._lstsq(a, b, cut, driver)[::3], strict=True):
        same(found, other) if found.dtype == a.dtype else np.testing.assert_array_equal(
            found, other
        )


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_least_squares_of_matrices_that_surely_have_full_rank(dtype: str) -> None:
    """They are told from others, and factored without exchanges of columns."""
    n = lapack._ORDINARY + 2
    a, b = drawn(dtype, 3, n + 20, n), drawn(dtype, 3, n + 20, 2)
    eps = float(np.finfo(dtype).eps)
    found = lapack.full_rank(a, b, n * eps)
    same(found, (np.linalg.pinv(a) @ b).astype(dtype))
    same(matrices.lstsq(a, b, n * eps, "gelsy")[0], found)
    values = np.linalg.svd(a, compute_uv=False)
    for size in (0.2, 1, 5):  # times what counts as zero
        u, s, vh = np.linalg.svd(a[1], False)
        s[-1] = s[0] * size * n * eps
        lost = a.copy()
        lost[1] = (u * s) @ vh
        assert size == 5 or lapack.full_rank(lost, b, n * eps) is None
        rank = matrices.lstsq(lost, b, n * eps, "gelsy")[1]
        assert rank[0] == rank[2] == n and (size == 1 or rank[1] == n - (size < 1))
    tiny = a * np.finfo(dtype).tiny
    for other in (tiny, np.zeros_like(a), a[:, :, :5], np.swapaxes(a, 1, 2)):
        assert lapack.full_rank(other, b[:, : other.shape[1]], n * eps) is None
    assert lapack.full_rank(a, b, float(2 * (values[:, -1] / values[:, 0]).max())) is None


@pytest.mark.parametrize("dtype", ["f", "D"])
@pytest.mark.parametrize("count", [1, 900])
def test_few_small_matrices_and_many(dtype: str, count: int) -> None:
    """NumPy takes the few; both give the same results and find the same faults."""
    a = drawn(dtype, count, 4, 4)
    assert lapack.pays(a) == (count > 1 and lapack.repeat is not None)
    inverse, info = matrices.inv(a)
    same(inverse, np.linalg.inv(a))
    x, _ = matrices.solve(a, a[..., :2])
    same(x, np.broadcast_to(np.eye(4, 2, dtype=dtype), x.shape).copy())
    factor, _ = matrices.cholesky(a @ adjoint(a))
    same(factor, np.linalg.cholesky(a @ adjoint(a)))
    same(matrices.det(a)[0], np.linalg.det(a).astype(dtype))
    assert not info.any()
    a[0] = 0
    assert matrices.inv(a)[1][0] == matrices.solve(a, a)[1][0] == matrices.cholesky(a)[1][0] == 1


@pytest.mark.parametrize("dtype", ["d", "D"])
def test_zero_pivots_are_those_of_the_matrix_not_of_its_transpose(dtype: str) -> None:
    a = drawn(dtype, 3, 40, 40)
    a[1] = np.eye(40, k=1)  # the first column is zero, and the last row
    a[2, :, 7] = 0
    wanted = elimination.lu(a)[2]
    assert wanted.tolist() == [0, 1, 8]
    for found in (lapack.inv(a)[1], lapack.solve(a, a[..., :2])[1], lapack.lu(a)[2]):
        np.testing.assert_array_equal(found, wanted)
    diagonal, pivots = lapack.pivots(a)
    assert diagonal.shape == pivots.shape == (3, 40)
    same(matrices.det(a)[0], np.linalg.det(a).astype(dtype))


def test_least_squares_without_a_result() -> None:
    a = np.ones((3, 6, 4))
    a[1] = np.nan
    a[2] += np.eye(6, 4)
    x, _, _, info = matrices.lstsq(a, a[..., :1], 1e-12, "gels")
    assert info.tolist() == [2, -1, 0] and np.isnan(x[1]).all()
    same(x[2], np.eye(4)[:, :1])


@pytest.mark.parametrize("dtype", ["f", "d", "F"])
@pytest.mark.parametrize("n", [3, 40])
def test_exponentials_of_all_sizes(dtype: str, n: int) -> None:
    """Each matrix of a batch by the degree that its norm needs, as if it were alone."""
    linalg = pytest.importorskip("scipy.linalg")
    a = drawn(dtype, 8, n, n)
    a /= np.abs(a).sum(-2, keepdims=True).max(-1, keepdims=True)
    norms = np.array([0, 0.01, 0.2, 0.9, 2, 4, 8, 40], a.real.dtype)
    a *= norms[:, None, None]
    (found,) = matrices.matrix_exp(a)
    expected = linalg.expm(a.astype(np.complex128 if dtype == "F" else np.float64))
    error = np.abs(found - expected).max((-2, -1)) / np.abs(expected).max((-2, -1))
    assert found.dtype == a.dtype and (found[0] == np.eye(n)).all()
    bound = 1e-12 if dtype == "d" else 8 * np.finfo(dtype).eps * np.maximum(norms, 1)
    assert (error <= bound).all()
    for one, whole in zip(a, found, strict=True):
        np.testing.assert_array_equal(matrices.matrix_exp(one)[0], whole)


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
@pytest.mark.parametrize("shape", [(3, 8, 8), (40, 40), (2, 2, 1, 1)])
def test_eigenvectors_of_any_matrices(dtype: str, shape: tuple[int, ...]) -> None:
    a = drawn(dtype, *shape)  # real ones have complex eigenvalues, too
    values, vectors = lapack.eig(a, True)
    assert values.dtype == vectors.dtype == np.result_type(dtype, "F")
    same(a @ vectors, (values[..., None, :] * vectors).astype(values.dtype))
    same(np.linalg.norm(vectors, axis=-2), np.ones(values.shape, a.real.dtype))
    same(np.sort_complex(lapack.eig(a, False)[0]), np.sort_complex(values))
    expected = np.linalg.eigvals(a.astype(np.complex128))
    away = np.abs(values[..., None] - expected[..., None, :]).min(-1)
    assert away.max() <= 200 * np.finfo(dtype).eps * np.abs(expected).max()


def test_the_size_of_memory_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    call = lapack._call
    monkeypatch.setattr(lapack, "_call", lambda *args: calls.append(args) or call(*args))
    monkeypatch.setattr(lapack, "_sizes", {})
    a = np.random.default_rng(0).normal(size=(40, 40))
    counts = []
    for matrix in (a, a.T.copy(), a[:39, :39]):
        calls.clear()
        inverse, _ = lapack.inv(matrix)
        np.testing.assert_allclose(inverse @ matrix, np.eye(len(matrix)), atol=1e-8)
        counts.append(len(calls))
    assert counts == [3, 2, 3]
