"""Sorting and statistics of order beside PyTorch: NaN, zeros, ties, dims, empty and 0-d tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import tiers

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.computes
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8"]


@pytest.fixture(autouse=True, params=["fused", "baseline"])
def tier(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "mode", request.param)


def pair(shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """The same tensor of both, with many elements alike."""
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape).round(1) * 10
    if dtype.startswith(("float", "bfloat")):
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0]
        places = rng.integers(0, 40, shape)
        for number, value in enumerate(special):
            x = np.where(places == number, value, x)
    elif dtype == "uint8":
        x = np.abs(x)
    theirs = torch.tensor(x).to(getattr(torch, dtype))
    return tw.tensor(x).to(getattr(tw, dtype)), theirs


def array(t: Any) -> np.ndarray:
    return np.asarray(t.double().numpy())


def same(ours: Any, theirs: Any) -> None:
    np.testing.assert_array_equal(array(ours), array(theirs))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape, dim", [((3, 300), 1), ((90, 4), 0), ((2, 70, 3), -2), ((5,), 0)])
def test_sort(shape: tuple[int, ...], dim: int, descending: bool, dtype: str) -> None:
    x, y = pair(shape, dtype)
    ours = x.sort(dim, descending)
    theirs = y.sort(dim=dim, descending=descending, stable=True)
    same(ours.values, theirs.values)
    same(ours.indices, theirs.indices)
    assert ours.values.dtype.name == dtype and ours.indices.dtype is tw.int64
    same(x.argsort(dim, descending), theirs.indices)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 4, 60])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("shape, dim", [((3, 300), 1), ((90, 4), 0)])
def test_topk(shape: tuple[int, ...], dim: int, largest: bool, k: int, dtype: str) -> None:
    """Values are PyTorch's; among equals the first positions count, as in a stable sort."""
    x, y = pair(shape, dtype)
    ours = x.topk(k, dim, largest)
    same(ours.values, y.topk(k, dim, largest).values)
    same(ours.indices, y.sort(dim=dim, descending=largest, stable=True)[1].narrow(dim, 0, k))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("k", [1, 7, 90])
@pytest.mark.parametrize("keepdim", [False, True])
def test_kthvalue(k: int, keepdim: bool, dtype: str) -> None:
    x, y = pair((90, 4), dtype)
    ours, theirs = x.kthvalue(k, 0, keepdim), y.kthvalue(k, 0, keepdim)
    same(ours.values, theirs.values)
    same(x.gather(0, ours.indices.reshape(1, 4)).reshape(ours.values.shape), theirs.values)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape, dim", [((3, 300), 1), ((91, 4), 0), ((4, 5), None)])
def test_medians(shape: tuple[int, ...], dim: int | None, dtype: str, name: str) -> None:
    x, y = pair(shape, dtype)
    if dim is None:
        same(getattr(x, name)(), getattr(y, name)())
    else:
        same(getattr(x, name)(dim).values, getattr(y, name)(dim).values)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (400,), (20, 30)])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_unique(shape: tuple[int, ...], dtype: str, inverse: bool, counts: bool) -> None:
    """Each NaN is kept. Which of them an element belongs to isn't said."""
    x, y = pair(shape, dtype)
    ours = x.unique(return_inverse=inverse, return_counts=counts)
    theirs = y.unique(return_inverse=inverse, return_counts=counts)
    if not (inverse or counts):
        same(ours, theirs)
        return
    same(ours[0], theirs[0])
    if inverse:
        assert ours[1].shape == x.shape
        same(ours[0][ours[1]], x)
    if counts:
        same(ours[-1], theirs[-1])


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize(
    "ends", [(0, 100), (-128, 128), (-(2**15), 2**15), (-(2**62), 2**62), (3, 4)]
)
def test_unique_of_whole_numbers(dtype: str, ends: tuple[int, int]) -> None:
    """Those close together are counted; the ends of the dtype's range are among them."""
    info = np.iinfo(dtype)
    drawn = np.random.default_rng(0).integers(*ends, 600)
    array = np.clip(drawn, info.min, info.max).astype(dtype).reshape(-1, 3)
    found = tw.tensor(array).unique(return_inverse=True, return_counts=True)
    expected = np.unique(array, return_inverse=True, return_counts=True)
    assert found[0].numpy().dtype == array.dtype
    assert found[1].dtype is found[2].dtype is tw.int64
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a.numpy().reshape(-1), b.reshape(-1))
    assert found[1].shape == array.shape


@pytest.mark.parametrize("shape, dim", [((), 0), ((0,), 0), ((0, 3), 1), ((3, 0), 1), ((4, 1), 1)])
def test_few_elements(shape: tuple[int, ...], dim: int) -> None:
    x, y = pair(shape, "float32")
    for ours, theirs in (
        (x.sort(dim), y.sort(dim=dim, stable=True)),
        (x.topk(min(1, *shape, 1), dim), y.topk(min(1, *shape, 1), dim)),
    ):
        same(ours.values, theirs.values)
        same(ours.indices, theirs.indices)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("shape", [(3, 200), (4, 5, 16), (2, 0), ()], ids=str)
def test_running_extrema(shape: tuple[int, ...], name: str, dtype: str) -> None:
    """Values alone, and with their places, along rows and along columns."""
    ours, theirs = pair(shape, dtype)
    for dim in range(-1, max(len(shape) - 1, 0)):
        wanted = getattr(theirs, name)(dim)
        same(getattr(ours, name)(dim).values, wanted.values)
        for a, b in zip(getattr(ours, name)(dim), wanted, strict=True):
            same(a, b)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_gradients_of_running_extrema(name: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (3, 40)) / 4
    found = []
    for m in (tw, torch):
        leaf = m.tensor(x, requires_grad=True)
        (g,) = m.autograd.grad(
            (getattr(leaf, name)(1)[0] * leaf).sin().sum(), leaf, create_graph=True
        )
        found.append([g, *m.autograd.grad(g.square().sum(), leaf)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(array(ours.detach()), array(theirs.detach()), 1e-12)


def test_gradients() -> None:
    x, y = pair((5, 200), "int32")
    x, y = x.float().requires_grad_(), y.float().requires_grad_()
    (x.sort(1).values * tw.arange(200.0)).sum().backward()
    (y.sort(dim=1, stable=True).values * torch.arange(200.0)).sum().backward()
    same(x.grad, y.grad)
    a = tw.randn(5, 300)
    b = torch.tensor(a.numpy(), requires_grad=True)
    a.requires_grad_()
    (a.topk(6, 1).values ** 2).sum().backward()
    (b.topk(6, 1).values ** 2).sum().backward()
    same(a.grad, b.grad)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize(
    "values", [[1, 1], [3, 1, 2, 2, 2], [[1, 2], [3, 0]], 5, [np.inf, np.inf, 0], [np.nan, 1, 1]]
)
def test_ties_share_the_gradient_of_a_median(values: Any, name: str) -> None:
    found = []
    for m in (tw, torch):
        x = m.tensor(values, dtype=m.float64, requires_grad=True)
        y = getattr(m, name)(x)
        (g,) = m.autograd.grad(3 * y, x)
        along = m.autograd.grad(getattr(m, name)(x, -1)[0].sum(), x)
        found.append([y.detach(), g, *along])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(array(ours), array(theirs))
