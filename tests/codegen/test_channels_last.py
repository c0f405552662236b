"""Convolutions with channels last, as GPUs compute them: values through Triton's interpreter beside
the definition of each op, quality through the compiler."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conv_cases import Case, expected, kinds, three
from launching import compute

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.ops import CHANNELS_LAST
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.schedule import default_schedule
from tilewright.codegen.target import INTERPRET, NUMPY, Target, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import compile_offline

pytestmark = pytest.mark.triton


CASES = [
    Case("3x3", (2, 16, 7, 9), (24, 16, 3, 3), padding=(1, 1)),
    Case("1x1 with a stride", (2, 16, 7, 6), (16, 16, 1, 1), stride=2),
    Case("stride", (2, 16, 9, 8), (24, 16, 3, 3), stride=2, padding=(1, 1)),
    Case("uneven padding", (1, 16, 6, 6), (16, 16, 2, 3), padding=(0, 2)),
    Case("dilation", (2, 16, 9, 9), (16, 16, 3, 3), padding=(2, 2), dilation=2),
    Case("groups", (2, 48, 6, 6), (32, 24, 3, 3), padding=(1, 1), groups=2),
    Case("one dimension", (3, 16, 20), (40, 16, 5), stride=3, padding=(2, 1)),
    Case("three dimensions", (1, 16, 4, 5, 3), (16, 16, 2, 3, 1), padding=(1, 0)),
    Case("kernel as large as the image", (3, 16, 4, 4), (16, 16, 4, 4)),
    Case("batch of one", (1, 16, 5, 5), (16, 16, 3, 3)),
    Case("groups of few channels", (2, 32, 6, 6), (16, 8, 3, 3), padding=(1, 1), groups=4),
]
UNTURNED = [
    Case("1x1", (2, 32, 5, 5), (16, 32, 1, 1)),
    Case("each channel by itself", (2, 32, 6, 6), (32, 1, 3, 3), groups=32),
]


@pytest.mark.parametrize("each", CASES + UNTURNED, ids=lambda c: c.name)
def test_values_and_gradients(each: Case) -> None:
    roots, values = three(each)
    found, program = compute(roots, values, INTERPRET, InterpretDevice())
    for a, b in zip(found, expected(each, values), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=1e-2 * np.abs(b).max())
    turned = {op.name for op in CHANNELS_LAST}
    wanted = turned if each in CASES else set()
    if each.stride > 1 or "few" in each.name:  # which is a convolution: see interleave.py
        wanted = wanted - {"conv_input_grad_last"}
    assert kinds(program) & turned == wanted


@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_weights_in_parts(groups: int) -> None:
    """A long sum of few results is cut along the batch."""
    each = Case("", (8, 32, 14, 14), (32, 32 // groups, 3, 3), padding=(1, 1), groups=groups)
    (*_, gradient), values = three(each)
    slow = replace(INTERPRET, chip=replace(INTERPRET.chip, tensor={}, vector={"float32": 1e10}))
    slow = replace(slow, split_products=("bfloat16",))
    (found,), program = compute([gradient], values, slow, InterpretDevice())
    expects = expected(each, values)[2]
    np.testing.assert_allclose(
        found.astype(float), expects, rtol=0, atol=1e-2 * np.abs(expects).max()
    )
    assert "sum" in kinds(program) and "conv_weight_grad_last" in kinds(program)
    whole = compile_graph(lower_graph([gradient]), replace(slow, split_products=()))
    assert "sum" not in kinds(whole)


def network(target: Target, dtype: DType) -> tuple[Program, list[np.ndarray], list[np.ndarray]]:
    """A stem, pooling of two kinds, and a block with a residual: (program, results, those of the
    primitives on NumPy)."""
    shapes = ((2, 3, 16, 18), (16, 3, 5, 5), (16, 16, 3, 3), (32, 16, 1, 1), (32, 16, 3, 3))
    rng = np.random.default_rng(3)
    values: dict[Node, Any] = {}
    for i, s in enumerate(shapes):
        held = rng.standard_normal(s) / math.sqrt(math.prod(s[1:]))
        values[ops.leaf(i, Size(s), dtype)] = held.astype(dtype.np)
    inputs = [ops.variable(n, i) for i, n in enumerate(values)]
    x, stem, one, side, two = inputs
    pairs = ((1, 1), (1, 1))
    y = ops.conv(x, stem, (1, 1), ((2, 2), (2, 2)), (1, 1), 1)
    y = ops.max_pool(ops.relu(y), (3, 3), (2, 2), pairs, (1, 1))
    block = ops.relu(ops.conv(y, one, (1, 1), pairs, (1, 1), 1))
    block = block - ops.mean(block, (0, 2, 3))
    block = ops.conv(block, two, (2, 2), pairs, (1, 1), 1)
    plain = ((0, 0), (0, 0))
    total = ops.relu(block + ops.conv(y, side, (2, 2), plain, (1, 1), 1))
    pooled = ops.max_pool(total, (2, 2), (2, 2), plain, (1, 1))
    loss = ops.sum(ops.cos(pooled), (0, 1, 2, 3))
    found = pullback({loss: loss}, inputs, create_graph=True)
    roots = [total, pooled, loss, *(found[n] for n in inputs)]
    results, program = compute(roots, values, target, InterpretDevice())
    wanted, _ = compute(roots, values, NUMPY, NumpyDevice())
    return program, results, wanted


def test_what_is_between_convolutions_is_turned_with_them() -> None:
    """Activations, statistics, pooling and residuals; what is a result is in PyTorch's order."""
    program, results, wanted = network(replace(INTERPRET, tf32_convolutions=True), dt.float32)
    for a, b in zip(results, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(np.abs(b).max(), 1))
    assert {"conv_last", "conv_input_grad_last", "conv_weight_grad_last"} <= kinds(program)
    assert "conv" not in kinds(program)


def test_float32_without_tensor_cores_stays() -> None:
    program, results, wanted = network(INTERPRET, dt.float32)
    assert not any(name.endswith("_last") for name in kinds(program))
    for a, b in zip(results, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(np.abs(b).max(), 1))


@pytest.mark.parametrize(
    "which",
    [
        pytest.param(0, id="forward"),
        pytest.param(1, id="image", marks=pytest.mark.slow),
        pytest.param(2, id="weight", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "shape",
    [
        (64, 56, 64, 3, 1),
        *(
            pytest.param(shape, marks=pytest.mark.slow)
            for shape in ((256, 14, 256, 3, 1), (512, 7, 512, 3, 1), (256, 56, 512, 1, 2))
        ),
    ],
    ids=str,
)
def test_hopper(shape: tuple[int, ...], which: int) -> None:
    """Layers of a ResNet-50 read 16 bytes at a time, and spill nothing."""
    channels, size, outputs, kernel, stride = shape
    edge = kernel // 2
    each = Case(
        "", (32, channels, size, size), (outputs, channels, kernel, kernel), stride, (edge, edge)
    )
    x, w = (ops.leaf(i, Size(s), dt.bfloat16) for i, s in enumerate((each.x, each.w)))
    y = ops.conv(x, w, *each.attrs)
    g = ops.leaf(2, y.shape, dt.bfloat16)
    of = (
        y,
        ops.conv_input_grad(g, w, each.x[2:], *each.attrs),
        ops.conv_weight_grad(g, x, each.w[2:], *each.attrs),
    )
    target = gpu("sm_90")
    program = compile_graph(lower_graph([of[which]]), target)
    kernels = [s.kernel for s in program.steps if isinstance(s.kernel, Kernel)]
    (found,) = (k for k in kernels if k.has_dot)
    compiled = compile_offline(found, "sm_90", default_schedule(found, target))
    ptx = compiled.asm["ptx"]
    # A kernel of one tap reads whole rows of a matrix, which descriptors bring.
    assert "wgmma.mma_async" in ptx and ("cp.async.cg" in ptx or "cp.async.bulk" in ptx)
    assert "ld.global.b16" not in ptx and compiled.spills == 0
