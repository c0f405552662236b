"""Launches of kernels in Triton's interpreter, and how close their values have to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import triton_kernels as tk

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.runtime.interpret import InterpretDevice

# Rows whole in one program; and everything in many programs and many steps.
LARGE = InterpretDevice()


SMALL_BLOCKS = Schedule(
    block=4, block_r=4, looped=True, block_m=16, block_n=16, block_k=16, group_m=2
)


SMALL = InterpretDevice(lambda kernel, target: SMALL_BLOCKS)


both = pytest.mark.parametrize("device", [LARGE, SMALL], ids=["large", "small"])


TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-14}


def launch(
    device: InterpretDevice, kernel: Kernel | Bundle, scalars: Sequence[Any] = (), **given: Any
) -> dict[str, np.ndarray]:
    """Runs the kernel on given and random arrays; all of them as they are afterwards, flat."""
    buffers = (*kernel.outputs, *kernel.inputs)
    held = {
        b.name: given[b.name].astype(b.dtype.np).reshape(-1) if b.name in given else tk.sample(b, i)
        for i, b in enumerate(buffers)
    }
    device.compile(kernel)([held[b.name] for b in buffers], list(scalars))
    return held


def close(actual: np.ndarray, expected: Any, dtype: DType, scale: float = 1.0) -> None:
    expected = np.asarray(expected).reshape(-1)
    if dtype.category != dt.FLOAT:
        np.testing.assert_array_equal(actual, expected)
        return
    tolerance = TOLERANCE[dtype.name] * scale
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
