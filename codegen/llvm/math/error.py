"""The error function and its relatives. Coefficients: tools/fit_math.py."""

from __future__ import annotations

import math

from .expression import Expr, fma, function, near_reciprocal, polynomial, rarely, where, wide
from .logarithm import log1m64

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


@wide("erfc")
def erfc(x: Expr) -> Expr:
    """0.51 ulp."""
    return erfc64(x)


# erfinv(x) = x P(w) with w = -log(1 - x^2) < 5, else x P(sqrt(w))
_ERFINV_SMALL = (
    1.2346577114502573e-10,
    -2.9612460261028082e-09,
    2.072803054987327e-08,
    6.466321027721052e-08,
    -1.5175960280333922e-06,
    3.331105346921971e-06,
    4.456915706736076e-05,
    -0.0001261178285939345,
    -0.002336144427612425,
    0.011549628771727806,
    0.2320136360489977,
    0.8862269259834256,
)
_ERFINV_TAIL = (
    -3.506634881619139e-06,
    0.0001541541945372283,
    -0.0031111862117976907,
    0.03813731966347049,
    -0.31646673173370304,
    1.8748930460691338,
    -8.146494460638294,
    26.238364752402525,
    -62.52215357602786,
    108.6670427933637,
    -133.8158068992953,
    110.88898465887938,
    -55.134019642137055,
    13.404263556245736,
)


@wide("erfinv")
def erfinv(x: Expr) -> Expr:
    """0.52 ulp."""
    w = -log1m64(x * x)
    near = polynomial(w.most(5.0), _ERFINV_SMALL)
    (factor,) = rarely(w >= 5.0, (near,), lambda: (polynomial(w.most(17.5).sqrt(), _ERFINV_TAIL),))
    size = x.abs()
    out = x * factor
    out = where(size.equals(1.0), math.inf, out).copysign(x)
    return where(size > 1.0, math.nan, out)
