"""Kernels evaluated point by point in float64, straight from the semantics."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.codegen.kernel import (
    Apply,
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
    Sort,
    Value,
)
from tilewright.codegen.kernel.index import Axis, Data, FloorDiv, Index
from tilewright.ir import reference
from tilewright.ir.dtype import FLOAT, DType
from tilewright.ir.ops.generate import philox4x32
from tilewright.ir.ops.unary import cast

Point = dict[Axis, int]


def wide(dtype: DType) -> Any:
    """The NumPy type that represents a value of `dtype` here."""
    return np.float64 if dtype.category == FLOAT else dtype.np.type


class Oracle:
    """Runs a kernel over arrays: {buffer name: array}. Stores go to copies of the outputs."""

    def __init__(self, kernel: Kernel, arrays: dict[str, np.ndarray], scalars: list[Any]):
        self.kernel = kernel
        self.memory = {
            n: (a.reshape(-1).astype(np.float64) if a.dtype.kind in "fV" else a.reshape(-1).copy())
            for n, a in arrays.items()
        }
        self.before = {n: a.copy() for n, a in self.memory.items()}
        self.scalars = {v.slot: s for v, s in zip(kernel.scalars, scalars, strict=True)}
        self.axes: dict[int, tuple[Axis, ...]] = {}  # on which a value depends
        self.memo: dict[Any, Any] = {}

    def run(self) -> dict[str, np.ndarray]:
        with np.errstate(all="ignore"):
            for store in self.kernel.stores:
                axes = store.value.axes() | store.offset.axes()
                order = [a for a in (*self.kernel.parallel, *self.kernel.reduction) if a in axes]
                buffer = self.memory[store.buffer.name]
                for point in points(order):
                    at = self.index(store.offset, point)
                    value = self.value(store.value, point)
                    if store.mode in ("add", "mul"):
                        old = buffer[at]
                        value = old + value if store.mode == "add" else old * value
                    elif store.mode in ("max", "min"):
                        old = buffer[at]
                        pick = np.maximum if store.mode == "max" else np.minimum
                        value = pick(old, value)
                    buffer[at] = value
        return self.memory

    def index(self, index: Index, point: Point) -> int:
        total = index.const
        for atom, coefficient in index.terms:
            if isinstance(atom, Axis):
                part = point[atom]
            elif isinstance(atom, Data):
                part = int(self.value(atom.value, point))
                if not 0 <= part < atom.size:
                    raise IndexError(part)
            else:
                inner = self.index(atom.index, point)
                divided = isinstance(atom, FloorDiv)
                part = inner // atom.divisor if divided else inner % atom.divisor
            total += part * coefficient
        return total

    def value(self, value: Value, point: Point) -> Any:
        axes = self.axes.get(id(value))
        if axes is None:
            axes = self.axes[id(value)] = tuple(value.axes())
        key = (id(value), *map(point.get, axes))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = wide(value.dtype)(self.compute(value, point))
        return found

    def compute(self, value: Value, point: Point) -> Any:
        if isinstance(value, Load):
            at = self.index(value.offset, point)
            assert at >= 0, "a load before its buffer"
            return self.before[value.buffer.name][at]
        if isinstance(value, Constant):
            return value.value
        if isinstance(value, Scalar):
            number = self.scalars[value.slot]
            if value.dtype.np.kind in "iu":
                return np.uint64(number % 2**64).astype(value.dtype.np)
            return number
        if isinstance(value, Position):
            return self.index(value.index, point)
        if isinstance(value, RandomBits):
            seed, offset, at = (
                int(self.value(value.seed, point)) % 2**64,
                int(self.value(value.offset, point)) % 2**64,
                self.index(value.index, point),
            )
            low = 2**32 - 1
            counter = (at & low, at >> 32, offset & low, offset >> 32)
            word, below, *_ = philox4x32(counter, (seed & low, seed >> 32))
            if value.dtype.itemsize == 4:
                return word
            return word.astype(np.uint64) << np.uint64(32) | below.astype(np.uint64)
        if isinstance(value, Guard):
            for c in value.conditions:
                if not c.low <= self.index(c.index, point) < c.high:
                    return self.value(value.outside, point)
            return self.value(value.inside, point)
        if isinstance(value, Apply):
            args = [np.asarray(self.value(a, point)) for a in value.args]
            if value.op is cast:
                target = value.target or value.dtype
                if target.itemsize == 2 and target.category == FLOAT:
                    return args[0].astype(np.float32).astype(target.np).astype(np.float64)
                return args[0].astype(wide(target))
            return reference.elementwise_function(value.op, len(args))(*args, wide(value.dtype))
        if isinstance(value, Dot):
            total = wide(value.dtype)(0)
            for extra in points(value.over):
                here = {**point, **extra}
                segment = value.segment
                if segment is not None:
                    first, stop = (self.value(v, here) for v in (segment.first, segment.stop))
                    if not first <= here[segment.along] < stop:
                        continue
                factors = (value.a, value.b, *value.scales)
                total = total + math.prod(self.value(f, here) for f in factors)
            return total
        if isinstance(value, Reduce):
            every = [self.value(value.arg, {**point, **extra}) for extra in points(value.over)]
            return fold(value.op.value, np.asarray(every, dtype=wide(value.arg.dtype)), value.dtype)
        if isinstance(value, Scan):
            before = range(point[value.along] + 1)
            every = [self.value(value.arg, {**point, value.along: i}) for i in before]
            return fold(value.op.value, np.asarray(every, dtype=wide(value.arg.dtype)), value.dtype)
        assert isinstance(value, (Sort, Ordered))
        along = value.along
        every = np.asarray(
            [self.value(value.arg, {**point, along: i}) for i in range(along.extent)]
        )
        if isinstance(value, Ordered):
            return np.sort(every)[point[along]]
        keys = [(np.isnan(v) if every.dtype.kind == "f" else False, v) for v in every]
        order = sorted(
            range(len(keys)), key=lambda i: (keys[i][0], 0 if keys[i][0] else keys[i][1])
        )
        if value.descending:
            order = sorted(
                range(len(keys)), key=lambda i: (not keys[i][0], 0 if keys[i][0] else -keys[i][1])
            )
        return order[point[along]]


def points(axes: Any) -> Any:
    """Every point of some axes, row-major."""
    for place in itertools.product(*(range(a.extent) for a in axes)):
        yield dict(zip(axes, place))


def fold(op: str, every: np.ndarray, dtype: DType) -> Any:
    if op in ("sum", "prod"):
        return getattr(np, op)(every, dtype=wide(dtype))
    if op in ("any", "all", "argmax", "argmin"):
        return getattr(np, op)(every)
    if len(every) == 0:
        if every.dtype.kind == "f":
            return -np.inf if op == "max" else np.inf
        limits = np.iinfo(every.dtype)
        return limits.min if op == "max" else limits.max
    return getattr(np, op)(every)
