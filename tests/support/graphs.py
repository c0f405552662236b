"""Graphs for the tests of codegen: evaluation node by node, and random leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from kernel_interpreter import run_program

from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.target import Target
from tilewright.ir import ops
from tilewright.ir.node import Node, reachable
from tilewright.ir.op import Kind
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.reference import evaluate
from tilewright.runtime.device import Device
from tilewright.runtime.loops import launches_of


def random_leaves(roots: Sequence[Node], seed: int = 0, low: float = -2, high: float = 2) -> Any:
    """A value for each buffer and scalar that `roots` read."""
    rng = np.random.default_rng(seed)
    values: dict[Node, Any] = {}
    for node in reachable(roots):
        if node.op.kind is not Kind.LEAF:
            continue
        if node.dtype.is_floating_point:
            value = rng.uniform(low, high, node.shape)
        elif node.dtype.np.kind == "b":
            value = rng.integers(0, 2, node.shape)
        else:
            value = rng.integers(0, 3, node.shape)
        values[node] = np.asarray(value).astype(node.dtype.np)
    return values


def reference(roots: Sequence[Node], leaves: Mapping[Node, Any]) -> list[Any]:
    """Each root evaluated node by node."""
    known = dict(leaves)
    with np.errstate(all="ignore"):
        for node in reachable(roots):
            if node in known:
                continue
            if node.op.kind is Kind.CONSTANT:
                known[node] = np.asarray(ops.constant_value(node))
            else:
                known[node] = evaluate(node, [known[o] for o in node.operands])
    return [known[r] for r in roots]


def launch_program(
    device: Device,
    program: Program,
    leaves: Mapping[Node, Any],
    scalars: Mapping[int, Any] | None = None,
) -> list[np.ndarray]:
    """The values of a program's results, its kernels compiled for a device."""
    memory: list[Any] = [None] * len(program.slots)
    for node, slot in program.leaves.items():
        memory[slot] = np.ascontiguousarray(leaves[node])
    for step, launch in zip(program.steps, launches_of(device, program), strict=True):
        for slot in step.outputs:
            if memory[slot] is None:
                held = program.slots[slot]
                memory[slot] = np.full(held.shape, 77, dtype=held.dtype.np)
        numbers = [np.asarray((scalars or {})[s.slot]).item() for s in step.kernel.scalars]
        with np.errstate(all="raise"):
            launch([memory[s] for s in (*step.outputs, *step.inputs)], numbers)
    return [
        np.zeros(0, program.slots[s].dtype.np) if memory[s] is None else memory[s].reshape(-1)
        for s in program.results
    ]


def check(
    roots: Sequence[Node],
    target: Target,
    leaves: Mapping[Node, Any] | None = None,
    tolerance: float = 2e-5,
    device: Device | None = None,
) -> Program:
    """Compile, run the kernels, and compare with the graph's own values.

    device: launches the kernels; without one they are interpreted, one number at a time."""
    lowered = lower_graph(roots, check=True)
    values = random_leaves(lowered) if leaves is None else leaves
    program = compile_graph(lowered, target)
    buffers = {n: v for n, v in values.items() if n.op.name == "leaf"}
    scalars = {n.attrs[0]: v for n, v in values.items() if n.op.name == "scalar"}
    if device is None:
        results = run_program(program, buffers, scalars)
    else:
        results = launch_program(device, program, buffers, scalars)
    for root, result, expected in zip(lowered, results, reference(lowered, values), strict=True):
        wide = np.float64 if root.dtype.is_floating_point else root.dtype.np
        np.testing.assert_allclose(
            result.reshape(root.shape).astype(wide),
            expected.astype(wide),
            rtol=tolerance,
            atol=tolerance,
            err_msg=f"{root!r}\n" + "\n".join(program.report),
        )
    return program
