"""Whole graphs through Triton's interpreter, in few large programs or in many small ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.target import Target
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.loops import launches_of

LARGE = InterpretDevice()


SMALL = InterpretDevice(
    lambda kernel, target: Schedule(
        block=8, block_r=4, looped=True, block_m=16, block_n=16, block_k=16, group_m=2
    )
)


def interpret(
    roots: Sequence[Node], values: Mapping[Node, Any], target: Target, device: InterpretDevice
) -> list[Any]:
    """The values of `roots`, cut into kernels as for `target`, each of them interpreted."""
    program = compile_graph(lower_graph(roots), target)
    memory: list[Any] = [None] * len(program.slots)
    for node, slot in program.leaves.items():
        memory[slot] = np.ascontiguousarray(values[node])
    for step, launch in zip(program.steps, launches_of(device, program), strict=True):
        for slot in step.outputs:
            if memory[slot] is None:
                memory[slot] = np.full(program.slots[slot].shape, 77, program.slots[slot].dtype.np)
        buffers = [memory[s] for s in (*step.outputs, *step.inputs)]
        launch(buffers, [values[s.slot] for s in step.kernel.scalars])
    return [memory[s] for s in program.results]
