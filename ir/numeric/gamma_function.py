"""lgamma, digamma and Hurwitz's zeta, to a few units in the last place of float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from .float64 import in_float64, polynomial

# lgamma: W. J. Cody and K. E. Hillstrom, "Chebyshev approximations for the natural logarithm of
# the gamma function", Math. Comp. 21 (1967), with the coefficients of ALGAMA (SPECFUN, netlib).
# Each row: the value at the root or centre, that centre, and P, Q highest power first.
_LGAMMA = (
    # lgamma(x) = (x - 1) (-euler + (x - 1) P / Q) on [0.5, 1.5]
    (
        1.0,
        -5.772156649015328605195174e-1,
        (
            4.945235359296727046734888e0,
            2.018112620856775083915565e2,
            2.290838373831346393026739e3,
            1.131967205903380828685045e4,
            2.855724635671635335736389e4,
            3.848496228443793359990269e4,
            2.637748787624195437963534e4,
            7.225813979700288197698961e3,
        ),
        (
            1.0,
            6.748212550303777196073036e1,
            1.113332393857199323513008e3,
            7.738757056935398733233834e3,
            2.763987074403340708898585e4,
            5.499310206226157329794414e4,
            6.161122180066002127833352e4,
            3.635127591501940507276287e4,
            8.785536302431013170870835e3,
        ),
    ),
    # lgamma(x) = (x - 2) (1 - euler + (x - 2) P / Q) on [1.5, 4]
    (
        2.0,
        4.227843350984671393993777e-1,
        (
            4.974607845568932035012064e0,
            5.424138599891070494101986e2,
            1.550693864978364947665077e4,
            1.847932904445632425417223e5,
            1.088204769468828767498470e6,
            3.338152967987029735917223e6,
            5.106661678927352456275255e6,
            3.074109054850539556250927e6,
        ),
        (
            1.0,
            1.830328399370592604055942e2,
            7.765049321445005871323047e3,
            1.331903827966074194402448e5,
            1.136705821321969608938755e6,
            5.267964117437946917577538e6,
            1.346701454311101692290052e7,
            1.782736530353274213975932e7,
            9.533095591844353613395747e6,
        ),
    ),
    # lgamma(x) = log(6) + (x - 4) P / Q on [4, 12]; the signs are ALGAMA's, whose Q begins with -1
    (
        4.0,
        1.791759469228055000094023e0,
        (
            1.474502166059939948905062e4,
            2.426813369486704502836312e6,
            1.214755574045093227939592e8,
            2.663432449630976949898078e9,
            2.940378956634553899906876e10,
            1.702665737765398868392998e11,
            4.926125793377430887588120e11,
            5.606251856223951465078242e11,
        ),
        (
            -1.0,
            2.690530175870899333379843e3,
            6.393885654300092398984238e5,
            4.135599930241388052042842e7,
            1.120872109616147941376570e9,
            1.488613728678813811542398e10,
            1.016803586272438228077304e11,
            3.417476345507377132798597e11,
            4.463158187419713286462081e11,
        ),
    ),
)
# Bernoulli numbers B(2k), k = 1, 2, …, of the asymptotic series of lgamma, digamma and zeta.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _lgamma_positive(x: Any) -> Any:
    first, second, third = (
        (x - at, value, polynomial(x - at, p) / polynomial(x - at, q))
        for at, value, p, q in _LGAMMA
    )
    # Below 0.5, lgamma(x) = lgamma(x + 1) - log(x), with x + 1 near the root at 1.
    shifted = polynomial(x, _LGAMMA[0][2]) / polynomial(x, _LGAMMA[0][3])
    tiny = x * (_LGAMMA[0][1] + x * shifted) - np.log(x)
    y = 1 / (x * x)
    series = sum(b / (2 * k * (2 * k - 1)) * y ** (k - 1) for k, b in enumerate(_BERNOULLI, 1)) / x
    large = (x - 0.5) * (np.log(x) - 1) + (0.5 * np.log(2 * np.pi) - 0.5) + series
    return np.select(
        [x < 0.5, x <= 1.5, x <= 4, x <= 12],
        [
            tiny,
            first[0] * (first[1] + first[0] * first[2]),
            second[0] * (second[1] + second[0] * second[2]),
            third[1] + third[0] * third[2],
        ],
        np.where(x > 1e18, x * (np.log(x) - 1), large),
    )


def lgamma1p(x: Any) -> Any:
    """lgamma(1 + x) for x > -0.5, exact for small x too."""
    _, value, p, q = _LGAMMA[0]
    near = np.minimum(x, 0.5)
    near = near * (value + near * polynomial(near, p) / polynomial(near, q))
    return np.where(x <= 0.5, near, _lgamma_positive(np.maximum(x, 0.5) + 1))


@in_float64
def lgamma(x: Any) -> Any:
    """log |gamma(x)|: inf at 0, -1, -2, … and at both infinities."""
    # Reflection: gamma(x) gamma(1 - x) = pi / sin(pi x); sin from the distance to an integer.
    size = np.abs(x)
    away = size - np.rint(size)
    mirrored = np.log(np.pi / np.abs(size * np.sin(np.pi * away))) - _lgamma_positive(size)
    out = np.where(x > 0, _lgamma_positive(np.where(x > 0, x, 1)), mirrored)
    out = np.where((x <= 0) & (away == 0), np.inf, out)
    return np.where(np.isnan(x), np.nan, np.where(np.isinf(x), np.inf, out + 0.0))


# digamma: W. J. Cody, A. J. Strecok and H. C. Thacher, "Chebyshev approximations for the psi
# function", Math. Comp. 27 (1973), with the coefficients of PSI (SPECFUN, netlib).
# psi(x) = (x - root) P / Q on [0.5, 3], the root as the sum of an exact and a small part.
_PSI_ROOT = (187 / 128, 6.9464496836234126266e-04)
_PSI_P = (
    4.5104681245762934160e-03,
    5.4932855833000385356e00,
    3.7646693175929276856e02,
    7.9525490849151998065e03,
    7.1451595818951933210e04,
    3.0655976301987365674e05,
    6.3606997788964458797e05,
    5.8041312783537569993e05,
    1.6585695029761022321e05,
)
_PSI_Q = (
    1.0,
    9.6141654774222358525e01,
    2.6287715790581193330e03,
    2.9862497022250277920e04,
    1.6206566091533671639e05,
    4.3487880712768329037e05,
    5.4256384537269993733e05,
    2.4242185002017985252e05,
    6.4155223783576225996e-08,
)


def _digamma_positive(x: Any) -> Any:
    """psi for x >= 0.5."""
    near = np.minimum(x, 3)
    root = (near - _PSI_ROOT[0]) - _PSI_ROOT[1]
    near = root * polynomial(near, _PSI_P) / polynomial(near, _PSI_Q)
    # Upwards, psi(x) = psi(x + n) - sum of 1 / (x + k), until the asymptotic series holds.
    shift = np.zeros_like(x)
    for k in range(7):
        shift = shift + np.where(x < 10, 1 / (x + k), 0)
    far = np.where(x < 10, x + 7, x)
    y = 1 / (far * far)
    series = sum(b / (2 * k) * y**k for k, b in enumerate(_BERNOULLI, 1))
    return np.where(x <= 3, near, np.log(far) - 0.5 / far - series - shift)


@in_float64
def digamma(x: Any) -> Any:
    """The derivative of lgamma: NaN at -1, -2, …; -inf at 0 and inf at -0."""
    # Reflection: psi(x) = psi(1 - x) - pi / tan(pi x).
    away = x - np.rint(x)
    mirrored = _digamma_positive(np.where(x < 0.5, 1 - x, 1)) - np.pi / np.tan(np.pi * away)
    out = np.where(x >= 0.5, _digamma_positive(np.where(x >= 0.5, x, 1)), mirrored)
    out = np.where((x < 0) & (away == 0), np.nan, out)
    out = np.where(x == 0, -np.copysign(np.inf, x), out)
    return np.where(x == np.inf, np.inf, out)


@in_float64
def zeta(s: Any, x: Any) -> Any:
    """Hurwitz's zeta, the sum over k >= 0 of (x + k)^-s.

    Takes one pass over x for each unit that its lowest element lies below zero, poles apart.
    """
    # Euler-Maclaurin after N terms, as in Cephes: sum of (x + k)^-s for k < N, and with a = x + N
    # a^(1-s) / (s - 1) + a^-s / 2 + sum of B(2j) / (2j)! s (s + 1) … (s + 2j - 2) a^(1-s-2j).
    s, x = np.broadcast_arrays(s, x)
    terms = 10
    pole = (x <= 0) & (np.floor(x) == x)
    lowest = np.min(x, initial=0, where=np.isfinite(x) & ~pole)
    total = np.zeros(x.shape)
    for k in range(terms + int(np.ceil(-lowest))):
        total = total + (x + k) ** -s
    a = x + (terms + int(np.ceil(-lowest)))
    total = total + a ** (1 - s) / (s - 1) + 0.5 * a**-s
    factor = s * a ** (-s - 1) / 2
    for j, b in enumerate(_BERNOULLI, 1):
        total = total + b * factor
        factor = factor * (s + 2 * j - 1) * (s + 2 * j) / (a * a * (2 * j + 1) * (2 * j + 2))
    undefined = (s < 1) | ((x < 0) & (np.floor(s) != s) & ~pole) | np.isnan(s) | np.isnan(x)
    out = np.where((s == 1) | pole, np.inf, np.where(x == np.inf, 0, total))
    return np.where(undefined, np.nan, out)
