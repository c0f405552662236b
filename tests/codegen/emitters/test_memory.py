"""Kernels made by hand on each engine: loads, gathers, guards, updates."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_forms import gather_kernel, pad_kernel
from kernels import WHERE, apply, at, buffer, compiled, const, load, run

from tilewright.codegen.kernel import (
    Condition,
    Guard,
    Kernel,
    Reduce,
    Scan,
    Store,
)
from tilewright.codegen.kernel.index import (
    Axis,
    Check,
    Data,
    constant,
    data,
    delinearize,
    floordiv,
    mod,
    of,
)
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.ir.op import Fold

in_blocks = pytest.mark.parametrize("engine", ["numpy", "numpy in blocks", "llvm"], indirect=True)

# Loads


def test_views() -> None:
    p, q = Axis("p", 3), Axis("q", 4)
    x, y = buffer("x", (40,)), buffer("y", (3, 4))
    for offset in (
        of(p) * 4 + of(q),
        of(q) * 3 + of(p),
        of(p) * 8 + of(q) * 2 + 3,
        of(p) * -4 + of(q) * -1 + 39,
        of(p) + of(q),
        of(q),
        constant(5),
    ):
        run(Kernel("view", (p, q), (), (Store(y, at((p, q), (3, 4)), load(x, offset)),)))
    for half in (dt.bfloat16, dt.float16, dt.bool_):
        x = buffer("x", (40,), half)
        y = buffer("y", (3, 4), half)
        value = load(x, of(p) * -4 + of(q) * -1 + 39)
        run(Kernel("view", (p, q), (), (Store(y, of(q) * 3 + of(p), value),)))


@in_blocks
def test_reshape_of_a_transpose() -> None:
    """Offsets with divisions and remainders."""
    p, q = Axis("p", 6), Axis("q", 4)
    x, y = buffer("x", (4, 2, 3)), buffer("y", (6, 4))
    a, b = delinearize(of(p) * 4 + of(q), (3, 8))
    kernel = Kernel("reshape", (p, q), (), (Store(y, at((p, q), (6, 4)), load(x, b * 3 + a)),))
    run(kernel)
    z = Axis("z", 5)
    x, y = buffer("x", (5, 24)), buffer("y", (5, 6, 4))
    for order in ((z, p, q), (p, z, q), (p, q, z)):
        value = load(x, of(z) * 24 + b * 3 + a)
        where = at((z, p, q), (5, 6, 4))
        run(Kernel("reshape", order, (), (Store(y, where, value),)))
    back = Kernel("scatter", (z, p, q), (), (Store(y, of(z) * 24 + b * 3 + a, load(x, where)),))
    run(back)


@in_blocks
def test_gather() -> None:
    run(gather_kernel(), i=np.array([0, 4, 2, 2, 1, 3]))
    # Columns, and an index that is the same everywhere.
    p, d = Axis("p", 5), Axis("d", 3)
    x, i, y = buffer("x", (5, 7)), buffer("i", (3,), dt.int64), buffer("y", (5, 3))
    place = data(Data(load(i, of(d)), Check(7, 1, WHERE)))
    run(
        Kernel("columns", (p, d), (), (Store(y, at((p, d), (5, 3)), load(x, of(p) * 7 + place)),)),
        i=np.array([6, 0, 3]),
    )
    each = data(Data(load(buffer("i", (5, 3), dt.int64), at((p, d), (5, 3))), Check(7, 1, WHERE)))
    run(
        Kernel("each", (p, d), (), (Store(y, at((p, d), (5, 3)), load(x, of(p) * 7 + each)),)),
        i=np.arange(15) % 7,
    )
    both = data(Data(load(buffer("j", (5,), dt.int64), of(p)), Check(5, 0, WHERE))) * 7 + place
    run(
        Kernel("both", (p, d), (), (Store(y, at((p, d), (5, 3)), load(x, both)),)),
        i=np.array([6, 0, 3]),
        j=np.array([4, 4, 0, 1, 2]),
    )
    one = data(Data(load(buffer("i", (1,), dt.int64), constant(0)), Check(5, 0, WHERE)))
    y = buffer("y", (7,))
    e = Axis("e", 7)
    run(Kernel("row", (e,), (), (Store(y, of(e), load(x, one * 7 + of(e))),)), i=np.array([3]))
    y = buffer("y", ())
    run(Kernel("item", (), (), (Store(y, constant(0), load(x, one * 7 + 2)),)), i=np.array([3]))
    split = floordiv(data(Data(load(i, of(d)), Check(12, 0, WHERE))), 4)
    rest = mod(data(Data(load(i, of(d)), Check(12, 0, WHERE))), 4)
    y = buffer("y", (3,))
    run(
        Kernel("split", (d,), (), (Store(y, of(d), load(x, split * 7 + rest)),)),
        i=np.array([11, 0, 6]),
    )


def test_gather_out_of_range() -> None:
    kernel = gather_kernel()
    launch = compiled(kernel)
    y, x = np.zeros((6, 4), np.float32), np.ones((5, 4), np.float32)
    for bad in (7, -1):
        i = np.array([0, 1, bad, 2, 3, 4])
        arrays = {"x": x, "i": i, "y": y}
        message = rf"index {bad} is out of bounds for dimension 0 with size 5 \(train.py:31\)"
        with pytest.raises(IndexError, match=message):
            launch([arrays[b.name] for b in (*kernel.outputs, *kernel.inputs)], [])


def test_gather_from_a_guarded_position() -> None:
    """Where the guard does not look, a position may be anything."""
    p = Axis("p", 6)
    x, i, y = buffer("x", (5,)), buffer("i", (4,), dt.int64), buffer("y", (6,))
    place = data(Data(load(i, of(p) - 1), Check(5, 0, WHERE)))
    for conditions in (
        (Condition(of(p) - 1, 0, 4),),
        (Condition(of(p), 1, 5), Condition(floordiv(of(p), 2), 1, 3)),
    ):
        inside = Guard(conditions, load(x, place), const(7.0), dt.float32)
        kernel = Kernel("guarded", (p,), (), (Store(y, of(p), inside),))
        run(kernel, i=np.array([0, 4, 2, 1]))
    i = buffer("i", (6,), dt.int64)
    place = data(Data(load(i, of(p)), Check(5, 0, WHERE)))
    odd = Condition(mod(of(p) * 3, 2), 1, 2)
    ragged = Condition(mod(of(p) * of(p).terms[0][1] + 1, 3), 0, 2)
    inside = Guard((odd, ragged), load(x, place), const(7.0), dt.float32)
    kernel = Kernel("guarded", (p,), (), (Store(y, of(p), inside),))
    positions = np.array([99, 99, 99, 4, 99, 2])
    run(kernel, i=positions)


# Guards


@pytest.mark.parametrize(
    "low,high,interior", [(1, 2, 0), (0, 3, 0), (2, 1, 1), (1, 0, 2), (-1, 2, 0)]
)
def test_pad(low: int, high: int, interior: int) -> None:
    run(pad_kernel(low, high, interior))


def test_cat() -> None:
    p, q = Axis("p", 3), Axis("q", 7)
    a, b, y = buffer("a", (3, 4)), buffer("b", (3, 3)), buffer("y", (3, 7))
    first = load(a, of(p) * 4 + of(q))
    second = load(b, of(p) * 3 + of(q) - 4)
    rest = Guard((Condition(of(q), 4, 7),), second, const(0.0), dt.float32)
    value = Guard((Condition(of(q), 0, 4),), first, rest, dt.float32)
    run(Kernel("cat", (p, q), (), (Store(y, at((p, q), (3, 7)), apply("neg", value)),)))


def test_guard_on_a_window_with_a_prologue() -> None:
    """A pooling window over a padded, computed input."""
    p, w = Axis("p", 5), Axis("w", 3)
    x, b, y = buffer("x", (8,)), buffer("b", (8,)), buffer("y", (5,))
    place = of(p) * 2 + of(w) - 1
    inside = apply("add", load(x, place), apply("exp", load(b, place)))
    value = Guard((Condition(place, 0, 8),), inside, const(-np.inf), dt.float32)
    most = Reduce(Fold.MAX, value, (w,), dt.float32)
    run(Kernel("pool", (p,), (w,), (Store(y, of(p), most),)))


def test_guard_that_always_or_never_holds() -> None:
    p = Axis("p", 4)
    x, y = buffer("x", (4,)), buffer("y", (4,))
    for low, high in ((0, 4), (9, 12)):
        value = Guard((Condition(of(p), low, high),), load(x, of(p)), const(3.0), dt.float32)
        run(Kernel("guard", (p,), (), (Store(y, of(p), value),)))


def test_guard_over_a_reduction() -> None:
    p, r = Axis("p", 5), Axis("r", 4)
    x, y = buffer("x", (3, 4)), buffer("y", (5,))
    total = Reduce(Fold.SUM, load(x, (of(p) - 1) * 4 + of(r)), (r,), dt.float32)
    value = Guard((Condition(of(p) - 1, 0, 3),), total, const(-1.0), dt.float32)
    run(Kernel("guard", (p,), (r,), (Store(y, of(p), value),)))
    part = Guard((Condition(of(r) + of(p), 2, 6),), load(x, of(r)), const(0.0), dt.float32)
    scanned = Scan(Fold.SUM, part, r, dt.float32)
    y = buffer("y", (5, 4))
    run(Kernel("guard", (p,), (r,), (Store(y, of(p) * 4 + of(r), scanned),)))


def test_nested_guards() -> None:
    p, q = Axis("p", 6), Axis("q", 6)
    x, y = buffer("x", (2, 2)), buffer("y", (6, 6))
    place = (of(p) - 2) * 2 + (of(q) - 1)
    inner = Guard((Condition(of(q) - 1, 0, 2),), load(x, place), const(1.0), dt.float32)
    outer = Guard((Condition(of(p) - 2, 0, 2),), apply("neg", inner), const(2.0), dt.float32)
    run(Kernel("nested", (p, q), (), (Store(y, at((p, q), (6, 6)), outer),)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int64, dt.bfloat16], ids=str)
@pytest.mark.parametrize("width", [1, 3])
def test_update(mode: str, dtype: DType, width: int) -> None:
    d, r = Axis("d", width), Axis("r", 9)
    i, g, y = (
        buffer("i", (9,), dt.int64),
        buffer("g", (9, width), dtype),
        buffer("y", (4, width), dtype),
    )
    place = data(Data(load(i, of(r)), Check(4, 0, WHERE)))
    value = load(g, at((r, d), (9, width)))
    kernel = Kernel("update", (d,), (r,), (Store(y, place * width + of(d), value, mode),))
    run(kernel, i=np.array([0, 3, 3, 1, 0, 3, 1, 3, 0]))
    run(kernel, i=np.array([0, 0, 0, 0, 0, 0, 0, 0, 2]))


def test_update_many_rows() -> None:
    """Large enough for whatever faster path there is; few duplicates, then many."""
    rng = np.random.default_rng(0)
    rows, width, count = 300, 16, 500
    d, r = Axis("d", width), Axis("r", count)
    i, g, y = (
        buffer("i", (count,), dt.int64),
        buffer("g", (count, width)),
        buffer("y", (rows, width)),
    )
    place = data(Data(load(i, of(r)), Check(rows, 0, WHERE)))
    value = load(g, at((r, d), (count, width)))
    kernel = Kernel("update", (d,), (r,), (Store(y, place * width + of(d), value, "add"),))
    for index in (rng.integers(0, rows, count), rng.integers(0, 2, count), np.zeros(count)):
        index = index.astype(np.int64)
        base, grad = rng.standard_normal((2, max(rows, count), width)).astype(np.float32)
        base, grad = base[:rows].copy(), grad[:count].copy()
        expected = base.copy()
        np.add.at(expected, index, grad)
        arrays = {"i": index, "g": grad, "y": base}
        compiled(kernel)([arrays[b.name] for b in (*kernel.outputs, *kernel.inputs)], [])
        np.testing.assert_array_equal(base, expected)


def test_update_out_of_range() -> None:
    r = Axis("r", 3)
    i, y = buffer("i", (3,), dt.int64), buffer("y", (4,))
    place = data(Data(load(i, of(r)), Check(4, 1, WHERE)))
    kernel = Kernel("update", (), (r,), (Store(y, place, const(1.0), "add"),))
    with pytest.raises(
        IndexError, match=r"index 4 is out of bounds for dimension 1 with size 4 \(train"
    ):
        compiled(kernel)([np.zeros(4, np.float32), np.array([0, 4, 1])], [])
