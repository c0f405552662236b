"""Logarithms, powers and inverse hyperbolic functions. Coefficients: tools/fit_math.py."""

from __future__ import annotations

import math
from collections.abc import Callable

from .expression import Expr, fma, function, polynomial, rarely, where, wide

INF, NAN = math.inf, math.nan

# log(1 + f) = f - f^2 / 2 + f^3 P(f) for sqrt(1/2) <= 1 + f <= sqrt(2)
_LOG32 = (
    -0.06201500119018334,
    0.10530864738938345,
    -0.10646191638199634,
    0.1103778335905502,
    -0.12450743320911725,
    0.14286524547786641,
    -0.16668001523071926,
    0.20000010039684973,
    -0.24999990275042186,
    0.33333333281199246,
)


def _parts32(x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """n, f, f^2 and p with x = 2^n (1 + f) and log(1 + f) = f - f^2 / 2 + p, for a normal x."""
    bits = x.bits() - 0x3F3504F3
    n = bits.shift_right(23, signed=True).to("sitofp", "float")
    f = ((bits & 0x7FFFFF) + 0x3F3504F3).bits() - 1.0
    square = f * f
    return n, f, square, polynomial(f, _LOG32) * f * square


def _with_edges(x: Expr, of: Callable[[Expr], Expr], offset: float) -> Expr:
    """`of` for a normal x above 0, and the right values elsewhere. offset: what `of` gains if its
    argument grows by 2^23."""
    usual = (x >= 2.0**-126) & (x < INF)

    def seldom() -> tuple[Expr]:
        return (_edges(x, where(x < 2.0**-126, of(x * 2.0**23) - offset, of(x))),)

    return rarely(~usual, (of(x),), seldom)[0]


@function("log", inline=True)
def log(x: Expr) -> Expr:
    """1 ulp. x = 2^n (1 + f); n log(2) is added in two parts."""

    def of(x: Expr) -> Expr:
        n, f, square, p = _parts32(x)
        p = fma(n, 1.428606765330187045e-06, p)
        return fma(n, 0.693145751953125, fma(square, -0.5, p) + f)

    return _with_edges(x, of, 23 * math.log(2))


def _log_of_base(x: Expr, factor: tuple[float, float], two: tuple[float, float]) -> Expr:
    """log(x) times a factor. factor, two: the factor, and it times log(2), in two parts each."""

    def of(x: Expr) -> Expr:
        n, f, square, p = _parts32(x)
        small = fma(f, factor[1], fma(square, -0.5, p) * factor[0])
        if two[1]:
            small = fma(n, two[1], small)
        return fma(n, two[0], fma(f, factor[0], small))

    return _with_edges(x, of, 23 * (two[0] + two[1]))


@function("log2", inline=True)
def log2(x: Expr) -> Expr:
    """1.5 ulp."""
    return _log_of_base(x, (1.4426950216293335, 1.925963033500011e-08), (1.0, 0.0))


@function("log10", inline=True)
def log10(x: Expr) -> Expr:
    """1.5 ulp."""
    return _log_of_base(
        x, (0.4342944920063019, -1.0103049952192578e-08), (0.301025390625, 4.605038981195214e-06)
    )


def _edges(x: Expr, out: Expr) -> Expr:
    """log with the right values where its argument is 0, infinite, negative or NaN."""
    out = where(x.equals(INF), INF, out)
    out = where(x.equals(0.0), -INF, out)
    return where((x < 0.0) | x.isnan(), NAN, out)


def _series(y: Expr, terms: int) -> Expr:
    """2 atanh(s) / s - 2, divided by y = s^2."""
    return polynomial(y, [2 / (2 * k + 1) for k in range(terms, 0, -1)])


def _split64(x: Expr) -> tuple[Expr, Expr]:
    """n and m with x = 2^n m, sqrt(1/2) <= m < sqrt(2), for a normal x above 0."""
    bits = x.bits() - 0x3FE6A09E667F3BCD
    # The low bits of 1.5 2^52 take the exponent, since there is no signed 64-bit shift.
    shifted = (bits + (1 << 62)).shift_right(52) + (0x4338000000000000 - (1 << 10))
    m = ((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).bits()
    return shifted.bits() - 1.5 * 2.0**52, m


def _log64(x: Expr, terms: int) -> Expr:
    tiny = x < 2.0**-1022
    n, m = _split64(where(tiny, x * 2.0**54, x))
    return _edges(x, _log_of_parts(where(tiny, n - 54.0, n), m, terms))


def _log_of_parts(n: Expr, m: Expr, terms: int) -> Expr:
    """log(2^n m) by the series of 2 atanh(s), s = f / (2 + f), m = 1 + f, |s| < 0.1716."""
    f = m - 1.0
    s = f / (f + 2.0)
    y = s * s
    half = f * f * 0.5
    p = _series(y, terms)
    # log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + y P)): only the small part is rounded (FDLIBM).
    low = fma(s, fma(p, y, half), n * 1.90821492927058770002e-10)
    return fma(n, 0.693147180369123816490, f - (half - low))


@function("log", "double")
def log64(x: Expr) -> Expr:
    """1 ulp of float64."""
    return _log64(x, 10)


@function("log_near", "double", inline=True)
def log_near(x: Expr) -> Expr:
    """log to 1e-13 (relative), as the float32 functions need it."""
    return _log64(x, 7)


@function("log_usual", "double", inline=True)
def log_usual(x: Expr) -> Expr:
    """As `log_near`, for a normal x above 0; any number for others."""
    return _log_of_parts(*_split64(x), 7)


def log1p64(x: Expr) -> Expr:
    """log(1 + x) to 1e-12 (relative): the part of x that 1 + x lost in rounding is put back. It is
    seen only near 0, where it needs no division by 1 + x."""
    u = x + 1.0
    return u.call("log_near") + where(u > 2.0, 0.0, x - (u - 1.0))


@function("log1p")
def log1p(x: Expr) -> Expr:
    """1.5 ulp; the sign of a zero stays."""
    u = x + 1.0
    lost = where(u.equals(INF), 0.0, (x - (u - 1.0)) / u)
    out = where(u.equals(0.0), -INF, u.call("log") + lost)
    return where(x.equals(0.0), x, out)


@wide("asinh")
def asinh(x: Expr) -> Expr:
    """0.51 ulp."""
    size = x.abs()
    y = x * x
    inner = size + y / ((y + 1.0).sqrt() + 1.0)
    return where(size.equals(INF), INF, log1p64(inner)).copysign(x)


@wide("acosh")
def acosh(x: Expr) -> Expr:
    """0.51 ulp."""
    above = x - 1.0
    out = log1p64(above + (above * (x + 1.0)).sqrt())
    return where(x < 1.0, NAN, out)


@wide("atanh")
def atanh(x: Expr) -> Expr:
    """0.51 ulp. log(1 + |x|) - log(1 - |x|) with one quotient: 1 - |x| = 2^n m, and what remains is
    2 atanh(s), |s| < 0.1716, for s = (1 + |x| - m) / (1 + |x| + m)."""
    size = x.abs()
    above = size + 1.0
    n, m = _split64(1.0 - size)
    far = above > m * math.sqrt(2)
    m = where(far, m * 2.0, m)
    n = where(far, n - 1.0, n)
    s = where(n.equals(0.0), size * 2.0, above - m) / (above + m)
    y = s * s
    out = fma(n, -math.log(2) / 2, fma(_series(y, 7) * 0.5, s * y, s))
    out = where(size.equals(1.0), INF, out)
    return where(size > 1.0, NAN, out).copysign(x)


@wide("pow", 2)
def pow(x: Expr, y: Expr) -> Expr:
    """0.52 ulp."""
    return _of_signs(x, y, (x.abs().call("log_near") * y).call("exp_near"))


def _of_signs(x: Expr, y: Expr, out: Expr) -> Expr:
    """x ** y, where `out` is |x| ** y."""
    odd = ~((y * 0.5).round() * 2.0).equals(y)
    whole = y.round().equals(y)
    size = x.abs()
    out = where((x < 0.0) & ~whole & ~size.equals(INF) & ~y.abs().equals(INF), NAN, out)
    # The sign bit, so that -0 counts as negative.
    negative = (1.0 * x).copysign(x).bits() < 0
    out = where(negative & whole & odd, -out, out)
    out = where(size.equals(1.0) & y.abs().equals(INF), 1.0, out)
    return where(y.equals(0.0) | x.equals(1.0), 1.0, out)


# A number in two parts, of which the second one is what the first one's rounding lost.
Pair = tuple[Expr, Expr]

_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LN2_PARTS = (0.6931471805598903, 5.497923018708371e-14)
"""log(2): a number of 42 bits, whose products with exponents are exact, and the rest."""


def _sum(a: Expr | float, b: Expr) -> Pair:
    """a + b in two parts, for |a| >= |b| (T. J. Dekker, Numerische Mathematik 18, 1971)."""
    high = b + a
    return high, b - (high - a)


def _product(a: Expr, b: Expr) -> Pair:
    """a * b in two parts."""
    high = a * b
    return high, fma(a, b, -high)


def _log_pair(x: Expr) -> Pair:
    """log(x) to 2^-65 (relative) for x above 0. The series of 2 atanh(s), s = f / (2 + f), with
    s, s^2, s^3 and the first coefficient in two parts."""
    tiny = x < 2.0**-1022
    n, m = _split64(where(tiny, x * 2.0**54, x))
    n = where(tiny, n - 54.0, n)
    f, below = m - 1.0, m + 1.0
    s = f / below
    lost = fma(-s, below, f) - s * (m - (below - 1.0))
    s_low = lost / below
    y, y_low = _product(s, s)
    y_low = fma(s * 2.0, s_low, y_low)
    cube, cube_low = _product(s, y)
    cube_low = fma(s, y_low, fma(s_low, y, cube_low))
    rest = polynomial(y, [2 / (2 * k + 1) for k in range(13, 1, -1)])
    factor, factor_low = _sum(_TWO_THIRDS[0], y * rest)
    factor_low = fma(y_low, rest, factor_low + _TWO_THIRDS[1])
    third, third_low = _product(cube, factor)
    third_low = fma(cube, factor_low, fma(cube_low, factor, third_low))
    high, low = _sum(n * _LN2_PARTS[0], s * 2.0)
    high, more = _sum(high, third)
    low = low + more + fma(n, _LN2_PARTS[1], fma(s_low, 2.0, third_low))
    return _sum(high, low)


def _exp_pair(x: Expr, low: Expr) -> Expr:
    """exp(x + low) for a `low` that x lost in rounding, to 0.8 ulp; 0 or infinity far from 0."""
    far = x.abs() > 800.0
    low = where(far, 0.0, low)
    x = x.most(800.0).least(-800.0)
    shifted = fma(x, 1 / math.log(2), 1.5 * 2.0**52)
    n = shifted - 1.5 * 2.0**52
    above = fma(n, -_LN2_PARTS[0], x)
    r = fma(n, -_LN2_PARTS[1], above)
    r, low = _sum(r, low + fma(n, -_LN2_PARTS[1], above - r))
    p = polynomial(r, [1 / math.factorial(k) for k in range(13, 1, -1)])
    p = fma(p, r * r, fma(low, r, low)) + r + 1.0
    # In two steps, of which the first one is exact: a denormal result is rounded once.
    n_bits = shifted.bits() - (0x4338000000000000 - 4096)
    half = n_bits.shift_right(1)
    first = (half - 2048 + 1023).shift_left(52).bits()
    second = (n_bits - half - 2048 + 1023).shift_left(52).bits()
    return p * first * second


@function("pow", "double", 2)
def pow64(x: Expr, y: Expr) -> Expr:
    """0.8 ulp of float64. The logarithm has two parts: exp multiplies its error by up to 700."""
    size = x.abs()
    log, log_low = _log_pair(size)
    log = _edges(size, log)
    high, low = _product(log, y)
    out = _exp_pair(high, fma(log_low, y, low))
    return _of_signs(x, y, out)
