"""Sums of few results in two steps: how kernels are cut, and what they compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interpreting import interpret

from tilewright.codegen.program import Loop, compile_graph
from tilewright.codegen.schedule import Usage, default_schedule, points, predict
from tilewright.codegen.target import CUDA, INTERPRET, LLVM, Target, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton


def leaves(*shapes: tuple[int, ...], dtype: DType = dt.float32) -> dict[Node, Any]:
    rng = np.random.default_rng(0)
    return {
        ops.leaf(i, Size(s), dtype): rng.standard_normal(s).astype(dtype.np)
        for i, s in enumerate(shapes)
    }


def run(y: Node, values: dict[Node, Any]) -> np.ndarray:
    (found,) = interpret([y], values, CUDA, InterpretDevice())
    return found.reshape(y.shape).astype(np.float64)


def launches(y: Node, target: Target) -> int:
    return len(compile_graph(lower_graph([y]), target).steps)


@pytest.mark.parametrize(
    ("a", "b", "dtype", "tolerance"),
    [
        ((20, 1024), (1024, 30), dt.float32, 1e-5),
        ((3, 20, 1024), (1024, 30), dt.float32, 1e-5),
        ((20, 1024), (2, 1024, 30), dt.float32, 1e-5),
        ((20, 8192), (8192, 30), dt.bfloat16, 4e-3),
        ((20, 8192), (8192, 30), dt.float16, 5e-4),
    ],
)
def test_products_of_few_tiles(a: Any, b: Any, dtype: DType, tolerance: float) -> None:
    """Their parts are summed in float32: a rounded part would be off by far more."""
    values = leaves(a, b, dtype=dtype)
    left, right = values
    y = ops.matmul(left, right)
    assert launches(y, CUDA) == 2
    assert launches(y, INTERPRET) == launches(y, LLVM) == 1
    x, w = (v.astype(np.float64) for v in values.values())
    expected = x @ w
    np.testing.assert_allclose(run(y, values), expected, atol=tolerance * np.abs(expected).max())


def test_what_follows_is_computed_with_the_sum() -> None:
    values = leaves((20, 2048), (2048, 30), (30,))
    x, w, b = values
    y = ops.relu(ops.matmul(x, w) + b)
    assert launches(y, CUDA) == 2
    a, c, d = (v.astype(np.float64) for v in values.values())
    np.testing.assert_allclose(run(y, values), np.maximum(a @ c + d, 0), atol=2e-4)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4096, 4096), (4096, 4096)),
        ((20, 64), (64, 30)),
        ((20, 1000), (1000, 30)),
        ((8, 0), (0, 8)),
    ],
)
def test_products_that_stay_whole(a: Any, b: Any) -> None:
    """Enough tiles, a short K, or one that has no even parts."""
    x, w = ops.leaf(0, Size(a), dt.float32), ops.leaf(1, Size(b), dt.float32)
    assert launches(ops.matmul(x, w), replace(CUDA, digits=False)) == 1


@pytest.mark.parametrize(("dtype", "tolerance"), [(dt.float32, 1e-5), (dt.bfloat16, 1e-2)])
def test_gradients_of_convolutions(dtype: DType, tolerance: float) -> None:
    """Parts of the batch become groups beside those that there are."""
    values = leaves((8, 4, 12, 12), (8, 6, 12, 12), dtype=dtype)
    g, x = values
    y = ops.conv_weight_grad(g, x, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2)
    wide = [v.astype(np.float32) for v in values.values()]
    target = replace(CUDA, chip=replace(CUDA.chip, tensor={}, vector={"float32": 1e10}))
    assert launches(y, target) == 2
    left, right = (ops.leaf(i, Size(v.shape), dt.float32) for i, v in enumerate(wide))
    whole = ops.conv_weight_grad(left, right, *y.attrs)
    (expected,) = interpret([whole], dict(zip((left, right), wide)), INTERPRET, InterpretDevice())
    expected = expected.reshape(y.shape)
    (found,) = interpret([y], values, target, InterpretDevice())
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        found.reshape(y.shape).astype(np.float32), expected, atol=tolerance * scale
    )


def test_few_columns() -> None:
    values = leaves((2048, 96))
    (x,) = values
    y = ops.sum(x * 2.0, (0,))
    assert launches(y, CUDA) == 2
    assert launches(ops.sum(ops.leaf(0, Size((2048, 9600)), dt.float32), (0,)), CUDA) == 1
    (array,) = values.values()
    np.testing.assert_allclose(run(y, values), array.sum(0, keepdims=True) * 2.0, atol=1e-3)


def test_columns_of_several_dimensions() -> None:
    """None of them alone has parts enough."""
    values = leaves((4, 28, 30, 32))
    (x,) = values
    y = ops.sum(x * 2.0, (0, 1, 2))
    assert launches(y, CUDA) == 2
    (array,) = values.values()
    expected = array.sum((0, 1, 2), keepdims=True) * 2.0
    np.testing.assert_allclose(run(y, values), expected, atol=2e-3)


def test_columns_of_a_turned_view() -> None:
    """Channels that come last in memory are columns, wherever they stand."""
    x = ops.permute(ops.leaf(0, Size((32, 56, 56, 96)), dt.bfloat16), (0, 3, 1, 2))
    mean = ops.leaf(1, Size((96, 1, 1)), dt.float32)
    gap = ops.cast(x, dt.float32) - mean
    for node in (ops.sum(x, (0, 2, 3)), ops.sum(gap * gap, (0, 2, 3))):
        program = compile_graph(lower_graph([node]), CUDA)
        first, last = (s.kernel for s in program.steps)
        programs = [-(-points(k.parallel) // CUDA.columns) for k in (first, last)]
        assert programs[0] >= CUDA.parallel > programs[1]


def normalized(kind: str, channels: int, dtype: DType) -> list[Node]:
    """A norm of 256 images, and its gradients."""
    shape = (256, channels, 56, 56)
    x = ops.variable(ops.leaf(0, Size(shape), dtype), 0)
    scale, shift = (ops.variable(ops.leaf(i, Size((channels,)), dt.float32), i) for i in (1, 2))
    if kind == "batch":
        y = ops.batch_norm(x, scale, shift, 1e-5)
    else:
        y = ops.group_norm(x, int(kind), scale, shift, 1e-5)
    g = ops.leaf(3, y.shape, y.dtype)
    found = pullback({y: g}, [x, scale, shift], create_graph=False)
    return [y, *found.values()]


@pytest.mark.parametrize("kind", ["batch", "1", "8", "16"])
@pytest.mark.parametrize("channels", [16, 32, 64])
@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=str)
def test_norms_fill_a_chip(kind: str, channels: int, dtype: DType) -> None:
    """Each kernel that moves more than what parts have left has a program for each multiprocessor,
    and reads rows along memory: it takes no longer than three times what its bytes take."""
    target = gpu("sm_90")
    roots = normalized(kind, channels, dtype)
    for program in (compile_graph(lower_graph(r), target) for r in (roots[:1], roots)):
        for step in program.steps:
            kernel = step.kernel
            assert not isinstance(kernel, Loop)
            found = predict(kernel, default_schedule(kernel, target), target, Usage(64, 0))
            if found.work.bytes > 1 << 20:
                assert found.programs >= target.chip.multiprocessors, kernel.name
                assert found.share > 1 / 3, kernel.name


@pytest.mark.parametrize("shape", [(7, 64, 512, 4), (100_003,), (31, 2_111), (3, 50_021)])
@pytest.mark.parametrize("fold", [ops.sum, ops.max, ops.prod])
def test_folds_of_everything_whatever_the_sizes(shape: tuple[int, ...], fold: Any) -> None:
    """No axis has to be long or divisible: neighbours are cut as one, with a rest behind them."""
    values = leaves(shape)
    (x,) = values
    values[x] = 1 + values[x] / 1000 if fold is ops.prod else values[x]
    axes = tuple(range(len(shape)))[-3:]
    y = fold(x, axes)
    assert launches(y, CUDA) >= 2
    wanted = {ops.sum: np.sum, ops.max: np.max, ops.prod: np.prod}[fold](
        values[x].astype(np.float64), axis=axes, keepdims=True
    )
    np.testing.assert_allclose(run(y, values), wanted, rtol=2e-4, atol=2e-2)
