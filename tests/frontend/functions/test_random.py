"""Distributions: their range, their moments, and what stays the same."""

from __future__ import annotations

import numpy as np
import pytest
from graph_oracle import assert_close, run

import tilewright as tw
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

pytestmark = pytest.mark.computes

DRAWN = [ops.leaf(name, Size(), dtypes.int64) for name in ("seed", "offset")]


def draw(*roots: Node) -> list[np.ndarray]:
    return run(roots, dict(zip(DRAWN, map(np.asarray, (1234, 5)))))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_and_normal(dtype: str) -> None:
    kind = dtypes.named(dtype)
    uniform, normal = draw(
        ops.uniform(*DRAWN, (200, 200), kind), ops.normal(*DRAWN, (200, 200), kind)
    )
    assert uniform.dtype == normal.dtype == kind.np
    u, z = uniform.astype(float), normal.astype(float)
    assert u.min() >= 0 and u.max() < 1
    assert_close([u.mean(), u.var()], [1 / 2, 1 / 12], 0.02)
    assert_close([z.mean(), z.var(), (z**3).mean(), (z**4).mean()], [0, 1, 0, 3], 0.1)


@pytest.mark.parametrize(
    "low, high", [(0, 10), (-5, 5), (3, 4), (0, 2**31), (0, 2**40), (-(2**63), 2**63)]
)
def test_randint(low: int, high: int) -> None:
    (x,) = draw(ops.randint(*DRAWN, low, high, (5000,), dtypes.int64))
    assert low <= x.min() and x.max() < high
    assert abs(x.astype(float).mean() - (low + high - 1) / 2) <= (high - low) * 0.02


def test_bernoulli_dropout_and_randperm() -> None:
    p = ops.reshape(ops.cast(ops.iota(3), dtypes.float32) / 2.0, (3, 1))
    ones = ops.expand(ops.constant(1.0, dtypes.float32), (5000,))
    seed, offset = DRAWN
    coin, kept, gone, order = draw(
        ops.bernoulli(seed, offset, p, (3, 5000)),
        ops.dropout(ones, seed, offset, 0.25),
        ops.dropout(ones, seed, offset, 1.0),
        ops.randperm(seed, offset, 50),
    )
    assert coin.dtype == bool
    assert_close(coin.mean(1), [0, 0.5, 1], 0.03)
    assert set(np.unique(kept)) == {np.float32(0), np.float32(4 / 3)} and not gone.any()
    assert_close(kept.mean(), 1, 0.03)
    assert sorted(order) == list(range(50))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64"])
def test_trials_into_a_tensor_of_another_dtype(torch, dtype):
    for m in (tw, torch):
        p, out = m.tensor([0.0, 1.0, 1.0, 0.0]), m.empty(4, dtype=getattr(m, dtype))
        assert m.bernoulli(p, out=out) is out and out.tolist() == [0, 1, 1, 0]
