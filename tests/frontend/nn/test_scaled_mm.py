"""Products of float8 with scales: one kernel on every engine, against float64 and PyTorch; compiled
for GPUs that are not here, they are float8's on tensor cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import compute, each_engine

import tilewright as tw
import tilewright.nn.functional as F
from tilewright.codegen.kernel import Dot, Kernel
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.schedule.roofline import predict, work
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType, bfloat16, float8_e4m3fn, float8_e5m2, float16, float32
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph

STEP = {float32: 2.0**-20, bfloat16: 2.0**-8, float16: 2.0**-11}
STEP |= {float8_e4m3fn: 2.0**-4, float8_e5m2: 2.0**-3}
"""How far rounding moves a number, relative to it."""
ONE = tw.tensor(1.0)


def matrix(seed: int, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=shape) * 2
    return np.clip(values, -448, 448).astype(dtype.np)


def scales(by_rows: bool, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    shapes = ((m, 1), (1, n)) if by_rows else ((), (1,))
    return tuple(np.asarray(rng.uniform(0.2, 2, s), np.float32) for s in shapes)  # type: ignore


def product(
    sizes: tuple[int, int, int],
    pair: Any,
    by_rows: bool,
    bias: DType | None,
    out: DType,
    fast: bool = False,
) -> tuple[Node, list[Node]]:
    """The node, with b in memory as [n, k], and its leaves."""
    m, k, n = sizes
    a, b = ops.leaf(0, (m, k), pair[0]), ops.leaf(1, (n, k), pair[1])
    sa, sb = (ops.leaf(2 + i, s.shape, float32) for i, s in enumerate(scales(by_rows, m, n)))
    rest = [ops.leaf(4, (n,), bias)] if bias else []
    return ops.scaled_mm(a, ops.permute(b, (1, 0)), sa, sb, *rest, out, fast), [a, b, sa, sb, *rest]


PAIRS = [
    (float8_e4m3fn, float8_e4m3fn),
    (float8_e5m2, float8_e4m3fn),
    (float8_e5m2, float8_e5m2),
]


@pytest.mark.sampled(6)
@each_engine
@pytest.mark.parametrize("by_rows", [False, True], ids=["tensor", "rows"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0].short}-{p[1].short}")
@pytest.mark.parametrize(
    "sizes", [(16, 32, 48), (33, 70, 17), (1, 64, 40), (130, 257, 64)], ids=str
)
def test_against_float64(
    engine: str, sizes: tuple[int, int, int], pair: Any, by_rows: bool
) -> None:
    m, k, n = sizes
    sa, sb = scales(by_rows, m, n)
    a, b = matrix(1, (m, k), pair[0]), matrix(2, (n, k), pair[1])
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64).T
    bound = np.abs(wide_a) @ np.abs(wide_b) * sa * sb
    for out, kind in (
        (float32, None),
        (bfloat16, bfloat16),
        (float16, float32),
        (pair[0], float16),
    ):
        y, leaves = product(sizes, pair, by_rows, kind, out, fast=out is bfloat16)
        values = dict(zip(leaves, (a, b, sa, sb)))
        exact = wide_a @ wide_b * sa.astype(np.float64) * sb.astype(np.float64)
        if kind is not None:
            values[leaves[4]] = np.linspace(-3, 3, n).astype(kind.np)
            exact = exact + values[leaves[4]].astype(np.float64)
        (found,) = compute(engine, [y], values, kernels=1)
        assert found.dtype == out.np
        if out is float8_e4m3fn:
            exact = np.clip(exact, -448, 448)
        error = np.abs(found.astype(np.float64) - exact)
        least = 2.0**-9 if out in dtypes.FLOAT8 else 1e-7
        assert (error <= np.abs(exact) * STEP[out] + (bound + 3) * 2.0**-21 + least).all()


@each_engine
def test_operands_in_any_layout(engine: str) -> None:
    """Rows or columns of either operand, and parts of larger matrices, in the one kernel."""
    a, b = matrix(1, (20, 40), float8_e4m3fn), matrix(2, (40, 24), float8_e4m3fn)
    exact = (a.astype(np.float32) @ b.astype(np.float32))[:18, 2:]
    one = ops.leaf(2, (), float32)
    for turn_a in (False, True):
        for turn_b in (False, True):
            arrays = (a.T.copy() if turn_a else a), (b.T.copy() if turn_b else b)
            x, y = (ops.leaf(i, m.shape, float8_e4m3fn) for i, m in enumerate(arrays))
            left = ops.permute(x, (1, 0)) if turn_a else x
            right = ops.permute(y, (1, 0)) if turn_b else y
            left, right = ops.slice_axis(left, 0, 0, 18), ops.slice_axis(right, 1, 2, 24)
            root = ops.scaled_mm(left, right, one, one, float32, False)
            values = {x: arrays[0], y: arrays[1], one: np.ones((), np.float32)}
            (found,) = compute(engine, [root], values, kernels=1)
            np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


@each_engine
def test_what_is_quantized_on_the_way_is_in_memory(engine: str) -> None:
    """Tensor cores take float8 from memory, so a computed operand is a kernel of its own."""
    x, w = ops.leaf(0, (32, 64), float32), ops.leaf(1, (16, 64), float8_e4m3fn)
    one = ops.leaf(2, (), float32)
    narrow = ops.cast(x * 0.5, float8_e4m3fn)
    root = ops.scaled_mm(narrow, ops.permute(w, (1, 0)), one, one, float32, False)
    values = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    weight = matrix(2, (16, 64), float8_e4m3fn)
    given = {x: values, w: weight, one: np.ones((), np.float32)}
    (found,) = compute(engine, [root], given, kernels=2)
    quantized = (values * np.float32(0.5)).astype(float8_e4m3fn.np).astype(np.float32)
    np.testing.assert_allclose(found, quantized @ weight.astype(np.float32).T, rtol=1e-5, atol=1e-5)


# ---- PyTorch's names -------------------------------------------------------------------------


def both(torch: Any, seed: int, shape: tuple[int, ...], dtype: DType) -> tuple[Any, Any]:
    bits = matrix(seed, shape, dtype).view(np.uint8)
    return tw.tensor(bits).view(dtype), torch.tensor(bits).view(getattr(torch, dtype.name))


@pytest.mark.parametrize("out", [None, float32, bfloat16, float8_e5m2], ids=str)
@pytest.mark.parametrize("by_rows", [False, True], ids=["tensor", "rows"])
def test_against_pytorch(torch: Any, by_rows: bool, out: DType | None) -> None:
    a, theirs_a = both(torch, 1, (32, 64), float8_e4m3fn)
    b, theirs_b = both(torch, 2, (48, 64), float8_e4m3fn)
    sa, sb = scales(by_rows, 32, 48)
    expected = torch._scaled_mm(
        theirs_a, theirs_b.t(), torch.tensor(sa), torch.tensor(sb),
        out_dtype=None if out is None else getattr(torch, out.name),
    )  # fmt: skip
    found = tw._scaled_mm(a, b.t(), tw.tensor(sa), tw.tensor(sb), out_dtype=out)
    assert str(found.dtype) == str(expected.dtype)
    step = 2 * STEP[found.dtype]
    np.testing.assert_allclose(
        found.float().numpy(), expected.float().numpy(), rtol=step, atol=1e-4
    )


def test_a_result_of_float8_is_scaled(torch: Any) -> None:
    (a, ta), (b, tb) = (both(torch, i, (32, 32), float8_e4m3fn) for i in (1, 2))
    one, half = torch.tensor(1.0), torch.tensor(0.5)
    for dtype in ("float8_e4m3fn", "float32"):
        options = {"scale_result": half, "out_dtype": getattr(torch, dtype)}
        expected = torch._scaled_mm(ta, tb.t(), one, one, **options)
        options = {"scale_result": tw.tensor(0.5), "out_dtype": dtypes.named(dtype)}
        found = tw._scaled_mm(a, b.t(), ONE, ONE, **options)
        step = 2 * STEP[found.dtype]
        np.testing.assert_allclose(found.float().numpy(), expected.float().numpy(), step, 1e-4)


def test_the_function_of_recipes(torch: Any) -> None:
    (a, ta), (b, tb) = (both(torch, i, (16, 32), float8_e4m3fn) for i in (1, 2))
    bias = np.linspace(-1, 1, 16)
    for recipe, by_rows in (("TensorWise", False), ("RowWise", True)):
        sa, sb = scales(by_rows, 16, 16)
        results = []
        for t, x, y in ((tw, a, b), (torch, ta, tb)):
            f = t.nn.functional
            kind = getattr(f.ScalingType, recipe)
            options = {"bias": t.tensor(bias, dtype=t.bfloat16)}
            out = f.scaled_mm(x, y.t(), t.tensor(sa), kind, [t.tensor(sb)], [kind], **options)
            assert out.dtype is t.bfloat16
            results.append(out.float().numpy())
        np.testing.assert_allclose(*results, rtol=2.0**-7, atol=2.0**-7)


def test_errors_say_what_was_expected() -> None:
    a = tw.ones(16, 32).to(float8_e4m3fn)
    b, rows = tw.ones(32, 48).to(float8_e4m3fn), tw.ones(16, 1)
    with pytest.raises(ValueError, match=r"expected matrices of float8, got .* torch.float32"):
        tw._scaled_mm(a, b.float(), ONE, ONE)
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(\(16, 32\) and \(16, 32\)\)"):
        tw._scaled_mm(a, a, ONE, ONE)
    for scale_a, scale_b in ((rows, ONE), (rows, tw.ones(48)), (ONE.double(), ONE)):
        with pytest.raises(ValueError, match=r"of shapes \(16, 1\) and \(1, 48\)"):
            tw._scaled_mm(a, b, scale_a, scale_b)
    with pytest.raises(RuntimeError, match=r"Bias must be size 48 but got \(47,\)"):
        tw._scaled_mm(a, b, ONE, ONE, bias=tw.ones(47))
    kinds, swizzle = F.ScalingType, F.SwizzleType.SWIZZLE_32_4_4
    with pytest.raises(NotImplementedError, match="blocks of 16 and 32 are not implemented"):
        F.scaled_mm(a, b, rows, kinds.BlockWise1x32, rows, kinds.BlockWise1x32)
    with pytest.raises(NotImplementedError, match="expected recipes among"):
        F.scaled_mm(a, b, rows, kinds.RowWise, ONE, kinds.TensorWise)
    with pytest.raises(NotImplementedError, match="without swizzles"):
        F.scaled_mm(a, b, ONE, kinds.TensorWise, ONE, kinds.TensorWise, swizzle_a=swizzle)
    with pytest.raises(NotImplementedError, match="one scale for each matrix"):
        F.scaled_mm(a, b, [ONE, ONE], kinds.TensorWise, ONE, kinds.TensorWise)
    with pytest.raises(ValueError, match="scale_a must have 1 Float element"):
        F.scaled_mm(a, b, rows, kinds.TensorWise, ONE, kinds.TensorWise)
    with pytest.raises(NotImplementedError, match="a product of float8 has no derivative"):
        tw._scaled_mm(a.requires_grad_(), b, ONE, ONE, out_dtype=float32).sum().backward()


def test_scales_and_bias_have_gradients() -> None:
    scale, bias = tw.tensor(0.5, requires_grad=True), tw.zeros(4, requires_grad=True)
    a = tw.ones(2, 8).to(float8_e4m3fn)
    y = tw._scaled_mm(a, tw.ones(8, 4).to(float8_e5m2), scale, ONE, bias=bias, out_dtype=float32)
    y.sum().backward()
    assert scale.grad.item() == 64.0 and bias.grad.tolist() == [2.0] * 4


def test_no_elements() -> None:
    for m, k, n in ((0, 16, 4), (4, 0, 3), (3, 16, 0)):
        a, b = tw.zeros(m, k).to(float8_e4m3fn), tw.zeros(k, n).to(float8_e4m3fn)
        assert tw._scaled_mm(a, b, ONE, ONE, out_dtype=float32).tolist() == [[0.0] * n] * m


# ---- GPUs ------------------------------------------------------------------------------------


def kernel_for(target: str, y: Node) -> Kernel:
    (step,) = compile_graph(lower_graph([y]), gpu(target)).steps
    assert isinstance(step.kernel, Kernel)
    return step.kernel


SQUARE = (4096, 4096, 4096)


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize(
    "target, pair, mark",
    [
        ("sm_90", PAIRS[0], "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3"),
        ("sm_90", PAIRS[1], "wgmma.mma_async.sync.aligned.m64n128k32.f32.e5m2.e4m3"),
        ("sm_90", PAIRS[2], "wgmma.mma_async.sync.aligned.m64n128k32.f32.e5m2.e5m2"),
        ("sm_100", PAIRS[0], "tcgen05.mma.cta_group::1.kind::f8f6f4"),
        ("sm_80", PAIRS[0], "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("gfx942", PAIRS[1], "v_mfma_f32_32x32x8_f16"),
    ],
)
def test_tensor_cores(target: str, pair: Any, mark: str) -> None:
    """Float8 as it is where tensor cores take it, and as float16, which holds it, elsewhere."""
    from tilewright.runtime.offline import compile_offline

    by_rows, out = (False, bfloat16) if pair is PAIRS[0] else (True, pair[0])
    kernel = kernel_for(target, product(SQUARE, pair, by_rows, bfloat16, out)[0])
    found = compile_offline(kernel, target)
    text = found.asm.get("ptx", "") + found.asm.get("amdgcn", "")
    assert mark in text and found.spills == 0
    if target.startswith("sm_"):
        assert "cp.async.cg.shared.global" in text  # 16 bytes at a time
    if target == "sm_90":
        tile = default_schedule(kernel, gpu(target))
        assert found.shared == (tile.block_m + tile.block_n) * tile.block_k * tile.num_stages


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("out", [bfloat16, float8_e4m3fn], ids=str)
def test_sums_that_may_be_short_take_larger_tiles(out: DType) -> None:
    from tilewright.runtime.offline import compile_offline

    kernel = kernel_for("sm_90", product(SQUARE, PAIRS[0], True, bfloat16, out, fast=True)[0])
    found = compile_offline(kernel, "sm_90")
    assert "m64n256k32.f32.e4m3.e4m3" in found.asm["ptx"] and found.spills == 0


@pytest.mark.triton
@pytest.mark.parametrize("target", ["sm_90", "sm_80"])
def test_short_sums(target: str) -> None:
    """Tensor cores take at least 32 places of K of float8."""
    from tilewright.runtime.offline import compile_offline

    y, _ = product((64, 16, 128), PAIRS[0], False, None, bfloat16)
    assert compile_offline(kernel_for(target, y), target).spills == 0


@pytest.mark.triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize("dtype", dtypes.FLOAT8, ids=str)
def test_conversions_compile(target: str, dtype: DType) -> None:
    """To float8 and from it, by whole vectors, on GPUs that know the types and on those that
    don't."""
    from tilewright.runtime.offline import compile_offline

    x = ops.leaf(0, (1 << 20,), bfloat16)
    found = compile_offline(kernel_for(target, ops.cast(x * 2.0, dtype)), target)
    assert found.spills == 0
    y = ops.leaf(0, (1 << 20,), dtype)
    back = compile_offline(kernel_for(target, ops.cast(y, bfloat16) * 2.0), target)
    assert back.spills == 0
    if target.startswith("sm_"):
        assert "ld.global.v4" in found.asm["ptx"] and "st.global.v4" in back.asm["ptx"]


def test_the_model_knows_the_rates() -> None:
    seconds = {}
    target = gpu("sm_90")
    for dtype, op in (
        (bfloat16, ops.matmul), (float8_e4m3fn, ops.matmul), (float8_e4m3fn, ops.matmul_fast),
    ):  # fmt: skip
        a, b = (ops.leaf(i, (8192, 8192), dtype) for i in range(2))
        kernel = kernel_for("sm_90", op(a, b))
        assert work(kernel).dtype is dtype
        seconds[dtype, op] = predict(kernel, default_schedule(kernel, target), target).seconds
    half, exact, fast = seconds.values()
    assert 0.45 < fast / half < exact / half < 0.75
    chip = gpu("sm_80").chip
    assert chip.flops(float8_e4m3fn) == chip.flops(float16)


def test_float32_made_of_float8_is_multiplied_in_full() -> None:
    """Hopper's sums of float8 are short of float32's bits, which nobody asked for here."""
    a, b = (ops.leaf(i, (128, 128), float8_e4m3fn) for i in range(2))
    kernel = kernel_for("sm_90", ops.matmul(ops.cast(a, float32), ops.cast(b, float32)))
    (dot,) = (v for v in kernel.values if isinstance(v, Dot))
    assert dot.input_dtype is float32
    assert 'input_precision="ieee"' in emit(kernel, Schedule()).source
