"""Rows that are computed in the pieces between the changes of guards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program, random_leaves, reference

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm.form import form_of
from tilewright.codegen.program import Program, compile_graph, launched
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


def kernels(program: Program) -> list[Kernel]:
    return [k for k in launched(program) if isinstance(k, Kernel)]


def are_cut(program: Program) -> bool:
    return any(form_of(k, host.machine()).cut for k in kernels(program))


def agrees(root: Node, cut: bool = True) -> None:
    values = random_leaves([root])
    program = compile_graph(lower_graph([root], check=True), LLVM)
    assert are_cut(program) == cut
    found = launch_program(LlvmDevice(force=True), program, values)[0]
    wanted = reference([root], values)[0]
    np.testing.assert_array_equal(found.reshape(root.shape), wanted)


def rolled(x: Node, by: int) -> Node:
    size = x.shape[1]
    parts = [ops.slice_axis(x, 1, size - by, size), ops.slice_axis(x, 1, 0, size - by)]
    return ops.cat(parts, 1)


def mirrored(x: Node, by: int) -> Node:
    left, right = (ops.slice_axis(x, 1, b, b + by) for b in (1, x.shape[1] - 1 - by))
    return ops.cat([ops.flip(left, (1,)), x, ops.flip(right, (1,))], 1)


def bordered(x: Node, by: int) -> Node:
    """A border on both axes, and a read that no guard keeps beside it."""
    wide = ops.pad(x, (by, by), (1, by))
    return wide * 2 + ops.expand(ops.slice_axis(ops.reshape(x, (-1, 1)), 0, 0, 1), wide.shape)


def twice(x: Node, by: int) -> Node:
    """Guards within guards: parts of parts."""
    return ops.cat([rolled(x, by), ops.slice_axis(mirrored(x, by), 1, 3, 3 + 2 * by), x], 1)


def every_other(x: Node, by: int) -> Node:
    """Lanes two apart in a part."""
    return ops.cat([ops.slice_(x, (0, 0), tuple(x.shape), (1, 2)), x], 1)


FORMS: list[Callable[[Node, int], Node]] = [rolled, mirrored, bordered, twice, every_other]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [50, 333])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int8, dt.float16, dt.bool_])
def test_pieces_agree_with_numpy(
    form: Callable[[Node, int], Node], size: int, dtype: dt.DType
) -> None:
    if form is bordered and dtype is dt.bool_:
        pytest.skip("no arithmetic")
    agrees(form(leaf("x", 7, size, dtype=dtype), 5))


def test_a_row_in_many_chunks() -> None:
    """Chunks begin within pieces."""
    agrees(rolled(leaf("x", 1, 1 << 20), 123_457))


def test_many_short_parts_are_not_cut() -> None:
    parts = [leaf(f"x{i}", 6, 4) for i in range(4)]
    agrees(ops.cat(parts, 1), cut=False)


def test_code_is_that_of_other_sizes() -> None:
    """Where pieces begin is no part of the code."""
    texts = set()
    for size, by in ((400, 70), (500, 64), (640, 133)):
        program = compile_graph(lower_graph([rolled(leaf("x", 9, size), by)], check=True), LLVM)
        (kernel,) = kernels(program)
        texts.add(emit(kernel, host.machine()).code)
    assert len(texts) == 1
