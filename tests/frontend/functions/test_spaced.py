"""linspace and arange, bit by bit beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

DTYPES = "float16 bfloat16 float32 float64 int32 int64 uint8".split()


@pytest.mark.parametrize("name", DTYPES)
def test_spaced_numbers_are_pytorchs(torch: Any, name: str) -> None:
    rng = np.random.default_rng(0)
    ends = [(-1, 1, 4), (-1, 1, 6), (0, 1, 11), (0.1, 0.7, 33), (3, 4, 1), (3, 4, 2), (0, 1, 0)]
    ends += [(*rng.normal(size=2) * 5, int(rng.integers(1, 70))) for _ in range(30)]
    for start, end, steps in ends:
        if name == "uint8":
            start, end = abs(start), abs(end)
        ours, theirs = (
            m.linspace(start, end, steps, dtype=getattr(m, name)).tolist() for m in (tw, torch)
        )
        assert ours == theirs, (start, end, steps)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_numbers_around_zero_are_symmetric(name: str) -> None:
    for steps in (4, 16, 1000):
        line = tw.linspace(-1, 1, steps, dtype=getattr(tw, name)).numpy()
        assert (line == -line[::-1]).all()


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_fractions_are_rounded_once(torch: Any, name: str) -> None:
    """PyTorch adds up within a vector, whose width is the processor's: its own bits differ beyond
    the first few numbers."""
    for start, end, step in ((0, 0.7, 0.1), (0.1, 0.4, 0.05), (1, 7, 1), (0.5, 6, 0.75)):
        ours, theirs = (
            m.arange(start, end, step, dtype=getattr(m, name)).numpy() for m in (tw, torch)
        )
        if name == "float32":
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-15 if name == "float64" else 1e-7)
    line = tw.arange(0, 1, 1e-3).numpy()
    np.testing.assert_array_equal(line, (np.arange(1000) * 1e-3).astype(np.float32))
