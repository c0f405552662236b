"""Graphs through codegen and the NumPy emitter, against their evaluation node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import graphs
import numpy as np
import pytest
import test_lower

from tilewright.codegen.program import Program
from tilewright.codegen.target import CUDA, NUMPY, Target
from tilewright.ir.dtype import bfloat16, float16, float32
from tilewright.ir.node import Node
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.loops import launches_of

TARGETS = pytest.mark.parametrize("target", [NUMPY, CUDA], ids=lambda t: t.name)


def run_program(
    program: Program, leaves: Mapping[Node, Any], scalars: Mapping[int, Any] | None = None
) -> list[np.ndarray]:
    """The values of a program's results, its kernels compiled for the CPU."""
    device = NumpyDevice()
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


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "run_program", run_program)


@TARGETS
@pytest.mark.parametrize("name", test_lower.GRAPHS)
def test_values(name: str, target: Target) -> None:
    """Also the kernels of the GPU's partition: they fuse differently."""
    graphs.check(test_lower.GRAPHS[name](), target)


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
def test_half_types(dtype: Any) -> None:
    test_lower.test_half_types(dtype, NUMPY)


def test_sort_with_nan() -> None:
    test_lower.test_sort_with_nan(NUMPY)


def test_a_deep_chain() -> None:
    test_lower.test_a_deep_chain_needs_no_deep_stack()


def test_out_of_range() -> None:
    test_lower.test_an_index_out_of_range_is_found(NUMPY)
