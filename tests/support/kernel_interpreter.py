"""A direct interpreter of the kernel IR, which computes one number at a time. It is the oracle of
codegen: slow, and written from the definitions in codegen/kernel/ir.py alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.kernel import (
    Apply,
    Bundle,
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
    Segment,
    Sort,
    Value,
)
from tilewright.codegen.kernel.index import Axis, Data, FloorDiv, Index
from tilewright.codegen.lower.host import Routine
from tilewright.codegen.program import Loop, Program
from tilewright.ir.loop import order
from tilewright.ir.node import Node
from tilewright.ir.op import Fold
from tilewright.ir.ops.generate import philox4x32
from tilewright.ir.reference import elementwise_function

Point = dict[Axis, int]


class _Run:
    """One launch. buffers: flat arrays by the kernel's names."""

    def __init__(self, kernel: Kernel, buffers: dict[str, np.ndarray], scalars: Mapping[int, Any]):
        self.kernel, self.buffers, self.scalars = kernel, buffers, scalars
        self.memo: dict[Any, Any] = {}
        self.axes = {id(v): sorted(v.axes(), key=lambda a: a.name) for v in kernel.values}

    def index(self, index: Index, at: Point) -> int:
        total = index.const
        for atom, coefficient in index.terms:
            if isinstance(atom, Axis):
                value = at[atom]
            elif isinstance(atom, Data):
                value = int(self.value(atom.value, at))
                if not 0 <= value < atom.size:
                    raise IndexError(f"index {value} is out of bounds, size {atom.size}")
            else:
                inner = self.index(atom.index, at)
                assert inner >= 0, "emitters divide nonnegative numbers only"
                value = (
                    inner // atom.divisor if isinstance(atom, FloorDiv) else inner % atom.divisor
                )
            total += value * coefficient
        return total

    def value(self, value: Value, at: Point) -> Any:
        key = (id(value), *(at[a] for a in self.axes[id(value)]))
        if key not in self.memo:
            with np.errstate(all="ignore"):
                result = self.compute(value, at)
            self.memo[key] = np.asarray(result).astype(value.dtype.np)[()]
        return self.memo[key]

    def compute(self, value: Value, at: Point) -> Any:
        if isinstance(value, Load):
            return self.buffers[value.buffer.name][self.offset(value.offset, at)]
        if isinstance(value, Constant):
            return value.value
        if isinstance(value, Scalar):
            return self.scalars[value.slot]
        if isinstance(value, Position):
            return self.index(value.index, at)
        if isinstance(value, Apply):
            args = [self.value(a, at) for a in value.args]
            if value.target is not None:
                return args[0].astype(value.target.np)
            return elementwise_function(value.op, len(args))(*args, value.dtype.np)
        if isinstance(value, Guard):
            inside = all(c.low <= self.index(c.index, at) < c.high for c in value.conditions)
            return self.value(value.inside if inside else value.outside, at)
        if isinstance(value, RandomBits):
            i, seed, offset = (
                self.index(value.index, at),
                *(int(self.value(v, at)) & (2**64 - 1) for v in (value.seed, value.offset)),
            )
            low = 2**32 - 1
            counter = (i & low, i >> 32, offset & low, offset >> 32)
            word, below, *_ = philox4x32(counter, (seed & low, seed >> 32))
            if value.dtype.itemsize == 4:
                return word
            return word.astype(np.uint64) << np.uint64(32) | below.astype(np.uint64)
        return self.fold(value, at)

    def fold(self, value: Value, at: Point) -> Any:
        if isinstance(value, Dot):
            wide = np.float64 if value.dtype.is_floating_point else value.dtype.np.type
            points = self.points(value.over, at)
            if value.segment is not None:
                points = [p for p in points if self.is_within(value.segment, p)]
            factors = (value.a, value.b, *value.scales)
            return sum(math.prod(wide(self.value(f, p)) for f in factors) for p in points)
        if isinstance(value, Reduce):
            row = np.array([self.value(value.arg, p) for p in self.points(value.over, at)])
            if value.op in (Fold.SUM, Fold.PROD) and row.dtype.kind == "f":
                row = row.astype(np.float64)
            if value.op is Fold.LOGSUMEXP:
                return np.logaddexp.reduce(row.astype(np.float64))
            return getattr(np, value.op.value)(row)
        row = np.array([self.value(value.arg, p) for p in self.points((value.along,), at)])
        if isinstance(value, Scan):
            if value.op is Fold.LOGSUMEXP:
                return np.logaddexp.accumulate(row)[at[value.along]]
            if value.op in (Fold.MAX, Fold.MIN):
                return getattr(np, value.op.value + "imum").accumulate(row)[at[value.along]]
            return getattr(np, "cum" + value.op.value)(row)[at[value.along]]
        if isinstance(value, Ordered):
            return np.sort(row)[at[value.along]]
        assert isinstance(value, Sort)
        order = np.argsort(row, kind="stable")
        if value.descending:
            order = len(row) - 1 - np.argsort(row[::-1], kind="stable")[::-1]
        return order[at[value.along]]

    def is_within(self, segment: Segment, at: Point) -> bool:
        first, stop = (self.value(v, at) for v in (segment.first, segment.stop))
        return bool(first <= at[segment.along] < stop)

    def points(self, axes: Sequence[Axis], at: Point) -> list[Point]:
        extents = itertools.product(*(range(a.extent) for a in axes))
        return [{**at, **dict(zip(axes, point))} for point in extents]

    def offset(self, index: Index, at: Point) -> int:
        offset = self.index(index, at)
        assert offset >= 0, "out of bounds"
        return offset

    def run(self) -> None:
        kernel = self.kernel
        self.warm_up()
        written: dict[str, set[int]] = {}
        for store in kernel.stores:
            full = (store.offset.axes() | set(self.axes[id(store.value)])) & set(kernel.reduction)
            if kernel.is_chained:
                axes = (*kernel.parallel, *(a for a in kernel.reduction if a in full))
            else:
                axes = (*kernel.parallel, *(kernel.reduction if full or store.mode else ()))
            out = self.buffers[store.buffer.name]
            for at in self.points(axes, {}):
                offset, value = self.offset(store.offset, at), self.value(store.value, at)
                if store.mode is None:
                    assert offset not in written.setdefault(store.buffer.name, set())
                    written[store.buffer.name].add(offset)
                    out[offset] = value
                else:
                    self.update(out, offset, value, store.mode)
            if store.mode is None:
                assert len(written[store.buffer.name]) == store.buffer.size, "not all is written"

    def warm_up(self) -> None:
        """Compute operands before users, so that long chains don't overflow the stack. Values
        behind a guard must not be touched, so only unguarded values are computed here."""
        guarded: set[int] = set()
        for value in reversed(self.kernel.values):
            if isinstance(value, Guard) or id(value) in guarded:
                guarded.update(id(v) for v in value.operands())
        if len(self.kernel.values) < 200:
            return
        for value in self.kernel.values:
            if id(value) not in guarded:
                for at in self.points(self.axes[id(value)], {}):
                    self.value(value, at)

    def update(self, out: np.ndarray, at: int, value: Any, mode: str) -> None:
        ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
        out[at] = value if mode == "set" else ufunc[mode](out[at], value)


def run_kernel(
    kernel: Kernel | Bundle,
    outputs: Sequence[np.ndarray],
    inputs: Sequence[np.ndarray],
    scalars: Mapping[int, Any],
) -> None:
    """Run a kernel over flat arrays, in the order of its outputs and inputs."""
    for member in kernel.members if isinstance(kernel, Bundle) else (kernel,):
        outs, outputs = outputs[: len(member.outputs)], outputs[len(member.outputs) :]
        ins, inputs = inputs[: len(member.inputs)], inputs[len(member.inputs) :]
        buffers = {}
        for buffer, array in zip((*member.outputs, *member.inputs), (*outs, *ins), strict=True):
            assert array.size == buffer.size and array.dtype == buffer.dtype.np
            buffers[buffer.name] = array
        _Run(member, buffers, scalars).run()


def run_program(
    program: Program, leaves: Mapping[Node, Any], scalars: Mapping[int, Any] | None = None
) -> list[np.ndarray]:
    """The flat values of a program's results."""
    memory: list[Any] = [None] * len(program.slots)
    for node, slot in program.leaves.items():
        memory[slot] = np.ascontiguousarray(leaves[node]).reshape(-1)
    for step in program.steps:
        if isinstance(step.kernel, Loop):
            memory[step.outputs[0]] = run_loop(step.kernel, [memory[s] for s in step.inputs])
            continue
        for slot in step.outputs:
            if memory[slot] is None:
                size = int(np.prod(program.slots[slot].shape))
                memory[slot] = np.full(size, 77, dtype=program.slots[slot].dtype.np)
        outputs, inputs = [memory[s] for s in step.outputs], [memory[s] for s in step.inputs]
        if isinstance(step.kernel, Routine):
            step.kernel([*outputs, *inputs], ())
            continue
        assert all(array is not None for array in inputs), "read before it is written"
        run_kernel(step.kernel, outputs, inputs, scalars or {})
    return [
        memory[s] if memory[s] is not None else np.zeros(0, program.slots[s].dtype.np)
        for s in program.results
    ]


def run_loop(loop: Loop, operands: Sequence[np.ndarray]) -> np.ndarray:
    """A loop's output: the results of all steps, one after another."""
    parts = [a.reshape(loop.count, -1) for a in operands[: loop.sequences]]
    after = loop.sequences + loop.states
    now, whole = list(operands[loop.sequences : after]), operands[after:]
    made: dict[int, list[np.ndarray]] = {}
    for t in order(loop.count, loop.reverse):
        bound = [*(p[t] for p in parts), *now, *whole]
        leaves = {n: bound[n.attrs[0]].reshape(n.shape) for n in loop.body.leaves}
        made[t] = run_program(loop.body, leaves)
        now = made[t][: loop.states]
    return np.concatenate([made[t][k] for k in range(len(loop.shapes)) for t in range(loop.count)])
