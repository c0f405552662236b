"""Attention by tiles: scores exist for a block of queries and a block of keys at a time.

A tile of scores has a row for each key and its lanes run along the queries (s^T = k q^T), so the
softmax is arithmetic between registers, and the tile is at once the transposed left operand of the
product with the values. Operands are first written to scratch tiles, rows of float32 or float64
padded with zeros; whatever expression, layout or dtype they are read from, the products are alike.

Forward, a chunk is a block of queries. It keeps the running maximum and sum of its rows (Milakov
and Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135). Backward, a chunk is one point of
the batch. Key blocks that a causal mask hides are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..attention import Roles
from ..index import Axis
from ..kernel import Dot, Kernel, Store, Value
from . import memory, tile
from .body import Body
from .code import Loop, zero
from .form import Form
from .machine import CannotLower, Machine
from .math.expression import call
from .stages import bind_vector
from .tile import Tile, columns_of, rows_of
from .types import Ref, computed, constant
from .values import evaluate

QUERIES, KEYS = 64, 128
"""The most rows and columns of a tile of scores: 32 KB."""


def form_of(kernel: Kernel, parts: Roles, machine: Machine) -> Form:
    lanes = machine.vector_bytes // parts.products.dtype.itemsize
    block = min(QUERIES, -(-parts.query.extent // lanes) * lanes)
    return Form(parts.query, lanes, parts.batch, 1, block, peeled=False)


def write(body: Body, parts: Roles) -> None:
    (_Forward if parts.total is not None else _Gradient)(body, parts).write()


class _Writer:
    """What both directions share."""

    def __init__(self, body: Body, parts: Roles):
        self.body, self.code, self.parts = body, body.code, parts
        self.kind = computed(parts.products.dtype)
        self.lanes = body.lanes
        self.queries = body.form.block
        self.keys = min(KEYS, -(-parts.key.extent // 8) * 8)
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

    def count(self, first: Ref, block: int, stop: Ref) -> Ref:
        """How many positions a block has that begins at `first`."""
        return self.least(self.code.binary("sub", stop, first), self.number(block))

    def batch_point(self, point: Ref) -> None:
        """The batch axes at a point of them."""
        for axis in reversed(self.parts.batch):
            extent = self.body.extent(axis)
            self.body.bind(axis, self.code.binary("urem", point, extent))
            point = self.code.binary("udiv", point, extent)

    @contextmanager
    def along(self, axis: Axis, first: Ref, count: Ref) -> Iterator[Ref]:
        """A loop over positions of an axis from `first` on; yields how far it is."""
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
        """What values are, for the expressions that they occur in."""
        folded = self.body.folded
        added = {id(value): ref for value, ref in pairs if value is not None}
        folded |= added
        yield
        for key in added:
            del folded[key]

    def here(self, value: Value) -> Ref:
        """A value in lanes."""
        return self.code.spread(evaluate(self.body, value), self.lanes)

    def weight(self, score: Ref, shift: Ref) -> Ref:
        """exp(score - shift), for a shift that no score exceeds by much."""
        return call(self.code, "exp_flushed", [self.code.binary("fsub", score, shift)])

    def fill(self, out: Tile, value: Value, row: Axis, first: Ref, count: Ref, column: Axis) -> None:
        """An operand's elements at `count` rows and all columns, zero beyond the last column."""
        with self.along(row, first, count) as r, self.lanes_along(
            column, self.number(0), out.stride
        ) as c:
            found = self.here(value)
            if column.extent % self.lanes:
                exists = self.body.lane_mask(self.code.level)
                found = self.code.select(exists, found, zero(self.kind, self.lanes))
            tile.store(self.code, out, r, c, found)

    def write_out(
        self, store: Store, of: Dot, held: Tile, row: Axis, first: Ref, count: Ref, column: Axis,
        scale: Callable[[Ref, Ref], Ref] = lambda value, row: value,
    ) -> None:  # fmt: skip
        """A store's elements at `count` rows and all columns, from its sums in a tile."""
        with self.along(row, first, count) as r, self.lanes_along(
            column, self.number(0), held.stride
        ) as c:
            value = scale(tile.load(self.code, held, r, c), r)
            with self.known((of, value)):
                memory.store(self.body, [(store, evaluate(self.body, store.value))])

    def fold_keys(
        self, first: Ref, count: Ref, start: Sequence[Ref],
        step: Callable[[Ref, list[Ref]], list[Ref]],
    ) -> list[Ref]:  # fmt: skip
        """A loop over keys that carries values along: step(how far it is, held) -> held."""
        key = self.parts.key
        loop = self.code.open_loop(self.number(0), count, 1, start, stem=key.name)
        self.body.bind(key, self.add(first, loop.variable))
        held = step(loop.variable, [phi for phi, _ in loop.carried])
        del self.body.axes[key]
        return self.code.close_loop(loop, held)

    def multiply(
        self, out: Tile, a: tile.Factor, b: Tile, rows: Ref, inner: Ref, fresh: bool = False
    ) -> None:
        tile.multiply(self.code, self.body.machine, out, a, b, rows, inner, fresh)

    def open_blocks(self, axis: Axis, first: Ref, stop: Ref, block: int) -> Loop:
        return self.code.open_loop(first, stop, block, stem=f"{axis.name}_block")


MAXIMUM, SUM, FACTOR = range(3)
"""The rows of a tile of what is known of each query."""


class _Forward(_Writer):
    def write(self) -> None:
        code, parts = self.code, self.parts
        rows = self.body.extent(parts.query)
        pieces = self.body.size(-(-parts.query.extent // self.queries), "pieces", baked=False)
        chunk = Ref("%chunk", "i64")
        self.batch_point(code.binary("udiv", chunk, pieces))
        piece = code.binary("urem", chunk, pieces)
        self.first = code.binary("mul", piece, self.number(self.queries))
        self.taken = self.count(self.first, self.queries, rows)
        self.sum = next((d for _, d in parts.stores if d is not None), None)
        q = self.tile(self.queries, self.inner)
        self.q = self.tile(self.inner, self.queries)
        self.k = self.tile(self.keys, self.inner)
        self.v = self.tile(self.keys, self.outer)
        self.scores = self.tile(self.keys, self.queries)
        self.out = self.tile(self.queries, self.outer)
        self.state = self.tile(3, self.queries)
        self.fill(q, parts.products.a, parts.query, self.first, self.taken, parts.inner)
        tile.transpose(code, self.q, q)
        self._begin()
        first, stop = self.number(0), self.body.extent(parts.key)
        if parts.causal is None:
            self._blocks(first, stop, hides=False)
        else:
            seen = self.least(stop, self.first)
            self._blocks(first, seen, hides=False)
            some = self.least(stop, self.add(self.first, self.taken))
            self._blocks(seen, some, hides=True)
        self._end()

    def _row(self, which: int, column: Ref) -> Ref:
        return tile.load(self.code, self.state, self.number(which), column)

    def _set_row(self, which: int, column: Ref, value: Ref) -> None:
        tile.store(self.code, self.state, self.number(which), column, value)

    def _factor(self, row: Ref) -> Ref:
        """What a query's row is to be multiplied by."""
        place = tile.at(self.code, self.state, self.number(FACTOR), row)
        return self.code.let(f"load {self.kind}, ptr {place.text}", self.kind)

    def _begin(self) -> None:
        if self.sum is not None:
            tile.clear(self.code, self.out, self.number(self.queries))
        with self.lanes_along(self.parts.query, self.first, self.queries) as column:
            self._set_row(MAXIMUM, column, constant(-math.inf, self.kind))
            self._set_row(SUM, column, constant(0, self.kind))

    def _blocks(self, first: Ref, stop: Ref, hides: bool) -> None:
        """All blocks of keys from `first` to `stop`. hides: whether the causal mask is needed."""
        parts, code = self.parts, self.code
        loop = self.open_blocks(parts.key, first, stop, self.keys)
        start = loop.variable
        count = self.count(start, self.keys, stop)
        self.fill(self.k, parts.products.b, parts.key, start, count, parts.inner)
        depth = self.body.extent(parts.inner)
        self.multiply(self.scores, rows_of(self.k), self.q, count, depth, fresh=True)
        with self.lanes_along(parts.query, self.first, self.taken) as column:
            self._softmax(column, start, count, hides)
        if self.sum is not None:
            self.fill(self.v, self.sum.b, parts.key, start, count, parts.outer)
            row = code.open_loop(self.number(0), self.taken, stem="row")
            factor = code.spread(self._factor(row.variable), self.lanes)
            for at in range(0, self.outer, self.lanes):
                held = tile.load(code, self.out, row.variable, self.number(at))
                scaled = code.binary("fmul", held, factor)
                tile.store(code, self.out, row.variable, self.number(at), scaled)
            code.close_loop(row)
            self.multiply(self.out, columns_of(self.scores), self.v, self.taken, count)
        code.close_loop(loop)

    def _softmax(self, column: Ref, start: Ref, count: Ref, hides: bool) -> None:
        """Scores to weights relative to the maximum so far, for a register's worth of queries."""
        code, parts = self.code, self.parts

        def mask(row: Ref, held: list[Ref]) -> list[Ref]:
            given = tile.load(code, self.scores, row, column)
            unmasked = None if hides else parts.causal
            with self.known((parts.products, given), (unmasked, given)):
                score = self.here(parts.scores)
            if score is not given:
                tile.store(code, self.scores, row, column, score)
            return [code.select(code.compare("fcmp ogt", score, held[0]), score, held[0])]

        old = self._row(MAXIMUM, column)
        (top,) = self.fold_keys(start, count, [old], mask)
        # A query that has seen nothing: exp(-inf - 0) is 0.
        nothing = constant(-math.inf, self.kind, self.lanes)
        none = code.compare("fcmp oeq", top, nothing)
        shift = code.select(none, zero(self.kind, self.lanes), top)
        factor = self.weight(old, shift)

        def weigh(row: Ref, held: list[Ref]) -> list[Ref]:
            score = tile.load(code, self.scores, row, column)
            weight = self.weight(score, shift)
            if self.sum is not None:
                with self.known((parts.weights, weight)):
                    tile.store(code, self.scores, row, column, self.here(self.sum.a))
            return [code.binary("fadd", held[0], weight)]

        (total,) = self.fold_keys(start, count, [zero(self.kind, self.lanes)], weigh)
        kept = code.binary("fmul", self._row(SUM, column), factor)
        self._set_row(SUM, column, code.binary("fadd", kept, total))
        self._set_row(MAXIMUM, column, top)
        self._set_row(FACTOR, column, factor)

    def _end(self) -> None:
        code, parts = self.code, self.parts
        one = constant(1, self.kind, self.lanes)
        with self.lanes_along(parts.query, self.first, self.taken) as column:
            total = self._row(SUM, column)
            empty = code.compare("fcmp oeq", total, zero(self.kind, self.lanes))
            self._set_row(FACTOR, column, code.binary("fdiv", one, code.select(empty, one, total)))
            found = code.binary("fadd", self._row(MAXIMUM, column), call(code, "log", [total]))
            with self.known((parts.total, found)):
                values = [
                    (s, evaluate(self.body, s.value)) for s, dot in parts.stores if dot is None
                ]
            if values:
                memory.store(self.body, values)

        def normalized(value: Ref, row: Ref) -> Ref:
            return code.binary("fmul", value, code.spread(self._factor(row), self.lanes))

        for store, dot in parts.stores:
            if dot is not None:
                self.write_out(
                    store, dot, self.out, parts.query, self.first, self.taken, parts.outer,
                    normalized,
                )  # fmt: skip


@dataclass(frozen=True)
class _Held:
    """An operand, or a sum on its way, in a tile: its value at positions of two axes."""

    value: Value
    tile: Tile
    row: Axis
    column: Axis


class _Gradient(_Writer):
    def write(self) -> None:
        parts = self.parts
        self.batch_point(Ref("%chunk", "i64"))
        self.operands: dict[int, _Held] = {}
        self.firsts = [d for d in (parts.products, parts.back) if d is not None]
        for dot in self.firsts:
            self._operand(dot.a, parts.query, dot.over[0])
            self._operand(dot.b, parts.key, dot.over[0])
        self.turned = [self.tile(self.operands[id(d.a)].tile.stride, self.queries) for d in self.firsts]
        sums = list(dict.fromkeys(d for _, d in parts.stores if d is not None))
        self.sums = [self._sum(dot) for dot in sums]
        # A plane holds a product of two operands, then in its place what the sums take from it.
        self.factors = list({id(d.a): d.a for d in sums}.values())
        count = max(len(self.firsts), len(self.factors))
        self.planes = [self.tile(self.keys, self.queries) for _ in range(count)]
        every = self.body.extent(parts.query)
        self._key_blocks(every)
        self._write(parts.query, self.number(0), every)

    def _operand(self, value: Value, row: Axis, column: Axis) -> None:
        if id(value) not in self.operands:
            rows = self.keys if row is self.parts.key else self.queries
            held = self.tile(rows, self._width(column))
            self.operands[id(value)] = _Held(value, held, row, column)

    def _width(self, column: Axis) -> int:
        return self.inner if column is self.parts.inner else self.outer

    def _sum(self, dot: Dot) -> _Held:
        """Sums over keys are kept of all queries, those over queries of a block of keys."""
        parts = self.parts
        column = parts.inner if parts.inner in dot.b.axes() else parts.outer
        over = dot.over[0]
        self._operand(dot.b, over, column)
        if over is parts.query:
            return _Held(dot, self.tile(self.keys, self._width(column)), parts.key, column)
        blocks = -(-parts.query.extent // self.queries)
        rows = self.body.size(blocks * self.queries, "padded queries", baked=False)
        held = self.tile(rows, self._width(column))
        tile.clear(self.code, held, rows)
        return _Held(dot, held, parts.query, column)

    def _fill(self, row: Axis, first: Ref, count: Ref) -> None:
        for each in self.operands.values():
            if each.row is row:
                self.fill(each.tile, each.value, row, first, count, each.column)

    def _write(self, row: Axis, first: Ref, count: Ref) -> None:
        """Stores the sums of these rows."""
        for store, dot in self.parts.stores:
            held = next(s for s in self.sums if s.value is dot)
            if held.row is row:
                self.write_out(store, dot, held.tile, row, first, count, held.column)

    def _key_blocks(self, every: Ref) -> None:
        parts, code = self.parts, self.code
        stop = self.body.extent(parts.key)
        loop = self.open_blocks(parts.key, self.number(0), stop, self.keys)
        first = loop.variable
        count = self.count(first, self.keys, stop)
        self._fill(parts.key, first, count)
        for held in self.sums:
            if held.row is parts.key:
                tile.clear(code, held.tile, self.number(self.keys))
        if parts.causal is None:
            self._query_blocks(first, count, self.number(0), every, hides=False)
        else:
            block = self.number(-self.queries)
            start = code.binary("and", first, block)
            last = self.add(self.add(first, count), self.number(self.queries - 2))
            seen = self.least(code.binary("and", last, block), every)
            self._query_blocks(first, count, start, seen, hides=True)
            self._query_blocks(first, count, self.most(start, seen), every, hides=False)
        self._write(parts.key, first, count)
        code.close_loop(loop)

    def _query_blocks(
        self, key: Ref, keys: Ref, start: Ref, stop: Ref, hides: bool
    ) -> None:
        """The blocks of queries from `start` to `stop` with a block of keys. hides: whether the
        causal mask is needed."""
        parts, code = self.parts, self.code
        loop = self.open_blocks(parts.query, start, stop, self.queries)
        first = loop.variable
        count = self.count(first, self.queries, self.body.extent(parts.query))
        if hides:  # Later keys than the last query are of no use. A product's steps stay whole.
            far = code.binary("sub", self.add(first, self.number(self.queries)), key)
            keys = self.most(self.number(0), self.least(keys, far))
        self._fill(parts.query, first, count)
        for dot, turned, plane in zip(self.firsts, self.turned, self.planes):
            tile.transpose(code, turned, self.operands[id(dot.a)].tile)
            depth = self.body.extent(dot.over[0])
            right = rows_of(self.operands[id(dot.b)].tile)
            self.multiply(plane, right, turned, keys, depth, fresh=True)
        with self.lanes_along(parts.query, first, count) as column:
            self.fold_keys(key, keys, [], lambda row, _: self._factors(row, column, hides))
        for held in self.sums:
            dot = held.value
            assert isinstance(dot, Dot)
            plane = self.planes[next(i for i, f in enumerate(self.factors) if f is dot.a)]
            right = self.operands[id(dot.b)].tile
            if held.row is parts.key:
                self.multiply(held.tile, rows_of(plane), right, keys, count)
            else:
                some = replace(held.tile, address=tile.at(code, held.tile, first, self.number(0)))
                self.multiply(some, columns_of(plane), right, count, keys)
        code.close_loop(loop)

    def _factors(self, row: Ref, column: Ref, hides: bool) -> list[Ref]:
        code, parts = self.code, self.parts
        given = [tile.load(code, plane, row, column) for _, plane in zip(self.firsts, self.planes)]
        pairs = list(zip(self.firsts, given))
        if not hides:
            pairs.append((parts.causal, given[0]))
        with self.known(*pairs):
            score, shift = (self.here(v) for v in parts.weights.operands()[0].operands())
            with self.known((parts.weights, self.weight(score, shift))):
                found = [self.here(factor) for factor in self.factors]
        for plane, value in zip(self.planes, found):
            tile.store(code, plane, row, column, value)
        return []
