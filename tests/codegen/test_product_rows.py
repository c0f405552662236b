"""Contractions whose rows are folded in their own kernel: norms, softmax and statistics of what
comes out of a product, by tiles that have all of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graph_oracle import random_like, run
from launching import assert_close, compute, interpreted

import tilewright as tw
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright.codegen.chip import CHIPS
from tilewright.codegen.kernel import Kernel
from tilewright.codegen.kernel.mlir_parser import parse_kernel
from tilewright.codegen.kernel.mlir_printer import print_kernel
from tilewright.codegen.kernel.structure import describe
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.schedule import Schedule, default_schedule, points
from tilewright.codegen.schedule.choices import space
from tilewright.codegen.target import INTERPRET, LLVM, Target, gpu
from tilewright.inspection.explanation import predict
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph

HOPPER = gpu("sm_90")


def mean(y: Node) -> Node:
    return ops.mean(y, (y.rank - 1,))


def along(op: Callable[[Node, Any], Node]) -> Callable[[Node], list[Node]]:
    return lambda y: [op(y, (y.rank - 1,))]


FOLDS: dict[str, Callable[[Node], list[Node]]] = {
    **{n: along(getattr(ops, n)) for n in ("sum", "prod", "max", "min", "mean", "logsumexp")},
    **{n: along(getattr(ops, n)) for n in ("argmax", "argmin")},
    "any": lambda y: [ops.any(y > 1.0, (y.rank - 1,))],
    "all": lambda y: [ops.all(y > -1.5, (y.rank - 1,))],
    "softmax": lambda y: [ops.softmax(y, y.rank - 1)],
    "log_softmax": lambda y: [ops.log_softmax(y, y.rank - 1)],
    "layer_norm": lambda y: [ops.layer_norm(y, 1)],
    "rms_norm": lambda y: [ops.rms_norm(ops.gelu(y, "none"), 1)],
    "statistics": lambda y: [y, ops.max(y, (y.rank - 1,)), ops.sum(ops.exp(y), (y.rank - 1,))],
    "what follows": lambda y: [ops.relu(ops.layer_norm(y, 1) + y), ops.sqrt(ops.abs(mean(y)))],
}
each_fold = pytest.mark.parametrize("fold", FOLDS)


def matmul(*shapes: Sequence[int]) -> Callable[[DType], tuple[Node, dict[Node, Any]]]:
    def make(dtype: DType) -> tuple[Node, dict[Node, Any]]:
        leaves = [ops.leaf(i, tuple(s), dtype) for i, s in enumerate(shapes)]
        values = {
            n: (random_like(str(i), n.shape) / 3).astype(dtype.np) for i, n in enumerate(leaves)
        }
        return ops.matmul(*leaves), values

    return make


def moved(make: Any, move: Callable[[Node], Node]) -> Any:
    def changed(dtype: DType) -> tuple[Node, dict[Node, Any]]:
        y, values = make(dtype)
        return move(y), values

    return changed


def conv(dtype: DType) -> tuple[Node, dict[Node, Any]]:
    x, w = ops.leaf(0, (2, 16, 9, 7), dtype), ops.leaf(1, (32, 16, 3, 3), dtype)
    values = {n: (random_like(str(n.shape), n.shape) / 9).astype(dtype.np) for n in (x, w)}
    y = ops.conv(x, w, (1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    return ops.permute(y, (0, 2, 3, 1)), values


PRODUCTS: dict[str, Any] = {
    "tails": matmul((37, 40), (40, 29)),
    "whole tiles": matmul((64, 32), (32, 64)),
    "one row": matmul((1, 50), (50, 33)),
    "square": matmul((24, 24), (24, 24)),
    "batched": matmul((3, 20, 24), (3, 24, 17)),
    "one matrix for all": matmul((2, 11, 24), (1, 24, 48)),
    "heads": moved(matmul((21, 20), (20, 192)), lambda y: ops.reshape(y, (21, 3, 64))),
    "merged": moved(matmul((21, 20), (20, 24)), lambda y: ops.reshape(y, (3, 7, 24))),
}
each_product = pytest.mark.parametrize("product", PRODUCTS)


def small_tiles() -> Any:
    """Tiles of few rows, that are walked through in several programs and steps."""
    pytest.importorskip("triton")
    from tilewright.runtime.interpret import InterpretDevice

    def schedule(kernel: Any, target: Target) -> Schedule:
        found = default_schedule(kernel, target)
        return replace(found, block_m=16, block_k=16, group_m=2) if kernel.has_dot else found

    return InterpretDevice(schedule)


def folding(program: Program) -> list[Kernel]:
    return [s.kernel for s in program.steps if isinstance(s.kernel, Kernel) and s.kernel.columns]


def check(
    make: Any, fold: str, device: Any, dtype: DType = dt.float32, tolerance: float = 2e-6
) -> Program:
    """The folds of a product beside those in float64."""
    y, values = make(dtype)
    found, program = compute(FOLDS[fold](y), values, INTERPRET, device)
    y, held = make(dt.float64)
    held = {n: v.astype(np.float64) for n, v in zip(held, values.values(), strict=True)}
    assert_close(found, run(FOLDS[fold](y), held), tolerance)
    return program


@pytest.mark.sampled(2)
@pytest.mark.triton
@each_fold
@each_product
def test_values(product: str, fold: str) -> None:
    program = check(PRODUCTS[product], fold, interpreted())
    assert [s.kernel for s in program.steps] == folding(program)


@pytest.mark.sampled(2)
@pytest.mark.triton
@each_fold
@pytest.mark.parametrize("product", ["tails", "heads", "batched"])
def test_in_several_tiles_and_steps(product: str, fold: str) -> None:
    assert folding(check(PRODUCTS[product], fold, small_tiles()))


@pytest.mark.triton
@pytest.mark.parametrize(("dtype", "tolerance"), [(dt.float16, 4e-3), (dt.bfloat16, 3e-2)])
@pytest.mark.parametrize("fold", ["softmax", "layer_norm", "logsumexp", "statistics"])
def test_half_types(fold: str, dtype: DType, tolerance: float) -> None:
    assert folding(check(PRODUCTS["tails"], fold, interpreted(), dtype, tolerance))


@pytest.mark.triton
@pytest.mark.parametrize("fold", ["softmax", "layer_norm", "max"])
def test_channels_of_images(fold: str) -> None:
    """Where they come last they are the columns of a convolution."""
    assert folding(check(conv, fold, interpreted(), dt.bfloat16, 3e-2))


@pytest.mark.triton
def test_nan_and_infinity() -> None:
    """Rows with NaN, with infinities, with nothing but -inf; beyond their ends nothing is seen."""
    x, w = ops.leaf(0, (5, 8), dt.float32), ops.leaf(1, (8, 11), dt.float32)
    values = {x: np.ones((5, 8), np.float32), w: random_like("w", (8, 11)).astype(np.float32)}
    values[x][1, 3], values[x][2, 0] = np.nan, np.inf
    values[x][3] = 3e38
    y = ops.matmul(x, w)
    hidden = y - ops.constant(np.inf, dt.float32)
    roots = [
        f(z, (1,))
        for z in (y, hidden)
        for f in (ops.max, ops.min, ops.argmax, ops.argmin, ops.logsumexp)
    ]
    roots += [ops.softmax(y, 1), ops.softmax(hidden, 1)]
    found, program = compute(roots, values, INTERPRET, interpreted())
    assert folding(program)
    with np.errstate(all="ignore"):
        for a, b in zip(found, run(roots, values), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6)


@pytest.mark.triton
def test_gradients() -> None:
    """Of a layer with a norm behind it: rows of the gradients are folded in products, too."""

    def graph(dtype: DType) -> tuple[list[Node], dict[Node, Any]]:
        sizes = {"x": (30, 20), "w1": (20, 24), "w2": (24, 16), "g": (30, 16)}
        leaves = {n: ops.leaf(n, s, dtype) for n, s in sizes.items()}
        x, w1, w2 = (ops.variable(leaves[n], i) for i, n in enumerate(("x", "w1", "w2")))
        y = ops.layer_norm(ops.matmul(ops.layer_norm(ops.matmul(x, w1), 1), w2), 1)
        found = pullback({y: leaves["g"]}, [x, w1, w2])
        values = {n: random_like(name, n.shape).astype(dtype.np) for name, n in leaves.items()}
        return [y, *found.values()], values

    roots, values = graph(dt.float32)
    found, program = compute(roots, values, INTERPRET, interpreted())
    assert len(folding(program)) >= 3
    wanted, held = graph(dt.float64)
    assert_close(found, run(wanted, held), 1e-5)


@pytest.mark.triton
def test_groups_and_float8() -> None:
    def grouped(dtype: DType) -> tuple[list[Node], dict[Node, Any]]:
        x, w = ops.leaf(0, (40, 24), dtype), ops.leaf(1, (3, 24, 20), dtype)
        ends = ops.leaf(2, (3,), dt.int32)
        values = {n: (random_like(str(n.shape), n.shape) / 3).astype(dtype.np) for n in (x, w)}
        values[ends] = np.array([7, 7, 33], np.int32)
        return [ops.softmax(ops.grouped_mm(x, w, ends), 1)], values

    roots, values = grouped(dt.float32)
    found, program = compute(roots, values, INTERPRET, interpreted())
    assert folding(program)[0].has_dot
    roots, held = grouped(dt.float64)
    assert_close(found, run(roots, held), 2e-6)

    a, b = ops.leaf(0, (18, 32), dt.float8_e4m3fn), ops.leaf(1, (32, 48), dt.float8_e4m3fn)
    values = {n: random_like(str(n.shape), n.shape).astype(n.dtype.np) for n in (a, b)}
    roots = [ops.layer_norm(ops.matmul(a, b), 1)]
    found, program = compute(roots, values, INTERPRET, interpreted())
    assert folding(program)
    assert_close(found, run(roots, values), 2e-6)


# ---- what is fused -------------------------------------------------------------------------------


def kernels(fn: Callable[[], Any], target: str = "sm_90") -> list[Kernel]:
    programs = predict(fn).programs(target)
    return [s.kernel for _, p in programs for s in p.steps if isinstance(s.kernel, Kernel)]


def linear(rows: int, inner: int, columns: int, dtype: Any = tw.bfloat16) -> Any:
    x, w, b = (tw.zeros(*s, dtype=dtype) for s in ((rows, inner), (columns, inner), (columns,)))
    return lambda: F.linear(x, w, b)


def test_one_kernel_where_that_takes_less() -> None:
    """Long sums of many columns are computed in other tiles than such as hold rows."""
    for sizes, count in {
        (65536, 256, 64): 1,
        (8192, 512, 128): 1,
        (65536, 512, 256): 1,
        (8192, 8192, 512): 2,
        (4096, 4096, 4096): 2,
    }.items():
        y = linear(*sizes)
        found = kernels(lambda y=y: F.softmax(y(), -1))
        assert len(found) == count and bool(found[0].columns) == (count == 1)
    y = linear(8192, 8192, 512)
    report = predict(lambda: F.softmax(y(), -1)).fusion("sm_90")
    assert "takes longer in tiles that hold whole rows" in report


def test_cpus_fold_from_memory() -> None:
    y, _ = PRODUCTS["tails"](dt.float32)
    assert not folding(compile_graph(lower_graph(FOLDS["softmax"](y)), LLVM))


def test_what_is_no_row_of_the_product() -> None:
    """Columns of it, rows of another tensor, and short pieces of many columns."""
    y, _ = PRODUCTS["square"](dt.float32)
    other = ops.leaf("other", (24, 24), dt.float32)
    for roots in (
        [ops.softmax(y, 0)],
        [y, ops.softmax(other, 1)],
        [y + 1.0, ops.sum(other * ops.sum(y, (0, 1)), (0,))],
        [ops.softmax(ops.reshape(y, (24, 3, 8)), 2)],
        [ops.cumsum(y, 1)],
        [ops.sum(y, (0, 1))],
    ):
        assert not folding(compile_graph(lower_graph(roots), INTERPRET))


def test_as_text() -> None:
    """The kernel as people read it, and as MLIR and back."""
    y, _ = PRODUCTS["heads"](dt.float32)
    (kernel,) = folding(compile_graph(lower_graph(FOLDS["softmax"](y)), INTERPRET))
    text = describe(kernel)
    assert "parallel p0<21, p1<3\n  reduction r0<64, r1<20\n" in text
    assert "dot(v1, v0) of f32 over r1" in text and "reduce max(v2) over r0" in text
    again = parse_kernel(print_kernel(kernel))
    assert describe(again) == text and again.columns == again.reduction[:1]


# ---- GPUs ----------------------------------------------------------------------------------------

NORMS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda y: F.softmax(y, -1),
    "logsumexp": lambda y: tw.logsumexp(y, -1),
    "layer_norm": lambda y: F.layer_norm(y, y.shape[-1:]),
    "rms_norm": lambda y: F.rms_norm(y, y.shape[-1:]),
    "argmax": lambda y: y.argmax(-1),
    "gelu, layer_norm": lambda y: F.layer_norm(F.gelu(y), y.shape[-1:]),
}


@pytest.mark.triton
@pytest.mark.sampled(3)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "sizes",
    [
        (65536, 256, 64),
        pytest.param((8192, 512, 128), marks=pytest.mark.slow),
        pytest.param((65536, 256, 256), marks=pytest.mark.slow),
    ],
)
def test_tensor_cores(norm: str, sizes: tuple[int, int, int]) -> None:
    from tilewright.runtime.offline import compile_offline

    y = linear(*sizes)
    for kernel in kernels(lambda: NORMS[norm](y())):
        if kernel.columns:
            found = compile_offline(kernel, "sm_90")
            assert found.spills == 0 and "wgmma.mma_async" in found.asm["ptx"]
            assert found.shared <= CHIPS["sm_90"].shared_each


@pytest.mark.triton
def test_heads_are_normed_in_their_product() -> None:
    from tilewright.runtime.offline import compile_offline

    y = linear(4096, 4096, 4096)
    (kernel,) = kernels(lambda: F.rms_norm(y().view(8, 512, 32, 128), (128,)))
    assert points(kernel.columns) == 128
    found = compile_offline(kernel, "sm_90")
    assert found.spills == 0 and "wgmma.mma_async" in found.asm["ptx"]


@pytest.mark.triton
@pytest.mark.parametrize(
    "target", ["gfx942", *(pytest.param(t, marks=pytest.mark.slow) for t in ("sm_80", "sm_100"))]
)
def test_other_chips(target: str) -> None:
    from tilewright.runtime.offline import compile_offline

    y = linear(65536, 256, 64)
    (kernel,) = kernels(lambda: F.softmax(y(), -1), target)
    found = compile_offline(kernel, target)
    text = found.asm.get("ptx", "") + found.asm.get("amdgcn", "")
    assert CHIPS[target].product in text and found.spills == 0
    assert found.shared <= CHIPS[target].shared_each


def test_every_schedule_holds_rows() -> None:
    y = linear(65536, 256, 100)
    (kernel,) = kernels(lambda: F.softmax(y(), -1))
    assert points(kernel.columns) == 100
    found = space(kernel, HOPPER).places
    assert len(found) > 10 and all(s.block_n == 128 and s.parts == 1 for s in found)


@pytest.mark.triton
def test_training_on_cuda_as_on_the_cpu() -> None:
    from fake_cuda import installed

    from tilewright.runtime import devices

    def losses(device: str) -> list[float]:
        tw.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))
        model, x = model.to(device), tw.randn(48, 20).to(device)
        target = tw.arange(48).remainder(10).to(device)
        optimizer = tw.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses("cpu")
    assert expected[-1] < expected[0]
    with installed():
        np.testing.assert_allclose(losses("cuda"), expected, rtol=1e-4)
        assert not devices.get("cuda:0").fallbacks
