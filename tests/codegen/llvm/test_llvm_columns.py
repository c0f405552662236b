"""Folds down columns, by themselves and beside those of rows, against NumPy in float64."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import check, launch_program, random_leaves, reference

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.llvm import columns
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.target import LLVM, NUMPY
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.native import host, pool

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

# The native engine, and NumPy, which takes any kernel that it can't.
ENGINES = {"native": lambda: LlvmDevice(force=True), "numpy": NumpyDevice}
DEVICE: Any = None
FOLDS = {
    "sum": ops.sum,
    "prod": ops.prod,
    "max": ops.max,
    "min": ops.min,
    "any": ops.any,
    "all": ops.all,
}


@pytest.fixture(params=ENGINES, autouse=True)
def engine(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs kernels."""
    monkeypatch.setattr(sys.modules[__name__], "DEVICE", ENGINES[request.param]())


def leaf(name: str, *shape: int, dtype: dt.DType = dt.float32) -> Node:
    return ops.leaf(name, Size(shape), dtype)


def compiled(*roots: Node) -> Program:
    return compile_graph(lower_graph(roots, check=True), LLVM)


def kernel_of(*roots: Node) -> Kernel:
    """The one kernel that computes all of them."""
    (step,) = compiled(*roots).steps
    assert isinstance(step.kernel, Kernel)
    return step.kernel


def run(roots: Sequence[Node], values: Any) -> list[np.ndarray]:
    found = launch_program(DEVICE, compiled(*roots), values)
    return [f.reshape(r.shape) for f, r in zip(found, roots)]


def agrees(roots: Sequence[Node], values: Any, tolerance: float) -> None:
    """With the graph's own value, of leaves in float64, in units of the largest element."""
    wide = {n: v.astype(np.float64) if n.dtype.is_floating_point else v for n, v in values.items()}
    for got, wanted in zip(run(roots, values), reference(roots, wide), strict=True):
        scale = np.abs(wanted.astype(np.float64)).max(initial=1.0)
        np.testing.assert_allclose(
            got.astype(np.float64) / scale, wanted / scale, rtol=0, atol=tolerance
        )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("shape", [(1031, 257), (70, 5003), (4100, 72)], ids=str)
def test_of_a_matrix(fold: str, shape: tuple[int, int]) -> None:
    x = leaf("x", *shape, dtype=dt.bool_ if fold in ("any", "all") else dt.float32)
    y = FOLDS[fold](x, (0,))
    assert columns.plan(kernel_of(y), host.machine()) is not None
    values = random_leaves([x], low=0.9, high=1.1)
    if fold in ("any", "all"):
        values[x] = np.random.default_rng(0).random(shape) < (0.001 if fold == "any" else 0.999)
    agrees([y], values, 1e-5 if fold == "prod" else 2e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(dt.float64, 1e-14), (dt.float16, 1e-3), (dt.bfloat16, 8e-3), (dt.int32, 0), (dt.uint8, 0)],
    ids=str,
)
def test_dtypes(dtype: dt.DType, tolerance: float) -> None:
    x = leaf("x", 400, 401, dtype=dtype)
    roots = [ops.sum(x, (0,)), ops.max(x, (0,))]
    assert columns.plan(kernel_of(*roots), host.machine()) is not None
    agrees(roots, random_leaves(roots), tolerance)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (0, 2)], ids=str)
def test_of_more_dimensions(axes: tuple[int, ...]) -> None:
    x = leaf("x", 90, 80, 70)
    agrees([ops.sum(x, axes)], random_leaves([x]), 2e-6)


def test_nan_and_infinity() -> None:
    x = leaf("x", 300, 500)
    values = random_leaves([x])
    values[x][7, 3] = values[x][299, 4] = values[x][0, 499] = np.nan
    values[x][:, 8], values[x][5, 9], values[x][6, 9] = -np.inf, np.inf, -np.inf
    roots = [FOLDS[name](x, (0,)) for name in ("sum", "max", "min")]
    for got, ufunc in zip(run(roots, values), (np.add, np.maximum, np.minimum)):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got[0], ufunc.reduce(values[x], 0), rtol=1e-4, atol=1e-4)


def norm(x: Node) -> Node:
    """Rows less their means."""
    return ops.sub(x, ops.mean(x, (x.rank - 1,)))


def gradients(x: Node, g: Node, axes: tuple[int, ...]) -> list[Node]:
    """What needs both the rows and the columns."""
    y = norm(x)
    product = ops.mul(g, y)
    dx = ops.sub(product, ops.mul(y, ops.sum(product, (x.rank - 1,))))
    return [dx, ops.sum(product, axes), ops.neg(ops.max(g, axes))]


@pytest.mark.parametrize("shape", [(65, 300), (64, 65), (129, 5), (8, 40, 100)], ids=str)
def test_beside_rows(shape: tuple[int, ...]) -> None:
    x, g = leaf("x", *shape), leaf("g", *shape)
    roots = gradients(x, g, tuple(range(len(shape) - 1)))
    assert kernel_of(*roots).is_chained
    agrees(roots, random_leaves(roots), 2e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(dt.float16, 8e-3), (dt.bfloat16, 4e-2), (dt.float64, 1e-13)], ids=str
)
def test_dtypes_beside_rows(dtype: dt.DType, tolerance: float) -> None:
    x, g = leaf("x", 100, 96, dtype=dtype), leaf("g", 100, 96, dtype=dtype)
    roots = gradients(x, g, (0,))
    assert kernel_of(*roots).is_chained
    agrees(roots, random_leaves(roots), tolerance)


def test_what_a_fold_of_columns_feeds_is_in_the_kernel_too() -> None:
    x, g, w = leaf("x", 200, 96), leaf("g", 200, 96), leaf("w", 96)
    dx, dw, _ = gradients(x, g, (0,))
    step = ops.sub(w, ops.mul(ops.reshape(dw, (96,)), ops.constant(0.5, dt.float32)))
    roots = [dx, step]
    assert kernel_of(*roots).is_chained
    agrees(roots, random_leaves(roots), 2e-5)


def test_columns_that_rows_wait_for_are_folded_before() -> None:
    x = leaf("x", 200, 96)
    y = norm(ops.sub(x, ops.mean(x, (0,))))
    assert not any(s.kernel.is_chained for s in compiled(y).steps if isinstance(s.kernel, Kernel))
    agrees([y], random_leaves([y]), 2e-6)


def test_running_sums_stay_apart() -> None:
    x = leaf("x", 200, 96)
    roots = [ops.cumsum(x, 1), ops.sum(x, (0,)), ops.sum(x, (1,))]
    agrees(roots, random_leaves(roots), 2e-6)
    roots = [ops.cumsum(leaf("x", 2000, 96), 0), ops.sum(leaf("x", 2000, 96), (0,))]
    agrees(roots, random_leaves(roots), 2e-6)


@pytest.mark.parametrize("shape", [(80, 80), (20, 300), (64, 1 << 15)], ids=str)
def test_where_rows_and_columns_stay_apart(shape: tuple[int, int]) -> None:
    """As many of each, too few rows, too many columns."""
    x, g = leaf("x", *shape), leaf("g", *shape)
    roots = gradients(x, g, (0,))
    assert len(compiled(*roots).steps) > 1
    agrees(roots, random_leaves(roots), 2e-5)


def test_only_for_targets_that_can() -> None:
    x, g = leaf("x", 65, 300), leaf("g", 65, 300)
    roots = gradients(x, g, (0,))
    program = compile_graph(lower_graph(roots), NUMPY)
    assert not any(s.kernel.is_chained for s in program.steps if isinstance(s.kernel, Kernel))


def test_the_kernel_means_what_its_form_says() -> None:
    """By the interpreter of the kernel IR."""
    x, g = leaf("x", 66, 9), leaf("g", 66, 9)
    check(gradients(x, g, (0,)), LLVM)


def test_threads_change_no_bit() -> None:
    x, g = leaf("x", 3000, 300), leaf("g", 3000, 300)
    roots = [*gradients(x, g, (0,)), ops.sum(ops.exp(x), (0,))]
    values = random_leaves(roots)
    before = pool.num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            pool.set_num_threads(threads)
            found.append([r.tobytes() for r in run(roots, values)])
    finally:
        pool.set_num_threads(before)
    assert found[0] == found[1] == found[2]
