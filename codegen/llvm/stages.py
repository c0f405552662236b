"""Loops along the reduction axes: one for each depth of reductions, stores as early as possible.

Softmax takes three: the maximum, then the sum of exponentials, then the stores. A value that is
dear to compute, and needed again by a later loop, is kept in scratch memory if a row of it fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.ir.op import Fold

from ..kernel import Apply, Dot, Load, RandomBits, Reduce, Scan, Store, Value, data_values
from ..kernel.index import Axis, linearize, of
from . import folds, memory
from .body import Body, Vector
from .convert import cast
from .form import HEAVY
from .positions import position
from .types import Ref, computed, constant
from .updates import update
from .values import evaluate, load_ahead, operands

SCRATCH = 1 << 17  # the most bytes of a row that a chunk keeps
BLOCK = 4096  # elements of a row that are summed before their sum is added to another
COLUMN_BLOCK = 256
FAR = {"i32": 1 << 30, "i64": 1 << 62}
"""A position beyond all elements, by type."""


@dataclass
class Stage:
    """The values of one pass over the reduction axes.

    fetches: whether it prefetches the memory of the next row. A pass that finds its row in the
    cache keeps the processor from reading ahead by itself.
    """

    folds: list[Reduce | Dot]
    scans: list[Scan]
    stores: list[Store]
    keep: list[Value]
    fetches: bool = False

    def roots(self) -> list[Value]:
        out: list[Value] = []
        for fold in self.folds:
            out += fold.operands()
        for store in self.stores:
            out += [store.value, *data_values(store.offset)]
        return out


def stages_of(body: Body) -> list[Stage]:
    """The passes in order, without stores that run once a row."""
    kernel, analysis = body.kernel, body.analysis
    own = set(kernel.reduction)
    loops: dict[int, Stage] = {}

    def stage(depth: int) -> Stage:
        return loops.setdefault(depth, Stage([], [], [], []))

    for value in kernel.values:
        if isinstance(value, (Reduce, Dot)):
            stage(analysis.depth(value) - 1).folds.append(value)
    last = max((analysis.depth(v) for v in kernel.values), default=0)
    for store in kernel.stores:
        if is_full(body, store):
            depth = max(analysis.depth(store.value), analysis.index_depth(store.offset))
            stage(last if read_later(body, store) else depth).stores.append(store)
    ordered = [loops[d] for d in sorted(loops)]
    for each in ordered:
        each.scans = [v for v in _reached(each.roots(), set()) if isinstance(v, Scan)]
        each.scans.sort(key=kernel.values.index)
    if body.form.vector in own:
        _keep(body, ordered)
        if len(ordered) > 1:
            ordered[1].fetches = True
    return ordered


def is_full(body: Body, store: Store) -> bool:
    """Whether a store runs at every point of the reduction axes."""
    own = set(body.kernel.reduction)
    axes = body.analysis.axes(store.value) | body.analysis.index_axes(store.offset)
    return bool(own & axes) or (store.mode is not None and bool(own))


def read_later(body: Body, store: Store) -> bool:
    """Whether a later pass may read memory that the store overwrites: a donated buffer has the size
    and dtype of the buffer that is written to."""
    return any(
        isinstance(v, Load)
        and (v.buffer.size, v.buffer.dtype) == (store.buffer.size, store.buffer.dtype)
        for v in body.kernel.values
    )


def _reached(roots: Sequence[Value], stop: set[int]) -> list[Value]:
    """The values of one pass, except those that only guards need. Nothing below `stop`."""
    seen: dict[int, Value] = {}
    stack = list(roots)
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, (Reduce, Dot)):
            continue
        seen[id(value)] = value
        if id(value) not in stop:
            stack.extend(operands(value))
    return list(seen.values())


def _keep(body: Body, ordered: list[Stage]) -> None:
    """Chooses the values that later passes find in scratch memory."""
    own = {a for a in body.kernel.reduction if a.extent != 1}
    room = SCRATCH
    first: dict[int, tuple[Stage, Value]] = {}
    row = math.prod(a.extent for a in body.kernel.reduction)
    kept: set[int] = set()
    for each in ordered:
        stop = set(first)
        for value in _reached(each.roots(), stop):
            heavy = isinstance(value, RandomBits) or (
                isinstance(value, Apply) and value.op.cost >= HEAVY
            )
            if not heavy or not own <= body.analysis.axes(value):
                continue
            if id(value) in first:
                size = row * value.dtype.itemsize
                if id(value) not in kept and size <= room and value.dtype.itemsize >= 4:
                    room -= size
                    kept.add(id(value))
                    first[id(value)][0].keep.append(value)
            else:
                first[id(value)] = each, value


# Accumulators.


class Accumulator:
    """One fold while it is made: some values carried from step to step."""

    def __init__(self, body: Body, value: Reduce | Dot | Scan, lanes: int):
        self.body, self.value = body, value
        self.op = Fold.SUM if isinstance(value, Dot) else value.op
        self.picks = self.op.picks
        self.dtype = value.arg.dtype if self.picks else value.dtype  # type: ignore[union-attr]
        if self.op.is_idempotent and isinstance(value, Reduce):
            self.dtype = value.arg.dtype
        self.lanes = lanes
        if (
            self.op is Fold.PROD
            and self.dtype.is_floating_point
            and body.form.vector in body.kernel.reduction
        ):
            # One register, which takes the product of several at a time: what vanishes is subnormal
            # for few steps then, and some processors take 150 cycles for each of these.
            self.lanes = min(lanes, body.machine.vector_bytes // self.dtype.itemsize)
        # 32-bit positions take half the registers, if they suffice.
        axes = body.kernel.reduction
        self.place = "i32" if math.prod(a.extent for a in axes) < FAR["i32"] else "i64"
        # Lanes along an axis other than the last come back to lower positions.
        self.tie = body.form.vector in axes[:-1]
        # A scan whose lanes lie along its own axis carries one value.
        self.runs = isinstance(value, Scan) and body.form.vector is value.along
        self.running: Ref | None = None
        if self.runs:
            self.lanes = 1
        # The processor's own maximum drops NaNs, so they are gathered beside it.
        self.marks_nan = (
            self.op in (Fold.MAX, Fold.MIN) and self.dtype.is_floating_point and not self.runs
        )

    def start(self) -> list[Ref]:
        first = folds.start(self.op, self.dtype, self.lanes)
        if self.picks:
            return [first, self.nowhere(self.lanes)]
        return [first, constant(0, "i32", self.lanes)] if self.marks_nan else [first]

    def nowhere(self, lanes: int) -> Ref:
        """The position of no element, for when none was more than the start value."""
        return constant(FAR[self.place], self.place, lanes)

    def step(self, held: list[Ref]) -> list[Ref]:
        body, code = self.body, self.body.code
        if isinstance(self.value, Dot):
            new = self._product()
        else:
            new = self._element()
        new = code.spread(new, body.lanes)
        in_lanes = body.vector is not None and body.vector.axis in body.kernel.reduction
        if in_lanes:
            first = folds.start(self.op, self.dtype, new.lanes)
            (new,) = memory.existing(body, [(new, first)])
        if self.runs:
            return [self._run(held[0], new)]
        while new.lanes > self.lanes:
            new = folds.combine(body, self.op, self.dtype, *folds.halves(body, new))
        if self.marks_nan:
            return [folds.extremum(body, self.op, held[0], new), folds.mark(body, held[1], new)]
        if not self.picks:
            return [folds.combine(body, self.op, self.dtype, held[0], new)]
        # An element that doesn't exist is never more than the start value.
        place = code.spread(_flat(body, self.place), self.lanes)
        old = held[0], held[1]
        return list(folds.pick(body, self.op, self.dtype, old, (new, place), self.tie))

    def _run(self, held: Ref, new: Ref) -> Ref:
        """Fold lanes with those before them: the nearest one, then two more, four, …"""
        body, code, by = self.body, self.body.code, 1

        def before(lanes: Ref) -> Ref:
            return folds.combine(body, self.op, self.dtype, lanes, new)

        while by < new.lanes:
            new = before(code.moved(new, [i - by if i >= by else i for i in range(new.lanes)]))
            by *= 2
        self.running = before(code.splat(held, new.lanes))
        # Not of the running values: the next step waits for one combination.
        return folds.combine(body, self.op, self.dtype, held, code.extract(new, new.lanes - 1))

    def _element(self) -> Ref:
        assert isinstance(self.value, (Reduce, Scan))
        new = evaluate(self.body, self.value.arg)
        source = self.value.arg.dtype
        if source is self.dtype:
            return new
        return cast(self.body, new, source, self.dtype, self.body.code.level)

    def _product(self) -> Ref:
        assert isinstance(self.value, Dot)
        code = self.body.code
        a, b = (
            cast(self.body, evaluate(self.body, v), v.dtype, self.dtype, code.level)
            for v in (self.value.a, self.value.b)
        )
        return code.binary("fmul contract" if self.dtype.is_floating_point else "mul", a, b)

    def merge(self, old: list[Ref], new: list[Ref]) -> list[Ref]:
        if self.picks:
            return list(
                folds.pick(self.body, self.op, self.dtype, (old[0], old[1]), (new[0], new[1]), True)
            )
        if self.marks_nan:
            marks = self.body.code.binary("or", old[1], new[1])
            return [folds.extremum(self.body, self.op, old[0], new[0]), marks]
        return [folds.combine(self.body, self.op, self.dtype, old[0], new[0])]

    def finish(self, held: list[Ref], join: bool) -> Ref:
        """The result of the fold; of all lanes if they are to be joined."""
        if self.running is not None:
            return self.running
        if self.marks_nan:
            return folds.with_nan(self.body, self.op, self.dtype, held[0], held[1], join)
        if not join:
            return held[1] if self.picks else held[0]
        if self.picks:
            return folds.join_picks(self.body, self.op, self.dtype, (held[0], held[1]))[1]
        return folds.join_lanes(self.body, self.op, self.dtype, held[0])


# Loops.


@dataclass(frozen=True)
class _Turn:
    """A loop along an axis, over blocks of it, or along such a block."""

    axis: Axis
    step: int
    kind: str  # whole, blocks or block
    count: float  # how many steps it takes


def run(body: Body, stage: Stage) -> None:
    """Writes the loops of one stage; then its folds are known to `body`."""
    code, kernel = body.code, body.kernel
    rows = body.form.vector in kernel.reduction
    lanes = body.lanes
    accumulators = [Accumulator(body, f, lanes) for f in stage.folds]
    scans = [Accumulator(body, s, lanes) for s in stage.scans]
    turns = _turns(body, rows, blocked=bool(accumulators) and not scans)
    for value in stage.keep:
        _make_scratch(body, value)

    def innermost(held: list[list[Ref]]) -> list[list[Ref]]:
        load_ahead(body, [r for r in stage.roots()] + [s.value.arg for s in scans])  # type: ignore[union-attr]
        out = []
        for each, old in zip(scans, held[len(accumulators) :]):
            new = each.step(old)
            body.folded[id(each.value)] = each.finish(new, join=False)
            out.append(new)
        for value in stage.keep:
            _to_scratch(body, value)
        if stage.fetches:
            memory.fetch_next_row(body, [v for v in kernel.values if isinstance(v, Load)])
        values = [(s, evaluate(body, s.value)) for s in stage.stores]
        folded = [a.step(old) for a, old in zip(accumulators, held)]
        plain = [(s, v) for s, v in values if s.mode is None]
        if plain:
            memory.store(body, plain)
        for store, ref in values:
            if store.mode is not None:
                update(body, store, ref)
        return folded + out

    every = accumulators + scans
    result = _nest(body, turns, every, [a.start() for a in every], innermost)
    for each in scans:
        del body.folded[id(each.value)]
    for value in stage.keep:
        body.kept[id(value)] = lambda v: from_scratch(body, v)
    if rows:
        body.vector = None
    for accumulator, held in zip(accumulators, result):
        final = accumulator.finish(held, rows)
        if accumulator.picks:
            found = code.compare("icmp ne", final, accumulator.nowhere(final.lanes))
            final = code.select(found, final, constant(0, final.type, final.lanes))
            final = code.convert("sext", final, "i64")
        value = accumulator.value
        if computed(value.dtype) != final.type:
            final = cast(body, final, accumulator.dtype, value.dtype, code.level)
        body.folded[id(value)] = final


def _turns(body: Body, rows: bool, blocked: bool) -> list[_Turn]:
    axes = [a for a in body.kernel.reduction if a.extent != 1]
    along = body.form.vector
    if rows:
        axes = [a for a in axes if a is not along] + [a for a in axes if a is along]
    out: list[_Turn] = []
    for axis in axes:
        step = body.lanes if rows and axis is along else 1
        limit = BLOCK if step > 1 else COLUMN_BLOCK
        if blocked and axis is axes[-1] and axis.extent > 2 * limit:
            out.append(_Turn(axis, limit, "blocks", axis.extent / limit))
            out.append(_Turn(axis, step, "block", limit / step))
        else:
            out.append(_Turn(axis, step, "whole", axis.extent / step))
    return out


def _nest(
    body: Body,
    turns: list[_Turn],
    every: list[Accumulator],
    held: list[list[Ref]],
    innermost: Callable[[list[list[Ref]]], list[list[Ref]]],
    within: Ref | None = None,
) -> list[list[Ref]]:
    """The loops of `turns`, one inside the other. Takes the values `held` and returns their
    successors."""
    if not turns:
        return innermost(held)
    code = body.code
    turn = turns[0]
    extent = body.extent(turn.axis)
    first, stop = constant(0, "i64"), extent
    if turn.kind == "block":
        assert within is not None
        first = within
        end = code.binary("add", within, constant(inner_limit(turn), "i64"))
        stop = code.intrinsic("smin", [end, extent])
    if turn.kind == "blocks" or turn.step == 1 or not body.form.peeled:
        return _loop(body, turns, every, held, innermost, (first, stop), whole=False)
    middle = whole_end(body, first, stop)
    held = _loop(body, turns, every, held, innermost, (first, middle), whole=True)
    return _loop(body, turns, every, held, innermost, (middle, stop), whole=False)


def whole_end(body: Body, first: Ref, stop: Ref) -> Ref:
    """The position up to which all lanes of a step exist."""
    code = body.code
    count = code.binary("and", code.binary("sub", stop, first), constant(-body.lanes, "i64"))
    return code.binary("add", first, count)


def _loop(
    body: Body,
    turns: list[_Turn],
    every: list[Accumulator],
    held: list[list[Ref]],
    innermost: Callable[[list[list[Ref]]], list[list[Ref]]],
    bounds: tuple[Ref, Ref],
    whole: bool,
) -> list[list[Ref]]:
    code = body.code
    turn, *inner = turns
    flat = [r for refs in held for r in refs]
    loop = code.open_loop(*bounds, turn.step, flat, stem=turn.axis.name)
    phis = iter(p for p, _ in loop.carried)
    inside = [[next(phis) for _ in refs] for refs in held]
    if turn.kind != "blocks":
        body.bind(turn.axis, loop.variable)
        if turn.step > 1:
            bind_vector(body, turn.axis, loop.variable, bounds[1], whole)
    steps = math.prod(t.count for t in inner)
    fresh = inner and steps >= 32 and steps * turn.count > 1024
    fresh = fresh and not any(isinstance(a.value, Scan) for a in every)
    if fresh:
        found = _nest(body, inner, every, [a.start() for a in every], innermost, loop.variable)
        found = [a.merge(old, new) for a, old, new in zip(every, inside, found)]
    else:
        found = _nest(body, inner, every, inside, innermost, loop.variable)
    if turn.kind != "blocks":
        del body.axes[turn.axis]
    out = iter(code.close_loop(loop, [r for refs in found for r in refs]))
    return [[next(out) for _ in refs] for refs in held]


def inner_limit(turn: _Turn) -> int:
    return int(turn.count * turn.step)


def bind_vector(body: Body, axis: Axis, variable: Ref, stop: Ref, whole: bool) -> None:
    """Lanes run along `axis` from here on."""
    code, level, all_lanes = body.code, body.code.level, constant(body.lanes, "i64")
    if whole:
        full = constant(True, "i1")
        body.vector = Vector(axis, level, variable, all_lanes, full, body.lanes, whole=True)
        return
    count = code.binary("sub", stop, variable)
    full = code.compare("icmp sge", count, all_lanes)
    count = code.intrinsic("smin", [count, all_lanes])
    body.vector = Vector(axis, level, variable, count, full, body.lanes)


def _flat(body: Body, kind: str) -> Ref:
    """The row-major position among the reduction axes."""
    axes = body.kernel.reduction
    steps, step = [], 1
    for axis in reversed(axes):
        steps.append(step)
        step *= axis.extent
    index = linearize([of(a) for a in axes], steps[::-1])
    return position(body, index, None, kind)


# Scratch memory.


def _scratch_position(body: Body) -> Ref:
    """The place of a step's lanes: the vector axis innermost, padded to whole vectors."""
    code, lanes = body.code, body.lanes
    along = body.form.vector
    assert along is not None and body.vector is not None
    total = constant(0, "i64")
    for axis in body.kernel.reduction:
        if axis.extent != 1 and axis is not along:
            if total.text != "0":
                total = code.binary("mul", total, body.extent(axis))
            total = code.binary("add", total, body.axes[axis][1])
    if total.text != "0":
        total = code.binary("mul", total, _padded(body, lanes))
    return code.binary("add", total, body.vector.variable)


def _padded(body: Body, lanes: int) -> Ref:
    along = body.form.vector
    assert along is not None
    entry, code = body.entry, body.code

    def make() -> Ref:
        more = code.binary("add", body.extent(along), constant(lanes - 1, "i64"), entry)
        return code.binary("and", more, constant(-lanes, "i64"), entry)

    return code.once("padded", entry, make)


def _make_scratch(body: Body, value: Value) -> None:
    code, entry = body.code, body.entry
    count = _padded(body, body.lanes)
    for axis in body.kernel.reduction:
        if axis.extent != 1 and axis is not body.form.vector:
            count = code.binary("mul", count, body.extent(axis), entry)
    kind = computed(value.dtype)
    text = f"alloca {kind}, i64 {count.text}, align 64"
    body.scratch[id(value)] = code.let(text, "ptr", at=entry)


def _to_scratch(body: Body, value: Value) -> None:
    code = body.code
    ref = code.spread(evaluate(body, value), body.lanes)
    where = _scratch_position(body)
    address = body.scratch[id(value)]
    text = f"getelementptr {ref.type}, ptr {address.text}, i64 {where.text}"
    place = code.let(text, "ptr")
    code.add(f"store {ref.typed}, ptr {place.text}, align 4")


def from_scratch(body: Body, value: Value) -> Ref:
    code = body.code
    kind = computed(value.dtype)
    where = code.once("scratch position", code.level, lambda: _scratch_position(body))
    text = f"getelementptr {kind}, ptr {body.scratch[id(value)].text}, i64 {where.text}"
    place = code.let(text, "ptr")
    return code.let(f"load <{body.lanes} x {kind}>, ptr {place.text}, align 4", kind, body.lanes)
