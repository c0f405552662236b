"""Products in segments: the rows of a program's tile, and its part of a sum, are data.

Tiles of rows begin where segments do, so that a tile lies in one segment. A program reads the
bounds of all segments and counts their tiles, as their number isn't known before the launch. The
rows behind the last segment count as one more, without a sum. Unless programs walk
through all tiles, some may be left over.
"""

from __future__ import annotations

from ..kernel import Segment
from ..kernel.roles import Roles
from ..schedule import power_of_two
from .scope import Body, Scope, Tile
from .text import Block
from .values import evaluate


def count_tiles(
    body: Body, header: Block, role: Roles, segment: Segment, rows: str, exact: bool
) -> str:
    """The number of tiles of rows; unless `exact` the most that there may be, see
    `Roles.row_tiles`. Writes the number of each segment's `tiles`, and that of all
    tiles `through` it."""
    assert role.group is not None
    groups = body.sizes.extent("segment", role.group.extent)
    mask = "s_ok" if role.group.extent != segments(role) else None
    header.add("s = tl.arange(0, SEGMENTS)[:, None]")
    if mask:
        header.add(f"s_ok = s < {groups}")
    each = Scope(body, header, [Tile("s", (role.group,), 0, "SEGMENTS", mask)])
    first, stop = (
        each.spread(evaluate(each, value), frozenset({"s"}), "tl.int64")
        for value in (segment.first, segment.stop)
    )
    header.add(f"tiles = (({stop} - {first} + BLOCK_M - 1) // BLOCK_M).to(tl.int32)")
    header.add("through = tl.cumsum(tiles, axis=0)")
    if not exact:
        return f"{rows} // BLOCK_M + {groups} + 1"
    header.add(f"rest = {rows} - tl.max({stop}).to({body.sizes.tl_type})")
    return "tl.sum(tiles) + (rest + BLOCK_M - 1) // BLOCK_M"


def place_rows(body: Body, block: Block, role: Roles, segment: Segment, rows: str) -> Tile:
    """The tile of the program's segment, given `tile_m`. Also writes `first_m`, the `end` of its
    rows, and whether they are `summed`."""
    assert role.group is not None
    groups = body.sizes.extent("segment", role.group.extent)
    block.add("over = through <= tile_m")
    block.add("ahead = tl.sum(over.to(tl.int32))")
    block.add(f"segment = tl.minimum(ahead, {groups} - 1)")
    tile = Tile("segment", (role.group,), None, "1", None)
    bounds(body, Scope(body, block, [tile]), segment)
    for line in (
        f"summed = ahead < {groups}",
        "begin = tl.where(summed, first, stop)",
        f"end = tl.where(summed, stop, {rows})",
        "first_m = begin + (tile_m - tl.sum(tl.where(over, tiles, 0))) * BLOCK_M",
    ):
        block.add(line)
    return tile


def bounds(body: Body, scope: Scope, segment: Segment) -> None:
    """Writes `first` and `stop` of the program's segment."""
    for name, value in (("first", segment.first), ("stop", segment.stop)):
        scope.block.add(f"{name} = {evaluate(scope, value).text}.to({body.sizes.tl_type})")


def segments(role: Roles) -> int:
    """The length of the vector in which a program looks for its segment."""
    assert role.group is not None
    return power_of_two(role.group.extent)
