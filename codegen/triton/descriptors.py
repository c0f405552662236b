"""Operands of contractions through tensor descriptors, by which hardware copies whole tiles.

On NVIDIA's GPUs from sm_90 on this is the tensor memory accelerator (TMA): one thread asks for a
tile, addresses and bounds take no registers, and what lies outside of the matrix reads as zeros.
"""

from __future__ import annotations

from tilewright.ir.dtype import FLOAT8

from ..index import Axis, Index
from ..kernel import Dot, Load
from ..roles import Roles
from ..schedule import Schedule, points
from .emitted import POINTER, Argument
from .scope import Body
from .text import Block

_ALIGNMENT = 16  # bytes, of addresses and of the distance of rows


class Descriptors:
    """Descriptors as parameters of the kernel, one for each matrix that is read: the host makes
    them, once for each address."""

    def __init__(self, body: Body, role: Roles, schedule: Schedule):
        self.body = body
        self.axes = {"m": role.m, "n": role.n, "k": role.k}
        self.blocks = {"m": schedule.block_m, "n": schedule.block_n, "k": schedule.block_k}
        self._made: dict[tuple[int, str], str] = {}

    def load(self, dot: Dot, loop: Block, side: str) -> str | None:
        """A tile of the operand of which `side` (m or n) is a dimension, by a line in `loop`; None
        if it is not a matrix in memory, in the type it is multiplied in."""
        value = dot.a if side == "m" else dot.b
        if not isinstance(value, Load) or value.buffer.dtype is not dot.input_dtype:
            return None
        if value.buffer.dtype in FLOAT8:
            return None  # of whose bits a descriptor would be made
        order = self._order(value, side)
        if order is None:
            return None
        rows, columns, stride = order
        key = id(value), side
        name = self._made.get(key)
        if name is None:
            name = self._made[key] = self.body.names.fresh("matrix")
            element = POINTER[value.buffer.dtype.name][1:]
            kind = f"tensordesc<{element}[{self.blocks[rows]}, {self.blocks[columns]}]>"
            place = list(self.body.buffers).index(value.buffer)
            shape = points(self.axes[rows]), points(self.axes[columns])
            self.body.matrices.append(Argument(name, kind, "matrix", (place, *shape, stride)))
        starts = {"m": "first_m", "n": "first_n", "k": "start"}
        tile = f"{name}.load([{starts[rows]}, {starts[columns]}])"
        if (rows, columns) not in (("m", "k"), ("k", "n")):
            tile = f"tl.trans({tile})"
        out = self.body.names.fresh("a" if side == "m" else "b")
        loop.add(f"{out} = {tile}")
        return out

    def _order(self, value: Load, side: str) -> tuple[str, str, int] | None:
        """Which of `side` and k are rows and columns of a matrix, and the rows' distance."""
        offset = value.offset
        if not offset.is_affine or offset.const:
            return None
        steps = {name: _step(offset, self.axes[name]) for name in (side, "k")}
        others = offset.axes() - {*self.axes[side], *self.axes["k"]}
        for rows, columns in ((side, "k"), ("k", side)):
            stride = steps[rows]
            if others or steps[columns] != 1 or not stride:
                continue
            if stride * value.buffer.dtype.itemsize % _ALIGNMENT == 0:
                return rows, columns, stride
        return None


def _step(offset: Index, axes: tuple[Axis, ...]) -> int:
    """The distance of neighbours along `axes` taken as one; 0 if they have no one distance."""
    if not axes:
        return 0
    step = expected = offset.coefficient(axes[-1])
    for axis in reversed(axes):
        if offset.coefficient(axis) != expected:
            return 0
        expected *= axis.extent
    return step
