"""Errors of linear algebra, results beside them, accuracy, and the way to the host."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import recording

pytestmark = pytest.mark.computes
L = tw.linalg
SINGULAR = tw.tensor([[1.0, 2.0], [2.0, 4.0]])
BATCH = tw.stack([tw.eye(2), tw.zeros(2, 2)])


def test_an_indefinite_matrix_is_named_by_its_minor_and_place() -> None:
    with pytest.raises(L.LinAlgError, match="leading minor of order 2 is not positive-definite"):
        L.cholesky(tw.tensor([[1.0, 2.0], [2.0, 1.0]])).tolist()
    with pytest.raises(L.LinAlgError, match=r"\(Batch element 1\).*order 1 .*test_failures.py"):
        L.cholesky(BATCH).tolist()


def test_an_error_comes_though_nothing_reads_the_result() -> None:
    a = tw.ones(3)
    L.inv(SINGULAR * 0)
    with pytest.raises(L.LinAlgError, match=r"linalg.inv: The diagonal element 1 is zero"):
        a.sum().item()
    assert (a + 1).sum().item() == 6


def test_a_try_around_the_call_gets_its_error() -> None:
    """Also one in the function that calls. A program goes on with another matrix."""

    def inverse(a: Any) -> Any:
        return L.inv(a)

    def safe(a: Any) -> Any:
        try:
            found = inverse(a)
        except RuntimeError:
            found = L.pinv(a)
        return found

    assert tw.allclose(safe(SINGULAR), L.pinv(SINGULAR))
    bad = tw.full((2, 2), float("nan"))
    for call in (
        lambda: L.solve(SINGULAR, tw.ones(2)),
        lambda: tw.inverse(SINGULAR),
        lambda: L.svd(bad),
        lambda: L.svdvals(bad),
        lambda: L.pinv(bad),
        lambda: L.lu_factor(SINGULAR * 0),
        lambda: L.lstsq(tw.ones(3, 2), tw.ones(3, 1), driver="gels"),
    ):
        caught = None
        try:
            call()
        except RuntimeError as error:
            caught = error
        assert caught is not None
    pending = tw.ones(3) + 1
    with nullcontext():  # not a `try`: nothing waits for an error
        L.inv(tw.eye(2))
        assert pending._node is not None
    recording.flush()


def test_what_does_not_fail_has_its_value() -> None:
    fine, bad = L.det(tw.eye(2) * 2), L.solve(SINGULAR, tw.ones(2))
    with pytest.raises(L.LinAlgError, match=r"torch\.linalg\.solve: The solver failed"):
        bad.tolist()
    assert fine.item() == 4


def test_ex_forms_tell_and_raise_nothing() -> None:
    assert L.inv_ex(BATCH).info.tolist() == [0, 1]
    assert L.solve_ex(SINGULAR, tw.ones(2)).info.item() == 2
    assert L.cholesky_ex(BATCH).info.tolist() == [0, 1]
    assert L.lu_factor_ex(SINGULAR).info.item() == 2
    result = L.cholesky_ex(BATCH)
    assert result.L[0].tolist() == [[1.0, 0.0], [0.0, 1.0]] and result.info.dtype is tw.int32
    with pytest.raises(L.LinAlgError):
        L.inv_ex(BATCH, check_errors=True).inverse.tolist()


def test_values_that_are_not_finite() -> None:
    bad = tw.tensor([[1.0, float("nan")], [0.0, 1.0]])
    with pytest.raises(L.LinAlgError, match="non-finite"):
        L.svdvals(bad).tolist()
    with pytest.raises(L.LinAlgError, match="non-finite"):
        L.pinv(bad).tolist()
    assert L.eigvalsh(bad.mT).isnan().all()
    assert L.inv(bad).isnan().any() and L.matrix_exp(bad).isnan().all()


def test_least_squares_without_full_rank() -> None:
    a, b = tw.ones(3, 2), tw.tensor([[1.0], [2.0], [3.0]])
    with pytest.raises(L.LinAlgError, match="does not have full rank"):
        L.lstsq(a, b, driver="gels").solution.tolist()
    found = L.lstsq(a, b)
    np.testing.assert_allclose(found.solution.numpy(), [[1.0], [1.0]], rtol=1e-5)
    assert found.rank.item() == 1 and found.residuals.numel() == 0


@pytest.mark.parametrize("n", [1, 3, 24, 25, 70])
def test_residuals_of_ill_conditioned_matrices(n: int) -> None:
    """Backward errors are of the size of eps, whatever the condition number."""
    i = np.arange(n)
    hilbert = tw.tensor(1.0 / (i[:, None] + i + 1))
    b = tw.tensor(np.ones((n, 2)))
    eps, size = np.finfo(np.float64).eps, L.matrix_norm(hilbert, 2)
    p, left, right = L.lu(hilbert)
    assert (p @ left @ right - hilbert).abs().max() <= 8 * n * eps * size
    q, r = L.qr(hilbert)
    assert (q @ r - hilbert).abs().max() <= 8 * n * eps * size
    u, s, vh = L.svd(hilbert)
    assert ((u * s) @ vh - hilbert).abs().max() <= 8 * n * eps * size
    solid = hilbert + tw.eye(n, dtype=tw.float64) * 1e-10
    x = L.solve(solid, b)
    assert (solid @ x - b).abs().max() <= 8 * n * eps * size * x.abs().max()
    y = L.solve_triangular(right + tw.eye(n, dtype=tw.float64) * 1e-10, b, upper=True)
    assert y.isfinite().all()
    factor = L.cholesky(solid)
    assert (factor @ factor.mT - solid).abs().max() <= 8 * n * eps * size


def test_views_and_out() -> None:
    a = tw.tensor(np.arange(1.0, 17.0).reshape(4, 4) ** 1.5 % 7)
    np.testing.assert_allclose(
        L.inv(a[::2, 1:3].mT).numpy(), np.linalg.inv(a.numpy()[::2, 1:3].T), rtol=1e-9
    )
    out, info = tw.empty(0, dtype=tw.float64), tw.empty(0, dtype=tw.int32)
    found = L.inv_ex(a, out=(out, info))
    assert found.inverse is out and info.item() == 0
    np.testing.assert_allclose((out @ a).numpy(), np.eye(4), atol=1e-9)


def test_tensors_of_another_device_are_computed_on_the_host(
    monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    a = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)
    x = tw.tensor(a, device="interpret", requires_grad=True)
    monkeypatch.setenv("TW_DEBUG", "1")
    values = L.eigvalsh(x)
    assert str(values.device) == "interpret"
    assert "the host computes eigh of interpret" in capfd.readouterr().err
    monkeypatch.delenv("TW_DEBUG")
    np.testing.assert_allclose(values.cpu().detach().numpy(), np.linalg.eigvalsh(a), rtol=1e-6)
    (values**2).sum().backward()
    assert str(x.grad.device) == "interpret"
    y = tw.tensor(a, requires_grad=True)
    (L.eigvalsh(y) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), y.grad.numpy(), rtol=1e-5)


def test_scipy_is_asked_for_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    with pytest.raises(ImportError, match=r"tilewright\[linalg\]"):
        L.ldl_factor(tw.eye(2))


def test_indefinite_symmetric_matrices(torch: Any) -> None:
    pytest.importorskip("scipy")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 4, 4)), rng.standard_normal((2, 4, 3))
    a = a + np.swapaxes(a, -1, -2)
    ours, theirs = (
        (*m.linalg.ldl_factor(m.tensor(a)),
         m.linalg.ldl_solve(*m.linalg.ldl_factor(m.tensor(a)), m.tensor(b)))
        for m in (tw, torch)
    )  # fmt: skip
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-12)


def test_low_rank() -> None:
    tw.manual_seed(0)
    a = tw.randn(30, 3) @ tw.randn(3, 20)
    u, s, v = tw.svd_lowrank(a, 5)
    np.testing.assert_allclose(((u * s) @ v.mT).numpy(), a.numpy(), atol=1e-4)
    u, s, v = tw.pca_lowrank(a, 3)
    centered = a - a.mean(0)
    np.testing.assert_allclose(((u * s) @ v.mT).numpy(), centered.numpy(), atol=1e-4)


def test_eigenvalues_of_any_matrix() -> None:
    rng = np.random.default_rng(0)
    for dtype, found in (("float32", "complex64"), ("complex128", "complex128")):
        a = rng.standard_normal((2, 4, 4)).astype(dtype)
        w, v = L.eig(tw.tensor(a))
        assert str(w.dtype) == str(v.dtype) == f"torch.{found}"
        w, v = w.numpy(), v.numpy()
        np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, atol=1e-6)
        np.testing.assert_array_equal(L.eigvals(tw.tensor(a)).numpy(), w)
    with pytest.raises(RuntimeError, match="infs or NaNs"):
        L.eig(tw.full((2, 2, 2), np.nan))[0].tolist()
    with pytest.raises(RuntimeError, match="2 by 3"):
        L.eigvals(tw.ones(2, 3))
