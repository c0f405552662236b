"""Positions of elements, masks, bins and keys of ints and slices beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.computes
SHAPES = [(), (1,), (5,), (0,), (3, 4), (0, 3), (3, 0), (2, 3, 4), (40, 50)]


def pair(array: np.ndarray) -> tuple[Any, Any]:
    return tw.tensor(array), torch.tensor(array)


def same(ours: Any, theirs: Any) -> None:
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def mask_of(shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.random.default_rng(2).random(shape) > 0.5)


@pytest.mark.parametrize("kind", ["bool", "float32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_nonzero(shape: tuple[int, ...], kind: str) -> None:
    x, y = pair(mask_of(shape).astype(kind))
    same(x.nonzero(), y.nonzero())
    ours, theirs = x.nonzero(as_tuple=True), y.nonzero(as_tuple=True)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        same(a, b)


@pytest.mark.parametrize("shape", SHAPES)
def test_masks(shape: tuple[int, ...]) -> None:
    """Of all dimensions, of the first and of the last."""
    (mine, theirs) = pair(mask_of(shape))
    for x, y in [pair(numbers(shape)), pair(numbers((*shape, 3)))]:
        same(x[mine], y[theirs])
    x, y = pair(numbers((2, *shape)))
    same(x[:, mine], y[:, theirs])


def test_masks_of_transposed_tensors() -> None:
    (mine, theirs), (x, y) = pair(mask_of((4, 6))), pair(numbers((6, 4)))
    same(x.t()[mine], y.t()[theirs])
    x[mine.t()] = 1.0
    y[theirs.t()] = 1.0
    same(x, y)


def test_gradient_through_a_mask() -> None:
    (mine, theirs), (x, y) = pair(mask_of((4, 6))), pair(numbers((4, 6)))
    (x.requires_grad_()[mine] ** 2).sum().backward()
    (y.requires_grad_()[theirs] ** 2).sum().backward()
    same(x.grad, y.grad)


def test_a_mask_of_another_shape() -> None:
    with pytest.raises(IndexError, match=r"mask \[4, 5\] at index 1"):
        tw.zeros(4, 6)[tw.ones(4, 5) > 0]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("minlength", [0, 3, 300])
def test_bins(dtype: str, minlength: int) -> None:
    x, y = pair(np.random.default_rng(0).integers(0, 100, 500).astype(dtype))
    same(x.bincount(minlength=minlength), y.bincount(minlength=minlength))
    same(x[:0].bincount(minlength=minlength), y[:0].bincount(minlength=minlength))


KEYS: list[Any] = [
    (slice(None), slice(None, None, 2)), (0, slice(1, 3)), (slice(None), None), (..., -1),
    (None, ..., slice(-3, None)), (slice(5, 2), 0), (-1, -1), (slice(None), slice(None)), (...,),
    (),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("gradient", [False, True])
def test_keys_of_ints_and_slices(key: Any, gradient: bool) -> None:
    """The second time a key is met its view comes from a cache: it shares memory as the first."""
    for _ in range(3):
        x, y = pair(numbers((6, 4)))
        same(x[key], y[key])
        x[key].mul_(2)
        y[key].mul_(2)
        same(x, y)
        if gradient:
            (x.requires_grad_() * 2)[key].sum().backward()
            (y.requires_grad_() * 2)[key].sum().backward()
            same(x.grad, y.grad)


def test_a_bool_is_no_number_in_a_key() -> None:
    x, y = pair(numbers((6, 4)))
    for _ in range(2):
        same(x[1, :], y[1, :])
        same(x[True, :], y[True, :])
        same(x[0, :], y[0, :])
        same(x[False, :], y[False, :])


@pytest.mark.parametrize("given", [((2, 3, 4), (2, 5, 4), 1), ((2, 1, 4), (2, 3, 2), 2),
                                   ((2, 3, 4), (1, 1, 1), -1), ((3, 1), (3, 4), 0),
                                   ((1, 3), (4, 3), -2)])  # fmt: skip
def test_take_along_dim_broadcasts_the_other_dimensions(torch, given):
    shape, at, dim = given

    def run(m):
        x = m.arange(float(np.prod(shape))).reshape(shape).requires_grad_()
        index = m.arange(int(np.prod(at))).reshape(at) % shape[dim]
        found = m.take_along_dim(x, index, dim)
        (found * m.arange(float(found.numel())).reshape(found.shape)).sum().backward()
        return found.tolist(), x.grad.tolist()

    assert run(tw) == run(torch)


@pytest.mark.parametrize("kind", ["float32", "bool", "complex64"])
@pytest.mark.parametrize(
    "read",
    [
        lambda m, x, i: x.take(i),
        lambda m, x, i: x.reshape(-1)[i] + x.reshape(-1)[i],
        lambda m, x, i: x[i],
        lambda m, x, i: x.index_select(0, i),
        lambda m, x, i: m.nn.functional.embedding(i, x),
        lambda m, x, i: x.gather(0, i[:, None].expand(3, 3)),
    ],
    ids="take flat rows index_select embedding gather".split(),
)
def test_reads_of_nothing(read: Any, kind: str) -> None:
    """No memory is read, however the elements that aren't there lie: it may be at no address."""
    for x, y in [
        (m.tensor(np.zeros((3, 0))).to(getattr(m, kind)).T for m in (tw, torch)),
        (m.zeros(0, 3, dtype=getattr(m, kind)) for m in (tw, torch)),
    ]:
        places = [m.tensor([2, 1, 2]) for m in (tw, torch)]
        with pytest.raises((IndexError, RuntimeError)):
            read(torch, y, places[1])
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            read(tw, x, places[0]).tolist()
