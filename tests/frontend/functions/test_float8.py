"""float8 by itself: conversions bit for bit as PyTorch's, on every engine, and what tensors of it
can do."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from engines import compute, each_engine

import tilewright as tw
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType

each_float8 = pytest.mark.parametrize("dtype", dtypes.FLOAT8, ids=lambda d: d.name)
ALL_BITS = np.arange(256, dtype=np.uint8)


def numbers(dtype: DType) -> np.ndarray:
    """Float64: every number of a dtype, what lies between two, next to that, and far outside."""
    every = ALL_BITS.view(dtype.np).astype(np.float64)
    every = np.sort(every[np.isfinite(every)])
    between = (every[1:] + every[:-1]) / 2
    near = [between * (1 + d) for d in (2e-16, -2e-16, 3e-8, -3e-8, 1e-7, -1e-7, 1e-3, -1e-3)]
    edges = [463.9, 464, 464.1, 480, 6e4, 61439, 61440, 61441, 65535, 1e9, 1e300, np.inf, np.nan]
    edges += [2**-10, 2**-17, 1e-9, 1e-40, 0.0]
    random = np.random.default_rng(0).integers(0, 2**32, 5000, dtype=np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        random = random.astype(np.float64)
    return np.concatenate([every, between, *near, edges, np.negative(edges), random])


@each_engine
@each_float8
@pytest.mark.parametrize("source", ["float64", "float32", "float16", "bfloat16", "int32", "uint8"])
def test_narrowing_is_bit_for_bit_that_of_pytorch(
    torch: Any, engine: str, dtype: DType, source: str
) -> None:
    given = dtypes.named(source)
    if given.is_floating_point:
        with np.errstate(over="ignore", invalid="ignore"):
            values = numbers(dtype).astype(given.np)
    else:
        info = np.iinfo(given.np)
        values = np.arange(max(info.min, -70000), min(info.max, 70000), dtype=given.np)
    bits = values.view(np.int16) if source == "bfloat16" else values
    theirs = torch.from_numpy(bits)
    theirs = theirs.view(torch.bfloat16) if source == "bfloat16" else theirs
    expected = theirs.to(getattr(torch, dtype.name))
    x = ops.leaf(0, values.shape, given)
    narrow = ops.cast(x, dtype)
    # Stored, and rounded on the way to something else.
    found, doubled = compute(engine, [narrow, ops.cast(narrow, dtypes.float32) * 2], {x: values})
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(torch.uint8).numpy())
    np.testing.assert_array_equal(doubled, (expected.float() * 2).numpy())


@each_engine
@each_float8
@pytest.mark.parametrize(
    "target", ["float64", "float32", "float16", "bfloat16", "int64", "int8", "bool"]
)
def test_widening(torch: Any, engine: str, dtype: DType, target: str) -> None:
    wanted = dtypes.named(target)
    values = ALL_BITS.view(dtype.np)
    if not wanted.is_floating_point and wanted is not dtypes.bool_:
        values = values[np.abs(values.astype(np.float32)) < 128]  # others are undefined
    x = ops.leaf(0, values.shape, dtype)
    with np.errstate(invalid="ignore"):  # of NaN that isn't quiet
        (found,) = compute(engine, [ops.cast(x, wanted)], {x: values}, kernels=1)
        found = found.astype(np.float64)
    theirs = torch.from_numpy(values.copy().view(np.uint8)).view(getattr(torch, dtype.name))
    theirs = theirs.to(getattr(torch, target)).to(torch.float64).numpy()
    np.testing.assert_array_equal(found, theirs)
    is_number = ~np.isnan(theirs)
    np.testing.assert_array_equal(np.signbit(found[is_number]), np.signbit(theirs[is_number]))


@each_engine
@each_float8
def test_bits_are_copied_moved_and_read_as_bytes(engine: str, dtype: DType) -> None:
    """NaN stays NaN with its sign; every other number keeps its bits."""
    values = ALL_BITS.view(dtype.np).reshape(16, 16)
    x, raw = ops.leaf(0, (16, 16), dtype), ops.leaf(1, (256,), dtypes.uint8)
    turned = ops.cat([ops.permute(x, (1, 0)), ops.flip(x, (0,))], 1)
    roots = [turned, ops.bitcast(x, dtypes.uint8), ops.bitcast(raw, dtype)]
    found = compute(engine, roots, {x: values, raw: ALL_BITS})
    expected = np.concatenate([values.T, values[::-1]], 1), values, values.reshape(-1)
    for ours, wanted in zip(found, expected, strict=True):
        ours, bits = ours.view(np.uint8), wanted.view(np.uint8)
        is_nan = np.isnan(wanted.astype(np.float32))
        np.testing.assert_array_equal(ours[~is_nan], bits[~is_nan])
        np.testing.assert_array_equal(ours[is_nan] | 3, bits[is_nan] | 3)


@each_engine
@each_float8
@pytest.mark.parametrize("count", [5, 300])
def test_elements_are_picked_and_written(engine: str, dtype: DType, count: int) -> None:
    """By positions that are data, also by so many that those for one place meet."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(7, 12)).astype(dtype.np)
    rows = rng.normal(size=(count, 12)).astype(dtype.np)
    at = rng.integers(0, 7, count)
    x, new = ops.leaf(0, (7, 12), dtype), ops.leaf(1, (count, 12), dtype)
    place = ops.leaf(2, (count,), dtypes.int64)
    roots = [ops.scatter(x, new, place, 0, "set"), ops.gather(x, place, 0)]
    written, picked = compute(engine, roots, {x: values, new: rows, place: at})
    expected = values.copy()
    expected[at] = rows
    np.testing.assert_array_equal(written.view(np.uint8), expected.view(np.uint8))
    np.testing.assert_array_equal(picked.view(np.uint8), values[at].view(np.uint8))


@each_engine
@pytest.mark.parametrize(
    "dtype", [*dtypes.FLOAT8, dtypes.bfloat16, dtypes.float16], ids=lambda d: d.name
)
def test_bits_of_what_is_widened_are_those_of_float32(engine: str, dtype: DType) -> None:
    values = np.array([1.03, -3.3, 0.1, 5, 2e-3], np.float32)
    x, wide = ops.leaf(0, (5,), dtype), ops.leaf(1, (5,), dtypes.float32)
    roots = [
        ops.bitcast(ops.cast(each, dtypes.float32), dtypes.int32)
        for each in (x, ops.cast(wide, dtype))
    ]
    held = values.astype(dtype.np)
    expected = held.astype(np.float32).view(np.int32)
    for ours in compute(engine, roots, {x: held, wide: values}):
        np.testing.assert_array_equal(ours, expected)


@each_engine
def test_bits_of_what_is_computed_are_rounded_first(engine: str) -> None:
    x = ops.leaf(0, (5,), dtypes.float32)
    values = np.array([1.03, -3.3, 0.1, 500, 2e-3], np.float32)
    roots, expected = [], []
    for dtype, bits in (
        (dtypes.float8_e4m3fn, dtypes.uint8),
        (dtypes.bfloat16, dtypes.int16),
        (dtypes.float16, dtypes.int16),
    ):
        narrow = ops.cast(x * 1.5, dtype)
        roots += [ops.bitcast(narrow, bits), ops.bitcast(ops.bitcast(narrow, bits), dtype)]
        clipped = np.clip(values * np.float32(1.5), -448, 448)
        wide = clipped if dtype in dtypes.FLOAT8 else values * np.float32(1.5)
        expected += [wide.astype(dtype.np)] * 2
    for ours, wanted in zip(compute(engine, roots, {x: values}), expected, strict=True):
        np.testing.assert_array_equal(ours.view(np.uint8), wanted.view(np.uint8))


@each_engine
@each_float8
def test_what_is_computed(engine: str, dtype: DType) -> None:
    """Products saturate or overflow as conversions do; comparisons know NaN."""
    rng = np.random.default_rng(1)
    a, b = (rng.permutation(ALL_BITS).view(dtype.np) for _ in range(2))
    x, y = (ops.leaf(i, (256,), dtype) for i in range(2))
    roots = [x * y, ops.abs(x), ops.eq(x, y), ops.ne(x, x), ops.isinf(x)]
    product, size, same, is_nan, is_inf = compute(engine, roots, {x: a, y: b})
    wa, wb = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = wa * wb
    if dtype is dtypes.float8_e4m3fn:
        exact = np.clip(exact, -448, 448)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            product.astype(np.float32), exact.astype(dtype.np).astype(np.float32)
        )
    np.testing.assert_array_equal(size.astype(np.float32), np.abs(wa))
    np.testing.assert_array_equal(same, wa == wb)
    np.testing.assert_array_equal(is_nan, np.isnan(wa))
    np.testing.assert_array_equal(is_inf, np.isinf(wa))


# ---- tensors ---------------------------------------------------------------------------------


@each_float8
def test_a_tensor_is_made_printed_and_read(torch: Any, dtype: DType) -> None:
    theirs = getattr(torch, dtype.name)
    data = [[0.0, 1.0, 1000.0], [-3.5, 5.2, 0.02]]
    x, expected = tw.tensor(data, dtype=dtype), torch.tensor(data, dtype=theirs)
    assert repr(x) == repr(expected) and x.type() == expected.type()
    assert x.tolist() == expected.tolist() and x[1, 1].item() == expected[1, 1].item()
    assert x.element_size() == 1 and x.dtype.is_floating_point and str(x.dtype) == str(theirs)
    assert x.t().numpy().astype(np.float32).tolist() == expected.t().float().tolist()
    for make in (tw.zeros, tw.ones, tw.empty):
        assert make(3, dtype=dtype).dtype is dtype
    assert tw.full((2,), 400, dtype=dtype).tolist() == torch.full((2,), 400, dtype=theirs).tolist()
    assert tw.tensor(x.numpy()).dtype is dtype
    assert not bool(x[0, 0]) and float(x[0, 1]) == 1.0


@each_float8
def test_a_tensor_is_written_and_rearranged(torch: Any, dtype: DType) -> None:
    data = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    results = []
    for t, d in ((tw, dtype), (torch, getattr(torch, dtype.name))):
        x = t.tensor(data, dtype=d)
        x[0, 1:] = 7.0
        x[1] = t.tensor([9.0, 8.0, 1e6]).to(d)
        x[:, 0].copy_(t.tensor([0.3, 448.0]))
        picked = x[t.tensor([1, 0])].roll(1, 1).repeat(1, 2)
        chosen = t.where(t.tensor([True, False, True]), x, x.clone().fill_(2.0))
        joined = t.cat([picked.view(-1), chosen.contiguous().view(-1), x.t().reshape(-1)])
        assert joined.dtype is d
        results.append([joined.tolist(), (x == x[0]).tolist(), x.view(t.uint8).tolist()])
    assert results[0] == results[1]


@each_float8
def test_a_tensor_is_saved_pickled_and_copied(torch: Any, dtype: DType, tmp_path: Path) -> None:
    x = tw.tensor(ALL_BITS).view(dtype)
    tw.save({"x": x, "part": x[3:7]}, tmp_path / "ours.pt")
    theirs = torch.load(tmp_path / "ours.pt")
    assert theirs["x"].dtype is getattr(torch, dtype.name)
    assert theirs["part"].tolist() == x[3:7].tolist()
    torch.save({"x": theirs["x"].view(16, 16).t()}, tmp_path / "theirs.pt")
    back = tw.load(tmp_path / "theirs.pt")["x"]
    assert back.dtype is dtype and back.shape == (16, 16)
    bits = np.asarray(back.t().reshape(-1).numpy()).view(np.uint8)
    np.testing.assert_array_equal(bits | 3, np.asarray(x.numpy()).view(np.uint8) | 3)
    for copied in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert copied.dtype is dtype and copied[5:9].tolist() == x[5:9].tolist()


@each_float8
def test_other_arithmetic_says_what_to_do(dtype: DType) -> None:
    x = tw.tensor([1.0, 2.0], dtype=dtype)
    calls = [
        lambda: x + x, lambda: x - 1, lambda: x / x, lambda: -x, lambda: x.exp(), lambda: x < x,
        lambda: x.sum(), lambda: x.softmax(0), lambda: x.cumsum(0), lambda: x.relu(),
        lambda: x.sort(), lambda: x.max(), lambda: x.clone().add_(1), lambda: x.argmax(),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(
            NotImplementedError, match=r"not implemented for .*Float8.*x\.float\(\)"
        ):
            call()
    other = dtypes.FLOAT8[1 - dtypes.FLOAT8.index(dtype)]
    for y in (tw.ones(2), tw.ones(2, dtype=tw.int32), x.to(other)):
        with pytest.raises(RuntimeError, match="Promotion for Float8 Types is not supported"):
            x * y
    assert (tw.ones(2) * x[1]).tolist() == [2.0, 2.0]  # a 0-d operand takes the other's dtype
    assert x.sum(dtype=tw.float32).item() == 3.0


@each_float8
def test_gradients_pass_through_conversions(torch: Any, dtype: DType) -> None:
    found = []
    for t, d in ((tw, dtype), (torch, getattr(torch, dtype.name))):
        x = t.tensor([0.3, 1.7, -20.0], requires_grad=True)
        (x.to(d).float() * t.tensor([1.1, 2.0, 0.3])).sum().backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1]


def test_matrix_products_keep_the_dtype(torch: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 40)), rng.normal(size=(40, 7))
    for dtype in dtypes.FLOAT8:
        d = getattr(torch, dtype.name)
        ours = tw.tensor(a).to(dtype) @ tw.tensor(b).to(dtype)
        exact = torch.tensor(a).to(d).double() @ torch.tensor(b).to(d).double()
        assert ours.dtype is dtype
        rounded = exact.float().to(d).double().numpy()
        step = 2.0 ** -float(ml_dtypes.finfo(dtype.np).nmant)
        np.testing.assert_allclose(np.asarray(ours.double().numpy()), rounded, rtol=step)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.is_floating_point], ids=str)
def test_finfo(torch: Any, dtype: DType) -> None:
    ours, theirs = tw.finfo(dtype), torch.finfo(getattr(torch, dtype.name))
    assert repr(ours) == repr(theirs)
    for name in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name), name
    with pytest.raises(TypeError, match="requires an integer"):
        tw.iinfo(dtype)


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_iinfo(torch: Any, name: str) -> None:
    ours, theirs = tw.iinfo(dtypes.named(name)), torch.iinfo(getattr(torch, name))
    assert repr(ours) == repr(theirs)
    assert all(getattr(ours, n) == getattr(theirs, n) for n in ("bits", "max", "min", "dtype"))
    with pytest.raises(TypeError, match="requires a floating point"):
        tw.finfo(dtypes.named(name))


def test_a_view_may_have_larger_elements(torch: Any) -> None:
    ours, theirs = (m.ones(4).to(m.float8_e5m2).view(m.int16) for m in (tw, torch))
    assert ours.tolist() == theirs.tolist() and ours.dtype is tw.int16
    with pytest.raises(RuntimeError, match="divisible"):
        tw.ones(3).to(tw.float8_e5m2).view(tw.int16)
