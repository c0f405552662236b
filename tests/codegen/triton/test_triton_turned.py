"""Maps whose loads run along other axes than their stores: values through Triton's interpreter,
vectors on both sides through the compiler."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import triton_kernels as tk
from launching import compute
from triton_launches import launch

from tilewright.codegen.kernel import Kernel, Store
from tilewright.codegen.kernel.index import Axis
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule, default_schedule, sides
from tilewright.codegen.target import INTERPRET, gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import compile_offline

pytestmark = pytest.mark.triton

Made = Callable[[Node, Node], Node]
Turned = tuple[str, Made, tuple[int, ...], tuple[int, ...]]


def interleaved(x: Node, _: Node) -> Node:
    """x[n, 2 h, w, c] as [n, c, h, 2 w] with zeros between its rows."""
    n, h, w, c = x.shape
    apart = ops.permute(ops.reshape(x, (n, h, w, 1, c)), (0, 4, 1, 2, 3))
    padded = ops.pad(apart, (0, 0, 0, 0, 0), (0, 0, 0, 0, 1))
    return ops.reshape(padded, (n, c, h, 2 * w))


TURNED: list[Turned] = [
    ("transpose", lambda x, y: ops.permute(x, (1, 0)), (80, 48), (1,)),
    ("ends", lambda x, y: ops.permute(x, (1, 0)), (77, 35), (1,)),
    ("batch", lambda x, y: ops.permute(x, (0, 1, 3, 2)), (2, 3, 40, 33), (1,)),
    ("channels last", lambda x, y: ops.permute(x, (0, 2, 3, 1)), (2, 24, 6, 7), (1,)),
    ("channels first", lambda x, y: ops.permute(x, (0, 3, 1, 2)), (2, 6, 7, 24), (1,)),
    ("reversed", lambda x, y: ops.permute(x, (2, 1, 0)), (20, 3, 36), (1,)),
    ("fused", lambda x, y: ops.permute(x, (1, 0)) * y, (40, 24), (24, 40)),
    ("every second", lambda x, y: ops.permute(every_second(x), (0, 2, 1)), (2, 32, 40), (1,)),
    ("interleaved", interleaved, (2, 3, 20, 24), (1,)),
]


def every_second(x: Node) -> Node:
    return ops.slice_axis(x, 2, 0, x.shape[2], 2)


def kernel_of(made: Made, *shapes: tuple[int, ...], dtype: DType = dt.float32) -> Kernel:
    x, y = (ops.leaf(i, Size(s), dtype) for i, s in enumerate(shapes))
    (step,) = compile_graph(lower_graph([made(x, y)]), gpu("sm_90")).steps
    assert isinstance(step.kernel, Kernel)
    return step.kernel


@pytest.mark.parametrize("each", TURNED, ids=lambda t: t[0])
@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=str)
@pytest.mark.parametrize("large", [True, False])
def test_values(each: Turned, dtype: DType, large: bool) -> None:
    _, made, *shapes = each
    leaves = [ops.leaf(i, Size(s), dtype) for i, s in enumerate(shapes)]
    rng = np.random.default_rng(0)
    values = {n: rng.integers(-8, 8, n.shape).astype(np.float32).astype(dtype.np) for n in leaves}
    roots = [made(leaves[0], leaves[1])]
    device = InterpretDevice()
    target = INTERPRET
    if not large:  # many programs, whose rectangles reach over the ends
        device = InterpretDevice(lambda kernel, target: Schedule(block=16, turned=16))
    (found,), program = compute(roots, values, target, device)
    (step,) = program.steps
    assert isinstance(step.kernel, Kernel)
    assert sides(step.kernel) is not None and default_schedule(step.kernel, target).turned
    expected = reference(each[0], *values.values())
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def reference(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if name == "every second":
        return x[:, :, ::2].transpose(0, 2, 1)
    if name == "interleaved":
        n, h, w, c = x.shape
        out = np.zeros((n, c, h, 2 * w), x.dtype)
        out[..., ::2] = x.transpose(0, 3, 1, 2)
        return out
    orders = {
        "transpose": (1, 0),
        "ends": (1, 0),
        "fused": (1, 0),
        "batch": (0, 1, 3, 2),
        "channels last": (0, 2, 3, 1),
        "channels first": (0, 3, 1, 2),
        "reversed": (2, 1, 0),
    }
    turned = x.transpose(orders[name])
    return turned * y if name == "fused" else turned


@pytest.mark.parametrize("dtype", [dt.bfloat16, dt.float32], ids=str)
@pytest.mark.parametrize(
    "made, shapes",
    [
        (lambda x, y: ops.permute(x, (1, 0)), ((4096, 8192), (1,))),
        (lambda x, y: ops.permute(x, (0, 2, 3, 1)), ((128, 256, 56, 56), (1,))),
        (lambda x, y: ops.permute(x, (1, 0)) + y, ((4096, 2048), (2048, 4096))),
    ],
    ids=["transpose", "channels last", "fused"],
)
def test_vectors_on_both_sides(
    made: Made, shapes: tuple[tuple[int, ...], ...], dtype: DType
) -> None:
    kernel = kernel_of(made, *shapes, dtype=dtype)
    compiled = compile_offline(kernel, "sm_90", default_schedule(kernel, gpu("sm_90")))
    ptx = compiled.asm["ptx"]
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx
    assert not any(f".global.b{bits}" in ptx for bits in (16, 32))
    assert compiled.shared > 0 and compiled.spills == 0


@pytest.mark.parametrize(
    "made, shapes",
    [
        (lambda x, y: ops.add(x, ops.expand(y, x.shape)), ((64, 512), (64, 1))),
        (lambda x, y: ops.add(x, ops.expand(y, x.shape)), ((64, 512), (512,))),
        # The three channels of a pixel share a sector; the heads of a row are read by vectors.
        (lambda x, y: ops.permute(x, (0, 2, 3, 1)), ((8, 3, 64, 64), (1,))),
        (lambda x, y: ops.permute(x, (0, 2, 1, 3)), ((8, 128, 12, 64), (1,))),
    ],
    ids=["column", "row", "few channels", "heads"],
)
def test_maps_in_the_order_of_their_stores(made: Made, shapes: tuple[tuple[int, ...], ...]) -> None:
    kernel = kernel_of(made, *shapes)
    assert sides(kernel) is None
    assert not default_schedule(kernel, gpu("sm_90")).turned


def test_stores_in_steps() -> None:
    """A write into every 32nd place has no neighbours."""
    a, b = Axis("p0", 32), Axis("p1", 64)
    x, y = tk.array("x", (64, 32)), tk.array("y", (32, 64, 32))
    value = tk.load(x, tk.at((64, 32), b, a))
    kernel = Kernel("copy", (a, b), (), (Store(y, tk.at((32, 64, 32), a, b, 0), value),))
    found = sides(kernel)
    assert found is not None and (found.down, found.across) == ((a,), (b,))
    device = InterpretDevice(lambda kernel, target: Schedule(block=16, turned=16))
    out = launch(device, kernel)
    expected = out["x"].reshape(64, 32).T
    np.testing.assert_array_equal(out["y"].reshape(32, 64, 32)[:, :, 0], expected)


def test_axes_outside_of_rectangles_are_numbers_of_a_program() -> None:
    kernel = kernel_of(lambda x, y: ops.permute(x, (0, 2, 3, 1)), (128, 64, 32, 32), (1,))
    found = sides(kernel)
    assert found is not None
    extents = [tuple(a.extent for a in axes) for axes in (found.outer, found.down, found.across)]
    assert extents in ([(128,), (32, 32), (64,)], [(128,), (1024,), (64,)])
    assert "_ok" not in emit(kernel, default_schedule(kernel, gpu("sm_90"))).body
