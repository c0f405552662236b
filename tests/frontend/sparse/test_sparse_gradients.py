"""Gradients of and through sparse tensors beside PyTorch; sparse gradients of dense tensors."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.torch, pytest.mark.computes]
AT = np.array([[0, 1, 1, 2], [2, 0, 2, 1]])


@pytest.fixture(autouse=True)
def silent() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def leaves(m: Any) -> tuple[Any, Any]:
    s = m.sparse_coo_tensor(m.tensor(AT), m.tensor([1.5, -2, 3, 0.5]), (3, 4)).coalesce()
    d = m.tensor(np.arange(12, dtype=np.float32).reshape(3, 4) / 5 - 1)
    return s.requires_grad_(), d.requires_grad_()


def dense(t: Any) -> Any:
    return t if t is None or str(t.layout) == "torch.strided" else t.to_dense()


def result(m: Any, call: Callable[[Any, Any, Any], Any]) -> list[Any]:
    """A loss, the gradient of the sparse tensor at its positions, and that of the dense one.

    PyTorch's gradient has other positions too after some calls: `s @ d`, unlike `sparse.mm(s, d)`,
    takes the positions without an element for zeros. Where it has no derivative of a call, it makes
    that call of dense tensors.
    """
    s, d = leaves(m)
    try:
        loss = call(m, s, d)
        loss.backward()
    except NotImplementedError:
        assert m is not tw
        whole = s.detach().to_dense().requires_grad_()
        d = d.detach().requires_grad_()
        loss = call(m, whole, d)
        loss.backward()
        s.grad = whole.grad.sparse_mask(s.detach())
    grad = s.grad
    if grad is not None and str(grad.layout) == "torch.strided":
        assert m is not tw
        grad = grad.sparse_mask(s.detach())
    return [t if t is None else dense(t).detach().numpy() for t in (loss, grad, d.grad)]


THROUGH: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sparse.mm": lambda m, s, d: (m.sparse.mm(s, d.t()) ** 2).sum(),
    "s @ dense": lambda m, s, d: (s @ d.t()).exp().sum(),
    "sparse.addmm": lambda m, s, d: (m.sparse.addmm(d[:, :3], s, d.t(), alpha=2) ** 2).sum(),
    "to_dense": lambda m, s, d: (s.to_dense() * d).sum(),
    "s * 2": lambda m, s, d: m.sparse.sum((s * 2) * s),
    "s * dense": lambda m, s, d: m.sparse.sum(s * d),
    "sparse.sum": lambda m, s, d: m.sparse.sum(s),
    "sparse.sum 0": lambda m, s, d: (m.sparse.sum(s, 0).to_dense() * d[0]).sum(),
    "softmax": lambda m, s, d: (m.sparse.softmax(s, 1).to_dense() * d).sum(),
    "log_softmax": lambda m, s, d: (m.sparse.log_softmax(s, 0).to_dense() * d).sum(),
    "abs": lambda m, s, d: (s.abs().to_dense() * d).sum(),
    "neg": lambda m, s, d: ((-s * 3).to_dense() * d).sum(),
    "sin": lambda m, s, d: (s.sin().to_dense() * d).sum(),
    "select": lambda m, s, d: (s[1].to_dense() * d[0]).sum() + s[0, 2] ** 2,
    "cat": lambda m, s, d: (m.cat([s, s * 2]).to_dense() * m.cat([d, d])).sum(),
    "dense + s": lambda m, s, d: ((d + s) ** 2).sum(),
    "values": lambda m, s, d: (s.coalesce().values() ** 3).sum(),
    "t": lambda m, s, d: ((s.t() @ d) ** 2).sum(),
    "s @ s": lambda m, s, d: (m.sparse.mm(s, s.t()).to_dense() * d[:, :3]).sum(),
    "index_select": lambda m, s, d: (
        s.index_select(1, m.tensor([2, 2, 0])).to_dense() * d[:, 1:]
    ).sum(),
    "sparse_mask": lambda m, s, d: m.sparse.sum(d.sparse_mask(s.detach()) * 3),
}


def test_through_calls(torch: Any) -> None:
    for name, call in THROUGH.items():
        for ours, theirs in zip(result(tw, call), result(torch, call), strict=True):
            assert (ours is None) == (theirs is None), name
            if ours is not None:
                np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6, err_msg=name)


def test_a_gradient_has_the_positions_of_its_tensor(torch: Any) -> None:
    def text(m: Any) -> list[str]:
        s, d = leaves(m)
        m.sparse.mm(s, d.t()).sum().backward()
        once = str(s.grad)
        m.sparse.mm(s, d.t()).exp().sum().backward()
        seen: list[Any] = []
        s.register_hook(lambda g: seen.append(g))
        m.sparse.sum(s * 2).backward()
        (grad,) = m.autograd.grad((s.to_dense() * d).sum(), d)
        return [once, str(s.grad), str(seen[0]), str(grad)]

    assert text(tw) == text(torch)


def test_to_the_values_it_is_made_of(torch: Any) -> None:
    def grads(m: Any) -> list[Any]:
        values = m.tensor([1.0, -2, 3, 0.5], requires_grad=True)
        s = m.sparse_coo_tensor(m.tensor(AT), values, (3, 4))
        again = m.sparse_csr_tensor([0, 1, 3, 4], [2, 0, 2, 1], values, (3, 4))
        loss = (s.to_dense() ** 2).sum() + (again @ m.ones(4, 2)).exp().sum()
        loss.backward()
        assert not s.is_leaf
        assert values.is_leaf
        return values.grad.tolist()

    assert grads(tw) == pytest.approx(grads(torch), rel=1e-5)


def test_of_higher_order() -> None:
    s, d = leaves(tw)
    d = d.detach().double().requires_grad_()
    s = s.detach().double()
    (g,) = tw.autograd.grad(((s @ d.t()) ** 3).sum(), d, create_graph=True)
    g.pow(2).sum().backward()
    a, x = s.to_dense(), d.detach().clone().requires_grad_()
    (h,) = tw.autograd.grad(((a @ x.t()) ** 3).sum(), x, create_graph=True)
    h.pow(2).sum().backward()
    np.testing.assert_allclose(d.grad.numpy(), x.grad.numpy(), 1e-12)


def test_given_gradients(torch: Any) -> None:
    for m in (tw, torch):
        s, d = leaves(m)
        (s * 2).backward(m.ones(3, 4).to_sparse())
        assert (s.grad.to_dense()[s.detach().to_dense() != 0] == 2).all()
        (d * 1).backward(s.detach())
        assert dense(d.grad).tolist() == s.detach().to_dense().tolist()


def test_products_under_autocast(torch: Any) -> None:
    for m in (tw, torch):
        s, d = leaves(m)
        with m.autocast("cpu", dtype=m.bfloat16):
            assert (s.detach() @ d.detach().t()).dtype is m.bfloat16


# ---- sparse gradients of dense tensors ----------------------------------------------------------


def embedded(m: Any) -> list[Any]:
    w = m.tensor(np.arange(12, dtype=np.float32).reshape(4, 3) / 7, requires_grad=True)
    index, found = m.tensor([[1, 3], [1, 0]]), []

    def rows(i: Any) -> Any:
        return m.nn.functional.embedding(i, w, sparse=True)

    (rows(index) ** 2).sum().backward()
    found += [str(w.grad), w.grad.coalesce()]
    (rows(index[0]) ** 2).sum().backward()  # sparse + sparse
    found += [w.grad.coalesce(), w.grad.is_sparse]
    (w * w).sum().backward()  # sparse + dense
    found += [w.grad]
    rows(index[0]).sum().backward()  # dense + sparse
    found += [w.grad]
    w.grad = None
    (rows(index[0]).sum() + (rows(index[1]) ** 2).sum()).backward()  # in one pass
    found += [w.grad.coalesce()]
    found += [m.autograd.grad((rows(index[0]) ** 2).sum(), [w])[0]]
    w.grad = None
    seen: list[Any] = []
    handle = w.register_hook(lambda g: seen.append(g) or g * 2)
    (rows(index[0]) ** 2).sum().backward()
    handle.remove()
    found += [seen[0], w.grad.coalesce()]
    loss = (rows(index) ** 2).sum()
    loss.item()  # the pass goes through a history
    w.grad = None
    loss.backward()
    found += [w.grad.coalesce()]
    for mode in ("sum", "mean"):
        bag = m.nn.EmbeddingBag.from_pretrained(
            w.detach().clone(), freeze=False, mode=mode, sparse=True
        )
        (bag(m.tensor([1, 2, 2, 0]), m.tensor([0, 3])) ** 2).sum().backward()
        found += [bag.weight.grad.coalesce()]
    layer = m.nn.Embedding.from_pretrained(
        w.detach().clone(), freeze=False, padding_idx=1, sparse=True
    )
    (layer(m.tensor([1, 2, 2, 0])) ** 2).sum().backward()
    return [*map(str, found), layer.weight.grad.to_dense().tolist()]


def test_embeddings(torch: Any) -> None:
    for ours, theirs in zip(embedded(tw), embedded(torch), strict=True):
        assert ours == theirs


def test_what_embeddings_refuse(torch: Any) -> None:
    for m in (tw, torch):
        w = m.ones(3, 2, requires_grad=True)
        with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse"):
            m.nn.functional.embedding(
                m.tensor([0]), w, scale_grad_by_freq=True, sparse=True
            ).sum().backward()
        with pytest.raises(ValueError, match="max mode does not support"):
            m.nn.functional.embedding_bag(m.tensor([[0]]), w, mode="max", sparse=True)


# ---- files and copies ---------------------------------------------------------------------------


def every(m: Any) -> dict[str, Any]:
    s = m.sparse_coo_tensor([[0, 1, 0], [2, 0, 2]], [1.0, 2, 4], (2, 3))
    hybrid = m.sparse_coo_tensor([[0, 1]], [[1.0, 2], [4, 3]], (2, 2))
    return {"coo": s, "coalesced": s.coalesce(), "csr": s.to_sparse_csr(), "csc": s.to_sparse_csc(),
            "hybrid": hybrid, "integers": s.int()}  # fmt: skip


def test_files_go_both_ways(torch: Any) -> None:
    for writer, reader in ((tw, torch), (torch, tw), (tw, tw)):
        file = io.BytesIO()
        writer.save(every(writer), file)
        file.seek(0)
        found, wanted = reader.load(file), every(reader)
        for name, want in wanted.items():
            assert str(found[name]) == str(want), name


def test_copies() -> None:
    for name, t in every(tw).items():
        for made in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t)), t.clone()):
            assert made is not t
            assert str(made) == str(t), name
    t = every(tw)["coo"].requires_grad_()
    tw.sparse.sum(t).backward()
    made = copy.deepcopy(t)
    assert made.is_leaf
    assert str(made.grad) == str(t.grad)
    assert pickle.loads(pickle.dumps(t)).requires_grad


def test_in_modules_and_compiled_calls() -> None:
    class Graph(tw.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", every(tw)["csr"])
            self.layer = tw.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return self.layer(self.a @ x)

    model, x = Graph(), tw.ones(3, 3)
    wanted = model.layer(every(tw)["csr"].to_dense() @ x)
    compiled = tw.compile(model)
    for _ in range(4):
        np.testing.assert_allclose(
            compiled(x).detach().numpy(), wanted.detach().numpy(), 1e-5, 1e-6
        )
    with tw.no_grad():
        model.a.mul_(3)
    wanted = model.layer(every(tw)["csr"].to_dense() * 3 @ x)
    np.testing.assert_allclose(compiled(x).detach().numpy(), wanted.detach().numpy(), 1e-5, 1e-6)
    model.a = every(tw)["csr"]
    other, file = Graph(), io.BytesIO()
    tw.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(tw.load(file))
    np.testing.assert_array_equal(other(x).detach().numpy(), model(x).detach().numpy())
    assert model.double().a.dtype is tw.float64


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_grad_with_respect_to_a_sparse_tensor(torch: Any, layout: str) -> None:
    """As of a dense tensor: unused ones are refused, or None."""
    found = []
    for m in (tw, torch):
        s, d = leaves(m)
        s = s.detach().to_dense().to_sparse(layout=getattr(m, layout)).requires_grad_()
        d = d.t().contiguous().detach().requires_grad_()
        of_sparse, of_dense = m.autograd.grad((s @ d).square().sum(), [s, d])
        assert m.autograd.grad(d.sum(), [s, d], allow_unused=True)[0] is None
        with pytest.raises(RuntimeError, match="not have been used"):
            m.autograd.grad(d.sum(), s)
        # PyTorch's is dense, and has elements elsewhere.
        assert m is torch or of_sparse.layout is getattr(m, layout)
        found.append([dense(of_sparse).numpy()[tuple(AT)], of_dense.numpy()])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6)


@pytest.mark.parametrize("needs", [False, True])
def test_a_function_of_a_sparse_tensor(torch: Any, needs: bool) -> None:
    """Its derivative may give the sparse tensor a sparse or a dense gradient."""

    def found(m: Any, layout: Any) -> list[Any]:
        class Times(m.autograd.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, s: Any, d: Any) -> Any:
                ctx.s, ctx.d = s, d
                return m.sparse.mm(s, d)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                assert ctx.needs_input_grad == (needs, True)
                own = g @ ctx.d.T if needs else None
                if needs and layout is m.sparse_coo:
                    own = own.sparse_mask(ctx.s)
                return own, ctx.s.to_dense().T @ g

        s, d = (t.detach() for t in leaves(m))
        d = d.T.contiguous()
        s.requires_grad_(needs), d.requires_grad_()
        made = Times.apply(s, d)
        (made * m.arange(9.0).reshape(3, 3)).sum().backward()
        own = [dense(s.grad).numpy()[tuple(AT)]] if needs else []
        return [made.detach().numpy(), d.grad.numpy(), *own]

    for name in ("sparse_coo", "strided"):
        for ours, theirs in zip(*(found(m, getattr(m, name)) for m in (tw, torch)), strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-6)
