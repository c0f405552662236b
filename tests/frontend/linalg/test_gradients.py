"""Gradients of linear algebra, first and second, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.computes


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def definite(*shape: int) -> np.ndarray:
    a = drawn(*shape)
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])


def symmetric(a: Any) -> Any:
    return (a + a.mH) / 2


CASES = {
    "cholesky": (lambda m, a: m.linalg.cholesky(symmetric(a)), (definite(2, 4, 4),)),
    "cholesky upper": (
        lambda m, a: m.linalg.cholesky(symmetric(a), upper=True), (definite(3, 3),)),
    "cholesky_ex": (lambda m, a: m.linalg.cholesky_ex(symmetric(a))[0], (definite(3, 3),)),
    "cholesky_inverse": (
        lambda m, a: m.cholesky_inverse(m.linalg.cholesky(a)), (definite(3, 3),)),
    "cholesky_solve": (
        lambda m, a, b: m.cholesky_solve(b, m.linalg.cholesky(a).mT, True),
        (definite(3, 3), drawn(3, 2))),
    "inv": (lambda m, a: m.linalg.inv(a), (definite(2, 3, 3),)),
    "solve": (lambda m, a, b: m.linalg.solve(a, b), (drawn(3, 3), drawn(3, 2))),
    "solve vectors": (lambda m, a, b: m.linalg.solve(a, b), (drawn(2, 3, 3), drawn(2, 3))),
    "solve one matrix": (lambda m, a, b: m.linalg.solve(a, b), (drawn(3, 3), drawn(4, 3, 2))),
    "solve broadcast": (lambda m, a, b: m.linalg.solve(a, b), (drawn(2, 1, 3, 3), drawn(4, 3, 2))),
    "solve right": (
        lambda m, a, b: m.linalg.solve(a, b, left=False), (drawn(3, 3), drawn(4, 2, 3))),
    "triangular": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True),
        (definite(3, 3), drawn(3, 2))),
    "triangular unit": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
        (definite(2, 3, 3), drawn(3, 2))),
    "triangular right": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False, left=False),
        (definite(3, 3), drawn(5, 2, 3))),
    "det": (lambda m, a: m.linalg.det(a), (drawn(2, 3, 3),)),
    "slogdet": (lambda m, a: m.linalg.slogdet(a)[1], (drawn(2, 3, 3),)),
    "logdet": (lambda m, a: m.logdet(a), (definite(3, 3),)),
    "qr tall": (lambda m, a: m.linalg.qr(a), (drawn(4, 3),)),
    "qr square": (lambda m, a: m.linalg.qr(a), (drawn(2, 3, 3),)),
    "qr wide": (lambda m, a: m.linalg.qr(a, "complete"), (drawn(2, 4),)),
    "eigenvalues": (lambda m, a: m.linalg.eigh(symmetric(a))[0], (drawn(4, 4),)),
    "eigenvectors": (lambda m, a: m.linalg.eigh(symmetric(a))[1].abs(), (drawn(2, 3, 3),)),
    "eigvalsh": (lambda m, a: m.linalg.eigvalsh(symmetric(a), "U"), (drawn(3, 3),)),
    "eig": (lambda m, a: m.linalg.eig(a)[1].abs(), (drawn(2, 3, 3),)),
    "eigvals": (lambda m, a: m.linalg.eigvals(a).abs(), (drawn(4, 4),)),
    "svd U": (lambda m, a: m.linalg.svd(a, False)[0].abs(), (drawn(4, 3),)),
    "svd V": (lambda m, a: m.linalg.svd(a, False)[2].abs(), (drawn(3, 4),)),
    "svd S": (lambda m, a: m.linalg.svd(a)[1], (drawn(3, 4),)),
    "svdvals": (lambda m, a: m.linalg.svdvals(a), (drawn(2, 3, 4),)),
    "lu": (lambda m, a: m.linalg.lu(a)[1:], (drawn(2, 3, 3),)),
    "lu tall": (lambda m, a: m.linalg.lu(a)[1:], (drawn(2, 5, 3),)),
    "lu wide": (lambda m, a: m.linalg.lu(a)[1:], (drawn(3, 5),)),
    "lu_solve": (
        lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, adjoint=True),
        (drawn(2, 3, 3), drawn(2, 3, 2))),
    "matrix_exp": (lambda m, a: m.linalg.matrix_exp(a), (drawn(2, 3, 3),)),
    "matrix_power": (lambda m, a: m.linalg.matrix_power(a, -2), (drawn(3, 3),)),
    "pinv": (lambda m, a: m.linalg.pinv(a), (drawn(2, 4, 3),)),
    "pinv hermitian": (
        lambda m, a: m.linalg.pinv(symmetric(a), hermitian=True), (drawn(3, 3),)),
    "lstsq": (lambda m, a, b: m.linalg.lstsq(a, b)[0], (drawn(5, 3), drawn(5, 2))),
    "residuals": (
        lambda m, a, b: m.linalg.lstsq(a, b, driver="gelsd")[1], (drawn(2, 5, 3), drawn(2, 5, 2))),
    "cond": (lambda m, a: m.linalg.cond(a), (drawn(2, 5, 3),)),
    "nuclear norm": (lambda m, a: m.linalg.matrix_norm(a, "nuc"), (drawn(2, 3, 4),)),
    "householder_product": (
        lambda m, a, t: m.linalg.householder_product(a, t), (drawn(2, 4, 3), drawn(2, 2))),
    "ormqr": (
        lambda m, a, t, c: m.ormqr(a, t, c, True, True), (drawn(4, 3), drawn(3), drawn(4, 2))),
    "tensorsolve": (
        lambda m, a, b: m.linalg.tensorsolve(a, b), (drawn(6, 4, 2, 3, 4), drawn(6, 4))),
}  # fmt: skip


def outcome(m: Any, call: Any, arrays: Any) -> list[np.ndarray]:
    """Values, gradients, and gradients of these."""

    def parts(x: Any) -> Any:
        return x.real + 0.7 * x.imag if x.is_complex() else x

    inputs = [m.tensor(a).requires_grad_() for a in arrays]
    results = call(m, *inputs)
    results = results if isinstance(results, tuple) else (results,)
    weights = [m.arange(1, r.numel() + 1, dtype=m.float64).reshape(r.shape).cos() for r in results]
    loss = sum((parts(r) * w).sum() for r, w in zip(results, weights, strict=True))
    first = m.autograd.grad(loss, inputs, create_graph=True)
    second = m.autograd.grad(sum(parts(g * g).sum() for g in first), inputs)
    return [t.detach().resolve_conj().numpy() for t in (*results, *first, *second)]


def same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_gradients(torch: Any, name: str) -> None:
    same(*(outcome(m, *CASES[name]) for m in (tw, torch)))


COMPLEX = {
    **{
        name: CASES[name][0]
        for name in (
            "cholesky", "solve right", "triangular unit", "det", "logdet", "qr square", "qr wide",
            "eigenvalues", "eigenvectors", "eig", "eigvals", "svd U", "svd V", "svd S", "lu tall",
            "lu wide", "lu_solve", "matrix_exp", "pinv", "pinv hermitian", "lstsq",
            "householder_product", "ormqr",
        )
    },
    "slogdet": lambda m, a: tuple(m.linalg.slogdet(a)),
    "cholesky_inverse": lambda m, a: m.cholesky_inverse(m.linalg.cholesky(symmetric(a)), True),
    "cholesky_solve": lambda m, a, b: m.cholesky_solve(b, m.linalg.cholesky(symmetric(a))),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_matrices(torch: Any, name: str) -> None:
    def turned(a: np.ndarray) -> np.ndarray:
        return a + 0.3j * drawn(*a.shape[:-1], a.shape[-1] + 1)[..., 1:]

    arrays = [turned(a) for a in CASES[name][1]]
    same(*(outcome(m, COMPLEX[name], arrays) for m in (tw, torch)))


def test_gradcheck() -> None:
    a = tw.tensor(definite(3, 3)).requires_grad_()
    b = tw.tensor(drawn(3, 2)).requires_grad_()
    for call in (
        lambda a, b: tw.linalg.solve(tw.linalg.matrix_exp(a / 9), b),
        lambda a, b: tw.linalg.svd(a @ b, False)[0].abs(),
        lambda a, b: tw.linalg.qr(a @ b)[1] + tw.linalg.det(a),
    ):
        assert tw.autograd.gradcheck(call, (a, b))


def test_gradient_of_a_singular_determinant_is_its_cofactors() -> None:
    a = tw.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]).double().requires_grad_()
    tw.linalg.det(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), [[4, 4, -4], [-2, -2, 2], [0, 0, 0]], atol=1e-12)


def test_singular_values_that_are_equal_have_gradients() -> None:
    a = tw.eye(3).requires_grad_()
    tw.linalg.svdvals(a).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), np.eye(3), atol=1e-6)


def test_a_gradient_after_the_values_were_read() -> None:
    """Backward comes in a later epoch, and reads a factor that nobody held."""
    a = tw.tensor(definite(3, 3)).requires_grad_()
    w = tw.linalg.eigh(a).eigenvalues
    w.tolist()
    (w * tw.tensor([1.0, 2.0, 3.0])).sum().backward()
    vectors = np.linalg.eigh(definite(3, 3))[1]
    np.testing.assert_allclose(a.grad.numpy(), vectors * [1, 2, 3] @ vectors.T, atol=1e-9)
