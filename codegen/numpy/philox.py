"""Philox 4x32-10 over arrays of positions (ir/ops/generate.py has the textbook form)."""

from __future__ import annotations

from typing import Any

import numpy as np

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_BLOCK = 1 << 14  # five arrays of it stay in the second level of cache


def philox(seed: Any, offset: Any, index: Any, dtype: Any = np.uint32) -> Any:
    """Word 0 at counter (index, index >> 32, offset, offset >> 32) and key `seed`, uint32; as
    uint64 with word 1 below it."""
    key, counter = (int(np.asarray(x).item()) & (2**64 - 1) for x in (seed, offset))
    index = np.asarray(index)
    flat = np.ascontiguousarray(index).reshape(-1).view(np.uint64)
    out = np.empty(flat.size, dtype)
    scratch = np.empty((5, min(flat.size, _BLOCK)), dtype=np.uint64)
    for at in range(0, flat.size, _BLOCK):
        part = flat[at : at + _BLOCK]
        word, below = _words(part, counter, key, scratch[:, : part.size])
        if out.itemsize == 8:
            word = (word << _HALF) | below
        out[at : at + _BLOCK] = word
    return out.reshape(index.shape)


def _words(index: Any, counter: int, key: int, scratch: Any) -> tuple[Any, Any]:
    """Words 0 and 1 of one block. Words are kept in 64 bits, so that a product keeps its high
    half."""
    m0, m1 = np.uint64(_M0), np.uint64(_M1)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    c0, c1, c2, c3, high = scratch
    # The first round: words 2 and 3 are the same everywhere.
    product = (counter & 0xFFFFFFFF) * _M1
    np.bitwise_and(index, _LOW, out=c0)
    np.right_shift(index, _HALF, out=c1)
    np.multiply(c0, m0, out=c3)
    np.right_shift(c3, _HALF, out=c2)
    np.bitwise_xor(c2, np.uint64((counter >> 32) ^ k1), out=c2)
    np.bitwise_and(c3, _LOW, out=c3)
    np.bitwise_xor(c1, np.uint64((product >> 32) ^ k0), out=c0)
    c1[...] = product & 0xFFFFFFFF
    for _ in range(9):
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        np.multiply(c0, m0, out=c0)
        np.multiply(c2, m1, out=c2)
        np.bitwise_xor(c1, np.uint64(k0), out=c1)
        np.bitwise_xor(c3, np.uint64(k1), out=c3)
        np.right_shift(c2, _HALF, out=high)
        np.bitwise_xor(c1, high, out=c1)
        np.right_shift(c0, _HALF, out=high)
        np.bitwise_xor(c3, high, out=c3)
        np.bitwise_and(c2, _LOW, out=c2)
        np.bitwise_and(c0, _LOW, out=c0)
        c0, c1, c2, c3 = c1, c2, c3, c0
    return c0, c1
