"""Masks as indices, against PyTorch: what is read, what is written, and what doesn't fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.computes, pytest.mark.torch]
RNG = np.random.default_rng(0)
SQUARE, WIDE, DEEP = (RNG.normal(size=s).astype(np.float32) for s in ((3, 3), (3, 4), (2, 2, 2)))
ROWS = [True, False, True]


@pytest.fixture(params=["cpu", pytest.param("interpret", marks=pytest.mark.triton)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


Key = Callable[[Any], Any]
"""A key of this framework's tensors, from its `tensor`."""

KEYS: dict[str, tuple[np.ndarray, Key]] = {
    "rows of a square": (SQUARE, lambda t: t(ROWS)),
    "rows of a cube": (DEEP, lambda t: t(ROWS[:2])),
    "two dimensions of a cube": (DEEP, lambda t: t([[True, False], [False, False]])),
    "rows and a slice": (SQUARE, lambda t: (t(ROWS), slice(0, 2))),
    "a slice and columns": (SQUARE, lambda t: (slice(0, 2), t(ROWS))),
    "a row and columns": (WIDE, lambda t: (1, t([True, False, True, True]))),
    "a new dimension and rows": (WIDE, lambda t: (None, t(ROWS))),
    "rows and a new dimension": (SQUARE, lambda t: (t(ROWS), None)),
    "the last dimension": (DEEP, lambda t: (..., t(ROWS[:2]))),
    "no rows": (SQUARE, lambda t: t([False] * 3)),
    "true": (SQUARE, lambda t: t(True)),
    "false": (SQUARE, lambda t: t(False)),
    "true in the middle": (SQUARE, lambda t: (slice(None), t(True))),
    "true and positions": (SQUARE, lambda t: (t(True), t([0, 2]))),
    "true of python and columns": (SQUARE, lambda t: (True, slice(None), t(ROWS))),
    "rows of numpy": (SQUARE, lambda t: np.array(ROWS)),
}


@pytest.mark.parametrize("name", KEYS)
def test_as_in_pytorch(torch: Any, device: str, name: str) -> None:
    array, key = KEYS[name]
    ours, theirs = tw.tensor(array).to(device), torch.tensor(array)
    mine, yours = key(lambda x: tw.tensor(x).to(device)), key(torch.tensor)
    read = theirs[yours].numpy()
    np.testing.assert_array_equal(ours[mine].cpu().numpy(), read)
    for value in (5.0, np.arange(read.shape[-1], dtype=np.float32)):
        a, b = ours.clone(), theirs.clone()
        a[mine] = value if isinstance(value, float) else tw.tensor(value).to(device)
        b[yours] = value if isinstance(value, float) else torch.tensor(value)
        np.testing.assert_array_equal(a.cpu().numpy(), b.numpy())


def test_of_a_number(torch: Any, device: str) -> None:
    x = tw.tensor(3.0).to(device)
    assert x[x > 1].tolist() == [3.0] and x[x > 5].tolist() == []
    x[x > 1] = 4.0
    assert x.item() == 4.0


@pytest.mark.parametrize("mask", [[True], [True, False, True, True], [[True], [False], [True]]])
def test_masks_that_do_not_fit(device: str, mask: Any) -> None:
    """A mask isn't broadcast: it must have the sizes of what it indexes."""
    x, mask = tw.tensor(WIDE).to(device), tw.tensor(mask).to(device)
    for use in (lambda: x[mask], lambda: x.__setitem__(mask, 5.0)):
        with pytest.raises(IndexError, match=r"mask .* does not match the shape of the indexed"):
            use()


def test_masks_on_the_host(device: str) -> None:
    x = tw.tensor(SQUARE).to(device)
    mask = tw.tensor(ROWS)
    assert x[mask].shape == (2, 3)
    x[mask] = 0.0
    assert x.sum(1).tolist()[0] == 0.0 and x[1].tolist() == SQUARE[1].tolist()


def test_bytes_are_masks(torch: Any, device: str) -> None:
    x = tw.tensor(SQUARE).to(device)
    rows = tw.tensor([1, 0, 2], dtype=tw.uint8).to(device)
    with pytest.warns(UserWarning, match="dtype torch.uint8 is now deprecated"):
        found = x[rows]
    np.testing.assert_array_equal(found.cpu().numpy(), SQUARE[[0, 2]])
    with pytest.warns(UserWarning, match="dtype torch.uint8 is now deprecated"):
        x[rows] = 1.0
    assert x.cpu().numpy()[[0, 2]].tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    ("shape", "mask"),
    [
        ((3, 3), [[True, False, True], [False] * 3, [True] * 3]),
        ((3, 3), ROWS),
        ((3, 3), [[True], [False], [True]]),
        ((3,), [ROWS, [False] * 3]),
        ((), True),
        ((2, 3), False),
    ],
)
def test_masked_scatter(torch: Any, device: str, shape: tuple[int, ...], mask: Any) -> None:
    """The mask, or the input, is broadcast; places are filled in order."""
    x = RNG.normal(size=shape).astype(np.float32)
    source = np.arange(12.0, dtype=np.float32)
    expected = torch.tensor(x).masked_scatter(torch.tensor(mask), torch.tensor(source))
    given = [tw.tensor(each).to(device) for each in (x, mask, source)]
    found = given[0].masked_scatter(*given[1:])
    np.testing.assert_array_equal(found.cpu().numpy(), expected.numpy())
    if expected.shape == x.shape:
        given[0].masked_scatter_(*given[1:])
        np.testing.assert_array_equal(given[0].cpu().numpy(), expected.numpy())


def test_errors() -> None:
    x = tw.tensor(SQUARE)
    with pytest.raises(RuntimeError, match="source has 5 elements, which are fewer than the 9"):
        x.masked_scatter(tw.tensor(True), tw.arange(5.0))
    with pytest.raises(RuntimeError, match="same dtypes but got"):
        x.masked_scatter(tw.tensor(ROWS), tw.arange(9))
    with pytest.raises(TypeError, match="expected Tensors as indices, got NoneType as number 0"):
        x.index_put((None, tw.tensor([0, 2])), tw.tensor(1.0))
    with pytest.raises(RuntimeError, match="masked_fill_ only supports boolean masks"):
        x.masked_fill(tw.tensor([1, 0, 1]), 1.0)
    with pytest.raises((RuntimeError, ValueError), match="4"):
        tw.tensor(WIDE).masked_fill(tw.tensor(ROWS), 1.0)


def test_truths_that_meet(torch: Any, device: str) -> None:
    """Sums of truths are "or", where several updates meet too."""
    at = [[0, 0, 1, 1, 2]]
    for truths in ([[True, True, False, True, False]], [[False, False, True, True, True]]):

        def added(m: Any, where: str) -> Any:
            x = m.zeros(1, 4, dtype=m.bool).to(where)
            return x.scatter_add(1, m.tensor(at).to(where), m.tensor(truths).to(where))  # noqa: B023

        assert added(tw, device).tolist() == added(torch, "cpu").tolist()
