"""Products of float8 with scales of blocks of 128: every engine beside float64; compiled for GPUs
that are not here, they are float8's on tensor cores. PyTorch multiplies them on CUDA only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import compute, each_engine
from launching import compute as compute_on

import tilewright as tw
import tilewright.nn.functional as F
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.target import INTERPRET, gpu
from tilewright.codegen.triton import emit
from tilewright.ir import ops
from tilewright.ir.dtype import bfloat16, float8_e4m3fn, float8_e5m2, float32
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph

FORMS = ("rows by rows", "rows by squares", "squares by rows")
by_form = pytest.mark.parametrize("form", FORMS)


def blocks(size: int) -> int:
    return -(-size // 128)


def shapes(form: str, m: int, k: int, n: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of the scales of a and b, for `_scaled_mm`."""
    left, right = form.split(" by ")
    rows = m if left == "rows" else blocks(m)
    return (rows, blocks(k)), (blocks(k), n if right == "rows" else blocks(n))


def spread(scale: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """A number for each element of a matrix."""
    for axis, size in enumerate(shape):
        if scale.shape[axis] != size:
            scale = np.repeat(scale, 128, axis).take(range(size), axis)
    return scale.astype(np.float64)


def arrays(form: str, sizes: tuple[int, int, int], pair: Any) -> tuple[np.ndarray, ...]:
    """a, b as it lies in memory (n x k), and their scales."""
    m, k, n = sizes
    rng = np.random.default_rng(m + k + n)
    a, b = (rng.normal(size=s).astype(d.np) for s, d in zip(((m, k), (n, k)), pair))
    scales = (rng.uniform(0.2, 2, s).astype(np.float32) for s in shapes(form, *sizes))
    return a, b, *scales


def product(a: np.ndarray, b: np.ndarray, sa: np.ndarray, sb: np.ndarray) -> np.ndarray:
    left = a.astype(np.float64) * spread(sa, a.shape)
    return left @ (b.astype(np.float64).T * spread(sb, b.shape[::-1]))


def matrices(given: tuple[np.ndarray, ...], pair: Any) -> tuple[list[Node], dict[Node, Any]]:
    """a, b and their scales as leaves, and their values."""
    kinds = (*pair, float32, float32)
    leaves = [ops.leaf(i, x.shape, d) for i, (x, d) in enumerate(zip(given, kinds))]
    return leaves, dict(zip(leaves, given))


PAIR = (float8_e4m3fn, float8_e4m3fn)


@pytest.mark.sampled(3)
@each_engine
@by_form
@pytest.mark.parametrize(
    "sizes", [(64, 384, 256), (130, 257, 70), (1, 300, 5), (20, 128, 9), (3, 200, 1)], ids=str
)
def test_against_float64(engine: str, form: str, sizes: tuple[int, int, int]) -> None:
    pair = (float8_e4m3fn, float8_e5m2) if form == FORMS[0] else PAIR
    given = arrays(form, sizes, pair)
    expected = product(*given)
    (a, b, *scales), values = matrices(given, pair)
    bias = ops.leaf(4, (sizes[2],), bfloat16)
    values[bias] = np.linspace(-3, 3, sizes[2]).astype(bfloat16.np)
    for more, out, step in (((), float32, 2e-6), ((bias,), bfloat16, 2.0**-8)):
        root = ops.scaled_mm(a, ops.permute(b, (1, 0)), *scales, *more, out, bool(more))
        # Where there is a kernel for it, it is one; CPUs scale their operands first.
        (found,) = compute(engine, [root], values, kernels=1 if engine == "interpret" else None)
        wanted = expected + values[bias].astype(float) if more else expected
        atol = step * np.abs(wanted).max()
        np.testing.assert_allclose(found.astype(float), wanted, rtol=0, atol=atol)


@each_engine
@pytest.mark.parametrize("sizes", [(0, 300, 4), (3, 0, 4), (3, 300, 0)], ids=str)
def test_no_elements(engine: str, sizes: tuple[int, int, int]) -> None:
    for form in FORMS:
        (a, b, *scales), values = matrices(arrays(form, sizes, PAIR), PAIR)
        root = ops.scaled_mm(a, ops.permute(b, (1, 0)), *scales, float32, False)
        (found,) = compute(engine, [root], values)
        np.testing.assert_array_equal(found, np.zeros((sizes[0], sizes[2])))


@pytest.mark.triton
def test_steps_are_no_longer_than_blocks() -> None:
    from tilewright.runtime.interpret import InterpretDevice

    given = arrays(FORMS[1], (40, 300, 150), PAIR)
    (a, b, *scales), values = matrices(given, PAIR)
    root = ops.scaled_mm(a, ops.permute(b, (1, 0)), *scales, float32, False)
    for block in (32, 64, 128):
        schedule = Schedule(block_m=16, block_n=32, block_k=block)
        device = InterpretDevice(lambda kernel, target, s=schedule: s)
        (found,), program = compute_on([root], values, INTERPRET, device)
        np.testing.assert_allclose(found, product(*given), rtol=0, atol=1e-4)
    with pytest.raises(NotImplementedError, match="several scales"):
        emit(program.steps[0].kernel, Schedule(block_k=256))


@by_form
def test_the_function_of_recipes(form: str) -> None:
    """`F.scaled_mm` has scales of b by its rows, and those of squares padded."""
    m, k, n = 140, 300, 260
    a, b, sa, sb = arrays(form, (m, k, n), PAIR)
    kinds = {"rows": F.ScalingType.BlockWise1x128, "squares": F.ScalingType.BlockWise128x128}
    left, right = (kinds[each] for each in form.split(" by "))

    def padded(scale: np.ndarray) -> np.ndarray:
        """Scales of squares with K first, in a multiple of 4 rows."""
        return np.pad(scale, ((0, -len(scale) % 4), (0, 0)), constant_values=np.nan)

    given_a = sa if left is kinds["rows"] else padded(sa.T)
    given_b = sb.T if right is kinds["rows"] else padded(sb)
    narrow = [tw.tensor(x.view(np.uint8)).view(float8_e4m3fn) for x in (a, b)]
    y = F.scaled_mm(
        narrow[0], narrow[1].t(), tw.tensor(given_a), left, [tw.tensor(given_b)], [right],
        output_dtype=float32,
    )  # fmt: skip
    np.testing.assert_allclose(y.numpy(), product(a, b, sa, sb), rtol=0, atol=1e-3)


def test_errors_say_what_was_expected() -> None:
    a, b = (tw.ones(*s).to(float8_e4m3fn) for s in ((256, 256), (256, 128)))
    rows, squares = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
    good = tw.ones(256, 2)
    with pytest.raises(ValueError, match=r"scale_a must have shape 256 x 2 Float elements"):
        F.scaled_mm(a, b, tw.ones(2, 256), rows, tw.ones(128, 2), rows)
    with pytest.raises(ValueError, match=r"scale_b must have shape 128 x 2 .*float64"):
        F.scaled_mm(a, b, good, rows, tw.ones(128, 2).double(), rows)
    with pytest.raises(ValueError, match=r"scale_b must have shape 4 x 1 .*\(2, 1\)"):
        F.scaled_mm(a, b, good, rows, tw.ones(2, 1), squares)
    with pytest.raises(NotImplementedError, match="expected recipes among"):
        F.scaled_mm(a, b, tw.ones(4, 2), squares, tw.ones(4, 1), squares)
    with pytest.raises(ValueError, match=r"of blocks: \(256, 2\) and \(2, 128\)"):
        tw._scaled_mm(a, b, good, tw.ones(3, 128), out_dtype=float32)


def test_scales_have_gradients_and_float8_has_none() -> None:
    a, b = tw.ones(2, 256).to(float8_e4m3fn), tw.ones(256, 3).to(float8_e4m3fn)
    scale, other = tw.ones(2, 2, requires_grad=True), tw.ones(2, 3)
    tw._scaled_mm(a, b, scale, other, out_dtype=float32).sum().backward()
    assert scale.grad.tolist() == [[384.0, 384.0]] * 2
    with pytest.raises(NotImplementedError, match="a product of float8 has no derivative"):
        tw._scaled_mm(a.requires_grad_(), b, scale, other, out_dtype=float32).sum().backward()


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize(
    "target, mark",
    [
        ("sm_90", "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3"),
        ("sm_100", "tcgen05.mma.cta_group::1.kind::f8f6f4"),
        ("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("gfx942", "mfma"),
    ],
)
@pytest.mark.parametrize("form", FORMS[:2])
def test_tensor_cores(target: str, mark: str, form: str) -> None:
    from tilewright.runtime.offline import compile_offline

    size = 4096
    left, right = shapes(form, size, size, size)
    a, b = (ops.leaf(i, (size, size), float8_e4m3fn) for i in range(2))
    sa, sb = ops.leaf(2, left[::-1], float32), ops.leaf(3, right, float32)
    turned = ops.permute(b, (1, 0)), ops.permute(sa, (1, 0))
    root = ops.scaled_mm(a, *turned, sb, bfloat16, False)
    (step,) = compile_graph(lower_graph([root]), gpu(target)).steps
    found = compile_offline(step.kernel, target)
    text = found.asm.get("ptx", "") + found.asm.get("amdgcn", "")
    assert mark in text and found.spills == 0
