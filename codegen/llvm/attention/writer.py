"""The parts that both directions of attention share: tiles, blocks, loops, operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...kernel import Dot, Store, Value
from ...kernel.attention import Roles, Span
from ...kernel.index import Axis
from .. import memory, tile
from ..body import Body
from ..code import Loop, zero
from ..math.expression import call
from ..stages import bind_vector
from ..tile import Factor, Tile
from ..types import Ref, computed, constant
from ..values import evaluate

QUERIES, KEYS = 96, 144
"""The most columns and rows of a tile of scores. Two of them and their operands fit an L2 cache."""


def block_of(extent: int, most: int, unit: int) -> int:
    """The least multiple of `unit` that holds `extent` positions, or the largest up to `most`."""
    return min(-(-extent // unit), max(most // unit, 1)) * unit


class Writer:
    """The base of both directions. keys: the most rows of a tile of scores."""

    def __init__(self, body: Body, parts: Roles, keys: int):
        self.body, self.code, self.parts = body, body.code, parts
        self.kind = computed(parts.products.dtype)
        self.lanes = body.lanes
        self.queries = body.form.block
        self.keys = block_of(parts.key.extent, keys, tile.step(body.machine, self.kind)[0])
        self.inner, self.outer = (self._padded(a.extent) for a in (parts.inner, parts.outer))

    def _padded(self, extent: int) -> int:
        return -(-extent // self.lanes) * self.lanes

    def tile(self, rows: int | Ref, stride: int) -> Tile:
        return tile.scratch(self.code, rows, stride, self.kind, self.lanes)

    def number(self, value: int) -> Ref:
        return constant(value, "i64")

    def add(self, a: Ref, b: Ref) -> Ref:
        return self.code.binary("add", a, b)

    def least(self, a: Ref, b: Ref) -> Ref:
        return self.code.intrinsic("smin", [a, b])

    def most(self, a: Ref, b: Ref) -> Ref:
        return self.code.intrinsic("smax", [a, b])

    def floor(self, x: Ref, block: int) -> Ref:
        """The largest multiple of a block that is not above x."""
        return self.code.binary("sub", x, self.code.binary("urem", x, self.number(block)))

    def multiple(self, x: Ref, block: int) -> Ref:
        """The smallest multiple of a block that is not below x."""
        return self.floor(self.add(x, self.number(block - 1)), block)

    def count(self, first: Ref, block: int, stop: Ref) -> Ref:
        """The number of positions in a block that begins at `first`."""
        return self.least(self.code.binary("sub", stop, first), self.number(block))

    def batch_point(self, point: Ref) -> None:
        """Binds the batch axes to one of their points."""
        for axis in reversed(self.parts.batch):
            extent = self.body.extent(axis)
            self.body.bind(axis, self.code.binary("urem", point, extent))
            point = self.code.binary("udiv", point, extent)

    @contextmanager
    def along(self, axis: Axis, first: Ref, count: Ref) -> Iterator[Ref]:
        """A loop over positions of an axis from `first` on; yields the distance from `first`."""
        loop = self.code.open_loop(self.number(0), count, stem=axis.name)
        self.body.bind(axis, self.add(first, loop.variable))
        yield loop.variable
        del self.body.axes[axis]
        self.code.close_loop(loop)

    @contextmanager
    def lanes_along(self, axis: Axis, first: Ref, count: Ref | int) -> Iterator[Ref]:
        """The same in steps of lanes."""
        stop = self.number(count) if isinstance(count, int) else count
        loop = self.code.open_loop(self.number(0), stop, self.lanes, stem=axis.name)
        start = self.add(first, loop.variable)
        self.body.bind(axis, start)
        bind_vector(self.body, axis, start, self.body.extent(axis), whole=False)
        yield loop.variable
        self.body.vector = None
        del self.body.axes[axis]
        self.code.close_loop(loop)

    @contextmanager
    def known(self, *pairs: tuple[Value | None, Ref]) -> Iterator[None]:
        """Makes values known to the expressions that contain them."""
        before = self.body.folded
        self.body.folded = before | {id(value): ref for value, ref in pairs if value is not None}
        yield
        self.body.folded = before

    def here(self, value: Value) -> Ref:
        """A value in lanes."""
        return self.code.spread(evaluate(self.body, value), self.lanes)

    def score(self, hides: bool) -> Ref:
        """The masked scores in lanes, where products are known. hides: whether the causal mask, if
        there is one, applies here."""
        parts = self.parts
        capped = self.here(parts.capped)
        with self.known((parts.capped, capped), (parts.causal, self._seen(capped, hides))):
            return self.here(parts.scores)

    def _seen(self, capped: Ref, hides: bool) -> Ref:
        """What a causal mask shows: -inf where the query of a lane comes before the key."""
        if not hides:
            return capped
        code, vector = self.code, self.body.vector
        assert vector is not None
        _, key = self.body.axes[self.parts.key]
        ahead = code.convert("trunc", code.binary("sub", key, vector.variable), "i32")
        later = code.compare("icmp sge", code.lanes_of(self.lanes, "i32"), ahead)
        return code.select(later, capped, constant(-math.inf, self.kind))

    def met(self, span: Span, row: Axis, first: Ref, count: Ref) -> tuple[Ref, Ref]:
        """The least range that contains the spans of `count` rows from `first` on."""
        extent, code = self.body.extent(span.along), self.code
        loop = code.open_loop(self.number(0), count, 1, [extent, self.number(0)], stem="met")
        self.body.bind(row, self.add(first, loop.variable))
        begin, end = (evaluate(self.body, value) for value in (span.first, span.stop))
        least, most = (phi for phi, _ in loop.carried)
        del self.body.axes[row]
        found = code.close_loop(loop, [self.least(least, begin), self.most(most, end)])
        return found[0], found[1]

    def weight(self, score: Ref, shift: Ref) -> Ref:
        """exp(score - shift), for a shift that no score exceeds by much."""
        return call(self.code, "exp_flushed", [self.code.binary("fsub", score, shift)])

    def fill(
        self, out: Tile, value: Value, row: Axis, first: Ref, count: Ref, column: Axis
    ) -> None:
        """Fills a tile with an operand's elements at `count` rows, zero beyond the last column."""
        with (
            self.along(row, first, count) as r,
            self.lanes_along(column, self.number(0), out.stride) as c,
        ):
            found = self.here(value)
            if column.extent % self.lanes:
                exists = self.body.lane_mask(self.code.level)
                found = self.code.select(exists, found, zero(self.kind, self.lanes))
            tile.store(self.code, out, r, c, found)

    def write_out(
        self, store: Store, of: Dot, held: Tile, row: Axis, first: Ref, count: Ref, column: Axis,
        scale: Callable[[Ref, Ref], Ref] = lambda value, row: value,
    ) -> None:  # fmt: skip
        """Stores the elements of `count` rows, in all columns, from their sums in a tile."""
        with (
            self.along(row, first, count) as r,
            self.lanes_along(column, self.number(0), held.stride) as c,
        ):
            value = scale(tile.load(self.code, held, r, c), r)
            with self.known((of, value)):
                memory.store(self.body, [(store, evaluate(self.body, store.value))])

    def fold_keys(
        self, first: Ref, count: Ref, start: Sequence[Ref],
        step: Callable[[Ref, list[Ref]], list[Ref]],
    ) -> list[Ref]:  # fmt: skip
        """A loop over keys that carries values: step(distance from `first`, held) -> held."""
        key = self.parts.key
        loop = self.code.open_loop(self.number(0), count, 1, start, stem=key.name)
        self.body.bind(key, self.add(first, loop.variable))
        held = step(loop.variable, [phi for phi, _ in loop.carried])
        del self.body.axes[key]
        return self.code.close_loop(loop, held)

    def multiply(
        self, out: Tile, a: Factor, b: Tile, rows: Ref, inner: Ref, columns: Ref | None = None,
        fresh: bool = False,
    ) -> None:  # fmt: skip
        """tile.multiply, for all columns or for enough to hold `columns` queries."""
        every = self.number(out.stride)
        if columns is not None:
            every = self.multiple(columns, self.lanes)
        tile.multiply(self.code, self.body.machine, out, a, b, rows, every, inner, fresh)

    def open_blocks(self, axis: Axis, first: Ref, stop: Ref, block: int) -> Loop:
        return self.code.open_loop(first, stop, block, stem=f"{axis.name}_block")
