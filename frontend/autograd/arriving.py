"""Leaf gradients that are added to `.grad` while a backward pass is under way, so that the hooks
that come after them in the pass see them there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import Passed

from .. import recording
from ..recording import epoch
from ..recording.derivations import read_by_vjp
from ..recording.histories import History
from ..recording.parts import is_call, is_call_output
from .pending import Pending

Hook = Callable[[Node], Node | Passed]


class Arriving:
    """The leaves whose gradients are whole before the pass leaves a graph.

    add: adds to the gradient of a leaf that the pass has found. publish: adds that gradient to the
    leaf's `.grad`.
    seeds: the nodes at which the pass enters the graph. pending: histories that it enters later.
    """

    def __init__(
        self,
        seeds: Iterable[Node],
        pending: Pending,
        add: Callable[[Any, Node], None],
        publish: Callable[[Any], None],
    ):
        self.add, self.publish = add, publish
        through = _through(seeds)
        # A Function's result may lead to variables of an earlier epoch, which have no place here.
        count = len(epoch.variables)
        targets = {
            n: recording.variable_target(n.attrs[0])
            for n in through
            if n.op is ops.variable and n.attrs[0] < count
        }
        pending.look(t for t in targets.values() if isinstance(t, History))
        leaves = {n: t for n, t in targets.items() if not isinstance(t, History)}
        waits = _rereads(through)
        self.targets = {n: t for n, t in leaves.items() if not waits and not pending.leads_to(t)}
        self.missing = Counter(id(t) for t in self.targets.values())

    def over(self, hooks: Mapping[Node, Hook]) -> dict[Node, Hook]:
        """The hooks of a walk, and those that see gradients arrive."""
        return {**hooks, **{n: self._hook(n, hooks.get(n)) for n in self.targets}}

    def _hook(self, node: Node, before: Hook | None) -> Hook:
        def arrive(g: Node) -> Node:
            given = g if before is None else before(g)
            assert isinstance(given, Node)  # a leaf passes no gradients on
            target = self.targets[node]
            self.add(target, given)
            self.missing[id(target)] -= 1
            if not self.missing[id(target)]:
                self.publish(target)
            return given

        return arrive


def _through(seeds: Iterable[Node]) -> list[Node]:
    """The nodes that a gradient can reach before it ends in variables."""
    found: dict[Node, None] = {}
    stack = [*seeds]
    while stack:
        node = stack.pop()
        if node.requires_grad and node not in found:
            found[node] = None
            if node.op is not ops.variable:
                stack.extend(node.operands)
    return list(found)


def _rereads(through: Iterable[Node]) -> bool:
    """Whether the pass may read values that were overwritten since: then gradients are computed
    again at its end."""
    if not epoch.mutated:
        return False
    return any(
        not epoch.mutated.isdisjoint(node.operands if is_call(node) else read_by_vjp(node))
        for node in through
        if not is_call_output(node)
    )
