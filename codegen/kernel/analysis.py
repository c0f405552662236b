"""Facts about a kernel's values for schedules and emitters, computed once, operands first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from tilewright.ir import ops
from tilewright.ir.op import Fold

from .index import Axis, Data, Index, walk
from .ir import Apply, Dot, Kernel, Load, Reduce, Value, data_values, ranges

_Kernel = TypeVar("_Kernel")
_Others = ParamSpec("_Others")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Exponentials:
    """A sum of exp(of - shift) along a row. shift is one number for a row, top its maximum."""

    of: Value
    shift: Value
    top: Reduce


@dataclass(frozen=True, slots=True)
class Squares:
    """A sum of (of - shift) ** 2 along a row. shift is one number for a row, mostly its mean."""

    of: Value
    shift: Value


class Analysis:
    """Facts about each value of a kernel, by identity.

    axes: the axes it ranges over.
    reads: whether computing it reads memory, or checks a divisor or a position that is data. Then a
        guard must mask it.
    depth: how many reductions lie on the way to it.

    online: whether a sum is made in the same pass over a row as the number it is relative to: one
        of exponentials beside their maximum (Milakov and Gimelshein, arXiv 1805.02867), one of
        squares beside their mean (Welford, Technometrics 4, 1962). Then it has the depth of that
        number.
    """

    def __init__(self, kernel: Kernel, online: bool = False):
        self._axes = ranges(kernel.values)
        self._online: dict[int, Exponentials | Squares] = {}
        tops: dict[tuple[int, tuple[Axis, ...]], Reduce] = {}
        self._reads: dict[int, bool] = {}
        self._depth: dict[int, int] = {}
        for value in kernel.values:
            positions = [d for i in value.indices() for d in data_values(i)]
            below = [*value.operands(), *positions]
            depth = max((self._depth[id(v)] for v in below), default=0)
            self._depth[id(value)] = depth + isinstance(value, (Reduce, Dot))
            if isinstance(value, Reduce) and value.op is Fold.MAX:
                tops[id(value.arg), value.over] = value
            found = self._in_the_same_pass(value, tops) if online else None
            if found is not None:
                self._online[id(value)] = found
                self._depth[id(value)] = depth
            reads = isinstance(value, Load) or bool(positions)
            reads = reads or (isinstance(value, Apply) and value.may_fail)
            self._reads[id(value)] = reads or any(self._reads[id(v)] for v in below)
        self._loads = {(v.buffer, v.offset): v for v in kernel.values if isinstance(v, Load)}

    def beside(self, value: Load) -> tuple[Load, Load] | None:
        """The load and the one of the element beside it, in the order of their places, if both
        are parts of a complex number: the first has an even place at each point, so wherever one
        of the elements exists, both do. None if there is no other one."""
        offset, number = value.offset, value.offset.const % 2
        if value.buffer.size % 2 or any(coefficient % 2 for _, coefficient in offset.terms):
            return None
        other = self._loads.get((value.buffer, offset + (1 - 2 * number)))
        if other is None:
            return None
        return (other, value) if number else (value, other)

    def _in_the_same_pass(
        self, value: Value, tops: dict[tuple[int, tuple[Axis, ...]], Reduce]
    ) -> Exponentials | Squares | None:
        """The terms of a sum, if they are distances from a number that the same pass gives."""
        if (
            not isinstance(value, Reduce)
            or value.op is not Fold.SUM
            or not isinstance(value.arg, Apply)
        ):
            return None
        power, (gap, *others) = value.arg.op, value.arg.args
        if not isinstance(gap, Apply) or gap.op is not ops.sub:
            return None
        of, shift = gap.args
        if not self._axes[id(shift)].isdisjoint(value.over):
            return None
        if self._depth[id(shift)] <= self._depth[id(of)]:
            return None  # the shift is known before this pass
        if power is ops.mul and others[0] is gap and gap.dtype.is_floating_point:
            return Squares(of, shift)
        top = tops.get((id(of), value.over))
        if power is not ops.exp or top is None or self._depth[id(top)] != self._depth[id(shift)]:
            return None
        return Exponentials(of, shift, top)

    def online(self, value: Reduce) -> Exponentials | Squares | None:
        """The terms of a sum that is made in the pass of the number it is relative to."""
        return self._online.get(id(value))

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


def of_kernel(
    function: Callable[Concatenate[_Kernel, _Others], _Result],
) -> Callable[Concatenate[_Kernel, _Others], _Result]:
    """`function` of a kernel and other hashable arguments, computed once for each kernel as long as
    it lives: a schedule is looked for among many, each of which asks for the same. Its results must
    not refer to the kernel."""
    found: WeakKeyDictionary[_Kernel, dict[Any, _Result]] = WeakKeyDictionary()

    @functools.wraps(function)
    def remembered(kernel: _Kernel, /, *others: _Others.args, **named: _Others.kwargs) -> _Result:
        of_this = found.setdefault(kernel, {})
        key = others, *named.items()
        if key not in of_this:
            of_this[key] = function(kernel, *others, **named)
        return of_this[key]

    return remembered


@of_kernel
def analyzed(kernel: Kernel, online: bool = False) -> Analysis:
    """The analysis of a kernel."""
    return Analysis(kernel, online)
