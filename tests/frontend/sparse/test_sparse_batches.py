"""Batches of compressed matrices, beside PyTorch and dense arithmetic."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.computes, pytest.mark.filterwarnings("ignore:Sparse")]

SHAPES = {"one": (2, 3, 4), "two": (2, 3, 4, 5), "dense": (2, 3, 4, 2)}
DENSE = {"one": 0, "two": 0, "dense": 1}


def drawn(name: str, dtype: type = np.float64) -> np.ndarray:
    """Matrices with two elements in each row and other places in each matrix."""
    shape = SHAPES[name]
    rng = np.random.default_rng(0)
    sides = shape[: len(shape) - DENSE[name]]
    mask = np.argsort(rng.random(sides), -1) < 2
    mask[..., 0, :], mask[..., 1, :] = mask[..., 1, :], mask[..., 0, :].copy()
    values = rng.integers(1, 9, shape).astype(dtype)
    return values * mask.reshape(*sides, *[1] * DENSE[name])


def parts(t: Any) -> list[np.ndarray]:
    found = (
        (t.crow_indices(), t.col_indices())
        if "csr" in str(t.layout)
        else (t.ccol_indices(), t.row_indices())
    )
    return [np.asarray(x.detach()) for x in (*found, t.values())]


def same(ours: Any, theirs: Any) -> None:
    assert str(ours.layout) == str(theirs.layout) and tuple(ours.shape) == tuple(theirs.shape)
    if "sparse_cs" in str(ours.layout):
        assert (ours._nnz(), ours.dense_dim()) == (theirs._nnz(), theirs.dense_dim())
        for a, b in zip(parts(ours), parts(theirs), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    else:
        np.testing.assert_array_equal(
            np.asarray(ours.to_dense().detach()), np.asarray(theirs.to_dense().detach())
        )


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "to_dense": lambda m, t: t.to_dense(),
    "to_sparse": lambda m, t: t.to_sparse(),
    "mT": lambda m, t: t.mT,
    "twice turned": lambda m, t: t.mT.mT,
    "select": lambda m, t: t[1],
    "a row": lambda m, t: t[0, 1],
    "add": lambda m, t: t + t,
    "add dense": lambda m, t: t + t.to_dense(),
    "mul": lambda m, t: t * 3,
    "abs": lambda m, t: t.neg().abs(),
    "clone": lambda m, t: t.clone().detach(),
    "float32": lambda m, t: t.to(m.float32),
    "zeros_like": lambda m, t: m.zeros_like(t),
    "sum": lambda m, t: t.sum(),
    "mask": lambda m, t: (t.to_dense() + 1).sparse_mask(t),
    "pickled": lambda m, t: pickle.loads(pickle.dumps(t)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_beside_torch(torch: Any, layout: str, name: str) -> None:
    if layout == "csc":  # each column has to have as many elements as in the other matrices
        x = {key: np.ascontiguousarray(np.swapaxes(drawn(key), -1, -2)) for key in ("one", "two")}
    else:
        x = {key: drawn(key) for key in ("one", "two")}
    for value in x.values():
        given = [getattr(m.tensor(value), f"to_sparse_{layout}")() for m in (tw, torch)]
        same(*given)
        same(*[CALLS[name](m, t) for m, t in zip((tw, torch), given, strict=True)])


def test_dense_dimensions(torch: Any) -> None:
    x = drawn("dense")
    given = [m.tensor(x).to_sparse_csr(dense_dim=1) for m in (tw, torch)]
    same(*given)
    np.testing.assert_array_equal(np.asarray(given[0].to_dense()), x)
    same(*[t[0] for t in given])


def test_made_of_parts(torch: Any) -> None:
    made = []
    for m in (tw, torch):
        t = m.tensor(drawn("one")).to_sparse_csr()
        own = t.crow_indices().clone(), t.col_indices().clone(), t.values().clone()
        made.append((m.sparse_csr_tensor(*own), m.sparse_csr_tensor(*own, (2, 3, 7))))
        assert repr(made[-1][0]) == repr(t)
    for ours, theirs in zip(*made, strict=True):
        same(ours, theirs)
        assert repr(ours) == repr(theirs)


WHERE, OTHER, VALUES = [[0, 2, 3], [0, 1, 3]], [[0, 2, 1], [1, 0, 2]], [[1.0, 2, 3], [4, 5, 6]]
BAD: dict[str, tuple[Any, ...]] = {
    "batch of columns": (WHERE, OTHER[:1], VALUES),
    "batch of values": (WHERE, OTHER, VALUES[:1]),
    "batch of the size": (WHERE, OTHER, VALUES, (3, 2, 3)),
    "dimensions": (WHERE, OTHER, VALUES, (2, 3)),
    "rows": (WHERE, OTHER, VALUES, (2, 3, 3)),
    "columns": (WHERE, OTHER, VALUES, (2, 2, 2)),
    "elements": (WHERE, OTHER, [[1.0] * 4] * 2),
    "begin": ([[1, 2, 3]] * 2, OTHER, VALUES),
    "end": ([[0, 2, 3], [0, 1, 2]], OTHER, VALUES),
    "order": (WHERE, [[2, 0, 1], [1, 0, 2]], VALUES),
    "one dimension": (WHERE, OTHER[0], VALUES),
    "no dimension": (0, OTHER, VALUES),
    "values of one": (WHERE, OTHER, VALUES[0]),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_pytorchs(torch: Any, name: str) -> None:
    given, size = BAD[name][:3], BAD[name][3:]
    with pytest.raises(RuntimeError) as theirs:
        torch.sparse_csr_tensor(*map(torch.tensor, given), *size, check_invariants=True)
    with pytest.raises(RuntimeError, match=re.escape(str(theirs.value).rstrip("."))):
        tw.sparse_csr_tensor(*map(tw.tensor, given), *size)


def test_other_numbers_of_elements() -> None:
    x = drawn("one")
    x[0, 0] = 0
    with pytest.raises(RuntimeError, match="same number of specified elements per batch"):
        tw.tensor(x).to_sparse_csr()
    a, b = tw.tensor(drawn("one")).to_sparse_csr(), tw.tensor(drawn("one")[::-1].copy())
    with pytest.raises(RuntimeError, match="can only exchange"):
        a.transpose(0, 1)
    with pytest.raises(RuntimeError, match="selecting sparse dimensions"):
        a.select(1, 0)
    with pytest.raises(RuntimeError, match="sparse_dim"):
        b.to_sparse().to_sparse_csr()


@pytest.mark.parametrize("name", ["one", "two"])
def test_products(name: str) -> None:
    """PyTorch has these on GPUs alone, so dense arithmetic is the oracle, gradients included."""
    x = drawn(name)
    other = np.random.default_rng(1).standard_normal((*x.shape[:-2], x.shape[-1], 6))
    t = tw.tensor(x).to_sparse_csr()
    values = t.values().clone().requires_grad_()
    b = tw.tensor(other, requires_grad=True)
    a = tw.sparse_csr_tensor(t.crow_indices(), t.col_indices(), values, x.shape)
    found = a @ b
    np.testing.assert_allclose(found.detach().numpy(), x @ other, rtol=1e-12)
    weight = np.random.default_rng(2).standard_normal(found.shape)
    (found * tw.tensor(weight)).sum().backward()
    np.testing.assert_allclose(b.grad.numpy(), np.swapaxes(x, -1, -2) @ weight, rtol=1e-12)
    slope = weight @ np.swapaxes(other, -1, -2)
    expected = tw.tensor(slope).sparse_mask(t).values().numpy()
    np.testing.assert_allclose(values.grad.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["one", "two"])
def test_sampled_products(name: str) -> None:
    x = drawn(name)
    rng = np.random.default_rng(1)
    left = rng.standard_normal((*x.shape[:-1], 3))
    right = rng.standard_normal((*x.shape[:-2], 3, x.shape[-1]))
    t = tw.tensor(x).to_sparse_csr()
    found = tw.sparse.sampled_addmm(t, tw.tensor(left), tw.tensor(right), beta=2, alpha=0.5)
    expected = np.where(x != 0, 0.5 * (left @ right), 0) + 2 * x
    np.testing.assert_allclose(found.to_dense().numpy(), expected, rtol=1e-12)
