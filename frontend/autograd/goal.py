"""The goal of a backward pass: the tensors whose gradients are asked for, and the way to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node

from .. import recording
from ..recording import resolving
from ..recording.histories import History, Shared, earliest_first
from ..recording.roots import historied
from .twins import twins


class Goal:
    """The tensors whose gradients a backward pass is asked for.

    tensors: each of them once; none if the gradients of all leaves are asked for.
    is_all: whether they are.
    """

    def __init__(self, wanted: Sequence[Any] | None):
        self.is_all = wanted is None
        self.tensors = list({id(t): t for t in wanted or ()}.values())  # one may be asked for twice
        self._places = {id(t): i for i, t in enumerate(self.tensors)}
        self._needed: dict[History, bool] = {}
        self._nodes: dict[tuple[Shared, int], dict[Node, list[Any]]] = {}

    def is_wanted(self, target: Any) -> bool:
        """Whether the gradient that arrives at `target`, a leaf or a history, is asked for or leads
        to one that is."""
        if self.is_all:
            return True
        if isinstance(target, History):
            return self.begins_at(target) or self.is_needed(target)
        return id(target) in self._places

    def is_needed(self, history: History) -> bool:
        """Whether `history` leads to a tensor asked for."""
        if self.is_all:
            return True
        for each in earliest_first(history, lambda h: h not in self._needed):
            self._needed[each] = self._leads_on(each)
        return self._needed[history]

    def _leads_on(self, history: History) -> bool:
        """As `is_needed`, where the answer for earlier histories is known."""
        own, earlier = history.leads()
        if any(id(ref()) in self._places for ref in own):
            return True
        if (self._nodes_of(history).keys() & history.inside) - {history.node}:
            return True
        if any(self.is_needed(h) or self.begins_at(h) for h in earlier):
            return True
        # Of what was before a freed one, only leaf tensors may be known.
        return history.is_freed and any(number < history.epoch for number in self._owned)

    def begins_at(self, history: History) -> bool:
        """Whether `history` is that of a tensor asked for."""
        return bool(self._begun_by(history))

    def _begun_by(self, history: History) -> Sequence[Any]:
        """The tensors asked for whose history is `history`, or has it as the inner one at their
        node."""
        if history.is_inner:
            return self._nodes_of(history).get(history.node, ())
        return [t for t, own in self._owned.get(history.epoch, ()) if own is history]

    @cached_property
    def _owned(self) -> dict[int, list[tuple[Any, History]]]:
        """The tensors asked for that have histories, by their epochs."""
        found: dict[int, list[tuple[Any, History]]] = {}
        for t in self.tensors:
            own = history_of(t)
            if own is not None:
                found.setdefault(own.epoch, []).append((t, own))
        return found

    def _nodes_of(self, history: History) -> dict[Node, list[Any]]:
        """The nodes in the epoch of `history` that tensors asked for had there."""
        key = history.shared, history.epoch
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = {}
            owned = self._owned.get(history.epoch, ())
            for t, own in owned:
                found.setdefault(own.node, []).append(t)
            others = self._places.keys() & history.shared.views.keys()
            for i in others.difference(id(t) for t, _ in owned):
                t = self.tensors[self._places[i]]
                node = history.shared.node_of(t)
                if node is not None:
                    found.setdefault(node, []).append(t)
        return found

    def through(self, batch: dict[History, Node]) -> dict[History, Node]:
        """Those of `batch` that a pass goes on through: they lead to a tensor asked for, or are
        that of one to which another one leads, too."""
        needed = {h: g for h, g in batch.items() if self.is_needed(h)}
        begun = [h for h in batch if h not in needed and self.begins_at(h)]
        if not begun:
            return needed
        inner = inside(needed)
        met = {h for h in begun if h.node in inner}
        return {h: g for h, g in batch.items() if h in needed or h in met}

    def reached(
        self, batch: dict[History, Node], through: dict[History, Node]
    ) -> list[tuple[Any, Node]]:
        """The tensors asked for whose histories are in `batch`, with their gradients, except those
        that are `inside` the histories that the pass goes `through`."""
        begun = {h: tensors for h in batch if (tensors := self._begun_by(h))}
        inner = inside(through) if begun else ()
        return [
            (t, batch[history])
            for history, tensors in begun.items()
            if history not in through or history.node not in inner
            for t in tensors
        ]

    def inside(self, batch: Iterable[History]) -> dict[Node, Any]:
        """The nodes of tensors asked for that a pass meets on its way through `batch`."""
        found: list[tuple[int, Node]] = []
        for shared, histories in by_shared(batch).items():
            nodes = self._nodes_of(histories[0])
            if not nodes:
                continue
            roots = {h.node for h in histories} & inside(batch)
            for node in nodes.keys() & (inside(histories) | roots):
                if node.op is ops.variable:  # a pass ends in variables anyway
                    continue
                for t in nodes[node]:
                    if shared.has_twin(node, historied(t)):
                        raise twins(node)
                    found.append((self._places[id(t)], node))
        return {node: self.tensors[i] for i, node in sorted(found, key=itemgetter(0))}


def history_of(t: Any) -> History | None:
    """The history of `t`, if an earlier epoch computed it, and this one hasn't written to it since
    with gradients."""
    t = historied(t)
    history: History | None = t._history if t._chain is not None else (t._storage or t)._history
    if history is None:
        return None
    node = resolving.history_node(t)
    is_still = node.op is ops.variable and recording.variable_target(node.attrs[0]) is history
    return history if is_still else None


def node_of(t: Any, history: History) -> Node | None:
    """The node of `t` in the epoch of `history`, if it had one."""
    own = history_of(t)
    if own is not None and own.epoch == history.epoch:
        return own.node
    return history.shared.node_of(t)


def inside(batch: Iterable[History]) -> set[Node]:
    """The nodes on the way to the histories' nodes. Those of other histories may be among them."""
    found: set[Node] = set()
    for history in batch:
        found.update(history.inside - {history.node})
    return found


def by_shared(batch: Iterable[History]) -> dict[Shared, list[History]]:
    """The histories by what they share."""
    found: dict[Shared, list[History]] = {}
    for history in batch:
        found.setdefault(history.shared, []).append(history)
    return found
