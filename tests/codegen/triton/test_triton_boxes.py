"""Convolutions whose tiles are boxes of places, which hardware copies with zeros around the image:
values through Triton's interpreter, instructions through the compiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from conv_cases import Case, expected, three
from launching import compute

from tilewright.codegen.kernel import Bundle, Dot, Kernel
from tilewright.codegen.kernel.analysis import Analysis
from tilewright.codegen.kernel.roles import roles
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule, boxes, default_schedule
from tilewright.codegen.schedule.choices import space
from tilewright.codegen.target import INTERPRET, NUMPY, Target, gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import Compiled, compile_offline

pytestmark = pytest.mark.triton
CHIP = replace(gpu("sm_90"), chip=replace(gpu("sm_90").chip, rows=16))
Scheduled = Callable[[Kernel | Bundle, Target], Schedule]


def contraction(kernel: Kernel | Bundle) -> bool:
    return isinstance(kernel, Kernel) and kernel.has_dot


def in_boxes(places: int, taken: list[str], parts: int = 1) -> Scheduled:
    """Boxes of so many places for each kernel that may have them, whose names go to `taken`."""

    def schedule(kernel: Kernel | Bundle, target: Target) -> Schedule:
        default = default_schedule(kernel, target)
        if not isinstance(kernel, Kernel) or not contraction(kernel):
            return default
        if not boxes.has_boxes(kernel, CHIP):
            return default
        dot = next(v for v in kernel.values if isinstance(v, Dot))
        shape = boxes.shape(roles(kernel, Analysis(kernel), dot), places)
        if not shape:
            return default
        taken.append(kernel.name)
        return replace(
            default, block_m=places, block_n=16 * parts, block_k=16, box=shape, parts=parts
        )

    return schedule


BOTH = ["conv_input_grad_last_dot", "conv_last_dot"]
TAKEN = [
    (Case("odd sizes", (2, 16, 7, 9), (32, 16, 3, 3), padding=(1, 1)), BOTH),
    (Case("no padding", (2, 16, 7, 9), (32, 16, 3, 3)), BOTH),
    (Case("uneven padding", (1, 16, 6, 6), (16, 16, 2, 3), padding=(0, 2)), BOTH),
    (Case("dilation", (2, 16, 9, 9), (16, 16, 3, 3), padding=(2, 2), dilation=2), BOTH),
    (Case("one dimension", (3, 16, 20), (48, 16, 5), padding=(2, 1)), BOTH),
    (Case("three dimensions", (2, 16, 4, 5, 3), (16, 16, 2, 3, 2), padding=(1, 0)), BOTH),
    (Case("channels that end in a tile", (2, 32, 5, 5), (24, 32, 3, 3), padding=(1, 1)), BOTH[1:]),
]
REFUSED = [
    Case("stride", (2, 16, 9, 8), (32, 16, 3, 3), stride=2, padding=(1, 1)),
    Case("groups", (2, 48, 6, 6), (32, 24, 3, 3), padding=(1, 1), groups=2),
    Case("a single tap", (2, 32, 5, 5), (16, 32, 1, 1)),
]


@pytest.mark.parametrize("places", [16, 64])
@pytest.mark.parametrize("each", TAKEN, ids=lambda c: c[0].name)
def test_values_and_gradients(each: tuple[Case, list[str]], places: int) -> None:
    case, wanted = each
    if places == 64 and len(case.x) == 5:
        wanted = BOTH[:1]  # no box of 64 places is as flat as the other image
    taken: list[str] = []
    roots, values = three(case)
    found, _ = compute(roots, values, INTERPRET, InterpretDevice(in_boxes(places, taken)))
    for a, b in zip(found, expected(case, values), strict=True):
        np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=1e-2 * np.abs(b).max())
    assert sorted(taken) == wanted


@pytest.mark.parametrize("each", REFUSED, ids=lambda c: c.name)
def test_others_have_none(each: Case) -> None:
    """A stride skips places, a group reads a part of the channels, one tap reads a matrix."""
    taken: list[str] = []
    roots, values = three(each)
    compute(roots[:1], values, INTERPRET, InterpretDevice(in_boxes(16, taken)))
    assert taken == []


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.float32], ids=str)
def test_epilogues(dtype: DType, parts: int) -> None:
    """A bias, a residual and an activation behind the sums, and results copied as boxes: what lies
    beyond the image isn't stored. Float32 is multiplied as TF32 is."""
    rng = np.random.default_rng(0)
    shapes = (2, 16, 5, 7), (32, 16, 3, 3), (1, 32, 1, 1), (32, 32, 3, 3)
    values: dict[Node, np.ndarray] = {
        ops.leaf(i, Size(s), dtype): (rng.standard_normal(s) / 4).astype(dtype.np)
        for i, s in enumerate(shapes)
    }
    x, first, bias, second = values
    attrs = (1, 1), ((1, 1), (1, 1)), (1, 1), 1
    y = ops.relu(ops.conv(x, first, *attrs) + bias)
    root = ops.relu(ops.conv(y, second, *attrs) + y)
    taken: list[str] = []
    device = InterpretDevice(in_boxes(16, taken, parts))
    target = replace(INTERPRET, tf32_convolutions=True)
    (found,), program = compute([root], values, target, device)
    (wanted,), _ = compute([root], values, NUMPY, NumpyDevice())
    scale = np.abs(wanted.astype(float)).max()
    tolerance = 1e-5 if dtype is dt.float32 else 2e-2
    np.testing.assert_allclose(
        found.astype(float), wanted.astype(float), rtol=0, atol=tolerance * scale
    )
    assert len(taken) == 2
    kernel = next(s.kernel for s in program.steps if contraction(s.kernel))
    text = emit(kernel, device._schedule(kernel, target)).body
    assert ".store([corner_0, corner_1, corner_2, first_n" in text


def layer(channels: int, size: int, gradient: bool, dtype: DType = dt.bfloat16) -> Kernel:
    """A layer of a ResNet-50, or the gradient of its image, behind which another one reads it."""
    case = Case("", (32, channels, size, size), (channels, channels, 3, 3), 1, (1, 1))
    x, w, other = (ops.leaf(i, Size(s), dtype) for i, s in enumerate((case.x, case.w, case.w)))
    y = (
        ops.conv_input_grad(x, w, case.x[2:], *case.attrs)
        if gradient
        else ops.conv(x, w, *case.attrs)
    )
    root = ops.conv(ops.relu(y), other, *case.attrs)
    program = compile_graph(lower_graph([root]), gpu("sm_90"))
    return next(s.kernel for s in program.steps if contraction(s.kernel))  # type: ignore[return-value]


def built(kernel: Kernel, target: str, schedule: Schedule) -> Compiled:
    found = compile_offline(kernel, target, schedule)
    assert found.spills == 0
    return found


TILE = Schedule(block_m=128, block_n=64, block_k=64, num_warps=4, num_stages=4)


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "image"])
@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_copies_take_no_instructions(target: str, gradient: bool) -> None:
    """Neither addresses nor masks of the image: half to three quarters of all are left."""
    kernel = layer(64, 56, gradient)
    plain = built(kernel, target, TILE)
    found = built(kernel, target, replace(TILE, box=(2, 8, 8)))
    ptx = found.asm["ptx"]
    assert re.search(r"cp\.async\.bulk\.tensor\.4d\.shared", ptx) and "cp.async.cg" not in ptx
    assert "cp.async.bulk.tensor.4d.global.shared" in ptx and "st.global" not in ptx
    assert gpu(target).chip.product in ptx
    assert ptx.count(";\n") < 0.75 * plain.asm["ptx"].count(";\n")
    assert found.registers < 0.9 * plain.registers
    assert [m.box for m in found.maps] == [(64, 64), (2, 8, 8, 64), (2, 8, 8, 64)]


@pytest.mark.parametrize("dtype", [dt.bfloat16, dt.float32], ids=str)
def test_layers_of_a_network_take_boxes(dtype: DType) -> None:
    """Where the model says that a box takes less time than a run of places. It has long rows and
    many places of each image: an H100 took up to five times as long for others."""
    target = gpu("sm_90")
    for channels, size in ((256, 14), (512, 7)):
        schedule = default_schedule(layer(channels, size, False, dtype), target)
        images, height, width = schedule.box
        assert images * height * width == schedule.block_m
        assert width >= 8 and height * width >= 64
        assert schedule.tf32 == (dtype is dt.float32)


def test_the_tuner_may_choose_either() -> None:
    """A box has the places of its tile, steps within a tap, and channels for tensor cores' rows."""
    found = space(layer(64, 14, False), gpu("sm_90")).schedules
    boxed = [s for s in found if s.box]
    assert boxed and len(boxed) < len(found)
    for each in boxed:
        assert np.prod(each.box) == each.block_m and 64 % each.block_k == 0 and each.block_n >= 64
        assert not each.persistent and not each.descriptors and not each.specialized


def test_chips_without_the_hardware_have_none() -> None:
    kernel = layer(64, 56, False)
    assert not default_schedule(kernel, gpu("sm_80")).box
    assert not default_schedule(kernel, gpu("gfx942")).box
