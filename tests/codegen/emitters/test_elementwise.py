"""Kernels made by hand on each engine: elementwise values, stores, bundles."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernels import apply, at, buffer, compiled, const, load, run, sample
from op_cases import NEAR

from tilewright.codegen.kernel import (
    Apply,
    Bundle,
    Dot,
    Kernel,
    Position,
    RandomBits,
    Reduce,
    Scalar,
    Store,
)
from tilewright.codegen.kernel.index import Axis, constant, floordiv, of
from tilewright.codegen.ops import DIGITS, of_digits
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.ir.op import REGISTRY, Fold, Op
from tilewright.ir.ops import ternary, unary
from tilewright.ir.ops.generate import DRAWS

in_blocks = pytest.mark.parametrize("engine", ["numpy", "numpy in blocks", "llvm"], indirect=True)


def unary_kernel(value_of: Any, shape: Sequence[int], source: DType, target: DType) -> Kernel:
    axes = tuple(Axis(f"p{i}", n) for i, n in enumerate(shape))
    x, y = buffer("x", shape, source), buffer("y", shape, target)
    where = at(axes, shape)
    return Kernel("unary", axes, (), (Store(y, where, value_of(load(x, where))),))


ELEMENTWISE = [op for op in REGISTRY.values() if isinstance(op.numpy, str)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int32, dt.uint8, dt.bool_], ids=str)
def test_elementwise(op: Any, dtype: DType) -> None:
    if op in (unary.cast, unary.bitcast, unary.widened, *DIGITS, of_digits):
        pytest.skip("tested by themselves")
    from tilewright.ir.numeric import special
    from tilewright.ir.ops.generate import leaf
    from tilewright.ir.shape import Size

    if "special." in op.numpy and not hasattr(special, op.numpy.split("special.")[1].split("(")[0]):
        pytest.skip("not written yet")
    arity = 3 if op is ternary.where else 1 + ("{1}" in op.numpy)
    kinds = [dt.bool_, dtype, dtype] if op is ternary.where else [dtype] * arity
    try:
        leaves = [leaf(i, Size((3, 5)), k) for i, k in enumerate(kinds)]
        result = op(*leaves).dtype
    except (TypeError, RuntimeError):
        pytest.skip("not for this dtype")
    p, q = Axis("p", 3), Axis("q", 5)
    where = at((p, q), (3, 5))
    inputs = [buffer(f"x{i}", (3, 5), k) for i, k in enumerate(kinds)]
    value = Apply(op, tuple(load(b, where) for b in inputs), result)
    kernel = Kernel(op.name, (p, q), (), (Store(buffer("y", (3, 5), result), where, value),))
    rng = np.random.default_rng(1)
    given = {}
    for b in inputs:
        if b.dtype.category == dt.FLOAT:
            given[b.name] = rng.uniform(*op.domain, 15)
        elif b.dtype.category != dt.BOOL:
            given[b.name] = rng.integers(1, 7, 15)  # no shift by less than 0, no division by 0
    run(kernel, bound=NEAR.get(op.name, 0), **given)


def test_scalars_keep_their_type() -> None:
    """float32 arithmetic with constants and scalars stays float32, also where all is scalar."""
    p = Axis("p", 7)
    x, y = buffer("x", (7,)), buffer("y", (7,))
    rate = Scalar(3, dt.float32)
    step = apply("mul", apply("add", rate, const(0.1)), const(3.0))
    value = apply("mul", load(x, of(p)), step)
    kernel = Kernel("scaled", (p,), (), (Store(y, of(p), value),))
    out = run(kernel, [0.3])
    expected = (np.float32(0.3) + np.float32(0.1)) * np.float32(3.0)
    np.testing.assert_array_equal(out["y"], out["x"] * expected)


def test_scalar_wraps() -> None:
    y = buffer("y", (), dt.int64)
    kernel = Kernel("s", (), (), (Store(y, constant(0), Scalar(0, dt.int64)),))
    out = np.zeros((), np.int64)
    compiled(kernel)([out], [2**64 - 5])
    assert out == -5


@pytest.mark.parametrize("half", [dt.float16, dt.bfloat16], ids=str)
def test_halves(half: DType) -> None:
    kernel = unary_kernel(lambda x: apply("exp", apply("mul", x, x)), (4, 3), half, half)
    run(kernel)
    p = Axis("p", 8)
    x, y = buffer("x", (8,)), buffer("y", (8,))
    rounded = Apply(unary.cast, (load(x, of(p)),), dt.float32, half)
    out = run(Kernel("round", (p,), (), (Store(y, of(p), rounded),)))
    np.testing.assert_array_equal(out["y"], out["x"].astype(half.np).astype(np.float32))
    # Overflow gives infinity, silently.
    y, x = np.empty(3, half.np), np.array([3.4e38, -3.4e38, 1], np.float32)
    with np.errstate(all="raise"):
        compiled(unary_kernel(lambda x: x, (3,), dt.float32, half))([y, x], [])
    np.testing.assert_array_equal(y.astype(np.float32), [np.inf, -np.inf, 1])


CASTS = [dt.bool_, dt.uint8, dt.int8, dt.int32, dt.int64, dt.float32, dt.float64]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pair", list(itertools.permutations(CASTS, 2)), ids=str)
def test_cast(pair: tuple[DType, DType]) -> None:
    source, target = pair
    if source.category == dt.FLOAT and target.category == dt.UNSIGNED:
        pytest.skip("negative floats to unsigned are undefined")
    kernel = unary_kernel(lambda x: Apply(unary.cast, (x,), target), (4, 3), source, target)
    run(kernel)


def test_bitcast() -> None:
    kernel = unary_kernel(
        lambda x: Apply(unary.bitcast, (x,), dt.int32), (5,), dt.float32, dt.int32
    )
    x, y = np.array([1, -2, 0.5, np.inf, -0.0], np.float32), np.empty(5, np.int32)
    compiled(kernel)([y, x], [])
    np.testing.assert_array_equal(y, x.view(np.int32))
    for half in (dt.float16, dt.bfloat16):
        there = lambda v: Apply(unary.bitcast, (v,), dt.int16)  # noqa: E731
        h = np.array([1, -2, 0.5], half.np)
        i = np.empty(3, np.int16)
        compiled(unary_kernel(there, (3,), half, dt.int16))([i, h], [])
        np.testing.assert_array_equal(i, h.view(np.int16))
        back = lambda v, half=half: Apply(unary.bitcast, (v,), dt.float32, half)  # noqa: E731
        h2 = np.empty(3, half.np)
        compiled(unary_kernel(back, (3,), dt.int16, half))([h2, i], [])
        np.testing.assert_array_equal(h2, h)


def test_integers_wrap_silently() -> None:
    kernel = unary_kernel(lambda x: apply("mul", x, x), (2,), dt.uint8, dt.uint8)
    out = run(kernel, x=np.array([200, 255]))
    assert out["y"].tolist() == [200 * 200 % 256, 1]
    p = Axis("p", 1)
    x, y = buffer("x", (1,), dt.int32), buffer("y", (1,), dt.int32)
    square = apply("mul", Scalar(0, dt.int32), const(2**31 - 1, dt.int32))
    value = apply("add", load(x, of(p)), square)
    run(Kernel("wrap", (p,), (), (Store(y, of(p), value),)), [2**31 - 1])


# Random bits


@in_blocks
@pytest.mark.parametrize("op", DRAWS, ids=lambda op: op.name)
def test_random_bits(op: Op) -> None:
    p, q = Axis("p", 5), Axis("q", 7)
    seed, offset = Scalar(0, dt.int64), Scalar(1, dt.int64)
    kind = dt.uint64 if op is DRAWS[1] else dt.uint32
    y = buffer("y", (5, 7), kind)
    bits = RandomBits(seed, offset, at((p, q), (5, 7)), kind)
    kernel = Kernel("bits", (p, q), (), (Store(y, at((p, q), (5, 7)), bits),))
    for numbers in ((0, 0), (2**63 + 12345678901, 7), (-1, 2**40 + 3)):
        out = run(kernel, [numbers[v.slot] for v in kernel.scalars])
        assert callable(op.numpy)
        expected = op.numpy(*numbers, (5, 7))
        np.testing.assert_array_equal(out["y"].reshape(5, 7), expected)
    far = RandomBits(seed, offset, of(p) * 2**31 + 5, kind)
    y = buffer("y", (5,), kind)
    run(Kernel("bits", (p,), (), (Store(y, of(p), far),)), (3, 4))
    state = buffer("state", (2,), dt.int64)
    held = RandomBits(load(state, constant(0)), load(state, constant(1)), of(p), kind)
    run(Kernel("bits", (p,), (), (Store(y, of(p), held),)))


@in_blocks
def test_position() -> None:
    p, q = Axis("p", 5), Axis("q", 6)
    y = buffer("y", (5, 6), dt.int64)
    for index in (of(p), of(p) * 3 - of(q) + 1, floordiv(of(p) * 6 + of(q), 4), constant(3)):
        value = Position(index, dt.int64)
        run(Kernel("position", (p, q), (), (Store(y, at((p, q), (5, 6)), value),)))


# Stores


def test_empty_and_zero_dimensional() -> None:
    x, y = buffer("x", ()), buffer("y", ())
    run(Kernel("scalar", (), (), (Store(y, constant(0), apply("exp", load(x, constant(0)))),)))
    p, r = Axis("p", 0), Axis("r", 3)
    x, y = buffer("x", (0, 3)), buffer("y", (0, 3))
    where = at((p, r), (0, 3))
    run(Kernel("empty", (p, r), (), (Store(y, where, apply("exp", load(x, where))),)))
    p, r = Axis("p", 4), Axis("r", 0)
    x = buffer("x", (4, 0))
    for op in ("sum", "prod", "max", "min", "argmax"):
        for dtype in (dt.float32, dt.int32):
            result = dt.int64 if op == "argmax" else dtype
            y = buffer("y", (4,), result)
            arg = load(buffer("x", (4, 0), dtype), of(p) * 1 + of(r))
            kernel = Kernel(
                "none", (p,), (r,), (Store(y, of(p), Reduce(Fold(op), arg, (r,), result)),)
            )
            if op == "argmax":
                compiled(kernel)([np.zeros(4, np.int64), np.zeros(0, dtype.np)], [])
            else:
                run(kernel)
    b = buffer("b", (4, 0), dt.bool_)
    y = buffer("y", (4,), dt.bool_)
    for op in ("any", "all"):
        run(
            Kernel(
                "none",
                (p,),
                (r,),
                (Store(y, of(p), Reduce(Fold(op), load(b, of(r)), (r,), dt.bool_)),),
            )
        )
    y = buffer("y", (4, 5))
    n = Axis("n", 5)
    product = Dot(
        load(x, of(p) + of(r)),
        load(buffer("w", (0, 5)), of(r) * 5 + of(n)),
        (r,),
        dt.float32,
        dt.float32,
    )
    run(Kernel("dot", (p, n), (r,), (Store(y, at((p, n), (4, 5)), product),)))


@in_blocks
def test_in_place_and_donated() -> None:
    """An input may be the memory of an output; every element is read before it is written."""
    p = Axis("p", 64)
    names = ("x", "m", "v")
    ins = {n: buffer(n, (64,)) for n in names}
    outs = {n: buffer(f"{n}_new", (64,)) for n in names}
    x, m, v = (load(ins[n], of(p)) for n in names)
    m_new = apply("add", apply("mul", m, const(0.9)), x)
    v_new = apply("add", apply("mul", v, const(0.5)), apply("mul", m, m))
    x_new = apply("sub", x, apply("mul", m_new, v_new))
    for order in itertools.permutations(zip(names, (x_new, m_new, v_new))):
        stores = tuple(Store(outs[n], of(p), value) for n, value in order)
        kernel = Kernel("step", (p,), (), stores)
        held = {n: sample(ins[n], i) for i, n in enumerate(names)}
        apart = {n: np.empty(64, np.float32) for n in names}
        launch = compiled(kernel)
        inputs = [held[b.name] for b in kernel.inputs]
        launch([*(apart[n] for n, _ in order), *inputs], [])
        launch([*(held[n] for n, _ in order), *inputs], [])
        for n in names:
            np.testing.assert_array_equal(held[n], apart[n])
    swap = Kernel(
        "swap", (p,), (), (Store(ins["x"], of(p), load(ins["m"], of(p))), Store(ins["m"], of(p), x))
    )
    run(swap)


def test_bundle() -> None:
    members = []
    for n, size in enumerate((3, 5, 3)):
        p = Axis("p", size)
        x, y = buffer(f"x{n}", (size,)), buffer(f"y{n}", (size,))
        value = apply(
            "mul", load(x, of(p)), apply("add", Scalar(n % 2, dt.float32), Scalar(2, dt.float32))
        )
        members.append(Kernel("step", (p,), (), (Store(y, of(p), value),)))
    bundle = Bundle(tuple(members))
    arrays = [sample(b, i) for i, b in enumerate((*bundle.outputs, *bundle.inputs))]
    numbers = {0: 2.0, 1: 3.0, 2: 10.0}
    compiled(bundle)(arrays, [numbers[s.slot] for s in bundle.scalars])
    for n in range(3):
        np.testing.assert_allclose(arrays[n], arrays[3 + n] * (numbers[n % 2] + 10.0), rtol=1e-6)
