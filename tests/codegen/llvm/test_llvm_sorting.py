"""Native sorting against NumPy: insertion, radix passes, the first few positions, rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program

from tilewright.codegen.llvm import sorting
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import LLVM
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.native import host

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

DTYPES = [d for d in dt.ALL if d not in dt.FLOAT8 and not d.is_complex]
SHORT = sorting.SHORT


def sample(shape: Sequence[int], dtype: DType) -> np.ndarray:
    """Many elements alike; for floats both zeros, infinities and both kinds of NaN."""
    rng = np.random.default_rng(sum(shape))
    if dtype is dt.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.category != dt.FLOAT:
        limits = np.iinfo(dtype.np)
        x = rng.integers(limits.min, limits.max, shape, dtype.np, endpoint=True)
        special: list[Any] = [limits.min, limits.max, 0, 1]
    else:
        x = rng.standard_normal(shape).round(1).astype(dtype.np)
        special = [np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0]
    places = rng.integers(0, 3 * len(special), shape)
    for number, value in enumerate(special):
        x[places == number] = value
    return x


def sorted_natively(roots: Sequence[Node], x: np.ndarray) -> list[np.ndarray]:
    device = LlvmDevice(force=True)
    program = compile_graph(lower_graph(list(roots), check=True), LLVM)
    found = launch_program(device, program, {ops.leaf(0, Size(x.shape), _dtype(x)): x})
    assert not device.fallbacks
    return [f.reshape(r.shape) for f, r in zip(found, roots)]


def _dtype(x: np.ndarray) -> DType:
    return dt.from_numpy(x.dtype)


def check(x: np.ndarray, axis: int, descending: bool) -> None:
    leaf = ops.leaf(0, Size(x.shape), _dtype(x))
    order = ops.argsort(leaf, axis, descending)
    wanted = ops.argsort_op.numpy(x, axis, descending)
    found, values = sorted_natively([order, ops.take_along(leaf, order, axis)], x)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        values.astype(np.float64), np.take_along_axis(x, wanted, axis).astype(np.float64)
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [2, SHORT, SHORT + 1, 700])
def test_rows(length: int, dtype: DType, descending: bool) -> None:
    if dtype is dt.bool_:
        dtype = dt.uint8  # sorted as such
    check(sample((3, length), dtype), 1, descending)


@pytest.mark.parametrize("dtype", [dt.float32, dt.int64], ids=str)
@pytest.mark.parametrize("shape, axis", [((90, 5), 0), ((4, 70, 3), 1), ((2, 1, 2), 2)])
def test_other_axes(shape: tuple[int, ...], axis: int, dtype: DType) -> None:
    check(sample(shape, dtype), axis, False)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int16], ids=str)
def test_rows_alike(dtype: DType) -> None:
    """A digit that all elements share is no pass."""
    x = np.full((2, 300), 3, dtype.np)
    check(x, 1, True)
    x[1, 17] = 2
    check(x, 1, True)


def test_rows_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "SLOTS", 3)
    check(sample((40, 900), dt.float32), 1, False)


def test_work_before_and_behind_a_sort() -> None:
    """A kernel that computes its keys, and reads more where it stores."""
    x = sample((6, 80), dt.float32)
    leaf = ops.leaf(0, Size(x.shape), dt.float32)
    (found,) = sorted_natively([ops.argsort(-leaf, 1) + 1], x)
    np.testing.assert_array_equal(found, np.argsort(-x, 1, kind="stable") + 1)


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.float64, dt.int64], ids=str)
@pytest.mark.parametrize("start, count", [(0, 1), (0, 5), (4, 9)])
@pytest.mark.parametrize("descending", [False, True])
def test_the_first_few(dtype: DType, start: int, count: int, descending: bool) -> None:
    x = sample((5, 333), dtype)
    leaf = ops.leaf(0, Size(x.shape), dtype)
    order = ops.slice_axis(ops.argsort(leaf, 1, descending), 1, start, start + count)
    (found,) = sorted_natively([order], x)
    wanted = ops.argsort_op.numpy(x, 1, descending)[:, start : start + count]
    np.testing.assert_array_equal(found, wanted)
