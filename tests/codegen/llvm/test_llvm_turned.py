"""Kernels that read along one axis and write along another: squares in registers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program, random_leaves, reference

from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import LLVM
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.native import host

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)


def leaf(name: str, *shape: int, dtype: dt.DType = dt.float32) -> Node:
    return ops.leaf(name, Size(shape), dtype)


def is_exact(root: Node) -> None:
    values = random_leaves([root])
    program = compile_graph(lower_graph([root], check=True), LLVM)
    found = launch_program(LlvmDevice(force=True), program, values)[0].reshape(root.shape)
    np.testing.assert_array_equal(found, reference([root], values)[0])


# Shorter than a register's lanes, whole squares, and a rest along each axis and along both.
SHAPES = [(4, 4), (5, 7), (3, 40), (16, 16), (17, 32), (32, 17), (100, 10), (257, 1025)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int32, dt.int64, dt.int8])
def test_transposes(shape: tuple[int, int], dtype: dt.DType) -> None:
    is_exact(ops.permute(leaf("x", *shape, dtype=dtype), (1, 0)))


@pytest.mark.parametrize("shape", SHAPES)
def test_arithmetic_beside_a_transpose(shape: tuple[int, int]) -> None:
    x, column, row = leaf("x", *shape), leaf("c", shape[1], 1), leaf("r", 1, shape[0])
    is_exact(ops.permute(x, (1, 0)) * column + row)
    is_exact(ops.permute(x, (1, 0)) + leaf("y", *shape[::-1]))


def test_parts_and_more_axes() -> None:
    x = leaf("x", 10, 10, 45)
    is_exact(ops.permute(x, (2, 0, 1)))
    is_exact(ops.permute(x, (0, 2, 1)))
    is_exact(ops.permute(x, (2, 1, 0)))
