"""The parts that forward and backward share: the program's place, loops, operands, and scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.dtype import float32

from ...kernel import Apply, Constant, Dot, Value
from ...kernel.attention import Roles, Span
from ...kernel.index import Axis
from ...kernel.matrix import head
from ...schedule import Schedule, head_block, points
from ..descriptors import parameter
from ..operands import half_type, operand, precision
from ..scope import Body, Guards, Ref, Scope, Tile
from ..text import Block, literal
from ..values import evaluate

LOG2E = math.log2(math.e)

Step = Callable[["Walk"], None]

ROWS = {"start": "row", "before": "row_before", "past": "row_past"}
"""The places of a walked block's rows, by the name of their beginning."""
STARTS = {"m": "first", **{rows: start for start, rows in ROWS.items()}}


@dataclass(frozen=True)
class Walk:
    """One loop along the walked side.

    scores: the scope of a tile of scores, the program's rows by the walked places. rows: the scope
        of operands with a row for each walked place. past: of those of the block before. hides:
        whether some scores of a tile may not count, because of a causal mask or because the walked
        side ends.
    """

    block: Block
    scores: Scope
    rows: Scope
    past: Scope
    hides: bool


class Writer:
    """The text of one attention kernel.

    own, walked: the axis that a program has a block of, and the axis that it walks along.
    root: the scope outside of loops, which has the tiles own, inner and outer.
    """

    def __init__(self, body: Body, block: Block, parts: Roles, schedule: Schedule):
        self.body, self.block, self.parts = body, block, parts
        if parts.walked is None:
            raise NotImplementedError(f"{body.kernel.name}: sums over queries and over keys")
        self.by_key = parts.walked is parts.query
        self.own, self.walked = parts.query, parts.key
        if self.by_key:
            self.own, self.walked = self.walked, self.own
        self.own_block, self.walked_block = schedule.block_m, schedule.block_n
        self.constexprs = {"BLOCK_M": self.own_block, "BLOCK_N": self.walked_block}
        self.extents = {
            axis: body.sizes.extent(name, axis.extent)
            for axis, name in ((self.own, "m"), (self.walked, "n"))
        }
        self.programs = -(-self.own.extent // self.own_block) * points(parts.batch)
        self.root = Scope(body, block, self._place())
        self.exact = self.walked.extent % self.walked_block == 0
        self.span = parts.span if parts.span and parts.span.along is self.walked else None
        # Copies of whole tiles would read another head's rows behind the last one of this.
        self.descriptors = (
            schedule.descriptors
            and parts.products.input_dtype.itemsize == 2
            and self.exact
            and self.own.extent % self.own_block == 0
            and self.span is None
            and not body.is_wide
        )
        self.specialized = schedule.specialized and self.descriptors
        # One loop follows the other: the blocks of a span may be none.
        self.ahead = schedule.ahead and self.span is None and not self.specialized
        body.fold = _done
        self._operands: dict[tuple[int, Scope], str] = {}
        self._matrices: dict[tuple[int, Axis], str] = {}
        self.dtype = parts.products.input_dtype
        # One fused operation scales a score, by the last factor before masks, and subtracts the
        # row's shift. The largest score stays the largest, as the unit is positive.
        _, self.factor = factored(parts.products.a)
        self.hidden, self.unit = parts.capped, LOG2E
        if _selects(parts.scores, parts.capped):
            uncapped, cap = factored(parts.capped)
            if parts.capped is not parts.products and cap > 0:
                self.hidden, self.unit = uncapped, cap * LOG2E
            elif parts.capped is parts.products and self.factor > 0:
                self.factor, self.unit = 1.0, self.factor * LOG2E

    def _place(self) -> list[Tile]:
        """The tiles of the program's batch and block of rows."""
        add, batches = self.block.add, self.parts.batch
        add(f"tiles = ({self.extents[self.own]} + BLOCK_M - 1) // BLOCK_M")
        if batches:
            add("batch = pid // tiles")
        tile = "pid % tiles" if batches else "pid"
        if self.parts.causal is not None and not self.by_key:
            tile = f"tiles - 1 - {tile}"  # the longest first, so that no long one runs last
        add(f"first = ({tile}) * BLOCK_M" if " " in tile else f"first = {tile} * BLOCK_M")
        add("m = first + tl.arange(0, BLOCK_M)[:, None]")
        tiles = [
            self._tile("m", self.own, 0, "BLOCK_M", self.own_block),
            self._width("e", self.parts.inner),
            self._width("c", self.parts.outer),
        ]
        if batches:
            tiles.append(Tile("batch", batches, None, "1", None))
        return tiles

    def _width(self, name: str, axis: Axis) -> Tile:
        """The tile of all elements of a head."""
        block = f"BLOCK_{name.upper()}"
        self.constexprs[block] = head_block(axis)
        self.extents[axis] = self.body.sizes.extent(name, axis.extent)
        self.block.add(f"{name} = tl.arange(0, {block})[None, :]")
        return self._tile(name, axis, 1, block, head_block(axis))

    def _tile(self, name: str, axis: Axis, place: int, block: str, length: int) -> Tile:
        """A tile whose variable is written, and the mask of its end if it has one."""
        ok = None
        if axis.extent % length:
            ok = f"{name}_ok"
            self.block.add(f"{ok} = {name} < {self.extents[axis]}")
        return Tile(name, (axis,), place, block, ok)

    # -- loops

    def walk(self, step: Step) -> None:
        """Writes `step` for all blocks of the walked side. It is written twice if some scores may
        not count: blocks in which all count have a loop of their own. Where copies have warps of
        their own there is a single loop: in a second one they would begin anew."""
        count = self.extents[self.walked]
        causal = self.parts.causal is not None
        if causal and self.specialized:
            first = "first // BLOCK_N * BLOCK_N" if self.by_key else "0"
            last = count if self.by_key else f"tl.minimum(first + BLOCK_M, {count})"
            self._loop(first, last, True, step)
        elif self.span is not None:
            self._walk_span(self.span, step)
        elif self.by_key:
            if not causal:
                self._loop("0", count, False, step)
                return
            # A query sees keys up to its own place, so the first blocks see only some of ours.
            self.block.add("least = first // BLOCK_N * BLOCK_N")
            self.block.add("whole = (first + BLOCK_M + BLOCK_N - 2) // BLOCK_N * BLOCK_N")
            self._loop("least", f"tl.minimum(whole, {count})", True, step)
            self._loop("whole", count, False, step)
        elif causal:
            self.block.add(f"whole = tl.minimum(first + 1, {count}) // BLOCK_N * BLOCK_N")
            self._loop("0", "whole", False, step)
            self._loop("whole", f"tl.minimum(first + BLOCK_M, {count})", True, step)
        elif self.exact:
            self._loop("0", count, False, step)
        else:
            self.block.add(f"whole = {count} // BLOCK_N * BLOCK_N")
            self._loop("0", "whole", False, step)
            self._loop("whole", count, True, step)

    def walk_ahead(self, begin: Step, step: Step) -> Scope:
        """Writes `begin` for one block of the walked side, and `step` for each other one, which may
        use the block before. Returns the scope of the last block's operands.

        The end of the walked side comes first, as it may hide scores. Mostly no other block does.
        """
        add, count = self.block.add, self.extents[self.walked]
        causal = self.parts.causal is not None
        add(f"stop = tl.minimum(first + BLOCK_M, {count})" if causal else f"stop = {count}")
        add("end = (stop - 1) // BLOCK_N * BLOCK_N")
        self._loop("end", "stop", causal or not self.exact, begin, "num_stages=1")
        add("past = end")
        ranges = [("0", "end", False)]
        if causal and self.own_block > self.walked_block:
            add("whole = tl.minimum((first + 1) // BLOCK_N * BLOCK_N, end)")
            ranges = [("whole", "end", True), ("0", "whole", False)]
        for start, stop, hides in ranges:
            before = f"tl.where(start == {start}, past, start - BLOCK_N)"
            self._loop(start, stop, hides, step, before=before)
            self.block.add(f"past = tl.where({start} < {stop}, {stop} - BLOCK_N, past)")
        return self._rows(self.block, "past", not self.exact)

    def _walk_span(self, span: Span, step: Step) -> None:
        """Walks along the least range that contains the spans of this block's rows: first where
        some rows see nothing, then where all rows see, then again where some see nothing."""
        add, tiles = self.block.add, self.root.tile_names([self.own])
        kind, ok = self.body.sizes.tl_type, self.root.ok(tiles)
        for name, value in (("first", span.first), ("stop", span.stop)):
            text = self.root.spread(evaluate(self.root, value), tiles, "tl.int64")
            add(f"meets_{name} = {text}.to({kind})")
        for name, text, fold, beyond in (
            ("least", "meets_first", "min", self.extents[self.walked]),
            ("last", "meets_first", "max", "0"),
            ("low", "meets_stop", "min", self.extents[self.walked]),
            ("most", "meets_stop", "max", "0"),
        ):
            text = f"tl.where({ok[0]}, {text}, {beyond})" if ok else text
            add(f"{name} = tl.{fold}({text})")
        add("begin = least + tl.maximum(last - least + BLOCK_N - 1, 0) // BLOCK_N * BLOCK_N")
        add("end = begin + tl.maximum(low - begin, 0) // BLOCK_N * BLOCK_N")
        self._loop("least", "tl.minimum(begin, most)", True, step)
        self._loop("begin", "end", False, step)
        self._loop("end", "most", True, step)

    def _loop(
        self, start: str, stop: str, hides: bool, step: Step, how: str = "", before: str = ""
    ) -> None:
        """Writes `step` for the blocks from `start` on. how: arguments of the loop's range."""
        loop = Block()
        saved, self.block = self.block, loop
        self._operands = {k: v for k, v in self._operands.items() if k[1] is self.root}
        if self.span is not None:
            ends = hides  # blocks of a span begin anywhere
        else:
            ends = not self.exact and (hides or self.by_key)
        scores = self._scope(loop, "n", "start", 1, ends)
        rows = past = self._rows(loop, "start", ends)
        if before:
            loop.add(f"before = {before}")
            past = self._rows(loop, "before", not self.exact)
        step(Walk(loop, scores, rows, past, hides))
        self.block = saved
        if self.specialized:
            how = "warp_specialize=True"
        walk = f"range({start}, {stop}, BLOCK_N)"
        if how:
            walk = f"tl.{walk[:-1]}, {how})"
        self.block.loop(f"for start in {walk}", loop)

    def _rows(self, block: Block, start: str, ends: bool) -> Scope:
        """The scope of operands with a row for each place of the block from `start` on."""
        return self._scope(block, ROWS[start], start, 0, ends)

    def _scope(self, block: Block, name: str, start: str, place: int, ends: bool) -> Scope:
        """A scope of the walked block from `start` on, which lies along dimension `place`. ends:
        whether the walked side may end within the block."""
        index = "[None, :]" if place else "[:, None]"
        block.add(f"{name} = {start} + tl.arange(0, BLOCK_N){index}")
        ok = f"{name}_ok" if ends else None
        if ok:
            block.add(f"{ok} = {name} < {self.extents[self.walked]}")
        tile = Tile(name, (self.walked,), place, "BLOCK_N", ok)
        return Scope(self.body, block, [tile], self.root)

    # -- values

    def operand(self, scope: Scope, value: Value, side: Axis, width: Axis, stem: str) -> str:
        """A tile of an operand, rows along `side` by a head's elements along `width`."""
        value, _ = factored(value)
        scope = self.root if side is self.own else scope
        key = id(value), scope
        if key not in self._operands:
            copied = self._copy(scope, value, side, width, stem) if self.descriptors else None
            if copied is not None:
                self._operands[key] = copied
                return copied
            name = scope.tile_names([side, width])
            padded = [scope.tiles[n] for n in sorted(name)]
            self._operands[key] = operand(scope, value, name, stem, padded, self.dtype)
        return self._operands[key]

    def _copy(self, scope: Scope, value: Value, side: Axis, width: Axis, stem: str) -> str | None:
        """The tile of an operand, copied through a tensor descriptor; None if it is no matrix, or
        not in the type that it is multiplied in."""
        found = head(value, side, width)
        if (
            found is None
            or found.buffer.dtype is not self.dtype
            or head_block(width) != width.extent
        ):
            return None
        key, rows = (id(value), side), self.own_block if side is self.own else self.walked_block
        if key not in self._matrices:
            about = (found.rows, found.stride), (found.stride, 1), (rows, width.extent)
            self._matrices[key] = parameter(self.body, found.buffer, *about)
        row, column = (self.root.index(i).text for i in (found.row, found.column))
        (rows_of,) = scope.tile_names([side])
        start = STARTS[rows_of]
        row = start if row == "0" else f"{row} + {start}"
        tiles = scope.tile_names([side, width])
        return scope.assign(stem, f"{self._matrices[key]}.load([{row}, {column}])", tiles).text

    def products(self, walk: Walk, dot: Dot, width: Axis) -> str:
        """The tile of a contraction of a query's element with a key's, without its factor."""
        query = self.operand(walk.rows, dot.a, self.parts.query, width, "q")
        key = self.operand(walk.rows, dot.b, self.parts.key, width, "k")
        own, other = (key, query) if self.by_key else (query, key)
        return f"tl.dot({own}, tl.trans({other}){precision(dot, self.body.tf32)})"

    def scores(self, walk: Walk) -> Ref:
        """The masked scores, of which `unit` is log(2), for which the hardware has an exponential.

        A mask hides what is not scaled yet (`hidden`), so that a factor takes no instruction of its
        own. A gradient's causal mask hides no scores but `weights`.
        """
        parts, scope = self.parts, walk.scores
        tiles = scope.tile_names([self.own, self.walked])
        text = f"{self.products(walk, parts.products, parts.inner)}{times(self.factor)}"
        scope.cache[id(parts.products), ()] = scope.assign("s", text, tiles)
        scores = scope.cache[id(parts.capped), ()] = evaluate(scope, self.hidden)
        if parts.causal is not None:
            if walk.hides and parts.total is not None:
                text = f'tl.where(m >= n, {scores.text}, -float("inf"))'
                scores = scope.assign("s", text, tiles)
            scope.cache[id(parts.causal), ()] = scores
        if self.span is not None:
            if walk.hides:
                seen = "(n >= meets_first) & (n < meets_stop)"
                text = f'tl.where({seen}, {scores.text}, -float("inf"))'
                scores = scope.assign("s", text, tiles)
            scope.cache[id(self.span.value), ()] = scores
        scores = evaluate(scope, parts.scores)
        if walk.hides and not self.exact and not self.by_key and self.span is None:
            # Hides places beyond the last key. Beyond the last query operands are zeros.
            text = f'tl.where(n_ok, {scores.text}, -float("inf"))'
            scores = scope.assign("s", text, tiles)
        return scores

    def weights(self, walk: Walk, scores: Ref, shift: str) -> Ref:
        """exp(scores - shift), where the shift is in units of log(2)."""
        text = f"tl.exp2({scores.text}{times(self.unit)} - {shift})"
        weights = walk.scores.assign("p", text, scores.tiles)
        if self.parts.causal is None or self.parts.total is not None or not walk.hides:
            return weights
        # A gradient hides weights: compilers move a choice of scores behind the fused operation,
        # which then is none.
        test = "n >= m" if self.by_key else "m >= n"
        return walk.scores.assign("p", f"tl.where({test}, {weights.text}, 0)", scores.tiles)

    def weighted(self, walk: Walk, value: Value) -> str:
        """A tile made of scores as the left operand of a contraction."""
        ref = evaluate(walk.scores, value)
        half = half_type(self.dtype)
        return f"{ref.text}.to({half})" if half else ref.text

    def add_product(
        self, rows: Scope, left: str, acc: str, dot: Dot, width: Axis, stem: str
    ) -> None:
        """acc += left @ the right operand of `dot`, a contraction over the walked block `rows`."""
        right = self.operand(rows, dot.b, self.walked, width, stem)
        rows.block.add(f"{acc} = tl.dot({left}, {right}, {acc}{precision(dot, self.body.tf32)})")

    def zeros(self, stem: str, width: Axis) -> str:
        """A new accumulator, the program's rows by `width`."""
        tiles = self.root.tile_names([self.own, width])
        shape = self.root.shape(tiles)
        return self.root.assign(stem, f"tl.full({shape}, 0, tl.float32)", tiles).text

    def result(self, dot: Dot, text: str, width: Axis) -> None:
        """Makes `text` the value of a contraction where it is stored."""
        _, factor = factored(dot.b)
        text += times(factor)
        tiles = self.root.tile_names([self.own, width])
        self.root.cache[id(dot), ()] = self.root.assign("out", text, tiles)


def _done(scope: Scope, value: Value, guards: Guards) -> Ref:
    name = scope.body.kernel.name
    raise NotImplementedError(f"{name}: a {type(value).__name__} that attention is not made of")


def number(value: float) -> str:
    return literal(value, float32)


def times(factor: float) -> str:
    """The end of a product with `factor`."""
    return "" if factor == 1 else f" * {number(factor)}"


def factored(value: Value) -> tuple[Value, float]:
    """`value` as something times a number; exact except in a contraction's half type."""
    if isinstance(value, Apply) and value.op is ops.mul and isinstance(value.args[1], Constant):
        inner, factor = factored(value.args[0])
        return inner, factor * float(value.args[1].value)
    return value, 1.0


def _selects(scores: Value, capped: Value) -> bool:
    """Whether the scores are what masks hide or -inf."""
    while isinstance(scores, Apply) and scores.op is ops.where:
        other = scores.args[2]
        if not (isinstance(other, Constant) and other.value == -math.inf):
            return False
        scores = scores.args[1]
    return scores is capped
