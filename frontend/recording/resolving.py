"""The nodes of tensors in this epoch: those of their memory, and what views show of it.

A tensor that holds a value becomes a leaf when it is first used.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, grad_mode
from tilewright.ir.shape import Size
from tilewright.runtime import devices

from . import epoch, views
from .aliases import CONTINUES, NEW, another, continuing, origin
from .epoch import (
    clock,
    ending,
    given,
    handles,
    latest_nodes,
    leaf_node,
    leaves,
    storages,
    variable,
    variables,
    windows,
)
from .references import OwnReference
from .roots import Root, is_outdated, source_of
from .states import NO_BUFFER, Handle, Storage


def resolve(t: Any) -> Node:
    """The node of tensor `t` in this epoch."""
    node = t._node
    if node is not None:
        return node
    storage = t._storage
    if storage is None and not (t._shared or t._history):
        buffer = t._buffer
        if buffer.__class__ not in NO_BUFFER:  # the usual case of `leaf`
            place, aval = len(leaves), t._aval
            known = latest_nodes.get(place)
            node = known[1] if known is not None and known[0] is aval else leaf_node(place, aval)
            if epoch.inferred:
                node = _told_apart(node, t)
            if t._requires_grad:
                node = variable(node, t)
            t._node, t._place = node, place
            leaves.append((t, node, buffer))
            clock.leaf_bytes += getattr(buffer, "nbytes", 0)
            return node
    if (
        storage is not None
        and storage._node is None
        and getrefcount(storage) == 3  # `t`, the local name and the argument
        and (t._chain is None or t._chain.only_detaches)
        and source_of(t) is None
    ):
        _keep_alone(t, storage)
        storage = None
    if storage is None:
        node = leaf(t, t)
        if t._shared is None:
            t._node = node
        return node
    if storage._node is None and t._chain is not None:
        found = _window(t, storage)
        if found is not None:
            return found
    base = resolve_state(storage)
    outdated = t._chain is not None and t._chain.multiple is not None and is_outdated(t, base)
    node = _view_node(t, storage, base)
    if storage._shared is None and not outdated:
        t._node = node
        storage._views.append(t)
    return node


def resolve_all(tensors: Sequence[Any]) -> list[Node]:
    """The nodes of many tensors. Tensors that are their own storage are numbered in one pass."""
    nodes = [t._node for t in tensors]
    if None not in nodes:
        return nodes
    latest, read, number = latest_nodes.get, leaves.append, len(leaves)
    for i, t in enumerate(tensors):
        if nodes[i] is not None:
            continue
        buffer = t._buffer
        if t._node or t._storage or t._shared or t._history or buffer.__class__ in NO_BUFFER:
            nodes[i] = resolve(t)
            number = len(leaves)
            continue
        aval = t._aval
        known = latest(number)
        node = known[1] if known and known[0] is aval else leaf_node(number, aval)
        if epoch.inferred:
            node = _told_apart(node, t)
        if t._requires_grad:
            node = variable(node, t)
        t._place = number
        read((t, node, buffer))
        nodes[i] = t._node = node
        number += 1
    return nodes


def resolve_state(state: Any) -> Node:
    """The node of a tensor or of a storage."""
    if isinstance(state, Handle):
        return resolve(state)
    if state._node is None:
        node = leaf(state, state._leaf_owner)
        if state._shared is not None:
            return node
        state._node = node
        storages.append(state)
    return state._node


def leaf(state: Any, owner: Any) -> Node:
    """Number `state` as the next leaf of the epoch. `owner` collects the gradient, if it requires
    one."""
    buffer = state._buffer
    if buffer.__class__ in NO_BUFFER:
        if buffer is not None:
            raise buffer.error()
        raise RuntimeError("this tensor holds no value" + at_user_line())
    owned = state
    if state._shared is not None:
        # NumPy may change the array, so take a snapshot now.
        if state._shared.released():
            state._shared = None
            state._buffer = buffer = np.asarray(buffer, order="C")
        else:
            owned, buffer = None, np.array(buffer, copy=True, order="C")
    place = len(leaves)
    node = _told_apart(leaf_node(place, state._aval), state)
    if state._history is not None:
        node = variable(node, state._history)
    elif state._requires_grad and owner is not None:
        node = variable(node, owner)
    if owned is not None:
        state._place = place
    leaves.append((owned, node, buffer))
    clock.leaf_bytes += getattr(buffer, "nbytes", 0)
    return node


def _window(t: Any, storage: Storage) -> Node | None:
    """A view of contiguous memory as a leaf of its own; None if it must be read through its base.

    So a batch cut from a dataset is the same node in every step, wherever it begins. Of memory
    shared with NumPy only the part in view is copied.
    """
    buffer = storage._buffer
    if (
        clock.looking  # an inspected graph shows where the view comes from
        or t._requires_grad
        or source_of(t) is not None
        or storage._requires_grad
        or storage._history is not None
        or buffer.__class__ in NO_BUFFER
        or (type(buffer) is np.ndarray and not buffer.flags.c_contiguous)
    ):
        return None
    layout = t._chain.layout
    if layout is None or t._chain.retypes:
        return None
    shape, strides, start = layout
    shared = storage._shared is not None and not storage._shared.released()
    dense = views.is_contiguous(shape, strides)
    count = views.numel(shape)
    if dense:
        fits = count < buffer.size
    else:  # a copy that is made anyway has few elements, in order
        fits = shared and 2 * count <= buffer.size and 0 not in strides
    if not fits:
        return None
    _, dtype, device = t._aval
    part = (
        devices.get(device).part(buffer, start, shape) if dense else views.seen_in(buffer, t._chain)
    )
    if part is None:
        return None
    node = _told_apart(leaf_node(len(leaves), (Size(shape), dtype, device)), storage)
    if shared:
        leaves.append((None, node, np.array(part, order="C")))
        clock.leaf_bytes += part.nbytes
        return node
    leaves.append((storage, node, part))
    windows.append(storage)
    storage._views.append(t)
    handles.append(t)
    t._node = node
    return node


def _told_apart(node: Node, state: Any) -> Node:
    """The node of a leaf, with a mark outside of inference mode if its tensor was made in it."""
    if epoch.inferring or state._changes is not epoch.untracked or not epoch.inferred:
        return node
    return ops.inference(node)


def _keep_alone(t: Any, storage: Storage) -> None:
    """Make `t` its own storage again: the other tensors that shared it are gone."""
    t._buffer, t._aval = storage._buffer, storage._aval
    t._changes, t._rewrites = storage._changes, storage._rewrites
    t._shared = storage._shared
    t._history = storage._history if t._chain is None else None
    t._storage = t._chain = t._root = t._leaf = None


def _view_node(t: Any, storage: Storage, base: Node) -> Node:
    start, chain = start_of(t, base)
    # The view was taken before, so the present grad mode doesn't affect it.
    with grad_mode(start.requires_grad or graph.grad_enabled()):
        node = start if chain is None else _seen_from(t, storage, start, chain)
    if node.requires_grad and chain is not None and storage._shared is None:
        if node in given:
            node = another(node)
        else:
            given[node] = 0
    if t._requires_grad and storage._leaf_owner is not t:
        node = variable(node, t)
    return node if t._history is None else _continuing(t, storage, base, node)


def start_of(t: Any, base: Node) -> tuple[Node, views.Chain | None]:
    """The node that the history of `t` starts from, and the chain from there to `t`, or None: the
    memory's node `base`, or what the root of `t` shows of it, if that has a history of its own."""
    source = None if t._root is None else source_of(t)
    if source is None:
        return base, t._chain
    links, depth = t._chain.links, t._root.depth
    node, chain = resolve(source), None
    if source._root is not t._root:  # it has a history alone, or other memory by now
        value = base
        with grad_mode(True):
            for kind, attrs in links[:depth]:
                value = views.seen(value, kind, attrs)
            node = ops.with_value(node, value)
    for kind, attrs in links[depth:]:
        chain = views.chained(chain or node.shape, kind, attrs)
    return node, chain


def at_root(t: Any) -> Any:
    """A view of all that the root of the view `t` shows, with the same history; None if it has no
    root, or looks at another dtype."""
    root, links = t._root, t._chain.links
    if root is None or t._chain.retypes or any(v.detaches for v, _ in links[root.depth :]):
        return None
    chain: Any = t._chain.base
    for kind, attrs in links[: root.depth]:
        chain = views.chained(chain, kind, attrs)
    whole = object.__new__(epoch.tensor_type)
    whole._storage, whole._chain, whole._root = t._storage, chain, root
    whole._aval = (chain.size, *t._typed()[1:])
    whole._writes = root._writes
    if root.leaf is not None:
        whole._leaf = t if t._leaf is None else t._leaf
    return whole


def _seen_from(t: Any, storage: Storage, base: Node, chain: views.Chain) -> Node:
    """What the view `t` shows of `base` through `chain`. Its gradient goes through the views that
    it was taken of, until the memory is written to: then PyTorch makes each view anew from the
    base."""
    parent = t._parent
    if t._writes != (t._root or storage)._writes:
        return seen_anew(base, chain)
    if parent is not None and parent._root is t._root and parent._storage is storage:
        node = resolve(parent)
        for kind, attrs in t._chain.links[len(parent._chain.links) :]:
            node = views.seen(node, kind, attrs)
        return node
    if chain not in base.memo:
        base.memo[chain] = views.apply(base, chain)
    return base.memo[chain]  # type: ignore[no-any-return]


def seen_anew(base: Node, chain: views.Chain) -> Node:
    """What `chain` shows of `base`, apart from all other views."""
    if not base.requires_grad:
        return views.apply(base, chain)
    key = ("anew", chain)
    if key not in base.memo:
        number = base.memo["anew"] = base.memo.get("anew", NEW) - 1
        base.memo[key] = views.apply(ops.alias(base, number), chain)
    return base.memo[key]  # type: ignore[no-any-return]


def _continuing(t: Any, storage: Storage, base: Node, node: Node) -> Node:
    """The node of the view `t` in a later epoch than its first one: `node`, with the history that
    `t` has from there, unless its memory was written to since."""
    base, history = origin(base), t._history
    if t._root is not None:
        is_same = source_of(t) is history.base
    else:
        is_same = base.op is ops.variable and variables[base.attrs[0]] is history.base
    if not is_same or (t._root or storage)._writes != history.writes:
        t._history = None
        return node
    end = ending(ops.expand(ops.constant(0, node.dtype, node.device), node.shape), history)
    return continuing(end, node)


def history_node(t: Any) -> Node:
    """The node in this epoch that all uses of `t` since its last write with gradients lead to. A
    write without gradients gives a tensor a new value and leaves its history; only its views are
    then new to autograd, as in PyTorch."""
    node = resolve(t)
    if t._chain is not None:
        end = None if t._history is None else node.memo.get(CONTINUES)
        return node if end is None else end
    return origin(node)


def set_requires_grad(t: Any, enabled: bool) -> None:
    """Make `t` a leaf that does or doesn't collect gradients. Its history is dropped."""
    storage = t._storage
    states = [t] if storage is None or t._chain is not None else [t, storage]
    for state in states:
        state._requires_grad = enabled
        state._history = None
    if len(states) == 2:
        storage._leaf_owner = t if enabled else None
    elif t._chain is not None:
        depth = len(t._chain.links)
        if t._root is None or t._root.depth != depth:
            t._root, t._leaf = Root(depth), None
        t._root.leaf = weakref.ref(t) if enabled else None
    if len(states) == 2 and storage._node is not None:
        resolve(t)  # a view was written to, so the storage alone has the node
    old = t._node
    if old is None:
        return
    node = variable(old, t) if enabled else old
    while not enabled and node.op is ops.variable:
        node = node.operands[0]
    if not enabled and node.requires_grad:
        node = ops.detach(node)
    for state in states:
        set_node(state, old, node)
    if storage is not None:
        outdate(v for v in storage._views if v is not t)  # with or without gradient


def set_node(state: Any, old: Node, node: Node) -> None:
    """Give a tensor or storage a node for the same value in the place of `old`."""
    state._node = node
    place = state._place
    if 0 <= place < len(leaves) and leaves[place][0] is state and leaves[place][1] is old:
        leaves[place] = (state, node, leaves[place][2])


def outdate(tensors: Iterable[Any]) -> None:
    """Let views be resolved anew from what they look at."""
    for v in tensors:
        if v._node is not None:
            v._aval = (v._node.shape, v._node.dtype, v._node.device or "cpu")
            v._node = None


def storage_of(t: Any) -> Storage:
    """The storage of `t`. It is made when a second tensor begins to share the memory."""
    storage = t._storage
    if storage is None:
        storage = Storage()
        storage._views = []
        try:
            _adopt(storage, t)
        except BaseException:  # an interrupt: complete the move first
            _adopt(storage, t)
            raise
    return storage


def _adopt(storage: Storage, t: Any) -> None:
    """Move the state of `t` to `storage`. An interrupted move may be started again."""
    if t._storage is None:
        storage._node = t._node
        storage._buffer, storage._aval = t._buffer, t._aval
        storage._history = t._history
        storage._changes, storage._rewrites = t._changes, t._rewrites
        storage._shared, storage._place = t._shared, t._place
        storage._requires_grad = t._requires_grad
        if t._requires_grad:
            storage._leaf_owner = t
        storage._first = OwnReference(t)
        t._storage = storage
    t._buffer = t._history = t._shared = None
    if t._node is not None:
        storage._views[:] = [t]
        if not storages or storages[-1] is not storage:
            storages.append(storage)
        place = t._place
        if 0 <= place < len(leaves) and leaves[place][0] is t:
            leaves[place] = (storage, *leaves[place][1:])
