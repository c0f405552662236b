"""Calls of the host's libraries: steps of a program beside its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.host import results_of

from ..kernel import Scalar


@dataclass(frozen=True, eq=False)
class Routine:
    """A library's routine in the place of a kernel.

    attrs: those of its nodes, without the index of a result. inputs, outputs: the shapes of its
    operands and results; buffers may have others, with the elements in the same order.
    """

    op: Op
    attrs: tuple[Any, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """None: all that it reads are operands."""
        return ()

    def __str__(self) -> str:
        given = ", ".join(map(str, (*self.inputs, *self.attrs)))
        return f"routine {self.name}({given}) -> {', '.join(map(str, self.outputs))}"

    def __call__(self, buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Fill the buffers of the results, which stand before those of the operands."""
        count = len(self.outputs)
        arrays = [b.reshape(s) for b, s in zip(buffers[count:], self.inputs, strict=True)]
        assert self.op.routine is not None
        with np.errstate(all="ignore"):
            results = self.op.routine(*arrays, *self.attrs)
        for buffer, result in zip(buffers[:count], results, strict=True):
            np.copyto(buffer, result.reshape(buffer.shape))


_made: WeakValueDictionary[Any, Routine] = WeakValueDictionary()


def routine_of(node: Node) -> Routine:
    """The routine that computes a node, one object for all calls alike."""
    inputs = tuple([tuple(o.shape) for o in node.operands])
    attrs = node.attrs[:-1]
    key = node.op, attrs, inputs
    found = _made.get(key)
    if found is None:
        outputs = tuple([tuple(each.shape) for each in results_of(node)])
        found = _made[key] = Routine(node.op, attrs, inputs, outputs)
    return found
