"""Common divisors and multiples of integers of all widths beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.computes
DTYPES = ("int8", "uint8", "int16", "int32", "int64")


def operands(dtype: str, bound: int) -> tuple[Any, Any]:
    """Numbers of both signs with zeros among them, in a length that fills no whole vectors."""
    limits = np.iinfo(dtype)
    bound = min(bound, int(limits.max))
    rng = np.random.default_rng(bound)
    a, b = rng.integers(max(-bound, int(limits.min)), bound, (2, 203)).astype(dtype)
    a[:5], b[3:8] = 0, 0
    return a, b


@pytest.mark.parametrize("bound", [7, 100, 2**63 - 1], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_divisors_and_multiples(dtype: str, bound: int) -> None:
    a, b = operands(dtype, bound)
    for name in ("gcd", "lcm"):
        ours = getattr(tw, name)(tw.tensor(a), tw.tensor(b))
        theirs = getattr(torch, name)(torch.tensor(a), torch.tensor(b))
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), name)


def test_longest_way_of_euclid() -> None:
    """Neighbours in Fibonacci's sequence, and powers of two, where shifts go furthest."""
    pairs = [(7540113804746346429, 4660046610375530309), (2**62, 2**61), (2**62, 3), (1, 2**62)]
    a, b = np.array(pairs).T
    assert tw.gcd(tw.tensor(a), tw.tensor(b)).tolist() == [1, 2**61, 1, 1]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_least_integer_has_no_magnitude(dtype: str) -> None:
    """The sign is that which Euclid's algorithm leaves. (PyTorch's lcm of it traps.)"""
    limits = np.iinfo(dtype)
    some = [limits.min, limits.min + 1, -7, -6, -4, -1, 0, 1, 2, 3, 4, 6, 8, 96, limits.max]
    a, b = np.meshgrid(np.array(some, dtype), np.array(some, dtype))
    theirs = torch.gcd(torch.tensor(a), torch.tensor(b)).numpy()
    assert (theirs < -1).any()
    np.testing.assert_array_equal(tw.gcd(tw.tensor(a), tw.tensor(b)).numpy(), theirs)


def test_numbers_of_one_element_and_broadcasts() -> None:
    a, b = np.array([[12], [18]]), np.array([8, 27, -6])
    assert tw.gcd(tw.tensor(a), tw.tensor(b)).tolist() == np.gcd(a, b).tolist()
    assert tw.gcd(tw.tensor(12), tw.tensor(18)).item() == 6
