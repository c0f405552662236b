"""Whole graphs through fusion, the Triton emitter and the interpreter: every case of the op records
with its gradients, against evaluation node by node in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from graph_oracle import Case, assert_close, gradients, inner, random_like, run
from op_cases import CASES, WEIGHT, WEIGHT_LEAF

from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.target import CUDA, INTERPRET, Target
from tilewright.ir import ops
from tilewright.ir.node import Node, reachable
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.loops import launches_of

pytestmark = pytest.mark.triton

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


def compare(
    each: Case, target: Target, device: InterpretDevice, dtype: Any, tolerance: float
) -> None:
    values = each.leaves(dtype)
    inputs = [n for n in values if n.op is ops.variable]
    y = each.f(*values)
    if WEIGHT_LEAF in reachable([y]):
        if dtype is not None:
            pytest.skip("its class weights are float64")
        values[WEIGHT_LEAF] = WEIGHT
    roots = [y]
    if inputs and dtype is None:
        weight = ops.leaf("w", y.shape, y.dtype)
        values[weight] = random_like("w", y.shape)
        roots += gradients(inner(y, weight), inputs)
    held = {n.operands[0] if n.op is ops.variable else n: v for n, v in values.items()}
    expected = run(roots, values)
    for got, want in zip(interpret(roots, held, target, device), expected):
        if np.size(want):
            assert_close(np.asarray(got).reshape(want.shape).astype(want.dtype), want, tolerance)


@pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)
def test_value_and_gradients(each: Case) -> None:
    compare(each, INTERPRET, LARGE, None, 1e-9)


@pytest.mark.parametrize("each", CASES[::3], ids=lambda c: c.name)
def test_in_many_programs_and_steps(each: Case) -> None:
    compare(each, CUDA, SMALL, None, 1e-9)


@pytest.mark.parametrize("each", CASES[::2], ids=lambda c: c.name)
def test_in_float32(each: Case) -> None:
    compare(each, CUDA, LARGE, np.float32, 2e-5)
