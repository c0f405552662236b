"""Prelude, part three: functions that take as many steps as their arguments ask for."""

import triton
import triton.language as tl

from .functions import tw_copysign
from .special import (
    tw_atan2_wide,
    tw_erfc_wide,
    tw_expm1,
    tw_lgamma_positive,
    tw_log1p,
    tw_pow_wide,
)


@triton.jit
def tw_three_terms(x, n, a, b, c, d, e, f, g, h, i, angles: tl.constexpr):
    """An orthogonal polynomial of degree n by its recurrence (ir/numeric/orthogonal.py)."""
    z = x.to(tl.float64) + 0 * n.to(tl.float64)
    m = n.to(tl.float64) + 0 * x.to(tl.float64)
    m = tl.where(m < 0, tl.ceil(m), tl.floor(m))
    one = tl.zeros_like(z) + 1
    before = one
    now = a * z + b
    out = tl.where(m == 0, one, tl.where(m == 1, now, 0 * one))
    left = m
    if angles < 4:
        inside = (m >= 7) & (tl.abs(z) <= 1)
        left = tl.where(inside, 0 * m, m)
        t = tw_atan2_wide(tl.sqrt(tl.where(inside, (1 - z) * (1 + z), one)), z)
        even = tl.where(tl.floor(0.5 * m) * 2 == m, one, -one)
        if angles == 0:
            closed = tl.cos(m * t)
            high = one
            low = even
        if angles == 1:
            closed = tl.sin((m + 1) * t) / tl.sin(t)
            high = m + 1
            low = even * (m + 1)
        if angles == 2:
            closed = tl.cos((m + 0.5) * t) / tl.cos(0.5 * t)
            high = one
            low = even * (2 * m + 1)
        if angles == 3:
            closed = tl.sin((m + 0.5) * t) / tl.sin(0.5 * t)
            high = 2 * m + 1
            low = even
        closed = tl.where(z == 1, high, tl.where(z == -1, low, closed))
        out = tl.where(inside, closed, out)
    left = tl.where(left >= 2, left, 0 * left)
    most = left
    if len(left.shape) > 0:
        most = tl.max(left)
    for k in range(1, most.to(tl.int32)):
        p = ((c * k + d + (f * k + g) * z) * now - (h * k + i) * before) / (e * k + 1)
        before = now
        now = p
        out = tl.where(left == k + 1, now, out)
    return out.to(x.dtype)


@triton.jit
def tw_igamma_rest(eta, a):
    """Temme's expansion, the sum of d[k][n] eta^n / a^k (ir/numeric/incomplete_gamma.py), without
    the terms below 2e-18 for a >= 20 and |eta| <= 0.36."""
    zero = tl.zeros_like(eta)
    total = zero
    row = zero + 0.001579727660730835
    total = total / a + row
    row = zero + 0.0011089369134596636
    row = row * eta - 0.0019144384985654776
    row = row * eta + 0.0013324454494800656
    total = total / a + row
    row = zero + 0.00027750107634328704
    row = row * eta - 0.0006401475260262758
    row = row * eta + 0.0006782308837667328
    row = row * eta - 7.204895416020011e-05
    row = row * eta - 0.0005967612901927463
    total = total / a + row
    row = zero + 4.629953263691304e-05
    row = row * eta - 0.00012783517679769218
    row = row * eta + 0.00016644846642067547
    row = row * eta - 6.969091458420552e-07
    row = row * eta - 0.000438297098541721
    row = row * eta + 0.0008394987206720873
    row = row * eta - 0.0006526239185953094
    total = total / a + row
    row = zero + -1.8263488805711332e-05
    row = row * eta + 2.7744451511563645e-05
    row = row * eta - 1.2741009095484485e-07
    row = row * eta - 0.00010976582244684731
    row = row * eta + 0.0002812695154763237
    row = row * eta - 0.00033493161081142234
    row = row * eta + 5.171790908260592e-05
    row = row * eta + 0.00034436760689237765
    total = total / a + row
    row = zero + -2.0291327396058603e-06
    row = row * eta + 3.465155368803609e-06
    row = row * eta - 3.0796134506033047e-09
    row = row * eta - 1.8329116582843375e-05
    row = row * eta + 5.61168275310625e-05
    row = row * eta - 8.153969367561969e-05
    row = row * eta + 7.902353232660328e-07
    row = row * eta + 0.0002708782096718045
    row = row * eta - 0.0005921664373536939
    row = row * eta + 0.0005313079364639922
    total = total / a + row
    row = zero + 3.4652846491085265e-07
    row = row * eta - 3.252473551298454e-10
    row = row * eta - 2.291481176508095e-06
    row = row * eta + 8.018470256334202e-06
    row = row * eta - 1.3594048189768693e-05
    row = row * eta + 1.419062920643967e-07
    row = row * eta + 6.797780477937208e-05
    row = row * eta - 0.00019932570516188847
    row = row * eta + 0.0002772753244959392
    row = row * eta - 6.972813758365857e-05
    row = row * eta - 0.00033679855336635813
    total = total / a + row
    row = zero + -2.292934834000805e-07
    row = row * eta + 8.907507532205309e-07
    row = row * eta - 1.6954149536558305e-06
    row = row * eta + 2.507497226237533e-10
    row = row * eta + 1.1375726970678419e-05
    row = row * eta - 3.968365047179435e-05
    row = row * eta + 6.641498215465122e-05
    row = row * eta - 1.4638452578843418e-06
    row = row * eta - 0.0002990724803031902
    row = row * eta + 0.0007840392217200666
    row = row * eta - 0.0008618882909167117
    total = total / a + row
    row = zero + -1.9111168485973655e-08
    row = row * eta + 8.099464905388083e-08
    row = row * eta - 1.6958404091930278e-07
    row = row * eta - 2.7861080291528143e-11
    row = row * eta + 1.4230900732435883e-06
    row = row * eta - 5.6749528269915965e-06
    row = row * eta + 1.1082654115347302e-05
    row = row * eta - 2.396505113867297e-07
    row = row * eta - 7.561801671883977e-05
    row = row * eta + 0.00026772063206283885
    row = row * eta - 0.0004691894943952557
    row = row * eta + 0.00022947209362139917
    row = row * eta + 0.0006494341563786008
    total = total / a + row
    row = zero + -1.3670488396617114e-09
    row = row * eta + 6.228974084922022e-09
    row = row * eta - 1.409252991086752e-08
    row = row * eta - 2.0477098421990866e-10
    row = row * eta + 1.4280614206064242e-07
    row = row * eta - 6.298992138380055e-07
    row = row * eta + 1.3721957309062934e-06
    row = row * eta + 3.423578734096138e-08
    row = row * eta - 1.2760635188618728e-05
    row = row * eta + 5.2923448829120125e-05
    row = row * eta - 0.0001073665322636516
    row = row * eta + 2.0093878600823047e-06
    row = row * eta + 0.0007716049382716049
    row = row * eta - 0.0026813271604938273
    row = row * eta + 0.004133597883597883
    total = total / a + row
    row = zero + 4.162792991842583e-10
    row = row * eta - 1.0091543710600413e-09
    row = row * eta - 1.7543241719747647e-11
    row = row * eta + 1.1951628599778148e-08
    row = row * eta - 5.752545603517705e-08
    row = row * eta + 1.378633446915721e-07
    row = row * eta + 4.647127802807434e-09
    row = row * eta - 1.6120900894563446e-06
    row = row * eta + 7.64916091608111e-06
    row = row * eta - 1.8098550334489977e-05
    row = row * eta - 4.018775720164609e-07
    row = row * eta + 0.00020576131687242798
    row = row * eta - 0.0009902263374485596
    row = row * eta + 0.0026455026455026454
    row = row * eta - 0.003472222222222222
    row = row * eta - 0.001851851851851852
    total = total / a + row
    row = zero + -5.830772132550426e-11
    row = row * eta - 2.5514193994946248e-11
    row = row * eta + 9.14769958223679e-10
    row = row * eta - 4.382036018453353e-09
    row = row * eta + 1.0261809784240309e-08
    row = row * eta + 6.707853543401498e-09
    row = row * eta - 1.7665952736826078e-07
    row = row * eta + 8.296711340953087e-07
    row = row * eta - 1.85406221071516e-06
    row = row * eta - 2.185448510679992e-06
    row = row * eta + 3.919263178522438e-05
    row = row * eta - 0.0001787551440329218
    row = row * eta + 0.0003527336860670194
    row = row * eta + 0.0011574074074074073
    row = row * eta - 0.014814814814814815
    row = row * eta + 0.08333333333333333
    row = row * eta - 0.3333333333333333
    total = total / a + row
    return total


@triton.jit
def tw_lgamma1p(x):
    """lgamma(1 + x) for x > 0, exact for small x too."""
    zero = tl.zeros_like(x)
    s = tl.minimum(x, 0.5)
    p = zero + 4.945235359296727
    p = p * s + 201.8112620856775
    p = p * s + 2290.8383738313464
    p = p * s + 11319.672059033808
    p = p * s + 28557.246356716354
    p = p * s + 38484.962284437934
    p = p * s + 26377.487876241954
    p = p * s + 7225.813979700288
    q = zero + 1.0
    q = q * s + 67.48212550303778
    q = q * s + 1113.3323938571993
    q = q * s + 7738.757056935398
    q = q * s + 27639.870744033407
    q = q * s + 54993.102062261576
    q = q * s + 61611.22180066002
    q = q * s + 36351.2759150194
    q = q * s + 8785.536302431014
    near = s * (s * (p / q) - 0.5772156649015329)
    return tl.where(x <= 0.5, near, tw_lgamma_positive(tl.maximum(x, 0.5) + 1))


@triton.jit
def tw_stirling_rest(a):
    """gamma(a) over sqrt(2 pi / a) (a / e)^a, for a >= 20."""
    r = 1 / a
    g = 0 * r + 0.0008394987206720873
    g = g * r - 5.171790908260592e-05
    g = g * r - 0.0005921664373536939
    g = g * r + 6.972813758365857e-05
    g = g * r + 0.0007840392217200666
    g = g * r - 0.00022947209362139917
    g = g * r - 0.0026813271604938273
    g = g * r + 0.003472222222222222
    g = g * r + 0.08333333333333333
    g = g * r + 1.0
    return g


@triton.jit
def tw_log_rest(mu):
    """mu - log(1 + mu), near zero by its series."""
    s = tl.where(tl.abs(mu) <= 0.3, mu, 0 * mu)
    total = tl.zeros_like(mu)
    one = total + 1
    for i in range(0, 35):
        k = 36 - i
        total = total * -s + one / k
    return tl.where(tl.abs(mu) <= 0.3, s * s * total, mu - tw_log1p(mu))


@triton.jit
def tw_igamma_power(a, x):
    """x^a exp(-x) / gamma(a + 1)."""
    s = tl.minimum(a, 20.0)
    under = tw_lgamma1p(s)
    exponent = s * tl.log(x)
    plain = tw_pow_wide(x, s) * tl.exp(-x) / tl.exp(under)
    direct = tl.where(exponent < 700, plain, tl.exp(exponent - x - under))
    large = tl.maximum(a, 20.0)
    rate = tw_log_rest((x - large) / large)
    scale = tl.sqrt(6.2831853071795865 * large) * tw_stirling_rest(large)
    return tl.where(a <= 20, direct, tl.exp(-large * rate) / scale)


@triton.jit
def tw_igamma_wide(a_given, x_given, upper: tl.constexpr):
    """P or, if `upper`, Q: the regions of ir/numeric/incomplete_gamma.py, each in full."""
    infinity = float("inf")
    a = a_given + 0 * x_given
    x = x_given + 0 * a_given
    known = (a > 0) & (x > 0) & (a < infinity) & (x < infinity)
    one = tl.zeros_like(a) + 1
    a = tl.where(known, a, one)
    x = tl.where(known, x, one)
    power = tw_igamma_power(a, x)
    # The series gives P for x <= a + 1.
    low = tl.where(x <= a + 1, x, a)
    term = one
    total = one
    for k in range(1, 120):
        term = term * (low / (a + k))
        total = total + term
    series = total * power
    # Lentz's algorithm gives Q for x > a + 1.
    above = x > a + 1
    high = tl.where(above, x, a + 2)
    b = high + 1 - a
    c = 1e300 * one
    d = 1 / b
    fraction = d
    for k in range(1, 80):
        numerator = k * (a - k)
        b = b + 2
        d = numerator * d + b
        c = b + numerator / c
        d = 1 / tl.where(tl.abs(d) < 1e-300, 1e-300 * one, d)
        fraction = fraction * (c * d)
    fraction = fraction * power * a
    # Q for small x, as 1 - x^a / gamma(a + 1) - x^a / gamma(a) times a series.
    little = tl.minimum(x, 1.1)
    term = one
    total = 0 * one
    for k in range(1, 25):
        term = term * (-little / k)
        total = total + term / (a + k)
    exponent = a * tl.log(little) - tw_lgamma1p(a)
    rest = -tw_expm1(exponent) - tl.exp(exponent) * a * total
    # Temme's expansion gives both for x near a.
    near = (a > 20) & (tl.abs(x - a) <= 0.3 * a)
    wide = tl.where(near, a, 20 * one)
    mu = tl.where(near, (x - a) / wide, 0 * one)
    rate = tw_log_rest(mu)
    eta = tw_copysign(tl.sqrt(2 * rate), mu)
    density = tl.exp(-wide * rate) / tl.sqrt(6.2831853071795865 * wide)
    side = eta * tl.sqrt(0.5 * wide)
    temme = tw_igamma_rest(eta, wide) * density
    most = tl.where(x <= 0.5, -0.4 / tl.log(tl.minimum(x, 0.5)), 1.1 * x)
    small = (x <= 1.1) & (a <= most)
    if upper:
        out = tl.where(above, fraction, tl.where(small, rest, 1 - series))
        out = tl.where(near, 0.5 * tw_erfc_wide(side) + temme, out)
    else:
        turned = small & (rest < 0.9)
        out = tl.where(above, 1 - fraction, tl.where(turned, 1 - rest, series))
        out = tl.where(near, 0.5 * tw_erfc_wide(-side) - temme, out)
    zero = one - one
    least = zero
    all_of_it = one
    if upper:
        least = one
        all_of_it = zero
    a = a_given + 0 * one
    x = x_given + 0 * one
    edge = tl.where(x == infinity, all_of_it, zero + float("nan"))
    edge = tl.where(a == infinity, tl.where(x == infinity, float("nan"), least), edge)
    edge = tl.where(x == 0, least, edge)
    edge = tl.where(a == 0, tl.where(x > 0, all_of_it, float("nan")), edge)
    edge = tl.where((a < 0) | (x < 0), float("nan"), edge)
    return tl.where(known, out, edge)


@triton.jit
def tw_igamma(a, x):
    return tw_igamma_wide(a.to(tl.float64), x.to(tl.float64), False).to(a.dtype)


@triton.jit
def tw_igammac(a, x):
    return tw_igamma_wide(a.to(tl.float64), x.to(tl.float64), True).to(a.dtype)
