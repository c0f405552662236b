"""The error function and its relatives. Coefficients: tools/fit_math.py."""

from __future__ import annotations

import math

from .expression import Expr, fma, function, near_reciprocal, polynomial, rarely, where, wide

# erf(x) = x + x P(y), y = x^2, |x| < 0.93
_ERF32_NEAR = (
    8.334718615209905e-05,
    -0.0008134709332119057,
    0.005200368586864961,
    -0.026859151472438985,
    0.11283691519733097,
    -0.3761263351714081,
    0.12837916662064427,
)
# erf(x) = 1 - exp(-x - x P(x)) for 0.93 <= x < 3.95; beyond that it is 1
_ERF32_FAR = (
    -3.0035574112377426e-07,
    4.9281845095220435e-06,
    -1.6197445199641374e-05,
    -0.0002612847318883455,
    0.0036290419913603375,
    -0.023955567862616385,
    0.10660563281513305,
    0.6348725943180052,
    0.12872662769195567,
)


@function("erf", inline=True)
def erf(x: Expr) -> Expr:
    """1.5 ulp."""
    size = x.abs()
    near = fma(polynomial(x * x, _ERF32_NEAR), size, size)
    clipped = size.most(3.95)
    far = 1.0 - (-fma(polynomial(clipped, _ERF32_FAR), clipped, clipped)).call("exp_bounded")
    return where(size >= 0.93, far, near).copysign(x)  # near is right for NaN


# erfc(x) = exp(-x^2) P(t) / (1 + 2 x), t = (x - 2) / (x + 2)
_ERFC = (
    -7.842661476655642e-06,
    -2.8330129893527366e-05,
    -3.4125360610643154e-06,
    0.00014494804286376985,
    0.00020621572962877983,
    -0.00045196599332784064,
    -0.001456586995612695,
    0.0012708172250647813,
    0.008722607126375308,
    -0.008033952389644059,
    -0.054219997842771726,
    0.1640512765030015,
    -0.1660303976463906,
    -0.09276382652560129,
    1.2769783815520361,
)


@function("erfc_near", "double", inline=True)
@wide("erfc_near")
def erfc64(x: Expr) -> Expr:
    """erfc to 1e-10 (relative), where it is no less than 1e-45."""
    size = x.abs().most(10.1)
    above, double = size + 2.0, fma(size, 2.0, 1.0)
    both = near_reciprocal(above * double)
    t = (size - 2.0) * (both * double)
    tail = (-(size * size)).call("exp_bounded") * polynomial(t, _ERFC) * (both * above)
    return where(x < 0.0, 2.0 - tail, tail)


# The same for float32, x < 9
_ERFC32 = (
    7.210974796705902e-06,
    -0.0004044621326976677,
    -0.0012586590439203724,
    0.0013059893678909569,
    0.00865146632236833,
    -0.008053426336246196,
    -0.0542091472252072,
    0.16405406159306038,
    -0.16603101333197007,
    -0.09276392365599291,
    1.2769783876420915,
)


@function("erfc")
def erfc(x: Expr) -> Expr:
    """4 ulp; 0.51 where it has fewer digits than float32's normal numbers."""
    size = x.abs()
    square = size * size
    lost = fma(size, size, -square)
    power = (-square).call("exp_bounded")
    power = fma(power, -lost, power)
    t = (size - 2.0) / (size + 2.0)
    tail = power * (polynomial(t, _ERFC32) / fma(size, 2.0, 1.0))
    near = 1.0 - fma(polynomial(square, _ERF32_NEAR), x, x)
    usual = where(size < 0.5, near, where(x < 0.0, 2.0 - tail, tail))

    def slow() -> tuple[Expr]:
        return (erfc64(x.to("fpext", "double")).to("fptrunc", "float"),)

    return rarely(size > 9.0, (usual,), slow)[0]


# erfinv(x) = x P(w - 5 / 2) with w = -log(1 - x^2) < 5, else x P(sqrt(w) - 3)
_ERFINV32 = (
    -8.931925970244222e-09,
    2.3335967195708108e-08,
    4.6813134805534123e-07,
    -3.4639852676333717e-06,
    -4.9724196894547514e-06,
    0.00021834938623976644,
    -0.001252726391773229,
    -0.004177392875203149,
    0.24664027905463662,
    1.501409360450329,
)
_ERFINV32_TAIL = (
    -3.457579213452002e-05,
    0.00016854158453274748,
    -0.0002722671058703768,
    -0.00013131994271710926,
    0.0014737455981858327,
    -0.0035616784594681124,
    0.005687687558257992,
    -0.0076437457320701185,
    0.009445322998191417,
    1.0016752853175022,
    2.8329768011588836,
)


@function("erfinv")
def erfinv(x: Expr) -> Expr:
    """3 ulp."""
    size = x.abs()
    w = -((1.0 - size) * (1.0 + size)).call("log")
    near = polynomial(w - 2.5, _ERFINV32)
    (factor,) = rarely(w >= 5.0, (near,), lambda: (polynomial(w.sqrt() - 3.0, _ERFINV32_TAIL),))
    out = where(size.equals(1.0), math.inf, x * factor).copysign(x)
    return where(size > 1.0, math.nan, out)
