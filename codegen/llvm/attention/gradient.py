"""The gradient of attention: weights are computed again for each pair of blocks.

Sums over queries are kept while their block of keys meets every block of queries. Sums over keys
are kept for all queries at a time, so a chunk is a whole point of the batch. If the batch has few
points, or there are too many queries, these sums get chunks of their own, which compute the weights
once more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...kernel import Dot, Value
from ...kernel.attention import Roles, Span
from ...kernel.index import Axis
from .. import tile
from ..body import Body
from ..tile import Tile, columns_of, rows_of
from ..types import Ref
from .writer import Writer

FEW = 8
"""The least points of the batch; with fewer, chunks are blocks."""
ROOM = 1 << 20
"""The most bytes of sums that a chunk keeps for all queries."""


@dataclass(frozen=True)
class _Operand:
    """Elements at a block's rows and at all columns, in a tile. turned: the tile's transpose."""

    value: Value
    tile: Tile
    row: Axis
    column: Axis
    turned: Tile | None


@dataclass(frozen=True)
class _Sum:
    """A contraction over `over` that is being summed, in a tile."""

    dot: Dot
    tile: Tile
    row: Axis
    column: Axis

    @property
    def over(self) -> Axis:
        return self.dot.over[0]


class Gradient(Writer):
    def __init__(self, body: Body, parts: Roles, keys: int):
        super().__init__(body, parts, keys)
        self.points = math.prod(a.extent for a in parts.batch)
        self.blocks = -(-parts.query.extent // self.queries)
        self.key_blocks = -(-parts.key.extent // self.keys)
        sums = list(dict.fromkeys(d for _, d in parts.stores if d is not None))
        of_keys = any(d.over == (parts.key,) for d in sums)
        of_queries = any(d.over == (parts.query,) for d in sums)
        kept = self.blocks * self.queries * self.inner * parts.products.dtype.itemsize
        self.apart = of_keys and (not of_queries or self.points < FEW or kept > ROOM)
        self.firsts = [d for d in (parts.products, parts.back) if d is not None]
        self.operands: dict[int, _Operand] = {}
        for dot in self.firsts:
            self._operand(dot.a, parts.query, dot.over[0], is_turned=True)
            self._operand(dot.b, parts.key, dot.over[0])
        self.sums = [self._sum(dot) for dot in sums]
        # A plane holds a product of two operands, then in its place the factor of the sums.
        self.factors = list({id(d.a): d.a for d in sums}.values())
        count = max(len(self.firsts), len(self.factors))
        self.planes = [self.tile(self.keys, self.queries) for _ in range(count)]

    def _width(self, column: Axis) -> int:
        return self.inner if column is self.parts.inner else self.outer

    def _operand(self, value: Value, row: Axis, column: Axis, is_turned: bool = False) -> None:
        if id(value) not in self.operands:
            rows, width = self.keys if row is self.parts.key else self.queries, self._width(column)
            turned = self.tile(width, self.queries) if is_turned else None
            self.operands[id(value)] = _Operand(value, self.tile(rows, width), row, column, turned)

    def _sum(self, dot: Dot) -> _Sum:
        parts = self.parts
        column = parts.inner if parts.inner in dot.b.axes() else parts.outer
        self._operand(dot.b, dot.over[0], column)
        if dot.over == (parts.query,):
            return _Sum(dot, self.tile(self.keys, self._width(column)), parts.key, column)
        rows: Ref | int = self.queries
        if not self.apart:
            rows = self.body.size(self.blocks * self.queries, "padded queries", baked=False)
        return _Sum(dot, self.tile(rows, self._width(column)), parts.query, column)

    # Chunks

    def write(self) -> int:
        code, parts = self.code, self.parts
        nothing, every = self.number(0), self.body.extent(parts.query)
        keys = self.body.extent(parts.key)
        chunk = Ref("%chunk", "i64")
        if not self.apart:
            self.batch_point(chunk)
            sums = [s for s in self.sums if s.row is parts.query]
            for held in sums:
                tile.clear(code, held.tile, self.multiple(every, self.queries))
            self._all_queries(nothing, keys, self.sums)
            self._write_out(sums, nothing, every)
            return self.points
        # First blocks of keys, then blocks of queries; each loop is empty for the other's chunks.
        of_queries = [s for s in self.sums if s.row is parts.key]
        of_keys = [s for s in self.sums if s.row is parts.query]
        count = self.points * self.key_blocks if of_queries else 0
        before = self.body.size(count, "key chunks", baked=False)
        is_later = code.compare("icmp sge", chunk, before)
        own = code.select(is_later, code.binary("sub", chunk, before), chunk)
        pieces = self.body.size(self.key_blocks, "key blocks", baked=False)
        later = self.body.size(self.blocks, "query blocks", baked=False)
        pieces = code.select(is_later, later, pieces)
        self.batch_point(code.binary("udiv", own, pieces))
        piece = code.binary("urem", own, pieces)
        if of_queries:
            first = code.binary("mul", piece, self.number(self.keys))
            stop = self.least(keys, self.add(first, self.number(self.keys)))
            self._all_queries(first, code.select(is_later, first, stop), of_queries)
        first = code.binary("mul", piece, self.number(self.queries))
        stop = self.least(every, self.add(first, self.number(self.queries)))
        self._all_keys(first, code.select(is_later, stop, first), of_keys)
        return count + self.points * self.blocks

    def _all_queries(self, start: Ref, stop: Ref, sums: Sequence[_Sum]) -> None:
        """Blocks of keys, each with every block of queries that sees it."""
        parts, code = self.parts, self.code
        every = self.body.extent(parts.query)
        own = [s for s in sums if s.row is parts.key]
        loop = self.open_blocks(parts.key, start, stop, self.keys)
        key = loop.variable
        keys = self.count(key, self.keys, stop)
        self._fill(parts.key, key, keys)
        for held in own:
            tile.clear(code, held.tile, self.number(self.keys))
        if parts.causal is None:
            first = self.number(0)
            if parts.span is not None and parts.span.along is parts.query:
                first, every = self.met(parts.span, parts.key, key, keys)
            self._query_blocks(key, keys, first, every, sums, hides=False)
        else:
            first = self.floor(key, self.queries)
            last = self.add(self.add(key, keys), self.number(-1))
            seen = self.least(self.multiple(last, self.queries), every)
            self._query_blocks(key, keys, first, seen, sums, hides=True)
            self._query_blocks(key, keys, self.most(first, seen), every, sums, hides=False)
        self._write_out(own, key, keys)
        code.close_loop(loop)

    def _query_blocks(
        self, key: Ref, keys: Ref, start: Ref, stop: Ref, sums: Sequence[_Sum], hides: bool
    ) -> None:
        """The blocks of queries from `start` to `stop`, with a block of keys. hides: whether the
        causal mask applies."""
        query = self.parts.query
        loop = self.open_blocks(query, start, stop, self.queries)
        first = loop.variable
        count = self.count(first, self.queries, self.body.extent(query))
        if hides:  # Keys after the last query don't count. A product's steps stay whole.
            far = self.code.binary("sub", self.add(first, self.number(self.queries)), key)
            keys = self.most(self.number(0), self.least(keys, far))
        span, meets = self.parts.span, None
        if span is not None and span.along is self.parts.key:
            meets = self.code.open_loop(self.number(0), self._meets(span, first, count, key, keys))
        self._fill(query, first, count)
        self._pair(first, count, key, keys, sums, hides)
        if meets is not None:
            self.code.close_loop(meets)
        self.code.close_loop(loop)

    def _meets(self, span: Span, first: Ref, count: Ref, key: Ref, keys: Ref) -> Ref:
        """1 if a block of queries meets a block of keys, else 0."""
        code = self.code
        begin, end = self.met(span, self.parts.query, first, count)
        ahead = code.compare("icmp slt", begin, self.add(key, keys))
        behind = code.compare("icmp sgt", end, key)
        return code.convert("zext", code.binary("and", ahead, behind), "i64")

    def _all_keys(self, start: Ref, stop: Ref, sums: Sequence[_Sum]) -> None:
        """Blocks of queries, each with every block of keys that it sees."""
        parts, code = self.parts, self.code
        keys = self.body.extent(parts.key)
        loop = self.open_blocks(parts.query, start, stop, self.queries)
        query = loop.variable
        count = self.count(query, self.queries, stop)
        self._fill(parts.query, query, count)
        for held in sums:
            tile.clear(code, held.tile, self.number(self.queries))
        bounds = [(self.number(0), keys, False)]
        if parts.span is not None:
            bounds = [(*self.met(parts.span, parts.query, query, count), False)]
        if parts.causal is not None:
            seen = self.least(keys, query)
            bounds = [(self.number(0), seen, False)]
            bounds.append((seen, self.least(keys, self.add(query, count)), True))
        for first, last, hides in bounds:
            inner = self.open_blocks(parts.key, first, last, self.keys)
            some = self.count(inner.variable, self.keys, last)
            self._fill(parts.key, inner.variable, some)
            self._pair(query, count, inner.variable, some, sums, hides)
            code.close_loop(inner)
        self._write_out(sums, query, count)
        code.close_loop(loop)

    # One block of queries with one of keys

    def _fill(self, row: Axis, first: Ref, count: Ref) -> None:
        for each in self.operands.values():
            if each.row is row:
                self.fill(each.tile, each.value, row, first, count, each.column)
                if each.turned is not None:
                    tile.transpose(self.code, each.turned, each.tile)

    def _pair(
        self, query: Ref, queries: Ref, key: Ref, keys: Ref, sums: Sequence[_Sum], hides: bool
    ) -> None:
        for dot, plane in zip(self.firsts, self.planes):
            turned = self.operands[id(dot.a)].turned
            assert turned is not None
            left = rows_of(self.operands[id(dot.b)].tile)
            depth = self.body.extent(dot.over[0])
            self.multiply(plane, left, turned, keys, depth, queries, fresh=True)
        with self.lanes_along(self.parts.query, query, queries) as column:
            self.fold_keys(key, keys, [], lambda row, _: self._factors(row, column, sums, hides))
        for held in sums:
            place = next(i for i, f in enumerate(self.factors) if f is held.dot.a)
            plane, right = self.planes[place], self.operands[id(held.dot.b)].tile
            if held.row is self.parts.key:
                self.multiply(held.tile, rows_of(plane), right, keys, queries)
            else:
                out = held.tile
                if not self.apart:  # where these queries' rows are
                    out = replace(out, address=tile.at(self.code, out, query, self.number(0)))
                self.multiply(out, columns_of(plane), right, queries, keys)

    def _factors(self, row: Ref, column: Ref, sums: Sequence[_Sum], hides: bool) -> list[Ref]:
        """The left factors of the sums, in the place of the products, for one register of
        queries."""
        code, parts = self.code, self.parts
        given = [tile.load(code, plane, row, column) for _, plane in zip(self.firsts, self.planes)]
        assert parts.weights is not None
        with self.known(*zip(self.firsts, given)):
            score, shift = self.score(hides), self.here(parts.weights.args[0].operands()[1])
            with self.known((parts.weights, self.weight(score, shift))):
                found = [
                    (plane, self.here(factor))
                    for factor, plane in zip(self.factors, self.planes)
                    if any(s.dot.a is factor for s in sums)
                ]
        for plane, value in found:
            tile.store(code, plane, row, column, value)
        return []

    def _write_out(self, sums: Sequence[_Sum], first: Ref, count: Ref) -> None:
        """Stores sums of these rows."""
        for store, dot in self.parts.stores:
            for held in sums:
                if held.dot is dot:
                    self.write_out(store, dot, held.tile, held.row, first, count, held.column)
