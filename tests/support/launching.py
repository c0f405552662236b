"""Graphs compiled for a target and launched on a device; attention counts its tiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.target import INTERPRET, LLVM, NUMPY, Target
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.device import Device


def execute(program: Program, device: Device, values: Mapping[Node, Any]) -> list[np.ndarray]:
    """The results of a program, its temporaries full of NaN."""
    slots: list[Any] = [None] * len(program.slots)
    for node, slot in program.leaves.items():
        slots[slot] = np.ascontiguousarray(values[node])
    launches = device.compile_all([s.kernel for s in program.steps])
    for step, launch in zip(program.steps, launches, strict=True):
        for slot in step.outputs:
            if slots[slot] is None:
                meta = program.slots[slot]
                slots[slot] = np.full(meta.shape, 77, dtype=meta.dtype.np)
        numbers = {n.attrs[0]: values[n] for n in program.scalars}
        scalars = [numbers[s.slot] for s in step.kernel.scalars]
        launch([slots[i] for i in (*step.outputs, *step.inputs)], scalars)
    empty = np.zeros(0)
    return [empty if slots[s] is None else slots[s] for s in program.results]


def compute(roots: Sequence[Node], values: Mapping[Node, Any], target: Target, device: Device):
    """(values of the roots, program)."""
    program = compile_graph(lower_graph(roots, check=True), target)
    shaped = [r.reshape(n.shape) for r, n in zip(execute(program, device, values), roots)]
    return shaped, program


def interpreted() -> Device:
    """Triton's kernels, run over host memory."""
    pytest.importorskip("triton")
    from tilewright.runtime.interpret import InterpretDevice

    return InterpretDevice()


def native() -> Device:
    pytest.importorskip("llvmlite")
    from tilewright.runtime.cpu.native import LlvmDevice
    from tilewright.runtime.native import host

    if host.reason_against() is not None:
        pytest.skip(str(host.reason_against()))
    return LlvmDevice(force=True)


ENGINES: dict[str, tuple[Target, Callable[[], Device]]] = {
    "llvm": (LLVM, native),
    "interpret": (INTERPRET, interpreted),
    "numpy, one kernel": (LLVM, NumpyDevice),
    "numpy, primitives": (NUMPY, NumpyDevice),
}


engines = pytest.mark.parametrize("engine", ENGINES)


def tiled(program: Program) -> list[Kernel]:
    return [s.kernel for s in program.steps if isinstance(s.kernel, Kernel) and s.kernel.is_chained]


def assert_close(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        scale = np.abs(b).max(initial=1.0)
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=0, atol=tolerance * scale)
