"""Whole graphs on each engine: lowered, cut into kernels and launched."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import Target
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.loops import launches_of
from tilewright.runtime.native import host

_MAKERS = {"numpy": NumpyDevice, "llvm": lambda: LlvmDevice(force=True)}
_MAKERS["interpret"] = InterpretDevice
_devices: dict[str, Any] = {}

each_engine = pytest.mark.parametrize(
    "engine", ["numpy", "llvm", pytest.param("interpret", marks=pytest.mark.triton)]
)


def device(engine: str) -> Any:
    """The engine's device. The test is skipped where the engine can't run."""
    if engine == "llvm" and host.reason_against() is not None:
        pytest.skip(str(host.reason_against()))
    if engine == "interpret" and importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    if engine not in _devices:
        _devices[engine] = _MAKERS[engine]()
    return _devices[engine]


def compute(
    engine: str,
    roots: Sequence[Node],
    values: Mapping[Node, Any],
    kernels: int | None = None,
    target: Target | None = None,
) -> list[Any]:
    """The values of `roots`. kernels: the number of kernels to expect, all on this engine. target:
    replaces the engine's own."""
    on = device(engine)
    program = compile_graph(lower_graph(roots, check=True), target or on.target)
    assert kernels is None or len(program.steps) == kernels
    memory: list[Any] = [None] * len(program.slots)
    for node, slot in program.leaves.items():
        memory[slot] = np.ascontiguousarray(values[node]).reshape(values[node].shape)
    before = set(getattr(on, "fallbacks", ()))
    for step, launch in zip(program.steps, launches_of(on, program), strict=True):
        for slot in step.outputs:
            if memory[slot] is None:
                memory[slot] = np.empty(program.slots[slot].shape, program.slots[slot].dtype.np)
        buffers = [memory[s] for s in (*step.outputs, *step.inputs)]
        launch(buffers, [values[s.slot] for s in step.kernel.scalars])
    assert set(getattr(on, "fallbacks", ())) == before
    return [memory[s] for s in program.results]
