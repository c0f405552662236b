"""Triton kernels of tensors with more than 2**31 elements: only places in memory have 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import triton_kernels as tk
from triton_launches import LARGE, SMALL, both

from tilewright.codegen.kernel import Dot, Kernel, Load, Reduce, Store
from tilewright.codegen.kernel.index import Axis, Index, constant, of
from tilewright.codegen.schedule import default_schedule
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import emit, scope
from tilewright.ir import dtype as dt
from tilewright.ir.op import Fold
from tilewright.runtime import offline
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton

ROWS, STRIDE, COLUMNS = 66, 1 << 25, 16
X = tk.array("x", (ROWS, STRIDE), dt.uint8)
"""A matrix of 2.2 GB, of which kernels read the last columns."""
P, Q, R = Axis("p0", ROWS), Axis("q0", COLUMNS), Axis("r0", COLUMNS)


def last(row: Axis, column: Axis) -> Index:
    return of(row) * STRIDE + of(column) + constant(STRIDE - COLUMNS)


def number(row: Axis, column: Axis) -> Load:
    return Load(X, last(row, column), dt.int32)


def shifted() -> Kernel:
    value = tk.apply("add", number(P, Q), tk.number(1, dt.int32))
    y = tk.array("y", (ROWS, COLUMNS), dt.int32)
    return Kernel("shifted", (P, Q), (), (Store(y, of(P) * COLUMNS + of(Q), value),))


def sums() -> Kernel:
    value = Reduce(Fold.SUM, number(P, R), (R,), dt.int32)
    return Kernel("sums", (P,), (R,), (Store(tk.array("y", (ROWS,), dt.int32), of(P), value),))


def product() -> Kernel:
    w = tk.load(tk.array("w", (COLUMNS, COLUMNS)), of(R) * COLUMNS + of(Q))
    x = tk.apply("cast", number(P, R), dtype=dt.float32)
    y = tk.array("y", (ROWS, COLUMNS))
    value = Dot(x, w, (R,), dt.float32, dt.float32)
    return Kernel("product", (P, Q), (R,), (Store(y, of(P) * COLUMNS + of(Q), value),))


@pytest.fixture(scope="module")
def memory() -> Iterator[np.ndarray]:
    """Zeros that take no memory until they are touched."""
    yield np.zeros((ROWS, STRIDE), np.uint8)


@both
@pytest.mark.parametrize("make", [shifted, sums, product])
def test_places_beyond_32_bits(
    device: InterpretDevice, make: Callable[[], Kernel], memory: np.ndarray
) -> None:
    kernel = make()
    rng = np.random.default_rng(1)
    values = rng.integers(0, 255, (ROWS, COLUMNS))
    w = rng.standard_normal((COLUMNS, COLUMNS))
    memory[:, -COLUMNS:] = values
    held = {"x": memory.reshape(-1), "w": w.astype(np.float32).reshape(-1)}
    (out,) = kernel.outputs
    result = np.empty(out.size, out.dtype.np)
    device.compile(kernel)([result, *(held[b.name] for b in kernel.inputs)], [])
    wanted = {"shifted": values + 1, "sums": values.sum(1), "product": values @ w}[kernel.name]
    np.testing.assert_allclose(result, wanted.reshape(-1), rtol=2e-5, atol=1e-3)


@pytest.mark.parametrize("make", [shifted, sums, product])
def test_positions_stay_in_32_bits(make: Callable[[], Kernel]) -> None:
    """Divisions and remainders of positions are those of 32 bits: 64 take a routine of some 70
    instructions, and two registers for each number."""
    kernel = make()
    emitted = emit(kernel, default_schedule(kernel, gpu("sm_90")))
    kinds = {a.name: a.type for a in emitted.arguments if a.role == "size"}
    assert kinds and set(kinds.values()) == {"i32"}
    assert "pid.to(tl.int64)" not in emitted.body
    ptx = offline.compile_request(offline.request(emitted, "sm_90")).asm["ptx"]
    assert "mul.wide.s32" in ptx or "mad.wide.s32" in ptx or "cvt.s64.s32" in ptx
    assert not re.search(r"(div|rem)\.[su]64", ptx)


@both
def test_positions_beyond_32_bits(device: InterpretDevice) -> None:
    """Where positions themselves need 64 bits, all sizes have them."""
    p = Axis("p0", 1 << 31)
    x, y = tk.array("x", (1 << 31,), dt.uint8), tk.array("y", (1 << 31,), dt.uint8)
    kernel = Kernel("map", (p,), (), (Store(y, of(p), Load(x, of(p), dt.uint8)),))
    emitted = emit(kernel, default_schedule(kernel, device.target))
    assert "pid = pid.to(tl.int64)" in emitted.body
    assert {a.type for a in emitted.arguments if a.role == "size"} == {"i64"}


def test_parts_of_complex_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of a part needs 64 bits, that of its pair and positions don't."""
    p = Axis("p0", 24)
    x, y = tk.array("x", (48,)), tk.array("y", (48,))
    real, imaginary = tk.load(x, of(p) * 2), tk.load(x, of(p) * 2 + constant(1))
    stores = Store(y, of(p) * 2, imaginary), Store(y, of(p) * 2 + constant(1), real)
    kernel = Kernel("swap", (p,), (), stores)
    monkeypatch.setattr(scope, "NARROW", 40)
    for device in (LARGE, SMALL):
        text = emit(kernel, default_schedule(kernel, device.target)).body
        assert "p.to(tl.int64)" in text
        values = np.arange(48, dtype=np.float32)
        result = np.empty(48, np.float32)
        device.compile(kernel)([result, values], [])
        np.testing.assert_array_equal(result, values.reshape(-1, 2)[:, ::-1].reshape(-1))
