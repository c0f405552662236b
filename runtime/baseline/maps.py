"""Maps: native kernels of single elementwise ops, for arrays of any size.

They are emitted as for any graph, so they have the bits of fused kernels. NumPy's own functions are
taken where they have these bits too: wherever the result is exact or rounded to nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import FLOAT, DType
from tilewright.ir.op import Op
from tilewright.ir.ops.generate import leaf
from tilewright.ir.shape import Size

from .. import devices

_MANY = 1 << 20
"""The size for which a kernel is emitted: the code is the same for all that fill some vectors."""


def native(op: Op, dtypes: Sequence[DType], dtype: DType) -> Callable[..., Any] | None:
    """The kernel of an op as a function of arrays; None if NumPy computes it."""
    if op.error <= 0.5 or not any(d.category == FLOAT for d in (*dtypes, dtype)):
        return None
    device: Any = devices.get("cpu")
    if not hasattr(device, "emitted"):  # the engine is NumPy
        return None
    found = _entry(device, op, dtypes)
    if found is None:
        return None
    entry, order = found
    np_dtype, empty = dtype.np, np.empty

    if len(dtypes) == 1:

        def unary(x: Any) -> Any:
            x = np.asarray(x, order="C")
            out = empty(x.shape, np_dtype)
            if x.size:
                entry((out, x), (x.size,))
            return out

        return unary

    def several(*arrays: Any) -> Any:
        spread = np.broadcast_arrays(*arrays)
        out = empty(spread[0].shape, np_dtype)
        if out.size:
            entry((out, *[np.asarray(spread[i], order="C") for i in order]), (out.size,))
        return out

    return several


def _entry(
    device: Any, op: Op, dtypes: Sequence[DType]
) -> tuple[Callable[..., Any], Sequence[int]] | None:
    """The entry point of an op's kernel, and the operand that each of its inputs is."""
    from tilewright.codegen.llvm import DEFAULT, CannotLower
    from tilewright.codegen.program import compile_graph

    from ..native import launch

    leaves = [leaf(i, Size((_MANY,)), d) for i, d in enumerate(dtypes)]
    program = compile_graph([op(*leaves)], device.target)
    (step,) = program.steps
    places = [program.leaves[each] for each in leaves]
    try:
        (emitted,) = launch.emitted(step.kernel, DEFAULT)
        entry = launch.Flat(emitted, _MANY).entry
    except CannotLower:
        return None
    return entry, [places.index(slot) for slot in step.inputs]
