"""Parts of handmade kernels, and runs compared with the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kernel_oracle
import numpy as np

from tilewright.codegen.kernel import (
    Apply,
    Buffer,
    Bundle,
    Constant,
    Kernel,
    Load,
    Value,
)
from tilewright.codegen.kernel.index import Axis, Index, constant, linearize, of
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.ir.op import REGISTRY
from tilewright.runtime.cpu.numpy import NumpyDevice

DEVICE: Any = NumpyDevice()  # tests/codegen/emitters sets others
WHERE = ("/home/me/train.py", 31)
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-12}


def strides(shape: Sequence[int]) -> list[int]:
    out, step = [], 1
    for size in reversed(shape):
        out.append(step)
        step *= size
    return out[::-1]


def at(axes: Sequence[Axis | Index | int], shape: Sequence[int]) -> Index:
    """The row-major offset of a place in `shape`."""
    places = [
        of(a) if isinstance(a, Axis) else constant(a) if isinstance(a, int) else a for a in axes
    ]
    return linearize(places, strides(shape))


def buffer(name: str, shape: Sequence[int], dtype: DType = dt.float32) -> Buffer:
    return Buffer(name, dtype, int(np.prod(shape, dtype=int)))


def wide(dtype: DType) -> DType:
    return dt.float32 if dtype in (dt.float16, dt.bfloat16) else dtype


def load(b: Buffer, offset: Index) -> Load:
    return Load(b, offset, wide(b.dtype))


def apply(name: str, *args: Value, dtype: DType | None = None) -> Apply:
    return Apply(REGISTRY[name], args, dtype or args[0].dtype)


def const(value: Any, dtype: DType = dt.float32) -> Constant:
    return Constant(dtype.np.type(value), dtype)


def sample(b: Buffer, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = b.dtype.np
    if b.dtype.category == dt.FLOAT:
        return rng.standard_normal(b.size).astype(kind)
    if b.dtype is dt.bool_:
        return rng.integers(0, 2, b.size).astype(bool)
    return rng.integers(0 if kind.kind == "u" else -9, 9, b.size).astype(kind)


def compiled(kernel: Kernel | Bundle) -> Any:
    """A launch of the kernel on the engine under test."""
    return DEVICE.compile(kernel)


def run(
    kernel: Kernel, scalars: Sequence[Any] = (), bound: float = 0, **given: np.ndarray
) -> dict[str, np.ndarray]:
    """Launch the kernel and compare every output with the oracle. Returns the outputs.

    bound: of the errors, where it is more than rounding."""
    held: dict[str, np.ndarray] = {}
    for i, b in enumerate((*kernel.outputs, *kernel.inputs)):
        array = given[b.name].astype(b.dtype.np) if b.name in given else sample(b, i)
        held[b.name] = np.ascontiguousarray(array)
        assert held[b.name].size == b.size
    expected = kernel_oracle.Oracle(kernel, held, list(scalars)).run()
    buffers = [held[b.name] for b in (*kernel.outputs, *kernel.inputs)]
    with np.errstate(all="raise"):
        compiled(kernel)(buffers, list(scalars))
    for b in kernel.outputs:
        got = held[b.name].reshape(-1)
        if b.dtype.category == dt.FLOAT:
            tolerance = max(TOLERANCE[b.dtype.name], bound)
            np.testing.assert_allclose(
                got.astype(np.float64), expected[b.name], rtol=tolerance, atol=tolerance
            )
        else:
            np.testing.assert_array_equal(got, expected[b.name])
    return held
