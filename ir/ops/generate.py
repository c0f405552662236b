"""Values that no tensor goes into: run-time leaves, constants, positions, random bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import DType, float32, int64, uint32, uint64
from ..node import Node, literal, type_of
from ..numeric.special import cast
from ..op import Kind, Op
from ..shape import Size

leaf = Op(
    "leaf",
    Kind.LEAF,
    params=("index", "shape", "dtype"),
    infer=lambda index, shape, dtype: (Size(shape), dtype),
)
"""The buffer bound at place `index` of the run."""

scalar = Op(
    "scalar",
    Kind.LEAF,
    params=("index", "dtype"),
    infer=lambda index, dtype: (Size(), dtype),
)
"""The number bound at place `index` of the run: one that changes from step to step."""

constant_op = Op(
    "constant",
    Kind.CONSTANT,
    params=("bits", "dtype"),
    infer=lambda bits, dtype: (Size(), dtype),
)

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


_ONE = Size(())


def constant(value: Any, dtype: DType, device: str | None = None) -> Node:
    """A 0-d node holding `value`; kept by its bits, so -0.0 is not 0.0 and NaN is itself."""
    kind = value.__class__
    if kind is float or kind is int or kind is bool:
        key = (kind, value or repr(value), dtype)  # 0.0 equals -0.0
        bits = _known_bits.get(key)
        if bits is None:
            if len(_known_bits) >= _MOST_KNOWN:
                _known_bits.clear()
            bits = _known_bits[key] = bits_of(value, dtype)
    else:
        bits = bits_of(value, dtype)
    return literal(constant_op, (bits, dtype), type_of(_ONE, dtype, device, False))


_known_bits: dict[tuple[Any, ...], int] = {}
_MOST_KNOWN = 10_000


def bits_of(value: Any, dtype: DType) -> int:
    """The bits of a number in `dtype`."""
    if dtype.itemsize == 16:
        return int.from_bytes(cast(value, dtype.np).tobytes(), "little")
    if dtype is float32 and abs(value) < 1e38:  # no warning to suppress
        return int(np.float32(value).view(np.uint32))
    return int(cast(value, dtype.np).view(_BITS[dtype.itemsize]).item())


def constant_value(node: Node) -> Any:
    """The NumPy scalar of a constant node."""
    return value_of(*node.attrs)


def value_of(bits: int, dtype: DType) -> Any:
    """The NumPy scalar with these bits."""
    if dtype.itemsize == 16:
        return np.frombuffer(bits.to_bytes(16, "little"), dtype.np)[0]
    return np.asarray(bits, dtype=_BITS[dtype.itemsize]).view(dtype.np)[()]


iota = Op(
    "iota",
    Kind.GENERATE,
    params=("size",),
    infer=lambda size: (Size((size,)), int64),
    numpy=lambda size: np.arange(size, dtype=np.int64),
    aten="arange",
)
"""0, 1, …, size - 1 as int64."""


def philox4x32(
    counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any], rounds: int = 10
) -> tuple[np.ndarray, ...]:
    """Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)."""
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in counter)
    k0, k1 = (int(k) for k in key)
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    for _ in range(rounds):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (p1 >> shift) ^ c1 ^ np.uint64(k0),
            p1 & low,
            (p0 >> shift) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return tuple(c.astype(np.uint32) for c in (c0, c1, c2, c3))


def _random_words(seed: Any, offset: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Element i (row-major) has words 0 and 1 of Philox at counter (i, i >> 32, offset, offset >>
    32), word 0 above."""
    index = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64)
    mask = 0xFFFFFFFF
    seed, offset = int(seed) & (2**64 - 1), int(offset) & (2**64 - 1)
    counter = (index & np.uint64(mask), index >> np.uint64(32), offset & mask, offset >> 32)
    high, low, *_ = philox4x32(counter, (seed & mask, seed >> 32))
    words = high.astype(np.uint64) << np.uint64(32) | low
    return np.asarray(words).reshape(shape)


def _random_bits(seed: Any, offset: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Word 0 alone."""
    return (_random_words(seed, offset, shape) >> np.uint64(32)).astype(np.uint32)


random_bits = Op(
    "random_bits",
    Kind.GENERATE,
    params=("shape",),
    infer=lambda seed, offset, shape: (Size(shape), uint32),
    numpy=_random_bits,
    cost=60,
)
"""Uniform uint32, one for each element; operands are the int64 scalars (seed, offset)."""

random_words = Op(
    "random_words",
    Kind.GENERATE,
    params=("shape",),
    infer=lambda seed, offset, shape: (Size(shape), uint64),
    numpy=_random_words,
    cost=62,
)
"""Uniform uint64, of the same draws: the upper half is what `random_bits` gives."""

DRAWS = random_bits, random_words
