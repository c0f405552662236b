"""Views: tensors that share the memory of another one. Those of memory that the epoch hasn't read
get a node only when they are read themselves."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.node import Node

from . import compounds, epoch, threads, views, volatile
from .aliases import another
from .compounds import COMPOUND
from .epoch import clock, given, handles
from .resolving import resolve, storage_of
from .roots import detach, join, source_of
from .states import Handle
from .wrapping import overfull, wrap

_new = object.__new__
_append = handles.append


def view(t: Any, kind: views.View, *attrs: Any) -> Any:
    """A view of `t`, which shares its memory."""
    source = t._node
    if source is None and (
        _is_unread(t) or (clock.volatile and volatile.may_view(t, kind.detaches))
    ):
        before = t._chain or t.shape
        if not (kind.detaches or graph.grad_enabled()) and t.requires_grad:
            before = views.chained(before, views.NO_GRAD, ())
        chain = views.chained(before, kind, attrs)
        if chain.layout is not None and (not chain.retypes or views.is_of_parts(chain)):
            return _unread_view(t, chain)
    node = clock.table.get((kind, source, attrs))
    if node is None:
        node = _record_view(t, kind, attrs)
        if node.__class__ is not Node:  # the view of a compound
            return node
    if node.requires_grad:
        if node in given:
            node = another(node)
        else:
            given[node] = 0
    storage = t._storage or storage_of(t)
    parent = t._chain or t.shape
    if (
        not kind.detaches
        and not graph.grad_enabled()
        and (t.requires_grad or (t._root is not None and not t._chain.is_untracked))
    ):
        # A view taken without grad mode has no history.
        parent = views.chained(parent, views.NO_GRAD, ())
    v = _new(epoch.tensor_type)
    v._storage = storage
    v._chain = views.chained(parent, kind, attrs)
    v._aval = (node.shape, node.dtype, node.device or "cpu")
    if storage._shared is None:
        v._node = node
        storage._views.append(v)
        _append(v)
    if kind.detaches:
        detach(v, len(v._chain.links))
    else:
        if t._root is not None:
            join(v, t)
        if clock.volatile and t._chain is not None:
            v._parent = t
    v._writes = (v._root or storage)._writes
    if len(handles) > clock.limit:
        overfull()
    return v


def _is_unread(t: Any) -> bool:
    """Whether this epoch hasn't read or written the memory of `t`, and no gradient depends on
    it."""
    storage = t._storage
    state = t if storage is None else storage
    if (
        state._node is not None
        or state._history is not None
        or state._requires_grad
        or t._requires_grad
        or (t._root is not None and source_of(t) is not None)
    ):
        return False
    threads.claim()
    return True


def _unread_view(t: Any, chain: views.Chain) -> Any:
    """A view of unread memory. It gets a node only when it is read itself."""
    v = _new(epoch.tensor_type)
    v._storage = t._storage or storage_of(t)
    v._chain = chain
    if chain.view.detaches:
        detach(v, len(chain.links))
    else:
        if t._root is not None:
            join(v, t)
        if clock.volatile and t._chain is not None:
            v._parent = t
    v._writes = (v._root or v._storage)._writes
    _, dtype, device = t._aval
    if chain.view is views.VIEW_AS_REAL:
        dtype = dtype.to_real()
    v._aval = (chain.size, dtype, device)  # type: ignore[assignment]
    return v


def element(t: Any, key: tuple[Any, ...]) -> Any:
    """The view t[key] of one element of unread memory; None if it isn't that."""
    if t._node is not None or not _is_unread(t):
        return None
    before, (shape, dtype, device) = t._chain, t._aval
    chain = views.element(before or shape, key)
    if chain is None:
        return None
    if before is not None or t._storage is None:
        return _unread_view(t, chain)
    v = _new(epoch.tensor_type)
    v._storage, v._chain, v._writes = t._storage, chain, t._storage._writes
    v._aval = (chain.size, dtype, device)  # type: ignore[assignment]
    return v


def _record_view(t: Any, kind: views.View, attrs: tuple[Any, ...]) -> Any:
    threads.claim()
    if kind.detaches:  # also of an outdated view
        with graph.grad_mode(False):
            source = resolve(t)
    else:
        source = resolve(t)
    if source is COMPOUND:
        return compounds.apply(kind, (t, *attrs))
    key = (kind, source, attrs)
    node = clock.table.get(key)
    if node is None:
        node = views.seen(source, kind, attrs)
        if node is source and node.requires_grad and not graph.grad_enabled():
            node = ops.detach(node)
        clock.table[key] = node
    return node


_unread_chains: dict[Any, Any] = {}  # results of view functions on unread memory, by layout


def cached_view(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a function that returns views (or copies) of its first argument. The key is the
    argument's node (none for unread memory), its layout and the other arguments. Tensors that stand
    for integers among these are read: their values may change."""

    @functools.wraps(function)
    def call(input: Any = None, *args: Any, **options: Any) -> Any:
        if options or not isinstance(input, Handle):  # the function has other names of `input`
            if input is None:
                return function(*args, **options)
            options = dict(zip(options, _whole(tuple(options.values()))))
            return function(input, *_whole(args), **options)
        node = input._node
        if node is None:
            if not _is_unread(input) and not (
                clock.volatile and graph.grad_enabled() and volatile.may_view(input)
            ):
                return function(input, *_whole(args))
            table = _unread_chains
            key: Any = (call, input._chain or input._aval[0], args)  # type: ignore[index]
        else:
            table = clock.table
            key = (call, node, input._chain, args)
        try:
            found = table.get(key)
        except TypeError:  # sizes given as a list
            return function(input, *_whole(args))
        if found is None:
            whole = _whole(args)
            result = function(input, *whole)
            if whole is not args or getattr(result, "_chain", result) is None:  # a copy
                return result
            if node is None:
                _remember_chains(key, input, result)
            else:
                _remember_view(key, input, result)
            return result
        again = _unread_view if node is None else view_again
        if type(found) is list:
            return tuple([again(input, each) for each in found])
        return again(input, found)

    return call


def _whole(args: tuple[Any, ...]) -> Sequence[Any]:
    """The arguments, with the integers that tensors among them stand for; `args` itself if no
    tensor is among them."""
    return [_read(each) for each in args] if _hold_tensor(args) else args


def _hold_tensor(args: tuple[Any, ...]) -> bool:
    return any(isinstance(a, Handle) or (type(a) is tuple and _hold_tensor(a)) for a in args)


def _read(argument: Any) -> Any:
    if type(argument) is tuple:
        return tuple([_read(each) for each in argument])
    if not isinstance(argument, Handle) or argument.dim():  # type: ignore[attr-defined]
        return argument
    kind: Any = argument.dtype  # type: ignore[attr-defined]
    is_whole = not (kind.is_floating_point or kind.is_complex)
    return operator.index(argument) if is_whole else argument  # type: ignore[call-overload]


def _remember_chains(key: Any, source: Any, result: Any) -> None:
    results = result if type(result) is tuple else (result,)
    if all(
        r is not source
        and r._node is None
        and r._chain is not None
        and (not r._chain.retypes or _keeps_parts(source, r))
        and r._storage is source._storage
        for r in results
    ):
        if len(_unread_chains) >= views.REMEMBERED:
            _unread_chains.clear()
        chains = [r._chain for r in results]
        _unread_chains[key] = chains if type(result) is tuple else chains[0]


def _keeps_parts(source: Any, view: Any) -> bool:
    """Whether a view of the parts of complex numbers shows such itself. The key of the call has
    their chain; it has no dtype."""
    before = source._chain
    return before is not None and before.retypes and views.is_of_parts(view._chain)


def _remember_view(key: Any, source: Any, result: Any) -> None:
    if source._node is COMPOUND:
        return
    results = result if type(result) is tuple else (result,)
    made = [
        (r._node, r._chain, r._storage is not None and r._storage is source._storage)
        for r in results
    ]
    # Only views with nodes of this epoch are cached: not those of memory that NumPy shares, and not
    # the source itself, as `flatten` returns it.
    if (
        all(r is not source for r in results)
        and source_of(source) is None
        and source._node is key[1]
        and all(node is not None for node, _, _ in made)
    ):
        clock.table[key] = made if type(result) is tuple else made[0]


def view_again(source: Any, found: tuple[Node, views.Chain | None, bool]) -> Any:
    node, chain, shares = found
    if not shares:
        return wrap(node)
    if node.requires_grad:
        if node in given:
            node = another(node)
        else:
            given[node] = 0
    storage = source._storage or storage_of(source)
    v = _new(epoch.tensor_type)
    v._storage = storage
    v._chain = chain
    if source._root is not None:
        join(v, source)
    v._writes = (v._root or storage)._writes
    v._node = node
    storage._views.append(v)
    _append(v)
    if len(handles) > clock.limit:
        overfull()
    return v
