"""Handmade kernels of each form, for tests of the Triton emitter and of compilation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.kernel import (
    Apply,
    Buffer,
    Bundle,
    Condition,
    Constant,
    Dot,
    Guard,
    Kernel,
    Load,
    Ordered,
    RandomBits,
    Reduce,
    Scalar,
    Scan,
    Store,
    Value,
)
from tilewright.codegen.kernel.index import Axis, Check, Data, Index, constant, data, linearize, of
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.ir.op import REGISTRY, Fold
from tilewright.ir.shape import contiguous_strides

WHERE = ("/home/me/train.py", 31)


def wide(dtype: DType) -> DType:
    return dt.float32 if dtype in (dt.float16, dt.bfloat16) else dtype


def at(shape: Sequence[int], *place: Axis | Index | int) -> Index:
    """The row-major offset of a place in `shape`."""
    indices = [
        of(x) if isinstance(x, Axis) else constant(x) if isinstance(x, int) else x for x in place
    ]
    return linearize(indices, contiguous_strides(shape))


def array(name: str, shape: Sequence[int], dtype: DType = dt.float32) -> Buffer:
    return Buffer(name, dtype, math.prod(shape))


def load(buffer: Buffer, offset: Index) -> Load:
    return Load(buffer, offset, wide(buffer.dtype))


def apply(name: str, *args: Value, dtype: DType | None = None) -> Apply:
    return Apply(REGISTRY[name], args, dtype or args[0].dtype)


def number(value: Any, dtype: DType = dt.float32) -> Constant:
    return Constant(dtype.np.type(value), dtype)


def elementwise(
    name: str, count: int, dtypes: Sequence[DType], out: DType, shape: Sequence[int] = ()
) -> Kernel:
    """out[p] = name(x0[p], x1[p], …)."""
    p = Axis("p0", count)
    args = [load(array(f"x{i}", (count,), d), of(p)) for i, d in enumerate(dtypes)]
    value = apply(name, *args, dtype=wide(out))
    return Kernel(name, (p,), (), (Store(array("y", (count,), out), of(p), value),))


def activation(rows: int, columns: int, dtype: DType = dt.float32) -> Kernel:
    """y = tanh(x + b) * s with b along columns and s as a number passed at launch."""
    p, q = Axis("p0", rows), Axis("p1", columns)
    x, b, y = (
        array("x", (rows, columns), dtype),
        array("b", (columns,)),
        array("y", (rows, columns)),
    )
    total = apply("add", load(x, at((rows, columns), p, q)), load(b, of(q)))
    value = apply("mul", apply("tanh", total), Scalar(3, dt.float32))
    notes = (("add", "/home/me/train.py", 30), ("tanh", "/home/me/train.py", 31))
    return Kernel("add_tanh", (p, q), (), (Store(y, at((rows, columns), p, q), value),), notes)


def softmax(rows: int, length: int, dtype: DType = dt.float32) -> Kernel:
    """y = softmax(x) along rows; total[p] gets the sum."""
    p, r = Axis("p0", rows), Axis("r0", length)
    place = at((rows, length), p, r)
    x = load(array("x", (rows, length), dtype), place)
    e = apply("exp", apply("sub", x, Reduce(Fold.MAX, x, (r,), x.dtype)))
    total = Reduce(Fold.SUM, e, (r,), x.dtype)
    stores = (
        Store(array("y", (rows, length), dtype), place, apply("div", e, total)),
        Store(array("total", (rows,), dtype), of(p), total),
    )
    return Kernel("softmax", (p,), (r,), stores, (("softmax", "/home/me/train.py", 31),))


def fold(
    op: str, shape: tuple[int, int], axis: int, dtype: DType, split: tuple[int, ...] = ()
) -> Kernel:
    """A reduction of a matrix. split: sizes into which the reduced axis is split."""
    p = Axis("p0", shape[1 - axis])
    parts = split or (shape[axis],)
    r = tuple(Axis(f"r{i}", n) for i, n in enumerate(parts))
    inner = linearize([of(a) for a in r], contiguous_strides(parts))
    place = at(shape, of(p), inner) if axis == 1 else at(shape, inner, of(p))
    out = dt.int64 if op.startswith("arg") else dtype
    value = Reduce(Fold(op), load(array("x", shape, dtype), place), r, wide(out))
    return Kernel(op, (p,), r, (Store(array("y", (shape[1 - axis],), out), of(p), value),))


def scan(op: str, rows: int, length: int, dtype: DType) -> Kernel:
    p, r = Axis("p0", rows), Axis("r0", length)
    place = at((rows, length), p, r)
    value = Scan(Fold(op), load(array("x", (rows, length), dtype), place), r, wide(dtype))
    return Kernel(op, (p,), (r,), (Store(array("y", (rows, length), dtype), place, value),))


def ordered(rows: int, length: int, run: int = 0, dtype: DType = dt.int64) -> Kernel:
    """y is each row of x in ascending order; run as in kernel.Ordered."""
    p, r = Axis("p0", rows), Axis("r0", length)
    place = at((rows, length), p, r)
    value = Ordered(load(array("x", (rows, length), dtype), place), r, run, dtype)
    return Kernel("sort", (p,), (r,), (Store(array("y", (rows, length), dtype), place, value),))


def gather(rows: int, table: int, width: int) -> Kernel:
    """y[p, q] = x[i[p], q]."""
    p, q = Axis("p0", rows), Axis("p1", width)
    row = data(Data(load(array("i", (rows,), dt.int64), of(p)), Check(table, 0, WHERE)))
    value = load(array("x", (table, width)), at((table, width), row, q))
    return Kernel(
        "gather", (p, q), (), (Store(array("y", (rows, width)), at((rows, width), p, q), value),)
    )


def update(
    mode: str, count: int, rows: int, width: int, dtype: DType = dt.float32, grouped: bool = False
) -> Kernel:
    """y[i[r], p] = or += or … g[r, p] for each r in order; grouped: equal i are neighbours."""
    p, r = Axis("p0", width), Axis("r0", count)
    row = data(Data(load(array("i", (count,), dt.int64), of(r)), Check(rows, 0, WHERE)))
    value = load(array("g", (count, width), dtype), at((count, width), r, p))
    target = at((rows, width), row, p)
    return Kernel(
        "update",
        (p,),
        (r,),
        (Store(array("y", (rows, width), dtype), target, value, mode, grouped),),
    )


def matmul(
    m: int,
    n: int,
    k: int,
    dtype: DType = dt.float32,
    batch: int = 1,
    out: DType | None = None,
    epilogue: bool = False,
) -> Kernel:
    """y = a @ b, or relu(a @ b + c) beside z = a @ b."""
    s, i, j, r = Axis("p0", batch), Axis("p1", m), Axis("p2", n), Axis("r0", k)
    a = load(array("a", (batch, m, k), dtype), at((batch, m, k), s, i, r))
    b = load(array("b", (batch, k, n), dtype), at((batch, k, n), s, r, j))
    place = at((batch, m, n), s, i, j)
    dot = Dot(a, b, (r,), wide(dtype), dtype)
    stores = [Store(array("y", (batch, m, n), out or dtype), place, dot)]
    if epilogue:
        value = apply("relu", apply("add", dot, load(array("c", (n,)), of(j))))
        stores.append(Store(array("z", (batch, m, n)), place, value))
    return Kernel("matmul", (s, i, j), (r,), tuple(stores), (("matmul", "/home/me/train.py", 7),))


def conv(
    n: int,
    c: int,
    o: int,
    size: int,
    window: int = 3,
    pad: int = 1,
    dtype: DType = dt.float32,
    last: bool = False,
) -> Kernel:
    """y[n, o, h, w] as one contraction. Reads are guarded where the window leaves the input. last:
    whether channels come last in memory."""
    out = size + 2 * pad - window + 1
    b, h, w, f = Axis("p0", n), Axis("p1", out), Axis("p2", out), Axis("p3", o)
    r = Axis("r0", c), Axis("r1", window), Axis("r2", window)
    row, column = of(h) + of(r[1]) - pad, of(w) + of(r[2]) - pad

    def tensor(name: str, first: Axis, channel: Axis, *places: Axis | Index, edge: int) -> Any:
        """A tensor with square images, and the place of one of its elements."""
        shape = first.extent, edge, edge, channel.extent
        order = (0, 1, 2, 3) if last else (0, 3, 1, 2)
        place = first, *places, channel
        sizes, where = [shape[i] for i in order], [place[i] for i in order]
        return array(name, sizes, dtype), at(sizes, *where)

    conditions = (Condition(row, 0, size), Condition(column, 0, size))
    inside = load(*tensor("x", b, r[0], row, column, edge=size))
    x = Guard(conditions, inside, number(0.0), dt.float32)
    weight = load(*tensor("w", f, r[0], *r[1:], edge=window))
    over = (*r[1:], r[0]) if last else r
    store = Store(*tensor("y", b, f, h, w, edge=out), Dot(x, weight, over, dt.float32, dtype))
    return Kernel("conv", (b, h, w, f), over, (store,))


def random(count: int, dtype: DType = dt.uint32) -> Kernel:
    p = Axis("p0", count)
    bits = RandomBits(Scalar(0, dt.int64), Scalar(1, dt.int64), of(p), dtype)
    return Kernel("random", (p,), (), (Store(array("y", (count,), dtype), of(p), bits),))


def sgd(counts: Sequence[int]) -> Bundle:
    """w = w - rate * g for several parameters, in place; two of the rates alternate."""
    members = []
    for i, count in enumerate(counts):
        p = Axis("p0", count)
        w, g = array(f"w{i}", (count,)), array(f"g{i}", (count,))
        step = apply("mul", Scalar(i % 2, dt.float32), load(g, of(p)))
        value = apply("sub", load(w, of(p)), step)
        members.append(Kernel("sgd", (p,), (), (Store(w, of(p), value),)))
    return Bundle(tuple(members))


REPRESENTATIVE: dict[str, Callable[[], Kernel | Bundle]] = {
    "elementwise": lambda: activation(512, 1024),
    "softmax": lambda: softmax(256, 1024),
    "long_softmax": lambda: softmax(8, 100_000, dt.bfloat16),
    "columns": lambda: fold("sum", (4096, 512), 0, dt.float32),
    "argmax": lambda: fold("argmax", (64, 1000), 1, dt.float64),
    "scan": lambda: scan("sum", 16, 1000, dt.float32),
    "sort": lambda: ordered(100, 1000),
    "merge": lambda: ordered(4, 8192, 4096),
    "gather": lambda: gather(128, 1000, 64),
    "update": lambda: update("add", 100, 1000, 64),
    "grouped": lambda: update("add", 4096, 1000, 768, dt.bfloat16, grouped=True),
    "grouped_numbers": lambda: update("max", 4096, 1000, 1, grouped=True),
    "matmul": lambda: matmul(512, 512, 512, epilogue=True),
    "matmul_bf16": lambda: matmul(1024, 1024, 1024, dt.bfloat16, epilogue=True),
    "matmul_f64": lambda: matmul(64, 64, 64, dt.float64),
    "conv": lambda: conv(8, 16, 32, 14),
    "bundle": lambda: sgd((4096, 160, 8192)),
    "random": lambda: random(10_000),
}


def sample(buffer: Buffer, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = buffer.dtype.np
    if buffer.dtype.category == dt.FLOAT:
        return rng.standard_normal(buffer.size).astype(kind)
    if buffer.dtype is dt.bool_:
        return rng.integers(0, 2, buffer.size).astype(bool)
    return rng.integers(0 if kind.kind == "u" else -9, 9, buffer.size).astype(kind)
