"""Optimizers with sparse gradients beside PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.torch, pytest.mark.computes]


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about sparse tensors
        yield


WITH: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda o, p: o.SGD(p, 0.1),
    "SGD maximize": lambda o, p: o.SGD(p, 0.1, maximize=True),
    "SGD momentum": lambda o, p: o.SGD(p, 0.1, momentum=0.9, dampening=0.1),
    "SGD nesterov": lambda o, p: o.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "Adagrad": lambda o, p: o.Adagrad(p, 0.1, lr_decay=0.1),
    "Adagrad maximize": lambda o, p: o.Adagrad(p, 0.1, maximize=True),
    "SparseAdam": lambda o, p: o.SparseAdam(p, 0.1),
    "SparseAdam maximize": lambda o, p: o.SparseAdam(p, 0.1, (0.8, 0.9), maximize=True),
}
REFUSING = (
    "Adam AdamW Adamax NAdam RAdam RMSprop Rprop ASGD Adadelta Adafactor Muon".split()
)  # fmt: skip


def by_rows(m: Any, w: Any, k: int) -> None:
    """A gradient that names a row twice, and fewer rows from step to step."""
    index = m.tensor([1, 3, 1, 0, 0][: 5 - k])
    (m.nn.functional.embedding(index, w, sparse=True) ** 2).sum().backward()


def merged(m: Any, w: Any, k: int) -> None:
    by_rows(m, w, k)
    w.grad = w.grad.coalesce()


def by_elements(m: Any, w: Any, k: int) -> None:
    """A gradient with two sparse dimensions."""
    mask = m.tensor(np.eye(4, 3, k=-(k % 3), dtype=np.float32))
    w.grad = (w.detach() * mask).to_sparse()


def steps(m: Any, made: Callable[[Any, Any], Any], backward: Any) -> Iterator[Any]:
    w = m.nn.Parameter(m.tensor(np.arange(12, dtype=np.float32).reshape(4, 3) / 7))
    optimizer = made(m.optim, [w])
    for k in range(4):
        optimizer.zero_grad()
        backward(m, w, k)
        optimizer.step()
        yield w.detach().numpy().copy()
    saved = optimizer.state_dict()["state"].get(0, {})
    yield [float(v.to_dense().sum()) if hasattr(v, "to_dense") else v for v in saved.values()]


@pytest.mark.parametrize("backward", [by_rows, merged, by_elements])
def test_steps(torch: Any, backward: Any) -> None:
    for name, made in WITH.items():
        pairs = zip(steps(tw, made, backward), steps(torch, made, backward), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6, err_msg=name)


def test_who_takes_none(torch: Any) -> None:
    def message(m: Any, made: Callable[[Any, Any], Any]) -> str:
        with pytest.raises(RuntimeError) as raised:
            list(steps(m, made, by_rows))
        return str(raised.value).split(", at ")[0]

    for name in REFUSING:
        made = lambda o, p, name=name: getattr(o, name)(p, lr=0.1)  # noqa: E731
        assert message(tw, made) == message(torch, made), name
    for made in (
        lambda o, p: o.SGD(p, 0.1, weight_decay=0.1),
        lambda o, p: o.Adagrad(p, 0.1, weight_decay=0.1),
    ):
        assert message(tw, made) == message(torch, made)


def test_sparse_and_dense_parameters_in_one_group(torch: Any) -> None:
    def trained(m: Any) -> list[Any]:
        w, v = (m.nn.Parameter(m.ones(4, 3)) for _ in range(2))
        optimizer = m.optim.SGD([w, v], 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            rows = m.nn.functional.embedding(m.tensor([1, 2]), w, sparse=True)
            (rows * v[:2]).sum().backward()
            optimizer.step()
        return [w.detach().numpy(), v.detach().numpy()]

    for ours, theirs in zip(trained(tw), trained(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6)


def test_scaled_and_searched(torch: Any) -> None:
    """A GradScaler takes its scale out of sparse gradients; L-BFGS makes them dense."""

    def trained(m: Any) -> list[Any]:
        w = m.nn.Parameter(m.ones(4, 3))
        optimizer, scaler = m.optim.SGD([w], 0.1), m.amp.GradScaler("cpu", init_scale=8.0)

        def loss() -> Any:
            rows = m.nn.functional.embedding(m.tensor([1, 1, 2]), w, sparse=True)
            return (rows**2).sum()

        scaler.scale(loss()).backward()
        scaler.unscale_(optimizer)
        found = [w.grad.to_dense().numpy()]
        scaler.step(optimizer)
        scaler.update()

        def closure() -> Any:
            w.grad = None
            made = loss()
            made.backward()
            return made

        m.optim.LBFGS([w], max_iter=2).step(closure)
        return [*found, w.detach().numpy()]

    for ours, theirs in zip(trained(tw), trained(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6)


def test_rows_without_gradient_keep_their_state() -> None:
    w = tw.nn.Parameter(tw.ones(5, 2))
    optimizer = tw.optim.SparseAdam([w], 0.1)
    for index in ([0, 1], [1, 4]):
        optimizer.zero_grad()
        tw.nn.functional.embedding(tw.tensor(index), w, sparse=True).sum().backward()
        optimizer.step()
    mean = optimizer.state[w]["exp_avg"]
    assert (mean[2:4] == 0).all()
    assert tw.allclose(mean[0], tw.tensor(0.1))
    assert (w[2:4] == 1).all()


def test_graphs_and_words_train_as_in_pytorch(torch: Any) -> None:
    """A graph convolution on a sparse adjacency; word2vec with sparse embeddings."""
    for layout in ("sparse_coo", "sparse_csr"):
        np.testing.assert_allclose(graphs(tw, layout), graphs(torch, layout), 1e-5)
    np.testing.assert_allclose(words(tw), words(torch), 1e-5)


def graphs(m: Any, layout: str, n: int = 40, width: int = 8) -> list[float]:
    rng = np.random.default_rng(0)
    a, b = np.repeat(np.arange(n), 3), rng.integers(0, n, 3 * n)
    at = np.stack([np.concatenate([a, b, np.arange(n)]), np.concatenate([b, a, np.arange(n)])])
    links = m.sparse_coo_tensor(m.tensor(at), m.ones(at.shape[1]), (n, n)).coalesce()
    scale = m.sparse.sum(links, 1).to_dense().pow(-0.5)
    i, j = links.indices()
    adjacency = m.sparse_coo_tensor(links.indices(), scale[i] * links.values() * scale[j], (n, n))
    adjacency = adjacency.coalesce().to_sparse(layout=getattr(m, layout))
    x, y = m.tensor(rng.standard_normal((n, width))).float(), m.tensor(rng.integers(0, 3, n))
    layers = m.nn.ModuleList([m.nn.Linear(width, 16), m.nn.Linear(16, 3)])
    fill(m, layers, rng)
    optimizer, losses = m.optim.Adam(layers.parameters(), 0.05), []
    for _ in range(5):
        optimizer.zero_grad()
        hidden = m.relu(layers[0](m.sparse.mm(adjacency, x)))
        loss = m.nn.functional.cross_entropy(layers[1](adjacency @ hidden), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def words(m: Any, count: int = 50, width: int = 8) -> list[float]:
    rng = np.random.default_rng(1)
    tables = m.nn.ModuleList([m.nn.Embedding(count, width, sparse=True) for _ in range(2)])
    fill(m, tables, rng)
    optimizer, losses = m.optim.SparseAdam(tables.parameters(), 0.05), []
    for _ in range(5):
        center, near, far = (m.tensor(rng.integers(0, count, s)) for s in (20, 20, (20, 4)))
        optimizer.zero_grad()
        x = tables[0](center)
        good = (x * tables[1](near)).sum(1)
        bad = m.bmm(tables[1](far), x.unsqueeze(2)).squeeze(2)
        log = m.nn.functional.logsigmoid
        loss = -(log(good).mean() + log(-bad).sum(1).mean())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fill(m: Any, module: Any, rng: np.random.Generator) -> None:
    with m.no_grad():
        for p in module.parameters():
            p.copy_(m.tensor(rng.standard_normal(tuple(p.shape)) * 0.3))
