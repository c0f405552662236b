"""Products as generated Triton kernels, interpreted, against plain NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import triton_kernels as tk
from triton_kernels import apply, array, at, load, number
from triton_launches import both, close, launch

from tilewright.codegen.kernel import Kernel, Store
from tilewright.codegen.kernel.index import Axis
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton


@both
@pytest.mark.parametrize("shape", [(37, 20, 50, 1), (1, 33, 7, 1), (5, 1, 40, 3), (16, 16, 16, 2)])
@pytest.mark.parametrize(
    "dtype", [dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int32], ids=str
)
def test_matmul(device: InterpretDevice, dtype: DType, shape: tuple[int, int, int, int]) -> None:
    m, n, k, batch = shape
    out = launch(device, tk.matmul(m, n, k, dtype, batch, epilogue=dtype is dt.float32))
    exact = np.float64 if dtype.category == dt.FLOAT else dtype.np
    a, b = out["a"].astype(exact).reshape(batch, m, k), out["b"].astype(exact).reshape(batch, k, n)
    close(out["y"], a @ b, dtype, k**0.5)
    if "z" in out:
        close(out["z"], np.maximum(a @ b + out["c"], 0), dt.float32, k**0.5)


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_few_programs_walk_through_all_tiles(dtype: DType, turned: bool) -> None:
    """Operands come through tensor descriptors, where tiles end and rows are turned."""
    m, n, k = 70, 48, 40
    i, j, r = Axis("p0", m), Axis("p1", n), Axis("r0", k)
    a = load(array("a", (m, k), dtype), at((k, m), r, i) if turned else at((m, k), i, r))
    b = load(array("b", (k, n), dtype), at((n, k), j, r) if turned else at((k, n), r, j))
    store = tk.Store(array("y", (m, n)), at((m, n), i, j), tk.Dot(a, b, (r,), dt.float32, dtype))
    kernel = Kernel("matmul", (i, j), (r,), (store,))
    schedule = Schedule(block_m=32, block_n=16, block_k=16, group_m=2, persistent=4)
    # Rows of 70 halves are no multiple of 16 bytes, so that operand is read as usual.
    assert sum(a.role == "matrix" for a in emit(kernel, schedule).arguments) == (1 if turned else 2)
    out = launch(InterpretDevice(lambda *_: schedule), kernel)
    x, w = (out[name].astype(np.float32) for name in "ab")
    left = x.reshape(k, m).T if turned else x.reshape(m, k)
    right = w.reshape(n, k).T if turned else w.reshape(k, n)
    close(out["y"], left @ right, dt.float32, k**0.5)


def test_tiles_of_a_batch_are_walked_through_too() -> None:
    schedule = Schedule(block_m=16, block_n=16, block_k=16, persistent=3)
    out = launch(InterpretDevice(lambda *_: schedule), tk.matmul(20, 30, 24, dt.float16, 3))
    a, b = (out[name].astype(np.float32) for name in "ab")
    close(out["y"], a.reshape(3, 20, 24) @ b.reshape(3, 24, 30), dt.float16, 24**0.5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("persistent", [0, 3])
@pytest.mark.parametrize("shape", [(33, 70, 20, 2), (16, 64, 24, 1), (20, 1, 16, 1)])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float16], ids=str)
def test_sums_are_stored_in_parts(
    dtype: DType, shape: tuple[int, int, int, int], persistent: int, parts: int
) -> None:
    """All that is done with them too: a bias along columns, two outputs, masks where tiles end."""
    m, n, k, batch = shape
    schedule = Schedule(
        block_m=16, block_n=64, block_k=16, group_m=2, parts=parts, persistent=persistent
    )
    kernel = tk.matmul(m, n, k, dtype, batch, epilogue=True)
    assert ("tl.static_range(PARTS)" in emit(kernel, schedule).body) == (n > 1)
    out = launch(InterpretDevice(lambda *_: schedule), kernel)
    a = out["a"].astype(np.float64).reshape(batch, m, k)
    b = out["b"].astype(np.float64).reshape(batch, k, n)
    close(out["y"], a @ b, dtype, k**0.5)
    close(out["z"], np.maximum(a @ b + out["c"], 0), dt.float32, k**0.5)


@both
def test_contraction_of_expressions(device: InterpretDevice) -> None:
    """What an operand's expression gives beyond the end of K must not count: 1 / 0 is infinite."""
    m, n, r = Axis("p0", 5), Axis("p1", 6), Axis("r0", 21)
    a = apply("div", number(1.0), load(array("a", (5, 21)), at((5, 21), m, r)))
    b = apply("exp", load(array("b", (21, 6)), at((21, 6), r, n)))
    dot = tk.Dot(a, b, (r,), dt.float32, dt.float32)
    kernel = Kernel("dot", (m, n), (r,), (Store(array("y", (5, 6)), at((5, 6), m, n), dot),))
    a_values = np.abs(tk.sample(array("a", (5, 21)), 0)) + 1
    out = launch(device, kernel, a=a_values)
    x, w = 1 / a_values.reshape(5, 21).astype(np.float64), np.exp(out["b"].astype(np.float64))
    close(out["y"], x @ w.reshape(21, 6), dt.float32, 4)


@both
def test_conv(device: InterpretDevice) -> None:
    out = launch(device, tk.conv(2, 3, 5, 6))
    x = np.pad(out["x"].astype(np.float64).reshape(2, 3, 6, 6), ((0, 0), (0, 0), (1, 1), (1, 1)))
    w = out["w"].astype(np.float64).reshape(5, 3, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    close(out["y"], np.einsum("nchwij,ocij->nohw", windows, w), dt.float32, 4)
