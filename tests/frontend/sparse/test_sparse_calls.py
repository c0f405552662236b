"""Calls of sparse tensors beside PyTorch: values, layouts, errors, printed text."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.torch, pytest.mark.computes]
Call = Callable[[Any, Any, Any], Any]  # of the framework, a sparse tensor and a dense one

AT = [[0, 1, 1, 0, 2], [2, 0, 2, 2, 1]]
VALUES = np.array([3.0, 4, 5, 1, -0.5], np.float32)


def coo(m: Any) -> Any:
    """3 x 4, with a position that comes twice."""
    return m.sparse_coo_tensor(m.tensor(AT), m.tensor(VALUES), (3, 4))


def csr(m: Any) -> Any:
    return coo(m).to_sparse_csr()


def hybrid(m: Any) -> Any:
    values = m.tensor(np.arange(10, dtype=np.float32).reshape(5, 2) - 3)
    return m.sparse_coo_tensor(m.tensor(AT), values, (3, 4, 2))


def dense(m: Any) -> Any:
    return m.tensor(np.arange(12, dtype=np.float32).reshape(3, 4) / 3 - 1)


@pytest.fixture(autouse=True)
def silent() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def described(found: Any) -> Any:
    """What is to be the same under both frameworks."""
    if isinstance(found, (tuple, list)) and any(hasattr(f, "detach") for f in found):
        return [described(f) for f in found]
    if not hasattr(found, "detach"):
        return found
    whole = found.detach().to_dense() if str(found.layout) != "torch.strided" else found.detach()
    known = [str(found.layout), str(found.dtype), tuple(found.shape)]
    if str(found.layout) == "torch.sparse_coo":
        known += [found.sparse_dim(), found.dense_dim()]
    return known, np.asarray(whole.float().numpy() if found.dtype.is_floating_point else whole)


def same(ours: Any, theirs: Any, name: str) -> None:
    if isinstance(theirs, list):
        assert len(ours) == len(theirs), name
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, name)
    elif isinstance(theirs, tuple) and len(theirs) == 2 and isinstance(theirs[1], np.ndarray):
        assert ours[0] == theirs[0], name
        np.testing.assert_allclose(ours[1], theirs[1], 2e-6, 1e-6, err_msg=name)
    else:
        assert ours == theirs, name


def compare(calls: dict[str, Call], made: Callable[[Any], Any], torch: Any) -> None:
    for name, call in calls.items():
        theirs = described(call(torch, made(torch), dense(torch)))
        same(described(call(tw, made(tw), dense(tw))), theirs, name)


ARITHMETIC: dict[str, Call] = {
    "dense + s": lambda m, s, d: d + s,
    "s + s": lambda m, s, d: s + s,
    "add alpha": lambda m, s, d: m.add(s, s, alpha=2),
    "s * dense": lambda m, s, d: s * d,
    "dense * s": lambda m, s, d: d * s,
    "s * s": lambda m, s, d: s * s,
    "s * 2": lambda m, s, d: s * 2,
    "2 * s": lambda m, s, d: 2 * s,
    "s * 0-d": lambda m, s, d: s * m.tensor(3.0),
    "-s": lambda m, s, d: -s,
    **{
        name: lambda m, s, d, name=name: getattr(s, name)()
        for name in "abs sqrt relu sin tan asinh atan sinh tanh floor ceil trunc sign sgn expm1 "
        "erf isnan isinf signbit deg2rad double int to_dense clone detach".split()
    },
    "log1p": lambda m, s, d: s.abs().log1p(),
    "dense.add_(s)": lambda m, s, d: d.add_(s),
    "s.mul_(2)": lambda m, s, d: s.mul_(2),
    "s.neg_()": lambda m, s, d: s.neg_(),
    "s.abs_()": lambda m, s, d: (s.coalesce() if s.is_sparse else s).abs_(),
    "s.zero_()": lambda m, s, d: s.zero_(),
    "s *= 3": lambda m, s, d: s.__imul__(3),
    "s @ dense": lambda m, s, d: s @ d.t(),
    "dense @ s": lambda m, s, d: d.t() @ s,
    "s @ s": lambda m, s, d: s @ s.t(),
    "mv": lambda m, s, d: s.mv(d[0]),
    "s @ vector": lambda m, s, d: s @ d[1],
    "sparse.mm": lambda m, s, d: m.sparse.mm(s, d.t()),
    "spmm": lambda m, s, d: m.spmm(s, d.t()),
    "addmm": lambda m, s, d: m.addmm(m.ones(3, 3), s, d.t(), beta=2, alpha=0.5),
    "sparse.addmm": lambda m, s, d: m.sparse.addmm(m.ones(3, 3), s, d.t()),
    "linear": lambda m, s, d: m.nn.functional.linear(s, d),
    "linear by sparse": lambda m, s, d: m.nn.functional.linear(d, s),
    "sum": lambda m, s, d: s.sum(),
    "sum keepdim": lambda m, s, d: s.sum(1, keepdim=True),
    "zeros_like": lambda m, s, d: m.zeros_like(s),
    "row": lambda m, s, d: s[1],
    "column": lambda m, s, d: s[:, 2],
    "element": lambda m, s, d: s[0, 2],
    "rows": lambda m, s, d: list(s),
    "transpose": lambda m, s, d: s.transpose(0, 1),
    "shape": lambda m, s, d: (tuple(s.shape), s.numel(), len(s), s.dim(), s.is_sparse),
    "requires_grad": lambda m, s, d: (s.requires_grad, s.is_leaf, s.requires_grad_().is_leaf),
    "sparse_mask": lambda m, s, d: d.sparse_mask(s),
    "type": lambda m, s, d: s.type() if s.is_sparse else "",
    "to": lambda m, s, d: (s.to("cpu") is s, s.to(m.float64)),
    "new_zeros": lambda m, s, d: (s.new_zeros(2, 3), s.new_zeros((1, 2), dtype=m.int64)),
    "new_empty": lambda m, s, d: str(s.new_empty(2, 2).layout),
    "sparse_coo_tensor of a size": lambda m, s, d: m.sparse_coo_tensor(size=(2, 3)),
    "one element": lambda m, s, d: m.sparse_coo_tensor([[1]], [2.0], (3,)).is_coalesced(),
}
BY_COORDINATES: dict[str, Call] = {
    "s - s": lambda m, s, d: s - s,
    "dense - s": lambda m, s, d: d - s,
    "s / 2": lambda m, s, d: s / 2,
    "s // 2": lambda m, s, d: s // 2,
    "s ** 2": lambda m, s, d: s**2,
    "dense.mul_(s)": lambda m, s, d: d.mul_(s),
    "dense *= s": lambda m, s, d: d.__imul__(s),
    "zeros_like of another layout": lambda m, s, d: m.zeros_like(s, layout=m.strided),
    "floor": lambda m, s, d: s.div(2, rounding_mode="floor"),
    "dist": lambda m, s, d: (m.dist(s, s * 3), s.dist(s + s, 1)),
    "s[None]": lambda m, s, d: s[None],
    "s * row": lambda m, s, d: s * d[0],
    "coalesce": lambda m, s, d: (s.coalesce(), s.coalesce().indices(), s.coalesce().values()),
    "parts": lambda m, s, d: (s._indices(), s._values(), s._nnz(), s.is_coalesced()),
    "sum 0": lambda m, s, d: s.sum(0),
    "sparse.sum": lambda m, s, d: m.sparse.sum(s),
    "sparse.sum 1": lambda m, s, d: m.sparse.sum(s, 1),
    "sparse.sum all": lambda m, s, d: m.sparse.sum(s, (0, 1)),
    "norm": lambda m, s, d: s.norm(),
    "any": lambda m, s, d: s.any(),
    "softmax": lambda m, s, d: m.sparse.softmax(s, 1),
    "softmax of columns": lambda m, s, d: m.sparse.softmax(s, 0),
    "log_softmax": lambda m, s, d: m.sparse.log_softmax(s, -1),
    "index_select": lambda m, s, d: s.index_select(1, m.tensor([2, 0, 2])),
    "cat": lambda m, s, d: m.cat([s, s * 2], 1),
    "stack": lambda m, s, d: m.stack([s, s * 2], 1),
    "unsqueeze": lambda m, s, d: s.unsqueeze(1),
    "T": lambda m, s, d: s.T,
    "permute": lambda m, s, d: s.permute(1, 0),
    "narrow_copy": lambda m, s, d: s.narrow_copy(1, 1, 2),
    "smm": lambda m, s, d: m.smm(s, d.t()),
    "hspmm": lambda m, s, d: m.hspmm(s, d.t()),
    "sspaddmm": lambda m, s, d: m.sspaddmm(m.eye(3).to_sparse(), s, d.t()),
    "bmm": lambda m, s, d: m.bmm(m.stack([s, s]), m.stack([d.t(), d.t()])),
    "to_sparse_csr": lambda m, s, d: s.to_sparse_csr(),
    "to_sparse_csc": lambda m, s, d: s.to_sparse_csc(),
    "to_sparse": lambda m, s, d: (d.to_sparse(), d.to_sparse(1), m.tensor(5.0).to_sparse()),
    "layout": lambda m, s, d: d.to_sparse(layout=m.sparse_csr),
    "stride": lambda m, s, d: (s.stride(), s.is_contiguous(), s.is_sparse_csr),
    "copy_": lambda m, s, d: m.zeros_like(s).copy_(s),
    "masked by": lambda m, s, d: s.coalesce().sparse_mask(
        d[:, 1:2].mul(0).add(s.to_dense()).to_sparse()
    ),
    "resize": lambda m, s, d: s.sparse_resize_((5, 4), 2, 0),
    "resize as": lambda m, s, d: m.zeros_like(s).resize_as_sparse_(m.zeros(7, 5).to_sparse()),
    "methods": lambda m, s, d: (s.smm(d.t()), m.eye(3).to_sparse().sspaddmm(s, d.t())),
    "clear": lambda m, s, d: s.sparse_resize_and_clear_((5, 4), 2, 0),
    "empty": lambda m, s, d: (m.sparse_coo_tensor((2, 3)), m.zeros(2, 3, layout=m.sparse_coo)),
    "of integers": lambda m, s, d: m.sparse.sum(s.int(), 0),
    "of bools": lambda m, s, d: m.sparse_coo_tensor([[0, 0]], [True, True], (2,)).to_dense(),
    "spdiags": lambda m, s, d: m.sparse.spdiags(
        m.arange(9).reshape(3, 3), m.tensor([0, -1, 2]), (3, 4)
    ),
}


def test_by_coordinates(torch: Any) -> None:
    compare(ARITHMETIC | BY_COORDINATES, coo, torch)
    compare(ARITHMETIC, lambda m: coo(m).coalesce(), torch)


def test_by_rows(torch: Any) -> None:
    left_out = (
        "sum keepdim",
        "isnan",
        "isinf",
        "signbit",
        "linear by sparse",
    )
    calls = {name: call for name, call in ARITHMETIC.items() if name not in left_out}
    compare(calls, csr, torch)
    compare(
        {
            "parts": lambda m, s, d: (s.crow_indices(), s.col_indices(), s.values(), s._nnz()),
            "columns": lambda m, s, d: (s.t().ccol_indices(), s.t().row_indices()),
            "dense + s": lambda m, s, d: s + d,
            "to_sparse": lambda m, s, d: (s.to_sparse(), s.to_sparse_coo(), s.to_sparse_csc()),
            "sampled": lambda m, s, d: m.sparse.sampled_addmm(s, d, d.t() @ d, beta=0.5, alpha=2),
            "ones_like": lambda m, s, d: m.ones_like(s),
            "dims": lambda m, s, d: (s.sparse_dim(), s.dense_dim(), s.is_sparse_csr),
            "zeros": lambda m, s, d: m.zeros(2, 3, layout=m.sparse_csr),
            "product": lambda m, s, d: s @ s.to_dense().t().to_sparse_csr(),
        },
        csr,
        torch,
    )
    for how in ("mean", "amax", "amin"):
        factor = np.arange(8, dtype=np.float32).reshape(4, 2) - 3
        theirs = torch.sparse.mm(csr(torch), torch.tensor(factor), how)
        ours = tw.sparse.mm(csr(tw), tw.tensor(factor), how)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), err_msg=how)


def test_hybrid(torch: Any) -> None:
    names = "dense + s,s + s,s * 2,-s,abs,sqrt,to_dense,clone,s.mul_(2)".split(",")
    calls: dict[str, Call] = {
        "dense + s": lambda m, s, d: d.unsqueeze(2).expand(3, 4, 2) + s,
        "sum": lambda m, s, d: m.sparse.sum(s),
        "sum over a dense one": lambda m, s, d: m.sparse.sum(s, 2),
        "sum of sparse ones": lambda m, s, d: m.sparse.sum(s, (0, 1)),
        "sum of one": lambda m, s, d: m.sparse.sum(s, 0),
        **{
            f"sum over {dim}, kept": lambda m, s, d, dim=dim: m.sum(s, dim, keepdim=True)
            for dim in (0, 1, 2, (0, 2), (0, 1), (0, 1, 2))
        },
        "resized": lambda m, s, d: m.zeros(2, 2).to_sparse().resize_as_(s),
        "rows of a table": lambda m, s, d: m.nn.functional.embedding(
            m.tensor([2, 0, 2]), s.select(2, 1)
        ),
        "rows of a hybrid table": lambda m, s, d: m.nn.functional.embedding(
            m.tensor([2, 0]), m.sparse_coo_tensor([[2, 1]], m.ones(2, 4), (3, 4))
        ),
        "coalesce": lambda m, s, d: (s.coalesce().indices(), s.coalesce().values()),
        "dims": lambda m, s, d: (s.sparse_dim(), s.dense_dim(), s._nnz()),
        "select": lambda m, s, d: (s[1], s.select(2, 1), s.select(1, 2)),
        "softmax": lambda m, s, d: (m.sparse.softmax(s, 1), m.sparse.softmax(s, 2)),
        "transpose": lambda m, s, d: s.transpose(0, 1),
        "index_select": lambda m, s, d: s.index_select(2, m.tensor([1, 1, 0])),
        "cat": lambda m, s, d: (m.cat([s, s]), m.cat([s, s], 2)),
        "mask": lambda m, s, d: (d.unsqueeze(2) * m.ones(2)).sparse_mask(s),
    }
    compare({n: c for n, c in ARITHMETIC.items() if n in names} | calls, hybrid, torch)


WRONG: list[Call] = [
    lambda m, s, d: s + d,
    lambda m, s, d: s + 2,
    lambda m, s, d: s / d,
    lambda m, s, d: s.pow(0),
    lambda m, s, d: s.exp(),
    lambda m, s, d: s.indices(),
    lambda m, s, d: s.values(),
    lambda m, s, d: s.crow_indices(),
    lambda m, s, d: s.to_sparse_csr().indices(),
    lambda m, s, d: s.to_sparse_csr().coalesce(),
    lambda m, s, d: s.to_sparse_csr().sum(0),
    lambda m, s, d: s.numpy(),
    lambda m, s, d: s.tolist(),
    lambda m, s, d: s.reshape(4, 3) if m is not tw else _refused(s.reshape, 4, 3),
    lambda m, s, d: s[s.to_dense() > 0],
    lambda m, s, d: s.to_dense(dtype=m.float64),
    lambda m, s, d: s.clone().add_(d),
    lambda m, s, d: s @ d,
    lambda m, s, d: s.requires_grad_().mul_(2),
    lambda m, s, d: m.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2, 3], (2, 3)),
    lambda m, s, d: m.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2], (2, 3, 4)),
    lambda m, s, d: m.sparse_coo_tensor([[0, -1], [0, 1]], [1.0, 2]),
    lambda m, s, d: m.sparse_coo_tensor([0, 1], [1.0, 2]),
    lambda m, s, d: m.sparse_coo_tensor([[0, 5], [0, 1]], [1.0, 2], (2, 3), check_invariants=True),
    lambda m, s, d: m.sparse_csr_tensor([0, 1, 5], [2, 0], [1.0, 2], (2, 3), check_invariants=True),
    lambda m, s, d: m.sparse_csr_tensor([0, 1, 2], [2, 7], [1.0, 2], (2, 3), check_invariants=True),
    lambda m, s, d: m.sparse_csr_tensor([0, 2, 2], [2, 0], [1.0, 2], (2, 3), check_invariants=True),
    lambda m, s, d: m.sparse_compressed_tensor([0, 1], [0], [1.0]),
    lambda m, s, d: d.values(),
    lambda m, s, d: s.resize_as_(hybrid(m)),
    lambda m, s, d: csr(m).resize_(3, 3),
    lambda m, s, d: csr(m).resize_(12),
    lambda m, s, d: csr(m).requires_grad_().resize_(4, 5),
    lambda m, s, d: csr(m).resize_as_sparse_(s),
    lambda m, s, d: s.resize_as_sparse_(csr(m)),
    lambda m, s, d: d.resize_as_sparse_(csr(m)),
    lambda m, s, d: csr(m).resize_as_sparse_(s.to_sparse_csc()),
    lambda m, s, d: m.nn.functional.embedding(m.tensor([[0, 1]]), s),
    lambda m, s, d: m.nn.functional.embedding(m.tensor([0, 1]), s.to_sparse_csr()),
]


def test_sizes_of_compressed_rows(torch: Any) -> None:
    calls: dict[str, Call] = {
        f"to {size}": lambda m, s, d, size=size: csr(m).resize_(size)
        for size in ((3, 4), (5, 7), (3, 6), (2, 4), (1, 4))
    }
    calls |= {
        "like a dense one": lambda m, s, d: csr(m).resize_as_(m.zeros(5, 6)),
        "like columns": lambda m, s, d: csr(m).resize_as_(m.zeros(5, 6).to_sparse_csc()),
        "places of fewer": lambda m, s, d: csr(m).resize_as_sparse_(m.eye(2).to_sparse_csr()),
        "places of more": lambda m, s, d: csr(m).resize_as_sparse_(m.eye(7).to_sparse_csr()),
    }

    def parts(call: Call) -> Call:
        def of(m: Any, s: Any, d: Any) -> Any:
            t = call(m, s, d)
            values = t.values()[:4]  # what else there is PyTorch doesn't set
            return m.tensor(t.shape), t.crow_indices(), t.col_indices(), values

        return of

    compare({name: parts(call) for name, call in calls.items()}, coo, torch)
    # PyTorch's has the old beginnings of rows beside new columns.
    full = csr(tw).resize_as_sparse_(tw.ones(3, 4).to_sparse_csr())
    assert full.crow_indices().tolist() == [0, 4, 8, 12]
    assert full.values()[:4].tolist() == csr(tw).values().tolist()
    columns = csr(tw).to_sparse_csc().resize_(5, 7)  # PyTorch's has a column too few
    assert columns.ccol_indices().tolist() == [0, 1, 2, 4, 4, 4, 4, 4]
    np.testing.assert_array_equal(columns.to_dense()[:3, :4].numpy(), csr(tw).to_dense().numpy())


def _refused(call: Any, *args: Any) -> None:
    """Raise what PyTorch raises, for calls that have no form for sparse tensors here."""
    with pytest.raises(NotImplementedError, match="not implemented for tensors of layout"):
        call(*args)
    raise RuntimeError


def test_errors(torch: Any) -> None:
    for i, call in enumerate(WRONG):
        with pytest.raises(Exception) as theirs:
            call(torch, coo(torch), dense(torch))
        with pytest.raises(theirs.type):
            call(tw, coo(tw), dense(tw))
            pytest.fail(f"case {i} should raise {theirs.value!r}")


def test_what_is_left_out_says_so() -> None:
    s = coo(tw)
    for call in (
        lambda: tw.stack([dense(tw)] * 2).to_sparse_bsr((3, 2)),
        lambda: s.cos(),
        lambda: tw.where(s > 0, s, s),
        lambda: s.view(4, 3),
    ):
        with pytest.raises(NotImplementedError, match=r"implemented|can.t be"):
            call()
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        tw.sparse_coo_tensor([[0, 5], [0, 1]], [1.0, 2], (2, 3))


def test_printed_text(torch: Any) -> None:
    def shown(m: Any) -> list[str]:
        s = coo(m)
        many = m.sparse_coo_tensor(m.arange(30).reshape(1, 30), m.arange(30) / 7)
        return [
            *map(str, (s, s.coalesce(), csr(m), s.to_sparse_csc(), hybrid(m), many)),
            *map(repr, (s.double(), s.int(), m.sparse_coo_tensor((3, 4)), s.requires_grad_())),
            str(m.zeros(0, 3).to_sparse_csr()),
            str(csr(m).double().requires_grad_()),
        ]

    assert shown(tw) == shown(torch)


def test_assert_close(torch: Any) -> None:
    def messages(m: Any) -> list[str]:
        s, found = coo(m).coalesce(), []
        moved = m.sparse_coo_tensor([[0, 1, 1, 2], [1, 0, 2, 1]], s.values(), (3, 4)).coalesce()
        pairs = [
            (s, s),
            (s, s * 1.5),
            (s, moved),
            (s, dense(m).to_sparse()),
            (s, s.to_dense()),
            (csr(m), csr(m)),
            (csr(m), csr(m) * 2),
            (csr(m), moved.to_sparse_csr()),
        ]
        for a, b in pairs:
            try:
                m.testing.assert_close(a, b)
                found.append("")
            except AssertionError as error:
                found.append(str(error))
        m.testing.assert_close(s, s.to_dense(), check_layout=False)
        return found

    assert messages(tw) == messages(torch)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "complex64", "int32"])
def test_dtypes(torch: Any, dtype: str) -> None:
    calls: dict[str, Call] = {
        "mm": lambda m, s, d: s @ m.ones(4, 2).to(s.dtype),
        "coalesce": lambda m, s, d: s.coalesce().values(),
        "sums": lambda m, s, d: (m.sparse.sum(s, 0), s.sum(), s + s, s * 2.5, s / 2),
        "dense + s": lambda m, s, d: m.ones(3, 4) + s,
    }
    compare(calls, lambda m: coo(m).to(getattr(m, dtype)), torch)


def test_nothing_in_it(torch: Any) -> None:
    calls: dict[str, Call] = {
        "products": lambda m, s, d: (s @ d.t(), s.to_sparse_csr() @ d.t(), d.t() @ s),
        "by sparse": lambda m, s, d: m.sparse.mm(s, s.t()),
        "sums": lambda m, s, d: (m.sparse.sum(s, 0), s.sum(), s.norm(), s + s),
        "parts": lambda m, s, d: (s[0], s.t(), s.index_select(0, m.tensor([1, 0])), m.cat([s, s])),
        "softmax": lambda m, s, d: m.sparse.softmax(s, 1),
        "no rows": lambda m, s, d: (m.zeros(0, 3).to_sparse() @ m.ones(3, 2), s @ m.ones(4, 0)),
    }
    compare(calls, lambda m: m.sparse_coo_tensor((3, 4)), torch)


def test_too_many_positions() -> None:
    s = tw.sparse_coo_tensor([[5, 0], [0, 7], [0, 1]], [1.0, 2], (10**8, 10**8, 10**8))
    assert s._nnz() == 2
    with pytest.raises(RuntimeError, match="more positions than an int64 can number"):
        s.coalesce()


@pytest.mark.slow
def test_against_scipy() -> None:
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    a, b = (sp.random(n, k, 0.1, "coo", rng=rng) for n, k in ((50, 70), (70, 40)))
    ours = [tw.sparse_coo_tensor(np.stack([x.row, x.col]), x.data, x.shape) for x in (a, b)]
    x = rng.standard_normal((70, 9))
    pairs = [
        (ours[0] @ tw.tensor(x), a @ x),
        ((ours[0] @ ours[1]).to_dense(), (a @ b).toarray()),
        ((ours[0].to_sparse_csr() @ ours[1].to_sparse_csr()).to_dense(), (a @ b).toarray()),
        (tw.tensor(x.T) @ ours[1], x.T @ b),
        (tw.sparse.sum(ours[0], 0).to_dense(), np.asarray(a.sum(0)).reshape(-1)),
        (ours[0].to_sparse_csc().t().to_dense(), a.T.toarray()),
        ((ours[0] * ours[0].t().t()).to_dense(), a.multiply(a).toarray()),
    ]
    for i, (got, want) in enumerate(pairs):
        np.testing.assert_allclose(got.numpy(), want, 1e-12, 1e-12, err_msg=str(i))
    want = a.tocsr()
    got = ours[0].to_sparse_csr()
    np.testing.assert_array_equal(got.crow_indices().numpy(), want.indptr)
    np.testing.assert_array_equal(got.col_indices().numpy(), want.indices)


def test_positions_of_rows(torch: Any) -> None:
    """What packages call to convert positions (PyTorch Geometric)."""

    def found(m: Any) -> list[Any]:
        rows, pointers, columns = (
            m.tensor([0, 0, 2, 3]),
            m.tensor([0, 2, 2, 3]),
            m.tensor([1, 2, 0]),
        )
        to_rows, to_pairs = m._convert_indices_from_coo_to_csr, m._convert_indices_from_csr_to_coo
        made = [
            to_rows(rows, 5), to_rows(rows, 5, out_int32=True), to_rows(rows[:0], 2),
            to_pairs(pointers, columns), to_pairs(pointers, columns, transpose=True),
            to_pairs(pointers, columns, out_int32=True),
        ]  # fmt: skip
        return [(str(t.dtype), t.tolist()) for t in made]

    assert found(tw) == found(torch)
