"""The special functions of ir/numeric/special.py, against the C library and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from graph_oracle import assert_close

from tilewright.ir.numeric import special


def real(*shape: int, low: float = -3, high: float = 3) -> np.ndarray:
    return np.random.default_rng(shape[0]).uniform(low, high, size=shape)


@pytest.mark.parametrize("name", ["erf", "erfc", "lgamma"])
def test_special_against_libm(name: str) -> None:
    x = np.concatenate([real(300, low=-5, high=5), real(100, low=0, high=30), 10 ** real(100)])
    expected = np.array([getattr(math, name)(v) for v in x])
    actual = getattr(special, name)(x)
    bound = 4e-15 * (
        np.maximum(np.abs(expected), 1) if name == "lgamma" else np.abs(expected) + 1e-308
    )
    assert np.all(np.abs(actual - expected) <= bound)


def test_special_identities() -> None:
    x = np.concatenate([real(200, low=-0.999, high=0.999), 1 - 10 ** real(50, low=-15, high=-2)])
    assert np.all(np.abs(special.erfc(special.erfinv(x)) - (1 - x)) <= 1e-14 * (1 - x))
    y = real(200, low=-9.9, high=20)
    assert_close(special.digamma(y + 1) - special.digamma(y), 1 / y, 1e-11)
    assert_close(special.zeta(2.0, y) - special.zeta(2.0, y + 1), y**-2.0, 1e-11)
    assert_close(special.zeta(2.0, 1.0), math.pi**2 / 6, 1e-15)
    assert_close(special.digamma(1.0), -0.57721566490153286, 1e-15)
