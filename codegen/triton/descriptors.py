"""Tensor descriptors: the hardware copies whole tiles of a contraction's operands and results.

On NVIDIA's GPUs from sm_90 on this is the tensor memory accelerator (TMA): one thread asks for a
tile, addresses and bounds take no registers, and elements outside of the matrix read as zeros.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

from ..kernel import Buffer, Store, Value
from ..kernel.matrix import Matrix, matrix, stored
from ..kernel.roles import Roles
from ..schedule import Schedule, points
from .emitted import POINTER, Argument
from .scope import Body, Ref, Scope
from .text import TL, Block, tl_type


class Descriptors:
    """Descriptors as parameters of the kernel, one for each matrix that is read or stored: the host
    makes them, once for each address."""

    def __init__(self, body: Body, role: Roles, schedule: Schedule):
        self.body, self.role = body, role
        self.axes = {"m": role.m, "n": role.n, "k": role.k}
        self.blocks = {"m": schedule.block_m, "n": schedule.block_n, "k": schedule.block_k}
        self.parts = schedule.parts
        self._made: dict[tuple[int, str], str] = {}

    def load(self, factor: Value, kind: DType, loop: Block, side: str) -> str | None:
        """A tile of a factor of type `kind` that has `side` (m or n) as a dimension, by a line in
        `loop`; None if it is no matrix, or if below a group's matrix a tile has terms of the next
        one."""
        found = matrix(factor, kind, self.role, side)
        if found is None:
            return None
        rows, columns = found.rows, found.columns
        if found.apart and rows == "k" and points(self.role.k) % self.blocks["k"]:
            return None
        name = self._parameter((id(factor), side), found, (self.blocks[rows], self.blocks[columns]))
        starts = {"m": "first_m", "n": "first_n", "k": "start"}
        if found.apart:
            starts[rows] += f" + segment * {self.body.sizes.argument(found.apart)}"
        tile = f"{name}.load([{starts[rows]}, {starts[columns]}])"
        if (rows, columns) not in (("m", "k"), ("k", "n")):
            tile = f"tl.trans({tile})"
        out = self.body.names.fresh("a" if side == "m" else "b")
        loop.add(f"{out} = {tile}")
        return out

    def store(self, scope: Scope, store: Store, value: Ref) -> str | None:
        """The statement that stores a tile of a result; None if that is no matrix, or not all of a
        tile has a value of its own. The copy goes on during products of the next tile."""
        found = stored(store, self.role)
        tiles = frozenset({"m", "n"})
        if found is None or value.tiles != tiles:
            return None
        columns = self.blocks["n"] // self.parts
        name = self._parameter((id(store), "mn"), found, (self.blocks["m"], columns))
        text = scope.spread(value, tiles, tl_type(store.value.dtype))
        first = "first_n" if self.parts == 1 else "first_n + part * (BLOCK_N // PARTS)"
        return f"{name}.store([first_m, {first}], ({text}).to({TL[store.buffer.dtype.name]}))"

    def _parameter(self, key: tuple[int, str], found: Matrix, block: tuple[int, int]) -> str:
        name = self._made.get(key)
        if name is None:
            rows, columns = (points(self.axes[side]) for side in (found.rows, found.columns))
            if found.apart:
                assert self.role.group is not None
                rows += found.apart * (self.role.group.extent - 1)
            about = (rows, columns), (found.stride, 1), block
            name = self._made[key] = parameter(self.body, found.buffer, *about)
        return name


def parameter(
    body: Body,
    buffer: Buffer,
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    tile: tuple[int, ...],
) -> str:
    """The name of a descriptor that the host makes."""
    name = body.names.fresh("matrix")
    lengths = ", ".join(map(str, tile))
    kind = f"tensordesc<{POINTER[buffer.dtype.name][1:]}[{lengths}]>"
    place = list(body.buffers).index(buffer)
    body.matrices.append(Argument(name, kind, "matrix", (place, extents, strides)))
    return name
