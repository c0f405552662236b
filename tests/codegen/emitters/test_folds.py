"""Kernels made by hand on each engine: reductions, running folds, sorting."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_forms import softmax_kernel
from kernels import apply, at, buffer, compiled, const, load, run, wide

from tilewright.codegen.kernel import (
    Kernel,
    Ordered,
    Reduce,
    Scan,
    Sort,
    Store,
)
from tilewright.codegen.kernel.index import Axis, of
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.ir.op import Fold

in_blocks = pytest.mark.parametrize("engine", ["numpy", "numpy in blocks", "llvm"], indirect=True)

# Folds


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int32, dt.int64, dt.float16], ids=str)
def test_reduce(op: str, dtype: DType) -> None:
    p, r, s = Axis("p", 3), Axis("r", 4), Axis("s", 5)
    result = dt.int64 if op.startswith("arg") else dtype
    x, y = buffer("x", (4, 3, 5), dtype), buffer("y", (3,), result)
    value = Reduce(Fold(op), load(x, at((r, p, s), (4, 3, 5))), (r, s), wide(result))
    run(Kernel("reduce", (p,), (r, s), (Store(y, of(p), value),)))


@pytest.mark.parametrize("op", ["any", "all", "max", "min"])
def test_reduce_of_bools(op: str) -> None:
    p, r = Axis("p", 6), Axis("r", 3)
    x, y = buffer("x", (6, 3), dt.bool_), buffer("y", (6,), dt.bool_)
    value = Reduce(Fold(op), load(x, at((p, r), (6, 3))), (r,), dt.bool_)
    run(Kernel("reduce", (p,), (r,), (Store(y, of(p), value),)))


def test_reduce_of_what_does_not_vary() -> None:
    """A sum over an axis the argument does not mention counts it."""
    p, r = Axis("p", 3), Axis("r", 4)
    x, y = buffer("x", (3,)), buffer("y", (3,))
    for arg, op in (
        (load(x, of(p)), "sum"),
        (const(2.0), "sum"),
        (const(2.0), "prod"),
        (const(2.0), "max"),
    ):
        value = Reduce(Fold(op), arg, (r,), dt.float32)
        run(Kernel("count", (p,), (r,), (Store(y, of(p), value),)))
    y = buffer("y", (3,), dt.int64)
    value = Reduce(Fold.ARGMAX, load(x, of(p)), (r,), dt.int64)
    run(Kernel("count", (p,), (r,), (Store(y, of(p), value),)))


def test_ties_and_nan() -> None:
    p, r = Axis("p", 4), Axis("r", 5)
    x = np.array([[1, 3, 3, 0, 2], [1, np.nan, 5, np.nan, 2], [2, 2, 2, 2, 2], [-1, -5, -5, 0, 1]])
    b = buffer("x", (4, 5))
    for op in ("max", "min", "argmax", "argmin"):
        result = dt.int64 if op.startswith("arg") else dt.float32
        value = Reduce(Fold(op), load(b, at((p, r), (4, 5))), (r,), result)
        out = run(
            Kernel("ties", (p,), (r,), (Store(buffer("y", (4,), result), of(p), value),)), x=x
        )
        if op == "argmax":
            assert out["y"].tolist() == [1, 1, 0, 4]


@in_blocks
def test_softmax_at_both_levels() -> None:
    run(softmax_kernel())


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.int64], ids=str)
def test_scan(op: str, dtype: DType) -> None:
    p, r = Axis("p", 3), Axis("r", 6)
    x, y = buffer("x", (6, 3), dtype), buffer("y", (3, 6), dtype)
    value = Scan(Fold(op), load(x, of(r) * 3 + of(p)), r, dtype)
    value = apply("neg", value)
    run(Kernel("scan", (p,), (r,), (Store(y, of(p) * 6 + of(r), value),)))
    count = Scan(Fold.SUM, const(1, dtype), r, dtype)
    run(Kernel("scan", (p,), (r,), (Store(y, of(p) * 6 + of(r), count),)))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [dt.float32, dt.int32], ids=str)
def test_sort(descending: bool, dtype: DType) -> None:
    """Stable both ways; NaN is the largest."""
    p, r = Axis("p", 4), Axis("r", 6)
    b, y = buffer("x", (6, 4), dtype), buffer("y", (4, 6), dt.int64)
    x = np.array([[1, 2, 1, 2, 0, 1], [3, 3, 3, 3, 3, 3], [5, 4, 3, 2, 1, 0], [0, 7, 7, 0, 7, 0]])
    x = x.T.astype(np.float64)
    if dtype is dt.float32:
        x[1:3, 0], x[4, 2] = np.nan, np.inf
    value = Sort(load(b, of(r) * 4 + of(p)), r, descending, 6, dt.int64)
    run(Kernel("sort", (p,), (r,), (Store(y, at((p, r), (4, 6)), value),)), x=x)
    same = Sort(const(1, dtype), r, descending, 6, dt.int64)
    run(Kernel("sort", (p,), (r,), (Store(y, at((p, r), (4, 6)), same),)))


def test_words_in_order() -> None:
    p, r = Axis("p", 4), Axis("r", 6)
    b, y = buffer("x", (6, 4), dt.int64), buffer("y", (4, 6), dt.int64)
    for value in (load(b, of(r) * 4 + of(p)), load(b, of(p)), const(1, dt.int64)):
        store = Store(y, at((p, r), (4, 6)), Ordered(value, r, 0, dt.int64))
        run(Kernel("words", (p,), (r,), (store,)))


def test_short_and_tall_folds() -> None:
    """Shapes that leave NumPy's own reduction: against float64."""
    rng = np.random.default_rng(0)
    for shape, reduced in (((3000, 7), 1), ((5000, 3), 0), ((257, 3), 0), ((3000, 2, 3), 1)):
        axes = [Axis(f"d{i}", n) for i, n in enumerate(shape)]
        kept = tuple(a for i, a in enumerate(axes) if i < reduced or (reduced == 0 and i > 0))
        over = tuple(a for a in axes if a not in kept)
        x = rng.standard_normal(shape).astype(np.float32) + 1
        dims = tuple(axes.index(a) for a in over)
        for op in ("sum", "max", "prod"):
            sizes = [a.extent for a in kept]
            b, y = buffer("x", shape), buffer("y", sizes)
            value = Reduce(Fold(op), apply("abs", load(b, at(axes, shape))), over, dt.float32)
            kernel = Kernel("fold", kept, over, (Store(y, at(kept, sizes), value),))
            out = np.empty(sizes, np.float32)
            compiled(kernel)([out, x], [])
            expected = getattr(np, op)(np.abs(x.astype(np.float64)), axis=dims)
            np.testing.assert_allclose(out, expected, rtol=2e-6 if op != "prod" else 1e-2)
