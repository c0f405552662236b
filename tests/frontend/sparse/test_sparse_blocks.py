"""Sparse matrices of blocks (BSR, BSC) beside PyTorch: values, structure, errors, printed text."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.torch, pytest.mark.computes]
LAYOUTS = ("bsr", "bsc")


@pytest.fixture(autouse=True)
def silent() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def dense(m: Any, *more: int) -> Any:
    """6 x 8 (x more), of whose 2 x 2 blocks some are zeros, and some have zeros."""
    a = np.arange(1, 49 * max(1, *more, 1), dtype=np.float32)[: 48 * int(np.prod(more or (1,)))]
    a = a.reshape(6, 8, *more)
    a[0:2, 2:6] = a[2:4, 0:2] = a[4:6, 6:8] = 0
    a[0, 0] = a[5, 3] = 0
    return m.tensor(a)


def made(m: Any, layout: str, block: Any = (2, 2)) -> Any:
    return getattr(dense(m), f"to_sparse_{layout}")(block)


def parts(t: Any) -> list[Any]:
    """Layout, size and all that a tensor is made of."""
    kind = str(t.layout)
    known = [kind, tuple(t.shape), str(t.dtype).split(".")[-1], t._nnz()]
    if kind == "torch.sparse_coo":
        whole = t.coalesce()
        return [*known, whole.indices().tolist(), whole.values().tolist()]
    if kind in ("torch.sparse_csr", "torch.sparse_bsr"):
        known += [t.crow_indices().tolist(), t.col_indices().tolist()]
    else:
        known += [t.ccol_indices().tolist(), t.row_indices().tolist()]
    return [*known, t.sparse_dim(), t.dense_dim(), t.detach().values().tolist()]


def described(t: Any) -> Any:
    return t.tolist() if str(t.layout) == "torch.strided" else parts(t)


X = np.arange(24, dtype=np.float32).reshape(8, 3) - 11

CALLS: list[Callable[[Any, Any], Any]] = [
    lambda m, t: t,
    lambda m, t: t.to_dense(),
    lambda m, t: t.to_sparse(),
    lambda m, t: t.to_sparse_coo(),
    lambda m, t: t.to_sparse_bsr((2, 2)),
    lambda m, t: t.to_sparse_bsc((2, 2)),
    lambda m, t: t.t(),
    lambda m, t: t.transpose(0, 1).to_dense(),
    lambda m, t: t.abs(),
    lambda m, t: m.relu(t),
    lambda m, t: -t,
    lambda m, t: t * 2,
    lambda m, t: 3 * t,
    lambda m, t: t.sum(),
    lambda m, t: t.clone(),
    lambda m, t: t.double(),
    lambda m, t: m.zeros_like(t),
    lambda m, t: t.values(),
    lambda m, t: t.detach().requires_grad_().to_dense(),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_calls(torch: Any, layout: str) -> None:
    for i, call in enumerate(CALLS):
        ours, theirs = (described(call(m, made(m, layout))) for m in (tw, torch))
        assert ours == theirs, f"call {i}"


ROWS_ONLY: list[Callable[[Any, Any], Any]] = [
    lambda m, t: t @ m.tensor(X),
    lambda m, t: t @ m.tensor(X)[:, 0],
    lambda m, t: m.addmm(m.ones(6, 3), t, m.tensor(X), beta=2, alpha=0.5),
    lambda m, t: m.nn.functional.linear(m.tensor(X.T.copy()), t),
    lambda m, t: t + t,
]


def test_calls_of_rows(torch: Any) -> None:
    """What PyTorch has for rows of square blocks alone."""
    for i, call in enumerate(ROWS_ONLY):
        ours, theirs = (described(call(m, made(m, "bsr"))) for m in (tw, torch))
        assert ours == theirs, f"call {i}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block", [(1, 1), (2, 4), (3, 2), (6, 8)])
def test_any_blocks(torch: Any, layout: str, block: tuple[int, int]) -> None:
    """Blocks that are not square, too, which PyTorch converts but doesn't multiply."""
    ours, theirs = made(tw, layout, block), made(torch, layout, block)
    assert parts(ours) == parts(theirs)
    assert repr(ours) == repr(theirs)
    whole, x = dense(tw).numpy(), tw.tensor(X)
    np.testing.assert_allclose((ours @ x).numpy(), whole @ X)
    np.testing.assert_allclose((x.t() @ ours.t()).numpy(), X.T @ whole.T)
    np.testing.assert_allclose((ours * dense(tw)).to_dense().numpy(), whole * whole)
    np.testing.assert_allclose((ours * (ours + ours)).to_dense().numpy(), 2 * whole * whole)
    np.testing.assert_allclose((dense(tw) + ours).numpy(), 2 * whole)
    other = getattr(tw.eye(8)[:6], f"to_sparse_{layout}")(block)
    np.testing.assert_allclose((ours + other).to_dense().numpy(), whole + np.eye(8)[:6])
    np.testing.assert_allclose((other * ours).to_dense().numpy(), whole * np.eye(8)[:6])
    np.testing.assert_allclose(ours[3].to_dense().numpy(), whole[3])
    assert ours[0, 1] == whole[0, 1]
    np.testing.assert_allclose((ours / 2).to_dense().numpy(), whole / 2)
    for source in ("coo", "csr", "csc"):
        turned = getattr(getattr(dense(tw), f"to_sparse_{source}")(), f"to_sparse_{layout}")(block)
        assert parts(turned) == parts(theirs)
    picked = dense(tw).sparse_mask(ours)
    assert parts(picked) == parts(ours)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_parts(torch: Any, layout: str) -> None:
    values = np.arange(2 * 2 * 3 * 2, dtype=np.float64).reshape(2, 2, 3, 2)

    def tensors(m: Any) -> list[Any]:
        make, kind = getattr(m, f"sparse_{layout}_tensor"), getattr(m, f"sparse_{layout}")
        size = (4, 9) if layout == "bsr" else (6, 6)
        blocks = m.tensor(values[..., 0])
        return [
            make([0, 1, 2], [0, 1], blocks),
            make(m.tensor([0, 2, 2]), m.tensor([0, 2]), blocks, size),
            make([0, 1, 2], [1, 0], m.tensor(values)),
            make([0, 1, 2], [0, 1], blocks, dtype=m.float32),
            m.sparse_compressed_tensor([0, 1, 2], [0, 1], blocks, layout=kind),
        ]  # fmt: skip

    for ours, theirs in zip(tensors(tw), tensors(torch), strict=True):
        assert parts(ours) == parts(theirs)
        assert repr(ours) == repr(theirs)
        np.testing.assert_array_equal(ours.to_dense().numpy(), theirs.to_dense().numpy())


def test_dense_dimensions(torch: Any) -> None:
    ours, theirs = (dense(m, 2).to_sparse_bsr((2, 2), dense_dim=1) for m in (tw, torch))
    assert parts(ours) == parts(theirs)
    np.testing.assert_array_equal(ours.to_dense().numpy(), dense(tw, 2).numpy())


def test_gradients(torch: Any) -> None:
    """Of a dense source through the blocks, and of the blocks and the other factor of a product."""
    grads = []
    for m in (tw, torch):
        source = dense(m).requires_grad_()
        (source.to_sparse_bsr((2, 2)).to_dense() ** 2).sum().backward()
        grads.append(source.grad.numpy())
    np.testing.assert_array_equal(*grads)
    blocks = tw.tensor(np.arange(12.0).reshape(2, 2, 3)).requires_grad_()
    x = tw.tensor(np.arange(12.0).reshape(6, 2) / 7).requires_grad_()
    weights = tw.tensor(np.arange(8.0).reshape(4, 2) - 3)
    t = tw.sparse_bsr_tensor([0, 1, 2], [1, 0], blocks)
    ((t @ x) * weights).sum().backward()
    whole = t.detach().to_dense().numpy()
    np.testing.assert_allclose(x.grad.numpy(), whole.T @ weights.numpy())
    full = weights.numpy() @ x.detach().numpy().T
    np.testing.assert_allclose(blocks.grad.numpy(), np.stack([full[:2, 3:], full[2:, :3]]))
    leaf = made(tw, "bsr").requires_grad_()
    (leaf.to_dense() * 3).sum().backward()
    assert leaf.grad.layout is tw.sparse_bsr and (leaf.grad.values() == 3).all()


def test_files(torch: Any) -> None:
    for layout in LAYOUTS:
        file = io.BytesIO()
        tw.save(made(tw, layout), file)
        file.seek(0)
        assert parts(torch.load(file)) == parts(made(torch, layout))
        file = io.BytesIO()
        torch.save(made(torch, layout), file)
        file.seek(0)
        assert parts(tw.load(file)) == parts(made(tw, layout))


def blocks(m: Any) -> Any:
    return m.ones(2, 2, 3)


WRONG: list[Callable[[Any], Any]] = [
    lambda m: dense(m).to_sparse_bsr((4, 3)),
    lambda m: dense(m).to_sparse_bsc((2,)),
    lambda m: dense(m).to_sparse_bsr((0, 2)),
    lambda m: dense(m).to_sparse_bsr((-1, 2)),
    lambda m: m.ones(4).to_sparse_bsr((1, 1)),
    lambda m: dense(m).to_sparse(layout=m.sparse_bsr),
    lambda m: dense(m).to_sparse(layout=m.sparse_csr, blocksize=(2, 2)),
    lambda m: made(m, "bsr").to_sparse_bsr((1, 2)),
    lambda m: made(m, "bsr").to_sparse_csr(),
    lambda m: made(m, "bsc").to_sparse_csc(),
    lambda m: made(m, "bsr").indices(),
    lambda m: made(m, "bsr").coalesce(),
    lambda m: made(m, "bsr").row_indices(),
    lambda m: made(m, "bsr").ccol_indices(),
    lambda m: made(m, "bsc").crow_indices(),
    lambda m: made(m, "bsr").sum(0),
    lambda m: m.zeros(4, 6, layout=m.sparse_bsr),
    lambda m: m.sparse_bsr_tensor([0, 1, 2], [0, 1], blocks(m), (5, 6), check_invariants=True),
    lambda m: m.sparse_bsr_tensor([0, 1, 2], [0, 1], blocks(m), (4, 7), check_invariants=True),
    lambda m: m.sparse_bsr_tensor([0, 1, 2], [0, 1], m.ones(2), (4, 6), check_invariants=True),
    lambda m: m.sparse_bsr_tensor([0, 1, 2], [0, 2], blocks(m), (4, 6), check_invariants=True),
    lambda m: m.sparse_bsr_tensor([0, 1, 3], [0, 1], blocks(m), (4, 6), check_invariants=True),
    lambda m: m.sparse_bsr_tensor([0, 2, 2], [1, 0], blocks(m), (4, 6), check_invariants=True),
]


def test_errors(torch: Any) -> None:
    for i, call in enumerate(WRONG):
        with pytest.raises(Exception) as theirs:
            call(torch)
        with pytest.raises(theirs.type) as ours:
            call(tw)
            pytest.fail(f"case {i} should raise {theirs.value!r}")
        said = str(theirs.value).split(":")[-1].strip().rstrip(".")
        assert said in str(ours.value), f"case {i}"


def test_what_does_not_fit_says_so() -> None:
    t = made(tw, "bsr")
    with pytest.raises(RuntimeError, match="blocks of one size"):
        t + made(tw, "bsr", (2, 4))
    with pytest.raises(RuntimeError, match="inner sizes differ"):
        t @ tw.ones(6, 2)
    with pytest.raises(RuntimeError, match="same dtype"):
        t @ tw.ones(8, 2, dtype=tw.float64)
    with pytest.raises(NotImplementedError, match="batches"):
        tw.ones(2, 6, 8).to_sparse_bsr((2, 2))
