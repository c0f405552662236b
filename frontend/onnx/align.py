"""One graph from several recordings of a model that differ in the sizes of its dynamic axes.

A recording has its sizes as plain ints. A size that differs between the recordings depends on the
dynamic axes; `sizes.py` finds out how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node, format_location, intern
from tilewright.ir.op import REGISTRY, Op
from tilewright.ir.ops.marker import MARKERS
from tilewright.ir.passes.autodiff import decomposed

from .errors import GraphsDiffer, OnnxExporterError


class Varying(tuple[int, ...]):
    """An int that depends on the dynamic axes: its value in each recording."""

    __slots__ = ()


class VaryingNumber(tuple[float, ...]):
    """A number that depends on the dynamic axes: its value in each recording."""

    __slots__ = ()


Extent = int | Varying


def varies(value: Any) -> bool:
    """Whether a value, or a part of it, depends on the dynamic axes."""
    if isinstance(value, (Varying, VaryingNumber)):
        return True
    return isinstance(value, (tuple, list)) and any(map(varies, value))


def merge(values: Sequence[Any]) -> Any:
    """Merge the values of all recordings to one. Differing ints, also in tuples, become Varying,
    and other differing numbers VaryingNumber.

    TypeError for any other difference.
    """
    first = values[0]
    if all(type(v) is type(first) and v == first for v in values[1:]):
        return first
    if all(isinstance(v, tuple) and len(v) == len(first) for v in values):
        return tuple(merge(each) for each in zip(*values, strict=True))
    if all(type(v) is int for v in values):
        return Varying(values)
    if all(type(v) in (int, float) for v in values):
        return VaryingNumber(map(float, values))
    raise TypeError("they differ in more than sizes")


def across(rule: Callable[..., int], *extents: Extent) -> Extent:
    """`rule` of the extents, in each recording."""
    count = next((len(e) for e in extents if isinstance(e, Varying)), 1)
    each = [rule(*(e[i] if isinstance(e, Varying) else e for e in extents)) for i in range(count)]
    return merge(each)


class Traced:
    """A node that all recordings have in common.

    nodes: the node in each recording. operands: of the node. shape, attrs: with Varying where the
        recordings differ.
    """

    __slots__ = ("nodes", "operands", "shape")

    def __init__(self, nodes: tuple[Node, ...], operands: tuple[Traced, ...]):
        self.nodes = nodes
        self.operands = operands
        self.shape: tuple[Extent, ...] = merge([tuple(n.shape) for n in nodes])

    @property
    def op(self) -> Op:
        return self.nodes[0].op

    @property
    def dtype(self) -> DType:
        return self.nodes[0].dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def attrs(self) -> tuple[Any, ...]:
        try:
            return tuple(merge(each) for each in zip(*(n.attrs for n in self.nodes), strict=True))
        except TypeError as error:
            raise OnnxExporterError(
                f"{self}: the attributes depend on the sizes of the dynamic axes, and not just as "
                f"sizes: {self.nodes[0].attrs} and {self.nodes[-1].attrs}"
            ) from error

    def __str__(self) -> str:
        return f"{self.op.name} at {format_location(self.nodes[0].loc)}"


class Alignment:
    """Pairs up the nodes of the recordings.

    source: returns the source of leaf `node` in recording `i`, by which leaves are matched.
    """

    def __init__(self, source: Callable[[int, Node], Any]):
        self.source = source
        self.known: dict[tuple[Node, ...], Traced] = {}

    def trace(self, nodes: Sequence[Node]) -> Traced:
        """The Traced of `nodes`, which has one node for each recording."""
        goal = _values(nodes)
        stack = [goal]
        while stack:
            top = stack[-1]
            if top in self.known:
                stack.pop()
                continue
            same = _as_one_op(top)
            self._check(same)
            operands = [_values(each) for each in zip(*(n.operands for n in same), strict=True)]
            missing = [each for each in operands if each not in self.known]
            if missing:
                stack += missing
                continue
            self.known[top] = Traced(same, tuple(self.known[each] for each in operands))
        return self.known[goal]

    def decomposed(self, traced: Traced) -> Traced:
        """The decomposition of a composite."""
        return self.trace([decomposed(n) for n in traced.nodes])

    def _check(self, nodes: tuple[Node, ...]) -> None:
        first = nodes[0]
        for i, other in enumerate(nodes):
            same = (
                other.op is first.op
                and len(other.operands) == len(first.operands)
                and other.dtype is first.dtype
                and other.rank == first.rank
            )
            if same and first.op is ops.leaf:
                same = self.source(0, first) == self.source(i, other)
            if not same:
                raise GraphsDiffer(
                    "export: the graph itself depends on the size of a dynamic axis, as in a "
                    "Python loop or branch over it: "
                    f"once it has {_shown(first)}, once {_shown(other)}"
                )


_WHOLE: dict[Op, Callable[[Node], tuple[Any, ...]]] = {
    REGISTRY["slice"]: lambda x: ((0,) * x.rank, tuple(x.shape), (1,) * x.rank),
    REGISTRY["reshape"]: lambda x: (tuple(x.shape),),
    REGISTRY["expand"]: lambda x: (tuple(x.shape),),
    REGISTRY["pad"]: lambda x: ((0,) * x.rank,) * 3,
}
"""The attributes with which an op leaves its operand unchanged."""


def _as_one_op(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """`nodes`, made of one op. A recording lacks a movement that changes nothing at its sizes, such
    as `table[:t]` where t is the whole length. Such nodes get the movement here."""
    found = {n.op for n in nodes}
    if len(found) == 1:
        return nodes
    for op in found & set(_WHOLE):
        others = [n for n in nodes if n.op is not op]
        below = {n.operands[0].op for n in nodes if n.op is op}
        if below == {n.op for n in others}:
            more = next(n.operands[1:] for n in nodes if n.op is op)  # the fill value of a pad
            return tuple(n if n.op is op else intern(op, (n, *more), _WHOLE[op](n)) for n in nodes)
    return nodes


def _shown(node: Node) -> str:
    sizes = "×".join(map(str, node.shape)) or "scalar"
    return f"{node.op.name} ({sizes}, {format_location(node.loc)})"


def _values(nodes: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(map(_value, nodes))


def _value(node: Node) -> Node:
    """The node beneath markers, which has their value."""
    while True:
        place = MARKERS.get(node.op)
        if place is None:
            return node
        node = node.operands[place]
