"""Lowering: the values of one kernel, pulled from the nodes it stores.

`Lowering.value(node, place)` is the element of a node at a place that is a function of the kernel's
axes. Nodes in memory are loaded; everything else is computed right there, so movement ops are index
arithmetic only, and an element that is needed twice at one place is computed once.

A rule that needs operands is a generator: it yields (operand, place) and is sent the value. So deep
graphs need no deep stack.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Sequence
from itertools import islice
from types import GeneratorType
from typing import Any, cast

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import NARROW, DType, accumulator, float32, int64
from tilewright.ir.node import Node, grad_mode
from tilewright.ir.op import Fold, Kind, Op
from tilewright.ir.ops.contraction import matmul_fast
from tilewright.ir.ops.generate import DRAWS, constant_value, scalar
from tilewright.ir.shape import contiguous_strides

from ..kernel import (
    SCANS,
    Apply,
    Buffer,
    Condition,
    Constant,
    Dot,
    Guard,
    Load,
    Ordered,
    Position,
    RandomBits,
    Reduce,
    Scalar,
    Scan,
    Segment,
    Sort,
    Store,
    Value,
    collect,
    ranges,
)
from ..kernel import index as ix
from ..kernel.domain import Domain, Place, along
from ..kernel.index import Axis, Check, Data, Index
from ..kernel.limits import limits
from ..ops import flat, initial, leading, ordered, part, unflat
from . import movement
from .contraction import Term, contraction
from .halves import Halves
from .movement import narrow

Request = tuple[Node, Place]
Rule = Generator[Request, Value, Value]

_POSITIONAL = (ops.add, ops.sub, ops.mul)
"""Ops whose results are positions if their operands are."""


class CannotFuse(Exception):
    """A node can't be computed inside of this kernel and has to come from memory."""

    def __init__(self, node: Node, reason: str):
        super().__init__(f"{node.op.name}: {reason}")
        self.node = node
        self.reason = reason


class Lowering:
    """The values of one kernel over `domain`.

    source(node): the buffer a node is loaded from; None if this kernel computes it.
    rounds: whether elements of half types are rounded as in memory (`Target.rounds_halves`).
    most_places: a node that would be computed at more places raises CannotFuse.
    """

    def __init__(
        self,
        domain: Domain,
        source: Callable[[Node], Buffer | None],
        rounds: bool = True,
        most_places: int | None = None,
    ):
        self.domain = domain
        self.source = source
        self.rounds = rounds
        self.most_places = most_places
        self.memo: dict[Request, Value] = {}
        self.nodes: dict[Node, None] = {}
        self._places: Counter[Node] = Counter()
        self._same: dict[Hashable, Value] = {}
        self._seen: dict[int, Value] = {}
        self._ranges: dict[int, frozenset[Axis]] = {}
        self._halves = Halves(self.apply)
        self._parallel = frozenset(domain.parallel)

    # The machine.

    def value(self, node: Node, place: Place) -> Value:
        """The element of `node` at `place`."""
        found = self.memo.get((node, place))
        if found is not None:
            return found
        stack: list[tuple[Request, Rule]] = []
        request: Request = (node, place)
        while True:
            known = self.memo.get(request)
            if known is None:
                rule = self._rule(*request)
                if isinstance(rule, GeneratorType):
                    stack.append((request, rule))
                    sent: Value | None = None
                else:
                    sent = self._remember(request, cast(Value, rule))
            else:
                sent = known
            # Hand the value on until some rule asks for another one.
            while True:
                if not stack:
                    assert sent is not None
                    return sent
                try:
                    request = stack[-1][1].send(sent)  # type: ignore[arg-type]
                    break
                except StopIteration as done:
                    request, _ = stack.pop()
                    sent = self._remember(request, done.value)

    def _remember(self, request: Request, value: Value) -> Value:
        if self.rounds:
            value = self._halves.rounded(value, request[0].dtype)
        self.memo[request] = value
        return value

    def store(self, node: Node, buffer: Buffer) -> tuple[Store, ...]:
        """Every element of `node`, written to `buffer`; the parts of a pair beside each other."""
        base = stored_base(node, self.source)
        place = self.domain.place(base.shape)
        if place is None:
            raise CannotFuse(node, "its shape doesn't fit the kernel's iteration space")
        if node.op is unflat:
            self.nodes[node] = None
            node = node.operands[0]
        if buffer.dtype is node.dtype:
            return (self.stored(node, base, place, self.value(base, place), buffer),)
        with grad_mode(False):
            parts = [part(base, i) for i in range(2)]
        return tuple(
            self.stored(node, base, place, self.value(each, place), buffer, i)
            for i, each in enumerate(parts)
        )

    def stored(
        self,
        node: Node,
        base: Node,
        place: Place,
        value: Value,
        buffer: Buffer,
        number: int | None = None,
    ) -> Store:
        """The store of `node`, which is `base` moved, given the element of `base` at `place`.
        number: which part of a pair it is."""
        chain = []
        while node is not base:
            chain.append(node)
            node = node.operands[0]
        for moved in reversed(chain):
            self.nodes[moved] = None
            place = movement.target(moved, place)
            node = moved
        if isinstance(value, Apply) and value.op is ops.cast and value.target is buffer.dtype:
            (before,) = value.args
            value = before if before.dtype is value.dtype else value  # a store rounds by itself
        offset = ix.linearize(place, contiguous_strides(node.shape))
        return Store(buffer, offset if number is None else offset * 2 + number, value)

    def _rule(self, node: Node, place: Place) -> Value | Rule:
        buffer = self.source(node)
        if buffer is not None:
            return self._load(buffer, place, node)
        self.nodes[node] = None
        if self.most_places is not None and node.op.kind is Kind.ELEMENTWISE:
            self._places[node] += 1
            if self._places[node] > self.most_places:
                raise CannotFuse(node, f"would be computed at more than {self.most_places} places")
        return _RULES[node.op.kind](self, node, place)

    def _load(self, buffer: Buffer, place: Place, node: Node) -> Value:
        offset = ix.linearize(place, contiguous_strides(node.shape))
        dtype = accumulator(node.dtype)
        return self._shared((buffer, offset), lambda: Load(buffer, offset, dtype))

    def _shared(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """One value for equal expressions, whatever nodes they come from."""
        found = self._same.get(key)
        if found is None:
            found = self._same[key] = make()
        return found

    # Leaves of the expression.

    def _leaf(self, node: Node, place: Place) -> Value:
        if node.op is not scalar:
            raise CannotFuse(node, "a leaf without a buffer")
        slot, dtype = node.attrs
        return self._shared(("scalar", slot), lambda: Scalar(slot, accumulator(dtype)))

    def _constant(self, node: Node, place: Place) -> Value:
        return self.constant(constant_value(node), node.dtype)

    def constant(self, number: Any, dtype: DType) -> Constant:
        wide = accumulator(dtype)
        value = np.asarray(number).astype(wide.np)[()]
        made = self._shared((value.tobytes(), wide), lambda: Constant(value, wide))
        assert isinstance(made, Constant)
        return made

    def _position(self, position: Index) -> Value:
        return self._shared(("position", position), lambda: Position(position, int64))

    def _generate(self, node: Node, place: Place) -> Value | Rule:
        if node.op in DRAWS:
            return self._random(node, place)
        return self._position(place[0])

    def _random(self, node: Node, place: Place) -> Rule:
        seed = yield node.operands[0], ()
        offset = yield node.operands[1], ()
        position = ix.linearize(place, contiguous_strides(node.shape))
        return RandomBits(seed, offset, position, node.dtype)

    # Elementwise.

    def _elementwise(self, node: Node, place: Place) -> Rule:
        args = []
        for operand in node.operands:
            same = operand.shape == node.shape
            arg = yield operand, place if same else narrow(place, operand.shape)
            args.append(arg)
        if node.op is initial:
            return args[0]
        if node.op is ops.cast:
            return self._cast(node, args[0])
        if node.op is ops.bitcast:
            return self._bitcast(node, args[0])
        if node.dtype is int64 and node.op in _POSITIONAL:
            folded = self._fold_position(node.op, args)
            if folded is not None:
                return folded
        return self.apply(node.op, args, accumulator(node.dtype))

    def apply(
        self, op: Op, args: Sequence[Value], dtype: DType, target: DType | None = None
    ) -> Value:
        key = (op, dtype, target, *map(id, args))
        return self._shared(key, lambda: Apply(op, tuple(args), dtype, target))

    def _cast(self, node: Node, arg: Value) -> Value:
        source, target = node.operands[0].dtype, node.dtype
        if accumulator(target) is not target:
            rounded = source is target
            return arg if rounded else self.apply(ops.cast, (arg,), float32, target)
        if arg.dtype is target:  # a kernel holds a half type as float32 already
            return arg
        return self.apply(ops.cast, (arg,), target)

    def _bitcast(self, node: Node, arg: Value) -> Value:
        """The bits are those of memory, so a value computed in a wider type is rounded first."""
        source, target = node.operands[0].dtype, node.dtype
        if source in NARROW and not isinstance(arg, Load):
            arg = self.apply(ops.cast, (arg,), float32, source)
        elif source is float32 and _is_narrow(arg):
            arg = self.apply(ops.cast, (arg,), float32)
        narrow = target if target in NARROW else None
        return self.apply(ops.bitcast, (arg,), accumulator(target), narrow)

    def _fold_position(self, op: Op, args: Sequence[Value]) -> Value | None:
        """Arithmetic on positions stays a position, so that gathers by it stay plain loads."""
        a, b = (_as_index(v) for v in args)
        if a is None or b is None:
            return None
        if op is ops.add:
            return self._position(a + b)
        if op is ops.sub:
            return self._position(a - b)
        if not b.terms:
            return self._position(a * b.const)
        return self._position(b * a.const) if not a.terms else None

    # Movement and positions that are data.

    def _movement(self, node: Node, place: Place) -> Rule:
        if node.op is ops.pad_op:
            return self._pad(node, place)
        if node.op is ops.cat_op:
            return self._cat(node, place)
        if node.op is part or node.op is flat:
            return self._parts(node, place)
        return self._moved(node, place)

    def _moved(self, node: Node, place: Place) -> Rule:
        return (yield node.operands[0], movement.source(node, place))

    def _parts(self, node: Node, place: Place) -> Rule:
        """Real numbers of complex ones: of memory, or of a pair that the kernel computes."""
        z = node.operands[0]
        buffer = self.source(z)
        while buffer is None and (z.op is ops.reshape_op or z.op is initial):
            self.nodes[z] = None
            z = z.operands[0]  # its elements have the same order
            buffer = self.source(z)
        if buffer is None:
            self.nodes[z] = None
            if node.op is flat or z.shape != node.shape:
                raise CannotFuse(node, "its pairs have to be in memory")
            if z.op is unflat:
                return (yield z.operands[0], (*place[:-1], place[-1] * 2 + node.attrs[0]))
            half = z.operands[node.attrs[0]]
            return (yield half, narrow(place, half.shape))
        offset = ix.linearize(place, contiguous_strides(node.shape))
        if node.op is part:
            offset = offset * 2 + node.attrs[0]
        dtype = accumulator(buffer.dtype)
        return self._shared((buffer, offset), lambda: Load(buffer, offset, dtype))

    def _pad(self, node: Node, place: Place) -> Rule:
        found = movement.pad_source(node, place)
        outside = yield node.operands[1], ()
        if found is None:
            return outside
        conditions, where = found
        inside = yield node.operands[0], where
        return self._guard(conditions, inside, outside)

    def _cat(self, node: Node, place: Place) -> Rule:
        axis = node.attrs[0]
        low, high = place[axis].bounds()
        parts: list[tuple[Condition, Value]] = []
        start = 0
        for piece in node.operands:
            size = piece.shape[axis]
            if size and start <= high and start + size > low:
                where = list(place)
                where[axis] = place[axis] - start if size != 1 else ix.ZERO
                value = yield piece, tuple(where)
                parts.append((Condition(place[axis], start, start + size), value))
            start += size
        # Each part is guarded on both sides: a branch that isn't taken must not load out of bounds.
        result: Value = self.constant(0, node.dtype)
        for condition, value in reversed(parts):
            result = self._guard(movement.simplified([condition]) or [], value, result)
        return result

    def _guard(self, conditions: Sequence[Condition], inside: Value, outside: Value) -> Value:
        if not conditions:
            return inside
        return Guard(tuple(conditions), inside, outside, inside.dtype)

    def _gather(self, node: Node, place: Place) -> Rule:
        x, *indices = node.operands
        axis = node.attrs[0]
        placed = len(node.shape) - (x.rank - len(indices))
        at = place[axis : axis + placed]
        positions = []
        for dim, operand in enumerate(indices, axis):
            value = yield operand, narrow(at, operand.shape)
            positions.append(self.data_index(value, x.shape[dim], dim, node))
        return (yield x, (*place[:axis], *positions, *place[axis + placed :]))

    def _check(self, node: Node, place: Place) -> Rule:
        size, axis, failure = node.attrs
        value = yield node.operands[0], place
        return self._position(self.data_index(value, size, axis, node, failure))

    def data_index(
        self, value: Value, size: int, dim: int, node: Node, failure: str = "position"
    ) -> Index:
        """The index that an integer value stands for, in dimension `dim` of `size` elements."""
        known = _as_index(value)
        if known is not None:
            low, high = known.bounds()
            if low >= 0 and high < size:
                return known
        low, high = limits(value)
        holds = low >= 0 and high < size
        return ix.data(Data(value, Check(size, dim, node.loc, failure), holds))

    # Folds.

    def axes_of(self, place: Place) -> frozenset[Axis]:
        """The axes that a place varies with."""
        found: frozenset[Axis] = frozenset()
        for position in place:
            found |= self._mentioned(position)
        return found

    def _mentioned(self, position: Index) -> frozenset[Axis]:
        found: set[Axis] = set()
        for atom in ix.walk(position):
            if isinstance(atom, Axis):
                found.add(atom)
            elif isinstance(atom, Data):
                found |= self._range(atom.value)
        return frozenset(found)

    def _range(self, value: Value) -> frozenset[Axis]:
        """The axes a value ranges over."""
        if id(value) not in self._ranges:
            before = len(self._seen)
            collect(value, self._seen)
            ranges(islice(self._seen.values(), before, None), self._ranges)
        return self._ranges[id(value)]

    def _own_points(self, node: Node, place: Place, over: tuple[Axis, ...]) -> None:
        """Raises unless a fold at `place` is computed once for each row and no more."""
        kept = self.domain.beside(over)
        mentioned = self.axes_of(place)
        if mentioned & set(over):
            raise CannotFuse(node, "read at more than one position of a row")
        if mentioned != kept or math.prod(node.shape) < math.prod(a.extent for a in kept):
            raise CannotFuse(node, "would be computed again for every point that reads it")

    def _reduce(self, node: Node, place: Place) -> Rule:
        axes: tuple[int, ...] = node.attrs[0]
        (operand,) = node.operands
        fold = node.op.fold
        assert fold is not None, f"{node.op.name} says no fold"
        dtype = accumulator(node.dtype)
        extents = [operand.shape[a] for a in axes]
        count = math.prod(extents)
        if count == 0:
            return self.constant(_IDENTITY[fold], dtype)
        if count == 1:
            if fold.picks:
                return self.constant(0, dtype)
            return (yield operand, place)
        over = self.domain.folded(count)
        if not over:
            raise CannotFuse(node, f"folds {count} elements, the kernel's rows have another size")
        self._own_points(node, place, over)
        within = along(over, extents)
        inner = list(place)
        for axis, position in zip(axes, within, strict=True):
            inner[axis] = position
        arg = yield operand, tuple(inner)
        if self._range(arg).isdisjoint(over):
            repeated = self._fold_repeated(fold, arg, count)
            if repeated is not None:
                return repeated
        return self._shared((fold, id(arg), over), lambda: Reduce(fold, arg, over, dtype))

    def _fold_repeated(self, fold: Fold, arg: Value, count: int) -> Value | None:
        """The fold of a row of equal elements."""
        if fold.is_idempotent:
            return arg
        if fold.picks:
            return self.constant(0, int64)
        if fold is Fold.SUM:
            times = np.asarray(count).astype(arg.dtype.np)
            return self.apply(ops.mul, (arg, self.constant(times, arg.dtype)), arg.dtype)
        return None

    def _scan(self, node: Node, place: Place) -> Rule:
        (operand,) = node.operands
        axis = node.attrs[0]
        dtype = accumulator(node.dtype)
        is_sort = node.op in (ops.argsort_op, leading)
        if operand.shape[axis] == 1:
            if is_sort:
                return self.constant(0, dtype)
            return (yield operand, place)
        along = self.domain.reduction
        if len(along) != 1 or place[axis] != ix.of(along[0]):
            raise CannotFuse(node, "runs along an axis that isn't the kernel's row")
        rest = self.axes_of((*place[:axis], *place[axis + 1 :]))
        if rest != self._parallel:
            raise CannotFuse(node, "its rows aren't those of the kernel")
        arg = yield operand, place
        if is_sort:
            count = node.attrs[2] if node.op is leading else operand.shape[axis]
            return Sort(arg, along[0], bool(node.attrs[1]), count, dtype)
        if node.op is ordered:
            return Ordered(arg, along[0], node.attrs[1], dtype)
        assert node.op.fold in SCANS, f"{node.op.name} is no running fold"
        return Scan(node.op.fold, arg, along[0], dtype)

    # Contractions.

    def _contraction(self, node: Node, place: Place) -> Rule:
        rule = contraction(node)
        count = math.prod(rule.summed)
        dtype = accumulator(node.dtype)
        if count == 0:
            return self.constant(0, dtype)
        within = self.domain.row_place(rule.summed)
        if within is None:
            raise CannotFuse(node, "sums over another number of products than the kernel")
        if not self._is_permutation(ix.linearize(place, contiguous_strides(node.shape))):
            raise CannotFuse(node, "isn't read at each of its elements in turn")
        factors = []
        more = rule.scales(place, within) if rule.scales is not None else ()
        for term in (*rule.terms(place, within), *more):
            factors.append((yield from self._factor(term)))
        a, b, *scales = factors
        across = self.domain.across
        if not self._range(a).isdisjoint(across) or not self._range(b).issuperset(across):
            raise CannotFuse(node, "folds are not along the columns of its second operand")
        if count == 1:  # an outer product sums nothing
            wide = [x if x.dtype is dtype else self.apply(ops.cast, (x,), dtype) for x in (a, b)]
            return self.apply(ops.mul, wide, dtype)
        segment = None
        if rule.segment is not None:
            segment = yield from self._segment(node, *rule.segment(place, within))
        fast = node.op is matmul_fast or (node.op.convolution and node.dtype is float32)
        kind = node.operands[0].dtype
        return Dot(a, b, self.domain.reduction, dtype, kind, fast, segment, tuple(scales))

    def _segment(self, node: Node, row: Index, group: Index) -> Generator[Request, Value, Segment]:
        """The rows of a group, whose bounds are the last operand."""
        along = row.lone_axis()
        if along is None or group.lone_axis() is None:
            raise CannotFuse(node, "its rows or groups are not along one axis")
        first = yield node.operands[2], (group,)
        stop = yield node.operands[2], (group + 1,)
        return Segment(along, first, stop)

    def _factor(self, term: Term) -> Rule:
        conditions = movement.simplified(term.conditions)
        zero = self.constant(0, term.node.dtype)
        if conditions is None:
            return zero
        value = yield term.node, term.place
        return self._guard(conditions, value, zero)

    def _is_permutation(self, offset: Index) -> bool:
        """Whether `offset` runs through 0, 1, … as the parallel axes do, in any order."""
        if not offset.is_affine or offset.const:
            return False
        step = 1
        seen = 0
        for atom, coefficient in sorted(offset.terms, key=lambda term: term[1]):
            if coefficient != step or atom not in self._parallel:
                return False
            assert isinstance(atom, Axis)
            step *= atom.extent
            seen += 1
        return seen == len(self._parallel)

    def _in_memory_only(self, node: Node, place: Place) -> Value:
        raise CannotFuse(node, "its result has to be in memory")


def stored_base(node: Node, source: Callable[[Node], Buffer | None]) -> Node:
    """The node a kernel iterates over to store `node`.

    A computed value is stored at permuted places; a mere copy is made in the order of its result.
    """
    base = node = node.operands[0] if node.op is unflat else node
    while movement.is_bijection(base):
        base = base.operands[0]
        if source(base) is not None:
            return node
    return node if base.op.kind is Kind.MOVEMENT else base


_RULES: dict[Kind, Callable[[Lowering, Node, Place], Value | Rule]] = {
    Kind.LEAF: Lowering._leaf,
    Kind.CONSTANT: Lowering._constant,
    Kind.GENERATE: Lowering._generate,
    Kind.ELEMENTWISE: Lowering._elementwise,
    Kind.MOVEMENT: Lowering._movement,
    Kind.GATHER: Lowering._gather,
    Kind.CHECK: Lowering._check,
    Kind.REDUCE: Lowering._reduce,
    Kind.SCAN: Lowering._scan,
    Kind.CONTRACTION: Lowering._contraction,
    Kind.SCATTER: Lowering._in_memory_only,
    Kind.ATTENTION: Lowering._in_memory_only,
    Kind.LOOP: Lowering._in_memory_only,
    Kind.EXTERNAL: Lowering._in_memory_only,
    Kind.HOST: Lowering._in_memory_only,
}

_IDENTITY: dict[Fold, int] = {Fold.SUM: 0, Fold.PROD: 1, Fold.ALL: True, Fold.ANY: False}
"""The folds of nothing; other folds of nothing are refused when they are recorded."""


def _as_index(value: Value) -> Index | None:
    """The index that equals an integer value, if it is known when compiling."""
    if isinstance(value, Position):
        return value.index
    if isinstance(value, Constant) and value.dtype is int64:
        return ix.constant(int(value.value))
    return None


def _is_narrow(value: Value) -> bool:
    """Whether a kernel holds a value of a narrow type, widened."""
    if isinstance(value, Load):
        return value.buffer.dtype in NARROW
    return isinstance(value, Apply) and value.target in NARROW
