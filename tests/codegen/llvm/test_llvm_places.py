"""Elements at places that data gives, and the order in which rows of an output are computed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program, random_leaves, reference
from kernels import at, buffer, load
from machines import MACHINES

from tilewright.codegen.kernel import Kernel, Store
from tilewright.codegen.kernel.index import Axis
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm.form import form_of
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


def agrees(root: Node, values: dict[Node, np.ndarray]) -> None:
    program = compile_graph(lower_graph([root], check=True), LLVM)
    (found,) = launch_program(LlvmDevice(force=True), program, values)
    (wanted,) = reference([root], values)
    np.testing.assert_allclose(found.reshape(root.shape), wanted, rtol=2e-6, atol=2e-6)


def turned(order: tuple[int, ...]) -> Kernel:
    """Rows [2, 3, 40] of the input, whose axes are those of the output in another order."""
    axes = (Axis("p", 2), Axis("q", 3), Axis("v", 40))
    x, y = buffer("x", (2, 3, 40)), buffer("y", (2, 3, 40))
    there = [axes[i] for i in order]
    store = Store(y, at(there, [a.extent for a in there]), load(x, at(axes, (2, 3, 40))))
    return Kernel("turned", axes, (), (store,))


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_rows_follow_the_output(order: tuple[int, ...]) -> None:
    kernel = turned(order)
    form = form_of(kernel, host.machine())
    assert form.vector is kernel.parallel[2]
    assert form.outer == tuple(kernel.parallel[i] for i in order[:2])
    other = form_of(turned((0, 1, 2)), host.machine(), like=form)  # a bundle's members are alike
    assert [a.name for a in other.outer] == [a.name for a in form.outer]


@pytest.mark.parametrize("size", [1, 7, 16, 37, 100])
@pytest.mark.parametrize("kind", [dt.float32, dt.float64, dt.int8, dt.bfloat16])
def test_gathers_of_any_length(size: int, kind: dt.DType) -> None:
    """Lanes that don't exist read nothing from beyond the table."""
    table, places = leaf("x", 3, 50), leaf("i", size, dtype=dt.int64)
    rng = np.random.default_rng(size)
    values = {
        table: rng.integers(-9, 9, (3, 50)).astype(np.float32),
        places: rng.integers(0, 50, size),
    }
    agrees(ops.cast(ops.gather(ops.cast(table, kind), places, 1), dt.float32), values)


def test_gathers_of_some_lanes() -> None:
    """Places behind the table are fine in lanes that a guard leaves out."""
    table, places = leaf("x", 50), leaf("i", 64, dtype=dt.int64)
    inside = ops.lt(ops.iota(64), ops.constant(20, dt.int64))
    safe = ops.where(inside, places, ops.zeros_like(places))
    rng = np.random.default_rng(0)
    given = np.where(np.arange(64) < 20, rng.integers(0, 50, 64), 1 << 40)
    agrees(
        ops.where(inside, ops.gather(table, safe, 0), ops.constant(-1, dt.float32)),
        {table: rng.standard_normal(50).astype(np.float32), places: given},
    )


def test_avx2_loads_one_by_one() -> None:
    table, places = leaf("x", 9), leaf("i", 64, dtype=dt.int64)
    program = compile_graph(lower_graph([ops.gather(table, places, 0)]), LLVM)
    (kernel,) = [step.kernel for step in program.steps]
    assert "masked.gather" not in emit(kernel, MACHINES["avx2"][0]).code
    assert "masked.gather" in emit(kernel, MACHINES["avx512"][0]).code


@pytest.mark.parametrize("step", [1, 5, 16])
def test_windows_over_joined_parts(step: int) -> None:
    """Windows of a reflected line: in most of them no lane reads the reflected ends."""
    x = leaf("x", 200)
    left = ops.flip(ops.slice_axis(x, 0, 1, 33), (0,))
    right = ops.flip(ops.slice_axis(x, 0, 167, 199), (0,))
    root = ops.windows(ops.cat([left, x, right], 0), (0,), (64,), (step,), (1,)) * 2.0
    agrees(root, random_leaves([root]))


def test_reflected_rows() -> None:
    x = leaf("x", 4, 6, 40)
    place = 5 - ops.abs(5 - ops.abs(ops.iota(10) - 2))
    root = ops.gather(x, place, 1)
    agrees(root, random_leaves([root]))
