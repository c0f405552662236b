"""Copies in row-major order beside NumPy's, for any strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.runtime.baseline import copies

SIZES = [7, 8, 9, 15, 16, 17, 33, 100]


@pytest.fixture(autouse=True)
def _of_small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_FROM", 1)


def _agree(x: Any) -> None:
    found = copies.copied(x)
    assert found.flags.c_contiguous and not np.shares_memory(found, x)
    assert found.dtype == x.dtype and found.shape == x.shape
    assert found.tobytes() == np.array(x, order="C").tobytes()


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "c8", "c16", "f2", "?"])
def test_matrices(kind: str) -> None:
    """Turned and backwards along either axis, with sizes beside those of blocks."""
    for rows in SIZES:
        for columns in SIZES:
            x = np.arange(rows * columns).reshape(rows, columns).astype(kind)
            for each in (x, x[::-1], x[:, ::-1], x[::-1, ::-1]):
                _agree(each)
                _agree(each.T)


def test_any_views() -> None:
    """Of several dimensions: permuted, flipped, cut and stepped through, also to nothing."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        shape = rng.integers(1, 12, rng.integers(1, 7))
        x = rng.normal(size=shape).astype(rng.choice(["f4", "f8"]))
        cuts = []
        for n in shape:
            step = int(rng.choice([1, 1, -1, -1, 2, -3]))
            start = int(rng.integers(0, n))
            cuts.append(slice(start if rng.random() < 0.3 else None, None, step))
        _agree(x[tuple(cuts)].transpose(rng.permutation(x.ndim)))


def test_edges() -> None:
    parts = np.arange(48.0, dtype="f4").view("c8").reshape(4, 6)
    for x in (
        np.float32(2.0) * np.ones(()),
        np.ones((0, 3), "f4")[:, ::-1],
        np.broadcast_to(np.arange(5.0), (7, 5)),
        np.broadcast_to(np.arange(5.0)[:, None], (5, 7))[::-1],
        parts.real,
        parts.imag.T,
        np.array([-0.0, np.nan, np.inf], "f4")[::-1],
        np.zeros(60, "u1")[1:49].view("f4")[::-1],  # at odd addresses
    ):
        _agree(x)
    x = np.ones((3, 4))
    assert copies.in_order(x) is x
