"""One graph, generic in sizes, from graphs of the same program at several sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..fx.graph import Graph
from ..fx.node import Node, map_arg
from ..onnx.align import Varying
from ..onnx.sizes import express


class GraphsDiffer(RuntimeError):
    """The program takes another course at other sizes."""


@dataclass(frozen=True)
class Place:
    """A size of an input: its node, and the axis; None if the input is a number."""

    node: Node
    axis: int | None


class _Alignment:
    """graphs: of one program. known: sizes of inputs, by their values in the graphs."""

    def __init__(self, graphs: Sequence[Graph], known: Mapping[Varying, Place]):
        self.graphs, self.known = graphs, known
        self.main = graphs[0]
        self.numbers = [{n: i for i, n in enumerate(g.nodes)} for g in graphs]
        self.formulas: dict[Varying, Node] = {}
        self.nodes = list(self.main.nodes)

    def run(self) -> None:
        """Change the first graph to one for all sizes. GraphsDiffer if there is none."""
        columns = [list(g.nodes) for g in self.graphs]
        for group in zip(*columns, strict=False):
            self._same(group)
        if len({len(c) for c in columns}) > 1:
            raise GraphsDiffer("how many calls it makes depends on a size")
        for group in zip(*columns, strict=True):
            self._merge(group)
        for group in zip(*columns, strict=True):
            self._fold(group)
        for node in columns[0]:
            if node.meta.get("fact") and _is_constant(node.args[0]):
                self.main.erase_node(node)

    def _same(self, group: Sequence[Node]) -> None:
        first = group[0]
        for other in group:
            if other.op != first.op or other.target != first.target:
                raise GraphsDiffer(f"once there is {_shown(first)}, once {_shown(other)}")

    def _merge(self, group: Sequence[Node]) -> None:
        first = group[0]
        if first.meta.get("fact"):
            self._value([n.args[0] for n in group], first)  # the text has the sizes of one graph
            return
        args = self._value([n.args for n in group], first)
        kwargs = self._value([dict(n.kwargs) for n in group], first)
        first._set(args, kwargs)

    def _value(self, values: Sequence[Any], at: Node) -> Any:
        first = values[0]
        if all(isinstance(v, Node) for v in values):
            places = {numbers[v] for numbers, v in zip(self.numbers, values, strict=True)}
            if len(places) > 1:
                raise GraphsDiffer(f"what {_shown(at)} is given depends on a size")
            return first
        if any(type(v) is not type(first) for v in values):
            raise GraphsDiffer(f"what {_shown(at)} is given depends on a size: {values}")
        if isinstance(first, (tuple, list)) and all(len(v) == len(first) for v in values):
            parts = [self._value(each, at) for each in zip(*values, strict=True)]
            if hasattr(first, "_fields"):
                return type(first)(*parts)
            return tuple(parts) if isinstance(first, tuple) else parts
        if isinstance(first, dict) and all(v.keys() == first.keys() for v in values):
            return {k: self._value([v[k] for v in values], at) for k in first}
        if isinstance(first, slice):
            ends = [(v.start, v.stop, v.step) for v in values]
            return slice(*self._value(ends, at))
        if all(v is first or v == first for v in values):
            return first
        if type(first) is int:
            return self._formula(Varying(values), at)
        raise GraphsDiffer(f"what {_shown(at)} is given depends on a size: {values}")

    def _formula(self, goal: Varying, at: Node) -> Node:
        """The node of a number that a program made of sizes by ways that no trace sees, such as
        int()."""
        if goal not in self.formulas:
            found = express(goal, list(self.known))
            if found is None:
                raise GraphsDiffer(
                    f"{_shown(at)} gets a number that depends on a size in no simple way: "
                    f"{', '.join(map(str, goal))}"
                )
            last = [n for n in self.main.nodes if n.op == "placeholder"][-1]
            with self.main.inserting_after(last):
                total: Any = found.offset
                for factor, sizes in found.terms:
                    value: Any = factor
                    for size in sizes:
                        value = self._calculated(operator.mul, value, self._size(self.known[size]))
                    total = self._calculated(operator.add, total, value)
                for target, number in (
                    (operator.floordiv, found.divisor),
                    (operator.mod, found.modulus or None),
                    (operator.mul, found.scale),
                    (operator.add, found.shift),
                ):
                    if number is not None:
                        total = self._calculated(target, total, number)
            self.formulas[goal] = total
        return self.formulas[goal]

    def _size(self, place: Place) -> Node:
        if place.axis is None:
            return place.node
        made = self.main.call_method("size", (place.node, place.axis))
        made.meta["pure"] = True
        return made

    def _calculated(self, target: Callable[..., Any], a: Any, b: Any) -> Any:
        """a node for `target(a, b)`, or the operand that it leaves unchanged."""
        neutral = 0 if target is operator.add else 1
        if b == neutral:
            return a
        if a == neutral and target in (operator.add, operator.mul):
            return b
        made = self.main.call_function(target, (a, b))
        made.meta["pure"] = True
        return made

    def _fold(self, group: Sequence[Node]) -> None:
        """A number that is the same at all sizes becomes a constant."""
        first = group[0]
        values = [n.meta.get("value") for n in group]
        if values[0] is None or any(
            type(v) is not type(values[0]) or v != values[0] for v in values
        ):
            return
        for user in list(first.users):
            replace(user, first, values[0])


def replace(user: Node, old: Node, value: Any) -> None:
    """Give a node a constant in the place of an input."""

    def new(node: Node) -> Any:
        return value if node is old else node

    user._set(map_arg(user.args, new), map_arg(user.kwargs, new))


def _is_constant(condition: Node) -> bool:
    """Whether a fact is about numbers that are the same at all sizes."""
    inputs = condition.all_input_nodes
    return not inputs or (condition.target is operator.not_ and _is_constant(inputs[0]))


def align(graphs: Sequence[Graph], known: Mapping[Varying, Place]) -> None:
    """Make the first of several graphs of one program that for all sizes."""
    _Alignment(graphs, known).run()


def _shown(node: Node) -> str:
    if "shown" in node.meta:
        return str(node.meta["shown"])
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?")
    return f"{name}(){node.meta.get('stack_trace') or ''}"
