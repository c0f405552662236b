"""Results that are only stored: their tiles are summed in the output itself."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernel import Store
from ...kernel.index import Axis, Index
from ..body import Body
from ..code import Code
from ..positions import uniform
from ..types import Ref, stored
from .cut import Tiling
from .micro import Tile, offset


@dataclass(frozen=True)
class Target:
    """Memory of a matrix: its first element, and the distance of its rows."""

    start: Ref
    row: Ref

    def at(self, code: Code, tile: Tile, row: Ref, column: Ref) -> Target:
        place = code.binary("add", code.binary("mul", row, self.row), column)
        return Target(offset(code, tile, self.start, place), self.row)


def direct(body: Body, cut: Tiling, row: Ref, column: Ref) -> Target | None:
    """The output's memory for the block at a row and a column, if the contraction is only stored,
    and its columns are neighbours there."""
    store = _only_store(body, cut)
    if store is None:
        return None
    offset_ = store.offset
    rest = Index(tuple(t for t in offset_.terms if t[0] not in (cut.m, cut.n)), offset_.const)
    code = body.code
    distance = body.size(offset_.coefficient(cut.m), "row of the output", baked=False)
    base = Target(body.buffer(store.buffer), distance)
    start = offset(code, cut.tile, base.start, uniform(body, rest, None))
    return Target(start, distance).at(code, cut.tile, row, column)


def _only_store(body: Body, cut: Tiling) -> Store | None:
    if len(body.kernel.stores) != 1:
        return None
    (store,) = body.kernel.stores
    dtype = store.buffer.dtype
    if store.value is not cut.dot or stored(dtype) != cut.tile.kind:
        return None
    inside = (a for a, _ in store.offset.terms if not isinstance(a, Axis))
    if any({cut.m, cut.n} & body.analysis.index_axes(Index(((a, 1),))) for a in inside):
        return None
    return store if store.offset.coefficient(cut.n) == 1 else None
