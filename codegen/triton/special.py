"""Prelude, part two: exponentials, powers, trigonometry, the error function, the gamma function.

Made of what Triton's math module has on every target and in its interpreter, and of the few device
functions that ours knows (`runtime/interpret/interpreter.py`). Functions of the everyday kind have
a form for float32 that takes 10 to 30 instructions: what memory hides in a kernel for halves, and
registers hold behind a product. They branch nowhere, so the assembler may interleave elements.
Where the device's library has a function of float32 that is right within five units of the last
place, that is taken; float64 has forms of its own. The others work in float64 for float32 too,
which is exact after rounding and keeps them short.

A polynomial is written with `tl.fma`: kernels contract nothing by themselves.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from .functions import (
    tw_copysign,
    tw_maximum,
    tw_minimum,
    tw_neg,
    tw_quick_div,
    tw_rint,
    tw_sqrt,
)


@triton.jit
def tw_expm1(x):
    """exp(x) - 1. Near zero float32 has a polynomial, fitted to 2e-8."""
    u = tl.exp(x)
    if x.dtype == tl.float32:
        p = tl.fma(x, 0.00019993931346107274, 0.0013997459318488836)
        p = tl.fma(x, p, 0.008333069272339344)
        p = tl.fma(x, p, 0.04166531562805176)
        p = tl.fma(x, p, 0.1666666865348816)
        p = tl.fma(x, p, 0.5)
        out = tl.where(tl.abs(x) < 0.6, x * tl.fma(x, p, 1.0), u - 1)
    else:
        # Kahan: u - 1 and log(u) are off by the same factor, so their quotient is not.
        out = (u - 1) * (x / tl.log(u))
        out = tl.where(u == 1, x, out)
        out = tl.where(u - 1 == -1, -1, out)
        out = tl.where(u == float("inf"), u, out)
    return out


@triton.jit
def tw_log1p(x):
    return libdevice.log1p(x)


@triton.jit
def tw_logaddexp(a, b):
    """log(exp(a) + exp(b)); of two infinities of one sign that infinity."""
    top = tw_maximum(a, b)
    apart = tl.where(a == b, 0, -tl.abs(a - b))
    return top + tw_log1p(tl.exp(apart))


@triton.jit
def tw_log10(x):
    if x.dtype == tl.float32:
        out = libdevice.log10(x)
    else:
        out = tl.log(x) * 0.43429448190325182765
    return out


@triton.jit
def tw_sigmoid(x):
    return tw_quick_div(tl.full((), 1.0, x.dtype), 1 + tl.exp(-x))


@triton.jit
def tw_tanh(x):
    """1 - 2 / (exp(2 |x|) + 1). Near zero float32 has a polynomial, fitted to 6e-9."""
    size = tl.abs(x)
    if x.dtype == tl.float32:
        z = x * x
        p = tl.fma(z, -0.0059061492793262005, 0.020805679261684418)
        p = tl.fma(z, p, -0.053786784410476685)
        p = tl.fma(z, p, 0.13331960141658783)
        p = tl.fma(z, p, -0.33333298563957214)
        e = tl.exp2(size * 2.8853900817779268)
        far = tl.fma(tw_quick_div(tl.full((), 1.0, tl.float32), e + 1), -2.0, 1.0)
        out = tl.where(size < 0.65, x * tl.fma(z, p, 1.0), tw_copysign(far, x))
    else:
        t = tw_expm1(-2 * size)
        out = tw_copysign(-t / (t + 2), x)
    return out


@triton.jit
def tw_sinh(x):
    if x.dtype == tl.float32:
        out = libdevice.sinh(x)
    else:
        size = tl.abs(x)
        t = tw_expm1(size)
        near = 0.5 * (t + t / (t + 1))
        half = tl.exp(0.5 * size)
        out = tw_copysign(tl.where(size > 20, 0.5 * half * half, near), x)
    return out


@triton.jit
def tw_cosh(x):
    if x.dtype == tl.float32:
        out = libdevice.cosh(x)
    else:
        half = tl.exp(0.5 * tl.abs(x))
        whole = half * half
        out = tl.where(tl.abs(x) > 20, 0.5 * half * half, 0.5 * whole + 0.5 / whole)
    return out


@triton.jit
def tw_asinh(x):
    if x.dtype == tl.float32:
        out = libdevice.asinh(x)
    else:
        size = tl.abs(x)
        square = size * size
        near = tw_log1p(size + square / (1 + tw_sqrt(square + 1)))
        large = tl.log(size) + 0.69314718055994530942
        out = tw_copysign(tl.where(size > 1e8, large, near), x)
    return out


@triton.jit
def tw_acosh(x):
    t = x - 1
    out = tw_log1p(t + tw_sqrt(t * 2 + t * t))
    out = tl.where(x > 1e8, tl.log(x) + 0.69314718055994530942, out)
    return tl.where(x < 1, float("nan"), out)


@triton.jit
def tw_atanh(x):
    if x.dtype == tl.float32:
        out = libdevice.atanh(x)
    else:
        size = tl.abs(x)
        out = tw_copysign(0.5 * tw_log1p(2 * size / (1 - size)), x)
    return out


@triton.jit
def tw_near_wave(x, quarters: tl.constexpr):
    """The sine of x plus so many quarters of a turn, for float32 below 100,000: the device's own
    function has a branch for larger ones, with an array. Cody and Waite's reduction with three
    parts of pi / 2; polynomials fitted to 4e-9."""
    turned = x * 0.63661977236758134 + 12582912.0  # the nearest integer is in the last bits
    quarter = turned.to(tl.int32, bitcast=True) + quarters
    k = turned - 12582912.0
    r = tl.fma(k, -1.57079601287841796875, x)
    r = tl.fma(k, -3.1391647326017846353e-07, r)
    r = tl.fma(k, -5.390302529957764765e-15, r)
    s = r * r
    odd = tl.fma(s, -0.00019515215535648167, 0.00833216030150652)
    odd = tl.fma(s, odd, -0.16666655242443085)
    odd = tl.fma(s * r, odd, r)
    even = tl.fma(s, 2.443307857902255e-05, -0.0013887315290048718)
    even = tl.fma(s, even, 0.04166664555668831)
    even = tl.fma(s, even, -0.5)
    even = tl.fma(s, even, 1.0)
    out = tl.where((quarter & 1) == 0, odd, even)
    return tl.where((quarter & 2) == 0, out, -out)


@triton.jit
def tw_near_sin(x):
    return tw_near_wave(x, 0)


@triton.jit
def tw_near_cos(x):
    return tw_near_wave(x, 1)


@triton.jit
def tw_tan(x):
    if x.dtype == tl.float32:
        out = libdevice.tan(x)
    else:
        out = tl.sin(x) / tl.cos(x)
    return out


@triton.jit
def tw_atan_wide(x):
    """Cephes: arguments above tan(3 pi / 8) and above 0.66 are turned by pi / 2 and pi / 4."""
    size = tl.abs(x)
    large = size > 2.41421356237309504880
    middle = (size > 0.66) & (size <= 2.41421356237309504880)
    t = tl.where(large, -1 / size, tl.where(middle, (size - 1) / (size + 1), size))
    z = t * t
    p = z * -0.8750608600031904122785 - 16.15753718733365076637
    p = p * z - 75.00855792314704667340
    p = p * z - 122.8866684490136173410
    p = p * z - 64.85021904942025371773
    q = z + 24.85846490142306297962
    q = q * z + 165.0270098316988542046
    q = q * z + 432.8810604912902668951
    q = q * z + 485.3903996359136964868
    q = q * z + 194.5506571482613964425
    zero = tl.zeros_like(x)  # literals alone would be float32
    turn = tl.where(large, 1.5707963267948966192, tl.where(middle, 0.78539816339744830962, zero))
    rest = tl.where(
        large, 6.123233995736765886e-17, tl.where(middle, 3.061616997868382943e-17, zero)
    )
    out = turn + (t + t * (z * (p / q)) + rest)
    return tw_copysign(out, x)


@triton.jit
def tw_atan2_wide(y, x):
    angle = tw_atan_wide(tl.abs(y) / tl.abs(x))
    angle = tl.where((y == 0) & (x == 0), 0.0, angle)
    infinite = (tl.abs(y) == float("inf")) & (tl.abs(x) == float("inf"))
    angle = tl.where(infinite, 0.78539816339744830962, angle)
    backwards = x.to(tl.int64, bitcast=True) < 0  # also for -0.0
    angle = tl.where(backwards, 3.1415926535897932385 - angle, angle)
    return tw_copysign(tl.where((x != x) | (y != y), x + y, angle), y)


@triton.jit
def tw_atan(x):
    if x.dtype == tl.float32:
        out = libdevice.atan(x)
    else:
        out = tw_atan_wide(x)
    return out


@triton.jit
def tw_atan2(a, b):
    if a.dtype == tl.float32:
        out = libdevice.atan2(a, b)
    else:
        out = tw_atan2_wide(a, b)
    return out


@triton.jit
def tw_asin(x):
    if x.dtype == tl.float32:
        out = libdevice.asin(x)
    else:
        out = tw_atan2_wide(x, tl.sqrt((1 - x) * (1 + x)))
    return out


@triton.jit
def tw_acos(x):
    if x.dtype == tl.float32:
        out = libdevice.acos(x)
    else:
        out = tw_atan2_wide(tl.sqrt((1 - x) * (1 + x)), x)
    return out


@triton.jit
def tw_pow(a, b):
    if a.dtype == tl.float32:
        # libdevice takes subnormal numbers for 0, whose powers may well be normal.
        tiny = tl.abs(a) < 1.1754943508222875e-38
        scaled = libdevice.pow(tl.where(tiny, a * 4294967296.0, a), b)
        out = tl.where(tiny, scaled * tl.exp2(-32.0 * b), scaled)
    elif a.dtype == tl.float64:
        out = tw_pow_wide(a, b)
    else:
        out = tw_pow_int(a, b)
    return out


@triton.jit
def tw_pow_wide(a, b):
    """2 ** (b * log2|a|), with the zeros, signs and infinities of IEEE 754."""
    size = tl.abs(a)
    rough = b * tl.log2(size)
    # A rounding error in the exponent is one in the result, times its size: the exponent is kept
    # in two parts, from |a| = 2 ** power * rest.
    power = tw_rint(tl.log2(size))
    half = tl.floor(0.5 * power)
    rest = b * tl.log2(size * tl.exp2(-half) * tl.exp2(half - power))
    whole_part = tw_rint(b * power + rest)
    out = tl.exp2((b * power - whole_part) + rest) * tl.exp2(whole_part)
    out = tl.where(tl.abs(rough) < 1000, out, tl.exp2(rough))
    whole = tl.floor(b) == b
    odd = whole & (tl.floor(0.5 * b) * 2 != b)
    negative = a.to(tl.int64, bitcast=True) < 0  # also for -0.0
    out = tl.where(negative & odd, tw_neg(out), out)
    undefined = (a < 0) & (whole == 0) & (a > -float("inf"))
    out = tl.where(undefined, float("nan"), out)
    unit = (tl.abs(a) == 1) & (tl.abs(b) == float("inf"))
    return tl.where((b == 0) | (a == 1) | unit, 1.0, out)


@triton.jit
def tw_pow_int(a, b):
    """By squaring; a negative exponent gives 0 unless |a| is 1."""
    a += 0 * b  # of the same shape, as the loop goes on with them
    b += 0 * a
    base = a
    left = tl.where(b < 0, 0, b)
    out = base * 0 + 1
    for _ in range(a.dtype.primitive_bitwidth):
        out = tl.where((left & 1) != 0, out * base, out)
        base = base * base
        left = left >> 1
    if a.dtype.is_int_signed():
        unit = tl.where((a == 1) | ((a == -1) & ((b & 1) == 0)), 1, tl.where(a == -1, -1, 0))
        out = tl.where(b < 0, unit.to(a.dtype), out)
    return out


@triton.jit
def tw_erf(x):
    """For float32 a quotient of polynomials, fitted to 2e-8. It passes 1 before |x| = 4."""
    if x.dtype == tl.float32:
        size = tw_minimum(tl.abs(x), 4.0)
        z = size * size
        p = tl.fma(z, 2.1025107e-06, 0.00028694695)
        p = tl.fma(z, p, 0.0037288016)
        p = tl.fma(z, p, 0.052661125)
        p = tl.fma(z, p, 0.18919867)
        p = tl.fma(z, p, 1.1283791)
        q = tl.fma(z, 3.8728267e-05, 0.001158548)
        q = tl.fma(z, q, 0.014899136)
        q = tl.fma(z, q, 0.11367453)
        q = tl.fma(z, q, 0.5010057)
        q = tl.fma(z, q, 1.0)
        out = tw_copysign(tw_minimum(tw_quick_div(size * p, q), 1.0), x)
    else:
        out = tl.erf(x)
    return out


@triton.jit
def tw_erfcx_positive(x):
    """exp(x * x) * erfc(x) for x >= 0: a polynomial, fitted to 5e-16, in y = 4 / (2 + x) - 1."""
    t = 2 / (2 + x)
    y = 2 * t - 1
    p = tl.zeros_like(y) + -2.212465381853812e-09
    p = p * y + 6.618547740906227e-09
    p = p * y + 8.331398320687464e-09
    p = p * y - 5.1579015444001307e-08
    p = p * y + 3.1237899487983776e-08
    p = p * y + 1.500237317385041e-07
    p = p * y - 3.190488075769292e-07
    p = p * y + 1.5275601479205994e-08
    p = p * y + 1.023671759455035e-06
    p = p * y - 1.8346763716034038e-06
    p = p * y - 5.732747032821074e-07
    p = p * y + 8.066868949336902e-06
    p = p * y - 1.084483047858803e-05
    p = p * y - 1.707654627609044e-05
    p = p * y + 7.223470153006206e-05
    p = p * y - 1.718527704960807e-05
    p = p * y - 0.0003315366672107299
    p = p * y + 0.0004186479745534702
    p = p * y + 0.0015453060235237155
    p = p * y - 0.0032395925298231458
    p = p * y - 0.010755330944543402
    p = p * y + 0.018221115753306545
    p = p * y + 0.13973604627802544
    p = p * y + 0.3435803422069066
    p = p * y + 0.5107913526210115
    return p * t


@triton.jit
def tw_erfc_wide(x):
    size = tl.minimum(tl.abs(x), 40.0)
    # exp(-x * x) without the rounding error of x * x: the square of `head` is exact.
    head = size.to(tl.float32).to(tl.float64)
    tail = tl.exp(-head * head) * tl.exp((head - size) * (head + size))
    out = tail * tw_erfcx_positive(size)
    out = tl.where(x < 0, 2 - out, out)
    return tl.where(x != x, x, out)


@triton.jit
def tw_erfc(x):
    if x.dtype == tl.float32:
        out = libdevice.erfc(x)
    else:
        out = tw_erfc_wide(x)
    return out


@triton.jit
def tw_erfinv_wide(wide):
    """Giles' approximation (GPU Computing Gems, 2012), then steps of Halley's method."""
    size = tl.abs(wide)
    gap = 1 - size
    w = -tl.log(gap * (1 + size))
    u = w - 2.5
    near = u * 2.81022636e-08 + 3.43273939e-07
    near = near * u - 3.5233877e-06
    near = near * u - 4.39150654e-06
    near = near * u + 0.00021858087
    near = near * u - 0.00125372503
    near = near * u - 0.00417768164
    near = near * u + 0.246640727
    near = near * u + 1.50140941
    u = tl.sqrt(w) - 3
    far = u * -0.000200214257 + 0.000100950558
    far = far * u + 0.00134934322
    far = far * u - 0.00367342844
    far = far * u + 0.00573950773
    far = far * u - 0.0076224613
    far = far * u + 0.00943887047
    far = far * u + 1.00167406
    far = far * u + 2.83297682
    root = size * tl.where(w < 5, near, far)
    for _ in tl.static_range(3):
        # Each difference is of numbers that are exact where it is used.
        miss = tl.where(size < 0.5, size - tl.erf(root), tw_erfc_wide(root) - gap)
        error = miss * tl.exp(root * root) * 0.88622692545275801365
        root = root + error / (1 + root * error)
    root = tl.where(size < 1e-8, size * 0.88622692545275801365, root)
    root = tl.where(size == 1, float("inf"), root)
    root = tl.where((size > 1) | (size != size), float("nan"), root)
    return tw_copysign(root, wide)


@triton.jit
def tw_erfinv(x):
    if x.dtype == tl.float32:
        out = libdevice.erfinv(x)
    else:
        out = tw_erfinv_wide(x)
    return out


@triton.jit
def tw_sinpi_wide(x):
    """sin(pi * x)."""
    near = tw_rint(x)
    out = tl.sin(3.1415926535897932385 * (x - near))
    return tl.where(tl.floor(0.5 * near) * 2 != near, -out, out)


@triton.jit
def tw_lgamma_positive(x):
    """log(gamma(x)) for x >= 0.5: Stirling's series at x + 10, less the factors in between."""
    factors = x
    for i in tl.static_range(1, 10):
        factors = factors * (x + i)
    large = x > 1e15
    z = tl.where(large, x, x + 10)
    r = 1 / z
    s = r * r
    series = s * 0.00084175084175084175 - 0.00059523809523809524
    series = series * s + 0.00079365079365079365
    series = series * s - 0.0027777777777777778
    series = series * s + 0.083333333333333333
    stirling = (z - 0.5) * tl.log(z) - z + 0.91893853320467274178 + series * r
    return tl.where(large, stirling, stirling - tl.log(tl.where(large, 1.0, factors)))


@triton.jit
def tw_lgamma(x):
    wide = x.to(tl.float64)
    mirrored = wide < 0.5
    out = tw_lgamma_positive(tl.where(mirrored, 1 - wide, wide))
    sine = tl.abs(tw_sinpi_wide(wide))
    out = tl.where(mirrored, 1.1447298858494001741 - tl.log(sine) - out, out)
    pole = (wide <= 0) & (tl.floor(wide) == wide)
    return tl.where(pole | (tl.abs(wide) == float("inf")), float("inf"), out).to(x.dtype)


@triton.jit
def tw_digamma(x):
    """The derivative of lgamma: the asymptotic series at x + 10, less the terms in between."""
    wide = x.to(tl.float64)
    mirrored = wide < 0.5
    z = tl.where(mirrored, 1 - wide, wide)
    terms = 1 / z
    for i in tl.static_range(1, 10):
        terms = terms + 1 / (z + i)
    z = z + 10
    r = 1 / z
    s = r * r
    series = s * 0.0075757575757575758 - 0.0041666666666666667
    series = series * s + 0.0039682539682539683
    series = series * s - 0.0083333333333333333
    series = series * s + 0.083333333333333333
    out = tl.log(z) - 0.5 * r - series * s - terms
    turn = wide - tw_rint(wide)
    angle = 3.1415926535897932385 * turn
    reflected = out - 3.1415926535897932385 * tl.cos(angle) / tl.sin(angle)
    out = tl.where(mirrored, reflected, out)
    pole = (wide <= 0) & (tl.floor(wide) == wide)
    out = tl.where(pole, float("nan"), out)
    out = tl.where(wide == 0, tw_copysign(wide * 0 + float("inf"), -wide), out)
    return tl.where(wide == float("inf"), wide, out).to(x.dtype)


@triton.jit
def tw_zeta(s, x):
    return tw_zeta_wide(s.to(tl.float64), x.to(tl.float64)).to(s.dtype)


@triton.jit
def tw_zeta_wide(s, x):
    """Hurwitz's zeta for x > -32: terms until x + k passes 10, then Euler-Maclaurin."""
    a = x + 0 * s
    total = tl.zeros_like(a)
    for _ in range(42):
        total = tl.where(a < 10, total + tw_pow_wide(a, -s), total)
        a = tl.where(a < 10, a + 1, a)
    power = tw_pow_wide(a, -s)
    total = total + power * a / (s - 1) + 0.5 * power
    factor = 0.5 * s * power / a
    total = total + 0.16666666666666666 * factor
    factor = factor * ((s + 1) * (s + 2)) / (a * a * 12)
    total = total + -0.03333333333333333 * factor
    factor = factor * ((s + 3) * (s + 4)) / (a * a * 30)
    total = total + 0.023809523809523808 * factor
    factor = factor * ((s + 5) * (s + 6)) / (a * a * 56)
    total = total + -0.03333333333333333 * factor
    factor = factor * ((s + 7) * (s + 8)) / (a * a * 90)
    total = total + 0.07575757575757576 * factor
    factor = factor * ((s + 9) * (s + 10)) / (a * a * 132)
    total = total + -0.2531135531135531 * factor
    factor = factor * ((s + 11) * (s + 12)) / (a * a * 182)
    total = total + 1.1666666666666667 * factor
    factor = factor * ((s + 13) * (s + 14)) / (a * a * 240)
    total = total + -7.092156862745098 * factor
    factor = factor * ((s + 15) * (s + 16)) / (a * a * 306)
    total = total + 54.971177944862156 * factor
    factor = factor * ((s + 17) * (s + 18)) / (a * a * 380)
    total = total + -529.1242424242424 * factor
    pole = (s == 1) | ((x <= 0) & (tl.floor(x) == x))
    out = tl.where(x == float("inf"), 0.0, total)
    out = tl.where(pole, float("inf"), out)
    undefined = (s < 1) | ((x < 0) & (tl.floor(s) != s)) | (s != s) | (x != x)
    return tl.where(undefined, float("nan"), out)
