"""Chains of the baseline tier: the bits of their steps alone, for any ops, dtypes and sizes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import accumulator
from tilewright.ir.node import Node
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import chains, maps
from tilewright.runtime.baseline.program import Program
from tilewright.runtime.native import pack

pytestmark = pytest.mark.skipif(not pack.is_here(), reason="chains are made of the pack's kernels")

FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
UNARY = (ops.neg, ops.abs, ops.sqrt, ops.exp, ops.sign, ops.relu, ops.floor, ops.sigmoid, ops.silu)
BINARY = (ops.add, ops.sub, ops.mul, ops.div, ops.maximum, ops.minimum, ops.fmod, ops.copysign)
_EPS = dict(zip(FLOATS, (2.0**-23, 2.0**-52, 2.0**-10, 2.0**-7)))
COMPARED = (ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge)


@pytest.fixture(autouse=True)
def _of_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "FROM", 1 << 15)


def _alone(monkeypatch: pytest.MonkeyPatch, roots: list[Node], arrays: list[Any]) -> list[Any]:
    with monkeypatch.context() as patch:
        patch.setattr(chains, "joined", lambda steps, nodes, kept, size: (steps, size))
        return Program(roots).run(arrays, ())


def _bits(x: Any) -> Any:
    """The bits of an array, with one NaN for all."""
    with np.errstate(invalid="ignore"):  # float16's NaN with any bits
        is_nan = x != x
    return np.where(is_nan, -1, x.view(f"u{x.itemsize}").astype(np.int64))


def _agree(monkeypatch: pytest.MonkeyPatch, roots: list[Node], arrays: list[Any]) -> Program:
    made = Program(roots)
    for ours, theirs in zip(made.run(arrays, ()), _alone(monkeypatch, roots, arrays), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_array_equal(_bits(ours), _bits(theirs))
    return made


def _values(shape: tuple[int, ...], dtype: dtypes.DType, seed: int) -> Any:
    drawn = np.random.default_rng(seed).normal(size=shape) * 3
    drawn.flat[::7], drawn.flat[3::11], drawn.flat[5::13] = 0.0, -0.0, np.nan
    drawn.flat[2::17], drawn.flat[4::19] = np.inf, -np.inf
    return drawn.astype(dtype.np)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int, dtype: dtypes.DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of floats, bools and whole numbers, with single elements and results in between."""
    rng = random.Random(seed)
    shape = [(301, 239), (7, 32, 333), (1 << 16,)][seed % 3]
    arrays = [_values(shape, dtype, seed + i) for i in range(2)] + [_values((), dtype, seed)]
    arrays[2] = np.array(rng.choice([0.5, -2.0, 0.0])).astype(dtype.np)
    leaves = [ops.leaf(i, Size(a.shape), dtype) for i, a in enumerate(arrays)]
    floats, bools = [*leaves[:2], ops.expand(leaves[2], Size(shape))], []
    for _ in range(rng.randrange(4, 70)):
        kind = rng.randrange(6)
        if kind == 0:
            floats.append(rng.choice(UNARY)(rng.choice(floats)))
        elif kind <= 2:
            floats.append(rng.choice(BINARY)(rng.choice(floats), rng.choice(floats)))
        elif kind == 3 or not bools:
            bools.append(rng.choice(COMPARED)(rng.choice(floats), rng.choice(floats)))
            if rng.random() < 0.3:
                bools.append(ops.bitwise_and(bools[-1], ops.logical_not(rng.choice(bools))))
        elif kind == 4:
            floats.append(ops.where(rng.choice(bools), rng.choice(floats), rng.choice(floats)))
        else:
            floats.append(ops.cast(ops.cast(rng.choice(bools), dtypes.int64), dtypes.float32))
            floats[-1] = ops.cast(floats[-1], dtype)
    whole = ops.argmax(rng.choice(floats), tuple(range(len(shape))))  # no step of a chain
    roots = [*rng.sample(floats, 3), floats[-1], whole, *bools[-1:]]
    _agree(monkeypatch, roots, arrays)


def test_the_steps_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A composite of few primitives is a single step, whose operands are the leaf and numbers."""
    x = ops.leaf(0, Size((500, 300)), dtypes.float32)
    arrays = [_values((500, 300), dtypes.float32, 0)]
    made = _agree(monkeypatch, [ops.where(x > 0, x * 0.25 + 1, ops.neg(x))], arrays)
    assert len(made.steps) == 1


def test_bits_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ops.leaf(0, Size((500, 300)), dtypes.float32)
    words = ops.bitcast(x, dtypes.int32)
    up = ops.bitcast(words + 1, dtypes.float32)
    _agree(monkeypatch, [up * 2, words, up], [_values((500, 300), dtypes.float32, 0)])


def test_a_node_that_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole number to which zero is added, as by `randint`, is computed as the number itself."""
    x = ops.leaf(0, Size((500, 300)), dtypes.int64)
    numbers = np.arange(150_000).reshape(500, 300)
    made = _agree(monkeypatch, [(x + 1) * 3 + 0], [numbers])
    np.testing.assert_array_equal(made.run([numbers], ())[0], (numbers + 1) * 3)


def test_operands_that_are_turned_or_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transposed operand is read in order, and a tensor below the bound is computed as ever."""
    x = ops.leaf(0, Size((256, 512)), dtypes.float32)
    small, column = (ops.leaf(i, Size(s), dtypes.float32) for i, s in ((1, (8,)), (2, (256, 1))))
    turned = ops.permute(ops.permute(x, (1, 0)) * 3 + 1, (1, 0))
    roots = [(turned + x) * 2 - x, small * 2 + 1, (x * column + 1) * x]
    arrays = [_values(tuple(n.shape), dtypes.float32, i) for i, n in enumerate((x, small, column))]
    _agree(monkeypatch, roots, arrays)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "shape",
    [(640,), (1, 640), (96, 1), (7, 1, 1), (7, 96, 1), (7, 1, 640), (96, 640), (1, 1, 1)],
    ids=str,
)
def test_rows_and_columns(
    shape: tuple[int, ...], dtype: dtypes.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands that are spread over a chain's shape, by an op or by an `expand`."""
    arrays = [_values((7, 96, 640), dtype, 0), _values(shape, dtype, 1)]
    arrays.append(np.signbit(arrays[1].astype(np.float32)))
    leaves = [ops.leaf(i, Size(a.shape), dtypes.from_numpy(a.dtype)) for i, a in enumerate(arrays)]
    x, small, mask = leaves
    spread = ops.expand(small, x.shape)
    roots = [x * small + small, ops.where(ops.expand(mask, x.shape), spread - x, x) * 2, spread]
    made = _agree(monkeypatch, roots, arrays)
    assert (len(made.steps) <= 4) == (shape != (7, 1, 640))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(64, 512), (37, 1000), (3, 31, 511), (500, 64), (1 << 17,)])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_sums_of_rows(shape: tuple[int, ...], axes: int, dtype: dtypes.DType) -> None:
    """Sums and products of what a chain computes, in its pass over memory, beside float64."""
    axes = min(axes, len(shape))
    over = tuple(range(len(shape) - axes, len(shape)))
    given = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype.np)
    x = ops.leaf(0, Size(shape), dtype)
    square = x * x
    factor = x * 2**-10 + 1
    over = (0, *over) if len(shape) > axes + 1 else over  # one axis stays between the others
    roots = [ops.sum(x, over), ops.sum(square, over), ops.prod(factor, over), square]
    made = Program(roots)
    assert len(made.steps) <= 10
    wide = made.run([given], ())
    exact, squares = given.astype(np.float64), np.asarray(wide[3]).astype(np.float64)
    factors = Program([factor]).run([given], ())[0].astype(np.float64)
    eps = _EPS[dtype]
    most = 8 + 4 * np.prod([shape[a] for a in over]) ** 0.5  # errors of factors add up
    for ours, theirs, scale in (
        (wide[0], exact.sum(over, keepdims=True), np.abs(exact).sum(over, keepdims=True)),
        (wide[1], squares.sum(over, keepdims=True), squares.sum(over, keepdims=True)),
        (wide[2], factors.prod(over, keepdims=True), factors.prod(over, keepdims=True)),
    ):
        assert ours.dtype == dtype.np and ours.shape == theirs.shape
        bound = np.abs(theirs) * eps + scale * most * _EPS[accumulator(dtype)]
        assert (np.abs(ours.astype(np.float64) - theirs) <= bound).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", [*COMPARED, ops.isnan], ids=lambda op: op.name)
def test_choices_by_comparisons(
    op: Any, dtype: dtypes.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice and what decides it are one kernel, except where the mask is read, too."""
    shape = (301, 239)
    arrays = [_values(shape, dtype, i) for i in range(4)]
    a, b, c, d = (ops.leaf(i, Size(shape), dtype) for i in range(4))
    arrays[1].flat[::3] = arrays[0].flat[::3]
    mask = op(a) if op is ops.isnan else op(a, b)
    once, twice = ops.where(mask, c, d), ops.where(mask, d, c)
    masked = ops.where(mask, ops.cast(c, dtypes.int64), ops.cast(d, dtypes.int64))
    with np.errstate(invalid="ignore"):
        for roots in ([once], [once, mask], [once, twice], [ops.neg(masked)]):
            _agree(monkeypatch, roots, arrays)
    assert maps.choice_by(op, dtypes.float32) is not None
    merged: list[Any] = []
    joint = maps.choice_by
    with monkeypatch.context() as patch:
        patch.setattr(maps, "choice_by", lambda *args: merged.append(args) or joint(*args))
        Program([once])
        Program([once, mask])
    assert merged == [(op, accumulator(dtype))]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(64, 512), (37, 1000), (3, 31, 511), (500, 71), (1 << 17,)])
def test_extrema_of_rows(shape: tuple[int, ...], dtype: dtypes.DType) -> None:
    """Of what a chain computes, exactly; NaN wins over all numbers."""
    over = (len(shape) - 1,)
    given = np.random.default_rng(0).normal(size=shape).astype(dtype.np)
    rows = given.reshape(-1, shape[-1])
    rows[0, -1] = rows[-1, 0] = rows[len(rows) // 2, shape[-1] // 2] = np.nan
    rows[1 % len(rows), 3], rows[2 % len(rows), 5] = np.inf, -np.inf
    rows[3 % len(rows)] = -np.inf
    x = ops.leaf(0, Size(shape), dtype)
    roots = [ops.max(x, over), ops.min(x, over), ops.max(ops.neg(x), over)]
    found = Program(roots).run([given], ())
    exact = given.astype(np.float64)
    expected = [exact.max(-1), exact.min(-1), (-exact).max(-1)]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype.np and ours.shape == (*shape[:-1], 1)
        np.testing.assert_array_equal(ours[..., 0].astype(np.float64), theirs)


@pytest.mark.parametrize("dtype", [dtypes.complex64, dtypes.complex128], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(64, 512), (37, 1000), (3, 31, 511), (500, 71), (1 << 17,)])
def test_sums_of_complex_rows(shape: tuple[int, ...], dtype: dtypes.DType) -> None:
    drawn = np.random.default_rng(0).normal(size=(*shape, 2))
    given = (drawn[..., 0] + 1j * drawn[..., 1]).astype(dtype.np)
    x = ops.leaf(0, Size(shape), dtype)
    whole = tuple(range(len(shape)))
    for over in (whole[-1:], whole):
        (found,) = Program([ops.sum(x, over)]).run([given], ())
        assert found.dtype == dtype.np
        expected = given.astype(np.complex128).sum(over, keepdims=True)
        bound = np.abs(given).sum(over, keepdims=True) * np.finfo(dtype.np).eps
        assert (np.abs(found - expected) <= 4 * bound).all()
    given.flat[5] = complex(np.inf, 1)
    (found,) = Program([ops.sum(x, whole[-1:])]).run([given], ())
    assert found.flat[0].real == np.inf and np.isfinite(found.flat[0].imag)
    assert np.isfinite(found.flat[1:]).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(64, 512), (37, 1000), (500, 71), (1 << 17,)], ids=str)
def test_sums_that_pass_over_nan(shape: tuple[int, ...], dtype: dtypes.DType) -> None:
    given = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype.np)
    given.flat[::7] = np.nan
    given.reshape(-1, shape[-1])[0, :900] = np.nan
    if len(shape) == 1:
        given[5000:] = 0  # the sum stays in the range of float16
    x, over = ops.leaf(0, Size(shape), dtype), (len(shape) - 1,)
    zero, one = (ops.expand(ops.constant(n, dtype), x.shape) for n in (0, 1))
    numbers, ones = (ops.where(ops.isnan(x), each, x) for each in (zero, one))
    other = ops.where(ops.ne(x, x), zero, x)
    for roots in ([ops.sum(numbers, over)], [ops.sum(other, over)], [ops.sum(other, over), other]):
        (found, *_) = Program(roots).run([given], ())
        expected = np.nansum(given.astype(np.float64), over[0], keepdims=True)
        np.testing.assert_array_equal(found, expected.astype(dtype.np))
    (found,) = Program([ops.sum(ones, over)]).run([given], ())
    wide = given.astype(np.float64)
    expected = np.where(np.isnan(wide), 1, wide).sum(over[0], keepdims=True)
    np.testing.assert_array_equal(found, expected.astype(dtype.np))


def test_one_thread_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ops.leaf(0, Size((1 << 18,)), dtypes.float32)
    arrays = [_values((1 << 18,), dtypes.float32, 0)]
    roots = [ops.exp(x * 0.5) - x]
    found = Program(roots).run(arrays, ())[0]
    with monkeypatch.context() as patch:
        patch.setattr(chains, "_PARALLEL_FROM", 1 << 60)
        alone = Program(roots).run(arrays, ())[0]
    np.testing.assert_array_equal(_bits(found), _bits(alone))


def test_a_sum_whose_conversion_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a pack that is older than the code, where a chain without a step was begun."""
    monkeypatch.setattr(chains, "_cast", lambda source, target: None)
    x = ops.leaf(0, Size((64, 1024)), dtypes.bfloat16)
    values = np.ones((64, 1024), dtypes.bfloat16.np)
    (found,) = Program([ops.sum(x, (1,))]).run([values], ())
    assert (found == 1024).all()


def test_an_integer_that_nothing_is_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the slot of its operand, whose step reads something else."""
    shape = Size((1 << 16,))
    x = ops.cast(ops.leaf(0, shape, dtypes.int32), dtypes.int64)
    same = ops.add(ops.constant(0, dtypes.int64), x)
    _agree(monkeypatch, [ops.mul(same, same)], [np.arange(1 << 16, dtype=np.int32)])
