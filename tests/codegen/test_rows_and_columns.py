"""Folds of rows and of their columns in one kernel, on GPUs: each part of the rows has a program,
which reads memory once and leaves the sums of its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from interpreting import LARGE, interpret

from tilewright.codegen.kernel import Kernel, Load
from tilewright.codegen.kernel.columns import columns
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule, default_schedule, points, predict
from tilewright.codegen.schedule.choices import space
from tilewright.codegen.target import CUDA, INTERPRET, LLVM, Target, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.ops.normalization import layer_norm
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton

Values = dict[Node, np.ndarray]


def leaves(*shapes: tuple[int, ...], dtype: DType = dt.float32) -> Values:
    rng = np.random.default_rng(0)
    return {
        ops.leaf(i, Size(s), dtype): rng.standard_normal(s).astype(dtype.np)
        for i, s in enumerate(shapes)
    }


def kernels(roots: list[Node], target: Target) -> list[Kernel]:
    steps = compile_graph(lower_graph(roots), target).steps
    return [s.kernel for s in steps if isinstance(s.kernel, Kernel)]


def norm(*shape: int, dtype: DType = dt.float32) -> tuple[Values, list[Node]]:
    """Leaves x, weight, bias and cotangent; the gradients of layer norm."""
    width = shape[-1]
    values = leaves(shape, (width,), (width,), shape, dtype=dtype)
    return values, norm_of(values)


def norm_of(nodes: Iterable[Node]) -> list[Node]:
    """The gradients of layer norm, given its leaves."""
    *operands, g = (ops.variable(n, i) for i, n in enumerate(nodes))
    x, weight, bias = operands
    grads = pullback({layer_norm(x, 1, weight, bias): g}, operands)
    return [grads[n] for n in operands]


def unread(rows: int, width: int, dtype: DType = dt.float32) -> list[Node]:
    """The same of leaves without values."""
    shapes = (rows, width), (width,), (width,), (rows, width)
    return norm_of(ops.leaf(i, Size(s), dtype) for i, s in enumerate(shapes))


def gradients(values: Values) -> list[np.ndarray]:
    """The same by the formulas, in float64."""
    x, weight, _, g = (v.astype(np.float64) for v in values.values())
    gap = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((gap * gap).mean(-1, keepdims=True) + 1e-5)
    normal, inner = gap * scale, g * weight
    inner -= inner.mean(-1, keepdims=True) + normal * (inner * normal).mean(-1, keepdims=True)
    down = tuple(range(x.ndim - 1))
    return [inner * scale, (g * normal).sum(down), g.sum(down)]


def in_steps(block: int, wide: int) -> InterpretDevice:
    """One that takes `block` rows of at most `wide` columns at a time."""

    def schedule(kernel: Kernel, target: Target) -> Schedule:
        if kernel.is_crossed:
            return Schedule(block=block, block_r=wide, looped=True, num_stages=2)
        return default_schedule(kernel, INTERPRET)

    return InterpretDevice(schedule)


@pytest.mark.parametrize(
    ("shape", "block", "wide"),
    [
        ((1024, 96), 4, 128),  # columns that don't fill a tile
        ((1024, 64), 8, 64),  # nothing is masked
        ((8, 9, 16, 50), 4, 64),  # parts of several axes, whose rows don't fill the last step
    ],
)
@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16])
def test_gradients_of_layer_norm(
    shape: tuple[int, ...], block: int, wide: int, dtype: DType
) -> None:
    values, roots = norm(*shape, dtype=dtype)
    first, *rest = kernels(roots, CUDA)
    assert first.is_crossed
    assert len(first.stores) == 3
    assert all(not k.is_crossed and len(k.inputs) == len(k.outputs) for k in rest)
    for device in (LARGE, in_steps(block, wide)):
        found = interpret(roots, values, CUDA, device)
        for ours, right in zip(found, gradients(values), strict=True):
            tolerance = 1e-5 if dtype is dt.float32 else 8e-3
            gap = np.abs(ours.reshape(right.shape).astype(np.float64) - right)
            assert gap.max() <= tolerance * np.abs(right).max()


def test_short_parts_are_folded_apart() -> None:
    """Eight rows of 16 would have a program of 256 threads. So a softmax over channels stays with
    the product before it, and doesn't go to the pooling behind it."""
    found = {}
    for width in (16, 64):
        x = ops.leaf(0, Size((1024, 8, width)), dt.float32)
        gap = x - ops.reshape(ops.max(x, (2,)), (1024, 8, 1))
        found[width] = [k.is_crossed for k in kernels([ops.max(gap, (1,))], CUDA)]
    assert found[16] == [False, False] and found[64] == [True]


def test_each_element_is_read_once() -> None:
    """The kernel reads x and the cotangent once, and writes little beside the gradient of x."""
    roots, target = unread(16384, 4096, dt.bfloat16), gpu("sm_90")
    first, *rest = kernels(roots, target)
    whole = 2 * 16384 * 4096
    assert sum(isinstance(v, Load) and v.buffer.size * 2 == whole for v in first.values) == 2
    moved = predict(first, default_schedule(first, target), target).work.bytes
    moved += sum(predict(k, default_schedule(k, target), target).work.bytes for k in rest)
    assert 3 * whole < moved < 3.15 * whole


FOLDS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "sum": lambda x, axis: x.sum(axis),
    "max": lambda x, axis: x.max(axis),
    "min": lambda x, axis: x.min(axis),
    "prod": lambda x, axis: x.prod(axis),
}


@pytest.mark.parametrize("fold", FOLDS)
def test_folds_of_columns(fold: str) -> None:
    """Others than sums, beside folds of rows on which they depend. Elements beyond the last row
    and column are neutral."""
    values = leaves((72 * 9, 40))
    (x,) = values
    values[x] = np.exp(values[x] / 8)
    rows = getattr(ops, fold)(x, (1,))
    part = x / ops.expand(ops.reshape(rows, (648, 1)), x.shape)
    roots = [part, getattr(ops, fold)(part, (0,)), rows]
    assert any(k.is_crossed for k in kernels(roots, CUDA))
    wide = values[x].astype(np.float64)
    right = wide / FOLDS[fold](wide, 1)[:, None]
    for device in (LARGE, in_steps(4, 64)):
        quotients, ours, along = interpret(roots, values, CUDA, device)
        np.testing.assert_allclose(quotients.reshape(648, 40), right, rtol=1e-5)
        np.testing.assert_allclose(ours.ravel(), FOLDS[fold](right, 0), rtol=1e-4)
        np.testing.assert_allclose(along.ravel(), FOLDS[fold](wide, 1), rtol=1e-5)


def test_a_bias_beside_a_norm() -> None:
    """The sum of a residual's gradient, which the gradient of a norm is added to, as behind each
    linear layer of a transformer."""
    values, roots = norm(1024, 48)
    extra = ops.leaf(4, Size((1024, 48)), dt.float32)
    values[extra] = np.random.default_rng(1).standard_normal((1024, 48)).astype(np.float32)
    total = roots[0] + extra
    roots = [total, *roots[1:], ops.sum(total, (0,))]
    assert sum(k.is_crossed for k in kernels(roots, CUDA)) == 1
    found = interpret(roots, values, CUDA, LARGE)
    expected = gradients({n: v for n, v in values.items() if n is not extra})
    right = expected[0] + values[extra]
    np.testing.assert_allclose(found[0].reshape(1024, 48), right, atol=1e-4)
    np.testing.assert_allclose(found[3].ravel(), right.sum(0), atol=1e-3)
    for ours, other in zip(found[1:3], expected[1:], strict=True):
        np.testing.assert_allclose(ours.ravel(), other, atol=1e-3)


def test_not_a_number_stays_in_its_column() -> None:
    values, roots = norm(1024, 96)
    g = list(values)[3]
    values[g][500, 7] = np.nan
    found = interpret(roots, values, CUDA, in_steps(4, 128))
    for ours in found[1:]:
        assert np.isnan(ours.ravel()).nonzero()[0].tolist() == [7]


def test_the_same_bits_each_time() -> None:
    values, roots = norm(1024, 96)
    first, second = (interpret(roots, values, CUDA, LARGE) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()


def test_which_rows_share_a_kernel() -> None:
    """Few rows, long ones and those of another engine fold as they did."""
    assert not any(k.is_crossed for k in kernels(unread(64, 96), CUDA))
    assert not any(k.is_crossed for k in kernels(unread(1024, 16384), CUDA))
    assert not any(k.is_crossed for k in kernels(unread(1031, 96), CUDA))  # a prime number
    (native,) = (k for k in kernels(unread(1024, 96), LLVM) if k.is_crossed)
    assert not native.parallel


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_parts_and_schedules(target: str) -> None:
    chip = gpu(target)
    for width in (64, 768, 1024, 4096):
        kernel = kernels(unread(8192, width, dt.bfloat16), chip)[0]
        found = columns(kernel)
        assert found is not None and points(found.across) == width
        assert 0.75 * chip.parallel <= points(kernel.parallel) <= 4 * chip.parallel
        schedules = space(kernel, chip).schedules
        assert len(schedules) > 4
        assert schedules[0] == default_schedule(kernel, chip)
