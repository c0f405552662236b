"""Products of float32 made of bfloat16 digits: values through Triton's interpreter, tensor cores
through the compiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from launching import compute

from tilewright.codegen.kernel import Apply, Bundle, Kernel
from tilewright.codegen.kernel.digits import has_digits
from tilewright.codegen.legalize import digits
from tilewright.codegen.ops import DIGITS
from tilewright.codegen.program import Program, compile_graph, launched
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.target import INTERPRET, Target, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.numeric import special
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import compile_offline

pytestmark = pytest.mark.triton

TARGET = replace(INTERPRET, digits=True)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are made of digits, too."""
    monkeypatch.setattr(digits, "_GAIN", 0.0)


def leaf(place: int, *shape: int) -> Node:
    return ops.leaf(place, Size(shape), dt.float32)


def turned(x: Node) -> Node:
    return ops.permute(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def numbers(*shape: int) -> np.ndarray:
    """Numbers of many sizes."""
    rng = np.random.default_rng(len(shape) + shape[-1])
    drawn = rng.normal(size=shape) * np.exp2(rng.integers(-9, 9, size=shape))
    return drawn.astype(np.float32)


def kernel_of(program: Program) -> Kernel:
    (found,) = (s.kernel for s in program.steps if has_digits_of(s.kernel))
    return found


def has_digits_of(kernel: Kernel | Bundle) -> bool:
    return isinstance(kernel, Kernel) and kernel.has_dot and has_digits(kernel)


def device(**fields: object) -> InterpretDevice:
    def chosen(kernel: Kernel | Bundle, target: Target) -> Schedule:
        default = default_schedule(kernel, target)
        return replace(default, **fields) if has_digits_of(kernel) else default

    return InterpretDevice(chosen)


def bits() -> np.ndarray:
    """Float32 of all sizes: random bits, the ends of the range, and the edges of rounding."""
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 20_000, np.uint64).astype(np.uint32)
    edges = np.array([0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x3F808000, 0x3F80FFFF, 0], np.uint32)
    both = np.concatenate([drawn, edges, edges | 1 << 31]).view(np.float32)
    return both[np.isfinite(both) & ((np.abs(both) > 2.0**-100) | (both == 0))]


def test_three_digits_are_exact() -> None:
    x = bits()
    parts = [special.digit(x, place) for place in range(3)]
    for part in parts:
        np.testing.assert_array_equal(part, part.astype(dt.bfloat16.np).astype(np.float32))
    np.testing.assert_array_equal((parts[2] + parts[1]) + parts[0], x)
    ends = np.array([np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(special.digit(ends, 0), ends)
    assert not special.digit(ends, 1).any() and not special.digit(ends, 2).any()


def test_kernels_make_the_same_digits() -> None:
    x = np.concatenate([bits(), np.array([np.inf, -np.inf, np.nan], np.float32)])
    node = leaf(0, *x.shape)
    roots = [digit(node, 0) for digit in DIGITS]
    found, _ = compute(roots, {node: x}, INTERPRET, InterpretDevice())
    for place, part in enumerate(found):
        np.testing.assert_array_equal(part.astype(np.float32), special.digit(x, place))


@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize(
    "made, shapes",
    [
        (lambda a, b: ops.matmul(a, b), ((64, 96), (96, 64))),
        (lambda a, b: ops.matmul(a, turned(b)), ((100, 130), (70, 130))),
        (lambda a, b: ops.matmul(turned(a), b), ((77, 83), (77, 91))),
        (lambda a, b: ops.matmul(turned(a), turned(b)), ((40, 65), (66, 40))),
        (lambda a, b: ops.matmul(a, ops.expand(b, (2, *b.shape))), ((2, 70, 33), (33, 65))),
        (lambda a, b: ops.exp(ops.neg(ops.abs(ops.matmul(a, b)))), ((65, 8), (8, 64))),
    ],
    ids=["plain", "b turned", "a turned", "both turned", "batch", "epilogue"],
)
def test_values(
    made: Callable[[Node, Node], Node],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    descriptors: bool,
    small: None,
) -> None:
    a, b = (leaf(i, *s) for i, s in enumerate(shapes))
    values = {n: numbers(*n.shape) for n in (a, b)}
    on = device(block_m=32, block_n=64, block_k=32, descriptors=descriptors)
    (found,), program = compute([made(a, b)], values, TARGET, on)
    kernel = kernel_of(program)
    assert default_schedule(kernel, TARGET).digits
    exact = reference(made, {n: v.astype(np.float64) for n, v in values.items()})
    plain = reference(made, values)
    largest = np.abs(exact).max()
    error = np.abs(found - exact).max() / largest
    assert error <= max(2 * np.abs(plain - exact).max() / largest, 2e-7)


def reference(made: Callable[[Node, Node], Node], values: dict[Node, np.ndarray]) -> np.ndarray:
    """The same by NumPy, in the type of the values."""
    x, w = values.values()
    kind = dt.float64 if x.dtype == np.float64 else dt.float32
    a, b = (ops.leaf(i, Size(v.shape), kind) for i, v in enumerate((x, w)))
    return evaluated(made(a, b), {a: x, b: w})


def evaluated(node: Node, values: dict[Node, np.ndarray]) -> np.ndarray:
    if node in values:
        return values[node]
    args = [evaluated(o, values) for o in node.operands]
    if node.op is ops.matmul:
        return args[0] @ args[1]
    if node.op is ops.permute_op:
        return args[0].transpose(node.attrs[0])
    if node.op is ops.expand_op:
        return np.broadcast_to(args[0], node.shape)
    functions = {ops.neg: np.negative, ops.abs: np.abs, ops.exp: np.exp}
    return functions[node.op](*args)


@pytest.mark.parametrize("descriptors", [False, True])
def test_sums_that_are_not_finite(descriptors: bool, small: None) -> None:
    a, b = leaf(0, 100, 70), leaf(1, 70, 90)
    x, w = numbers(100, 70), numbers(70, 90)
    x[3, 3], x[5, 5], x[7, 7], w[60, 12] = np.inf, np.nan, -np.inf, np.inf
    w[3, 9], w[3, 11], w[7, 20] = 0, 1.5, -(2.0**-20)  # infinity times 0, and times a single digit
    x[20], x[20, 0], w[0] = 0, np.finfo(np.float32).max, 0.25  # is finite, though near the end
    on = device(block_m=32, block_n=32, block_k=32, descriptors=descriptors)
    (found,), _ = compute([ops.matmul(a, b)], {a: x, b: w}, TARGET, on)
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float64) @ w
    assert np.isinf(expected).any() and np.isnan(expected).any()
    odd = ~np.isfinite(expected)
    np.testing.assert_array_equal(found[odd], expected[odd].astype(np.float32))
    assert np.isfinite(found[~odd]).all()
    np.testing.assert_allclose(found[20, :12], expected[20, :12], rtol=1e-6)


def test_without_tensor_cores_the_number_is_made_again(small: None) -> None:
    a, b = leaf(0, 80, 70), leaf(1, 70, 90)
    x, w = numbers(80, 70), numbers(70, 90)
    on = device(digits=False, block_m=32, block_n=32, block_k=16)
    (found,), program = compute([ops.matmul(a, b)], {a: x, b: w}, TARGET, on)
    assert kernel_of(program)
    exact = x.astype(np.float64) @ w
    assert np.abs(found - exact).max() <= 5e-7 * np.abs(exact).max()


def _programs(*roots: Node, target: str = "sm_90", tf32: bool = False) -> Program:
    return compile_graph(lower_graph(list(roots)), gpu(target, tf32))


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_large_products_are_made_of_digits(target: str) -> None:
    program = _programs(ops.matmul(leaf(0, 2048, 2048), leaf(1, 2048, 2048)), target=target)
    schedule = default_schedule(kernel_of(program), gpu(target))
    assert schedule.digits and schedule.descriptors == (target != "sm_80")


@pytest.mark.parametrize(
    "shapes, tf32",
    [
        (((128, 128), (128, 128)), False),
        (((16, 8192), (8192, 8192)), False),  # memory decides
        (((2048, 2048), (2048, 2048)), True),
    ],
    ids=["small", "few rows", "TF32"],
)
def test_others_are_not(shapes: tuple[tuple[int, int], tuple[int, int]], tf32: bool) -> None:
    program = _programs(ops.matmul(*(leaf(i, *s) for i, s in enumerate(shapes))), tf32=tf32)
    assert not any(has_digits_of(s.kernel) for s in program.steps)


@pytest.mark.parametrize("far", [False, True])
def test_products_that_lie_near_share_digits(far: bool) -> None:
    """Those of a layer's gradients do. Far behind the layer, its factors' digits are made again,
    and take no memory meanwhile."""
    x, w, g = leaf(0, 4096, 2048), leaf(1, 1024, 2048), leaf(2, 4096, 1024)
    y = ops.matmul(x, turned(w))
    for place in range(40 * far):
        y = ops.sin(y + leaf(3 + place, 1024))
    back = g + y
    roots = [ops.matmul(back, w), ops.matmul(turned(back), x)]
    kernels = launched(_programs(*roots))
    members = [m for k in kernels for m in (k.members if isinstance(k, Bundle) else (k,))]
    values = [v for m in members for v in m.values if isinstance(v, Apply)]
    made = [v for v in values if v.op is DIGITS[0]]
    assert len(made) == (5 if far else 3)
    late = [any(v.op is DIGITS[0] for v in m.values if isinstance(v, Apply)) for m in members]
    between = [any(v.op is ops.sin for v in m.values if isinstance(v, Apply)) for m in members]
    if far:  # three of them behind what lies between
        assert sum(late[between.index(True) :]) == 3


@pytest.mark.parametrize(
    "shapes", [((4096, 4096), (4096, 4096)), ((2053, 1021), (1021, 1533))], ids=["even", "odd"]
)
def test_tensor_cores_multiply_them(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    kernel = kernel_of(_programs(ops.matmul(*(leaf(i, *s) for i, s in enumerate(shapes)))))
    compiled = compile_offline(kernel, "sm_90", default_schedule(kernel, gpu("sm_90")))
    ptx = compiled.asm["ptx"]
    assert ".bf16.bf16" in ptx and "cp.async.bulk.tensor" in ptx
    assert re.search(r"add(\.rn)?\.f32", ptx)  # steps are added outside of the tensor cores
    # Each product is waited for before its sums are read: the next product, then the addition.
    assert ptx.count("wgmma.commit_group") == ptx.count("wgmma.wait_group") > 0
    assert compiled.spills == 0
