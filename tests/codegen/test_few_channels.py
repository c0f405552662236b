"""Convolutions of few channels on GPUs: values through Triton's interpreter beside the definition
of each op, quality through the compiler."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from conv_cases import Case, expected, kinds, three
from launching import compute

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.legalize.few_channels import Convolution, packing
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.schedule import default_schedule
from tilewright.codegen.target import INTERPRET, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import Compiled, compile_offline

pytestmark = pytest.mark.triton

# Launches that cost nothing, so that small images are laid out anew as well.
FREE = replace(INTERPRET, launch_cost=0)
HOPPER = gpu("sm_90")

CASES = [
    Case("color, 7x7 by 2", (2, 3, 17, 18), (24, 3, 7, 7), stride=2, padding=(3, 3)),
    Case("color, 3x3", (2, 3, 9, 8), (16, 3, 3, 3), padding=(1, 1)),
    Case("color, 11x11 by 4", (1, 3, 35, 31), (16, 3, 11, 11), stride=4, padding=(2, 2)),
    Case("gray, 5x5", (2, 1, 12, 13), (32, 1, 5, 5)),
    Case("gray, 3x3", (2, 1, 12, 13), (32, 1, 3, 3), padding=(1, 1)),
    Case("pixels side by side", (2, 2, 12, 13), (16, 2, 4, 4), stride=2, padding=(1, 1)),
    Case("along rows", (2, 2, 14, 12), (16, 2, 4, 3), stride=2, padding=(1, 1)),
    Case("places between strides", (2, 2, 14, 13), (16, 2, 4, 6), stride=3, padding=(1, 2)),
    Case("uneven padding", (2, 5, 9, 9), (16, 5, 3, 3), padding=(0, 2)),
    Case("whole vectors", (2, 8, 9, 9), (8, 8, 3, 3), padding=(1, 1)),
    Case("no whole vectors", (2, 20, 9, 9), (40, 20, 3, 3), padding=(1, 1)),
    Case("dilation", (2, 1, 15, 16), (32, 1, 4, 4), padding=(2, 2), dilation=2),
    Case("dilation and stride", (2, 3, 15, 16), (32, 3, 3, 3), 2, (2, 2), dilation=3),
    Case("one dimension", (2, 1, 64), (16, 1, 3), padding=(1, 1)),
    Case("three dimensions", (1, 3, 5, 9, 8), (16, 3, 3, 3, 3), stride=2, padding=(1, 1)),
    Case("a flat kernel", (1, 3, 5, 9, 8), (16, 3, 3, 3, 1)),
    Case("few outputs too", (2, 3, 9, 9), (6, 3, 5, 5)),
    Case("kernel as large as the image", (3, 1, 7, 7), (16, 1, 7, 7)),
    Case("more border than is reached", (64, 3, 3, 9), (32, 3, 5, 5), 7, (8, 0)),
    Case("a rest of the image that no window reaches", (4, 3, 14, 16), (32, 3, 3, 3), stride=2),
]
OTHERS = [
    Case("few outputs", (2, 32, 9, 9), (3, 32, 3, 3), padding=(1, 1)),
    Case("groups of three", (2, 12, 9, 9), (16, 3, 3, 3), padding=(1, 1), groups=4),
    Case("patches", (2, 3, 16, 16), (24, 3, 4, 4), stride=4),
    Case("1x1", (2, 3, 8, 8), (24, 3, 1, 1)),
]


@pytest.mark.parametrize("each", CASES + OTHERS, ids=lambda c: c.name)
def test_values_and_gradients(each: Case) -> None:
    """Of the square, so that the cotangent is made of what has channels last by then."""
    (y, *_), values = three(each)
    x, w, g = values
    inputs = [ops.variable(n, i) for i, n in enumerate((x, w))]
    y = ops.conv(*inputs, *each.attrs)
    grads = pullback({y * y: g}, inputs, create_graph=True)
    roots = [y, *(grads[n] for n in inputs)]
    found, program = compute(roots, values, FREE, InterpretDevice())
    exact = expected(each, values)[0]
    cotangent = (2 * exact * values[g].astype(np.float32)).astype(dt.bfloat16.np)
    wanted = expected(each, {**values, g: cotangent})
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=1e-2 * np.abs(b).max())
    if each in CASES:
        assert {"conv_last", "conv_weight_grad_last"} <= kinds(program)
        assert "conv_weight_grad" not in kinds(program)


def test_float32_and_what_is_around_it() -> None:
    """A stem of rounded float32 between arithmetic on its image and on its result."""
    rng = np.random.default_rng(1)
    x, w, b = (ops.leaf(i, Size(s), dt.float32) for i, s in enumerate(SHAPES))
    values = {n: rng.standard_normal(n.shape).astype(np.float32) for n in (x, w, b)}
    mean = ops.constant(0.5, dt.float32)
    y = ops.conv(x - ops.expand(mean, x.shape), w, (2, 2), ((1, 1),) * 2, (1, 1), 1)
    y = ops.relu(y + ops.expand(ops.reshape(b, (1, 8, 1, 1)), y.shape))
    pooled = ops.max_pool(y, (2, 2), (2, 2), ((0, 0),) * 2, (1, 1))
    target = replace(FREE, tf32_convolutions=True)
    (found,), program = compute([pooled], values, target, InterpretDevice())
    assert "conv_last" in kinds(program)
    arrays = list(values.values())
    wanted = ops.conv.numpy(arrays[0] - 0.5, arrays[1], (2, 2), ((1, 1),) * 2, (1, 1), 1)  # type: ignore[operator]
    wanted = np.maximum(wanted + arrays[2].reshape(8, 1, 1), 0)
    n, c, h, width = wanted.shape
    wanted = wanted[..., : h // 2 * 2, : width // 2 * 2]
    wanted = wanted.reshape(n, c, h // 2, 2, width // 2, 2).max((3, 5))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


SHAPES = ((2, 3, 13, 14), (8, 3, 5, 5), (8,))


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_pixel_reaches_its_windows_only(bad: float) -> None:
    """No tap of zero is beside a pixel that the kernel doesn't cover: inf * 0 is NaN."""
    for each in (CASES[0], CASES[3], CASES[5]):
        roots, values = three(each)
        x, w, _ = values
        values[x][0, 0, 6, 7] = bad
        (found,), _ = compute(roots[:1], {x: values[x], w: values[w]}, FREE, InterpretDevice())
        clean, seen = np.array(values[x]), np.zeros(each.x, np.float32)
        clean[0, 0, 6, 7] = 0
        seen[0, 0, 6, 7] = 1
        ones = np.ones(each.w, np.float32)
        reached = ops.conv.numpy(seen, ones, *each.attrs) != 0  # type: ignore[operator]
        assert np.isfinite(found.astype(float)[~reached]).all()
        assert not np.isfinite(found.astype(float)[reached]).any()


def test_a_gradient_of_no_images() -> None:
    g, x = (ops.leaf(i, Size(s), dt.bfloat16) for i, s in enumerate(((0, 16, 8, 8), (0, 3, 8, 8))))
    node = ops.conv_weight_grad(g, x, (3, 3), (1, 1), ((1, 1),) * 2, (1, 1), 1)
    empty = {n: np.zeros(n.shape, dt.bfloat16.np) for n in (g, x)}
    (found,), _ = compute([node], empty, FREE, InterpretDevice())
    assert found.shape == (16, 3, 3, 3) and not found.astype(float).any()


def stem(sizes: tuple[int, ...], kernel: int, inputs: int = 3, stride: int = 1) -> Convolution:
    edge, dims = kernel // 2, len(sizes)
    places = tuple((n + 2 * edge - kernel) // stride + 1 for n in sizes)
    taps, one = (kernel,) * dims, (1,) * dims
    return Convolution(
        64, inputs, 64, sizes, places, taps, (stride,) * dims, ((edge, edge),) * dims, one
    )


def test_layouts() -> None:
    """Color is filled up to four channels; of a gray image a row of the kernel is joined, or two
    pixels where a stride of two leaves each in one place."""
    found = packing(stem((224, 224), 7, stride=2), dt.bfloat16, HOPPER)
    assert found is not None and (found.together, found.channels) == (1, 4)
    assert found.sizes == (229, 229)  # with what of its border is reached
    found = packing(stem((64, 64), 5, inputs=1), dt.bfloat16, HOPPER)
    assert found is not None and (found.together, found.channels) == (5, 8)
    assert found.kernel == (5, 1)
    found = packing(stem((256, 256), 4, inputs=2, stride=2), dt.bfloat16, HOPPER)
    assert found is not None and (found.together, found.channels, found.step) == (2, 4, 2)
    assert math.prod(found.kernel) == 8


def test_small_images_and_patches_stay() -> None:
    """To launch a copy takes longer than to fetch few elements one by one; patches have vectors."""
    assert packing(stem((4, 4), 3), dt.bfloat16, HOPPER) is None
    patches = replace(stem((224, 224), 4, stride=4), padding=((0, 0),) * 2, places=(56, 56))
    assert packing(patches, dt.bfloat16, HOPPER) is None
    color = stem((224, 224), 3)
    assert packing(color, dt.bfloat16, HOPPER) is not None
    assert packing(color, dt.bfloat16, HOPPER, beside=1 << 30) is None


def test_a_short_sum_takes_few_stages() -> None:
    """Room for tiles that are never asked for would keep other programs out."""
    _, found = compiled("VGG", dt.bfloat16, False)
    assert found.shared <= 2 * (64 + 64) * 64 * 2


STEMS = {
    "ResNet-50": ((64, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    "VGG": ((64, 3, 224, 224), (64, 3, 3, 3), 1, 1),
    "AlexNet": ((64, 3, 224, 224), (96, 3, 11, 11), 4, 2),
    "gray": ((1024, 1, 28, 28), (32, 1, 5, 5), 1, 0),
}


def compiled(name: str, dtype: DType, is_gradient: bool) -> tuple[Program, Compiled]:
    x_shape, w_shape, stride, edge = STEMS[name]
    attrs = ((stride,) * 2, ((edge, edge),) * 2, (1, 1), 1)
    x, w = (ops.leaf(i, Size(s), dtype) for i, s in enumerate((x_shape, w_shape)))
    node: Node = ops.conv(x, w, *attrs)
    if is_gradient:
        node = ops.conv_weight_grad(node, x, w_shape[2:], *attrs)
    program = compile_graph(lower_graph([node]), HOPPER)
    kernels = [s.kernel for s in program.steps if isinstance(s.kernel, Kernel)]
    *_, found = (k for k in kernels if k.has_dot)
    assert found.notes[0][0] == ("conv_weight_grad_last" if is_gradient else "conv_last")
    return program, compile_offline(found, "sm_90", default_schedule(found, HOPPER))


LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("ResNet-50", "AlexNet")]


@pytest.mark.parametrize("is_gradient", [False, True], ids=["forward", "weight"])
@pytest.mark.parametrize("name", ["VGG", "gray", *LARGE])
def test_halves_are_read_by_vectors(name: str, is_gradient: bool) -> None:
    program, found = compiled(name, dt.bfloat16, is_gradient)
    copies = r"cp\.async\.c[ag]\.shared\.global \[[^]]*\], \[[^]]*\], (\w+)"
    widths = set(re.findall(copies, found.asm["ptx"]))
    assert widths and widths <= {"0x8", "0x10"}
    assert "ld.global.b16" not in found.asm["ptx"] and found.spills == 0
    # An image is not copied by the text of a bundle, which stores no vectors.
    assert not any(isinstance(s.kernel, Bundle) for s in program.steps)


@pytest.mark.parametrize("name", ["VGG", *LARGE])
def test_rounded_float32_is_read_by_vectors(name: str) -> None:
    _, found = compiled(name, dt.float32, False)
    ptx = found.asm["ptx"]
    assert "cp.async.cg" in ptx and "cp.async.ca" not in ptx and "wgmma" in ptx
    assert found.spills == 0
