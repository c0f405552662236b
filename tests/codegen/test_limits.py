"""The limits of integer values, against all the numbers that the values take."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kernels import apply, const

from tilewright.codegen.kernel import Apply, Load, Position, Value
from tilewright.codegen.kernel.index import Axis, Data, of, walk
from tilewright.codegen.kernel.limits import limits
from tilewright.codegen.kernel.mlir_printer import parse_kernel, print_kernel
from tilewright.codegen.kernel.structure import structure
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import NUMPY
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.shape import Size

P, Q = Axis("p", 7), Axis("q", 5)
INT = dt.int64


def number(value: int) -> Value:
    return const(value, INT)


def drawn(rng: np.random.Generator, depth: int) -> Value:
    """An expression of positions and numbers."""
    if not depth:
        start = [Position(of(P), INT), Position(of(Q), INT), number(int(rng.integers(-9, 9)))]
        return start[rng.integers(3)]
    name = str(rng.choice("abs neg add sub maximum minimum where".split()))
    if name in ("abs", "neg"):
        return apply(name, drawn(rng, depth - 1))
    a, b = drawn(rng, depth - 1), drawn(rng, depth - 1)
    if name == "where":
        return apply(name, apply("lt", a, b, dtype=dt.bool_), a, b, dtype=INT)
    return apply(name, a, b)


NUMPY_FORMS = {
    "abs": abs,
    "neg": lambda a: -a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "maximum": max,
    "minimum": min,
    "lt": lambda a, b: a < b,
    "where": lambda c, a, b: a if c else b,
}


def computed(value: Value, p: int, q: int) -> int:
    if isinstance(value, Apply):
        args = [computed(a, p, q) for a in value.args]
        return NUMPY_FORMS[value.op.name](*args)  # type: ignore[no-any-return, operator]
    if isinstance(value, Position):
        return p if value.index == of(P) else q
    return int(value.value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(40))
def test_all_numbers_lie_within(seed: int) -> None:
    rng = np.random.default_rng(seed)
    value = drawn(rng, 1 + seed % 5)
    low, high = limits(value)
    found = [computed(value, p, q) for p, q in itertools.product(range(7), range(5))]
    assert low <= min(found) and max(found) <= high


def test_limits_that_are_reached() -> None:
    place = apply("abs", apply("sub", Position(of(P), INT), number(2)))
    assert limits(place) == (0, 4)
    assert limits(apply("sub", number(4), place)) == (0, 4)
    assert limits(apply("cast", Position(of(P), dt.int32), dtype=INT)) == (0, 6)


def test_what_may_be_anything() -> None:
    whole = (-(1 << 63), (1 << 63) - 1)
    assert limits(apply("cast", const(3.0), dtype=INT)) == whole  # as a NaN would be
    assert limits(apply("add", number((1 << 63) - 1), Position(of(P), INT))) == whole  # wraps
    assert limits(apply("neg", apply("cast", const(2.0), dtype=dt.uint8))) == (0, 255)


def reflecting(size: int, place: int) -> list[Data]:
    """The positions of the kernel that reads x[size] at place - |place - i| for i below 7."""
    x = ops.leaf(0, Size((size,)), dt.float32)
    i = ops.iota(7)
    (step,) = compile_graph([ops.gather(x, place - ops.abs(i - place), 0)], NUMPY).steps
    kernel = step.kernel
    assert structure(parse_kernel(print_kernel(kernel))) == structure(kernel)
    loads = [v for v in kernel.values if isinstance(v, Load)]
    return [a for v in loads for a in walk(v.offset) if isinstance(a, Data)]


def test_positions_that_need_no_check() -> None:
    (data,) = reflecting(4, 3)
    assert data.holds
    (data,) = reflecting(3, 3)  # the position 3 is outside
    assert not data.holds
