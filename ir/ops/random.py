"""Distributions over `random_bits` and `random_words`: plain functions of the int64 scalars (seed,
offset).

A draw is identified by its seed and offset, so a caller gives each call its own offset. Functions
that only shift, multiply by powers of two and compare give the same bits on every backend: uniform,
randint, bernoulli, dropout masks, permutations.
`normal` takes a logarithm and a cosine, which agree to rounding only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..dtype import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int64,
    uint32,
)
from ..location import at_user_line
from ..node import Node
from ..op import Aval
from .binary import remainder, shift_right
from .composite import as_dtype, composite, require_float, widen
from .generate import random_bits, random_words
from .movement import expand, reshape, slice_axis
from .scan import argsort
from .unary import cast, cos, full_like, log, sqrt

# How many bits a uniform number of each dtype has: as many as its mantissa, so that none rounds up
# to 1.
_DIGITS = {float8_e4m3fn: 4, float8_e5m2: 3, float16: 11, bfloat16: 8, float32: 24}


def _shift(bits: Node, by: int) -> Node:
    return shift_right(bits, full_like(bits, by))


def _words(seed: Node, offset: Node, shape: Sequence[int]) -> tuple[Node, Node]:
    """Two independent words for each element, of one draw."""
    words = random_words(seed, offset, tuple(shape))
    return cast(_shift(words, 32), uint32), cast(words, uint32)


def _scaled(word: Node, dtype: DType) -> Node:
    """Uniform in [0, 1), from the upper bits of a word."""
    digits = _DIGITS[dtype]
    return cast(_shift(word, 32 - digits), float32) * 2.0**-digits


def uniform(seed: Node, offset: Node, shape: Sequence[int], dtype: DType) -> Node:
    """Uniform in [0, 1): k 2^-n with n the digits of `dtype`'s mantissa (8, 11, 24 or 53).

    float64 joins two words of one draw; the first one has the upper bits.
    """
    if dtype is float64:
        high, low = _words(seed, offset, shape)
        # 27 and 26 bits, each exact, and so is their sum.
        return cast(_shift(high, 5), dtype) * 2.0**-27 + cast(_shift(low, 6), dtype) * 2.0**-53
    return as_dtype(_scaled(random_bits(seed, offset, tuple(shape)), dtype), dtype)


def _two_uniforms(
    seed: Node, offset: Node, shape: Sequence[int], dtype: DType
) -> tuple[Node, Node]:
    """Two independent numbers for each element: of one draw; of float64, both halves of a draw of
    twice the size."""
    if dtype is not float64:
        first, second = _words(seed, offset, shape)
        return _scaled(first, dtype), _scaled(second, dtype)
    both = uniform(seed, offset, (2, *shape), dtype)
    first, second = slice_axis(both, 0, 0, 1), slice_axis(both, 0, 1, 2)
    return reshape(first, shape), reshape(second, shape)


def normal(seed: Node, offset: Node, shape: Sequence[int], dtype: DType) -> Node:
    """Standard normal, by Box and Muller (Ann. Math. Statist. 29, 1958) from two uniform numbers:
    sqrt(-2 log(1 - u)) cos(2 pi v). Half types are computed in float32."""
    u, v = _two_uniforms(seed, offset, shape, float64 if dtype is float64 else float32)
    radius = sqrt(log(1 - u) * -2)
    angle = v * (2 * math.pi)
    return as_dtype(radius * cos(angle), dtype)


def randint(
    seed: Node, offset: Node, low: int, high: int, shape: Sequence[int], dtype: DType
) -> Node:
    """Uniform integers in [low, high), as `dtype`.

    Up to a range of 2^31, floor(word range / 2^32) (Lemire, arXiv 1805.10941, without rejection: no
    probability is off by more than 2^-32); above, 64 bits modulo the range.
    """
    span = high - low
    if span <= 0:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
            f"{at_user_line()}"
        )
    if span <= 1 << 31:
        word = cast(random_bits(seed, offset, tuple(shape)), int64)
        return as_dtype(_shift(word * span, 32) + low, dtype)
    word = random_words(seed, offset, tuple(shape))
    if span < 1 << 64:
        word = remainder(word, full_like(word, span))
    # Modulo 2^64, so that one int64 addition reaches any `low`.
    return as_dtype(cast(word, int64) + low, dtype)


def bernoulli(seed: Node, offset: Node, p: Node, shape: Sequence[int]) -> Node:
    """True with probability `p`, a float node that broadcasts to `shape`: uniform < p.

    Probabilities of half types are compared as float32.
    """
    p = widen(p)
    return uniform(seed, offset, shape, p.dtype) < expand(p, shape)


def randperm(seed: Node, offset: Node, n: int) -> Node:
    """A permutation of 0, …, n - 1: the order of n draws of 32 bits."""
    return argsort(random_bits(seed, offset, (n,)), 0, False)


def keep_scale(seed: Node, offset: Node, shape: Sequence[int], dtype: DType, p: float) -> Node:
    """The factors of dropout: 0 with probability `p`, else 1 / (1 - p)."""
    drawn = uniform(seed, offset, shape, float32)
    kept = cast(drawn >= full_like(drawn, p), dtype)
    return kept if p >= 1 else kept * (1 / (1 - p))


def _dropout_infer(x: Node, seed: Node, offset: Node, p: float) -> Aval:
    require_float("dropout", x)
    if not 0 <= p <= 1:
        raise ValueError(
            f"dropout probability has to be between 0 and 1, but got {p}{at_user_line()}"
        )
    return x.shape, x.dtype


def _dropout_vjp(
    g: Node, out: Node, x: Node, seed: Node, offset: Node, p: float
) -> tuple[Node | None, ...]:
    # The mask is drawn again: cheaper than writing it and reading it back.
    return g * keep_scale(seed, offset, x.shape, x.dtype, p), None, None


dropout = composite(
    "dropout",
    _dropout_infer,
    lambda x, seed, offset, p: x * keep_scale(seed, offset, x.shape, x.dtype, p),
    vjp=_dropout_vjp,
    params=("p",),
    onnx="Dropout",
    cost=64,
)
"""dropout(x, seed, offset, p): each element zero with probability `p`, else x / (1 - p)."""
