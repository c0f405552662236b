"""In-place writes: a storage gets a new node, which every tensor that shares it sees."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, grad_mode, intern
from tilewright.ir.ops.marker import value_node
from tilewright.ir.rewrite import substitute
from tilewright.ir.shape import Size, contiguous_strides
from tilewright.runtime import devices

from . import aliases, epoch, flushing, resolving, threads, views
from .aliases import CONTINUES
from .derivations import leads_to, reads
from .epoch import clock, handles, leaf_tensor, moved, mutated, rewritten, variable
from .reading import value_of
from .resolving import resolve, resolve_state
from .roots import Root
from .states import Handle, Storage, part_from_read_only


def assign(t: Any, node: Node, *, force: bool = False) -> Any:
    """Overwrite the value of `t`, for every tensor that shares its memory. Returns `t`.

    force: write even to a leaf that requires grad, whose history stays as it is.
    """
    if threads.claim() and node.operands:
        raise RuntimeError(
            "two threads write to tensors at once, and one had not finished what the other reads; "
            f"let one wait for the other{at_user_line()}"
        )
    part_from_read_only(t if t._storage is None else t._storage)
    old = resolve(t)
    owner = leaf_tensor(old) if old.requires_grad else None
    if owner is not None and graph.grad_enabled() and not force:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation; "
            f"use torch.no_grad() or .data{at_user_line()}"
        )
    node = _fitted(node, old)
    if node.op is ops.leaf:  # of another tensor, as the memory of this one has another value
        node = ops.clone(node)
    if t._storage is not None:
        _write_storage(t, t._storage, node)
        return t
    t._changes += 1  # an error for an inference tensor, before anything has changed
    if not _reads(node, old):
        mutated.add(old)
    if owner is not None:
        node = variable(node, owner)
    else:
        node = with_history(old, node)
        if node in epoch.given:
            node = aliases.another(node)
    if t._shared is not None:
        _write_through(t, node)
    else:
        t._node = node
    return t


def with_history(old: Node, new: Node) -> Node:
    """`new` in the place of `old`. If `old` required a gradient, the result does too."""
    if not old.requires_grad:
        return new
    if not graph.grad_enabled():
        with grad_mode(True):  # values change, the history stays
            new = ops.with_value(old, new)
        new.memo[CONTINUES] = old
        return new
    if new is old:  # a write to an empty view
        return ops.alias(old, aliases.NEW)
    if leads_to(new, old):
        return new
    return ops.overwritten(old, new)  # the leaves of `old` get zeros


def _fitted(node: Node, old: Node) -> Node:
    """`node` in the shape and dtype of `old`, which it overwrites, and on its device."""
    if node.shape != old.shape:
        if len(node.shape) > len(old.shape) or any(
            a not in (1, b) for a, b in zip(reversed(node.shape), reversed(old.shape), strict=False)
        ):
            raise RuntimeError(
                f"output with shape {list(old.shape)} doesn't match the broadcast shape "
                f"{list(node.shape)}{at_user_line()}"
            )
        node = ops.expand(node, old.shape)
    if node.dtype is not old.dtype:
        node = ops.cast(node, old.dtype)
    if node.op is ops.variable and node.requires_grad:
        node = ops.clone(node)  # another tensor's value, which keeps its own history
    if node.device is not None and old.device is not None:
        return ops.copy_to(node, old.device)
    return _placed(node, old.device)


def _placed(node: Node, device: str | None) -> Node:
    """Place a node on `device` if it depends on constants alone, which have no device."""
    if device is None or node.device is not None:
        return node
    operands = tuple(_placed(o, device) for o in node.operands)
    return intern(node.op, operands, node.attrs, device)


def _write_storage(t: Any, storage: Storage, value: Node) -> None:
    base = resolve_state(storage)
    value = _apart_from_hooks(t, base, value)
    seen = {resolve(t): t._chain}
    seen.update((v._node, v._chain) for v in storage._views if v._node is not None)
    seen[base] = None
    # An in-place op may read the old value for its own derivative: that is no write to a saved
    # value.
    read = {value_node(n) for n in seen if _reads(value, n)}
    owner = leaf_tensor(base) if base.requires_grad else None
    history = None
    if graph.grad_enabled() and _is_tracked(t, base, value, owner) and _is_detached(t):
        history = value
        value = ops.detach(value) if value.requires_grad else value
    if owner is not None:
        # The leaf stays a leaf; only its value changes.
        with grad_mode(False):
            new = _replaced(base, t._chain, value)
        new = variable(new, owner)
    else:
        new = with_history(base, _replaced(base, t._chain, value))
        if new.op is ops.with_value and new.operands[0] is base:
            new.memo[CONTINUES] = base  # the write was made through a detached view
    is_data = t._chain is not None and t._chain.is_data
    if is_data:
        storage._rewrites += 1
    else:
        if not (_is_detached(t) and storage._changes is epoch.untracked):
            storage._changes += 1
        storage._writes += 1
    if history is not None:
        _write_history(t, history)
    if t._root is not None:
        t._root._writes += 1
    mutated.update(n for n in seen if value_node(n) not in read)
    if is_data:  # PyTorch's backward pass reads the new value
        _stands_for(new, seen)
    if storage._shared is not None:
        part = views.seen_in(storage._buffer, t._chain)
        if part is not None and (owner is not None or not new.requires_grad):
            _write_through(storage, value, part)  # others may write to the rest meanwhile
        else:
            _write_through(storage, new)
        return
    resolving.outdate(storage._views)
    storage._views.clear()
    storage._node = new
    if new.requires_grad and t._chain is not None:
        new.memo["written"] = True


def _reads(value: Node, old: Node) -> bool:
    """Whether a derivative reads `old` on the way from there to `value`. It is known from then on:
    where `old` is a leaf, each search goes through all that was computed of it in the epoch."""
    if not value.requires_grad:
        return False
    key = (_reads, value, old)
    found = clock.table.get(key)
    if found is None:
        found = clock.table[key] = reads(value, old)
    return found


def _replaced(base: Node, chain: views.Chain | None, value: Node) -> Node:
    """`base` with the part that the chain shows replaced by `value`; known from then on."""
    key = (_replaced, base, chain, value, graph.grad_enabled())
    node = clock.table.get(key)
    if node is None:
        node = clock.table[key] = views.write(base, chain, value)
    return node


def _apart_from_hooks(t: Any, base: Node, value: Node) -> Node:
    """The new value of `t`, computed from the old one in the base if views have hooks: the gradient
    that goes on through the write is none of theirs."""
    if t._chain is None or not value.requires_grad:
        return value
    if not (epoch.hooked or _leads_to_hooks(t)):
        return value
    start, chain = resolving.start_of(t, base)
    if chain is None:
        return value
    return substitute((value,), {resolve(t): resolving.seen_anew(start, chain)})[0]


def _leads_to_hooks(t: Any) -> bool:
    """Whether the history of the view `t`, or of one that it was taken of, has hooks."""
    while t is not None:
        if t._history is not None and t._history.shared.hooks:
            return True
        t = t._parent
    return False


def _stands_for(new: Node, seen: Mapping[Node, views.Chain | None]) -> None:
    """Let backward passes read `new`, each time through a chain, in the place of other nodes."""
    rewritten.update((n, (new, chain)) for n, chain in seen.items())
    rewritten.pop(new, None)  # its value is back
    mutated.discard(new)
    moved.discard(new)


def _is_detached(t: Any) -> bool:
    return t._chain is not None and t._chain.detaches


def _is_tracked(t: Any, base: Node, value: Node, owner: Any) -> bool:
    """Whether a gradient flows through the new value of `t`, or flowed through the old one.

    RuntimeError where PyTorch refuses such a write. owner: the leaf of the memory, if there is one.
    """
    source = None if t._root is None else t._root.source()
    leaf = source is not None and source._requires_grad
    tracked = value.requires_grad or source is not None
    untracked = t._chain is not None and t._chain.is_untracked
    if not _is_detached(t):
        leaf, tracked = leaf or owner is not None, tracked or base.requires_grad
    elif untracked and t._root is None:
        tracked = tracked or base.requires_grad
    if leaf:
        raise RuntimeError(
            "a view of a leaf Variable that requires grad is being used in an in-place "
            f"operation{at_user_line()}"
        )
    if tracked and untracked:
        raise RuntimeError(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. Take the view and write to it both inside the no_grad block (no gradient "
            f"flows through the write) or both outside of it{at_user_line()}"
        )
    if tracked and t._chain is not None and t._chain.multiple is not None:
        raise RuntimeError(
            f"Output of {t._chain.multiple.name}() is a view and is being modified inplace. "
            "This view is the output of a function that returns multiple views. Such functions "
            "do not allow the output views to be modified inplace. You should replace the "
            f"inplace operation by an out-of-place one.{at_user_line()}"
        )
    return tracked


def _write_history(t: Any, value: Node) -> None:
    """Write `value` to the history of a detached tensor: `t`, or the one that `t` is a view of.
    Tensors with other histories share its memory."""
    links, root = t._chain.links, t._root
    if root is None or any(v.detaches for v, _ in links[root.depth :]):
        root = t._root = Root(len(links))  # a view taken without grad mode
    if root.own is None:
        own = object.__new__(epoch.tensor_type)
        own._node = resolve_state(t._storage)
        for view, attrs in links[: root.depth]:
            own._node = views.seen(own._node, view, attrs)
        handles.append(own)
        root.own = own
    base, chain = resolve(root.own), None
    for view, attrs in links[root.depth :]:
        chain = views.chained(chain or base.shape, view, attrs)
    assign(root.own, views.write(base, chain, value))


def _write_through(state: Any, node: Node, part: np.ndarray | None = None) -> None:
    """Make an in-place write to memory that NumPy sees. The array has the value when the call
    returns.

    part: the elements of this memory that get the value, if not all do.
    """
    into = state._buffer if part is None else part
    if _awaited is not None:
        _awaited.append((state, into, node))
        return
    if clock.holding:
        np.copyto(into, _array(value_of(node)))
        return
    holder = _holder(node)
    flushing.flush()
    if type(holder._buffer) is flushing.Failed:
        raise holder._buffer.error()
    np.copyto(into, _array(holder._buffer))
    if node.op is not ops.variable:
        state._history = holder._history


def _holder(node: Node) -> Handle:
    """A tensor that makes the flush compute `node` and keep its history."""
    holder = Handle()
    holder._node = node
    handles.append(holder)
    return holder


_awaited: list[tuple[Any, np.ndarray, Node]] | None = None
"""Writes to memory that NumPy sees, in an `assign_all`: they are computed together."""
_step: list[tuple[np.ndarray, Handle]] | None = None
"""Such writes of a whole step, and the tensors that get their values when it ends."""


@contextmanager
def step(may_wait: bool) -> Iterator[None]:
    """Let the flush that ends the block compute, with all else, what `assign_all` writes to memory
    that NumPy sees. After an error nothing of it is written.

    may_wait: whether nothing in the block reads what it writes.
    """
    global _step
    _step = [] if may_wait and not clock.holding else None
    try:
        yield
        for into, holder in _step or ():
            if holder._node is not None:  # nothing was computed, as calls are only looked at
                holder._buffer, holder._node = value_of(holder._node), None
            if type(holder._buffer) is flushing.Failed:
                raise holder._buffer.error()
            np.copyto(into, _array(holder._buffer))
    finally:
        _step = None


def _write_awaited() -> None:
    assert _awaited is not None
    if _step is not None:
        for _, into, node in _awaited:
            _step.append((into, _holder(node)))
    elif _awaited:
        values = flushing.values_of(tuple([node for _, _, node in _awaited]))
        for (_, into, _), value in zip(_awaited, values, strict=True):
            np.copyto(into, _array(value))
    _awaited.clear()


def _array(buffer: Any) -> np.ndarray:
    """The contents of a host buffer, after copies to it are done."""
    return devices.get("cpu").to_numpy(buffer)


def assign_all(tensors: Sequence[Any], nodes: Sequence[Node]) -> None:
    """`assign` of many tensors without gradient mode, as an optimizer's step does.

    The node for a leaf that requires grad is its `variable` already (`revalued`).
    """
    global _awaited
    holding = clock.holding
    before = [t._node for t in tensors]
    written: set[int] = set()  # storages, by their id
    mutated.update(before)  # `assign` repeats this for its own tensors
    mutated.discard(None)  # type: ignore[arg-type]
    try:
        for t, old, node in zip(tensors, before, nodes, strict=True):
            if (
                old is None
                or t._storage is not None
                or t._shared is not None
                or (old.requires_grad and node.op is not ops.variable)
            ):
                # A write to memory that NumPy sees must not end the epoch of the other nodes.
                clock.holding = holding + 1
                if _awaited is None:
                    _awaited = []
                elif any(state is (t._storage or t) for state, *_ in _awaited):
                    _write_awaited()  # this write begins with what that one leaves
                value = node.operands[0] if node.op is ops.variable else node
                if id(t._storage) in written and old is not None:  # the parts may overlap
                    value = substitute((value,), {value_node(old): value_node(resolve(t))})[0]
                if t._storage is not None:
                    written.add(id(t._storage))
                assign(t, value, force=True)
                clock.holding = holding
            else:
                t._changes += 1
                t._node = node
        if _awaited is not None:
            _write_awaited()
    finally:
        clock.holding, _awaited = holding, None


def revalued(old: Node, value: Node) -> Node:
    """`value` in the place of `old`. Gradients that ended in `old` end in it."""
    return ops.variable(value, old.attrs[0]) if old.op is ops.variable else value


def adopt(t: Any, source: Any) -> None:
    """Give `t` the memory of `source`, between epochs. Tensors that shared its old memory keep
    that."""
    _look_at(t, source)
    if t._storage is None:
        t._buffer, t._shared = source._buffer, source._shared
    t._changes += 1


def set_data(t: Any, source: Any, *, is_read: bool = False) -> None:
    """Move `t` to the memory of the detached tensor `source`. Its history stays: a leaf remains a
    leaf, and a computed tensor keeps its gradient.

    is_read: whether the backward pass of what has read a leaf reads its new value.
    """
    shares = t._storage is source._storage and t._storage is not None
    if shares and t.shape == source.shape and _layout(t) == _layout(source):
        return  # `t.data -= x` ends with this assignment, after its write
    wants, is_leaf = t.requires_grad, t.is_leaf
    own, before = None, t._node
    if wants and not is_leaf:
        own = _alias(t)
    elif wants and shares:
        resolving.set_requires_grad(t, False)  # the shared memory is no longer the leaf's
    t._requires_grad = wants and is_leaf
    _look_at(t, source)
    if own is not None:
        t._root.own = own
    t._moves, t._move_is_read = t._moves + 1, is_read
    if is_read and is_leaf and before is not None:
        mutated.add(before)
        moved.add(before)
        _stands_for(resolve(t), {before: None})


def _look_at(t: Any, source: Any) -> None:
    """Move `t` to the memory of `source`. A leaf still collects the gradients of its views."""
    t._node = t._buffer = t._history = t._shared = t._root = t._leaf = None
    t._storage, t._chain, t._aval = source._storage, source._chain, source._typed()
    if t._chain is not None and t._chain.view is views.DETACH:
        t._chain = _detached_once(t._chain)
    if t._chain is not None and t._chain.only_detaches and t._storage._leaf_owner is t:
        t._chain = None  # its own memory, to which it returns
    if t._chain is not None:
        t._root = Root(len(t._chain.links))
        t._root.leaf = weakref.ref(t) if t._requires_grad else None


def _detached_once(chain: views.Chain) -> views.Chain:
    """The chain of a detached tensor, with one link that detaches. So assignments to `.data` that
    follow each other don't make it ever longer."""
    parent: views.Chain | Size = chain.base
    for view, attrs in chain.links:
        if not view.detaches:
            parent = views.chained(parent, view, attrs)
    return views.chained(parent, views.DETACH, ())


def _layout(t: Any) -> views.Layout:
    if t._chain is None:
        return tuple(t.shape), contiguous_strides(t.shape), 0
    return t._chain.layout  # type: ignore[no-any-return]


def _alias(t: Any) -> Any:
    """Another handle for the same tensor."""
    alias = object.__new__(epoch.tensor_type)
    alias._storage, alias._chain, alias._aval = resolving.storage_of(t), t._chain, t._typed()
    alias._root, alias._leaf, alias._writes = t._root, t._leaf, t._writes
    return alias
