"""The arms of a `where`: branches that no value shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.llvm import emit, values
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


def elu(x: Node) -> Node:
    return ops.where(x > 0, x, ops.exp(x) - 1)


def both(x: Node) -> Node:
    return ops.where(x > 0, ops.log(x + 1) * 2, ops.exp(x) * ops.sin(x))


def nested(x: Node) -> Node:
    for k in range(12):
        x = ops.where(x > k / 12, ops.cos(x + k), ops.exp(-ops.abs(x)) * k)
    return x


def shared(x: Node) -> Node:
    """What an arm needs, others need too: one value of it, or all."""
    e = ops.exp(x)
    inner = ops.sin(e * 0.5)
    return ops.where(x > 0, inner * e, ops.log(ops.abs(x) + 1)) + inner


def by_row(x: Node) -> Node:
    """A condition that all lanes of a row share, and an arm that depends on the row alone."""
    mean = ops.mean(x, (1,))
    mean = ops.reshape(mean, (x.shape[0], 1))
    return ops.where(
        ops.expand(mean > 0, x.shape), x, ops.exp(x) * ops.expand(ops.exp(mean), x.shape)
    )


def summed(x: Node) -> Node:
    return ops.sum(ops.where(x > 0, ops.exp(x), ops.sin(x) * x), (1,))


def padded(x: Node) -> Node:
    wide = ops.pad(x, (0, 3), (0, 2))
    return ops.where(wide > 0, ops.exp(wide), ops.cos(wide) * 3)


FORMS: list[Callable[[Node], Node]] = [elu, both, nested, shared, by_row, summed, padded]


def program_of(root: Node) -> Program:
    return compile_graph(lower_graph([root], check=True), LLVM)


def texts(program: Program) -> list[str]:
    kernels = [k for k in launched(program) if isinstance(k, Kernel)]
    return [emit(k, host.machine()).code for k in kernels]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16])
def test_branches_change_no_bit(
    form: Callable[[Node], Node], dtype: dt.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one sign, of both and with NaN, beside code that computes both arms."""
    shape = (6, 77)
    x = np.random.default_rng(0).normal(size=shape)
    x[1], x[2], x[3, 5:40], x[4, 70] = abs(x[1]), -abs(x[2]), 0.5, np.nan
    leaf = ops.leaf("x", Size(shape), dtype)
    given = {leaf: x.astype(dtype.np)}
    program = program_of(form(leaf))
    assert any("needed" in text for text in texts(program))
    found = launch_program(LlvmDevice(force=True), program, given)[0]
    monkeypatch.setattr(values, "NESTED", 0)
    assert not any("needed" in text for text in texts(program))
    program = program_of(form(leaf))
    wanted = launch_program(LlvmDevice(force=True), program, given)[0]
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))


def test_a_division_that_may_fail_is_no_part_of_a_branch() -> None:
    """Its error is raised wherever the divisor is zero, as in PyTorch."""
    a, b = (ops.leaf(n, Size((64,)), dt.int32) for n in "ab")
    chosen = ops.where(a > 0, a, (a * 3 + 1) * (a - 7) * (a + 5) * (a + 9) * ops.floor_divide(a, b))
    program = program_of(chosen)
    given = {a: np.arange(1, 65, dtype=np.int32), b: np.zeros(64, np.int32)}
    with pytest.raises(RuntimeError, match="zero"):
        launch_program(LlvmDevice(force=True), program, given)
