"""The writer of a kernel as a NumPy program: one array for each value, in the order of the DAG.

    def make(shape0, c0):                      # what differs between kernels of one structure
        def softmax(buffers, scalars):         # the launch
            ...
        return softmax

Everything that follows from sizes alone (shapes, strides, tables of positions, constants) is an
argument of `make`, so kernels that differ only in sizes share one function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..kernel import (
    Apply,
    Constant,
    Dot,
    Guard,
    Kernel,
    Load,
    Ordered,
    Position,
    RandomBits,
    Reduce,
    Scalar,
    Scan,
    Sort,
    Value,
)
from . import access, dot, elementwise, fold, guard, transfer
from .emission import Context, Emission
from .program import Array
from .rows import in_blocks


@dataclass(frozen=True)
class Emitted:
    """A kernel as Python source.

    source: a module that defines `make(**arguments)`, which returns the launch.
    code: the source without comments; kernels with the same code differ in their arguments only.
    """

    name: str
    source: str
    code: str
    arguments: dict[str, Any]


def emit(kernel: Kernel) -> Emitted:
    """The NumPy program of `kernel`."""
    e = Emission(kernel, compute)
    values = [e.evaluate(s.value, Context(e.root)) for s in kernel.stores]
    written: set[int] = set()
    for i, store in enumerate(kernel.stores):
        # An output of the same size may have the memory of a dead input: read inputs before stores.
        source = next((b for b, name in e.buffers.items() if name == values[i].root), None)
        if source is not None and source.size * source.dtype.itemsize in written:
            value = values[i]
            values[i] = e.let(f"{value.name}.copy()", value.dtype, value.extent, (value,))
        written.add(store.buffer.size * store.buffer.dtype.itemsize)
    for store, value in zip(kernel.stores, values, strict=True):
        transfer.store(e, store, value)
    e.program.prune()
    e.program.place_results({n: b.size * b.dtype.itemsize for b, n in e.buffers.items()})
    return _write(e)


def compute(e: Emission, value: Value, context: Context) -> Array:
    """The array of one value whose operands are known."""
    if isinstance(value, Apply):
        return elementwise.apply(e, value, context)
    if isinstance(value, Load):
        return transfer.load(e, value, context)
    if isinstance(value, Constant):
        return elementwise.constant(e, value)
    if isinstance(value, Scalar):
        return elementwise.scalar(e, value)
    if isinstance(value, Position):
        index = context.domain.rewrite(value.index)
        return e.cast(access.position(e, index, context), value.dtype.np)
    if isinstance(value, RandomBits):
        return elementwise.random(e, value, context)
    if isinstance(value, Guard):
        return guard.guard(e, value, context)
    if isinstance(value, Reduce):
        return fold.reduce(e, value, context)
    if isinstance(value, Scan):
        return fold.scan(e, value, context)
    if isinstance(value, Dot):
        return dot.dot(e, value, context)
    if isinstance(value, Sort):
        return fold.sort(e, value, context)
    if isinstance(value, Ordered):
        return fold.ordered(e, value, context)
    raise TypeError(f"the NumPy emitter does not know {type(value).__name__}")


def _write(e: Emission) -> Emitted:
    kernel = e.kernel
    name = "".join(c if c.isalnum() else "_" for c in kernel.name)
    if not name.isidentifier() or name == "make":
        name = f"kernel_{name}"
    body = [f"({', '.join(e.buffers.values())},) = buffers"] if e.buffers else []
    body += e.prelude
    inner = in_blocks(e) or e.program.lines()
    if e.program.may_warn and inner:
        body.append('with np.errstate(all="ignore"):')
        inner = [f"    {line}" for line in inner]
    body += inner or ["pass"]
    used = set(re.findall(r"\w+", "\n".join(body)))
    arguments = {name: value for name, value in e.arguments.items() if name in used}
    head = [
        "import numpy as np",
        "from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2",
        "",
        "from tilewright.codegen.numpy import support",
        "from tilewright.ir.numeric import special",
        "",
        "",
        f"def make({', '.join(arguments)}):",
        f"    def {name}(buffers, scalars):",
    ]
    notes = [f"        # {op} ({file}:{line})" for op, file, line in kernel.notes]
    text = [f"        {line}" for line in body]
    tail = ["", f"    return {name}", ""]
    code = "\n".join((*head, *text, *tail))
    source = "\n".join((*head, *notes, *text, *tail))
    return Emitted(name, source, code, arguments)
