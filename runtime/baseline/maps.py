"""Maps: native kernels of single elementwise ops, for arrays of any size.

They are emitted as for any graph, so they have the bits of fused kernels. NumPy's own functions are
taken where they have these bits too: wherever the result is exact or rounded to nearest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.target import LLVM
from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT, DType, int64
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.generate import leaf
from tilewright.ir.shape import Size

from .. import devices

if TYPE_CHECKING:
    from ..native.launch import Flat

_MANY = 1 << 20
"""The size for which a kernel is emitted: the code is the same for all that fill some vectors."""

_ZEROS = (ops.maximum, ops.minimum, ops.relu)
"""Ops in which the sign of a zero depends on the function that computes them."""


def native(op: Op, dtypes: Sequence[DType], dtype: DType) -> Callable[..., Any] | None:
    """The kernel of an op as a function of arrays; None if NumPy computes it."""
    exact = op.error <= 0.5 and op not in _ZEROS
    if exact or not any(d.category == FLOAT for d in (*dtypes, dtype)):
        return None
    nodes = [leaf(i, Size((_MANY,)), d) for i, d in enumerate(dtypes)]
    found = _kernel(op(*nodes), nodes)
    if found is None:
        return None
    kernel, order = found
    np_dtype, empty = dtype.np, np.empty

    if len(dtypes) == 1:

        def unary(x: Any) -> Any:
            x = np.asarray(x, order="C")
            out = empty(x.shape, np_dtype)
            if x.size:
                kernel((out, x), x.size)
            return out

        return unary

    def several(*arrays: Any) -> Any:
        spread = np.broadcast_arrays(*arrays)
        out = empty(spread[0].shape, np_dtype)
        if out.size:
            kernel((out, *[np.asarray(spread[i], order="C") for i in order]), out.size)
        return out

    return several


@functools.cache
def random_bits() -> Callable[..., Any] | None:
    """The kernel of `random_bits`: (seed, offset, shape) -> uint32; None if NumPy computes it."""
    node = ops.random_bits(ops.scalar(0, int64), ops.scalar(1, int64), Size((_MANY,)))
    found = _kernel(node, [])
    if found is None:
        return None
    kernel, _ = found

    def draw(seed: Any, offset: Any, shape: tuple[int, ...]) -> Any:
        out = np.empty(shape, np.uint32)
        if out.size:
            kernel((out,), out.size, (seed, offset))
        return out

    return draw


def _kernel(root: Node, leaves: Sequence[Node]) -> tuple[Flat, list[int]] | None:
    """The kernel that computes `root`, and the leaf that each of its inputs is; None if the engine
    of the CPU computes it by NumPy."""
    device: Any = devices.get("cpu")
    if device.target.emitter != LLVM.emitter:
        return None
    from tilewright.codegen.kernel import Kernel
    from tilewright.codegen.llvm import DEFAULT, CannotLower
    from tilewright.codegen.program import compile_graph

    from ..native import launch

    program = compile_graph([root], device.target)
    (step,) = program.steps
    assert isinstance(step.kernel, Kernel)
    places = [program.leaves[each] for each in leaves]
    try:
        (emitted,) = launch.emitted(step.kernel, DEFAULT)
        flat = launch.Flat(step.kernel, emitted, _MANY)
    except CannotLower:
        return None
    return flat, [places.index(slot) for slot in step.inputs]
