"""Kernel IR: an iteration space, a DAG of scalar expressions, and stores.

A kernel runs its stores for every point of its parallel axes. A value may also range over the
reduction axes; Reduce and Dot fold them away, Scan runs along them. The axes that a value mentions
are those it ranges over: a store whose offset mentions a reduction axis is made for each of its
points ("full" level), any other once per parallel point ("row" level). A fold is over all reduction
axes, except in a contraction whose rows are folded and in a chained kernel (attention, see
codegen/lower/attention.py). So softmax is

    parallel p, reduction r
    x = load X[p*R + r];  m = reduce max x;  e = exp(x - m);  s = reduce sum e
    store Y[p*R + r] = e / s

and a matmul with a bias is a store of dot(a[m, k], b[k, n]) + bias[n] over parallel m, n. The
softmax of a matmul is over parallel m and reduction n, k: the dot is over k, the folds over n.

Types of values: bool, integers, float32 and float64. Half types exist in memory only: a Load
widens them to float32, a Store rounds. Within an expression an Apply(cast) rounds the result of
each op on half types. No engine contracts or reorders arithmetic, so a value has the same bits in
any kernel. Buffers are contiguous, and addressed by an element offset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tilewright.ir.dtype import DType, int8, int32
from tilewright.ir.op import Fold, Op

from .index import Atom, Axis, Data, FloorDiv, Index, Mod, of, walk


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a kernel reads or writes: `size` elements of `dtype`."""

    name: str
    dtype: DType
    size: int


class _Value:
    """The base of all values."""

    __slots__ = ()

    def operands(self) -> tuple[Value, ...]:
        return ()

    def indices(self) -> tuple[Index, ...]:
        return ()

    def folded(self) -> tuple[Axis, ...]:
        """The axes that the operands range over but not this value."""
        return ()

    def axes(self) -> set[Axis]:
        """The axes this value ranges over. `ranges` answers for many values at once."""
        seen: dict[int, Value] = {}
        collect(self, seen)  # type: ignore[arg-type]
        return set(ranges(seen.values())[id(self)])


@dataclass(frozen=True, eq=False, slots=True)
class Load(_Value):
    """The element of a buffer at `offset`, widened to `dtype`."""

    buffer: Buffer
    offset: Index
    dtype: DType

    def indices(self) -> tuple[Index, ...]:
        return (self.offset,)


@dataclass(frozen=True, eq=False, slots=True)
class Constant(_Value):
    """A number, as a NumPy scalar of `dtype`."""

    value: Any
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True)
class Scalar(_Value):
    """A number passed at launch; `slot` is its node's index among the scalars of the graph."""

    slot: int
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True)
class Position(_Value):
    """An index as an int64 value."""

    index: Index
    dtype: DType

    def indices(self) -> tuple[Index, ...]:
        return (self.index,)


@dataclass(frozen=True, eq=False, slots=True)
class RandomBits(_Value):
    """Word 0 of Philox 4x32-10 at counter (index, index >> 32, offset, offset >> 32), uint32; as
    uint64 with word 1 below it."""

    seed: Value
    offset: Value
    index: Index
    dtype: DType

    def operands(self) -> tuple[Value, ...]:
        return self.seed, self.offset

    def indices(self) -> tuple[Index, ...]:
        return (self.index,)


@dataclass(frozen=True, eq=False, slots=True)
class Apply(_Value):
    """An elementwise op. A cast to a half type rounds, its dtype stays float32 (`target` says)."""

    op: Op
    args: tuple[Value, ...]
    dtype: DType
    target: DType | None = None

    def operands(self) -> tuple[Value, ...]:
        return self.args

    @property
    def may_fail(self) -> bool:
        """Whether this is an integer division whose divisor may be zero."""
        if not self.op.divides or self.dtype.is_floating_point:
            return False
        divisor = self.args[1]
        return not isinstance(divisor, Constant) or not divisor.value


@dataclass(frozen=True, slots=True)
class Condition:
    """low <= index < high."""

    index: Index
    low: int
    high: int


@dataclass(frozen=True, eq=False, slots=True)
class Guard(_Value):
    """`inside` where every condition holds, else `outside`; `inside` is not evaluated elsewhere
    (its loads would be out of bounds)."""

    conditions: tuple[Condition, ...]
    inside: Value
    outside: Value
    dtype: DType

    def operands(self) -> tuple[Value, ...]:
        return self.inside, self.outside

    def indices(self) -> tuple[Index, ...]:
        return tuple(c.index for c in self.conditions)


@dataclass(frozen=True, eq=False, slots=True)
class Reduce(_Value):
    """A fold over reduction axes. One that picks gives a row-major position among them, int64."""

    op: Fold
    arg: Value
    over: tuple[Axis, ...]
    dtype: DType

    def operands(self) -> tuple[Value, ...]:
        return (self.arg,)

    def folded(self) -> tuple[Axis, ...]:
        return self.over


@dataclass(frozen=True, eq=False, slots=True)
class Scan(_Value):
    """A running fold along the one reduction axis, at each of its points; op is in `SCANS`."""

    op: Fold
    arg: Value
    along: Axis
    dtype: DType

    def operands(self) -> tuple[Value, ...]:
        return (self.arg,)

    def indices(self) -> tuple[Index, ...]:
        return (of(self.along),)


@dataclass(frozen=True, eq=False, slots=True)
class Sort(_Value):
    """The position (int64) along the one reduction axis whose element sorting brings here. Stable;
    NaN is the largest. Full level, like Scan.

    count: only at so many points is the position wanted; the others may get any number, or none.
    """

    arg: Value
    along: Axis
    descending: bool
    count: int
    dtype: DType

    def operands(self) -> tuple[Value, ...]:
        return (self.arg,)

    def indices(self) -> tuple[Index, ...]:
        return (of(self.along),)


@dataclass(frozen=True, eq=False, slots=True)
class Ordered(_Value):
    """The integer that ascending order along the one reduction axis brings here. Full level.

    run: a row consists of two runs of so many elements that are in order already; 0 if nothing is
    known.
    """

    arg: Value
    along: Axis
    run: int
    dtype: DType

    def operands(self) -> tuple[Value, ...]:
        return (self.arg,)

    def indices(self) -> tuple[Index, ...]:
        return (of(self.along),)


@dataclass(frozen=True, slots=True)
class Segment:
    """The points where first <= along < stop. Both bounds vary with the axis of the groups.
    Segments of neighbouring groups follow each other and don't overlap."""

    along: Axis
    first: Value
    stop: Value


@dataclass(frozen=True, eq=False, slots=True)
class Dot(_Value):
    """The sum of a * b over reduction axes.

    Parallel axes that only `a` mentions are its rows (M), those that only `b` mentions its columns
    (N), those that both mention its batch. Half types and float8 are multiplied as they are
    (`input_dtype`) and summed in float32; bytes are summed in int32, if that is `dtype`. fast:
    whether less precision is asked of it than of other products: in float8 sums as short as the
    hardware's, in float32 a convolution (Target.tf32_convolutions).

    scales: factors of each term, if there are any; one varies with the rows, one with the columns.
    They don't vary along the last of the summed axes, so each sum along it is scaled once.
    segment: the points that are summed; None for all. It lies along the rows of `a`, with the
    groups among the reduction axes (each row meets its group's matrix of `b`), or along the one
    reduction axis, with the groups among the parallel axes (each group has a product of its own).
    """

    a: Value
    b: Value
    over: tuple[Axis, ...]
    dtype: DType
    input_dtype: DType
    fast: bool = False
    segment: Segment | None = None
    scales: tuple[Value, ...] = ()

    @property
    def of_bytes(self) -> bool:
        """Whether int8 is summed in int32, for which tensor cores have an instruction."""
        return self.a.dtype is self.b.dtype is int8 and self.dtype is int32

    @property
    def in_threads(self) -> bool:
        """Whether no tensor core takes the types."""
        if self.input_dtype.is_floating_point:
            return self.input_dtype.itemsize == 8
        return not self.of_bytes

    def operands(self) -> tuple[Value, ...]:
        bounds = () if self.segment is None else (self.segment.first, self.segment.stop)
        return (self.a, self.b, *bounds, *self.scales)

    def folded(self) -> tuple[Axis, ...]:
        return self.over


Value = (
    Load
    | Constant
    | Scalar
    | Position
    | RandomBits
    | Apply
    | Guard
    | Reduce
    | Scan
    | Sort
    | Ordered
    | Dot
)

SCANS = (Fold.SUM, Fold.PROD, Fold.MAX, Fold.MIN, Fold.LOGSUMEXP)
"""The folds that a scan may have."""

ALONG = (Scan, Sort, Ordered)
"""Values that need a whole row and exist at each of its points."""


UPDATES = {
    "add": Fold.SUM,
    "mul": Fold.PROD,
    "max": Fold.MAX,
    "min": Fold.MIN,
    "any": Fold.ANY,
    "all": Fold.ALL,
}
"""The fold that a store's mode is one step of; "set" folds nothing."""


@dataclass(frozen=True, eq=False, slots=True)
class Store:
    """buffer[offset] = value at every point of the axes that offset and value mention.

    With a mode ("set", or one of `UPDATES`) the store is an update: buffer[offset] is combined with
    value, one after another in row-major order of the reduction axes. Points that differ in a
    parallel axis never meet. grouped: points that meet follow each other in that order.
    """

    buffer: Buffer
    offset: Index
    value: Value
    mode: str | None = None
    grouped: bool = False


@dataclass(frozen=True, eq=False)
class Kernel:
    """One launch.

    notes: for readers of the generated code, one line for each op: (name, file, line).
    """

    name: str
    parallel: tuple[Axis, ...]
    reduction: tuple[Axis, ...]
    stores: tuple[Store, ...]
    notes: tuple[tuple[str, str, int], ...] = field(default=())

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Every value once, operands first."""
        seen: dict[int, Value] = {}
        for store in self.stores:
            for root in (*data_values(store.offset), store.value):
                collect(root, seen)
        return tuple(seen.values())

    @cached_property
    def outputs(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(s.buffer for s in self.stores))

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        loads = (v.buffer for v in self.values if isinstance(v, Load))
        return tuple(dict.fromkeys(b for b in loads if b not in self.outputs))

    @cached_property
    def scalars(self) -> tuple[Scalar, ...]:
        """One value for each scalar slot."""
        return tuple({v.slot: v for v in self.values if isinstance(v, Scalar)}.values())

    @property
    def has_dot(self) -> bool:
        return any(isinstance(v, Dot) for v in self.values)

    @cached_property
    def draws(self) -> bool:
        """Whether the kernel makes random numbers."""
        return any(isinstance(v, RandomBits) for v in self.values)

    @cached_property
    def columns(self) -> tuple[Axis, ...]:
        """The axes along which the kernel of a contraction folds its rows: the reduction axes in
        front of those that are summed over. Empty in any other kernel."""
        over = {type(v): v.over for v in self.values if isinstance(v, (Reduce, Dot))}
        columns, summed = over.get(Reduce, ()), over.get(Dot, ())
        return columns if summed and (*columns, *summed) == self.reduction else ()

    @cached_property
    def is_chained(self) -> bool:
        """Whether folds follow one another, each over some of the reduction axes."""
        folds = (v for v in self.values if isinstance(v, (Reduce, Dot)))
        return not self.columns and any(v.over != self.reduction for v in folds)

    @property
    def is_crossed(self) -> bool:
        """Whether folds of rows and of their columns share the kernel (columns.py)."""
        return self.is_chained and not self.has_dot

    @cached_property
    def folded(self) -> tuple[tuple[Axis, ...], ...]:
        """The reduction axes in groups; each group is folded as one."""
        if self.is_chained:
            return tuple((axis,) for axis in self.reduction)
        count = len(self.columns)
        return tuple(g for g in (self.columns, self.reduction[count:]) if g)

    @property
    def is_update(self) -> bool:
        return any(s.mode is not None for s in self.stores)

    @property
    def is_grouped(self) -> bool:
        """Whether the kernel is an update in which points that meet are neighbours."""
        return any(s.grouped for s in self.stores)

    @cached_property
    def ordered(self) -> tuple[Ordered, ...]:
        return tuple(v for v in self.values if isinstance(v, Ordered))


@dataclass(frozen=True, eq=False)
class Bundle:
    """Independent kernels of one structure, made in one launch: many small parameter updates."""

    members: tuple[Kernel, ...]

    @property
    def name(self) -> str:
        return self.members[0].name

    @cached_property
    def largest(self) -> Kernel:
        """The member with the most points; all members take its form and schedule."""
        return max(
            self.members,
            key=lambda k: math.prod(a.extent for a in (*k.parallel, *k.reduction)),
        )

    @cached_property
    def outputs(self) -> tuple[Buffer, ...]:
        return tuple(b for k in self.members for b in k.outputs)

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        return tuple(b for k in self.members for b in k.inputs)

    @cached_property
    def scalars(self) -> tuple[Scalar, ...]:
        return tuple({v.slot: v for k in self.members for v in k.scalars}.values())


def data_values(index: Index) -> Iterator[Value]:
    """The values an index reads its positions from."""
    for atom in walk(index):
        if isinstance(atom, Data):
            yield atom.value


def ranges(
    values: Iterable[Value], known: dict[int, frozenset[Axis]] | None = None
) -> dict[int, frozenset[Axis]]:
    """The axes each of `values` (operands first) ranges over, by id; added to `known`."""
    found = {} if known is None else known
    nothing: frozenset[Axis] = frozenset()
    for value in values:
        axes = nothing
        for operand in value.operands():
            axes = axes | found[id(operand)] if axes else found[id(operand)]
        for index in value.indices():
            axes = axes | _mentioned(index, found)
        folded = value.folded()
        found[id(value)] = axes.difference(folded) if folded else axes
    return found


def _mentioned(index: Index, known: dict[int, frozenset[Axis]]) -> set[Axis]:
    axes: set[Axis] = set()
    for atom in walk(index):
        if isinstance(atom, Axis):
            axes.add(atom)
        elif isinstance(atom, Data):
            axes |= known[id(atom.value)]
    return axes


def collect(root: Value, seen: dict[int, Value]) -> None:
    """Adds `root` and all values it is computed from to `seen`, by id, operands first."""
    stack: list[tuple[Value, bool]] = [(root, False)]
    while stack:
        value, ready = stack.pop()
        if id(value) in seen:
            continue
        if ready:
            seen[id(value)] = value
            continue
        stack.append((value, True))
        for index in value.indices():
            stack.extend((v, False) for v in data_values(index))
        stack.extend((v, False) for v in value.operands())


__all__ = [
    "ALONG",
    "Apply",
    "Atom",
    "Axis",
    "Buffer",
    "Bundle",
    "Condition",
    "Constant",
    "Data",
    "Dot",
    "FloorDiv",
    "Guard",
    "Index",
    "Kernel",
    "Load",
    "Mod",
    "Ordered",
    "Position",
    "RandomBits",
    "Reduce",
    "Scalar",
    "Scan",
    "Segment",
    "Sort",
    "Store",
    "Value",
    "collect",
    "data_values",
    "ranges",
]
