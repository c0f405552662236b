"""What schedules and emitters ask of a kernel's values, computed once, operands first."""

from __future__ import annotations

from .index import Axis, Data, Index, walk
from .kernel import Dot, Kernel, Load, Reduce, Value, data_values, ranges


class Analysis:
    """Facts about each value of a kernel, by identity.

    axes: the axes it ranges over.
    reads: whether memory is read or a position that is data is checked to compute it, so that a
        guard must mask it.
    depth: how many reductions lie on the way to it.
    """

    def __init__(self, kernel: Kernel):
        self._axes = ranges(kernel.values)
        self._reads: dict[int, bool] = {}
        self._depth: dict[int, int] = {}
        for value in kernel.values:
            positions = [d for i in value.indices() for d in data_values(i)]
            below = [*value.operands(), *positions]
            depth = max((self._depth[id(v)] for v in below), default=0)
            self._depth[id(value)] = depth + isinstance(value, (Reduce, Dot))
            reads = isinstance(value, Load) or bool(positions)
            self._reads[id(value)] = reads or any(self._reads[id(v)] for v in below)

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
