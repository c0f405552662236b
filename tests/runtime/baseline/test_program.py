"""The baseline tier: every op record beside the reference, and the bits of elementwise ops."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from graph_oracle import Case, assert_close, run
from op_cases import CASES, COMPLEX
from probes import probe

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node, reachable
from tilewright.ir.numeric.positions import are_inside
from tilewright.ir.op import REGISTRY, Kind, Op
from tilewright.ir.ops.activation import GRADS
from tilewright.ir.ops.classification import cross_entropy_grad, cross_entropy_op
from tilewright.ir.passes.autodiff import decomposed
from tilewright.ir.recurrence import recurrence
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import composites, maps, program
from tilewright.runtime.baseline.program import CannotRun, Program
from tilewright.runtime.baseline.updates import UPDATES
from tilewright.runtime.plan import Plan

FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-6, 3e4, 88.7, -104.0, 0.5, 2.5]


@pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)
def test_every_record_and_its_derivatives(each: Case) -> None:
    roots, values, _ = probe(each)
    buffers = {
        (n.operands[0] if n.op is ops.variable else n).attrs[0]: v for n, v in values.items()
    }
    found = Program(roots).run(buffers, ())  # type: ignore[arg-type]
    for ours, expected, root in zip(found, run(roots, values), roots, strict=True):
        assert ours.shape == tuple(root.shape) and ours.dtype == root.dtype.np
        assert_close(ours, expected, 1e-9)


def _arrays(op: Op, dtype: dtypes.DType, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    drawn = [rng.uniform(*op.domain, size=(41, 25)) for _ in range(count)]
    for i, each in enumerate(drawn):
        each.flat[: len(SPECIAL) ** 2] = np.roll(np.repeat(SPECIAL, len(SPECIAL)), 17 * i)
    with np.errstate(all="ignore"):
        return [a.astype(dtype.np) for a in drawn]


def _both(roots: list[Node], buffers: list[Any]) -> Any:
    return zip(Program(roots).run(buffers, ()), Plan(roots).run(buffers, ()), strict=True)


ELEMENTWISE = [
    op
    for op in REGISTRY.values()
    if op.kind is Kind.ELEMENTWISE and not op.params and op.vjp and op.name not in COMPLEX
]


def _is_same(ours: Any, theirs: Any) -> bool:
    """Whether all bits are the same. The bits of a NaN don't matter."""
    is_nan = np.isnan(ours.astype(np.float64))
    same = ours.view(f"u{ours.itemsize}") == theirs.view(f"u{ours.itemsize}")
    return bool(np.all(same | (is_nan & np.isnan(theirs.astype(np.float64)))))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_elementwise_bits_are_those_of_kernels(op: Op, dtype: dtypes.DType) -> None:
    count = 3 if "{2}" in str(op.numpy) else 2 if "{1}" in str(op.numpy) else 1
    arrays: list[Any] = _arrays(op, dtype, count)
    if op is ops.where:
        arrays[0] = arrays[0] == 1
    leaves = [ops.leaf(i, Size(a.shape), dtypes.from_numpy(a.dtype)) for i, a in enumerate(arrays)]
    ((ours, theirs),) = _both([op(*leaves)], arrays)
    assert ours.dtype == theirs.dtype and _is_same(ours, theirs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("form", maps._ACTIVATIONS, ids=lambda form: " ".join(map(str, form)))
def test_activations_and_their_gradients_have_the_bits_of_kernels(
    form: tuple[Any, ...], dtype: dtypes.DType
) -> None:
    activation, *attrs = form
    x, g = _arrays(ops.sin, dtype, 2)
    for arrays in ([x, g], [x[7, :5], g[7, :5]], [x[:0], g[:0]]):
        a, b = (ops.leaf(i, Size(v.shape), dtype) for i, v in enumerate(arrays))
        roots = [activation(a, *attrs)]
        if activation in GRADS:
            roots.append(GRADS[activation](b, a, *attrs))
        for ours, theirs in _both(roots, arrays):
            assert ours.dtype == theirs.dtype and _is_same(ours, theirs)


UPDATED = {
    ops.descended: (2, 1, ()),
    ops.running_mean: (2, 0, (0.9,)),
    ops.running_square: (2, 0, (0.999,)),
    ops.adam_update: (3, 2, (1e-8,)),
}
"""Update -> the number of its full operands and of its numbers, and its attrs."""


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", UPDATED, ids=lambda op: op.name)
def test_updates_have_the_bits_of_kernels(op: Op, dtype: dtypes.DType) -> None:
    full, numbers, attrs = UPDATED[op]
    arrays: list[Any] = _arrays(ops.sin, dtype, full)
    arrays += [np.asarray(0.3 + i, dtype.np) for i in range(numbers)]
    kept = [a.copy() for a in arrays]
    leaves = [ops.leaf(i, Size(a.shape), dtype) for i, a in enumerate(arrays)]
    ((ours, theirs),) = _both([op(*leaves, *attrs)], arrays)
    assert ours.dtype == theirs.dtype and _is_same(ours, theirs)
    assert all(_is_same(a, b) for a, b in zip(arrays, kept))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("seed", range(12))
def test_chains_have_the_same_bits(seed: int, dtype: dtypes.DType) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=s).astype(dtype.np) for s in ((5, 300), (300,), (5, 1))]
    nodes = [ops.leaf(i, Size(a.shape), dtype) for i, a in enumerate(arrays)]
    unary = (ops.exp, ops.tanh, ops.sigmoid, ops.sin, ops.neg, ops.relu, ops.erf, ops.abs)
    binary = (ops.add, ops.mul, ops.sub, ops.div, ops.maximum)
    for _ in range(25):
        if rng.random() < 0.5:
            made = unary[rng.integers(len(unary))](nodes[rng.integers(len(nodes))])
        else:
            a, b = (nodes[rng.integers(len(nodes))] for _ in range(2))
            made = binary[rng.integers(len(binary))](a, b)
        nodes.append(made)
    for ours, theirs in _both(nodes[-8:], arrays):
        assert _is_same(ours, theirs)


def _root(each: Case, dtype: dtypes.DType) -> tuple[Node, list[Any]]:
    leaves = each.leaves(dtype.np)
    buffers = [v.astype(dtype.np) if v.dtype.kind == "f" else v for v in leaves.values()]
    return each.f(*leaves), buffers


def _has_form(node: Node) -> bool:
    return bool(composites.form_of(node) or composites.parts_of(node))


WHOLE = [each for each in CASES if _has_form(_root(each, dtypes.float32)[0])]
"""Composites with a form of their own."""


def test_most_forms_of_composites_are_met() -> None:
    """By the cases or their derivatives; cross entropy has a test of its own."""
    met = {
        node.op
        for each in CASES
        for node in reachable(probe(each)[0])
        if node.op.decompose is not None and _has_form(node)
    }
    known = {*composites._FORMS, *composites._PARTS, *UPDATES}
    assert known - met == {cross_entropy_op, cross_entropy_grad}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("ignored", [-7, -100, 3], ids=["some", "none", "a class"])
def test_cross_entropy_and_its_gradient(count: int, reduction: str, ignored: int) -> None:
    rng = np.random.default_rng(count)
    x, target = rng.normal(size=(count, 5)) * 30, rng.integers(0, 5, count)
    if ignored != -100:
        target[1::3] = ignored
    g = np.float64(0.3) if reduction != "none" else rng.normal(size=count)
    arrays = [np.asarray(g), x, target]
    gn, xn, tn = (
        ops.leaf(i, Size(a.shape), dtypes.from_numpy(a.dtype)) for i, a in enumerate(arrays)
    )
    attrs = (ignored, 0.0, reduction)
    roots = [cross_entropy_op(xn, tn, *attrs), cross_entropy_grad(gn, xn, tn, *attrs)]
    assert all(map(_has_form, roots))
    found = Program(roots).run(arrays, ())
    for ours, inner in zip(found, Program([*map(decomposed, roots)]).run(arrays, ()), strict=True):
        assert ours.shape == inner.shape
        assert_close(ours, inner, 1e-12)
    for outside in (5, -1, -101):
        arrays[2] = np.full(count, outside)
        with pytest.raises(IndexError):
            Program(roots).run(arrays, ())


def test_a_loss_and_its_gradient_share_their_logarithms() -> None:
    x, t = ops.leaf(0, Size((7, 5)), dtypes.float32), ops.leaf(1, Size((7,)), dtypes.int64)
    attrs = (-100, 0.0, "mean")
    g = ops.constant(1, dtypes.float32)
    program = Program([cross_entropy_op(x, t, *attrs), cross_entropy_grad(g, x, t, *attrs)])
    assert len(program.steps) == 3


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 5), (0,)])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.int8])
def test_positions_are_inside(dtype: Any, shape: tuple[int, ...]) -> None:
    for low, high in ((0, 9), (0, 10), (0, 11), (-1, 9), (-120, -110), (100, 120)):
        if low < np.iinfo(dtype).min:
            continue
        array = np.random.default_rng(0).integers(low, high, shape).astype(dtype)
        if array.size:
            array.flat[-1], array.flat[0] = high - 1, low
        expected = all(0 <= p < 10 for p in array.ravel().tolist())
        assert are_inside(array, 10) is expected
        assert are_inside(array[..., ::-1] if shape else array, 10) is expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", FLOATS[:2], ids=lambda d: d.name)
@pytest.mark.parametrize("each", WHOLE, ids=lambda c: c.name)
def test_composites_are_near_kernels(each: Case, dtype: dtypes.DType) -> None:
    root, buffers = _root(each, dtype)
    tolerance = 1e-5 if dtype is dtypes.float32 else 1e-12
    ((ours, theirs),) = _both([root], buffers)
    assert_close(ours, theirs, tolerance)
    ((inner, _),) = _both([decomposed(root)], buffers)
    assert_close(ours, inner, tolerance)


@pytest.mark.parametrize("count", [1, 31, 500])
@pytest.mark.parametrize(
    ("wide", "axis"),
    [((), 0), ((5,), 0), ((2, 3), 0), ((300,), 0), ((5,), 1), ((2, 3), 1), ((2, 3), 2)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_added_where_they_belong(
    dtype: Any, count: int, wide: tuple[int, ...], axis: int
) -> None:
    rng = np.random.default_rng(count)
    base = rng.normal(size=(*wide[:axis], 40, *wide[axis:])).astype(dtype)
    values = rng.normal(size=(*wide[:axis], count, 2, *wide[axis:])).astype(dtype)
    index = rng.integers(0, 40, (count, 2))
    nodes = [
        ops.leaf(i, Size(a.shape), dtypes.from_numpy(a.dtype))
        for i, a in enumerate((base, values, index))
    ]
    program = Program([ops.scatter(*nodes, axis, "add")])
    (found,) = program.run([base, values, index], ())
    expected = base.copy()
    np.add.at(expected, (*[slice(None)] * axis, index), values)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    for wrong in (-1, 40):
        index[0, 0] = wrong
        with pytest.raises(IndexError):
            program.run([base, values, index], ())


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_where_chooses_among_arrays_and_numbers(dtype: dtypes.DType) -> None:
    rng = np.random.default_rng(0)
    shape = (3, 5000)
    arrays = [rng.uniform(-1, 1, shape).astype(dtype.np) for _ in range(2)]
    condition = rng.uniform(size=shape) < 0.5
    number = np.array([[-0.5]], dtype.np)
    c, a, b = (
        ops.leaf(i, Size(x.shape), dtypes.from_numpy(x.dtype))
        for i, x in enumerate((condition, *arrays))
    )
    n = ops.expand(ops.leaf(3, Size((1, 1)), dtype), shape)
    choices = [(a, b), (n, b), (a, n), (n, n), (ops.permute(ops.reshape(b, (5000, 3)), (1, 0)), b)]
    given = {a: arrays[0], b: arrays[1], n: np.broadcast_to(number, shape)}
    given[choices[-1][0]] = arrays[1].reshape(5000, 3).T
    found = Program([ops.where(c, *each) for each in choices]).run([condition, *arrays, number], ())
    for ours, each in zip(found, choices, strict=True):
        np.testing.assert_array_equal(ours, np.where(condition, *[given[e] for e in each]))


def test_results_share_no_memory() -> None:
    x = ops.leaf(0, Size((4, 3)), dtypes.float32)
    y = ops.exp(x)
    flat = ops.reshape(y, (12,))
    turned = ops.permute(y, (1, 0))
    roots = [x, ops.detach(x), y, flat, turned, ops.reshape(x, (3, 4)), ops.expand(flat, (2, 12))]
    buffer = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = Program(roots).run([buffer], ())
    memories = [buffer, *found]
    for i, a in enumerate(memories):
        assert a.flags.c_contiguous and a.flags.writeable
        assert not any(np.shares_memory(a, b) for b in memories[:i])
    np.testing.assert_allclose(found[4], np.exp(buffer).T, rtol=1e-6)


def test_constants_are_computed_once() -> None:
    x = ops.leaf(0, Size((5, 5)), dtypes.float32)
    ones = ops.expand(ops.constant(1, dtypes.float32), Size((5, 5)))
    row, column = [ops.expand(ops.reshape(ops.iota(5), s), x.shape) for s in ((5, 1), (1, 5))]
    triangle = ops.where(ops.le(column, row), x, ops.expand(ops.constant(0, x.dtype), x.shape))
    made = Program([triangle, ones, ops.reshape(ones, (25,))])
    values = np.arange(25, dtype=np.float32).reshape(5, 5)
    expected = [np.tril(values), np.ones((5, 5)), np.ones(25)]
    steps = len(made.steps)
    for _ in range(3):
        for ours, each in zip(made.run([values], ()), expected, strict=True):
            np.testing.assert_array_equal(ours, each)
            ours += 1  # nobody else has this memory
        made.settle()
    assert len(made.steps) < steps


def test_the_number_of_steps_of_a_loop_makes_no_new_step() -> None:
    def layer(steps: int) -> Node:
        shapes = ((steps, 2, 20), (2, 5), (2, 5), (5, 20))
        x, h, c, w = [ops.leaf(i, Size(s), dtypes.float16) for i, s in enumerate(shapes)]
        return recurrence("lstm", x, (h, c), w)[0]

    program.clear()
    Program([layer(3)])
    Program([layer(9)])
    assert len(program._steps) == 1


def test_what_only_a_plan_computes_is_refused() -> None:
    long = [ops.leaf(i, Size((2, 4, 2000, 8)), dtypes.float32) for i in range(3)]
    with pytest.raises(CannotRun, match="scores"):
        Program([ops.scaled_dot_product_attention(*long)])


@pytest.mark.parametrize("half", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_halves_are_converted_as_by_numpy(half: dtypes.DType) -> None:
    """All halves, and floats of all sizes. Of NaN only that it is NaN."""
    every = np.arange(1 << 16, dtype=np.uint16).view(half.np)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    floats = np.concatenate([bits.view(np.float32), every.astype(np.float32)])
    for given, source, target in ((every, half, dtypes.float32), (floats, dtypes.float32, half)):
        found = maps.half_cast(source, target)(given)
        with np.errstate(all="ignore"):
            expected = given.astype(target.np)
        word = f"u{target.itemsize}"
        numbers = ~np.isnan(expected)
        assert found.dtype == target.np
        np.testing.assert_array_equal(found[numbers].view(word), expected[numbers].view(word))
        assert np.isnan(found[~numbers]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_in_groups_meet_their_own_matrices_alone(dtype: dtypes.DType) -> None:
    groups, rows, size = 2000, 24, 16
    rng = np.random.default_rng(0)
    x, g = (rng.standard_normal((rows, size)).astype(dtype.np) for _ in range(2))
    w = np.broadcast_to(rng.standard_normal((size, size)).astype(dtype.np), (groups, size, size))
    bounds = np.zeros(groups + 1, np.int64)
    bounds[5:], bounds[1000:] = 10, 20  # rows 0 to 9, 10 to 19, and four of no group
    nodes = [ops.leaf(i, a.shape, dtype) for i, a in enumerate((x, w, g))]
    ends = ops.leaf(3, bounds.shape, dtypes.int64)
    product = Program([ops.grouped_matmul(nodes[0], nodes[1], ends)])
    buffers = {0: x, 1: w, 2: g, 3: bounds}
    tracemalloc.start()
    (y,) = product.run(buffers, ())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < groups * rows * size  # all rows times all matrices have this many elements
    wide = [a.astype(np.float64) for a in (x, w[0], g)]
    bound = 1e-2 if dtype.itemsize == 2 else 1e-5
    expected = np.where(np.arange(rows)[:, None] < 20, wide[0] @ wide[1], 0)
    np.testing.assert_allclose(y.astype(np.float64), expected, bound, bound * 4)
    (dw,) = Program([ops.grouped_weight_grad(nodes[0], nodes[2], ends)]).run(buffers, ())
    assert list(np.flatnonzero(dw.astype(np.float64).any((1, 2)))) == [4, 999]
    for group, begin in ((4, 0), (999, 10)):
        part = wide[0][begin : begin + 10].T @ wide[2][begin : begin + 10]
        np.testing.assert_allclose(dw[group].astype(np.float64), part, bound, bound * 8)


@pytest.mark.parametrize("shape", [(), (0, 3), (4, 6)])
def test_a_line_of_steps_that_runs_again_gives_memory_of_its_own(shape: tuple[int, ...]) -> None:
    """Also where its form is a view of an operand, or where both operands are one."""
    given = np.random.default_rng(0).standard_normal(shape)
    x, y = (ops.leaf(i, Size(shape), dtypes.float64) for i in (0, 1))
    order = tuple(range(len(shape)))[::-1]
    cases = [
        (x + x, given + given),
        (y - x, -given),
        (-x, -given),
        (ops.reshape(x, (1, *shape)), given[None]),
        (ops.permute(x, order), given.T),
        (ops.expand(x, (2, *shape)), np.stack([given, given])),
        (ops.sum(x, tuple(range(len(shape)))), given.sum()),
        (ops.reshape(ops.permute(-x, order), (-1,)), -given.T.ravel()),
        (-ops.reshape(y - x, (-1,)), given.ravel()),
        (x + ops.reshape(ops.reshape(x, (-1,)), shape), given + given),
    ]
    for root, expected in cases:
        program = Program([root])
        buffers = [given.copy(), np.zeros(shape)]
        for turn in range(3):
            (found,) = program.run(buffers, ())
            np.testing.assert_allclose(found, expected, 1e-12)
            assert type(found) is np.ndarray and found.flags.c_contiguous and found.flags.writeable
            assert not any(np.shares_memory(found, b) for b in buffers)
            if not turn:
                program.settle()
        found += 1
        np.testing.assert_array_equal(buffers[0], given)
