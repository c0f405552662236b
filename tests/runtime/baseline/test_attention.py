"""Attention of the baseline tier, matrix by matrix and all at once, beside NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import composites
from tilewright.runtime.baseline.program import Program

SIZES = [
    ((2, 3), (2, 3), (2, 3)),
    ((), (), ()),
    ((2, 3), (1, 3), (2, 1)),
    ((3,), (3,), (2, 3)),
    ((1, 1), (2, 3), (2, 3)),
]


def _expected(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        hidden = np.arange(q.shape[-2])[:, None] < np.arange(k.shape[-2])
        scores = np.where(hidden, -np.inf, scores)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("masked", ["no", "bool", "float", "causal"])
@pytest.mark.parametrize("leading", SIZES, ids=str)
def test_beside_numpy(
    leading: Any, masked: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands that repeat, rows that see no key, and the same tensor as queries and keys."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(*s, n, 8)).astype(kind) for s, n in zip(leading, (9, 7, 7)))
    arrays = [q, k, v]
    mask = rng.random((9, 7)) < 0.6
    mask[4] = False
    if masked == "float":
        mask = np.where(mask, rng.normal(size=mask.shape), -np.inf).astype(kind)
    if masked in ("bool", "float"):
        arrays.append(mask)
    leaves = [ops.leaf(i, Size(a.shape), dtypes.from_numpy(a.dtype)) for i, a in enumerate(arrays)]
    node = ops.scaled_dot_product_attention(
        *leaves[:3], leaves[3] if len(leaves) > 3 else None, causal=masked == "causal"
    )
    with np.errstate(all="ignore"):
        expected = _expected(q, k, v, arrays[3] if len(leaves) > 3 else None, masked == "causal")
    for matrix in (1, 1 << 30):
        monkeypatch.setattr(composites, "_MATRIX", matrix)
        (found,) = Program([node]).run(arrays, ())
        assert found.dtype == q.dtype and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_the_weights_are_held_where_others_read_them() -> None:
    x = ops.leaf(0, Size((2, 70, 8)), dtypes.float32)
    a = ops.scaled_dot_product_attention(x, x, x)
    b = ops.scaled_dot_product_attention(x, x, x * 2)
    given = np.random.default_rng(0).normal(size=(2, 70, 8)).astype("f4")
    one, two = Program([a, b]).run([given], ())
    (alone,) = Program([a]).run([given], ())
    np.testing.assert_array_equal(one, alone)
    np.testing.assert_allclose(two, 2 * one, 1e-5)
