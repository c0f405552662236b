"""Kernels made by hand on each engine: sums of products, convolutions."""

from __future__ import annotations

from typing import Any

import pytest
from kernels import apply, at, buffer, const, load, run, wide

from tilewright.codegen.kernel import (
    Buffer,
    Condition,
    Dot,
    Guard,
    Kernel,
    Store,
    Value,
)
from tilewright.codegen.kernel.index import Axis, Index, floordiv, mod, of
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType


def dot_kernel(
    stores: str, a: str, b: str, sizes: dict[str, int], over: str, dtype: DType = dt.float32
) -> Kernel:
    """Each operand is named by its axes, in the order of its memory: "mk", "kn"."""
    axes = {n: Axis(n, s) for n, s in sizes.items()}

    def place(names: str) -> Index:
        return at([axes[n] for n in names], [sizes[n] for n in names])

    def shaped(name: str, names: str) -> Buffer:
        return buffer(name, [sizes[n] for n in names], dtype)

    summed = tuple(axes[n] for n in over)
    left, right = load(shaped("a", a), place(a)), load(shaped("b", b), place(b))
    value: Value = Dot(left, right, summed, wide(dtype), dtype)
    if dtype is dt.float32:
        value = apply("add", apply("mul", value, const(2.0)), const(1.0))
    parallel = tuple(axes[n] for n in sizes if n not in over)
    return Kernel("dot", parallel, summed, (Store(shaped("y", stores), place(stores), value),))


SIZES = {"g": 3, "h": 2, "m": 4, "n": 5, "k": 6, "l": 2}
DOTS = [
    ("mn", "mk", "kn", "k"),
    ("nm", "mk", "kn", "k"),
    ("mn", "km", "nk", "k"),
    ("m", "mk", "k", "k"),
    ("", "k", "k", "k"),
    ("gmn", "gmk", "gkn", "k"),
    ("gmn", "gmk", "kn", "k"),
    ("mgn", "mgk", "gnk", "k"),
    ("gm", "gmk", "gk", "k"),
    ("gm", "gmk", "gmk", "k"),
    ("mhgn", "hmlgk", "kgnl", "kl"),
    ("ghmn", "gmkl", "hlkn", "kl"),
    ("mn", "mkl", "kn", "kl"),
    ("mn", "mk", "nkl", "kl"),
    ("mn", "m", "n", ""),
    ("mn", "m", "n", "k"),
    ("gmn", "mk", "kn", "k"),
]


# Dots as they are for these sizes, and in many steps as for large ones.
in_steps = pytest.mark.parametrize("engine", ["numpy", "numpy in steps", "llvm"], indirect=True)


@in_steps
@pytest.mark.parametrize("case", DOTS, ids=" ".join)
def test_dot(case: tuple[str, str, str, str]) -> None:
    out, a, b, over = case
    used = set(out + a + b + over)
    run(dot_kernel(out, a, b, {n: s for n, s in SIZES.items() if n in used}, over))


@pytest.mark.parametrize(
    "dtype", [dt.float16, dt.bfloat16, dt.float64, dt.int32, dt.int8, dt.int64], ids=str
)
def test_dot_types(dtype: DType) -> None:
    run(dot_kernel("gmn", "gmk", "gkn", {n: SIZES[n] for n in "gmnk"}, "k", dtype))


def test_dot_of_expressions() -> None:
    m, n, k = Axis("m", 4), Axis("n", 3), Axis("k", 5)
    a, b, bias, y = (
        buffer("a", (4, 5)),
        buffer("b", (5, 3)),
        buffer("bias", (3,)),
        buffer("y", (4, 3)),
    )
    left = apply("exp", apply("mul", load(a, at((m, k), (4, 5))), load(a, of(k))))
    right = apply("neg", load(b, at((k, n), (5, 3))))
    product = Dot(left, right, (k,), dt.float32, dt.float32)
    value = apply("relu", apply("add", product, load(bias, of(n))))
    run(Kernel("dense", (m, n), (k,), (Store(y, at((m, n), (4, 3)), value),)))
    run(
        Kernel(
            "constant",
            (m, n),
            (k,),
            (Store(y, at((m, n), (4, 3)), Dot(left, const(2.0), (k,), dt.float32, dt.float32)),),
        )
    )


def conv_kernels(
    groups: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: int,
    padding: int,
    dilation: int,
) -> dict[str, Kernel]:
    """Forward, dx and dw of a convolution, in the form the lowering gives them."""
    n, o, c = 2, 2, 3
    (h, w), (p, q) = size, kernel
    oh, ow = (
        ((s + 2 * padding - dilation * (t - 1) - 1) // stride) + 1 for s, t in zip(size, kernel)
    )
    x, k = buffer("x", (n, groups * c, h, w)), buffer("w", (groups * o, c, p, q))
    y = buffer("y", (n, groups * o, oh, ow))
    xs, ks, ys = (n, groups, c, h, w), (groups, o, c, p, q), (n, groups, o, oh, ow)
    A = {s: Axis(s, e) for s, e in zip("ngocpq", (n, groups, o, c, p, q))}
    Y, X = [Axis("i", oh), Axis("j", ow)], [Axis("u", h), Axis("v", w)]
    rows = [of(Y[d]) * stride + of(A["pq"[d]]) * dilation - padding for d in range(2)]
    inside = tuple(Condition(r, 0, s) for r, s in zip(rows, size))
    window = Guard(inside, load(x, at((A["n"], A["g"], A["c"], *rows), xs)), const(0.0), dt.float32)
    weight = load(k, at([A[s] for s in "gocpq"], ks))
    f32 = dt.float32
    out = {}
    over = tuple(A[s] for s in "cpq")
    par = (A["n"], A["g"], A["o"], *Y)
    store = Store(y, at(par, ys), Dot(window, weight, over, f32, f32))
    out["forward"] = Kernel("conv", par, over, (store,))
    g = buffer("g", (n, groups * o, oh, ow))
    grad = load(g, at((A["n"], A["g"], A["o"], *Y), ys))
    dw = buffer("dw", (groups * o, c, p, q))
    over = (A["n"], *Y)
    par = tuple(A[s] for s in "gocpq")
    out["dw"] = Kernel(
        "dw", par, over, (Store(dw, at(par, ks), Dot(grad, window, over, f32, f32)),)
    )
    dx = buffer("dx", (n, groups * c, h, w))
    shifted = [of(X[d]) + padding - of(A["pq"[d]]) * dilation for d in range(2)]
    places = [floordiv(s, stride) for s in shifted]
    conditions = [Condition(t, 0, s) for t, s in zip(places, (oh, ow))]
    if stride > 1:
        conditions += [Condition(mod(s, stride), 0, 1) for s in shifted]
    offset = at((A["n"], A["g"], A["o"], *places), ys)
    spread = Guard(tuple(conditions), load(g, offset), const(0.0), f32)
    over = (A["o"], A["p"], A["q"])
    par = (A["n"], A["g"], A["c"], *X)
    out["dx"] = Kernel(
        "dx", par, over, (Store(dx, at(par, xs), Dot(spread, weight, over, f32, f32)),)
    )
    return out


@pytest.mark.sampled(5)
@in_steps
@pytest.mark.parametrize("which", ["forward", "dx", "dw"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, (5, 6), (3, 3), 1, 0, 1),
        (1, (5, 6), (3, 3), 1, 1, 1),
        (1, (7, 6), (3, 2), 2, 1, 1),
        (2, (7, 6), (3, 3), 2, 1, 1),
        (1, (7, 7), (2, 2), 2, 0, 1),
        (1, (7, 8), (2, 3), 1, 2, 2),
        (2, (9, 8), (2, 3), 2, 2, 2),
        (1, (6, 6), (1, 1), 1, 0, 1),
        (1, (6, 6), (1, 1), 2, 0, 1),
        (1, (9, 8), (3, 2), 3, 2, 2),
    ],
    ids=str,
)
def test_conv(which: str, shape: Any) -> None:
    run(conv_kernels(*shape)[which])
