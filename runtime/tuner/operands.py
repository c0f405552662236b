"""Operands for measuring a kernel, and the expected results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.kernel import Buffer, Bundle, Dot, Kernel, Load
from tilewright.codegen.kernel.index import Data, walk
from tilewright.ir.dtype import BOOL, FLOAT, DType

from ..cpu.numpy import NumpyDevice


@dataclass(frozen=True)
class Case:
    """Operands as arrays with one axis. before: the outputs before a launch; expected: the outputs
    after a launch with `inputs` and `scalars`."""

    before: Sequence[np.ndarray]
    inputs: Sequence[np.ndarray]
    scalars: Sequence[float]
    expected: Sequence[np.ndarray]


def case_of(kernel: Kernel | Bundle) -> Case:
    """Operands for a generated kernel, with the results of its NumPy program."""
    inputs, scalars = inputs_of(kernel), scalars_of(kernel)
    before = [np.zeros(b.size, b.dtype.np) for b in kernel.outputs]  # some kernels add to them
    expected = [each.copy() for each in before]
    NumpyDevice().compile(kernel)([*expected, *inputs], scalars)
    return Case(before, inputs, scalars, expected)


def inputs_of(kernel: Kernel | Bundle) -> list[np.ndarray]:
    """Numbers for a generated kernel's inputs; those that are positions or bounds are valid."""
    members = kernel.members if isinstance(kernel, Bundle) else (kernel,)
    random = np.random.default_rng(0)
    sizes = {b: n for k in members for b, n in _positions(k).items()}
    totals = {b: n for k in members for b, n in _bounds(k).items()}
    return [
        np.linspace(0, totals[b], b.size).astype(b.dtype.np)
        if b in totals
        else operand(b.dtype, b.size, sizes.get(b), random)
        for b in kernel.inputs
    ]


def scalars_of(kernel: Kernel | Bundle) -> list[float]:
    """Numbers for a generated kernel's scalars."""
    return [_scalar(v.dtype) for v in kernel.scalars]


def _positions(kernel: Kernel) -> dict[Any, int]:
    """The buffers whose elements are positions -> the number of valid positions."""
    found: dict[Any, int] = {}
    for value in kernel.values:
        for index in value.indices():
            for atom in walk(index):
                if isinstance(atom, Data):
                    _mark(atom.value, atom.size, found)
    for store in kernel.stores:
        for atom in walk(store.offset):
            if isinstance(atom, Data):
                _mark(atom.value, atom.size, found)
    return found


def _bounds(kernel: Kernel) -> dict[Buffer, int]:
    """The buffers that hold bounds of groups -> the number of rows that the groups divide."""
    return {
        v.segment.first.buffer: v.segment.along.extent
        for v in kernel.values
        if isinstance(v, Dot) and v.segment is not None and isinstance(v.segment.first, Load)
    }


def _mark(value: Any, size: int, found: dict[Any, int]) -> None:
    buffer = getattr(value, "buffer", None)
    if buffer is not None:
        found[buffer] = min(size, found.get(buffer, size))
    for operand in value.operands():
        _mark(operand, size, found)


_DRAWN = 4_194_301
"""Numbers that are drawn for one operand, at most; it repeats them. Drawing the half billion of a
language model's head takes ten seconds. A prime, so that rows differ."""


def operand(dtype: DType, count: int, positions: int | None, random: Any) -> np.ndarray:
    """Numbers that give NaN in no op, and whose sums don't cancel."""
    drawn = min(count, _DRAWN)
    if dtype.category == BOOL:
        block = random.integers(0, 2, drawn).astype(bool)
    elif dtype.category == FLOAT:
        block = random.uniform(0.25, 1.0, drawn).astype(dtype.np)
    else:
        block = random.integers(0, positions or 100, drawn).astype(dtype.np)
    return block if drawn == count else np.resize(block, count)


def _scalar(dtype: DType) -> float | int | bool:
    return 0.5 if dtype.category == FLOAT else dtype.category == BOOL or 1
