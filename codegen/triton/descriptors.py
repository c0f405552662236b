"""Tensor descriptors: the hardware copies whole tiles of a contraction's operands.

On NVIDIA's GPUs from sm_90 on this is the tensor memory accelerator (TMA): one thread asks for a
tile, addresses and bounds take no registers, and elements outside of the matrix read as zeros.
"""

from __future__ import annotations

from ..kernel import Dot
from ..kernel.matrix import matrix
from ..kernel.roles import Roles
from ..schedule import Schedule, points
from .emitted import POINTER, Argument
from .scope import Body
from .text import Block


class Descriptors:
    """Descriptors as parameters of the kernel, one for each matrix that is read: the host makes
    them, once for each address."""

    def __init__(self, body: Body, role: Roles, schedule: Schedule):
        self.body, self.role = body, role
        self.axes = {"m": role.m, "n": role.n, "k": role.k}
        self.blocks = {"m": schedule.block_m, "n": schedule.block_n, "k": schedule.block_k}
        self._made: dict[tuple[int, str], str] = {}

    def load(self, dot: Dot, loop: Block, side: str) -> str | None:
        """A tile of the operand that has `side` (m or n) as a dimension, by a line in `loop`; None
        if it is no matrix."""
        found = matrix(dot, self.role, side)
        if found is None:
            return None
        rows, columns = found.rows, found.columns
        key = id(dot.a if side == "m" else dot.b), side
        name = self._made.get(key)
        if name is None:
            name = self._made[key] = self.body.names.fresh("matrix")
            element = POINTER[found.buffer.dtype.name][1:]
            kind = f"tensordesc<{element}[{self.blocks[rows]}, {self.blocks[columns]}]>"
            place = list(self.body.buffers).index(found.buffer)
            shape = points(self.axes[rows]), points(self.axes[columns])
            self.body.matrices.append(Argument(name, kind, "matrix", (place, *shape, found.stride)))
        starts = {"m": "first_m", "n": "first_n", "k": "start"}
        tile = f"{name}.load([{starts[rows]}, {starts[columns]}])"
        if (rows, columns) not in (("m", "k"), ("k", "n")):
            tile = f"tl.trans({tile})"
        out = self.body.names.fresh("a" if side == "m" else "b")
        loop.add(f"{out} = {tile}")
        return out
