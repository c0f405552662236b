"""The math functions of the LLVM emitter against float64, over all of float32."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tilewright.codegen.llvm.math.expression import definition, symbol
from tilewright.ir.numeric import incomplete_gamma
from tilewright.runtime.native import host, jit

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

LANES = {"float": 16, "double": 8}
NUMPY = {"float": np.float32, "double": np.float64}


@functools.cache
def native(name: str, kind: str, count: int) -> Callable[..., np.ndarray]:
    """A function of the emitter, applied to arrays."""
    lanes = LANES[kind]
    made, full = definition(name, kind, lanes), f"<{lanes} x {kind}>"
    parameters = ", ".join(f"ptr %p{i}" for i in range(count))
    loads = "\n".join(
        f"  %a{i} = getelementptr {kind}, ptr %p{i}, i64 %i\n"
        f"  %v{i} = load {full}, ptr %a{i}, align 4"
        for i in range(count)
    )
    given = ", ".join(f"{full} %v{i}" for i in range(count))
    code = f"""define void @apply({parameters}, ptr %out, i64 %n) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}
  %r = call {full} @{symbol(name, kind, lanes)}({given})
  %at = getelementptr {kind}, ptr %out, i64 %i
  store {full} %r, ptr %at, align 4
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    parts = [code, made.text, *made.functions.values(), *made.declared, host.machine().attributes]
    linked = jit.link("\n".join(parts), "apply")
    pointers = [ctypes.c_void_p] * (count + 1)
    function = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(linked.addresses["apply"])

    def apply(*xs: np.ndarray, code: jit.Linked = linked) -> np.ndarray:  # holds the code
        size, dtype = len(xs[0]), NUMPY[kind]
        padding = np.ones(-size % lanes, dtype)
        held = [np.concatenate([x.astype(dtype), padding]) for x in xs]
        out = np.empty(size + len(padding), dtype)
        function(*(x.ctypes.data for x in held), out.ctypes.data, len(out))
        return out[:size]

    return apply


def ulps(got: np.ndarray, exact: np.ndarray, dtype: Any) -> np.ndarray:
    """The error in units of the last place of the exact value; infinite where kinds differ."""
    wanted = exact.astype(dtype)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    size = np.clip(np.abs(exact.astype(np.float64)), np.finfo(dtype).tiny, np.finfo(dtype).max)
    unit = np.spacing(size.astype(dtype)).astype(np.float64)
    error = np.abs(got.astype(np.float64) - exact) / unit
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


_EDGES = (0.0, np.inf, 1, 2, 3, 0.5, 1e-45, 1e-40, 1.1754944e-38, 3.4028235e38, 88.7, 104)
SPECIAL = np.array([np.nan, 1 - 6e-8, 1 + 1.2e-7, *_EDGES, *(-e for e in _EDGES)], np.float32)


@functools.cache
def samples() -> np.ndarray:
    """Every 4099th bit pattern, what is special, and where most functions bend."""
    bits = np.arange(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [np.linspace(-a, a, 60001).astype(np.float32) for a in (1, 12, 110)]
    return np.concatenate([bits, SPECIAL, *near])


def scipy_special(name: str) -> Callable[..., Any]:
    def call(x: Any) -> Any:
        special = pytest.importorskip("scipy.special")
        return getattr(special, name)(x)

    return call


# Name, float64 reference, and the bound that the function's docstring states.
UNARY = [
    ("exp", np.exp, 1.1),
    ("exp2", np.exp2, 1.0),
    ("expm1", np.expm1, 0.51),
    ("log", np.log, 1.0),
    ("log2", np.log2, 1.5),
    ("log10", np.log10, 1.5),
    ("log1p", np.log1p, 1.5),
    ("sin", np.sin, 1.6),
    ("cos", np.cos, 1.6),
    ("tan", np.tan, 2.5),
    ("asin", np.arcsin, 1.5),
    ("acos", np.arccos, 1.5),
    ("atan", np.arctan, 1.5),
    ("sinh", np.sinh, 0.51),
    ("cosh", np.cosh, 0.51),
    ("tanh", np.tanh, 1.5),
    ("asinh", np.arcsinh, 0.51),
    ("acosh", np.arccosh, 0.51),
    ("atanh", np.arctanh, 0.51),
    ("sigmoid", scipy_special("expit"), 2.5),
    ("erf", scipy_special("erf"), 1.5),
    ("erfc", scipy_special("erfc"), 4),
    ("erfinv", scipy_special("erfinv"), 3),
    ("digamma", scipy_special("digamma"), 1.0),
]


@pytest.mark.parametrize("name, reference, bound", UNARY, ids=[u[0] for u in UNARY])
def test_float32(name: str, reference: Callable[..., Any], bound: float) -> None:
    x = samples()
    with np.errstate(all="ignore"):
        exact = np.asarray(reference(x.astype(np.float64)))
        got = native(name, "float", 1)(x)
        error = ulps(got, exact, np.float32)
        if name == "digamma":
            # Between the poles the roots are only right absolutely.
            error[(x < 0) & (np.abs(exact) < 1) & (np.abs(got - exact) < 1e-6)] = 0
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (x[worst], got[worst], exact[worst])
    zero = (got == 0) & (exact == 0) & (name != "erfinv")
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))


def test_lgamma() -> None:
    x = samples()
    with np.errstate(all="ignore"):
        exact = scipy_special("gammaln")(x.astype(np.float64))
        got = native("lgamma", "float", 1)(x)
        error = ulps(got, exact, np.float32)
        error[x == -np.inf] = 0  # C says inf, scipy -inf
        error[(x < 0) & (np.abs(got - exact) < 1e-6)] = 0
    worst = int(np.argmax(error))
    assert error[worst] <= 1, (x[worst], got[worst], exact[worst])


@pytest.mark.parametrize(
    "name, reference, bound",
    [("pow", np.power, 0.52), ("atan2", np.arctan2, 0.51), ("fmod", np.fmod, 0.0)],
    ids=["pow", "atan2", "fmod"],
)
def test_two_arguments(name: str, reference: Callable[..., Any], bound: float) -> None:
    rng = np.random.default_rng(0)
    count = 200_000

    def bits() -> np.ndarray:
        return rng.integers(0, 1 << 32, count, np.uint64).astype(np.uint32).view(np.float32)

    pairs = [
        (bits(), bits()),
        (np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))),
        (rng.uniform(0, 10, count), rng.uniform(-30, 30, count)),
        (rng.uniform(-5, 5, count), rng.integers(-9, 10, count)),
    ]
    a, b = (np.concatenate([p[i].astype(np.float32) for p in pairs]) for i in range(2))
    with np.errstate(all="ignore"):
        exact = reference(a.astype(np.float64), b.astype(np.float64))
        got = native(name, "float", 2)(a, b)
        error = ulps(got, exact, np.float32)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (a[worst], b[worst], got[worst], exact[worst])
    zero = (got == 0) & (exact == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))


def test_pow_of_float64() -> None:
    rng = np.random.default_rng(0)
    count = 20_000
    base = np.exp(rng.uniform(-700, 700, count))
    near = 1 + rng.uniform(-1e-3, 1e-3, count)
    edges = np.concatenate([SPECIAL, [5e-324, 1e-310, 1e300, 2.0**53, 2.0**53 - 1, 2.0**53 + 2]])
    edges = np.concatenate([edges, -edges]).astype(np.float64)
    pairs = [
        (np.repeat(edges, len(edges)), np.tile(edges, len(edges))),
        (rng.uniform(0.1, 1, count), rng.uniform(-1, 1, count)),
        (base, rng.uniform(-746, 710, count) / np.log(base)),
        (near, rng.uniform(-746, 710, count) / np.log(near)),
        (rng.uniform(-5, 5, count), rng.integers(-300, 300, count)),
    ]
    a, b = (np.concatenate([p[i].astype(np.float64) for p in pairs]) for i in range(2))
    with np.errstate(all="ignore"):
        exact = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
        got, wanted = native("pow", "double", 2)(a, b), exact.astype(np.float64)
        size = np.clip(np.abs(wanted), np.finfo(np.float64).tiny, np.finfo(np.float64).max)
        error = (np.abs(got - exact) / np.spacing(size)).astype(np.float64)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    error = np.where(same, 0, np.where(np.isnan(error), np.inf, error))
    # A subnormal result is rounded twice.
    error[(np.abs(wanted) < np.finfo(np.float64).tiny) & (error <= 1)] = 0
    worst = int(np.argmax(error))
    assert error[worst] <= 0.8, (a[worst], b[worst], got[worst], wanted[worst])
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(wanted[number]))
    # What is a float64 is found exactly.
    a, b = np.repeat(np.arange(1.0, 60), 9), np.tile(np.arange(9.0), 59)
    np.testing.assert_array_equal(native("pow", "double", 2)(a, b), a**b)


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma(name: str) -> None:
    """Beside the functions of float64, which are held to SciPy's."""
    rng = np.random.default_rng(0)
    count = 20_000
    a = 10.0 ** rng.uniform(-30, 7, count)
    near = 10.0 ** rng.uniform(-2, 3, count)
    pairs = [
        (np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))),
        (a, 10.0 ** rng.uniform(-30, 7, count)),
        (a, a * rng.uniform(0.6, 1.4, count)),
        (near, near * rng.uniform(0, 3, count)),
        (rng.uniform(0, 30, count), rng.uniform(0, 60, count)),
        (rng.uniform(0, 0.1, count), rng.uniform(0, 2, count)),
    ]
    a, x = (np.concatenate([p[i] for p in pairs]).astype(np.float32) for i in range(2))
    with np.errstate(all="ignore"):
        exact = getattr(incomplete_gamma, name)(a.astype(np.float64), x.astype(np.float64))
        error = ulps(native(name, "float", 2)(a, x), exact, np.float32)
    worst = int(np.argmax(error))
    assert error[worst] <= 0.6, (a[worst], x[worst], exact[worst])


@pytest.mark.parametrize(
    "name, reference",
    [("exp", np.exp), ("log", np.log), ("sin", np.sin), ("cos", np.cos)],
    ids=["exp", "log", "sin", "cos"],
)
def test_float64(name: str, reference: Callable[..., Any]) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 63, 200_000, np.uint64).view(np.float64)
    x = np.concatenate(
        [
            *(bits, -bits, np.linspace(-750, 750, 150_001), np.linspace(0.4, 2.5, 100_001)),
            *(SPECIAL.astype(np.float64), np.array([5e-324, 1e-310, 2.2e-308])),
            np.arange(-20_000, 20_000) * (math.pi / 2),
        ]
    )
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.longdouble))
        got = native(name, "double", 1)(x)
        wanted = exact.astype(np.float64)
        size = np.clip(np.abs(wanted), np.finfo(np.float64).tiny, np.finfo(np.float64).max)
        error = np.abs(got - exact) / np.spacing(size)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    error = np.where(same, 0, np.where(np.isnan(error), np.inf, error))
    worst = int(np.argmax(error))
    assert error[worst] <= 1, (x[worst], got[worst], wanted[worst])
