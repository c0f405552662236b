"""The histories that an epoch keeps for its surviving tensors and later backward passes."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node, reachable
from tilewright.ir.op import Kind
from tilewright.ir.ops.marker import value_node

from . import views
from .aliases import CONTINUES, origin
from .derivations import is_read_transposed, saved_nodes, saves
from .epoch import (
    clock,
    contexts,
    differentiable_views,
    freed,
    handles,
    hooked,
    leaves,
    moved,
    mutated,
    rewritten,
    scalars,
    storages,
    variables,
    viewed,
    windows,
)
from .histories import Held, History, Shared, Viewed, after, variables_of
from .parts import differentiable, inside, partition
from .roots import source_of
from .states import Handle

Seen = dict[Node, tuple[Any, "views.Chain | None"]]
"""The tensor or storage that has a value, and how a view looks at it."""


def histories_of(
    live: Sequence[Any], nodes: Sequence[Node], tracked: Sequence[int]
) -> tuple[dict[int, History], list[History]]:
    """The histories of the live tensors at the places `tracked`, by the tensor's id; and all that
    need values, those of inner parts of the graph among them."""
    nodes = [*nodes]
    out: dict[int, History] = {}
    open_: list[int] = []
    over: list[int] = []
    if freed:
        ends, places = _ends({nodes[i] for i in tracked}), _places()
    for i in tracked:
        state, node = live[i], nodes[i]
        if CONTINUES in node.memo:
            node = origin(node)
            if node.op is ops.variable:
                out[id(state)] = variables[node.attrs[0]]
                continue
            nodes[i] = node
        through = getattr(state, "_grad_freed", False)
        if freed and not through:
            through = places.get(id(state), 0) < ends.get(node, 0)
        if through and saves(node):  # a second pass would read what the first one freed
            over.append(i)
        else:
            open_.append(i)
    if over:
        histories = _freed_histories(tuple(dict.fromkeys([nodes[i] for i in over])))
        out |= {id(live[i]): histories[nodes[i]] for i in over}
    if not open_:
        return out, []
    parts = partition(tuple(dict.fromkeys([nodes[i] for i in open_])))
    inner: dict[Node, History] = {}
    for node in dict.fromkeys(itertools.chain(*parts.values())):  # in one order in all processes
        inner[node] = _history(node, parts[node], is_inner=True)
    for i in open_:
        out[id(live[i])] = _history(nodes[i], parts[nodes[i]])
    kept = [*(out[id(live[i])] for i in open_), *inner.values()]
    for history in kept:
        history.targets = {node: inner[node] for node in history.stops}
    return out, kept


def _history(node: Node, stops: tuple[Node, ...], is_inner: bool = False) -> History:
    return History(node, clock.number, saved_nodes(node, stops), stops, is_inner)


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


def _freed_histories(roots: tuple[Node, ...]) -> dict[Node, History]:
    """The histories of tensors whose graphs a backward pass has freed."""
    parts = partition(roots)
    found = {n: History(n, clock.number, ()) for n in parts}
    for node, stops in parts.items():
        history = found[node]
        ends = variables_of(node) if not stops else inside(node, stops)
        history.targets = {n: variables[n.attrs[0]] for n in ends if n.op is ops.variable}
        history.targets |= {n: found[n] for n in stops}
    for node in sorted(found, key=lambda n: n.seq):
        found[node].free()
    return {n: found[n] for n in roots}


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
    return [n for n in found if n in moved or n not in held]


def changed_for(nodes: Any, roots: Iterable[Node]) -> list[Node]:
    """Those of `nodes`, which the backward pass of `roots` reads, whose tensors were overwritten or
    given other memory."""
    found = overwritten(nodes)
    return [n for n in found if n not in moved or not is_read_transposed(n, roots)]


def present(node: Node) -> Node | None:
    """The value that a tensor has now in the place of the overwritten `node`; None if it was
    overwritten otherwise than through `.data`."""
    found = _present(node)
    if found is None:
        return None
    base, chains = found
    for chain in reversed(chains):
        base = views.apply(base, chain)
    return base


def _present(node: Node) -> tuple[Node, list[views.Chain | None]] | None:
    """See `present`: the node of the memory, and how it is viewed, the last view first."""
    chains = []
    while node in rewritten:
        node, chain = rewritten[node]
        chains.append(chain)
    return None if not chains or overwritten([node]) else (node, chains)


def _is_constant(node: Node) -> bool:
    found: bool | None = node.memo.get("constant")
    if found is None:
        inside = reachable([node])
        found = all(n.op.kind is not Kind.LEAF and n.op is not ops.variable for n in inside)
        node.memo["constant"] = found
    return found


def keep(
    histories: Sequence[History], nodes: tuple[Any, ...], values: list[Any], live: list[Any]
) -> None:
    """Give each history the values, leaves and targets that it needs after the epoch.

    nodes: those of `live`, then the other saved ones. values: of all `nodes`.
    """
    owners = dict(zip(map(_of_leaf, nodes), live))  # not strict: the other nodes have no owner
    for node in _twins({n for h in histories for n in h.saved_nodes if n in owners}):
        del owners[node]
        viewed.pop(node, None)
    known = {id(s): s for s in (*storages, *windows)} if viewed else {}
    # A view with a history of its own has a node around that of its value.
    seen: Seen = {
        value_node(n) if n.op is ops.with_value else n: (known.get(number), chain)
        for n, (number, chain) in viewed.items()
    }
    seen.update((n, (state, None)) for n, state in owners.items())
    saved = {
        n: _held(n, value, *seen.get(n, (None, None)))
        for n, value in zip(nodes[len(live) :], values[len(live) :], strict=True)
    }
    read = {n: _held_leaf(n, seen) for n in {n for h in histories for n in h.leaves}}
    shared = _shared(nodes[: len(live)])
    for history in histories:
        changed = changed_for(history.reads, (history.node,))
        history.keep(
            saved={n: saved[n] for n in history.saved_nodes},
            leaves={n: read[n] for n in history.leaves},
            scalars={n: scalars[n.attrs[0]] for n in history.scalars},
            variables={n: variables[n.attrs[0]] for n in history.variables},
            calls={n: contexts[n.attrs[0]] for n in history.calls},
            rewritten={n: t for n in changed if (t := _showing_now(n)) is not None},
            overwritten=frozenset(map(value_node, changed)),
        )
        history.shared = shared
        if not history.is_inner:
            shared.living.add(history)
        for node, target in history.targets.items():
            if isinstance(target, Handle) and target._storage is not None:
                _own_leaf(history, value_node(node), target)
    if clock.ends.is_asked:
        clock.ends.hooks = shared.hooks
        clock.ends.held = functools.partial(_held_by, [weakref.ref(h) for h in histories])
        for history in histories:
            clock.ends.targets.update({n: history.targets[n] for n in history.variables})


def _held_by(histories: Sequence[weakref.ref[History]], node: Node) -> Held | None:
    """The value of a node that one of the histories still has."""
    found = (h.held(node) for ref in histories if (h := ref()) is not None)
    return next((held for held in found if held is not None), None)


def histories_of_views(kept: Sequence[History]) -> list[tuple[Viewed, History]]:
    """The histories of views that are new in the epoch, or those of their memory, from which theirs
    are made if they outlive it; asked when the values have been handed out. kept: as of
    `histories_of`."""
    shared = kept[0].shared if kept else _shared(())
    found = []
    for seen in differentiable_views.values():
        v = seen.view()
        if v is None or seen.node is seen.base:
            continue
        if v._root is None:
            history = _of_view(v._storage, seen, shared)
        else:  # a view of a leaf that looks at other memory
            leaf = source_of(v)
            is_open = leaf is not None and leaf is not v._root.own
            history = _of_ends(seen, shared, leaf) if is_open else None
        if history is not None:
            found.append((seen, history))
    return found


def _of_view(storage: Any, seen: Viewed, shared: Shared) -> History | None:
    """The history of a view that the epoch made, or of its memory if that leads on; None if it has
    none."""
    if seen.base is None:
        return None
    memory = origin(seen.base)
    if memory.op is ops.variable:
        base = variables[memory.attrs[0]]
    else:
        base = storage._history
        if base is None or base.epoch != clock.number or base.node is not memory:
            return None
        if memory in differentiable(seen.node):
            return base
    return _of_ends(seen, shared, base)


def _of_ends(seen: Viewed, shared: Shared, base: Any) -> History:
    """The history of a view, of which a gradient reads no values. base: see `History`."""
    ends = variables_of(seen.node)
    # Calls on the tape may have read the view before this epoch ends. They come after its history.
    view = seen.view()
    is_taped = view is not None and view._is_taped
    number = min(after(base), clock.number) if is_taped else clock.number
    history = History(seen.node, number, (), shared=shared, base=base, writes=seen.writes)
    history.targets = {n: variables[n.attrs[0]] for n in ends}
    values = {value_node(n) for n in ends}
    history.leaf_values = {n: _held_leaf(n, {}) for n in values if n.op is ops.leaf}
    return history


def _shared(nodes: Iterable[Node]) -> Shared:
    """What histories of this epoch have in common. nodes: those of its living tensors."""
    times = Counter(n for n in nodes if n.requires_grad)
    return Shared(
        {n: list(each) for n, each in hooked.items()},
        dict(differentiable_views),
        frozenset(n for n, count in times.items() if count > 1),
    )


def _twins(nodes: set[Node]) -> set[Node]:
    """Those of `nodes` that two tensors computed by the same expression. Which one the derivative
    reads isn't known, so a write to one of them is no error."""
    found: set[Node] = set()
    first: dict[Node, Any] = {}
    for h in (*handles, *storages) if nodes else ():
        node = h._node
        if node is not None and node.op is ops.variable:
            node = value_node(node)
        if node in nodes:
            state = getattr(h, "_storage", None) or h
            if first.setdefault(node, state) is not state:
                found.add(node)
    return found


def _of_leaf(node: Any) -> Any:
    """The node of a leaf's value; other nodes as they are."""
    return value_node(node) if node is not None and node.op is ops.variable else node


def _own_leaf(history: History, value: Node, target: Any) -> None:
    """Make the leaf tensor `target` the owner of its value, as it may get other memory."""
    for kept in (history.saved, history.leaf_values):
        held = kept.get(value)
        if held is not None and held.owner is not None and held.state is target._storage:
            kept[value] = Held.of(held.tensor, target)


def _showing_now(node: Node) -> Held | None:
    """The tensor that shows what stands in the place of the overwritten `node`; None if it was
    overwritten otherwise than through `.data`."""
    found = _present(node)
    if found is None:
        return None
    target = variables[node.attrs[0]] if node.op is ops.variable else None
    if isinstance(target, Handle):
        return Held.of(target, target)
    base, chains = found
    for storage in storages:
        if storage._node is base and chains[1:] == [None] * (len(chains) - 1):
            t = Handle()
            t._storage, t._chain = storage, chains[0]
            t._aval = (node.shape, node.dtype, node.device or "cpu")
            return Held.of(t, storage, chains[0])
    return None


def _held_leaf(node: Node, seen: Seen) -> Held:
    state, rest, buffer = leaves[node.attrs[0]]
    if state is not None and state._node is rest:
        return _held(node, buffer, state, None)
    # A state that was written to has another node now. `overwritten` tells whether that is an
    # error.
    return _held(node, buffer, *seen.get(node, (None, None)))


def _held(node: Node, buffer: Any, owner: Any, chain: views.Chain | None) -> Held:
    t = Handle()
    t._buffer, t._aval = buffer, (node.shape, node.dtype, node.device or "cpu")
    return Held.of(t, owner, chain)
