"""The goal of a backward pass: the tensors whose gradients are asked for, and the way to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node

from .. import recording
from ..recording import resolving
from ..recording.histories import History, earliest_first
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
        self._ids = {id(t) for t in self.tensors}
        self._needed: dict[History, bool] = {}

    def is_wanted(self, target: Any) -> bool:
        """Whether the gradient that arrives at `target`, a leaf or a history, is asked for or leads
        to one that is."""
        if self.is_all:
            return True
        if isinstance(target, History):
            return self.begins_at(target) or self.is_needed(target)
        return id(target) in self._ids

    def is_needed(self, history: History) -> bool:
        """Whether `history` leads to a tensor asked for."""
        if self.is_all:
            return True
        for each in earliest_first(history, lambda h: h not in self._needed):
            self._needed[each] = self._leads_on(each)
        return self._needed[history]

    def _leads_on(self, history: History) -> bool:
        """As `is_needed`, where the answer for earlier histories is known."""
        if any(id(t) in self._ids for t in history.leaf_tensors()):
            return True
        if any(_node_in(t, history) not in (None, history.node) for t in self.tensors):
            return True
        if history.is_freed:  # the histories before it aren't known
            return any(
                own is not None and own.epoch < history.epoch
                for own in map(history_of, self.tensors)
            )
        return any(self._needed[h] or self.begins_at(h) for h in history.before())

    def begins_at(self, history: History) -> bool:
        """Whether `history` is that of a tensor asked for."""
        return any(_begins_at(history, t) for t in self.tensors)

    def through(self, batch: dict[History, Node]) -> dict[History, Node]:
        """Those of `batch` that a pass goes on through: they lead to a tensor asked for, or are
        that of one to which another one leads, too."""
        needed = [h for h in batch if self.is_needed(h)]
        met = {h for h in batch if h in needed or (self.begins_at(h) and is_inside(h.node, needed))}
        return {h: g for h, g in batch.items() if h in met}

    def reached(
        self, batch: dict[History, Node], through: dict[History, Node]
    ) -> list[tuple[Any, Node]]:
        """The tensors asked for whose histories are in `batch`, with their gradients, except those
        that are `inside` the histories that the pass goes `through`."""
        return [
            (t, g)
            for t in self.tensors
            for history, g in batch.items()
            if _begins_at(history, t)
            if history not in through or not is_inside(history.node, through)
        ]

    def inside(self, batch: Iterable[History]) -> dict[Node, Any]:
        """The nodes of tensors asked for that a pass meets on its way through `batch`."""
        inner = {}
        for t in self.tensors:
            for history in batch:
                node = _node_in(t, history)
                if node is None or node.op is ops.variable:  # a pass ends in variables anyway
                    continue
                if node is not history.node or is_inside(node, batch):
                    if history.shared.has_twin(node, historied(t)):
                        raise twins(node)
                    inner[node] = t
        return inner


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


def is_inside(node: Node, batch: Iterable[History]) -> bool:
    """Whether `node` is on the way to another history's node."""
    return any(h.node is not node and node in h.inside for h in batch)


def _node_in(t: Any, history: History) -> Node | None:
    """The node of `t` in the graph of `history`, if it has one."""
    node = node_of(t, history)
    return node if node in history.inside else None


def _begins_at(history: History, t: Any) -> bool:
    """Whether `history` is that of `t`, or the inner one at its node."""
    own = node_of(t, history) if history.is_inner else history_of(t)
    return own is (history.node if history.is_inner else history)
