"""What schedules and emitters ask of a kernel's values, computed once, operands first."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.op import REGISTRY

from .index import Axis, Data, Index, walk
from .kernel import Apply, Dot, Kernel, Load, Reduce, Value, data_values, ranges

_EXP, _SUB = REGISTRY["exp"], REGISTRY["sub"]


@dataclass(frozen=True, slots=True)
class Exponentials:
    """A sum of exp(of - shift) along a row, of which shift is one number and top the maximum."""

    of: Value
    shift: Value
    top: Reduce


class Analysis:
    """Facts about each value of a kernel, by identity.

    axes: the axes it ranges over.
    reads: whether memory is read or a position that is data is checked to compute it, so that a
        guard must mask it.
    depth: how many reductions lie on the way to it.

    online: whether a sum of exponentials is made beside the maximum it is relative to, in one pass
        over a row (Milakov and Gimelshein, arXiv 1805.02867). Then it is as deep as that.
    """

    def __init__(self, kernel: Kernel, online: bool = False):
        self._axes = ranges(kernel.values)
        self._exponentials: dict[int, Exponentials] = {}
        tops: dict[tuple[int, tuple[Axis, ...]], Reduce] = {}
        self._reads: dict[int, bool] = {}
        self._depth: dict[int, int] = {}
        for value in kernel.values:
            positions = [d for i in value.indices() for d in data_values(i)]
            below = [*value.operands(), *positions]
            depth = max((self._depth[id(v)] for v in below), default=0)
            self._depth[id(value)] = depth + isinstance(value, (Reduce, Dot))
            if isinstance(value, Reduce) and value.op == "max":
                tops[id(value.arg), value.over] = value
            found = self._sum_of_exponentials(value, tops) if online else None
            if found is not None:
                self._exponentials[id(value)] = found
                self._depth[id(value)] = depth
            reads = isinstance(value, Load) or bool(positions)
            self._reads[id(value)] = reads or any(self._reads[id(v)] for v in below)

    def _sum_of_exponentials(
        self, value: Value, tops: dict[tuple[int, tuple[Axis, ...]], Reduce]
    ) -> Exponentials | None:
        if not isinstance(value, Reduce) or value.op != "sum":
            return None
        power = value.arg
        if not isinstance(power, Apply) or power.op is not _EXP:
            return None
        (gap,) = power.args
        if not isinstance(gap, Apply) or gap.op is not _SUB:
            return None
        of, shift = gap.args
        top = tops.get((id(of), value.over))
        if top is None or not self._axes[id(shift)].isdisjoint(value.over):
            return None
        same = self._depth[id(top)] == self._depth[id(shift)] > self._depth[id(of)]
        return Exponentials(of, shift, top) if same else None

    def exponentials(self, value: Reduce) -> Exponentials | None:
        """What a sum is of, if it is made in the pass of a maximum."""
        return self._exponentials.get(id(value))

    def axes(self, value: Value) -> frozenset[Axis]:
        return self._axes[id(value)]

    def reads(self, value: Value) -> bool:
        return self._reads[id(value)]

    def depth(self, value: Value) -> int:
        return self._depth[id(value)]

    def index_axes(self, index: Index) -> frozenset[Axis]:
        found: set[Axis] = set()
        for atom in walk(index):
            if isinstance(atom, Axis):
                found.add(atom)
            elif isinstance(atom, Data):
                found |= self._axes[id(atom.value)]
        return frozenset(found)

    def index_reads(self, index: Index) -> bool:
        return any(isinstance(atom, Data) for atom in walk(index))

    def index_depth(self, index: Index) -> int:
        return max((self._depth[id(v)] for v in data_values(index)), default=0)
