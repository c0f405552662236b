"""The statistics of rows that another kernel folds along other axes: they are made once for each
row, and no element computes them again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from launching import compute

from tilewright.codegen.kernel import Apply, Kernel, Load
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.schedule import default_schedule
from tilewright.codegen.schedule.cutting import cut, passes
from tilewright.codegen.target import INTERPRET, gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.ops.normalization import layer_norm
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import compile_offline

pytestmark = pytest.mark.triton


def norm(rows: int, width: int, dtype: DType) -> tuple[list[Node], list[Node]]:
    """(leaves x, weight, bias, cotangent; layer norm of x with gradients of the first three)."""
    shapes = (rows, width), (width,), (width,), (rows, width)
    leaves = [ops.leaf(i, Size(s), dtype) for i, s in enumerate(shapes)]
    x, weight, bias, g = (ops.variable(n, i) for i, n in enumerate(leaves))
    y = layer_norm(x, 1, weight, bias)
    grads = pullback({y: g}, [x, weight, bias])
    return leaves, [y, *(grads[n] for n in (x, weight, bias))]


def kernels(program: Program) -> list[Kernel]:
    return [s.kernel for s in program.steps if isinstance(s.kernel, Kernel)]


APART = replace(gpu("sm_90"), column_limit=0)
"""A GPU whose kernels don't fold rows and columns together."""


def test_statistics_are_kept() -> None:
    _, roots = norm(16384, 4096, dt.bfloat16)
    target = APART
    rows, columns, _ = kernels(compile_graph(lower_graph(roots), target))
    assert [b.size for b in rows.outputs if b.dtype is dt.float32] == [16384, 16384]
    used = {v.op for v in columns.values if isinstance(v, Apply)}
    assert not used & {ops.rsqrt, ops.div}
    assert [v.buffer.size for v in columns.values if isinstance(v, Load)].count(16384) == 2
    compiled = compile_offline(columns, "sm_90", default_schedule(columns, target))
    ptx = compiled.asm["ptx"]
    assert not any(op in ptx for op in ("sqrt.", "div.rn", "div.full"))
    assert compiled.spills == 0


def test_statistics_are_read_by_rows() -> None:
    """The part of the rows that a program folds is one number, so what rows have in common is one
    line of a tile."""
    _, roots = norm(4096, 1024, dt.bfloat16)
    target = APART
    _, columns, _ = kernels(compile_graph(lower_graph(roots), target))
    text = emit(columns, default_schedule(columns, target)).body
    assert "o = pid // (n_p // BLOCK_P)" in text and "p_ok" not in text


def test_rows_that_are_stored_on_the_way_are_read_once() -> None:
    """The sum of a sum's terms: what is stored doesn't wait for the fold beside it."""
    x, y = (ops.leaf(i, Size((32768, 512)), dt.bfloat16) for i in range(2))
    both = ops.add(x, y)
    target = gpu("sm_90")
    program = compile_graph(lower_graph([both, ops.sum(both, (0,))]), target)
    kernel = kernels(program)[0]
    assert len(kernel.outputs) == 2
    schedule = default_schedule(kernel, target)
    assert schedule.looped and passes(kernel) == 1
    assert emit(kernel, schedule).body.count("for start in ") == 1


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=str)
def test_rows_that_meet_the_same_weights(dtype: DType) -> None:
    """A program takes several of them, so it reads the weights once for all of its rows."""
    shapes = (2048, 1000), (1000,), (1000,)
    x, weight, bias = leaves = [ops.leaf(i, Size(s), dtype) for i, s in enumerate(shapes)]
    roots, target = [layer_norm(x, 1, weight, bias)], gpu("sm_90")
    (kernel,) = kernels(compile_graph(lower_graph(roots), target))
    schedule = default_schedule(kernel, target)
    assert (schedule.block, schedule.block_r, schedule.looped) == (4, 1024, False)
    one = replace(schedule, block=1, num_warps=2)
    often, once = (cut(kernel, s).loaded for s in (one, schedule))
    size = dtype.itemsize
    assert once == size * (2048 * 1000 + 512 * 2000)
    assert often == size * (2048 * 1000 + 2048 * 2000)
    for name in ("sm_80", "sm_90", "sm_100"):
        assert compile_offline(kernel, name, schedule).spills == 0
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(n.shape).astype(np.float32).astype(dtype.np) for n in leaves}
    device = InterpretDevice(lambda kernel, _: schedule)
    (found,), _ = compute(roots, values, target, device)
    wide, scale, shift = (values[n].astype(np.float64) for n in leaves)
    gap = wide - wide.mean(1, keepdims=True)
    right = gap / np.sqrt((gap * gap).mean(1, keepdims=True) + 1e-5) * scale + shift
    tolerance = 1e-5 if dtype is dt.float32 else 1e-2
    np.testing.assert_allclose(
        found.astype(float), right, rtol=0, atol=tolerance * np.abs(right).max()
    )


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "sm_100"])
def test_rows_of_columns_are_copied_ahead(name: str) -> None:
    """While a program adds some rows to its columns' sums, two steps more are on their way."""
    x = ops.leaf(0, Size((8192, 3072)), dt.bfloat16)
    kernel = kernels(compile_graph(lower_graph([ops.sum(x, (0,))]), gpu(name)))[0]
    compiled = compile_offline(kernel, name, default_schedule(kernel, gpu(name)))
    assert "cp.async.wait_group" in compiled.asm["ptx"]
    assert compiled.shared >= 2 * 64 * 64 * 2
    assert compiled.spills == 0


def test_short_columns_are_folded_in_threads() -> None:
    """The parts of a product are added without shuffles and barriers."""
    x = ops.leaf(0, Size((4, 768, 3072)), dt.float32)
    target = gpu("sm_90")
    (kernel,) = kernels(compile_graph(lower_graph([ops.sum(x, (0,))]), target))
    ptx = compile_offline(kernel, "sm_90", default_schedule(kernel, target)).asm["ptx"]
    assert ptx.count("ld.global.v4.b32") == 4 and "st.global.v4.b32" in ptx
    assert "shfl" not in ptx and "bar.sync" not in ptx


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=str)
def test_values(dtype: DType) -> None:
    leaves, roots = norm(512, 128, dtype)
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(n.shape).astype(np.float32).astype(dtype.np) for n in leaves}
    target = replace(INTERPRET, columns=64, parallel=32, long_row=1 << 12)
    device = InterpretDevice(lambda kernel, _: default_schedule(kernel, gpu("sm_90")))
    found, program = compute(roots, values, target, device)
    assert len(kernels(program)) == 3
    x, weight, bias, g = (values[n].astype(np.float64) for n in leaves)
    mean, std = x.mean(1, keepdims=True), np.sqrt(x.var(1, keepdims=True) + 1e-5)
    normal, h = (x - mean) / std, g * weight
    dx = (h - h.mean(1, keepdims=True) - normal * (h * normal).mean(1, keepdims=True)) / std
    expected = [normal * weight + bias, dx, (g * normal).sum(0), g.sum(0)]
    tolerance = 1e-5 if dtype is dt.float32 else 1e-2
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=tolerance * np.abs(b).max())
