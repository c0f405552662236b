"""Random graphs as text. Each line makes one node, so a failing program can be read and run again.

A value has a bound. If it was computed without rounding from numbers on a binary grid, it also has
the fineness of the grid. Such exact values have the same bits on every engine. Only these are
compared, rounded and sorted, as otherwise the last bit would decide.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Kind
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.shape import Size

FLOATS = ("float16", "bfloat16", "float32", "float64")
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
INTEGERS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
DTYPES = ("float32",) * 6 + FLOATS + ("int64", "int32", "bool") + INTEGERS
DIMS = (0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257, 1000, 4100)
LIMIT = 20_000  # elements of a value

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
STEPS = ("sign", "floor", "ceil", "round", "trunc", "floor_divide", "remainder", "fmod")
TESTS = ("isnan", "isinf", "isfinite")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right")
ARITHMETIC = ("neg", "abs", "add", "sub", "mul", "maximum", "minimum", "relu", "copysign", "where")
APART = (
    "cast",
    "bitcast",
    "widened",
    "zeta",
    "igamma",
    "igammac",
    "gcd",
    "logical_not",
    "complex",
    "conj",
    "real",
    "imag",
)
SMOOTH = tuple(
    op.name
    for op in REGISTRY.values()
    if op.kind is Kind.ELEMENTWISE
    and hasattr(ops, op.name)  # else the compiler's own
    and op.name not in (*COMPARISONS, *STEPS, *TESTS, *BITS, *ARITHMETIC, *APART)
)
COMPOSITES = (
    "softmax({x}, {axis})",
    "log_softmax({x}, {axis})",
    "safe_softmax({x}, {axis})",
    "logsumexp({x}, ({axis},))",
    "mean({x}, ({axis},))",
    "gelu({x}, 'none')",
    "gelu({x}, 'tanh')",
    "silu({x})",
    "softplus({x}, 1.0, 20.0)",
    "mish({x})",
    "normalize({x}, ({axis},), 1e-05)",
    "rms_norm({x}, 1, {row})",
    "layer_norm({x}, 1, {row}, {row})",
    "dropout({x}, seed, offset, 0.25)",
)


@dataclass(frozen=True)
class Value:
    """A value of a program. bound: the largest magnitude; grid: elements are multiples of 2^-grid,
    None after rounding; wild: whether there may be infinities and NaN; final: whether no further
    value may read it."""

    name: str
    node: Node
    bound: float
    grid: int | None
    wild: bool = False
    final: bool = False

    @property
    def dtype(self) -> str:
        return self.node.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.node.shape)

    @property
    def is_float(self) -> bool:
        return self.node.dtype.is_floating_point

    @property
    def exact(self) -> bool:
        return self.grid is not None


@dataclass
class Program:
    """lines: (name, expression); data: the buffer of each leaf; scalars: their values.

    donated: (root, leaf) where the root may take the leaf's memory.
    """

    lines: list[tuple[str, str]] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    exact: dict[str, bool] = field(default_factory=dict)
    data: list[np.ndarray] = field(default_factory=list)
    scalars: list[Any] = field(default_factory=list)
    donated: list[tuple[int, int]] = field(default_factory=list)
    digits: int = 53  # the fewest that a float of the program has

    def nodes(self, wide: bool = False) -> dict[str, Node]:
        """The node of each line. wide: with float64 in the place of every other float type."""
        names = scope(wide)
        made: dict[str, Node] = {}
        for name, text in self.lines:
            names[name] = made[name] = eval(text, names)
        return made

    def __str__(self) -> str:
        lines = [f"{name} = {text}" for name, text in self.lines]
        lines += [f"roots {', '.join(self.roots)}; donated {self.donated}; scalars {self.scalars}"]
        return "\n".join(lines)


def scope(wide: bool) -> dict[str, Any]:
    """The names for expressions. With `wide`, short names of dtypes (`f32`) keep their meaning."""
    names: dict[str, Any] = {"ops": ops, "leaf": _leaf, "gradient": _gradient}
    for dtype in dtypes.ALL:
        names[dtype.short] = dtype
        widened = wide and dtype.is_floating_point
        names[dtype.name if dtype.name != "bool" else "bool_"] = (
            dtypes.float64 if widened else dtype
        )
    return names


def _leaf(place: int, shape: tuple[int, ...], dtype: DType) -> Node:
    node = ops.leaf(place, Size(shape), dtype)
    return ops.variable(node, place) if dtype.is_floating_point else node


def _gradient(y: Node, x: Node) -> Node:
    seed = ops.full_like(y, 1.0)
    return pullback({y: seed}, [x], create_graph=True).get(x, ops.zeros_like(x))


def named(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


class Writer:
    """Writes one program. small: with few elements, for engines that compute them one by one."""

    def __init__(self, choose: random.Random, small: bool = False):
        self.choose = choose
        self.program = Program()
        self.values: list[Value] = []
        self.limit = 300 if small else LIMIT
        dims = [d for d in DIMS if d <= 8] if small else DIMS
        self.dims = [choose.choice(dims) for _ in range(3)]
        self.names = scope(False)

    # ---- lines -------------------------------------------------------------------------------

    def line(
        self,
        text: str,
        bound: float = math.inf,
        grid: int | None = None,
        wild: bool = False,
        final: bool = False,
    ) -> Value:
        name = f"n{len(self.program.lines)}"
        node = eval(text, self.names)
        self.program.lines.append((name, text))
        self.names[name] = node
        dtype = node.dtype
        if dtype.is_floating_point:
            digits = DIGITS[dtype.name]
            self.program.digits = min(self.program.digits, digits)
            if grid is not None and bound * 2.0**grid > 2.0**digits:
                grid = None
        else:
            top = float(np.iinfo(dtype.np).max) if dtype is not dtypes.bool_ else 1.0
            bound, grid = min(bound, top), 0
        self.program.exact[name] = grid is not None
        value = Value(name, node, bound, grid, wild, final)
        self.values.append(value)
        return value

    def leaf(self, shape: tuple[int, ...], dtype: str, data: np.ndarray | None = None) -> Value:
        """A leaf of quarters between -2 and 2, of small integers, or of `data`."""
        place, kind = len(self.program.data), dtypes.named(dtype)
        rng = np.random.default_rng(self.choose.randrange(1 << 30))
        wild, grid, bound = False, 0, 1.0
        if data is not None:
            array = data
            bound = float(np.abs(data).max(initial=1))
        elif kind.is_floating_point:
            array, grid, bound = rng.integers(-8, 9, shape) / 4.0, 2, 2.0
            if array.size and self.choose.random() < 0.1:
                wild = True
                few = rng.integers(0, array.size, 3)
                array.flat[few] = rng.choice([np.inf, -np.inf, np.nan, -0.0], 3)
        elif dtype == "bool":
            array = rng.integers(0, 2, shape)
        else:
            array = rng.integers(-4 if kind.is_signed else 0, 5, shape)
            bound = 4.0
            if array.size and self.choose.random() < 0.2:
                limits = np.iinfo(kind.np)
                array = array.astype(kind.np)
                array.flat[rng.integers(0, array.size, 2)] = (limits.min, limits.max)
                bound = float(limits.max)
        self.program.data.append(np.asarray(array).astype(kind.np))
        return self.line(f"leaf({place}, {shape}, {named(dtype)})", bound, grid, wild)

    def scalar(self, value: Any, dtype: str) -> str:
        self.program.scalars.append(dtypes.named(dtype).np.type(value))
        return f"ops.scalar({len(self.program.scalars) - 1}, {dtype})"

    def constant(self, number: float, dtype: str) -> str:
        return f"ops.constant({number!r}, {named(dtype)})"

    # ---- picking -----------------------------------------------------------------------------

    def shape(self) -> tuple[int, ...]:
        dims = [d if self.choose.random() < 0.8 else 1 for d in self.dims]
        dims = dims[self.choose.randrange(len(dims) + 1) :]
        while math.prod(dims) > self.limit:
            dims[dims.index(max(dims))] = self.choose.choice((1, 2, 3))
        return tuple(dims)

    def pick(self, *dtypes_: str, exact: bool = False, tame: bool = False) -> Value:
        """A value of one of the dtypes, or of any if none is given. tame: with a small bound."""
        fits = [
            v
            for v in self.values
            if not v.final and (not dtypes_ or v.dtype in dtypes_) and (v.exact or not exact)
        ]
        if tame:
            fits = [v for v in fits if v.bound <= 64]
        if not fits or self.choose.random() < 0.1:
            return self.leaf(self.shape(), self.choose.choice(dtypes_ or DTYPES))
        return self.choose.choice(fits[-6:] if self.choose.random() < 0.6 else fits)

    def partner(self, x: Value, exact: bool = False) -> Value:
        """A value of the dtype of `x` whose shape broadcasts with that of `x`."""
        fits = []
        for v in self.values:
            if v.dtype != x.dtype or v.final or (exact and not v.exact):
                continue
            try:
                shape = np.broadcast_shapes(v.shape, x.shape)
            except ValueError:
                continue
            if math.prod(shape) <= self.limit:
                fits.append(v)
        if len(fits) > 1 and self.choose.random() < 0.8:
            return self.choose.choice(fits)
        return self.leaf(
            tuple(d if self.choose.random() < 0.8 else 1 for d in x.shape)[
                self.choose.randrange(x.node.rank + 1) :
            ],
            x.dtype,
        )

    def tamed(self, x: Value, limit: float = 4.0) -> Value:
        """`x`, scaled down if its bound is large."""
        if x.bound <= limit or not x.is_float:
            return x
        if x.exact and self.choose.random() < 0.5:
            low, high = self.constant(-2.0, x.dtype), self.constant(2.0, x.dtype)
            text = f"ops.minimum(ops.maximum({x.name}, {low}), {high})"
            return self.line(text, 2.0, x.grid, x.wild)
        return self.line(f"ops.sin({x.name})", 1.0, None, x.wild)

    def within(self, x: Value, low: float, high: float) -> Value:
        """`x`, brought between two numbers."""
        half, middle = (high - low) / 2, (high + low) / 2
        if -x.bound >= low and x.bound <= high and not x.wild:
            return x
        a, b = self.constant(half, x.dtype), self.constant(middle, x.dtype)
        text = f"ops.add(ops.mul(ops.sin({x.name}), {a}), {b})"
        return self.line(text, max(abs(low), abs(high)), None, x.wild)

    def axis(self, x: Value) -> int:
        return self.choose.randrange(x.node.rank)
