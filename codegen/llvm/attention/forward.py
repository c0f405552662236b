"""Attention forward: a chunk is a block of queries, which meets one block of keys after another.

It keeps the running maximum and sum of its rows (Milakov and Gimelshein, arXiv 1805.02867).
"""

from __future__ import annotations

import math

from .. import memory, tile
from ..code import zero
from ..math.expression import call
from ..tile import columns_of, rows_of
from ..types import Ref, constant
from ..values import evaluate
from .writer import Writer

MAXIMUM, SUM, FACTOR = range(3)
"""The rows of a tile that holds the state of each query."""


class Forward(Writer):
    def write(self) -> int:
        code, parts = self.code, self.parts
        rows = self.body.extent(parts.query)
        blocks = -(-parts.query.extent // self.queries)
        pieces = self.body.size(blocks, "pieces", baked=False)
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
        if parts.span is not None:
            first, stop = self.met(parts.span, parts.query, self.first, self.taken)
        if parts.causal is None:
            self._blocks(first, stop, hides=False)
        else:
            seen = self.least(stop, self.first)
            self._blocks(first, seen, hides=False)
            some = self.least(stop, self.add(self.first, self.taken))
            self._blocks(seen, some, hides=True)
        self._end()
        return blocks * math.prod(a.extent for a in parts.batch)

    def _row(self, which: int, column: Ref) -> Ref:
        return tile.load(self.code, self.state, self.number(which), column)

    def _set_row(self, which: int, column: Ref, value: Ref) -> None:
        tile.store(self.code, self.state, self.number(which), column, value)

    def _factor(self, row: Ref) -> Ref:
        """The factor for all that a query's row has summed so far."""
        place = tile.at(self.code, self.state, self.number(FACTOR), row)
        return self.code.let(f"load {self.kind}, ptr {place.text}", self.kind)

    def _begin(self) -> None:
        if self.sum is not None:
            tile.clear(self.code, self.out, self.number(self.queries))
        with self.lanes_along(self.parts.query, self.first, self.queries) as column:
            self._set_row(MAXIMUM, column, constant(-math.inf, self.kind))
            self._set_row(SUM, column, constant(0, self.kind))

    def _blocks(self, first: Ref, stop: Ref, hides: bool) -> None:
        """All blocks of keys from `first` to `stop`. hides: whether the causal mask applies."""
        parts, code = self.parts, self.code
        loop = self.open_blocks(parts.key, first, stop, self.keys)
        start = loop.variable
        count = self.count(start, self.keys, stop)
        self.fill(self.k, parts.products.b, parts.key, start, count, parts.inner)
        depth = self.body.extent(parts.inner)
        self.multiply(self.scores, rows_of(self.k), self.q, count, depth, self.taken, fresh=True)
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
        """Turns scores into weights relative to the maximum so far, for one register of queries."""
        code, parts = self.code, self.parts

        def mask(row: Ref, held: list[Ref]) -> list[Ref]:
            given = tile.load(code, self.scores, row, column)
            with self.known((parts.products, given)):
                score = self.score(hides)
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
