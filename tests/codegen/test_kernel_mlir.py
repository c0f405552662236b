"""Kernels as MLIR text and back: by our own parser, and through xDSL."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, get_args

import numpy as np
import paths
import pytest
from drawn import QUIET
from hypothesis import given, settings
from kernel_forms import gather_kernel, pad_kernel, softmax_kernel
from kernels import WHERE, apply, at, buffer, const, load, sample
from random_graphs import graphs

from tilewright.codegen.kernel import (
    SCANS,
    Apply,
    Bundle,
    Condition,
    Constant,
    Dot,
    Guard,
    Kernel,
    Load,
    Ordered,
    Position,
    RandomBits,
    Reduce,
    Scalar,
    Scan,
    Segment,
    Sort,
    Store,
    Value,
)
from tilewright.codegen.kernel.affine import dimensions
from tilewright.codegen.kernel.index import (
    Axis,
    Check,
    Data,
    FloorDiv,
    Index,
    Mod,
    constant,
    data,
    of,
)
from tilewright.codegen.kernel.mlir_printer import parse_kernel, print_kernel
from tilewright.codegen.kernel.structure import describe, parameters, structure
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import CUDA, NUMPY, Target
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Fold
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.numpy import NumpyDevice

GOLDEN = paths.GOLDEN / "kernel_softmax.mlir"
P, Q, R, S = Axis("p0", 6), Axis("p1", 4), Axis("r0", 5), Axis("r1", 3)
T = Axis("r2", 8)


def row(value: Value, *reduction: Axis, name: str = "k", dtype: dt.DType | None = None) -> Kernel:
    """y[p0] = value, or y[p0, r0] where the value ranges over a reduction axis."""
    axes = (P, *(r for r in reduction if r in value.axes()))
    shape = [a.extent for a in axes]
    y = buffer("y", shape, dtype or value.dtype)
    return Kernel(name, (P,), reduction, (Store(y, at(axes, shape), value),))


# Kernels with every type of value


def softmax() -> Kernel:
    kernel = softmax_kernel()
    notes = (("max", *WHERE), ("sub", *WHERE), ("exp", "model.py", 2), ("exp", "model.py", 9))
    return Kernel("softmax_row", kernel.parallel, kernel.reduction, kernel.stores, notes)


def constants() -> Kernel:
    """Every dtype, and the numbers that are easily lost."""
    stores = []
    for dtype in dt.ALL:
        numbers: list[Any] = [0, 1]
        if dtype.category == dt.FLOAT:
            numbers += [-0.0, 0.1, -1 / 3, 1e-6, np.nan]
            numbers += [] if dtype is dt.float8_e4m3fn else [np.inf, -np.inf]
        elif dtype.is_complex:
            numbers += [1.5 - 2j, complex(np.nan, -0.0)]
        elif dtype is not dt.bool_:
            numbers += [np.iinfo(dtype.np).min, np.iinfo(dtype.np).max]
        if dtype is dt.complex32:  # a pair of halves: no number of NumPy's
            continue
        for number in numbers:
            y = buffer(f"y{len(stores)}", (6,), dtype)
            stores.append(Store(y, of(P), const(number, dtype)))
    return Kernel("constants", (P,), (), tuple(stores))


def casts() -> Kernel:
    x = load(buffer("x", (6,), dt.bfloat16), of(P))
    half = Apply(REGISTRY["cast"], (x,), dt.float32, dt.float16)
    whole = Apply(REGISTRY["cast"], (apply("mul", half, Scalar(7, dt.float32)),), dt.int64)
    word = Apply(REGISTRY["bitcast"], (half,), dt.uint32)
    chosen = apply("where", apply("lt", whole, const(3, dt.int64), dtype=dt.bool_), half, x)
    stores = [Store(buffer("y", (6,), dt.int64), of(P), whole)]
    stores += [Store(buffer("z", (6,), dt.uint32), of(P), word)]
    stores += [Store(buffer("w", (6,), dt.float16), of(P), Apply(chosen.op, chosen.args, x.dtype))]
    return Kernel("casts", (P,), (), tuple(stores))


def random_bits() -> Kernel:
    seed = load(buffer("seed", (1,), dt.int64), constant(0))
    return row(RandomBits(seed, Scalar(2, dt.int64), of(P) * 2**31 + 5, dt.uint32))


def random_words() -> Kernel:
    return row(RandomBits(Scalar(1, dt.int64), Scalar(2, dt.int64), of(P), dt.uint64))


def divisions() -> Kernel:
    """Quotients and remainders, nested, with factors in front and negative steps."""
    whole = of(P) * 4 + of(Q)
    quotient, rest = Index(((FloorDiv(whole, 3), 1),)), Index(((Mod(whole, 3), 1),))
    nested = Index(((Mod(quotient + 7, 5), -2), (FloorDiv(whole, 3), 1), (Q, -1)), 31)
    value = apply("add", Position(nested, dt.int64), Position(rest * 3 + quotient, dt.int64))
    y = buffer("y", (6, 4), dt.int64)
    return Kernel("divisions", (P, Q), (), (Store(y, constant(23) - whole, value),))


def gathered_twice() -> Kernel:
    """A position that is read at a position, in a quotient."""
    inner = Data(load(buffer("i", (6,), dt.int64), of(P)), Check(4, 0, WHERE))
    outer = Data(load(buffer("j", (4,), dt.int64), data(inner)), Check(12, 1, ("other.py", 9)))
    quotient = Index(((FloorDiv(data(outer), 4), 3),))
    return row(load(buffer("x", (9,)), quotient + data(inner) * 0 + 2))


def guards() -> Kernel:
    x = load(buffer("x", (6, 5)), of(P) * 5 + of(R) - 1)
    conditions = (Condition(of(R) - 1, 0, 5), Condition(of(P) * -1 + 7, 2, 9))
    return row(Guard(conditions, x, const(-0.0), dt.float32), R)


def folds() -> Kernel:
    x = load(buffer("x", (6, 5, 3)), at((P, R, S), (6, 5, 3)))
    folded = [Reduce(op, x, (R, S), x.dtype) for op in SCANS]
    where = [Reduce(op, x, (R, S), dt.int64) for op in (Fold.ARGMAX, Fold.ARGMIN)]
    positive = apply("gt", x, const(0.0), dtype=dt.bool_)
    flags = [Reduce(op, positive, (R, S), dt.bool_) for op in (Fold.ANY, Fold.ALL)]
    stores = [
        Store(buffer(f"y{i}", (6,), v.dtype), of(P), v)
        for i, v in enumerate((*folded, *where, *flags))
    ]
    return Kernel("folds", (P,), (R, S), tuple(stores))


def scans() -> Kernel:
    x = load(buffer("x", (6, 5)), at((P, R), (6, 5)))
    order = Sort(x, R, True, 5, dt.int64)
    running = [Scan(op, x, R, x.dtype) for op in SCANS]
    total = reduce(lambda a, b: apply("add", a, b), running)
    stores = (
        Store(buffer("y", (6, 5)), at((P, R), (6, 5)), total),
        Store(buffer("z", (6, 5), dt.int64), at((P, R), (6, 5)), order),
        Store(buffer("w", (6, 5), dt.int64), at((P, R), (6, 5)), Sort(x, R, False, 3, dt.int64)),
    )
    return Kernel("scans", (P,), (R,), stores)


def sorted_words(run: int = 0) -> Kernel:
    words = load(buffer("x", (6, 8), dt.int64), at((P, T), (6, 8)))
    value = Ordered(words, T, run, dt.int64)
    y = buffer("y", (6, 8), dt.int64)
    return Kernel("sorted", (P,), (T,), (Store(y, at((P, T), (6, 8)), value),))


def dots() -> Kernel:
    a = load(buffer("a", (6, 5), dt.bfloat16), at((P, R), (6, 5)))
    b = load(buffer("b", (5, 4), dt.bfloat16), at((R, Q), (5, 4)))
    dot = Dot(a, b, (R,), dt.float32, dt.bfloat16)
    value = apply("add", dot, load(buffer("bias", (4,)), of(Q)))
    notes = (("matmul", *WHERE), ("add", "model.py", 8))
    y = buffer("y", (6, 4), dt.bfloat16)
    return Kernel("matmul_add_dot", (P, Q), (R,), (Store(y, at((P, Q), (6, 4)), value),), notes)


def fast_dot() -> Kernel:
    """Of float8, with sums as short as the hardware's."""
    a = load(buffer("a", (6, 5), dt.float8_e4m3fn), at((P, R), (6, 5)))
    b = load(buffer("b", (5, 4), dt.float8_e5m2), at((R, Q), (5, 4)))
    dot = Dot(a, b, (R,), dt.float32, dt.float8_e4m3fn, fast=True)
    y = buffer("y", (6, 4), dt.float8_e5m2)
    notes = (("matmul_fast", *WHERE),)
    return Kernel("fast_dot", (P, Q), (R,), (Store(y, at((P, Q), (6, 4)), dot),), notes)


def scaled_dot() -> Kernel:
    """Of float8, each five terms of the sum with scales of their own."""
    a = load(buffer("a", (6, 15), dt.float8_e4m3fn), at((P, S, R), (6, 3, 5)))
    b = load(buffer("b", (15, 4), dt.float8_e4m3fn), at((S, R, Q), (3, 5, 4)))
    scales = (
        load(buffer("sa", (6, 3)), at((P, S), (6, 3))),
        load(buffer("sb", (3, 4)), at((S, Q), (3, 4))),
    )
    dot = Dot(a, b, (S, R), dt.float32, dt.float8_e4m3fn, scales=scales)
    store = Store(buffer("y", (6, 4)), at((P, Q), (6, 4)), dot)
    return Kernel("scaled", (P, Q), (S, R), (store,), (("matmul_by_blocks", *WHERE),))


def grouped_dot() -> Kernel:
    """Rows in three segments, each with a matrix of its own."""
    a = load(buffer("a", (6, 5)), at((P, R), (6, 5)))
    b = load(buffer("b", (3, 5, 4)), at((S, R, Q), (3, 5, 4)))
    bounds = buffer("bounds", (4,), dt.int64)
    segment = Segment(P, load(bounds, of(S)), load(bounds, of(S) + 1))
    dot = Dot(a, b, (S, R), dt.float32, dt.float32, segment=segment)
    store = Store(buffer("y", (6, 4)), at((P, Q), (6, 4)), dot)
    return Kernel("grouped", (P, Q), (S, R), (store,), (("grouped_matmul", *WHERE),))


def update(mode: str = "add", grouped: bool = False) -> Kernel:
    place = data(Data(load(buffer("i", (5,), dt.int64), of(R)), Check(4, 0, WHERE)))
    value = load(buffer("g", (5, 6)), at((R, P), (5, 6)))
    return Kernel(
        "update",
        (P,),
        (R,),
        (Store(buffer("y", (4, 6)), place * 6 + of(P), value, mode, grouped),),
    )


def in_place() -> Kernel:
    y, x = buffer("y", (6,)), buffer("x", (6,))
    mixed = apply("add", apply("mul", load(y, of(P)), const(0.9)), load(x, of(P)))
    return Kernel("step", (P,), (), (Store(y, of(P), mixed),))


def bundle() -> Bundle:
    return Bundle((in_place(), in_place(), row(Scalar(1, dt.float32))))


def bundle_of_one() -> Bundle:
    return Bundle((in_place(),))


def empty() -> Kernel:
    n = Axis("n", 0)
    return Kernel("", (n,), (), (Store(buffer("y", (0,)), of(n), const(1.0)),))


def odd_names() -> Kernel:
    """Axes and buffers called by words of MLIR, by what is no word, and alike."""
    names = ("mod", "i8", "f32", "size", "ä b", "", "x", "v0", "d0_1", 'a"\\')
    axes = tuple(Axis(name, 2) for name in names)
    shape = [2] * len(axes)
    x, y = buffer("x", shape), buffer("1 %", shape)
    value = apply("add", load(x, at(axes, shape)), load(buffer("axis0", (1,)), constant(0)))
    return Kernel('"odd"\n', axes, (), (Store(y, at(axes, shape), value),))


KERNELS: tuple[Callable[[], Kernel | Bundle], ...] = (
    softmax,
    constants,
    casts,
    random_bits,
    random_words,
    divisions,
    gather_kernel,
    gathered_twice,
    lambda: pad_kernel(1, 2, 1),
    guards,
    folds,
    scans,
    dots,
    fast_dot,
    grouped_dot,
    scaled_dot,
    update,
    lambda: update("max"),
    lambda: update(grouped=True),
    sorted_words,
    lambda: sorted_words(4),
    in_place,
    bundle,
    bundle_of_one,
    empty,
    odd_names,
)
every_kernel = pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)


def members(kernel: Kernel | Bundle) -> Sequence[Kernel]:
    return kernel.members if isinstance(kernel, Bundle) else (kernel,)


def test_the_kernels_have_every_type_of_value() -> None:
    found = {type(v) for make in KERNELS for k in members(make()) for v in k.values}
    assert found == set(get_args(Value))


# There and back


def same(text: str, kernel: Kernel | Bundle) -> Kernel | Bundle:
    """The kernel that `text` holds, which must be `kernel`."""
    back = parse_kernel(text)
    assert type(back) is type(kernel) and len(members(back)) == len(members(kernel))
    for new, old in zip(members(back), members(kernel), strict=True):
        assert describe(new) == describe(old)  # with name and notes
        assert structure(new) == structure(old) and parameters(new) == parameters(old)
        assert [s.slot for s in new.scalars] == [s.slot for s in old.scalars]
        assert positions(new) == positions(old)
    return back


def positions(kernel: Kernel) -> list[Any]:
    """What `describe` leaves out of positions that are data."""
    indices = [i for v in kernel.values for i in v.indices()] + [s.offset for s in kernel.stores]
    return [d.check for d in dimensions(indices) if isinstance(d, Data)]


def through_xdsl(text: str) -> str:
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.parser import Parser
    from xdsl.printer import Printer

    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    module = Parser(context, text).parse_module()
    module.verify()
    out = io.StringIO()
    Printer(out, print_generic_format=True, print_debuginfo=True).print_op(module)
    return out.getvalue()


@every_kernel
def test_round_trip(make: Callable[[], Kernel | Bundle]) -> None:
    text = print_kernel(make())
    assert print_kernel(same(text, make())) == text


@every_kernel
def test_xdsl_reads_and_reprints_it(make: Callable[[], Kernel | Bundle]) -> None:
    text = print_kernel(make())
    assert print_kernel(same(through_xdsl(text), make())) == text


@every_kernel
def test_what_is_read_computes_the_same(make: Callable[[], Kernel | Bundle]) -> None:
    kernel = make()
    results = []
    for each in (kernel, parse_kernel(print_kernel(kernel))):
        arrays = []
        for i, b in enumerate((*each.outputs, *each.inputs)):
            whole = b.dtype is dt.int64 and b.name != "y"
            arrays.append(np.arange(b.size) % 3 if whole else sample(b, i))
        scalars = [np.asarray(s.slot + 2).astype(s.dtype.np)[()] for s in each.scalars]
        with np.errstate(all="ignore"):
            NumpyDevice().compile(each)(arrays, scalars)
        results.append(arrays)
    for old, new in zip(*results, strict=True):
        assert old.tobytes() == new.tobytes()


def test_each_nan_keeps_its_bits() -> None:
    # xDSL holds a float as Python's, so this is for our own parser alone.
    words = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    value = apply("add", *(Constant(word, dt.float32) for word in words))
    back = parse_kernel(print_kernel(row(value)))
    assert isinstance(back, Kernel)
    found = [v.value.tobytes() for v in back.values if isinstance(v, Constant)]
    assert sorted(found) == sorted(word.tobytes() for word in words)


def test_an_axis_of_no_kernel() -> None:
    kernel = row(load(buffer("x", (5,)), of(R)))
    with pytest.raises(ValueError, match=r"kernel k mentions .*r0.*, but doesn't range over it"):
        print_kernel(kernel)


# Whole graphs


def graph() -> list[Node]:
    """A graph with kernels of every kind, in three precisions."""
    x, w = (ops.leaf(i, Size(s), dt.bfloat16) for i, s in enumerate([(4, 6), (6, 3)]))
    i = ops.leaf(2, Size((5,)), dt.int64)
    image, kernel = (
        ops.leaf(n, Size(s), dt.float32) for n, s in ((3, (2, 2, 6, 6)), (4, (4, 2, 3, 3)))
    )
    taken = ops.gather(ops.cast(x, dt.float32), i, 0)
    attrs = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    bits = ops.random_bits(ops.scalar(0, dt.int64), ops.scalar(1, dt.int64), Size((4, 6)))
    return [
        ops.exp(ops.matmul(x, w)) + 1.5,
        ops.sum(ops.exp(x), (1,)) / 3,
        ops.cumsum(taken * 2, 1),
        ops.argsort(taken, 1, True),
        ops.scatter(ops.leaf(5, Size((4, 6)), dt.float32), taken, i, 0, "add"),
        ops.conv(image, kernel, *attrs),
        ops.where(ops.gt(x, ops.constant(0, dt.bfloat16)), x, ops.cast(bits, dt.bfloat16)),
        ops.pad(ops.permute(image, (1, 0, 3, 2)), *((1,) * 4, (0,) * 4, (1,) * 4)),
        ops.reshape(ops.permute(ops.leaf(6, Size((5, 7)), dt.float64), (1, 0)), (35,)),
        ops.argmax(x, (0, 1)),
    ]


@pytest.mark.parametrize("target", [NUMPY, CUDA], ids=lambda target: target.name)
def test_whole_graphs(target: Target) -> None:
    steps = compile_graph(lower_graph(graph()), target).steps
    kinds = set()
    for step in steps:
        text = print_kernel(step.kernel)
        assert print_kernel(same(text, step.kernel)) == text
        assert print_kernel(same(through_xdsl(text), step.kernel)) == text
        kinds |= {type(v) for k in members(step.kernel) for v in k.values}
    assert {Load, Dot, Scan, Guard, Reduce, RandomBits} <= kinds
    assert (Sort in kinds) == target.native_sort


@settings(QUIET, max_examples=25)
@given(graphs())
def test_random_graphs(roots: list[Node]) -> None:
    for step in compile_graph(lower_graph(roots), NUMPY).steps:
        text = print_kernel(step.kernel)
        assert print_kernel(same(text, step.kernel)) == text


# Text in a file


def test_golden_file() -> None:
    text = print_kernel(softmax())
    if os.environ.get("TW_ACCEPT") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "run with TW_ACCEPT=1 if the change is meant"


def test_lines_of_values_are_those_that_the_notes_leave_no_doubt_about() -> None:
    lines = print_kernel(dots()).splitlines()
    (dot,) = (line for line in lines if '"twk.dot"' in line)
    (add,) = (line for line in lines if '"add"}' in line)
    assert dot.endswith('loc("/home/me/train.py":31:0)') and add.endswith('loc("model.py":8:0)')
    (exp,) = (line for line in print_kernel(softmax()).splitlines() if '"exp"}' in line)
    assert "loc" not in exp  # two lines have one
    last = '}) : () -> () loc(fused["matmul"("/home/me/train.py":31:0), "add"("model.py":8:0)])'
    assert lines[-2].strip() == last
