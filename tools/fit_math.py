"""The polynomials of codegen/llvm/math, fitted: near-minimax by Chebyshev expansion in mpmath.

    python tools/fit_math.py [NAME ...]

Prints each polynomial, highest power first, with the largest error of the fit. Fits for float32
minimize the relative error, so that only the rounding of the coefficients limits them.
"""

from __future__ import annotations

import sys

import mpmath as mp

mp.mp.dps = 120  # the differences below cancel


def fit(function, low, high, terms):
    coefficients, error = mp.chebyfit(function, [mp.mpf(low), mp.mpf(high)], terms, error=True)
    return [float(c) for c in coefficients], float(error)


def at_zero(function, value):
    """`function`, with its limit `value` at zero, where it would divide by zero."""
    return lambda x: mp.mpf(value) if abs(x) < mp.mpf("1e-30") else function(x)


def root(y):
    return mp.sqrt(y) if y > 0 else mp.mpf(0)


def erfcx_of(t, scale=2):
    # t = (x - scale) / (x + scale)
    x = scale * (1 + t) / (1 - t)
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


def erfinv_small(w):
    x = mp.sqrt(-mp.expm1(-w)) if w > 0 else mp.mpf(0)
    return mp.erfinv(x) / x if x else mp.sqrt(mp.pi) / 2


def erfinv_tail(s):
    w = s * s
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


FITS = {
    # exp(r) = 1 + r + r^2 P(r)
    "exp32": (at_zero(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5), -0.3467, 0.3467, 5),
    # 2^r = 1 + r P(r)
    "exp2_32": (at_zero(lambda r: (mp.power(2, r) - 1) / r, mp.log(2)), -0.5, 0.5, 7),
    # log(1 + f) = f - f^2 / 2 + f^3 P(f)
    "log32": (
        at_zero(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, mp.mpf(1) / 3),
        mp.sqrt(0.5) - 1,
        mp.sqrt(2) - 1,
        10,
    ),
    # tanh(x) = x + x y P(y), y = x^2
    "tanh32": (
        at_zero(lambda y: (mp.tanh(root(y)) / root(y) - 1) / y, -mp.mpf(1) / 3),
        0,
        0.4,
        6,
    ),
    # erf(x) = x + x P(y), y = x^2
    "erf32_near": (
        at_zero(lambda y: mp.erf(root(y)) / root(y) - 1, 2 / mp.sqrt(mp.pi) - 1),
        0,
        0.8649,
        7,
    ),
    # erf(x) = 1 - exp(-x - x P(x))
    "erf32_far": (lambda x: -mp.log(mp.erfc(x)) / x - 1, 0.925, 3.95, 9),
    "expm1": (at_zero(lambda x: (mp.expm1(x) - x) / x**2, 0.5), -0.5, 0.5, 9),
    "sinh": (at_zero(lambda y: (mp.sinh(root(y)) / root(y) - 1) / y, mp.mpf(1) / 6), 0, 1, 5),
    "sin": (
        at_zero(lambda y: (mp.sin(root(y)) / root(y) - 1) / y, -mp.mpf(1) / 6),
        0,
        (mp.pi / 4) ** 2 + 0.001,
        6,
    ),
    "cos": (
        at_zero(lambda y: (mp.cos(root(y)) - 1 + y / 2) / y**2, mp.mpf(1) / 24),
        0,
        (mp.pi / 4) ** 2 + 0.001,
        5,
    ),
    "atan": (
        at_zero(lambda y: (mp.atan(root(y)) / root(y) - 1) / y, -mp.mpf(1) / 3),
        0,
        0.1716,
        7,
    ),
    # sin(r) = r + r y P(y), cos(r) = 1 - y / 2 + y^2 P(y), atan(z) = z + z y P(y), asin as atan
    "sin32": (
        at_zero(lambda y: (mp.sin(root(y)) / root(y) - 1) / y, -mp.mpf(1) / 6),
        0,
        (mp.pi / 4) ** 2 + 0.001,
        4,
    ),
    "cos32": (
        at_zero(lambda y: (mp.cos(root(y)) - 1 + y / 2) / y**2, mp.mpf(1) / 24),
        0,
        (mp.pi / 4) ** 2 + 0.001,
        4,
    ),
    # tan(r) = r + r y P(y)
    "tan32": (
        at_zero(lambda y: (mp.tan(root(y)) / root(y) - 1) / y, mp.mpf(1) / 3),
        0,
        (mp.pi / 4) ** 2 + 0.001,
        7,
    ),
    "atan32": (
        at_zero(lambda y: (mp.atan(root(y)) / root(y) - 1) / y, -mp.mpf(1) / 3),
        0,
        1,
        10,
    ),
    "asin32": (
        at_zero(lambda y: (mp.asin(root(y)) / root(y) - 1) / y, mp.mpf(1) / 6),
        0,
        0.5,
        10,
    ),
    # erfc(x) = exp(-x^2) P(t) / (1 + 2 x), t = (x - 2) / (x + 2)
    "erfc": (erfcx_of, -1, mp.mpf(8.1) / 12.1, 15),
    "erfc32": (erfcx_of, -1, mp.mpf(7.1) / 11.1, 11),
    # erfinv(x) = x P(w - 5 / 2), w = -log(1 - x^2), and x P(sqrt(w) - 3) for w > 5
    "erfinv32": (lambda v: erfinv_small(v + 2.5), -2.5, 2.5, 10),
    "erfinv32_tail": (lambda v: erfinv_tail(v + 3), mp.sqrt(5) - 3, 1.1, 11),
    # lgamma(x) = (x - 1) (x - 2) P(x - 2.25)
    "lgamma": (
        lambda z: mp.loggamma(z + 2.25) / ((z + 1.25) * (z + 0.25)) if z != -0.25 else 1 - mp.euler,
        -0.76,
        0.76,
        15,
    ),
}


def main(names: list[str]) -> None:
    for name in names or FITS:
        coefficients, error = fit(*FITS[name])
        print(f"# {name}: {error:.1e}")
        print(f"_{name.upper()} = (")
        for c in coefficients:
            print(f"    {c!r},")
        print(")")


if __name__ == "__main__":
    main(sys.argv[1:])
