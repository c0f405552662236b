"""The histories that an epoch keeps for its surviving tensors and later backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node, reachable
from tilewright.ir.op import Kind

from .epoch import (
    Handle,
    clock,
    contexts,
    freed,
    handles,
    hooked,
    leaves,
    mutated,
    scalars,
    storages,
    variables,
)
from .histories import (
    History,
    differentiable,
    reads_of,
    saved_nodes,
    saves,
    value_node,
)


def histories_of(
    live: Sequence[Any], nodes: Sequence[Node], tracked: Sequence[int]
) -> dict[int, History]:
    """The histories of the live tensors at the places `tracked`, by the tensor's id."""
    out: dict[int, History] = {}
    if freed:
        ends, places = _ends({nodes[i] for i in tracked}), _places()
    for i in tracked:
        state, node = live[i], nodes[i]
        through = getattr(state, "_grad_freed", False)
        if freed and not through:
            through = places.get(id(state), 0) < ends.get(node, 0)
        if through and saves(node):  # a second pass would read what the first one freed
            out[id(state)] = _freed_history(node)
        else:
            out[id(state)] = History(node, clock.number, saved_nodes(node))
    return out


def _ends(nodes: set[Node]) -> dict[Node, int]:
    """Those of `nodes` that backward passes of this epoch went through, and how many tensors there
    were at the last one."""
    ends: dict[Node, int] = {}
    for root, count in freed:
        ends.update(dict.fromkeys(nodes & differentiable(root), count))
    # Of two tensors that the same expression computed, a pass went through one.
    for node in _twins({*ends}):
        del ends[node]
    return ends


def _places() -> dict[int, int]:
    """The first place among the epoch's tensors of each of them and of each storage, by its id."""
    places: dict[int, int] = {}
    for i, t in enumerate(handles):
        places.setdefault(id(t), i)
        places.setdefault(id(t._storage), i)
    return places


def _freed_history(node: Node) -> History:
    """The history of a tensor whose graph a backward pass has freed."""
    history = History(node, clock.number, ())
    history.targets = {n: variables[n.attrs[0]] for n in history.variables}
    history.free()
    return history


def mark_freed(root: Node) -> None:
    freed.append((root, len(handles)))


def overwritten(nodes: Any) -> list[Node]:
    """The nodes whose tensors were overwritten in place, so that no tensor has them any more.

    Constants are left out. `torch.zeros(3)` in a backward pass has the same node as in the forward
    pass, so an overwritten constant doesn't show that the saved tensor changed.
    """
    if not mutated:
        return []
    found = [n for n in nodes if n in mutated and not _is_constant(n)]
    if not found:
        return []
    held = {h._node for h in handles}
    held.update(state._node for state, _, _ in leaves if state is not None)
    return [n for n in found if n not in held]


def _is_constant(node: Node) -> bool:
    found: bool | None = node.memo.get("constant")
    if found is None:
        inside = reachable([node])
        found = all(n.op.kind is not Kind.LEAF and n.op is not ops.variable for n in inside)
        node.memo["constant"] = found
    return found


def keep(
    histories: dict[int, History], nodes: tuple[Any, ...], values: list[Any], live: list[Any]
) -> None:
    """Give each history the values, leaves and targets that it needs after the epoch.

    nodes: those of `live`, then the other saved ones. values: of all `nodes`.
    """
    owners = dict(zip(nodes, live))  # not strict: the other nodes have no owner
    for node in _twins({n for h in histories.values() for n in h.saved_nodes if n in owners}):
        del owners[node]
    saved = dict(zip(nodes[len(live) :], values[len(live) :], strict=True))
    # Shared by the epoch's histories, so that all of them see a hook that is set later.
    hooks = {n: list(each) for n, each in hooked.items()}
    for history in histories.values():
        changed = map(value_node, overwritten(reads_of(history.node)))
        history.keep(
            saved={n: _held(n, saved[n], owners.get(n)) for n in history.saved_nodes},
            leaves={n: _held_leaf(n) for n in history.leaves},
            scalars={n: scalars[n.attrs[0]] for n in history.scalars},
            variables={n: variables[n.attrs[0]] for n in history.variables},
            calls={n: contexts[n.attrs[0]] for n in history.calls},
            overwritten=frozenset(changed),
        )
        history.hooks = hooks
    if clock.ends.is_asked:
        clock.ends.hooks = hooks
        for history in histories.values():
            clock.ends.targets.update(history.targets)


def _twins(nodes: set[Node]) -> set[Node]:
    """Those of `nodes` that two tensors computed by the same expression. Which one the derivative
    reads isn't known, so a write to one of them is no error."""
    found: set[Node] = set()
    first: dict[Node, Any] = {}
    for h in (*handles, *storages) if nodes else ():
        node = h._node
        if node in nodes:
            state = getattr(h, "_storage", None) or h
            if first.setdefault(node, state) is not state:
                found.add(node)
    return found


def _held_leaf(node: Node) -> tuple[Any, Any, int]:
    state, rest, buffer = leaves[node.attrs[0]]
    # A state that was written to has another node now. `overwritten` tells whether that is an
    # error.
    return _held(node, buffer, state if state is not None and state._node is rest else None)


def _held(node: Node, buffer: Any, owner: Any) -> tuple[Any, Any, int]:
    t = Handle()
    t._buffer, t._aval = buffer, (node.shape, node.dtype, node.device or "cpu")
    return t, owner, (owner._changes if owner is not None else 0)
