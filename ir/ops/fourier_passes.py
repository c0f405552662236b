"""Discrete Fourier transforms from sums and products, for devices without a routine.

A length n = r m with a small r is transformed in two steps (Cooley and Tukey, 1965): with
j = j1 m + j2 and k = k1 + r k2,

    X[k1 + r k2] = sum_j2 W_m^(j2 k2) (W_n^(j2 k1) sum_j1 W_r^(j1 k1) x[j1 m + j2])

Each pass takes one factor r off what is left. Its new digit k1 goes in front of those that are
there (Stockham's order), so neighbours stay neighbours and nothing is reordered at the end. A pass
is a sum of r terms, times a factor that depends on the place: one kernel, which reads and writes
the array once. A length with a large prime factor is a convolution with a chirp (Bluestein, 1970),
by transforms whose length is a power of two.

Angles are whole parts of a circle, reduced in integers, and their cosines are taken in float64.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ..dtype import COMPLEX, DType, complex_of, float64, int64, real_of
from ..node import Node
from ..op import Aval
from ..shape import Ints
from .binary import remainder
from .complex import conj, imag, make, real
from .composite import composite
from .generate import constant, iota
from .movement import cat, expand, flip, pad, permute, reshape, slice_axis
from .reduce import sum
from .unary import cast, cos, sin

_RADIX = 8
"""The longest sum of a pass, if there is a choice: longer ones read more from the cache than they
save of memory."""
_PRIME = 13
"""The largest prime factor that is summed as it is."""


@lru_cache(1024)
def radices(n: int) -> tuple[int, ...] | None:
    """The lengths of the sums of each pass, whose product is n; None if a prime factor is large."""
    primes: list[int] = []
    for p in (13, 11, 7, 5, 3, 2):
        while n % p == 0:
            primes.append(p)
            n //= p
    if n > 1:
        return None
    found: list[int] = []
    for p in primes:  # falling, so that twos and threes fill up what is left
        place = next((i for i, r in enumerate(found) if r * p <= _RADIX), None)
        if place is None:
            found.append(p)
        else:
            found[place] *= p
    return tuple(sorted(found, reverse=True))


def _infer(x: Node, axes: Ints, inverse: bool, norm: str) -> Aval:
    return x.shape, complex_of(x.dtype)


def _transform(x: Node, axes: Ints, inverse: bool, norm: str) -> Node:
    out = x if x.dtype.category == COMPLEX else _as_complex(x)
    for axis in reversed(axes):
        out = _along(out, axis, inverse)
    count = math.prod(x.shape[a] for a in axes)
    if norm == ("backward" if inverse else "forward"):
        return _scaled(out, 1 / count)
    return _scaled(out, 1 / math.sqrt(count)) if norm == "ortho" else out


def _vjp(g: Node, out: Node, x: Node, axes: Ints, inverse: bool, norm: str) -> tuple[Node]:
    found = fourier_passes(g, axes, inverse, norm)
    return (found if x.dtype.category == COMPLEX else real(found),)


fourier_passes = composite(
    "fourier_passes",
    _infer,
    _transform,
    vjp=_vjp,
    params=("axes", "inverse", "norm"),
    cost=40,
    complex=True,
)
"""The transform of `fourier_op`, from primitives."""


def _as_complex(x: Node) -> Node:
    zero = expand(constant(0, x.dtype), x.shape)
    return make(x, zero)


def _scaled(z: Node, factor: float) -> Node:
    number = expand(constant(factor, real_of(z.dtype)), z.shape)
    return make(real(z) * number, imag(z) * number)


def _along(x: Node, axis: int, inverse: bool) -> Node:
    """The transform along one axis, without a factor."""
    n = x.shape[axis]
    if n == 1 or 0 in x.shape:
        return x
    order = (*(i for i in range(x.rank) if i != axis), axis)
    moved = permute(x, order)
    rows = reshape(moved, (math.prod(moved.shape) // n, n))
    found = _passes(rows, inverse) if radices(n) else _bluestein(rows, inverse)
    back = tuple(order.index(i) for i in range(x.rank))
    return permute(reshape(found, moved.shape), back)


def _passes(x: Node, inverse: bool) -> Node:
    """The transform of each row of x[B, n]."""
    rows, n = x.shape
    done, left = 1, n
    for r in radices(n) or ():
        rest = left // r
        whole = (rows, r, done, r, rest)  # k1, digits before it, j1, j2
        terms = expand(reshape(x, (rows, 1, done, r, rest)), whole)
        terms = _turned(terms, _turns(r, r, r, inverse, x.dtype), (1, r, 1, r, 1))
        x = reshape(sum(terms, (3,)), (rows, r, done, rest))
        if rest > 1:
            x = _turned(x, _turns(r, rest, left, inverse, x.dtype), (1, r, 1, rest))
        done, left = done * r, rest
    return reshape(x, (rows, n))


Turn = tuple[Node, Node]
"""The cosines and sines of angles."""


def _turned(x: Node, by: Turn, shape: Ints) -> Node:
    """`x` times numbers of size 1, expanded from `shape`. Tables of real numbers are expanded, so
    that they are seen to be read again and again."""
    c, s = (expand(reshape(t, shape), x.shape) for t in by)
    a, b = real(x), imag(x)
    return make(a * c - b * s, a * s + b * c)


def _turns(rows: int, columns: int, circle: int, inverse: bool, dtype: DType) -> Turn:
    """exp(-2 pi i jk / circle) for j < rows and k < columns; its conjugate if `inverse`."""
    shape = (rows, columns)
    j = expand(reshape(iota(rows), (rows, 1)), shape)
    k = expand(reshape(iota(columns), (1, columns)), shape)
    return _turn(j * k, circle, inverse, dtype)


def _turn(parts: Node, circle: int, inverse: bool, dtype: DType) -> Turn:
    """exp(-2 pi i parts / circle) for whole numbers."""
    around = remainder(parts, expand(constant(circle, int64), parts.shape))
    step = (2 if inverse else -2) * math.pi / circle
    angle = cast(around, float64) * expand(constant(step, float64), parts.shape)
    kind = real_of(dtype)
    return cast(cos(angle), kind), cast(sin(angle), kind)


def _bluestein(x: Node, inverse: bool) -> Node:
    """The transform of each row of x[B, n], by jk = (j^2 + k^2 - (k - j)^2) / 2."""
    n = x.shape[1]
    length = 1 << (2 * n - 2).bit_length()
    place = iota(n)
    chirp = _turn(place * place, 2 * n, inverse, x.dtype)  # j^2 < 2^63
    filled = pad(_turned(x, chirp, (1, n)), (0, 0), (0, length - n))
    around = reshape(make(chirp[0], -chirp[1]), (1, n))
    tail = flip(slice_axis(around, 1, 1, n), (1,))
    zeros = expand(constant(0, x.dtype), (1, length - 2 * n + 1))
    kernel = _passes(cat([around, zeros, tail], 1), False)
    product = _passes(filled, False)
    found = _passes(product * expand(kernel, product.shape), True)
    return _scaled(_turned(slice_axis(found, 1, 0, n), chirp, (1, n)), 1 / length)


def half_passes(x: Node, axes: Ints, inverse: bool, norm: str) -> Node:
    """The first half along the last of `axes` of the transform of a real `x`."""
    last = axes[-1]
    whole = fourier_passes(x, axes, inverse, norm)
    return slice_axis(whole, last, 0, x.shape[last] // 2 + 1)


def real_passes(z: Node, axes: Ints, size: int, inverse: bool, norm: str) -> Node:
    """The transform of a Hermitian signal by its first half along the last of `axes`."""
    last = axes[-1]
    if axes[:-1]:
        z = fourier_passes(z, axes[:-1], inverse, norm)
    rest = flip(slice_axis(z, last, 1, (size + 1) // 2), (last,))
    whole = cat([slice_axis(z, last, 0, size // 2 + 1), conj(rest)], last)
    return real(fourier_passes(whole, (last,), inverse, norm))
