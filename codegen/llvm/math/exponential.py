"""exp, log and what follows from them. Coefficients: tools/fit_math.py.

Stated errors are bounds in units of the last place of float32, held by
tests/codegen/llvm/test_llvm_math.py.
"""

from __future__ import annotations

import math

from .expression import Expr, fma, function, polynomial, rarely, where, wide

LOG2_E = 1.4426950408889634
LN2 = math.log(2)

# Added to a number below 2^22 (2^51), they leave its nearest integer in the low bits.
ROUND32, ROUND64 = 1.5 * 2.0**23, 1.5 * 2.0**52

# exp(r) = 1 + r + r^2 P(r) for |r| <= log(2) / 2
_EXP32 = (
    0.0013926203361634337,
    0.008363194882419041,
    0.0416665544984137,
    0.166665768946066,
    0.5,
)
# 2^r = 1 + r P(r) for |r| <= 1 / 2
_EXP2_32 = (
    1.5297323760701075e-05,
    0.0001546144469856913,
    0.001333350238616277,
    0.009618056678524637,
    0.055504108839096185,
    0.24022650922288757,
    0.6931471805599453,
)


def _scaled32(p: Expr, shifted: Expr) -> Expr:
    """p times 2 to the integer in the low bits of `shifted`, in two steps: the first is exact, so a
    denormal result is rounded once."""
    n = shifted.bits() - 0x4B400000
    half = n.shift_right(1, signed=True)
    first = (half + 127).shift_left(23).bits()
    second = (n - half + 127).shift_left(23).bits()
    return p * first * second


@function("exp", inline=True)
def exp(x: Expr) -> Expr:
    """1.1 ulp. Cody and Waite's reduction has log(2) in two parts. n is added to the exponent of a
    result that is a normal number."""
    usual = x.call("exp_bounded")
    other = ~(x.abs() < 87.0)

    def zero() -> tuple[Expr, ...]:
        # Softmax meets whole rows of masked elements, which are -inf.
        none = x < -104.0
        return rarely(other & ~none, (where(none, 0.0, usual),), slow)

    def slow() -> tuple[Expr]:
        clipped = x.most(89.0).least(-104.0)
        n = fma(clipped, LOG2_E, ROUND32)
        return (_scaled32(_reduced_exp(clipped, n), n),)

    (out,) = rarely(other, (usual,), zero)
    return out


@function("exp_bounded", inline=True)
def exp_bounded(x: Expr) -> Expr:
    """exp of numbers of up to 87 in size, with its bits; anything for others."""
    shifted = fma(x, LOG2_E, ROUND32)
    found = _reduced_exp(x, shifted)
    return (found.bits() + shifted.bits().shift_left(23)).bits()


@function("exp_flushed", inline=True)
def exp_flushed(x: Expr) -> Expr:
    """exp of numbers up to 87, computed the same way in all lanes; zero below -87, that is
    1.6e-38."""
    return where(x < -87.0, 0.0, x.least(-87.0).call("exp_bounded"))


@function("exp_flushed", "double", inline=True)
def exp_flushed64(x: Expr) -> Expr:
    return x.call("exp")


def _reduced_exp(x: Expr, shifted: Expr) -> Expr:
    n = shifted - ROUND32
    r = fma(n, -0.693145751953125, x)
    r = fma(n, -1.42860682030941723212e-6, r)
    return fma(polynomial(r, _EXP32), r * r, r) + 1.0


@function("exp2", inline=True)
def exp2(x: Expr) -> Expr:
    """1 ulp."""
    x = x.most(129.0).least(-151.0)
    shifted = x + ROUND32
    r = x - (shifted - ROUND32)
    return _scaled32(fma(polynomial(r, _EXP2_32), r, 1.0), shifted)


@function("exp", "double")
def exp64(x: Expr) -> Expr:
    """1 ulp of float64: the Taylor series to r^13 / 13!."""
    x = x.most(710.0).least(-746.0)
    shifted = fma(x, LOG2_E, ROUND64)
    n = shifted - ROUND64
    r = fma(n, -0.693147180369123816490, x)
    r = fma(n, -1.90821492927058770002e-10, r)
    p = polynomial(r, [1 / math.factorial(k) for k in range(13, 1, -1)])
    p = fma(p, r * r, r) + 1.0
    # A shift that keeps the sign is dear on 64 bits, so n is first made positive.
    n_bits = shifted.bits() - (0x4338000000000000 - 4096)
    half = n_bits.shift_right(1)
    first = (half - 2048 + 1023).shift_left(52).bits()
    second = (n_bits - half - 2048 + 1023).shift_left(52).bits()
    return p * first * second


@function("exp_near", "double", inline=True)
def exp_near(x: Expr) -> Expr:
    """exp to 1e-11 for |x| up to 700, as the float32 functions need it."""
    return x.most(700.0).least(-700.0).call("exp_bounded")


@function("exp_bounded", "double", inline=True)
def exp_bounded64(x: Expr) -> Expr:
    """As `exp_near`; any number for an x beyond 700."""
    shifted = fma(x, LOG2_E, ROUND64)
    n = shifted - ROUND64
    r = fma(n, -LN2, x)
    p = fma(polynomial(r, [1 / math.factorial(k) for k in range(9, 1, -1)]), r * r, r) + 1.0
    scale = (shifted.bits() - (0x4338000000000000 - 1023)).shift_left(52).bits()
    return p * scale


@function("sigmoid", inline=True)
def sigmoid(x: Expr) -> Expr:
    """2.5 ulp. exp of -|x| can't overflow, and small results keep their digits."""
    e = (-x.abs()).call("exp")
    return where(x < 0.0, e, 1.0) / (e + 1.0)


@function("sigmoid", "double")
def sigmoid64(x: Expr) -> Expr:
    e = (-x.abs()).call("exp")
    return where(x < 0.0, e, 1.0) / (e + 1.0)


# tanh(x) = x + x y P(y), y = x^2 <= 0.4
_TANH32 = (
    0.002269501684162354,
    -0.008323187058278775,
    0.021762502907359264,
    -0.0539584616274522,
    0.13333300146188914,
    -0.33333333149374506,
)


@function("tanh", inline=True)
def tanh(x: Expr) -> Expr:
    """1.5 ulp."""
    size = x.abs()
    y = x * x
    near = fma(polynomial(y, _TANH32) * y, size, size)
    far = 1.0 - 2.0 / ((size.most(10.0) * 2.0).call("exp_bounded") + 1.0)
    return where(size >= 0.6, far, near).copysign(x)  # near is right for NaN


# expm1(x) = x + x^2 P(x), |x| <= 1 / 2
_EXPM1 = (
    2.7674993261937146e-07,
    2.7698576589337347e-06,
    2.480136651966594e-05,
    0.00019841004783314266,
    0.0013888889042252353,
    0.008333333517461138,
    0.04166666666637908,
    0.16666666666321386,
    0.5,
)
# sinh(x) = x + x y P(y), y = x^2 <= 1
_SINH = (
    2.545670657152382e-08,
    2.755377026364149e-06,
    0.0001984128253011599,
    0.008333333317464362,
    0.16666666666698407,
)


def expm1_64(x: Expr) -> Expr:
    """exp(x) - 1 to 1e-10 (relative)."""
    near = x * fma(polynomial(x, _EXPM1), x, 1.0)
    return where(x.abs() < 0.5, near, x.call("exp_near") - 1.0)


@wide("expm1")
def expm1(x: Expr) -> Expr:
    """0.51 ulp."""
    return expm1_64(x)


@wide("sinh")
def sinh(x: Expr) -> Expr:
    """0.51 ulp."""
    y = x * x
    e = x.abs().call("exp_near")
    near = x * fma(polynomial(y, _SINH), y, 1.0)
    return where(x.abs() < 1.0, near, ((e - 1.0 / e) * 0.5).copysign(x))


@wide("cosh")
def cosh(x: Expr) -> Expr:
    """0.51 ulp."""
    e = x.abs().call("exp_near")
    return (e + 1.0 / e) * 0.5
