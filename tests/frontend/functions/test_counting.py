"""Running folds, and what is found by counting, on the CPU, in the interpreter and on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_cuda import installed

import tilewright as tw
from tilewright.runtime.cuda.device import Cuda

pytestmark = pytest.mark.triton

RNG = np.random.default_rng(0)
SHAPES = [((3, 70), 1), ((70, 3), 0), ((3, 33001), 1)]


# The fake GPU runs the interpreter's kernels as one that is there does.
@pytest.fixture(params=["cpu", pytest.param("interpret", marks=pytest.mark.slow), "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "cuda":
        with installed():
            yield "cuda"
    else:
        yield request.param


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Few different ones, NaN and both infinities among those of floats."""
    array = RNG.integers(-4, 5, shape).astype(dtype)
    if array.dtype.kind == "f" and array.size > 4:
        array.flat[array.size // 2] = np.nan
        array.flat[array.size // 3] = -np.inf
        array.flat[array.size // 4] = np.inf
    return array


def equal(got: Any, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(got.cpu().numpy(), expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape, axis", SHAPES, ids=str)
@pytest.mark.parametrize(
    "dtype, name", [("float32", "cummax"), ("float16", "cummin"), ("int64", "cummin")]
)
def test_running_extrema(device: str, name: str, dtype: str, shape: Any, axis: int) -> None:
    x = values(dtype, shape)
    top = (np.maximum if name == "cummax" else np.minimum).accumulate(x, axis)
    got, index = getattr(tw.from_numpy(x).to(device), name)(axis)
    equal(got, top)
    place = index.cpu().numpy()
    np.testing.assert_array_equal(np.take_along_axis(x, place, axis), top)
    here = np.expand_dims(np.arange(shape[axis]), [a for a in range(x.ndim) if a != axis])
    last = np.where((x == top) | (x != x), here, 0)  # the last of equals
    np.testing.assert_array_equal(place, np.maximum.accumulate(last, axis))


@pytest.mark.parametrize(
    "length, dtype", [(32768, "float32"), (33001, "float64"), (70000, "int32")]
)
def test_long_sums(device: str, dtype: str, length: int) -> None:
    """Of few rows, which are cut in parts."""
    x = RNG.uniform(-1, 1, (2, length)) if dtype != "int32" else RNG.integers(-9, 9, (2, length))
    x = x.astype(dtype)
    expected = np.cumsum(x, 1, dtype=np.float64)
    got = tw.from_numpy(x).to(device).cumsum(1).cpu().numpy()
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("length", [1, 33, 33001])
def test_long_products(device: str, length: int) -> None:
    x = RNG.uniform(0.999, 1.001, length)
    got = tw.from_numpy(x).to(device).cumprod(0)
    np.testing.assert_allclose(got.cpu().numpy(), np.cumprod(x), rtol=1e-10)


def test_log_of_running_sums(device: str) -> None:
    """What a larger term that comes later would swallow is there, and infinities are no NaN."""
    x = np.array([[-800.0, 0, 3, 1000], [-np.inf, -np.inf, 1, 2], [1, np.inf, 2, -3]])
    x = np.concatenate([x, RNG.normal(0, 30, (1, 4))])
    expected = np.logaddexp.accumulate(x, 1)
    got = tw.from_numpy(x.astype(np.float32)).to(device).logcumsumexp(1)
    np.testing.assert_allclose(got.cpu().numpy(), expected, rtol=1e-6)


def test_gradient_of_the_log_of_running_sums() -> None:
    x = RNG.normal(0, 2, 50)
    g = RNG.normal(size=50)
    t = tw.tensor(x, requires_grad=True)
    t.logcumsumexp(0).backward(tw.from_numpy(g))
    out = np.logaddexp.accumulate(x)
    share = np.tril(np.exp(x[None, :] - out[:, None]))  # of each term in each sum
    assert t.grad is not None
    np.testing.assert_allclose(t.grad.numpy(), g @ share, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "size, dtype",
    [(0, "float32"), (1, "int64"), (2, "float32"), (7, "float16"), (64, "uint8"), (999, "float64")],
)
@pytest.mark.parametrize("right", [False, True])
def test_insertion(device: str, size: int, dtype: str, right: bool) -> None:
    lines = np.sort(RNG.integers(0, 50, size).astype(dtype))
    given = RNG.integers(0, 52, (3, 11)).astype(dtype)
    side = "right" if right else "left"
    a, b = tw.from_numpy(lines).to(device), tw.from_numpy(given).to(device)
    equal(tw.searchsorted(a, b, right=right), np.searchsorted(lines, given, side))
    equal(tw.bucketize(b, a, right=right, out_int32=True), np.searchsorted(lines, given, side))


def test_insertion_by_lines(device: str) -> None:
    lines = np.sort(RNG.normal(size=(2, 3, 40)).astype(np.float32), -1)
    given = np.concatenate([lines[..., 5:9], RNG.normal(size=(2, 3, 60))], -1).astype(np.float32)
    got = tw.searchsorted(tw.from_numpy(lines).to(device), tw.from_numpy(given).to(device))
    expected = [[np.searchsorted(*pair) for pair in zip(*pairs)] for pairs in zip(lines, given)]
    equal(got, np.array(expected))
    with pytest.raises(RuntimeError, match="first N-1 dimensions"):
        tw.searchsorted(tw.zeros(2, 3), tw.zeros(3, 3))
    with pytest.raises(RuntimeError, match="opposite"):
        tw.searchsorted(tw.zeros(3), tw.zeros(3), side="left", right=True)


def test_nan_comes_last(device: str) -> None:
    lines = tw.tensor([0.0, 1.0, 2.0], device=device)
    equal(tw.searchsorted(lines, tw.tensor([float("nan"), 5.0], device=device)), np.array([3, 3]))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("shape", [(5,), (2, 5)])
def test_insertion_beside_nan(device: str, shape: tuple[int, ...], right: bool, torch: Any) -> None:
    """A NaN goes behind all NaNs, unlike in NumPy."""
    nan = float("nan")
    lines = np.broadcast_to(np.array([0.0, 1.0, 1.0, nan, nan], np.float32), shape).copy()
    given = np.broadcast_to(np.array([nan, 0.5, -2.0], np.float32), (*shape[:-1], 3)).copy()
    expected = torch.searchsorted(torch.tensor(lines), torch.tensor(given), right=right)
    a, b = (tw.from_numpy(x).to(device) for x in (lines, given))
    equal(tw.searchsorted(a, b, right=right), expected.numpy())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 30])
def test_insertion_among_nan(device: str, size: int, torch: Any) -> None:
    """What is compared with a NaN goes on behind it, wherever PyTorch's bisection meets it."""
    lines = np.sort(RNG.normal(size=(6, size)).astype(np.float32), -1)
    for i, line in enumerate(lines):
        line[max(size - i, 0) :] = np.nan  # as a sort leaves them
    lines[-1, :] = np.where(RNG.random(size) < 0.5, np.nan, lines[0])
    given = np.array([np.nan, np.inf, -np.inf, 0.0, *RNG.normal(size=20)], np.float32)
    for right in (False, True):
        for line in lines:
            expected = torch.searchsorted(torch.tensor(line), torch.tensor(given), right=right)
            a, b = (tw.from_numpy(x).to(device) for x in (line, given))
            equal(tw.searchsorted(a, b, right=right), expected.numpy())
        whole = np.tile(given, (6, 1))
        expected = torch.searchsorted(torch.tensor(lines), torch.tensor(whole), right=right)
        a, b = (tw.from_numpy(x).to(device) for x in (lines, whole))
        equal(tw.searchsorted(a, b, right=right), expected.numpy())


@pytest.mark.parametrize("shape", [(), (0,), (7, 5), (2, 3, 700)], ids=str)
def test_places(device: str, shape: tuple[int, ...]) -> None:
    x = RNG.integers(0, 2, shape)
    t = tw.from_numpy(x).to(device)
    expected = np.nonzero(np.atleast_1d(x))
    for got, at in zip(t.nonzero(as_tuple=True), expected, strict=True):
        equal(got, at)
    equal(t.nonzero(), np.argwhere(x))
    if x.ndim:
        numbers = RNG.normal(size=shape).astype(np.float32)
        there = tw.from_numpy(numbers).to(device)
        equal(there[t > 0], numbers[x > 0])
        equal(there.masked_select(t > 0), numbers[x > 0])
        source = np.arange(x.size, dtype=np.float32)
        numbers[x > 0] = source[: int(x.sum())]
        equal(there.masked_scatter(t > 0, tw.from_numpy(source).to(device)), numbers)


@pytest.mark.parametrize(
    "dtype, shape", [("float32", (40, 60)), ("bool", (50,)), ("int64", (0,)), ("int64", (1,))]
)
def test_different_values(device: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = RNG.integers(-3, 4, shape).astype(dtype)
    t = tw.from_numpy(x).to(device)
    got = t.unique(return_inverse=True, return_counts=True)
    for a, b in zip(got, np.unique(x, return_inverse=True, return_counts=True), strict=True):
        equal(a, b)
    flat = x.reshape(-1)
    begins = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]])[: x.size])
    runs, inverse, counts = t.unique_consecutive(return_inverse=True, return_counts=True)
    equal(runs, flat[begins])
    equal(counts, np.diff(np.append(begins, x.size)))
    np.testing.assert_array_equal(runs.cpu().numpy()[inverse.cpu().numpy()], x)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "shape, dim",
    [((7, 3), 0), ((5, 4), 1), ((4, 3, 2), -2), ((6,), 0), ((9, 1), 0), ((0, 3), 0), ((1, 5), 0)],
    ids=str,
)
def test_different_slices(device: str, shape: tuple[int, ...], dim: int) -> None:
    for dtype in ("int64", "float32", "bool"):
        x = RNG.integers(0, 2, shape).astype(dtype)
        if dtype == "float32" and x.size > 9:
            x.flat[3] = -0.0
        got = tw.from_numpy(x).to(device).unique(True, True, True, dim)
        values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True, axis=dim)
        for a, b in zip(got, (values, inverse.reshape(-1), counts), strict=True):
            equal(a, b)
            assert a.device.type == device and a.shape == b.shape
    with pytest.raises(RuntimeError, match="0 sized dimensions"):
        tw.zeros(3, 0, device=device).unique(dim=0)


def test_repetitions(device: str) -> None:
    counts = np.array([2, 0, 3, 1, 0])
    x = RNG.normal(size=(4, 5)).astype(np.float32)
    there, times = tw.from_numpy(x).to(device), tw.from_numpy(counts).to(device)
    equal(there.repeat_interleave(times, 1), x.repeat(counts, 1))
    equal(there.repeat_interleave(times, 1, output_size=6), x.repeat(counts, 1))
    equal(tw.repeat_interleave(times), np.arange(5).repeat(counts))
    equal(there.repeat_interleave(times[:1], 0), x.repeat(2, 0))
    with pytest.raises(RuntimeError, match="negative"):
        tw.repeat_interleave(times - 1)


def test_bins(device: str) -> None:
    x = RNG.integers(0, 20, 700)
    weights = RNG.normal(size=700)
    t = tw.from_numpy(x).to(device)
    equal(tw.bincount(t), np.bincount(x))
    equal(tw.bincount(t, minlength=30), np.bincount(x, minlength=30))
    equal(tw.bincount(t[:0], minlength=3), np.zeros(3))
    got = tw.bincount(t, tw.from_numpy(weights).to(device))
    np.testing.assert_allclose(got.cpu().numpy(), np.bincount(x, weights), rtol=1e-12)
    with pytest.raises(RuntimeError, match="non-negative"):
        tw.bincount(t - 1)
    numbers = RNG.normal(size=900).astype(np.float32)
    there = tw.from_numpy(numbers).to(device)
    equal(there.histc(7, -2, 2), np.histogram(numbers, 7, (-2, 2))[0])
    assert there.histc(9).sum().item() == 900


@pytest.mark.parametrize("shape, axis", [((9,), 0), ((4, 300), 1), ((30, 5), 0), ((3, 1), 1)])
def test_the_most_frequent(device: str, shape: tuple[int, ...], axis: int) -> None:
    x = RNG.integers(0, 6, shape)
    got, index = tw.from_numpy(x).to(device).mode(axis)
    lines = np.moveaxis(x, axis, -1).reshape(-1, shape[axis])
    best = [np.argmax(np.bincount(line)) for line in lines]
    np.testing.assert_array_equal(got.cpu().numpy().reshape(-1), best)
    last = [np.flatnonzero(line == b)[-1] for line, b in zip(lines, best)]
    np.testing.assert_array_equal(index.cpu().numpy().reshape(-1), last)


def test_of_a_gpu_only_numbers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many elements there are, and of a view what it spans."""
    read: list[int] = []
    to_numpy = Cuda.to_numpy

    def seen(self: Cuda, buffer: Any) -> np.ndarray:
        read.append(buffer.size)
        return to_numpy(self, buffer)

    with installed():
        x = tw.from_numpy(RNG.integers(0, 9, (30, 40))).cuda()
        monkeypatch.setattr(Cuda, "to_numpy", seen)
        for call in (
            lambda: x[x > 3], lambda: x.nonzero(), lambda: x.unique(return_counts=True),
            lambda: x[:5, :4].unique(dim=1, return_inverse=True),
            lambda: x.reshape(-1).bincount(), lambda: x.mode(1), lambda: x.float().histc(5),
            lambda: tw.searchsorted(x[0].sort().values, x), lambda: x[:, 3][2].item(),
        ):  # fmt: skip
            call()
        tw.cuda.synchronize()
        assert max(read) <= 2
        equal(x[3:5, 7:9], x.cpu().numpy()[3:5, 7:9])


def test_bins_of_nothing(device: str) -> None:
    """Also of a matrix without rows, which is flattened on the way."""
    for shape in ((0,), (0, 3), (3, 0)):
        x = tw.zeros(shape, device=device)
        assert tw.histc(x, 4).tolist() == [0] * 4
        assert tw.histc(x, 4, 1, 2).tolist() == [0] * 4
        assert tw.nonzero(x).shape == (0, x.dim())
        assert tw.unique(x).shape == (0,)


def test_errors_of_bins() -> None:
    for x, options in (
        (tw.tensor([1.0, math.inf]), {}),
        (tw.tensor([math.nan, 1.0]), {}),
        (tw.ones(2), {"min": 0.0, "max": math.inf}),
    ):
        with pytest.raises(RuntimeError, match=r"histc: range of .* is not finite"):
            tw.histc(x, 3, **options)
    assert tw.histc(tw.tensor([1.0, math.nan, math.inf]), 2, 0, 2).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="bins must be > 0, but got 0"):
        tw.histc(tw.ones(2), 0)
    with pytest.raises(RuntimeError, match="minlength should be >= 0, got -1"):
        tw.bincount(tw.tensor([1, 2]), minlength=-1)


def test_errors_of_sizes() -> None:
    with pytest.raises(RuntimeError, match=r"the same size, but got boundary tensor \[3\] and"):
        tw.searchsorted(tw.arange(3), tw.tensor([1]), sorter=tw.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="Invalid output_size, expected 6 but got 5"):
        tw.repeat_interleave(tw.ones(3), 2, output_size=5)
    assert tw.repeat_interleave(tw.ones(3), 2, output_size=6).shape == (6,)
