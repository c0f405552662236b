"""The cut of a contraction: into tiles, blocks that stay in a cache, chunks, and rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.dtype import float32

from ...kernel import ALONG, Apply, Dot, Kernel, Load, Reduce, Value
from ...kernel.analysis import analyzed
from ...kernel.index import Axis, Index, walk
from ...kernel.roles import roles
from ..machine import Machine
from ..schedule import DEFAULT, Schedule
from ..types import computed
from .micro import Tile, tile_for
from .words import BYTES, words_for

DEPTH = 256
"""Elements along K that a block sums at a time: a panel of `b` stays in the first level of cache.
An element is a place of K, or a word of some."""
ROWS, COLUMNS = 96, 1024
ROWS_OF_SQUARES, COLUMNS_OF_SQUARES = 256, 512
"""The largest block of the result that a chunk computes. `a` is packed again for each block of
columns. Matrix registers take so little time for a panel of `b` that more rows have to share it."""
FEW, THIN = 4, 128
"""A result with more than FEW rows, but no more than THIN: to transpose the result costs less than
to pack a matrix `b`, and its rows fill the lanes."""
PRODUCTS = 1 << 19
"""The products that make a chunk worth its start: some 20 µs."""
CHUNKS = 16
"""The wanted number of chunks, if they are large enough."""
WIDER = 8
"""How much wider than high a block is before its columns are halved, not its rows."""
LEAST = 2
"""The least panels of columns of a chunk. `a` is read once for each chunk."""
PACKED = 1 << 23
"""The most elements of `b` that are packed at a time."""
PACKING = 1 << 15
"""The least elements that a chunk packs."""
GROUP = 8
"""The least panels of `b` that a chunk packs: neighbours are copied in turn."""


@dataclass(frozen=True)
class Tiling:
    """The cut of one contraction.

    a, b: the operands, in the order that lets stores write neighbours along n. m, n, k: the axes of
    tiles. deep: other axes that are summed over. shared: other axes of `b`. free: other axes that
    `b` doesn't have; it is the same for all of their points.
    turned: whether stores write neighbours along m instead, which spares packing a large matrix.
    group: the axis of the groups, if m is in segments. It is `shared`, and a chunk finds out itself
    where it is along the groups and along m: see `segments.py`.
    most: the rows, columns and elements along K that the code has room for.
    rows, columns: those of a chunk. depth: the elements of a block along K. wide, items: the
    columns, and the points of `shared`, that a round takes.
    """

    dot: Dot
    a: Value
    b: Value
    m: Axis
    n: Axis
    k: Axis
    deep: tuple[Axis, ...]
    shared: tuple[Axis, ...]
    free: tuple[Axis, ...]
    tile: Tile
    turned: bool
    group: Axis | None
    most: tuple[int, int, int]
    rows: int
    columns: int
    depth: int
    wide: int
    items: int

    @property
    def outer(self) -> tuple[Axis, ...]:
        return self.shared + self.free

    @property
    def length(self) -> int:
        """The elements of a panel along `k`: places, or words of them."""
        return _length(self.k, self.tile)

    @property
    def summed(self) -> int:
        """The elements of a panel along all axes that are summed over."""
        return self.length * points(self.deep)

    @property
    def row_blocks(self) -> int:
        if self.group is not None:
            return self.m.extent // self.rows + self.group.extent + 1
        return -(-self.m.extent // self.rows)

    @property
    def column_blocks(self) -> int:
        """The blocks of columns in a round."""
        return -(-min(self.wide, self.n.extent) // self.columns)

    @property
    def panels(self) -> int:
        """Panels of `b` in a round, for each point of `shared`."""
        return -(-min(self.wide, self.n.extent) // self.tile.columns)

    @property
    def wide_rounds(self) -> int:
        return -(-self.n.extent // self.wide)

    @property
    def item_rounds(self) -> int:
        return -(-points(self.shared) // self.items)

    @property
    def rounds(self) -> int:
        return self.wide_rounds * self.item_rounds

    @property
    def panel_group(self) -> int:
        """The number of panels of `b` that a chunk packs."""
        enough = max(PACKING // (self.summed * self.tile.columns), GROUP)
        return min(enough, self.panels)

    @property
    def packing_chunks(self) -> int:
        return self.items * -(-self.panels // self.panel_group)

    @property
    def chunks(self) -> int:
        items = self.items if self.group is None else 1
        return items * points(self.free) * self.row_blocks * self.column_blocks

    @property
    def workspace(self) -> int:
        """Bytes of the packed `b` of a round."""
        panel = self.summed * self.tile.columns * self.tile.itemsize
        return self.items * self.panels * panel


def points(axes: tuple[Axis, ...]) -> int:
    return math.prod(a.extent for a in axes)


def tiling(kernel: Kernel, machine: Machine, schedule: Schedule = DEFAULT) -> Tiling | None:
    """The cut of a kernel that is one contraction, if tiles pay for it."""
    dots = [v for v in kernel.values if isinstance(v, Dot)]
    others = (Reduce, *ALONG)
    if len(dots) != 1 or kernel.is_update or any(isinstance(v, others) for v in kernel.values):
        return None
    (dot,) = dots
    kind = computed(dot.dtype)
    words = words_for(machine, dot, dot.a, dot.b)
    if kind not in ("float", "double") and words is None:
        return None
    role = roles(kernel, analyzed(kernel), dot)
    if not (role.m and role.n and role.k) or not points(kernel.parallel + kernel.reduction):
        return None
    offset = kernel.stores[0].offset
    a, b, m_axes, n_axes = dot.a, dot.b, role.m, role.n
    group = role.group if role.has_segments_of_rows else None
    if group is not None and len(role.m + role.n + role.batch) > 2:
        return None
    if group is None and _neighbours(offset, m_axes) and not _neighbours(offset, n_axes):
        a, b, m_axes, n_axes = b, a, n_axes, m_axes
    n = next(iter(_neighbours(offset, n_axes)), None) or _longest(n_axes)
    m, k = _longest(m_axes), _longest(role.k)
    if not _pays(m.extent, n.extent, k.extent):
        return None
    turned = FEW < m.extent <= THIN and n.extent >= 4 * m.extent and _lies_in_rows(b, k)
    if schedule.turned is not None:
        turned = schedule.turned and m.extent <= THIN
    turned = turned and group is None
    if turned:
        a, b, m, n, m_axes, n_axes = b, a, n, m, n_axes, m_axes
    if words is not None:
        words = words_for(machine, dot, a, b)  # in their order
        if not (is_matrix(a, m, k) and is_matrix(b, n, k)):
            if kind != "float":
                return None
            words = None
    tile = tile_for(machine, kind, n.extent, schedule.tile, m.extent, words)
    deep = tuple(x for x in role.k if x is not k)
    mentioned = analyzed(kernel).axes(b)
    rest = tuple(x for x in (*role.batch, *m_axes, *n_axes) if x is not m and x is not n)
    shared = tuple(x for x in rest if x in mentioned) if group is None else (group,)
    free = tuple(x for x in rest if x not in mentioned)
    length = _length(k, tile)
    summed = length * points(deep)
    deepest = _up(schedule.depth or DEPTH, tile.step)
    largest = (ROWS, COLUMNS) if tile.step == 1 else (ROWS_OF_SQUARES, COLUMNS_OF_SQUARES)
    most = schedule.rows or largest[0], schedule.columns or largest[1], deepest
    rows, columns = _block(m.extent, n.extent, summed, points(rest), tile, most, schedule)
    depth = _even(length, most[2], tile.step)
    each = summed * _up(n.extent, tile.columns)
    items = max(min(PACKED // each, points(shared)), 1)
    wide = n.extent
    if each > PACKED:
        columns = min(columns, max(PACKED // summed // tile.columns, 1) * tile.columns)
        wide = max(PACKED // summed // columns, 1) * columns
    return Tiling(
        dot,
        a,
        b,
        m,
        n,
        k,
        deep,
        shared,
        free,
        tile,
        turned,
        group,
        most,
        rows,
        columns,
        depth,
        wide,
        items,
    )


def _neighbours(offset, axes: tuple[Axis, ...]) -> list[Axis]:  # type: ignore[no-untyped-def]
    return [x for x in axes if offset.coefficient(x) == 1]


def _lies_in_rows(value: Value, k: Axis) -> bool:
    value = source(value)
    return isinstance(value, Load) and value.offset.coefficient(k) == 1


def source(value: Value) -> Value:
    """What packing reads: a value, or the bytes that are converted to float32."""
    if isinstance(value, Apply) and value.op is ops.cast and value.dtype is float32:
        (inner,) = value.args
        if isinstance(inner, Load) and inner.buffer.dtype in BYTES:
            return inner
    return value


def is_matrix(value: Value, row: Axis, k: Axis) -> bool:
    """Whether an operand lies in memory in rows along K, or in columns."""
    value = source(value)
    if not isinstance(value, Load):
        return False
    inside = (a for a in walk(value.offset) if not isinstance(a, Axis))
    if any({row, k} & Index(((a, 1),)).axes() for a in inside):
        return False
    return 1 in (value.offset.coefficient(k), value.offset.coefficient(row))


def _longest(axes: tuple[Axis, ...]) -> Axis:
    return max(axes, key=lambda x: x.extent)


def _pays(m: int, n: int, k: int) -> bool:
    """Whether tiles are full enough to repay packing."""
    return m >= 4 and n >= 2 and k >= 2 and m * n >= 64 and m * n * k >= 1 << 12


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _length(k: Axis, tile: Tile) -> int:
    """The elements of a panel along K, filled up to whole steps."""
    return _up(-(-k.extent // tile.places), tile.step)


def _even(extent: int, most: int, multiple: int) -> int:
    """The size of equal pieces of an extent, at most `most`."""
    pieces = -(-extent // most)
    return _up(-(-extent // pieces), multiple)


def _block(
    m: int, n: int, k: int, items: int, tile: Tile, most: tuple[int, int, int], schedule: Schedule
) -> tuple[int, int]:
    """The rows and columns of a chunk: those of the schedule, or the most that still give enough
    chunks."""
    rows, columns = _up(min(m, most[0]), tile.rows), _up(min(n, most[1]), tile.columns)
    while schedule.rows is None and schedule.columns is None:
        chunks = items * -(-m // rows) * -(-n // columns)
        if chunks >= CHUNKS or rows * columns * k < 2 * PRODUCTS:
            break
        if rows > 4 * tile.rows and columns < WIDER * rows:
            rows = _up(rows // 2, tile.rows)
        elif columns > LEAST * tile.columns:
            columns = _up(columns // 2, tile.columns)
        else:
            break
    return _even(m, rows, tile.rows), _even(n, columns, tile.columns)
