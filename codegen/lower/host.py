"""Calls of the host's libraries: steps of a program beside its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.host import results_of

from ..kernel import Scalar


@dataclass(frozen=True, eq=False)
class Routine:
    """A library's routine in the place of a kernel.

    attrs: those of its nodes, without the index of a result. inputs, outputs: the types of its
    operands and results. Buffers may have other shapes, with the elements in the same order, and
    are None where there are no elements.
    """

    op: Op
    attrs: tuple[Any, ...]
    inputs: tuple[tuple[tuple[int, ...], DType], ...]
    outputs: tuple[tuple[tuple[int, ...], DType], ...]

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """None: all that it reads are operands."""
        return ()

    def __str__(self) -> str:
        types = [[f"{d.short}{list(s)}" for s, d in each] for each in (self.inputs, self.outputs)]
        given = ", ".join([*types[0], *map(str, self.attrs)])
        return f"routine {self.name}({given}) -> {', '.join(types[1])}"

    def __call__(self, buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Fill the buffers of the results, which stand before those of the operands."""
        count = len(self.outputs)
        arrays = [
            np.empty(shape, dtype.np) if 0 in shape else buffer.reshape(shape)
            for buffer, (shape, dtype) in zip(buffers[count:], self.inputs, strict=True)
        ]
        assert self.op.routine is not None
        given: dict[str, Any] = {}
        if self.op.fills and buffers[0] is not None:
            given["out"] = buffers[0].reshape(self.outputs[0][0])
        with np.errstate(all="ignore"):
            results = self.op.routine(*arrays, *self.attrs, **given)
        for buffer, result in zip(buffers[:count], results, strict=True):
            if result.size and result is not given.get("out"):
                np.copyto(buffer, result.reshape(buffer.shape))


_made: WeakValueDictionary[Any, Routine] = WeakValueDictionary()


def routine_of(node: Node) -> Routine:
    """The routine that computes a node, one object for all calls alike."""
    inputs = tuple([(tuple(o.shape), o.dtype) for o in node.operands])
    attrs = node.attrs[:-1]
    key = node.op, attrs, inputs
    found = _made.get(key)
    if found is None:
        outputs = tuple([(tuple(each.shape), each.dtype) for each in results_of(node)])
        found = _made[key] = Routine(node.op, attrs, inputs, outputs)
    return found
