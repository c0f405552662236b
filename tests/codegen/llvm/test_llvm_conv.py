"""Convolutions as native code: all that a convolution can be, against sums in float64."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program, random_leaves
from machines import MACHINES

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.llvm import conv, emit
from tilewright.codegen.llvm.conv import inside
from tilewright.codegen.llvm.schedule import DEFAULT
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import LLVM
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.native import host, jit, pool

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)


@dataclass(frozen=True)
class Conv:
    """x: the input's shape; w: the weight's; the rest as in the op, one entry a dimension."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1

    @property
    def attrs(self) -> tuple[Any, ...]:
        dims = len(self.x) - 2
        return (
            self.stride or (1,) * dims,
            self.padding or ((0, 0),) * dims,
            self.dilation or (1,) * dims,
            self.groups,
        )

    def __str__(self) -> str:
        return f"{self.x}{self.w}{self.attrs}".replace(" ", "")


def same(kernel: int, dims: int) -> tuple[tuple[int, int], ...]:
    return ((kernel // 2, kernel // 2),) * dims


CASES = [
    Conv((2, 3, 9, 9), (8, 3, 3, 3)),
    Conv((2, 6, 9, 7), (20, 6, 3, 3), padding=same(3, 2)),
    Conv((2, 8, 16, 16), (16, 8, 3, 3), padding=same(3, 2)),
    Conv((3, 8, 4, 4), (33, 8, 3, 3), padding=same(3, 2)),
    Conv((2, 5, 11, 13), (7, 5, 3, 3), (2, 2), same(3, 2)),
    Conv((2, 5, 12, 10), (7, 5, 3, 3), (2, 3), same(3, 2)),
    Conv((2, 5, 19, 19), (9, 5, 5, 5), (2, 2), same(5, 2)),
    Conv((2, 16, 8, 8), (24, 16, 1, 1), (2, 2)),
    Conv((2, 16, 9, 9), (24, 16, 1, 1), (2, 2)),
    Conv((2, 16, 8, 8), (24, 16, 1, 1), (3, 3), ((1, 0), (0, 1))),
    Conv((2, 4, 15, 15), (8, 4, 3, 3), (1, 1), same(5, 2), (2, 2)),
    Conv((2, 4, 15, 15), (8, 4, 3, 3), (2, 2), same(5, 2), (2, 2)),
    Conv((2, 4, 15, 15), (8, 4, 3, 3), (3, 2), same(5, 2), (2, 3)),
    Conv((2, 4, 9, 9), (8, 4, 4, 2), (1, 1), ((1, 2), (0, 3))),
    Conv((2, 12, 9, 9), (24, 4, 3, 3), (1, 1), same(3, 2), (1, 1), 3),
    Conv((2, 12, 9, 9), (24, 4, 3, 3), (2, 2), same(3, 2), (1, 1), 3),
    Conv((2, 6, 9, 9), (6, 1, 3, 3), (1, 1), same(3, 2), (1, 1), 6),
    Conv((2, 6, 9, 9), (12, 1, 3, 3), (2, 2), same(3, 2), (1, 1), 6),
    Conv((3, 4, 50), (10, 4, 5)),
    Conv((3, 4, 50), (10, 4, 5), (3,), same(5, 1), (2,)),
    Conv((1, 4, 50), (10, 4, 7), (2,), ((6, 0),)),
    Conv((2, 3, 6, 7, 8), (8, 3, 3, 3, 3), padding=same(3, 3)),
    Conv((2, 4, 6, 7, 8), (8, 2, 3, 1, 2), (2, 1, 2), ((1, 0), (0, 0), (1, 1)), groups=2),
    Conv((1, 3, 5, 5), (4, 3, 5, 5)),
    Conv((1, 64, 3, 3), (64, 64, 3, 3), padding=same(3, 2)),
    # Rows of the image that vectors lie along, also where the last vector goes back.
    Conv((2, 3, 5, 28), (16, 3, 3, 3), padding=same(3, 2)),
    Conv((2, 6, 4, 45), (10, 3, 3, 5), padding=((1, 1), (2, 1)), groups=2),
    Conv((1, 4, 6, 33), (13, 4, 3, 3), dilation=(1, 2)),
]


def windows(case: Conv, shape: Sequence[int]) -> Any:
    """For each place of the kernel: (place, the outputs that it is used at, their inputs)."""
    stride, padding, dilation, _ = case.attrs
    for place in itertools.product(*map(range, case.w[2:])):
        outputs, inputs = [], []
        for k, s, (low, _), d, n, o in zip(
            place, stride, padding, dilation, case.x[2:], shape[2:], strict=True
        ):
            at = [i for i in range(o) if 0 <= i * s + k * d - low < n]
            outputs.append(at)
            inputs.append([i * s + k * d - low for i in at])
        yield place, np.ix_(*outputs), np.ix_(*inputs)


def oracle(case: Conv, x: Any, w: Any, g: Any) -> tuple[Any, Any, Any]:
    """(forward, input gradient, weight gradient), summed place by place."""
    groups = case.groups
    y, dx, dw = np.zeros(g.shape), np.zeros(x.shape), np.zeros(w.shape)
    every = slice(None)
    for group in range(groups):
        i = slice(group * w.shape[1], (group + 1) * w.shape[1])
        o = slice(group * w.shape[0] // groups, (group + 1) * w.shape[0] // groups)
        for place, outputs, inputs in windows(case, g.shape):
            a, b = x[:, i][(every, every, *inputs)], g[:, o][(every, every, *outputs)]
            tap = w[o][(every, every, *place)]
            y[:, o][(every, every, *outputs)] += np.einsum("ni...,oi->no...", a, tap)
            dx[:, i][(every, every, *inputs)] += np.einsum("no...,oi->ni...", b, tap)
            summed = [0, *range(2, x.ndim)]
            dw[o][(every, every, *place)] += np.tensordot(b, a, (summed, summed))
    return y, dx, dw


def leaves_of(case: Conv, dtype: dt.DType = dt.float32) -> tuple[Node, Node, Node]:
    """x, w, and a gradient of the output."""
    x, w = (ops.leaf(name, Size(shape), dtype) for name, shape in (("x", case.x), ("w", case.w)))
    return x, w, ops.leaf("g", ops.conv(x, w, *case.attrs).shape, dtype)


def roots_of(case: Conv, x: Node, w: Node, g: Node) -> list[Node]:
    """Forward, input gradient, weight gradient."""
    return [
        ops.conv(x, w, *case.attrs),
        ops.conv_input_grad(g, w, tuple(case.x[2:]), *case.attrs),
        ops.conv_weight_grad(g, x, tuple(case.w[2:]), *case.attrs),
    ]


def run(roots: Sequence[Node], values: Any) -> tuple[list[np.ndarray], list[Kernel]]:
    """The roots' values, and the kernels that computed them."""
    program = compile_graph(lower_graph(roots, check=True), LLVM)
    found = launch_program(LlvmDevice(force=True), program, values)
    kernels = [step.kernel for step in program.steps if isinstance(step.kernel, Kernel)]
    return [f.reshape(r.shape) for f, r in zip(found, roots)], kernels


def close(got: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    """Within a tolerance of the largest element."""
    np.testing.assert_allclose(
        got.astype(np.float64), expected, rtol=0, atol=tolerance * np.abs(expected).max()
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_sums(case: Conv) -> None:
    leaves = leaves_of(case)
    values = random_leaves(roots_of(case, *leaves))
    expected = oracle(case, *(values[leaf].astype(np.float64) for leaf in leaves))
    for root, wanted in zip(roots_of(case, *leaves), expected):
        (got,), _ = run([root], values)
        close(got, wanted)


@pytest.mark.parametrize(
    "dtype",
    [dt.float16, *(pytest.param(d, marks=pytest.mark.slow) for d in (dt.float64, dt.bfloat16))],
    ids=str,
)
def test_other_types(dtype: Any) -> None:
    tolerance = {"float64": 1e-13, "float16": 1e-3, "bfloat16": 8e-3}[dtype.name]
    for case in (CASES[1], CASES[4], CASES[14]):
        leaves = leaves_of(case, dtype)
        values = random_leaves(roots_of(case, *leaves))
        expected = oracle(case, *(values[leaf].astype(np.float64) for leaf in leaves))
        for root, wanted in zip(roots_of(case, *leaves), expected):
            (got,), _ = run([root], values)
            close(got, wanted, tolerance)


WIDE = [c for c in CASES if c.w[0] // c.groups >= 4 and c.w[1] >= 4 and c.x[2:] != (1, 1)]


@pytest.mark.parametrize("case", WIDE, ids=str)
def test_they_are_products_over_windows(case: Conv) -> None:
    leaves = leaves_of(case)
    for root in roots_of(case, *leaves):
        program = compile_graph(lower_graph([root], check=True), LLVM)
        (kernel,) = (s.kernel for s in program.steps if isinstance(s.kernel, Kernel))
        assert conv.plan(kernel) is not None


# Small images of many channels, which leave out the border.
SMALL = [
    Conv((24, 64, 4, 4), (64, 64, 3, 3), padding=same(3, 2)),
    Conv((30, 90, 4, 4), (100, 90, 3, 3), padding=same(3, 2)),
    Conv((36, 64, 5, 3), (96, 64, 3, 3), (1, 1), ((1, 1), (2, 0))),
    Conv((24, 96, 4, 4), (64, 96, 5, 5), padding=((2, 2), (1, 2))),
    Conv((24, 64, 6, 6), (80, 64, 3, 3), (1, 1), same(5, 2), (2, 2)),
    Conv((96, 64, 4, 4), (256, 64, 3, 3), (2, 2), same(3, 2)),
    Conv((45, 128, 4, 4), (192, 64, 3, 3), (1, 1), same(3, 2), groups=2),
    Conv((192, 128, 3), (128, 128, 5), padding=same(5, 1)),
    Conv((24, 64, 2, 3, 2), (64, 64, 3, 3, 3), padding=same(3, 3)),
]


def check_no_border(root: Node) -> None:
    """Fails unless the border is left out, if the product is one."""
    (step,) = compile_graph(lower_graph([root], check=True), LLVM).steps
    assert isinstance(step.kernel, Kernel)
    planned = conv.plan(step.kernel)
    assert planned is not None
    chosen = inside.plan_inside(planned, host.machine(), DEFAULT)
    assert chosen is not None or len(planned.parts) > 1


@pytest.mark.parametrize("machine", ["own", "avx2"])
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_without_the_border(case: Conv, machine: str, monkeypatch: Any) -> None:
    if machine != "own":
        own = host.machine()
        if not own.triple.startswith("x86_64") or own.vector_bytes == 32:
            pytest.skip("this processor's own vectors are as wide, or it is another one")
        narrow = replace(own, cpu="haswell", features="", vector_bytes=32)
        monkeypatch.setattr(host, "machine", lambda: narrow)
    leaves = leaves_of(case)
    roots = roots_of(case, *leaves)
    values = random_leaves(roots)
    expected = oracle(case, *(values[leaf].astype(np.float64) for leaf in leaves))
    for root, wanted in zip(roots, expected):
        check_no_border(root)
        (got,), _ = run([root], values)
        close(got, wanted)


def test_the_border_meets_no_infinite_weight() -> None:
    """A product of zeros beside the image with an infinite weight would be NaN."""
    case = SMALL[0]
    leaves = leaves_of(case)
    root = roots_of(case, *leaves)[0]
    values = random_leaves([root])
    values[leaves[1]][:, :, 0, 0] = np.inf
    (got,), _ = run([root], values)
    assert np.isfinite(got[:, :, 0]).all() and np.isfinite(got[:, :, :, 0]).all()
    assert not np.isfinite(got[:, :, 1:, 1:]).any()


def test_what_follows_is_in_the_same_kernel() -> None:
    """Bias, scale and shift of a norm, a residual and the activation."""
    case = Conv((2, 8, 9, 9), (12, 8, 3, 3), (2, 2), same(3, 2))
    x, w, g = leaves_of(case)
    bias, scale, shift = (ops.leaf(n, Size((12, 1, 1)), dt.float32) for n in ("b", "s", "t"))
    y = ops.add(ops.conv(x, w, *case.attrs), bias)
    root = ops.relu(ops.add(ops.add(ops.mul(y, scale), shift), g))
    values = random_leaves([root])
    (got,), kernels = run([root], values)
    assert len(kernels) == 1
    wide = {leaf: values[leaf].astype(np.float64) for leaf in values}
    expected = oracle(case, wide[x], wide[w], wide[g])[0] + wide[bias]
    expected = np.maximum(expected * wide[scale] + wide[shift] + wide[g], 0)
    close(got, expected)


def test_nan_and_infinities_stay_where_they_are() -> None:
    case = Conv((1, 4, 7, 7), (8, 4, 3, 3), padding=same(3, 2))
    leaves = leaves_of(case)
    root = roots_of(case, *leaves)[0]
    values = random_leaves([root])
    values[leaves[0]][0, 1, 2, 3] = np.nan
    values[leaves[0]][0, 2, 6, 6] = np.inf
    (got,), _ = run([root], values)
    expected = np.zeros((7, 7), bool)
    expected[1:4, 2:5] = True
    np.testing.assert_array_equal(np.isnan(got[0]).all(0), expected)
    assert np.isinf(got[0, :, 5:, 5:]).all() and np.isfinite(got[0, :, :, :2]).all()


@pytest.mark.parametrize(
    "case", [Conv((4, 24, 20, 20), (40, 24, 3, 3), (2, 2), same(3, 2)), SMALL[1]], ids=str
)
def test_threads_change_no_bit(case: Conv) -> None:
    leaves = leaves_of(case)
    roots = roots_of(case, *leaves)
    values = random_leaves(roots)
    before = pool.num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            pool.set_num_threads(threads)
            found.append([run([root], values)[0][0] for root in roots])
    finally:
        pool.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "sizes, batches, channels",
    [((20, 21), (3, 5), (8, 16)), ((40, 45), (3, 5), (8, 16)), ((4, 5), (32, 64), (128, 128))],
)
def test_sizes_are_arguments(
    sizes: tuple[int, int], batches: tuple[int, int], channels: tuple[int, int]
) -> None:
    inputs, outputs = channels

    def code(size: int, batch: int) -> str:
        case = Conv((batch, inputs, size, size), (outputs, inputs, 3, 3), padding=same(3, 2))
        program = compile_graph(lower_graph([roots_of(case, *leaves_of(case))[0]]), LLVM)
        (step,) = program.steps
        assert isinstance(step.kernel, Kernel)
        return emit(step.kernel, host.machine()).code

    assert code(sizes[0], batches[0]) == code(sizes[1], batches[1])


@pytest.mark.parametrize("name", MACHINES)
def test_cross_compiled(name: str) -> None:
    import llvmlite.binding as llvm

    machine, expected = MACHINES[name]
    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(machine.triple)
    except RuntimeError as error:
        pytest.skip(f"this LLVM has no {machine.triple}: {error}")
    target = target.create_target_machine(cpu=machine.cpu, opt=2)
    case = Conv((4, 24, 20, 20), (40, 24, 3, 3), (2, 2), same(3, 2))
    for root in roots_of(case, *leaves_of(case)):
        (step,) = compile_graph(lower_graph([root]), LLVM).steps
        assert isinstance(step.kernel, Kernel)
        module = llvm.parse_assembly(emit(step.kernel, machine).code, llvm.create_context())
        module.triple, module.data_layout = machine.triple, str(target.target_data)
        module.verify()
        jit.optimize(module, target)
        assert re.search(expected, target.emit_assembly(module))
