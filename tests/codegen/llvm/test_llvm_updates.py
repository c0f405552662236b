"""Updates at places that data gives: one that meets the place of the step before has its result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program

from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import LLVM
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.native import host

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

MODES: dict[str, Any] = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}
ORDERS = {
    "sorted": lambda rng, n: np.sort(rng.integers(0, 9, n)),
    "mixed": lambda rng, n: rng.integers(0, 3, n),
    "one": lambda rng, n: np.zeros(n, np.int64),
    "distinct": lambda rng, n: rng.permutation(n) % 9,
    "in turns": lambda rng, n: np.arange(n) // 2 % 2,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("dtype", [dt.float32, dt.int64, dt.int8])
def test_updates_have_the_bits_of_one_after_another(
    order: str, mode: str, width: int, dtype: dt.DType
) -> None:
    rng = np.random.default_rng(0)
    count = 203
    rows = ORDERS[order](rng, count)
    start = rng.normal(scale=3, size=(9, width)).astype(dtype.np)
    terms = rng.normal(scale=3, size=(count, width)).astype(dtype.np)
    base, values = (ops.leaf(i, Size(x.shape), dtype) for i, x in enumerate((start, terms)))
    at = ops.leaf(2, Size((count,)), dt.int64)
    program = compile_graph(lower_graph([ops.scatter(base, values, at, 0, mode)], check=True), LLVM)
    given = {base: start, values: terms, at: rows.astype(np.int64)}
    found = launch_program(LlvmDevice(force=True), program, given)[0]
    with np.errstate(over="ignore"):
        MODES[mode].at(start, rows, terms)
    np.testing.assert_array_equal(found.reshape(start.shape), start)


@pytest.mark.parametrize("count", [0, 1, 203])
def test_lanes_may_all_add_one_number(count: int) -> None:
    base = ops.leaf(0, Size((9, 40)), dt.float32)
    values = ops.expand(ops.constant(1.5, dt.float32), Size((count, 40)))
    at = ops.leaf(1, Size((count,)), dt.int64)
    program = compile_graph(lower_graph([ops.scatter(base, values, at, 0, "add")]), LLVM)
    rows = np.sort(np.random.default_rng(0).integers(0, 9, count))
    start = np.arange(360, dtype=np.float32).reshape(9, 40)
    found = launch_program(LlvmDevice(force=True), program, {base: start, at: rows})[0]
    np.add.at(start, rows, np.float32(1.5))
    np.testing.assert_array_equal(found.reshape(start.shape), start)
