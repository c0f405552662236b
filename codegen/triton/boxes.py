"""Tiles of a convolution whose rows are a box of places: hardware copies their terms from the
image, zeros beyond its border included (`kernel/box.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..kernel import Dot, Store
from ..kernel.box import Box, box, stored
from ..kernel.index import Axis
from ..kernel.roles import Roles
from ..schedule import Schedule
from .descriptors import parameter
from .scope import Body, Ref, Scope, Tile
from .text import TL, Block


def count_boxes(body: Body, header: Block, role: Roles) -> str:
    """Writes the number of boxes along each axis; the text of their product."""
    for i, axis in enumerate(role.m):
        extent = body.sizes.argument(axis.extent)
        header.add(f"boxes_{i} = ({extent} + BOX_{i} - 1) // BOX_{i}")
    return " * ".join(f"boxes_{i}" for i in range(len(role.m)))


def place_box(
    body: Body, block: Block, role: Roles, lengths: Sequence[int]
) -> tuple[Tile, list[Tile]]:
    """Writes where the box number `tile_m` lies, and the position `m` of each of its places among
    all, in the order of their axes. Returns the tile of places, and for each axis the place where
    the box begins."""
    sides = range(len(role.m))
    extents = [body.sizes.argument(axis.extent) for axis in role.m]
    corners = [body.names.fresh("corner") for _ in sides]
    for i in sides:
        number = _digit("tile_m", [f"boxes_{j}" for j in sides], i)
        block.add(f"{corners[i]} = {number} * BOX_{i}")
    block.add("place = tl.arange(0, BLOCK_M)[:, None]")
    for i in sides:
        number = _digit("place", [f"BOX_{j}" for j in sides], i)
        block.add(f"place_{i} = {corners[i]} + {number}")
    block.add("m = place_0")
    for i in sides[1:]:
        block.add(f"m = m * {extents[i]} + place_{i}")
    ends = [i for i in sides if role.m[i].extent % lengths[i]]
    if ends:
        block.add(f"m_ok = {' & '.join(f'(place_{i} < {extents[i]})' for i in ends)}")
    begins = [Tile(c, (axis,), None, "1", None) for c, axis in zip(corners, role.m)]
    along = tuple(f"place_{i}" for i in sides)
    return Tile("m", role.m, 0, "BLOCK_M", "m_ok" if ends else None, along), begins


def _digit(number: str, lengths: list[str], place: int) -> str:
    """The digit of a number whose places have these lengths, the last one varying fastest."""
    below = lengths[place + 1 :]
    if below:
        number = (
            f"{number} // ({' * '.join(below)})" if len(below) > 1 else f"{number} // {below[0]}"
        )
    return f"({number} % {lengths[place]})" if place else f"({number})"


class Boxes:
    """Descriptors of boxes as parameters of the kernel. corner: the scope of the places where tiles
    begin."""

    def __init__(self, body: Body, role: Roles, schedule: Schedule, corner: Scope):
        self.body, self.role, self.corner, self.parts = body, role, corner, schedule.parts
        self.lengths = dict(zip(role.m, schedule.box, strict=True))
        self.lengths |= {axis: schedule.block_n for axis in role.n}
        self.lengths[role.k[-1]] = schedule.block_k
        self._made: dict[tuple[int, str], str] = {}

    def step(self, loop: Block) -> Scope:
        """The scope of a step of the sum, which lies within one tap of the window."""
        *taps, last = self.role.k
        channels = self.body.sizes.argument(last.extent)
        loop.add(f"tap = start // {channels}")
        loop.add(f"channel = start - tap * {channels}")  # one division, not two
        axes = {"tap": tuple(taps), "channel": (last,)}
        tiles = [Tile(name, each, None, "1", None) for name, each in axes.items()]
        return Scope(self.body, loop, tiles, self.corner)

    def load(self, dot: Dot, scope: Scope, side: str) -> str:
        """A tile of an operand, by a line in the scope of a step: of n by k, or of k by m. The
        image is the second factor, since Hopper's tensor cores would have the first one, once its
        shape is changed, from registers."""
        found = box(dot, self.role, side)
        assert found is not None, "the schedule of a kernel whose operands are no boxes"
        name = self._parameter((id(dot.a if side == "m" else dot.b), side), found, self.lengths)
        places = ", ".join(scope.index(s.start).text for s in found.sides)
        shape = f"BLOCK_{side.upper()}, BLOCK_K"
        last = found.sides[-1].axes[-1]
        if last is not self.role.k[-1]:
            shape = f"BLOCK_K, BLOCK_{side.upper()}"
        tile = f"{name}.load([{places}])"
        if len(found.sides) > 2:
            tile += f".reshape({shape})"
        if (side == "m") == (last is self.role.k[-1]):
            tile = f"tl.trans({tile})"
        out = self.body.names.fresh("a" if side == "m" else "b")
        scope.block.add(f"{out} = {tile}")
        return out

    def store(self, scope: Scope, store: Store, value: Ref) -> str | None:
        """The statement that stores a tile of a result; None if that is no box, or not all of a
        tile has a value of its own. Hardware leaves out what lies beyond the image."""
        found = stored(store, self.role)
        tiles = frozenset({"m", "n"})
        if found is None or value.tiles != tiles:
            return None
        columns = self.lengths[self.role.n[-1]] // self.parts
        lengths = self.lengths | {self.role.n[-1]: columns}
        name = self._parameter((id(store), "mn"), found, lengths)
        *places, last = (self.corner.index(s.start).text for s in found.sides)
        last += " + part * (BLOCK_N // PARTS)" if self.parts > 1 else ""
        shape = ", ".join(str(lengths[s.axes[-1]]) for s in found.sides)
        text = f"({value.text}).to({TL[store.buffer.dtype.name]}).reshape({shape})"
        return f"{name}.store([{', '.join([*places, last])}], {text})"

    def _parameter(self, key: tuple[int, str], found: Box, lengths: Mapping[Axis, int]) -> str:
        name = self._made.get(key)
        if name is None:
            extents, strides = (tuple(n) for n in zip(*((s.extent, s.stride) for s in found.sides)))
            block = tuple(lengths[s.axes[-1]] for s in found.sides)
            name = self._made[key] = parameter(self.body, found.buffer, extents, strides, block)
        return name
