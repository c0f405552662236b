"""Kernels made by hand that several test files run."""

from __future__ import annotations

from typing import Any

from kernels import WHERE, apply, at, buffer, const, load

from tilewright.codegen.kernel import (
    Condition,
    Guard,
    Kernel,
    Reduce,
    Store,
)
from tilewright.codegen.kernel.index import (
    Axis,
    Check,
    Data,
    data,
    floordiv,
    mod,
    of,
)
from tilewright.ir import dtype as dt
from tilewright.ir.op import Fold


def softmax_kernel() -> Kernel:
    p, r = Axis("p", 5), Axis("r", 9)
    x, y, z = buffer("x", (5, 9)), buffer("y", (5, 9)), buffer("z", (5,))
    where = at((p, r), (5, 9))
    top = Reduce(Fold.MAX, load(x, where), (r,), dt.float32)
    e = apply("exp", apply("sub", load(x, where), top))
    s = Reduce(Fold.SUM, e, (r,), dt.float32)
    stores = (
        Store(y, where, apply("div", e, s)),
        Store(z, of(p), apply("add", apply("log", s), top)),
    )
    return Kernel("softmax", (p,), (r,), stores)


def gather_kernel(count: int = 6, rows: int = 5, width: int = 4) -> Kernel:
    p, d = Axis("p", count), Axis("d", width)
    x, i = buffer("x", (rows, width)), buffer("i", (count,), dt.int64)
    y = buffer("y", (count, width))
    place = data(Data(load(i, of(p)), Check(rows, 0, WHERE)))
    return Kernel(
        "gather",
        (p, d),
        (),
        (Store(y, at((p, d), (count, width)), load(x, place * width + of(d))),),
    )


def pad_kernel(low: int, high: int, interior: int, size: int = 5, outside: Any = 0.5) -> Kernel:
    step = interior + 1
    total = low + high + (size - 1) * step + 1
    p, q = Axis("p", 3), Axis("q", total)
    x, y = buffer("x", (3, size)), buffer("y", (3, total))
    place = floordiv(of(q) - low, step)
    conditions = [Condition(place, 0, size)]
    if step > 1:
        conditions.append(Condition(mod(of(q) - low, step), 0, 1))
    inside = apply("mul", load(x, of(p) * size + place), const(2.0))
    value = Guard(tuple(conditions), inside, const(outside), dt.float32)
    return Kernel("pad", (p, q), (), (Store(y, at((p, q), (3, total)), value),))
