"""Write ir/numeric/expansions.py, the polynomials of the special functions, fitted in mpmath.

    python tools/fit_special.py

Each is a Chebyshev expansion of a smooth factor of the function, turned into powers of a variable
in [-1, 1] or of a square. Only then is it rounded to float64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp

mp.mp.dps = 60
PAGE = Path(__file__).resolve().parents[1] / "ir" / "numeric" / "expansions.py"
_HEAD = '''"""Polynomials of the special functions, highest power first.

tools/fit_special.py writes this file. The comment above each says what is expanded, and the
largest error of the fit.
"""
'''
Number = Any
Function = Callable[[Number], Number]
pi = mp.pi
TINY = mp.mpf("1e-20")


def of_square(f: Function, limit: Number) -> Function:
    """f(x) as a function of z = x^2; `limit` at zero."""
    return lambda z: f(mp.sqrt(z)) if z > TINY**1.2 else mp.mpf(limit)


def mapped(f: Function, top: Number) -> Function:
    """f(z) for z in [0, top] as a function of t = 2 z / top - 1."""
    return lambda t: f((1 + t) * top / 2)


def beyond(f: Function, low: Number, limit: Number) -> Function:
    """f(x) for x >= low as a function of t = 2 low / x - 1; `limit` at infinity."""
    return lambda t: f(2 * low / (1 + t)) if t > -1 + TINY else mp.mpf(limit)


def beyond_squared(f: Function, low: Number, limit: Number) -> Function:
    """f(x) for x >= low as a function of t = 2 (low / x)^2 - 1; `limit` at infinity."""
    return lambda t: f(low * mp.sqrt(2 / (1 + t))) if t > -1 + mp.mpf("1e-9") else mp.mpf(limit)


def hankel(order: int, x: Number) -> tuple[Number, Number]:
    """P and Q of J = sqrt(2 / (pi x)) (P cos(chi) - Q sin(chi)), chi = x - (order / 2 + 1/4) pi."""
    chi = x - pi / 4 - order * pi / 2
    j, y, size = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(pi * x / 2)
    c, s = mp.cos(chi), mp.sin(chi)
    return size * (j * c + y * s), size * (y * c - j * s)


def airy_at(zeta: Number) -> Number:
    return (zeta * 3 / 2) ** (mp.mpf(2) / 3)


def airy_wave(zeta: Number) -> tuple[Number, Number]:
    """P and Q of Ai(-x) = (P sin(chi) - Q cos(chi)) / (sqrt(pi) x^(1/4)), chi = zeta + pi / 4."""
    x, chi = airy_at(zeta), zeta + pi / 4
    a, b, size = mp.airyai(-x), mp.airybi(-x), mp.sqrt(pi) * airy_at(zeta) ** 0.25
    c, s = mp.cos(chi), mp.sin(chi)
    return size * (a * s + b * c), size * (b * s - a * c)


def erfcx(x: Number) -> Number:
    if x > 1e4:
        terms = ((-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(6))
        return mp.fsum(terms) / (x * mp.sqrt(pi))
    return mp.exp(x * x) * mp.erfc(x)


def scaled_erfcx(t: Number) -> Number:
    if t > 1 - mp.mpf("1e-12"):
        return 2 / mp.sqrt(pi)
    x = 2 * (1 + t) / (1 - t)
    return erfcx(x) * (1 + 2 * x)


def quantile(r: Number) -> Number:
    """x with ndtr(-x) = exp(-r^2 / 2)."""
    start = r - (mp.log(r) + mp.log(2 * pi) / 2) / r if r > 3 else r * 0.75
    half = mp.sqrt(2)
    return mp.findroot(
        lambda x: mp.log(erfcx(x / half) / 2) - x * x / 2 + r * r / 2, start, tol=1e-80
    )


def quantile_rest(r: Number) -> Number:
    return (r - mp.log(r) / r - quantile(r)) * r


def between(f: Function, low: Number, high: Number) -> Function:
    """f(r) for r in [low, high] as a function of t, linear in 1 / r: -1 at `high`, 1 at `low`."""
    a, b = 1 / mp.mpf(high), 1 / mp.mpf(low)
    return lambda t: f(1 / (a + (b - a) * (1 + t) / 2))


def without_roots(order: int, f: Function) -> Function:
    """f(z) over the first three roots of J, as a function of z = x^2."""
    first, second, third = (mp.besseljzero(order, k) ** 2 for k in (1, 2, 3))
    return lambda z: f(z) / ((z - first) * (z - second) * (z - third))


def y0_rest(x: Number) -> Number:
    return mp.bessely(0, x) - 2 / pi * mp.log(x) * mp.besselj(0, x)


def y1_rest(x: Number) -> Number:
    return (mp.bessely(1, x) - 2 / pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def ratio(function: Function) -> Function:
    return lambda x: function(x) / x


ZETA_UP, ZETA_DOWN = 2 * mp.sqrt(8) / 3, 2 * mp.sqrt(27) / 3  # of x = 2 and x = -3
I0, I1 = (lambda x: mp.besseli(0, x)), (lambda x: mp.besseli(1, x))
K0, K1 = (lambda x: mp.besselk(0, x)), (lambda x: mp.besselk(1, x))
J1_OVER_X = of_square(ratio(lambda x: mp.besselj(1, x)), 0.5)
at_infinity = 1 / mp.sqrt(2 * pi)
Y0_ZERO, Y1_ZERO = 2 / pi * (mp.euler - mp.log(2)), -(mp.log(2) - mp.euler + 0.5) / pi

# name: (what it says, function, low, high, terms)
FITS: dict[str, tuple[str, Function, Number, Number, int]] = {
    "I0": ("I0(x) in x^2, |x| <= 8", of_square(I0, 1), 0, 64, 17),
    "I1": ("I1(x) / x in x^2, |x| <= 8", of_square(ratio(I1), 0.5), 0, 64, 16),
    "I0_FAR": (
        "sqrt(x) exp(-x) I0(x) in t = 16 / x - 1, x >= 8",
        beyond(lambda x: mp.sqrt(x) * mp.exp(-x) * I0(x), 8, at_infinity), -1, 1, 24,
    ),
    "I1_FAR": (
        "sqrt(x) exp(-x) I1(x) in t = 16 / x - 1, x >= 8",
        beyond(lambda x: mp.sqrt(x) * mp.exp(-x) * I1(x), 8, at_infinity), -1, 1, 24,
    ),
    "K0": (
        "K0(x) + log(x / 2) I0(x) in x^2, x <= 2",
        of_square(lambda x: K0(x) + mp.log(x / 2) * I0(x), -mp.euler), 0, 4, 10,
    ),
    "K1": (
        "(K1(x) - log(x / 2) I1(x) - 1 / x) / x in x^2, x <= 2",
        of_square(
            lambda x: (K1(x) - mp.log(x / 2) * I1(x) - 1 / x) / x, (2 * mp.euler - 1) / 4
        ), 0, 4, 9,
    ),
    "K0_FAR": (
        "sqrt(x) exp(x) K0(x) in t = 4 / x - 1, x >= 2",
        beyond(lambda x: mp.sqrt(x) * mp.exp(x) * K0(x), 2, mp.sqrt(pi / 2)), -1, 1, 24,
    ),
    "K1_FAR": (
        "sqrt(x) exp(x) K1(x) in t = 4 / x - 1, x >= 2",
        beyond(lambda x: mp.sqrt(x) * mp.exp(x) * K1(x), 2, mp.sqrt(pi / 2)), -1, 1, 24,
    ),
    "J0": (
        "J0(x) over z - r^2 for its first three zeros r, in t = z / 32 - 1, z = x^2, |x| <= 8",
        mapped(without_roots(0, of_square(lambda x: mp.besselj(0, x), 1)), 64), -1, 1, 14,
    ),
    "J1": (
        "J1(x) / x over z - r^2 for its first three zeros r, in t = z / 32 - 1, z = x^2, |x| <= 8",
        mapped(without_roots(1, J1_OVER_X), 64), -1, 1, 14,
    ),
    "Y0": (
        "Y0(x) - 2 / pi log(x) J0(x) in t = x^2 / 32 - 1, x <= 8",
        mapped(of_square(y0_rest, Y0_ZERO), 64), -1, 1, 17,
    ),
    "Y1": (
        "(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x in t = x^2 / 32 - 1, x <= 8",
        mapped(of_square(y1_rest, Y1_ZERO), 64), -1, 1, 16,
    ),
    "P0": (
        "P of Hankel's expansion of J0, in t = 128 / x^2 - 1, x >= 8",
        beyond_squared(lambda x: hankel(0, x)[0], 8, 1), -1, 1, 13,
    ),
    "Q0": (
        "x Q of Hankel's expansion of J0, in t = 128 / x^2 - 1, x >= 8",
        beyond_squared(lambda x: x * hankel(0, x)[1], 8, -mp.mpf(1) / 8), -1, 1, 14,
    ),
    "P1": (
        "P of Hankel's expansion of J1, in t = 128 / x^2 - 1, x >= 8",
        beyond_squared(lambda x: hankel(1, x)[0], 8, 1), -1, 1, 13,
    ),
    "Q1": (
        "x Q of Hankel's expansion of J1, in t = 128 / x^2 - 1, x >= 8",
        beyond_squared(lambda x: x * hankel(1, x)[1], 8, mp.mpf(3) / 8), -1, 1, 14,
    ),
    "AIRY": (
        "Ai(x) in t = (x + 1/2) / (5/2), -3 <= x <= 2",
        lambda t: mp.airyai(t * 2.5 - 0.5), -1, 1, 28,
    ),
    "AIRY_FAR": (
        "2 sqrt(pi) x^(1/4) exp(zeta) Ai(x) in t = 2 zeta(2) / zeta - 1, x >= 2",
        beyond(
            lambda z: 2 * mp.sqrt(pi) * airy_at(z) ** 0.25 * mp.exp(z) * mp.airyai(airy_at(z)),
            ZETA_UP, 1,
        ), -1, 1, 24,
    ),
    "AIRY_P": (
        "P of Ai(-x) in t = 2 (zeta(3) / zeta)^2 - 1, x >= 3",
        beyond_squared(lambda z: airy_wave(z)[0], ZETA_DOWN, 1), -1, 1, 24,
    ),
    "AIRY_Q": (
        "zeta Q of Ai(-x) in t = 2 (zeta(3) / zeta)^2 - 1, x >= 3",
        beyond_squared(lambda z: z * airy_wave(z)[1], ZETA_DOWN, mp.mpf(5) / 72), -1, 1, 26,
    ),
    "ERFCX": ("(1 + 2 x) erfcx(x) in t = (x - 2) / (x + 2), x >= 0", scaled_erfcx, -1, 1, 28),
    "ERFCX_SHORT": (
        "(1 + 2 x) erfcx(x) in t = (x - 2) / (x + 2), x >= 0, for float32",
        scaled_erfcx, -1, 1, 15,
    ),
    "QUANTILE": (
        "ndtri(1/2 + y) / y in y^2, |y| <= 0.37",
        of_square(ratio(lambda y: mp.sqrt(2) * mp.erfinv(2 * y)), mp.sqrt(2 * pi)),
        0, mp.mpf("0.37") ** 2, 24,
    ),
    "QUANTILE_TAIL": (
        "(r - log(r) / r - x) r, r = sqrt(-2 log ndtr(-x)), in 1 / r over [1/6, 1/1.9]",
        between(quantile_rest, "1.9", 6), -1, 1, 24,
    ),
    "QUANTILE_FAR": (
        "(r - log(r) / r - x) r, r = sqrt(-2 log ndtr(-x)), in 1 / r over [1/15, 1/6]",
        between(quantile_rest, 6, 15), -1, 1, 20,
    ),
    "QUANTILE_FARTHEST": (
        "(r - log(r) / r - x) r, r = sqrt(-2 log ndtr(-x)), in 1 / r over [1/39, 1/15]",
        between(quantile_rest, 15, 39), -1, 1, 20,
    ),
}  # fmt: skip


def main() -> None:
    parts = [_HEAD]
    for name, (says, function, low, high, terms) in FITS.items():
        found, error = mp.chebyfit(function, [mp.mpf(low), mp.mpf(high)], terms, error=True)
        texts = [f"{float(c)!r}," for c in found]
        rows = "".join(f"    {' '.join(texts[i : i + 3])}\n" for i in range(0, terms, 3))
        parts.append(f"\n# {says}: {mp.nstr(error, 2)}\n{name} = (\n{rows})  # fmt: skip\n")
        print(name, terms, mp.nstr(error, 2), flush=True)
    PAGE.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
