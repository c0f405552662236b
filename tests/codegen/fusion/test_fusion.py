"""What fuses with what, that fusing keeps every value, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from graphs import check, random_leaves
from training_graphs import adam, gradients, leaf, parameter

from tilewright.codegen.kernel import Bundle
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import CUDA, LLVM, NUMPY, Target
from tilewright.ir import ops
from tilewright.ir.dtype import float64, int64
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.device import Device

TARGETS = pytest.mark.parametrize("target", [NUMPY, CUDA], ids=lambda t: t.name)


def launches(roots: Sequence[Node], target: Target, device: Device | None = None) -> int:
    return len(check(roots, target, device=device).steps)


@TARGETS
def test_softmax(target: Target) -> None:
    x = parameter(0, 4, 6)
    y = ops.softmax(x, 1)
    assert launches([y], target) == 1
    assert launches(gradients(y, [x], leaf(1, 4, 6)), target) == 1
    assert launches([y, *gradients(y, [x], leaf(1, 4, 6))], target) == 1


@TARGETS
def test_layer_norm(target: Target) -> None:
    x, w, b, g = parameter(0, 3, 4, 6), parameter(1, 6), parameter(2, 6), leaf(3, 3, 4, 6)
    y = ops.layer_norm(x, 1, w, b, 1e-5)
    dx, dw, db = gradients(y, [x, w, b], g)
    assert launches([y], target) == 1
    assert launches([dx], target) == 1
    assert launches([db], target) == 1
    assert launches([dw, db], target) <= 2  # the row statistics, the column sums
    assert launches([y, dx, dw, db], target) <= 2


@TARGETS
def test_column_sums_that_read_one_buffer_share_a_kernel(target: Target) -> None:
    g, y = leaf(0, 8, 6), leaf(1, 8, 6)
    assert launches([ops.sum(g, (0,)), ops.sum(g * y, (0,))], target) == 1


@TARGETS
def test_matmul_with_epilogue(target: Target) -> None:
    x, w, b = leaf(0, 4, 6), leaf(1, 6, 5), leaf(2, 5)
    assert launches([ops.relu(ops.matmul(x, w) + b)], target) == 1
    assert (
        launches([ops.gelu(ops.matmul(x, ops.transpose(leaf(3, 5, 6))) + b, "tanh")], target) == 1
    )
    z = ops.matmul(x, w) + b
    assert launches([z, ops.exp(z)], target) == 1


@TARGETS
def test_conv_with_epilogue(target: Target) -> None:
    x, w, b = leaf(0, 2, 4, 5, 5), leaf(1, 6, 2, 3, 3), leaf(2, 6, 1, 1)
    y = ops.conv(x, w, (1, 1), ((1, 1), (1, 1)), (1, 1), 2)
    assert launches([ops.relu(y + b)], target) == 1


@TARGETS
def test_batch_norm_in_training(target: Target) -> None:
    x, w, b = leaf(0, 3, 4, 5, 2), leaf(1, 4), leaf(2, 4)
    average, variance = leaf(3, 4), leaf(4, 4)
    y = ops.batch_norm(x, w, b, 1e-5)
    roots = [
        ops.relu(y),
        average * 0.9 + ops.batch_mean(x) * 0.1,
        variance * 0.9 + ops.batch_variance(x) * 0.1,
    ]
    assert launches(roots, target) <= 2


@TARGETS
def test_a_chain_of_updates_is_one_kernel(target: Target) -> None:
    x = leaf(0, 4, 6)
    y = x
    for i in range(20):
        y = y + leaf(1 + i % 3, 6) * 0.5
    assert launches([y], target) == 1


@TARGETS
def test_attention(target: Target) -> None:
    q, k, v = (parameter(i, 2, 3, 4, 5) for i in range(3))
    scores = ops.matmul(q, ops.transpose(k)) * 0.3
    y = ops.matmul(ops.softmax(scores, 3), v)
    assert launches([y], target) == 3
    assert launches([y, *gradients(y, [q, k, v], leaf(3, 2, 3, 4, 5))], target) <= 8


def test_a_column_that_is_read_many_times_is_copied_first() -> None:
    """As by a sparse matrix times a column: its elements lie in a line of the cache each."""
    for count, kernels in ((1 << 20, 3), (1 << 16, 2)):  # the sums begin with zeros
        x = ops.leaf("x", Size((10_000, 64)), float64)
        at, rows = (ops.leaf(name, Size((count,)), int64) for name in ("at", "rows"))
        column = ops.reshape(ops.slice_axis(x, 1, 0, 1), (10_000,))
        terms = ops.gather(column, at, 0) * ops.leaf("factors", Size((count,)), float64)
        zeros = ops.expand(ops.constant(0.0, float64), (10_000,))
        product = ops.scatter(zeros, terms, rows, 0, "add")
        assert len(compile_graph(lower_graph([product]), LLVM).steps) == kernels


@TARGETS
def test_a_recomputed_fold_is_refused(target: Target) -> None:
    """A row's sum that every point of another, larger space reads is computed once."""
    x, y = leaf(0, 4, 6), leaf(1, 4, 5)
    program = check([y * ops.sum(x, (1,))], target)
    assert len(program.steps) == 2
    assert any("not fused" in line for line in program.report)


def test_rows_and_columns_of_one_tensor_stay_apart_on_a_gpu() -> None:
    """As many elements, and the same memory, but one of them would be read across the threads."""
    x = leaf(0, 8, 256, 128)
    roots = [ops.sum(ops.permute(x, (0, 2, 1)), (0, 2)), ops.relu(x)]
    near = replace(CUDA, columns=0, parallel=1)  # whose folds are not split
    device = NumpyDevice()  # too many numbers to go through one by one
    assert launches(roots, near, device) == 2
    assert launches(roots, replace(near, sector=0), device) == 1
    assert launches([ops.sum(x, (0, 1)), ops.relu(x)], near, device) == 1


def test_few_long_rows_are_folded_in_two_steps() -> None:
    target = replace(CUDA, parallel=4, long_row=64)
    x, y = leaf(0, 64, 2, 16) * 0.1, leaf(1, 7, 11)
    folds = (ops.sum, ops.prod, ops.max, ops.min)
    assert launches([fold(x, (0, 2)) for fold in folds], target) == 2
    assert launches([ops.sum(x, (0, 1, 2)), ops.sum(y, (0, 1))], target) <= 4
    assert launches([ops.any(x > 1, (0, 1, 2)), ops.argmax(x, (0, 1, 2))], target) <= 3


def adam_step(width: int = 6) -> list[Node]:
    """Three linear layers, cross entropy and Adam over six parameters."""
    sizes = [5, width, width, 4]
    x, target = leaf(0, 8, 5), leaf(1, 8, dtype=int64)
    index = 2
    parameters, h = [], x
    for i in range(3):
        w, b = parameter(index, sizes[i + 1], sizes[i]), parameter(index + 1, sizes[i + 1])
        index += 2
        parameters += [w, b]
        h = ops.matmul(h, ops.transpose(w)) + b
        h = ops.relu(h) if i < 2 else h
    loss = ops.cross_entropy(h, target)
    return [loss, *adam(parameters, gradients(loss, parameters), index)]


def adam_leaves(roots: Sequence[Node]):
    values = random_leaves(lower_graph(roots))
    for node in values:
        if node.op.name == "scalar":
            values[node] = np.asarray(3.0 if node.attrs[0] == 101 else 0.1)
        elif node.dtype.is_floating_point:
            values[node] = np.abs(values[node])
    return values


@TARGETS
def test_a_training_step(target: Target) -> None:
    roots = adam_step()
    program = check(roots, target, adam_leaves(roots))
    assert len(program.steps) <= 16, program.report
    bundles = [s.kernel for s in program.steps if isinstance(s.kernel, Bundle)]
    assert [len(b.members) for b in bundles] == [6]
    assert program.scalars == (ops.scalar(100, float64), ops.scalar(101, float64))


def test_a_chain_of_residuals_is_kept_on_the_way() -> None:
    """The sum up to each layer is read by the layer and by the next sum. Were it computed again by
    each reader, the last layers would read what all the others have added."""
    x = leaf(0, 1024, 1024)
    for i in range(8):
        x = x + ops.softmax(ops.matmul(ops.tanh(x), leaf(i + 1, 1024, 1024)), 1)
    for target in (LLVM, CUDA):
        program = compile_graph(lower_graph([x]), target)
        assert max(len(step.inputs) for step in program.steps) <= 4
