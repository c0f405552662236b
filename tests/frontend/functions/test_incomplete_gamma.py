"""The incomplete gamma functions and orthogonal polynomials, on every engine of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.computes

DEVICES = ["cpu", pytest.param("interpret", marks=pytest.mark.triton)]


def exact(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P and Q by the series of P, which has positive terms only, to 350 digits."""
    mp = pytest.importorskip("mpmath")
    rows = []
    with mp.workdps(350):
        for a1, x1 in zip(map(mp.mpf, a.tolist()), map(mp.mpf, x.tolist())):
            term, total, k = mp.mpf(1), mp.mpf(1), 0
            while term > total * mp.mpf(10) ** -345:
                k += 1
                term *= x1 / (a1 + k)
                total += term
            p = total * mp.exp(a1 * mp.log(x1) - x1 - mp.loggamma(a1 + 1))
            rows.append((float(p), float(1 - p)))
    p, q = np.array(rows).T
    return p, q


@pytest.fixture(scope="module")
def table() -> Any:
    rng = np.random.default_rng(0)
    n = 20
    a = np.concatenate(
        [10 ** rng.uniform(-8, 3, n), rng.uniform(0.1, 30, n), 10 ** rng.uniform(1, 3, n)]
    )
    near = 1 + rng.normal(0, 1, n) / np.sqrt(a[2 * n :])
    ratio = np.concatenate([10 ** rng.uniform(-2, 1, n), 10 ** rng.uniform(-1, 1, n), near])
    x = np.maximum(a * ratio, 1e-12)
    return a, x, exact(a, x)


@pytest.mark.parametrize("device", DEVICES)
def test_incomplete_gamma(device: str, table: Any) -> None:
    a, x, both = table
    for function, true in zip((tw.special.gammainc, tw.special.gammaincc), both):
        found = function(tw.tensor(a, device=device), tw.tensor(x, device=device)).cpu().numpy()
        plain = true > 1e-290
        np.testing.assert_allclose(found[plain], true[plain], rtol=4e-13)


@pytest.mark.parametrize("device", DEVICES)
def test_edges_of_the_incomplete_gamma_functions(torch: Any, device: str) -> None:
    values = [-np.inf, -1, -0.0, 0.0, 0.5, 1, 3.0, 25.0, 1e30, np.inf, np.nan]
    a, x = np.repeat(values, len(values)), np.tile(values, len(values))
    for name in ("igamma", "igammac"):
        ours = getattr(tw, name)(tw.tensor(a, device=device), tw.tensor(x, device=device))
        theirs = getattr(torch, name)(torch.tensor(a), torch.tensor(x))
        np.testing.assert_allclose(
            ours.cpu().numpy(), theirs.numpy(), rtol=1e-8
        )  # PyTorch is off by 7e-10


def test_gradients_of_the_incomplete_gamma_functions(torch: Any) -> None:
    for name in ("gammainc", "gammaincc"):
        found = []
        for m in (tw, torch):
            a = m.tensor([0.3, 2.0, 30.0], dtype=m.float64)
            x = m.tensor([0.5, 1.5, 28.0], dtype=m.float64, requires_grad=True)
            y = getattr(m.special, name)(a, x)
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
            found.append(
                (y.grad_fn.name(), g.detach().numpy(), m.autograd.grad(g.sum(), x)[0].numpy())
            )
            with pytest.raises(NotImplementedError, match="input"):
                getattr(m.special, name)(x, a).sum().backward()
        assert found[0][0] == found[1][0]
        for ours, theirs in zip(found[0][1:], found[1][1:]):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10)


POLYNOMIALS = [
    *(f"{s}chebyshev_polynomial_{k}" for s in ("", "shifted_") for k in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he"),
    *("laguerre_polynomial_l", "legendre_polynomial_p"),
]


@pytest.mark.parametrize("device", DEVICES)
def test_polynomials(torch: Any, device: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1.5, 1.5, 40), [-1.0, 1.0, 0.0, 0.5]])
    n = np.concatenate([rng.integers(-1, 13, 40), [8, 9, 20, 2.7]]).astype(float)
    for name in POLYNOMIALS:
        theirs = getattr(torch.special, name)(torch.tensor(x), torch.tensor(n)).numpy()
        function = getattr(tw.special, name)
        ours = function(tw.tensor(x, device=device), tw.tensor(n, device=device))
        np.testing.assert_allclose(ours.cpu().numpy(), theirs, rtol=1e-11, atol=1e-12)
        assert not function(tw.tensor([0.5], requires_grad=True), 3).requires_grad


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_degrees_that_are_numbers(torch: Any, name: str) -> None:
    x = np.linspace(-1.2, 1.3, 11)
    for dtype in ("float32", "float64"):
        for n in (-2, 0, 1, 2, 2.7, 5, 31, 40, 130, 600):
            ours, theirs = (
                getattr(m.special, name)(m.tensor(x, dtype=getattr(m, dtype)), n).numpy()
                for m in (tw, torch)
            )
            inside = (x >= 0) & (x <= 1) & np.isfinite(theirs)
            tolerance = 1e-9 if dtype == "float64" else 2e-3
            np.testing.assert_allclose(ours[inside], theirs[inside], rtol=tolerance, atol=tolerance)
    ours, theirs = (getattr(m.special, name)(2, m.tensor([3.0, 4.0])) for m in (tw, torch))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["hermite_polynomial_h", "hermite_polynomial_he"])
def test_hermite_polynomials_of_high_degree_are_nan(torch: Any, name: str) -> None:
    for m in (tw, torch):
        n = m.tensor([2.0, 128.0, 129.0])
        found = getattr(m.special, name)(m.tensor(0.0), n).numpy()
        assert np.isnan(found[2]) and found[0] == -1 * (2 if name.endswith("h") else 1)
