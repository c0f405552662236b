"""The tensors that the calls of bench/sweep.py take, of 1,000 or 1,000,000 elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

ROW = {1_000: (10, 100), 1_000_000: (1000, 1000)}
IMAGE = {1_000: (1, 4, 16, 16), 1_000_000: (16, 64, 32, 32)}
Call = Callable[..., Any]
Maker = Callable[[Any, int], tuple[Any, ...]]


def floats(count: int, low: float = -1.0) -> Maker:
    """`count` tensors of shape ROW, uniform between `low` and 1 (or 1 above `low`)."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        high = max(1.0, low + 1)
        arrays = (rng.uniform(low, high, ROW[size]).astype(np.float32) for _ in range(count))
        return tuple(torch.tensor(a) for a in arrays)

    return make


def integers(count: int, high: int = 100) -> Maker:
    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        return tuple(torch.tensor(rng.integers(0, high, ROW[size])) for _ in range(count))

    return make


def numbers(count: int) -> Maker:
    """`count` complex tensors of shape ROW, both parts between -1 and 1."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        parts = (rng.uniform(-1, 1, (2, *ROW[size])).astype(np.float32) for _ in range(count))
        return tuple(torch.tensor(real + 1j * imag) for real, imag in parts)

    return make


def image(torch: Any, size: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return (torch.tensor(rng.standard_normal(IMAGE[size]).astype(np.float32)),)


def matrices(n: int) -> Maker:
    """A batch of positive-definite n x n matrices, and right sides of three columns."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((max(size // n**2, 1), n, n)).astype(np.float32)
        a = a @ a.swapaxes(-1, -2) / n + np.eye(n, dtype=np.float32)
        return torch.tensor(a), torch.tensor(a[..., :3] * 1)

    return make


def rows_and_index(torch: Any, size: int) -> tuple[Any, ...]:
    x = floats(1)(torch, size)[0]
    index = np.random.default_rng(1).integers(0, ROW[size][0], ROW[size][0])
    return x, torch.tensor(index)


def rows_and_index_of_columns(torch: Any, size: int) -> tuple[Any, ...]:
    """x[m, n], and an order of its columns for each row [m, n]."""
    x = floats(1)(torch, size)[0]
    order = np.argsort(np.random.default_rng(1).random(ROW[size]), 1)
    return x, torch.tensor(order)


def rows_and_one_order(torch: Any, size: int) -> tuple[Any, ...]:
    """x[m, n], and an order of its rows."""
    x = floats(1)(torch, size)[0]
    return x, torch.tensor(np.random.default_rng(1).permutation(ROW[size][0]))


def logits(torch: Any, size: int) -> tuple[Any, ...]:
    x = floats(1)(torch, size)[0]
    classes = np.random.default_rng(1).integers(0, ROW[size][1], ROW[size][0])
    return x, torch.tensor(classes)


def of_length(n: int) -> Maker:
    """Complex rows of n elements."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        x = np.random.default_rng(0).standard_normal((max(size // n, 1), n, 2)).astype(np.float32)
        return (torch.tensor(x.view(np.complex64)[..., 0]),)

    return make


def wide(count: int) -> Maker:
    """As `floats`, in rows whose length is a multiple of 999."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        shape = (max(size // 999, 1), 999)
        return tuple(
            torch.tensor(rng.uniform(-1, 1, shape).astype(np.float32)) for _ in range(count)
        )

    return make


def heads(torch: Any, size: int) -> tuple[Any, ...]:
    """[batch, heads, length, width]."""
    shape = (1, 2, 16, 32) if size == 1_000 else (4, 8, 512, 64)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return (torch.tensor(x),)


def bytes_of(torch: Any, size: int) -> tuple[Any, ...]:
    n = 32 if size == 1_000 else 1000
    return (torch.tensor(np.random.default_rng(0).integers(-100, 100, (n, n)).astype(np.int8)),)


def sparse(layout: str) -> Maker:
    """A square matrix of which a hundredth is there, and a dense one of 64 columns."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        n = 100 if size == 1_000 else 10_000
        rng = np.random.default_rng(0)
        places = np.unique(rng.integers(0, n * n, n * n // 100))
        values = rng.standard_normal(len(places)).astype(np.float32)
        a = torch.sparse_coo_tensor(
            torch.tensor(np.stack(np.divmod(places, n))), torch.tensor(values), (n, n)
        ).coalesce()
        x = torch.tensor(rng.standard_normal((n, 64)).astype(np.float32))
        return (a if layout == "coo" else a.to_sparse_csr()), x

    return make
