"""Generated Triton kernels of every form, interpreted, against plain NumPy in float64."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import triton_kernels as tk
from paths import SUPPORT
from triton_kernels import activation, apply, array, at, load, number
from triton_launches import LARGE, SMALL, TOLERANCE, both, close, launch

from tilewright.codegen.kernel import (
    Apply,
    Bundle,
    Condition,
    Guard,
    Kernel,
    Reduce,
    Scan,
    Store,
)
from tilewright.codegen.kernel.index import Axis, constant, of
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.triton import emit
from tilewright.codegen.triton.sizes import Sizes
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.ir.numeric import special
from tilewright.ir.op import REGISTRY, Fold, Op
from tilewright.ir.ops.generate import DRAWS
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton


# -- expressions


@both
@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=str)
def test_elementwise(device: InterpretDevice, dtype: DType) -> None:
    kernel = activation(7, 12, dtype)
    out = launch(device, kernel, [0.5])
    x, b = out["x"].astype(np.float64).reshape(7, 12), out["b"].astype(np.float64)
    close(out["y"], np.tanh(x + b) * 0.5, dt.float32)


def psi(x: float) -> float:
    """digamma by its recurrence and asymptotic series."""
    total = 0.0
    while x < 50:
        total -= 1 / x
        x += 1
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan]
SPECIAL: dict[str, tuple[Callable[..., Any], tuple[float, float], list[float]]] = {
    "tanh": (np.tanh, (-30, 30), EDGES),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), (-80, 80), EDGES),
    "expm1": (np.expm1, (-40, 80), EDGES),
    "log1p": (np.log1p, (-1, 50), [*EDGES, -1.0, -2.0]),
    "log10": (np.log10, (0, 1000), EDGES),
    "sqrt": (np.sqrt, (0, 1e6), EDGES),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (0, 1e6), EDGES),
    "reciprocal": (lambda x: 1 / x, (-9, 9), EDGES),
    "tan": (np.tan, (-4, 4), [0.0, -0.0, math.nan]),
    "asin": (np.arcsin, (-1, 1), [*EDGES, 1.0, -1.0, 2.0]),
    "acos": (np.arccos, (-1, 1), [*EDGES, 1.0, -1.0, 2.0]),
    "atan": (np.arctan, (-90, 90), EDGES),
    "sinh": (np.sinh, (-80, 80), EDGES),
    "cosh": (np.cosh, (-80, 80), EDGES),
    "asinh": (np.arcsinh, (-1e5, 1e5), EDGES),
    "acosh": (np.arccosh, (1, 1e5), [*EDGES, 1.0, -3.0]),
    "atanh": (np.arctanh, (-1, 1), [*EDGES, 1.0, -1.0, 2.0]),
    "erf": (np.vectorize(math.erf), (-4, 4), EDGES),
    "erfc": (np.vectorize(math.erfc), (-4, 9), EDGES),
    "lgamma": (np.vectorize(math.lgamma), (0.1, 60), [math.inf, -math.inf, -0.5, -3.3]),
    "digamma": (np.vectorize(psi), (0.1, 60), []),
    "sign": (lambda x: (x > 0) * 1.0 - (x < 0), (-9, 9), EDGES),  # 0 for NaN, as in PyTorch
    "floor": (np.floor, (-9, 9), EDGES),
    "ceil": (np.ceil, (-9, 9), EDGES),
    "trunc": (np.trunc, (-9, 9), EDGES),
    "round": (np.rint, (-9, 9), [*EDGES, 0.5, 1.5, 2.5, -0.5]),
    "relu": (lambda x: np.where(x < 0, 0, x), (-9, 9), EDGES),
}


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_function(name: str, dtype: DType) -> None:
    """Good to a few units in the last place, and right at zeros, infinities and NaN."""
    function, (low, high), edges = SPECIAL[name]
    rng = np.random.default_rng(0)
    x = np.concatenate([edges, rng.uniform(low, high, 60), rng.uniform(low, high, 20) * 1e-4])
    x = x[(x >= low) | (np.arange(len(x)) < len(edges))].astype(dtype.np)
    out = launch(LARGE, tk.elementwise(name, len(x), [dtype], dtype), x0=x)["y"]
    with np.errstate(all="ignore"):
        expected = np.asarray(function(x.astype(np.float64)), np.float64)
        expected = expected.astype(dtype.np)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out)[numbers], np.signbit(expected)[numbers])
    tolerance = (
        5 * np.finfo(dtype.np).eps if name not in ("lgamma", "digamma") else TOLERANCE[dtype.name]
    )
    atol = tolerance if name in ("lgamma", "digamma") else float(np.finfo(dtype.np).tiny)
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=atol)


# Where the forms for float32 change from a polynomial to another one, or stop at a bound.
SEAMS = {"tanh": (0.65, 9.0), "expm1": (0.6, 80.0), "erf": (3.9, 4.0), "sigmoid": (17.0, 86.0)}


@pytest.mark.parametrize("name", SEAMS)
def test_function_at_its_seams(name: str) -> None:
    function, _, _ = SPECIAL[name]
    near = np.concatenate([np.linspace(s - 0.01, s + 0.01, 101) for s in SEAMS[name]])
    grid = np.concatenate([near, np.linspace(0, 5, 501), [1e3, 3e38], np.geomspace(1e-30, 1)])
    x = np.concatenate([grid, -grid]).astype(np.float32)
    if name == "expm1":
        x = x[x < 88]
    out = launch(LARGE, tk.elementwise(name, len(x), [dt.float32], dt.float32), x0=x)["y"]
    with np.errstate(over="ignore"):
        expected = np.asarray(function(x.astype(np.float64)), np.float64)
    bounds = {"rtol": 5 * float(np.finfo(np.float32).eps), "atol": float(np.finfo(np.float32).tiny)}
    np.testing.assert_allclose(out, expected, **bounds)
    if name in ("tanh", "erf"):
        # Not beyond 1, and 1 itself where float32 knows no better: GELU multiplies the rest by x.
        assert np.all(np.abs(out) <= 1) and np.all(
            out[np.abs(x) > 10] == np.sign(x[np.abs(x) > 10])
        )


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_wave_near_zero(name: str) -> None:
    """An angle that is known to be small takes the short form; others, the device's function."""
    p, count = Axis("p0", 2048), 2048
    word = load(array("x", (count,), dt.uint32), of(p))
    part = apply("shift_right", word, number(16, dt.uint32))
    angle = apply("mul", Apply(REGISTRY["cast"], (part,), dt.float32, dt.float32), number(1.5))
    kernel = Kernel("k", (p,), (), (Store(array("y", (count,)), of(p), apply(name, angle)),))
    words = np.random.default_rng(0).integers(0, 2**32, count, np.uint32)
    words[:3] = 0, 1 << 16, 2**32 - 1
    out = launch(LARGE, kernel, x=words)["y"]
    angles = (words >> 16) * np.float32(1.5)
    np.testing.assert_allclose(out, getattr(np, name)(angles.astype(float)), rtol=3e-7, atol=2e-10)
    assert f"tw_near_{name}" in emit(kernel, Schedule()).body
    far = apply(name, apply("mul", angle, number(1.5)))
    kernel = replace(kernel, stores=(replace(kernel.stores[0], value=far),))
    assert f"tl.{name}" in emit(kernel, Schedule()).body


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_erfinv(dtype: DType) -> None:
    x = np.array([0, -0.0, 1e-9, 0.3, -0.7, 0.999, -0.99999, 1, -1, 1.5, math.nan], dtype.np)
    w = launch(LARGE, tk.elementwise("erfinv", len(x), [dtype], dtype), x0=x)["y"]
    back = np.vectorize(math.erf)(w[:7].astype(np.float64))
    np.testing.assert_allclose(back, x[:7], rtol=4 * np.finfo(dtype.np).eps)
    np.testing.assert_array_equal(w[7:], [math.inf, -math.inf, math.nan, math.nan])


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rest = np.remainder(a, b)  # NumPy gives a zero the sign of b, and PyTorch that of a
    return np.where(rest == 0, np.copysign(rest, a), rest)


BINARY: dict[str, Callable[..., Any]] = {
    "pow": special.pow,
    "floor_divide": np.floor_divide,
    "remainder": _remainder,
    "fmod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
NUMBERS = [*EDGES, 1.0, -1.0, 2.0, -3.0, 0.5, -2.5, 7.25, 1e10]


@pytest.mark.parametrize("name", [*BINARY, "atan2", "copysign", "div"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_function_of_two(name: str, dtype: DType) -> None:
    function = {"atan2": np.arctan2, "copysign": np.copysign, "div": np.divide, **BINARY}[name]
    a, b = np.array(list(itertools.product(NUMBERS, NUMBERS)), dtype.np).T
    out = launch(LARGE, tk.elementwise(name, len(a), [dtype] * 2, dtype), x0=a, x1=b)["y"]
    with np.errstate(all="ignore"):
        expected = function(a, b)
    np.testing.assert_allclose(out, expected, rtol=4 * np.finfo(dtype.np).eps)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("dtype", [dt.int8, dt.uint8, dt.int32, dt.int64], ids=str)
def test_integers(dtype: DType) -> None:
    """Wrapping, signs of division, powers."""
    limits = np.iinfo(dtype.np)
    some = [1, 2, 3, 7, limits.max] + ([-1, -2, -3, -7, limits.min + 1] if limits.min else [])
    a, b = np.array(list(itertools.product([0, *some], some)), dtype.np).T
    for name, function in {**BINARY, "add": np.add, "mul": np.multiply, "sub": np.subtract}.items():
        out = launch(LARGE, tk.elementwise(name, len(a), [dtype] * 2, dtype), x0=a, x1=b)["y"]
        np.testing.assert_array_equal(out, function(a, b), err_msg=name)


def test_casts() -> None:
    cast = REGISTRY["cast"]
    x = np.array([0.0, 1.5, -2.7, 300.0, 65520.0, 3.0000001], np.float32)
    p = Axis("p0", len(x))
    for target in dt.ALL:
        if target.category == dt.UNSIGNED or target.is_complex:
            continue
        value = Apply(cast, (load(array("x", (len(x),)), of(p)),), tk.wide(target), target)
        kernel = Kernel("cast", (p,), (), (Store(array("y", (len(x),), target), of(p), value),))
        given = x if target.itemsize > 1 or target is dt.bool_ else np.clip(x, -100, 100)
        out = launch(LARGE, kernel, x=given)["y"]
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(out, given.astype(target.np), err_msg=str(target))


@pytest.mark.parametrize("op, dtype", list(zip(DRAWS, (dt.uint32, dt.uint64))))
def test_random_bits_are_those_of_every_target(op: Op, dtype: DType) -> None:
    for numbers in ((0, 0), (2**63 + 12345678901, 7), (-1, 2**40 + 3)):
        kernel = tk.random(11, dtype)
        out = launch(SMALL, kernel, [numbers[s.slot] for s in kernel.scalars])
        assert callable(op.numpy)
        np.testing.assert_array_equal(out["y"], op.numpy(*numbers, (11,)))


@both
def test_guards(device: InterpretDevice) -> None:
    """A padded row, where each side of a guard would load out of bounds on the other side."""
    p, q = Axis("p0", 5), Axis("p1", 9)
    column = of(q) - 2
    inside = load(array("x", (5, 4)), at((5, 4), p, column))
    outside = load(array("fill", (5,)), of(p))
    middle = Guard((Condition(column, 0, 4),), inside, outside, dt.float32)
    rows = Guard((Condition(of(p), 1, 5),), apply("exp", middle), number(-1.0), dt.float32)
    kernel = Kernel("pad", (p, q), (), (Store(array("y", (5, 9)), at((5, 9), p, q), rows),))
    out = launch(device, kernel)
    expected = np.repeat(out["fill"].reshape(5, 1), 9, 1).astype(np.float64)
    expected[:, 2:6] = out["x"].reshape(5, 4)
    expected = np.exp(expected)
    expected[0] = -1
    close(out["y"], expected, dt.float32)


# -- reductions


@both
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16], ids=str)
def test_softmax(device: InterpretDevice, dtype: DType) -> None:
    out = launch(device, tk.softmax(6, 21, dtype))
    x = out["x"].astype(np.float64).reshape(6, 21)
    e = np.exp(x - x.max(1, keepdims=True))
    close(out["y"], e / e.sum(1, keepdims=True), dtype)
    close(out["total"], e.sum(1), dtype, 4)


@both
def test_layer_norm_and_its_gradient(device: InterpretDevice) -> None:
    """Two stages of reductions, and stores at both levels, in one kernel."""
    p, r = Axis("p0", 6), Axis("r0", 19)
    place = at((6, 19), p, r)
    x, g = (
        load(array("x", (6, 19), dt.float64), place),
        load(array("g", (6, 19), dt.float64), place),
    )

    def mean(value: Any) -> Any:
        total = Reduce(Fold.SUM, value, (r,), dt.float64)
        return apply("mul", total, number(1 / 19, dt.float64))

    centered = apply("sub", x, mean(x))
    scale = apply(
        "rsqrt", apply("add", mean(apply("mul", centered, centered)), number(1e-5, dt.float64))
    )
    y = apply("mul", centered, scale)
    inner = apply("add", mean(g), apply("mul", y, mean(apply("mul", g, y))))
    stores = (
        Store(array("dx", (6, 19), dt.float64), place, apply("mul", scale, apply("sub", g, inner))),
        Store(array("scale", (6,), dt.float64), of(p), scale),
        Store(array("y", (6, 19), dt.float64), place, y),
    )
    kernel = Kernel("layer_norm", (p,), (r,), stores)
    out = launch(device, kernel)
    a, b = (out[n].reshape(6, 19) for n in "xg")
    c = a - a.mean(1, keepdims=True)
    s = 1 / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5)
    close(out["y"], c * s, dt.float64, 4)
    close(out["scale"], s, dt.float64, 4)
    mixed = b - b.mean(1, keepdims=True) - c * s * (b * c * s).mean(1, keepdims=True)
    close(out["dx"], s * mixed, dt.float64, 8)


@pytest.mark.sampled(2)
@both
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16, dt.int64, dt.int8], ids=str)
def test_reduce(device: InterpretDevice, op: str, dtype: DType, axis: int) -> None:
    shape = (10, 7) if axis == 0 else (7, 10)
    x = np.clip(tk.sample(array("x", shape, dtype), 3), -2, 2).reshape(shape)
    out = launch(device, tk.fold(op, shape, axis, dtype), x=x)["y"]
    wide = x.astype(np.float64) if dtype.category == dt.FLOAT else x
    if op in ("sum", "prod") and dtype.category != dt.FLOAT:
        expected = getattr(np, op)(wide, axis=axis, dtype=x.dtype)
    else:
        expected = getattr(np, op)(wide, axis=axis)
    close(out, expected, dt.int64 if op.startswith("arg") else dtype, 4)


@both
def test_reduce_over_several_axes(device: InterpretDevice) -> None:
    out = launch(device, tk.fold("argmin", (5, 24), 1, dt.float32, split=(2, 3, 4)))
    np.testing.assert_array_equal(out["y"], out["x"].reshape(5, 24).argmin(1))


@both
@pytest.mark.parametrize("op", ["any", "all", "max", "min", "prod", "argmax"])
def test_reduce_of_bools(device: InterpretDevice, op: str) -> None:
    x = np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 0, 0], [1, 1, 1, 1, 0]], bool)
    out = launch(device, tk.fold(op, (4, 5), 1, dt.bool_), x=x)["y"]
    np.testing.assert_array_equal(out, getattr(np, op)(x, axis=1))


@both
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_ties_and_nan(device: InterpretDevice, dtype: DType) -> None:
    """The first of equals; NaN wins, the first NaN too; rows of infinities have an answer."""
    x = np.full((4, 9), -math.inf)
    x[0, [2, 5]] = 3
    x[1, [3, 7]] = math.nan
    x[2] = math.inf
    for op in ("max", "min", "argmax", "argmin"):
        out = launch(device, tk.fold(op, (4, 9), 1, dtype), x=x)["y"]
        np.testing.assert_array_equal(out, getattr(np, op)(x, axis=1))


@both
def test_a_column_of_rows_that_do_not_vary(device: InterpretDevice) -> None:
    """A reduction counts points that its argument doesn't mention."""
    p, r = Axis("p0", 6), Axis("r0", 11)
    value = Reduce(Fold.SUM, load(array("x", (6,)), of(p)), (r,), dt.float32)
    out = launch(device, Kernel("sum", (p,), (r,), (Store(array("y", (6,)), of(p), value),)))
    close(out["y"], out["x"].astype(np.float64) * 11, dt.float32)


@both
@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int64], ids=str)
def test_scan(device: InterpretDevice, op: str, dtype: DType) -> None:
    out = launch(device, tk.scan(op, 5, 13, dtype))
    x = out["x"].reshape(5, 13)
    expected = getattr(np, "cum" + op)(
        x.astype(np.float64) if dtype.category == dt.FLOAT else x, axis=1
    )
    close(out["y"], expected, dtype, 8)


def test_a_scan_is_folded_and_normalized() -> None:
    """A value that depends on a scan, and a reduction of it, in several steps along the row."""
    p, r = Axis("p0", 3), Axis("r0", 14)
    place = at((3, 14), p, r)
    running = Scan(Fold.SUM, load(array("x", (3, 14), dt.float64), place), r, dt.float64)
    value = apply("sub", running, Reduce(Fold.MAX, running, (r,), dt.float64))
    kernel = Kernel("s", (p,), (r,), (Store(array("y", (3, 14), dt.float64), place, value),))
    out = launch(SMALL, kernel)
    c = out["x"].reshape(3, 14).cumsum(1)
    close(out["y"], c - c.max(1, keepdims=True), dt.float64, 8)


# -- positions that are data


@both
def test_gather(device: InterpretDevice) -> None:
    out = launch(device, tk.gather(6, 5, 3), i=np.array([0, 4, 2, 2, 1, 3]))
    np.testing.assert_array_equal(out["y"].reshape(6, 3), out["x"].reshape(5, 3)[out["i"]])


@both
@pytest.mark.parametrize("bad", [5, -1, 2**40])
def test_position_out_of_range(device: InterpretDevice, bad: int) -> None:
    message = re.escape(f"index {bad} is out of bounds for dimension 0 with size 5 (train.py:31)")
    with pytest.raises(IndexError, match=message):
        launch(device, tk.gather(6, 5, 3), i=np.array([0, 4, bad, 2, 1, 3]))
    before = tk.sample(array("y", (5, 3)), 9)
    kernel = tk.update("set", 3, 5, 3)
    buffers = {"y": before.copy(), "i": np.array([bad, bad, bad]), "g": np.zeros(9, np.float32)}
    with pytest.raises(IndexError, match=message):
        device.compile(kernel)([buffers[b.name] for b in (*kernel.outputs, *kernel.inputs)], [])
    np.testing.assert_array_equal(buffers["y"], before)  # nothing was written elsewhere


@both
@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.int64], ids=str)
def test_update(device: InterpretDevice, mode: str, dtype: DType) -> None:
    kernel = tk.update(mode, 9, 4, 3, dtype)
    y = tk.sample(array("y", (4, 3), dtype), 5).reshape(4, 3)
    i = np.array([0, 3, 3, 1, 0, 3, 1, 3, 0])
    out = launch(device, kernel, y=y, i=i)
    g, expected = out["g"].reshape(9, 3), y.copy()
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for k, row in enumerate(i):
        expected[row] = g[k] if mode == "set" else combine[mode](expected[row], g[k])
    np.testing.assert_array_equal(out["y"].reshape(4, 3), expected)


@pytest.mark.sampled(3)
@both
@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("width", [1, 3, 20])
def test_grouped_update(device: InterpretDevice, mode: str, width: int) -> None:
    """Groups of one value, of a few, of many, one at either end; the elements between are kept."""
    i = np.repeat([7, 0, 3, 9, 2, 5], [1, 30, 3, 1, 2, 60])
    kernel = tk.update(mode, i.size, 10, width, dt.float32, grouped=True)
    y = tk.sample(array("y", (10, width)), 5).reshape(10, width)
    out = launch(device, kernel, y=y, i=i)
    g, expected = out["g"].reshape(-1, width).astype(np.float64), y.astype(np.float64)
    ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    if mode == "set":
        expected[i] = g
    else:
        ufunc[mode].at(expected, i, g)
    np.testing.assert_allclose(out["y"].reshape(10, width), expected, rtol=1e-5, atol=1e-5)


# -- sorted words


@both
@pytest.mark.parametrize("dtype", [dt.int32, dt.int64], ids=str)
@pytest.mark.parametrize("rows, length", [(5, 1), (3, 7), (2, 64), (1, 200)])
def test_sort(device: InterpretDevice, dtype: DType, rows: int, length: int) -> None:
    x = words(rows, length, dtype)
    out = launch(device, tk.ordered(rows, length, dtype=dtype), x=x)
    np.testing.assert_array_equal(out["y"].reshape(x.shape), np.sort(x, axis=1))


@both
@pytest.mark.parametrize("dtype", [dt.int32, dt.int64], ids=str)
@pytest.mark.parametrize(
    "rows, run", [(1, 1), (5, 3), (2, 16), pytest.param(1, 200, marks=pytest.mark.slow)]
)
def test_merge(device: InterpretDevice, dtype: DType, rows: int, run: int) -> None:
    """Runs of random numbers, and such that one is all before or after the other."""
    x = np.sort(words(rows, 2 * run, dtype).reshape(rows, 2, run), axis=2)
    for case in (x, np.sort(x.reshape(rows, -1)), np.sort(x.reshape(rows, -1))[:, ::-1]):
        case = np.sort(case.reshape(rows, 2, run), axis=2).reshape(rows, 2 * run)
        out = launch(device, tk.ordered(rows, 2 * run, run, dtype), x=case)
        np.testing.assert_array_equal(out["y"].reshape(case.shape), np.sort(case, axis=1))


def words(rows: int, length: int, dtype: DType) -> np.ndarray:
    """Some of them alike, and the largest and the smallest one."""
    limits = np.iinfo(dtype.np)
    x = np.random.default_rng(3).integers(-9, 9, (rows, length), dtype.np)
    x[:, :: max(length // 3, 2)] = limits.max
    x[:, length // 2] = limits.min
    return x


# -- bundles


@both
def test_bundle(device: InterpretDevice) -> None:
    bundle = tk.sgd((5, 130, 64, 7))
    held = [tk.sample(b, i) for i, b in enumerate((*bundle.outputs, *bundle.inputs))]
    expected = [held[i] - np.float32([0.5, 0.25][i % 2]) * held[4 + i] for i in range(4)]
    rates = {0: 0.5, 1: 0.25}
    device.compile(bundle)(held, [rates[s.slot] for s in bundle.scalars])
    for got, want in zip(held, expected):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@both
def test_bundle_whose_sizes_coincide_differently(device: InterpretDevice) -> None:
    members = []
    for i, (rows, columns) in enumerate([(3, 4), (4, 4), (5, 2)]):
        p, q = Axis("p0", rows), Axis("p1", columns)
        x, y = array(f"x{i}", (rows, columns)), array(f"y{i}", (columns, rows))
        value = load(x, at((rows, columns), p, q))
        members.append(Kernel("t", (q, p), (), (Store(y, at((columns, rows), q, p), value),)))
    bundle = Bundle(tuple(members))
    held = [tk.sample(b, i) for i, b in enumerate((*bundle.outputs, *bundle.inputs))]
    device.compile(bundle)(held, [])
    for y, x, (rows, columns) in zip(held, held[3:], [(3, 4), (4, 4), (5, 2)]):
        np.testing.assert_array_equal(y.reshape(columns, rows), x.reshape(rows, columns).T)


@both
def test_sizes_that_all_members_share_are_one_argument(device: InterpretDevice) -> None:
    """The members turn their axes around, and store what they read along the way too: divisions are
    written once, and what lies in the order of the points is read and stored by vectors."""
    shapes = [(2, 9, 16), (3, 9, 4), (2, 12, 12)]
    members = []
    for i, (a, b, c) in enumerate(shapes):
        p, q, r = (Axis(f"p{n}", extent) for n, extent in enumerate((a, b, c)))
        turned = load(array(f"x{i}", (a, c, b)), at((a, c, b), p, r, q))
        plain = load(array(f"z{i}", (a, b, c)), at((a, b, c), p, q, r))
        y, w = array(f"y{i}", (a, b, c)), array(f"w{i}", (a, c, b))
        stores = (
            Store(y, at((a, b, c), p, q, r), apply("mul", turned, plain)),
            Store(w, at((a, c, b), p, r, q), plain),
        )
        members.append(Kernel("t", (p, q, r), (), stores))
    bundle = Bundle(tuple(members))
    buffers = (*bundle.outputs, *bundle.inputs)
    held = [tk.sample(b, i) for i, b in enumerate(buffers)]
    device.compile(bundle)(held, [])
    found = {b.name: array for b, array in zip(buffers, held, strict=True)}
    for i, (a, b, c) in enumerate(shapes):
        x, w = (found[f"{name}{i}"].reshape(a, c, b) for name in "xw")
        z, y = (found[f"{name}{i}"].reshape(a, b, c) for name in "zy")
        np.testing.assert_array_equal(y, x.transpose(0, 2, 1) * z)
        np.testing.assert_array_equal(w, z.transpose(0, 2, 1))
    text = emit(bundle, Schedule(block=1024)).body
    assert text.count("// s") <= 3 and "tl.load(in0 + p, " in text and "tl.store(out0 + p, " in text
    assert "int64)\n    p = " not in text  # no place needs 64 bits


def test_a_size_that_a_shared_argument_has_not() -> None:
    """What shared names make alike is written once, so the numbers behind it come earlier. Complex
    `lu_solve` on a GPU has such a bundle."""
    sizes = Sizes(apart=True, same={"s0": "s0", "s1": "s0", "s2": "s2", "s3": "s0"})
    assert [sizes.argument(n) for n in (4, 8, 8, 4)] == ["s0", "s1", "s2", "s0"]


def test_bundle_of_unlike_members() -> None:
    p = Axis("p0", 4)
    members = tuple(
        Kernel(
            "k",
            (p,),
            (),
            (Store(array("y", (4,)), of(p), apply(n, load(array("x", (4,)), of(p)))),),
        )
        for n in ("exp", "sin")
    )
    with pytest.raises(ValueError, match="differ in more than sizes"):
        emit(Bundle(members), Schedule())


# -- edges


def test_empty_kernels() -> None:
    p, r = Axis("p0", 0), Axis("r0", 0)
    y = array("y", (0,))
    launch(LARGE, Kernel("none", (p,), (), (Store(y, of(p), number(1.0)),)))
    q = Axis("p0", 3)
    x = load(array("x", (3, 0)), at((3, 0), q, r))
    for device in (LARGE, SMALL):
        value = Reduce(Fold.SUM, x, (r,), dt.float32)
        kernel = Kernel("sum", (q,), (r,), (Store(array("y", (3,)), of(q), value),))
        np.testing.assert_array_equal(launch(device, kernel)["y"], 0)
        scalar = Kernel("fill", (), (), (Store(array("y", ()), constant(0), number(2.0)),))
        assert launch(device, scalar)["y"] == 2


def test_interpreting_leaves_triton_as_it_was() -> None:
    import triton.language as tl

    def state() -> list[Any]:
        return [tl.sum, tl.load, tl.core.load, tl.tensor.__add__, tl.range, tl.math.exp]

    before = state()
    launch(LARGE, activation(2, 2), [1.0])
    with pytest.raises(IndexError):
        launch(LARGE, tk.gather(2, 2, 2), i=np.array([7, 7]))
    assert state() == before
    assert "__index__" not in vars(tl.tensor)


def test_interprets_without_torch(run_python: Callable[..., str]) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.modules['torch'] = None\n"
        "import numpy as np, triton_kernels as tk\n"
        "from tilewright.runtime.interpret import InterpretDevice\n"
        "y, x = np.zeros(6, np.float32), np.ones(6, np.float32)\n"
        "kernel = tk.elementwise('exp', 6, [tk.dt.float32], tk.dt.float32)\n"
        "InterpretDevice().compile(kernel)([y, x], [])\n"
        "print(np.allclose(y, np.e))"
    )
    assert run_python(code, str(SUPPORT)).strip() == "True"
