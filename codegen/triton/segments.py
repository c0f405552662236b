"""Products in segments: the rows of a program's tile, and its part of a sum, are data.

Tiles of rows begin where segments do, so that a tile lies in one segment. The number of a segment's
tiles isn't known before the launch. But segment i, with the rows first to stop, has no more than
stop // BLOCK_M - first // BLOCK_M + 1. So its tiles can begin at number first // BLOCK_M + i, and a
program finds its segment by counting the segments whose tiles are over. The rows behind the last
segment count as one more, without a sum. A program or two of a segment may have nothing to do.
"""

from __future__ import annotations

from ..kernel import Segment
from ..kernel.roles import Roles
from ..schedule import power_of_two
from .scope import Body, Scope, Tile
from .text import Block
from .values import evaluate


def count_tiles(body: Body, role: Roles, rows: str) -> str:
    """The most tiles of rows that there may be, see `Roles.row_tiles`."""
    assert role.group is not None
    return f"{rows} // BLOCK_M + {body.sizes.extent('segment', role.group.extent)} + 1"


def place_rows(
    body: Body, block: Block, role: Roles, segment: Segment, rows: str, length: str
) -> Tile:
    """The tile of the program's segment, given `tile_m`. Also writes `first_m`, the `end` of its
    rows, and `length`, the places of K that it sums."""
    assert role.group is not None
    groups = body.sizes.extent("segment", role.group.extent)
    mask = "s_ok" if role.group.extent != segments(role) else None
    block.add("s = tl.arange(0, SEGMENTS)[:, None]")
    if mask:
        block.add(f"s_ok = s < {groups}")
    each = Scope(body, block, [Tile("s", (role.group,), 0, "SEGMENTS", mask)])
    stops = each.spread(evaluate(each, segment.stop), frozenset({"s"}), "tl.int64")
    over = f"({stops} // BLOCK_M + s < tile_m)"
    over = f"({over} & s_ok)" if mask else over
    block.add(f"ahead = tl.sum({over}.to(tl.int32))")
    block.add(f"segment = tl.minimum(ahead, {groups} - 1)")
    tile = Tile("segment", (role.group,), None, "1", None)
    bounds(body, Scope(body, block, [tile]), segment)
    for line in (
        f"begin = tl.where(ahead < {groups}, first, stop)",
        f"end = tl.where(ahead < {groups}, stop, {rows})",
        "first_m = begin + (tile_m - begin // BLOCK_M - ahead) * BLOCK_M",
        f"length = tl.where((ahead < {groups}) & (first_m < end), {length}, 0)",
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
