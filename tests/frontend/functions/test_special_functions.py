"""torch.special over the whole domain, in units of the last place, and at its edges."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.computes

# name: the function in mpmath, the domain, the bound in ulp of float64.
ACCURATE: dict[str, tuple[Callable[[Any, Any], Any], float, float, float]] = {
    "airy_ai": (lambda mp, x: mp.airyai(x), -2, 103, 16),
    "bessel_j0": (lambda mp, x: mp.besselj(0, x), -2.2, 2.2, 6),
    "bessel_j1": (lambda mp, x: mp.besselj(1, x), -3.5, 3.5, 6),
    "entr": (lambda mp, x: -x * mp.log(x), 0, 1e300, 4),
    "erfcx": (lambda mp, x: mp.exp(x * x) * mp.erfc(x), -26, 1e4, 6),
    "i0": (lambda mp, x: mp.besseli(0, x), -713, 713, 6),
    "i0e": (lambda mp, x: mp.besseli(0, x) * mp.exp(-abs(x)), -1e4, 1e4, 6),
    "i1": (lambda mp, x: mp.besseli(1, x), -713, 713, 6),
    "i1e": (lambda mp, x: mp.besseli(1, x) * mp.exp(-abs(x)), -1e4, 1e4, 6),
    "log_ndtr": (lambda mp, x: mp.log(mp.ncdf(x)), -1e3, 5, 6),
    "modified_bessel_k0": (lambda mp, x: mp.besselk(0, x), 0, 700, 16),
    "modified_bessel_k1": (lambda mp, x: mp.besselk(1, x), 0, 700, 8),
    "ndtr": (lambda mp, x: mp.ncdf(x), -37, 1e4, 6),
    "scaled_modified_bessel_k0": (lambda mp, x: mp.besselk(0, x) * mp.exp(x), 0, 1e3, 16),
    "scaled_modified_bessel_k1": (lambda mp, x: mp.besselk(1, x) * mp.exp(x), 0, 1e3, 8),
    "spherical_bessel_j0": (lambda mp, x: mp.sin(x) / x, -3, 3, 3),
}
WAVES: dict[str, tuple[Callable[[Any, Any], Any], float, float]] = {
    "airy_ai": (lambda mp, x: mp.airyai(x), -30, 200),
    "bessel_j0": (lambda mp, x: mp.besselj(0, x), -1e4, 8),
    "bessel_j1": (lambda mp, x: mp.besselj(1, x), -1e4, 8),
    "bessel_y0": (lambda mp, x: mp.bessely(0, x), 0, 8),
    "bessel_y1": (lambda mp, x: mp.bessely(1, x), 0, 16),
}


def points(low: float, high: float) -> np.ndarray:
    """Numbers of the interval, spread evenly and over all magnitudes."""
    rng = np.random.default_rng(0)
    near = np.concatenate([10.0 ** rng.uniform(-8, 3, 60), rng.uniform(0, 10, 60)])
    tiny = 10.0 ** rng.uniform(-300, -8, 10)
    x = np.concatenate([rng.uniform(low, high, 60), near, -near, tiny, -tiny])
    return x[(x > low) & (x < high)]


def exactly(function: Callable[[Any, Any], Any], x: np.ndarray) -> np.ndarray:
    mp = pytest.importorskip("mpmath")  # comes with torch
    with mp.workdps(40):
        return np.array([float(function(mp, mp.mpf(float(each)))) for each in x])


def apply(name: str, x: np.ndarray) -> np.ndarray:
    return getattr(tw.special, name)(tw.tensor(x)).numpy()


@pytest.mark.parametrize("name", ACCURATE)
def test_accuracy(name: str) -> None:
    oracle, low, high, bound = ACCURATE[name]
    x = points(low, high)
    if "_k" in name:
        x = x[::4]  # a value of besselk takes mpmath ten milliseconds
    exact = exactly(oracle, x)
    unit = np.spacing(np.maximum(np.abs(exact), np.finfo(np.float64).tiny))
    assert np.max(np.abs(apply(name, x) - exact) / unit) <= bound

    narrow = x[(abs(x) > 1e-30) & (abs(exact) > 1e-30) & (abs(exact) < 1e30)].astype(np.float32)
    exact = exactly(oracle, narrow)
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    # entr is a formula that stays in float32; the others round a float64.
    assert np.max(np.abs(apply(name, narrow) - exact) / unit) <= (2.5 if name == "entr" else 0.51)


@pytest.mark.parametrize("name", WAVES)
def test_waves(name: str) -> None:
    """Near their zeros, waves are exact in units of their height."""
    oracle, low, bound = WAVES[name]
    x = points(low, 1e3 if low else 1e4)
    x = x[abs(x) > 0.1] if name != "airy_ai" else x[x < 0]
    exact = exactly(oracle, x)
    height = 0.3 if name == "airy_ai" else np.maximum(np.abs(exact), 1 / np.sqrt(np.abs(x) + 1))
    unit = np.finfo(np.float64).eps * height
    assert np.max(np.abs(apply(name, x) - exact) / unit) <= bound


def test_quantiles() -> None:
    """ndtri by its inverse, which is exact where it matters: 3 ulp and the rounding of p."""
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0, 1, 100), 10.0 ** rng.uniform(-307, 0, 100)])
    x = apply("ndtri", p)
    back = exactly(lambda mp, x: mp.ncdf(x), x)
    slope = exactly(lambda mp, x: mp.npdf(x), x)
    unit = np.spacing(np.abs(x))
    assert np.max(np.abs(back - p) / (slope * unit)) <= 4 + 1e-9
    narrow = p[p > 1e-30].astype(np.float32)
    wide = apply("ndtri", narrow.astype(np.float64))
    np.testing.assert_array_equal(apply("ndtri", narrow), wide.astype(np.float32))


def test_every_name_is_there(torch: Any) -> None:
    missing = [name for name in torch.special.__all__ if not hasattr(tw.special, name)]
    assert missing == []


ONE = sorted({*ACCURATE, *WAVES, "ndtri"})


@pytest.mark.parametrize("name", ONE)
def test_edges(torch: Any, name: str) -> None:
    """Zeros, infinities, NaN and what lies outside of the domain."""
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -3.0, 1e-40, -1e-40, np.inf, -np.inf, np.nan]
    for dtype in ("float32", "float64"):
        ours = getattr(tw.special, name)(tw.tensor(values, dtype=getattr(tw, dtype))).numpy()
        theirs = getattr(torch.special, name)(torch.tensor(values, dtype=getattr(torch, dtype)))
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=2e-6, atol=1e-38)


@pytest.mark.parametrize("name", ONE)
def test_gradients_are_pytorchs(torch: Any, name: str) -> None:
    """The same value, the same gradient or none, and the same name of its node."""

    def run(m: Any) -> Any:
        x = m.tensor([0.3, 0.6, 0.9], dtype=m.float64, requires_grad=True)
        y = getattr(m.special, name)(x)
        if not y.requires_grad:
            return None
        (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
        (gg,) = m.autograd.grad(g.sum(), x)
        return y.grad_fn.name(), g.detach().numpy(), gg.numpy()

    ours, theirs = run(tw), run(torch)
    assert (ours is None) == (theirs is None)
    if ours is None:
        return
    assert ours[0] == theirs[0] or name == "ndtr"  # PyTorch's is a formula
    for a, b in zip(ours[1:], theirs[1:]):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e"])
def test_slopes_at_zero(torch: Any, name: str) -> None:
    def run(m: Any) -> Any:
        x = m.zeros(2, requires_grad=True)
        return m.autograd.grad(getattr(m.special, name)(x).sum(), x)[0].numpy()

    np.testing.assert_array_equal(run(tw), run(torch))


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_slopes_where_a_factor_is_zero(torch: Any, name: str) -> None:
    def run(m: Any) -> Any:
        x = m.tensor([0.0, 0.0, 0.0, 1.0, 0.0], requires_grad=True)
        y = m.tensor([2.0, 0.0, -3.0, 0.5, -0.5], requires_grad=True)
        found = getattr(m.special, name)(x, y)
        return [t.numpy() for t in (found.detach(), *m.autograd.grad(found.sum(), (x, y)))]

    for ours, theirs in zip(run(tw), run(torch)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_zeta_has_no_derivative_in_its_first_argument(torch: Any) -> None:
    for m in (tw, torch):
        s, q = m.tensor([2.0], requires_grad=True), m.tensor([3.0], requires_grad=True)
        (g,) = m.autograd.grad(m.special.zeta(s.detach(), q).sum(), q)
        np.testing.assert_allclose(g.numpy(), [-0.15412], rtol=1e-3)
        with pytest.raises(NotImplementedError, match="zeta"):
            m.special.zeta(s, q).sum().backward()


def test_zeta_at_a_pole_far_below_zero() -> None:
    found = tw.special.zeta(tw.tensor([2.0, 3.0]), tw.tensor([-1e30, -0.5]))
    np.testing.assert_allclose(found.numpy(), [np.inf, 0.41439832], rtol=1e-6)


def test_in_place_and_out() -> None:
    x = tw.tensor([0.5, 2.0])
    value = tw.special.i0(x)
    assert x.i0_() is x and tw.equal(x, value)
    out = tw.empty(0)
    assert tw.special.erfcx(value, out=out) is out and out.shape == (2,)
    y = tw.tensor([5.0, 6.0])
    assert tw.equal(y.clone().mvlgamma_(2), tw.special.multigammaln(y, 2))
    assert tw.equal(y.clone().polygamma_(1), tw.polygamma(1, y))
    assert tw.equal(tw.arctan2(x, y), tw.atan2(x, y))


def test_functions_can_be_pickled() -> None:
    import pickle

    for name in ("i1e", "zeta", "bessel_j0"):
        assert pickle.loads(pickle.dumps(getattr(tw.special, name))) is getattr(tw.special, name)


# ---- windows ---------------------------------------------------------------------------------

WINDOWS = {
    "bartlett": [{}],
    "blackman": [{}],
    "cosine": [{}],
    "exponential": [{}, {"tau": 3.0}, {"center": 1.5, "tau": 2.0, "sym": False}],
    "gaussian": [{}, {"std": 2.5}],
    "general_cosine": [{"a": [0.4, 0.3, 0.2]}, {"a": (0.5,)}],
    "general_hamming": [{}, {"alpha": 0.3}],
    "hamming": [{}],
    "hann": [{}],
    "kaiser": [{}, {"beta": 0.0}, {"beta": 3.5}],
    "nuttall": [{}],
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(torch: Any, name: str) -> None:
    def window(m: Any, *args: Any, **options: Any) -> Any:
        return getattr(m.signal.windows, name)(*args, **options)

    for options in WINDOWS[name]:
        for length in (0, 1, 2, 5, 16):
            for more in ({}, {"sym": False}) if "sym" not in options else ({},):
                for dtype in ("float32", "float64"):
                    named = {**options, **more}
                    ours = window(tw, length, dtype=getattr(tw, dtype), **named).numpy()
                    theirs = window(torch, length, dtype=getattr(torch, dtype), **named).numpy()
                    assert ours.dtype == theirs.dtype
                    tolerance = 1e-6 if dtype == "float32" else 1e-12
                    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    first = WINDOWS[name][0]
    assert window(tw, 3, requires_grad=True, **first).requires_grad
    for wrong in ((-1, {}), (3, {"dtype": "int32"}), (3, {"dtype": "float16"}), (3.0, {})):
        raised = []
        for m in (tw, torch):
            options = {k: getattr(m, v) for k, v in wrong[1].items()}
            with pytest.raises((ValueError, TypeError)) as error:
                window(m, wrong[0], **options, **first)
            raised.append(error.type)
        assert raised[0] is raised[1]


def test_signatures_of_windows(torch: Any) -> None:
    for name in WINDOWS:
        ours = inspect.signature(getattr(tw.signal.windows, name)).parameters
        theirs = inspect.signature(getattr(torch.signal.windows, name)).parameters
        assert list(ours) == list(theirs)
        for each in ours.keys() - {"layout"}:
            assert ours[each].default == theirs[each].default
            assert ours[each].kind == theirs[each].kind


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("exponential", {"tau": 0}),
        ("exponential", {"center": 2}),
        ("gaussian", {"std": 0}),
        ("kaiser", {"beta": -1}),
        ("general_cosine", {"a": []}),
        ("general_cosine", {"a": 3}),
        ("hann", {"layout": "torch.sparse_coo"}),
    ],
)
def test_wrong_options_of_windows(torch: Any, name: str, options: Any) -> None:
    raised = []
    for m in (tw, torch):
        given = dict(options)
        if m is torch and "layout" in given:
            given["layout"] = torch.sparse_coo
        with pytest.raises((ValueError, TypeError)) as error:
            getattr(m.signal.windows, name)(5, **given)
        raised.append(error.type)
    assert raised[0] is raised[1]
