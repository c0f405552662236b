"""Floats and int64 in lanes: by way of int32 where that holds all of them, and where it doesn't."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program

from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import LLVM
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.native import host

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

EDGES = [2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**40 + 3, 2**53 + 1, 2**62 + 2**38 + 1]


def converted(x: np.ndarray, source: dt.DType, target: dt.DType) -> np.ndarray:
    leaf = ops.leaf(0, Size(x.shape), source)
    program = compile_graph(lower_graph([ops.cast(leaf, target)], check=True), LLVM)
    return launch_program(LlvmDevice(force=True), program, {leaf: x})[0].reshape(x.shape)


@pytest.mark.parametrize("wide", [dt.float32, dt.float64])
@pytest.mark.parametrize("large", [0, 1, len(EDGES)])
def test_conversions_are_exact_or_rounded_once(wide: dt.DType, large: int) -> None:
    """Among 203 small numbers there are none, one or some that int32 doesn't hold."""
    rng = np.random.default_rng(0)
    whole = rng.integers(-1000, 1000, 203)
    whole[7 : 7 + large] = EDGES[-large:] if large else []
    whole[100 : 100 + large] = -np.array(EDGES[:large], np.int64)
    np.testing.assert_array_equal(converted(whole, dt.int64, wide), whole.astype(wide.np))
    floats = (whole + rng.uniform(-0.9, 0.9, 203)).astype(wide.np)
    np.testing.assert_array_equal(converted(floats, wide, dt.int64), floats.astype(np.int64))
