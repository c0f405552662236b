"""Recording: calls on tensors become nodes.

An *epoch* is the time between two flushes. Within it tensors that hold values are numbered as
leaves in the order of their first use. So a repeated step meets the same nodes again: an op call is
one dictionary lookup, and the tuple of live nodes identifies the plan.

    record()  -> a tensor for an op call        leaf(), resolve() -> a node for a tensor
    assign()  -> an in-place write              flush()           -> values for all live tensors

Three rules keep this correct. Each combination of grad mode and casts has its own table. Keys
compare interned nodes. Everything that changes from step to step (buffers, learning rates, random
offsets) is a leaf.
"""

from __future__ import annotations

import functools
from _thread import _count as other_threads
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, float32
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.numeric.special import cast as cast_number
from tilewright.ir.ops.composite import widen
from tilewright.runtime import devices

from . import compounds, epoch, flushing, threads, views
from .builders import facts, name_of
from .building import built
from .compounds import COMPOUND
from .epoch import Handle, clock, handles, mutated, resolve, storage_of
from .flushing import end_step, flush
from .numbers import default_dtype, is_exact, number, scalar_dtype
from .roots import Root, join, source_of
from .writes import assign

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..amp.casts import Casts
    from ..types import Number

LIMIT = 0 if devices.flag("TW_EAGER") else 4096
"""The number of pending results that causes a flush. It bounds loops that read no values."""

tensor_type: type[Handle] = Handle  # the public class, set by _tensor.py
tensor_of_array: Any = None  # `torch.tensor`, set by _tensor.py too
_new = object.__new__
_append = handles.append
_table: Any = epoch.table(True)
_guard = threads.Guard()


class _Unkept:
    """Stands before the tables where each call is recorded anew, as the user's hooks see it."""

    def get(self, key: Any) -> None:
        return None

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


_unkept = _Unkept()


def set_grad_enabled(enabled: bool) -> None:
    threads.claim()
    _set_mode(enabled, clock.casts, clock.saving)


def set_casts(casts: Casts | None) -> None:
    """Cast the operands of calls, as autocast does; None casts nothing."""
    threads.claim()
    _set_mode(graph.grad_enabled(), casts, clock.saving)


def set_saving(saving: epoch.Saving | None) -> None:
    """Have what calls save for their derivatives seen by the user's hooks; None has not."""
    threads.claim()
    _set_mode(graph.grad_enabled(), clock.casts, saving)


def set_watching(watching: epoch.Watching | None) -> None:
    """Have somebody told of all calls, also of those that were met before; None tells nobody."""
    threads.claim()
    clock.watching = watching
    _set_mode(graph.grad_enabled(), clock.casts, clock.saving)


def _set_mode(grad: bool, casts: Casts | None, saving: epoch.Saving | None) -> None:
    """Swap the table, so that ambient state costs nothing in an op call."""
    global _table
    graph.set_grad_enabled(grad)
    clock.casts, clock.saving = casts, saving
    if clock.watching is not None or (saving is not None and grad):
        _table = _unkept
        return
    # A table hit doesn't check the thread. So outside the usual mode the guard stops other threads,
    # if there are any.
    guarded = threads.guarded or ((not grad or casts is not None) and other_threads())
    _table = _guard if guarded else epoch.table(grad, casts)


claim = threads.claim


def is_grad_enabled() -> bool:
    claim()
    return graph.grad_enabled()


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    before = is_grad_enabled()
    set_grad_enabled(enabled)
    try:
        yield
    finally:
        set_grad_enabled(before)


@contextmanager
def standing_in(builders: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Inside the block other builders make the nodes of some calls, and arrays that sizes alone
    determine are made of nodes too: for a graph that is generic in sizes."""
    claim()
    before = clock.stand_ins
    clock.stand_ins = builders
    _set_mode(graph.grad_enabled(), clock.casts, clock.saving)
    try:
        yield
    finally:
        clock.stand_ins = before
        _set_mode(graph.grad_enabled(), clock.casts, clock.saving)
        for mode in [m for m in epoch.tables if m[-1] == id(builders)]:
            del epoch.tables[mode]


def stand_in(build: Any) -> Callable[..., Any] | None:
    """The builder that makes the nodes of the calls of `build` now, if another one does."""
    return clock.stand_ins.get(build)


@contextmanager
def hold() -> Iterator[None]:
    """Keep the epoch open inside the block: values are computed one by one as they are read.

    Code that holds nodes while it calls the user's code (hooks, backward functions) needs this.
    """
    threads.claim()
    before = clock.holding  # restored, not decremented: an interrupt can't leave it too high
    try:
        clock.holding = before + 1
        yield
    finally:
        clock.holding = before


def _arm() -> None:
    global _table
    _table = _guard


threads.flush, threads.set_mode, threads.arm = flush, _set_mode, _arm

# ---- nodes → tensors -------------------------------------------------------------------------


def blank() -> Any:
    """A new tensor without node or memory, for the caller to fill in."""
    return _new(tensor_type)


def wrap(node: Node) -> Any:
    """A new tensor that holds `node`."""
    threads.claim()
    t = _new(tensor_type)
    t._node = node
    _append(t)
    if len(handles) > LIMIT:
        _overfull()
    return t


def wrap_all(nodes: Sequence[Node]) -> list[Any]:
    """New tensors that hold `nodes`. A flush comes only after the last, as it would outdate the
    remaining nodes."""
    out = []
    for node in nodes:
        t = _new(tensor_type)
        t._node = node
        _append(t)
        out.append(t)
    if len(handles) > LIMIT:
        _overfull()
    return out


def settle() -> None:
    """End the epoch if it has grown too large: after a block that held it, or after a write."""
    if len(handles) > LIMIT or LIMIT <= 0:
        _overfull()


def _overfull() -> None:
    global LIMIT
    LIMIT = _usual_limit
    end_step()


_usual_limit = LIMIT


def _check_bytes() -> None:
    """Make the next call end the epoch if much memory is held by the epoch alone."""
    global LIMIT, _usual_limit
    dead = flushing.dead_leaf_bytes()
    clock.checked_bytes = clock.leaf_bytes + epoch.BYTES - dead
    if dead > epoch.BYTES and LIMIT > 0:
        _usual_limit, LIMIT = LIMIT, 0


# ---- calls → nodes ---------------------------------------------------------------------------


def _first_use(t: Any) -> Node:
    """The node of a tensor that has none yet in this epoch."""
    threads.claim()
    node = resolve(t)
    if clock.leaf_bytes > clock.checked_bytes:
        _check_bytes()
    return node


def record(build: Callable[..., Any], *args: Any) -> Any:
    """Call `build` on the nodes of `args` and return its result as a tensor or a tuple of tensors.

    build: a pure function of nodes (for the tensors in `args`) and hashable attrs (for the rest).
        It must be the same object in every call, as it is part of the table's key.
    """
    result = node_of(build, *args)
    if type(result) is not Node:  # several nodes, or the result for a compound
        return tuple(wrap_all(result)) if type(result) is tuple else result
    t = _new(tensor_type)
    t._node = result
    _append(t)
    if len(handles) > LIMIT:
        _overfull()
    return t


def record_into(inplace: bool, build: Callable[..., Any], input: Any, *args: Any) -> Any:
    """As `record`; if `inplace`, `input` is overwritten with the result and returned.

    The result doesn't become a tensor first, since that might end the epoch between op and write.
    """
    if inplace:
        return assign(input, node_of(build, input, *args))
    return record(build, input, *args)


def record_fallible(build: Callable[..., Any], *args: Any) -> Any:
    """As `record`, for a call that can fail on the values of its operands."""
    result = node_of(build, *args)
    if type(result) is tuple:
        for each in result:
            epoch.add_check(each)
        return tuple(wrap_all(result))
    if type(result) is not Node:  # the result for a compound
        return result
    epoch.add_check(result)
    return wrap(result)


def fallible_node_of(build: Callable[..., Any], *args: Any) -> Node:
    """As `node_of`, for a call that can fail on the values of its operands. The end of the epoch
    checks it, whether or not anything reads its result."""
    node: Node = node_of(build, *args)
    epoch.add_check(node)
    return node


def node_of(build: Callable[..., Any], *args: Any) -> Any:
    """As `record`, but return the bare node or nodes."""
    key = (build, *[(a._node or _first_use(a)) if isinstance(a, Handle) else a for a in args])
    try:
        result = _table.get(key)
    except TypeError:  # an unhashable argument, which is an error
        _refuse(build, args)
        raise
    return _record(build, args) if result is None else result


def _record(build: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The slow path: new calls, and calls of a thread that wasn't the owner."""
    threads.claim()
    nodes = [resolve(a) if isinstance(a, Handle) else a for a in args]
    key = (build, *nodes)
    result = _table.get(key)
    if result is None:
        if COMPOUND in nodes:
            return compounds.apply(build, args)
        if not isinstance(nodes[0], Node):
            _refuse(build, args)
        if clock.casts is not None:
            nodes = clock.casts(build, nodes)
        try:
            result = built(clock.stand_ins.get(build, build), nodes)
        except AttributeError:
            _refuse_others(build, args)
            raise
        if type(result) is tuple:
            result = tuple([_own(r, build, nodes) for r in result])
            for each in result:
                each.memo["among"] = len(result)
        else:
            result = _own(result, build, nodes)
        _table[key] = result
        if clock.watching is not None:
            clock.watching.called(result, nodes)
        if clock.saving is not None:
            result = clock.saving(result, nodes, args)
    if clock.leaf_bytes > clock.checked_bytes:
        _check_bytes()
    return result


def _own(result: Node, build: Callable[..., Any], nodes: Sequence[Any]) -> Node:
    """The node of a call's result, which remembers the call."""
    if any(result is n for n in nodes):  # the result is a new tensor even if nothing is computed
        result = ops.clone(result)
    if result.requires_grad:
        result.memo.setdefault("call", (build, nodes))
    return result


def _refuse(build: Callable[..., Any], args: Sequence[Any]) -> None:
    """Raise TypeError if the first argument of a call isn't a tensor."""
    if args and not isinstance(args[0], (Handle, Node)):
        raise TypeError(
            f"{_name(build)}(): argument 'input' (position 1) must be Tensor, not "
            f"{type(args[0]).__name__}{at_user_line()}"
        )


def _refuse_others(build: Callable[..., Any], args: Sequence[Any]) -> None:
    """Raise TypeError if an argument that a builder took for a node isn't a tensor."""
    for i, each in enumerate(args[1:], 2):
        if isinstance(each, (str, int, float)) or each is None:
            raise TypeError(
                f"{_name(build)}(): argument {i} must be Tensor, not {type(each).__name__}"
                f"{at_user_line()}"
            ) from None


def _name(build: Callable[..., Any]) -> str:
    return name_of(build) or "call"


def lowered(build: Callable[..., Any], *tensors: Any) -> tuple[Any, ...]:
    """`tensors` as a builder of products takes them, before numbers join them: in autocast's dtype,
    if that is on."""
    return tensors if clock.casts is None else clock.casts.lowered(build, tensors)


def resolve_all(tensors: Sequence[Any]) -> list[Node]:
    """The nodes of many tensors."""
    threads.claim()
    return epoch.resolve_all(tensors)


def lookup(key: Any) -> Any:
    """The table's entry for `key` in this mode, or None."""
    return _table.get(key)


def remember(key: Any, result: Any) -> Any:
    _table[key] = result
    return result


def _record_scalar(build: Callable[..., Any], t: Any, value: Any, swapped: bool) -> Any:
    """A binary op with a Python number. The number is a constant; if it keeps changing, it becomes
    an input of the run."""
    threads.claim()
    if isinstance(value, (np.generic, np.ndarray)):
        if value.ndim:
            return NotImplemented
        value = value.item()
    if not isinstance(value, (bool, int, float, complex)):
        return NotImplemented
    kind = type(value)
    node = resolve(t)
    key: Any = (build, value, kind, node) if swapped else (build, node, value, kind)
    exact = is_exact(value)
    found = _table.get(key) if exact else None
    if found is not None:
        return found
    if node is COMPOUND:
        return compounds.apply(build, (value, t) if swapped else (t, value))
    if clock.casts is not None:
        (node,) = clock.casts(build, [node])
    dtype = scalar_dtype(node.dtype, value)
    known = facts(build)
    if not dtype.is_differentiable and known is not None and known.floats:
        dtype = default_dtype()
    wide = dtype
    if dtype in HALVES and known is not None and known.widens:
        wide = dtype if float(cast_number(value, dtype.np)) == value else float32
    other = number((build, node, kind, swapped), value, wide)
    nodes = (other, node) if swapped else (node, other)
    is_input = other.op is ops.scalar
    if is_input and wide is dtype:
        of_nodes = (build, *nodes)
        found = _table.get(of_nodes)
        if found is not None:
            return found
    if wide is dtype:
        result = built(build, nodes)
    else:
        result = ops.cast(build(*map(widen, nodes)), dtype)
    result = _own(result, build, nodes)
    if is_input and wide is dtype:
        _table[of_nodes] = result
    elif exact and not is_input:
        _table[key] = result
    if clock.watching is not None:
        clock.watching.called(result, nodes)
    if clock.saving is not None:
        result = clock.saving(result, nodes, (None, t) if swapped else (t, None))
    return result


# Factories of methods. They are here so that their methods read `_table` as a global.


def unary(build: Callable[..., Any], name: str, doc: str | None = None) -> Callable[..., Any]:
    def method(self: Tensor) -> Tensor:
        node = _table.get((build, self._node))
        if node is None:
            node = _record(build, (self,))
            if node.__class__ is not Node:  # the result for a compound
                return node
        t: Any = _new(tensor_type)
        t._node = node
        _append(t)
        if len(handles) > LIMIT:
            _overfull()
        return t

    method.__name__ = name
    method.__doc__ = doc or build.__doc__
    return method


def binary(
    build: Callable[..., Any],
    name: str,
    *,
    swapped: bool = False,
    numbers: bool = True,
    doc: str | None = None,
) -> Callable[..., Any]:
    """Make a method of two operands; `swapped` for reflected operators (`2 - x`).

    numbers: whether the second operand may be a Python number.
    """

    def method(self: Tensor, other: Number | Tensor) -> Tensor:
        if isinstance(other, Handle):
            node = _table.get((build, self._node, other._node))
            if node is None:
                node = _record(build, (self, other))
                if node.__class__ is not Node:  # the result for a compound
                    return node
        elif not numbers:
            raise TypeError(
                f"{name}(): argument 'other' (position 2) must be Tensor, not "
                f"{type(other).__name__}{at_user_line()}"
            )
        else:
            try:
                node = _table.get((build, self._node, other, other.__class__))
            except TypeError:  # unhashable
                node = None
            if node is None:
                node = _record_scalar(build, self, other, False)
                if node.__class__ is not Node:
                    return node if node is not NotImplemented else _with_array(method, self, other)
        t: Any = _new(tensor_type)
        t._node = node
        _append(t)
        if len(handles) > LIMIT:
            _overfull()
        return t

    def reflected(self: Tensor, other: Number | Tensor) -> Tensor:
        if not isinstance(self, Handle):
            raise TypeError(f"{name}(): expected a Tensor, got {type(self).__name__}")
        if isinstance(other, Handle):
            return method(other, self)  # type: ignore[arg-type]
        try:
            node = _table.get((build, other, other.__class__, self._node))
        except TypeError:  # unhashable
            node = None
        if node is None:
            node = _record_scalar(build, self, other, True)
            if node.__class__ is not Node:
                return node if node is not NotImplemented else _with_array(reflected, self, other)
        return wrap(node)

    chosen = reflected if swapped else method
    chosen.__name__ = name
    chosen.__doc__ = doc or build.__doc__
    return chosen


def _with_array(method: Callable[..., Any], t: Any, other: Any) -> Any:
    """Call `method` with a NumPy array as operand."""
    if not isinstance(other, np.ndarray):
        return NotImplemented
    return method(t, tensor_of_array(other, device=t.device))


def in_place_binary(build: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Make the in-place form of a binary method; `method` handles the general case."""

    def write(self: Tensor, other: Number | Tensor) -> Tensor:
        node = self._node
        if (
            node is not None
            and self._storage is None
            and self._shared is None
            and not node.requires_grad
            and isinstance(other, Handle)
        ):
            result = _table.get((build, node, other._node))
            if (
                result is not None
                and result.shape == node.shape
                and result.dtype is node.dtype
                and not result.requires_grad
            ):
                mutated.add(node)
                self._changes += 1
                self._node = result
                return self
        return method(self, other)

    return write


# ---- views -----------------------------------------------------------------------------------


def view(t: Any, kind: views.View, *attrs: Any) -> Any:
    """A view of `t`, which shares its memory."""
    source = t._node
    if source is None and _is_unread(t):
        chain = views.chained(t._chain or t.shape, kind, attrs)
        if chain.layout is not None and not chain.retypes:
            return _unread_view(t, chain)
    node = _table.get((kind, source, attrs))
    if node is None:
        node = _record_view(t, kind, attrs)
        if node.__class__ is not Node:  # the view of a compound
            return node
    storage = t._storage or storage_of(t)
    parent = t._chain or t.shape
    if (
        not kind.detaches
        and not graph.grad_enabled()
        and (t.requires_grad or (t._root is not None and not t._chain.is_untracked))
    ):
        # A view taken without grad mode has no history.
        parent = views.chained(parent, views.NO_GRAD, ())
    v = _new(tensor_type)
    v._storage = storage
    v._chain = views.chained(parent, kind, attrs)
    v._aval = (node.shape, node.dtype, node.device or "cpu")
    if storage._shared is None:
        v._node = node
        storage._views.append(v)
        _append(v)
    if kind.detaches:
        v._root = Root(len(v._chain.links))
    elif t._root is not None:
        join(v, t)
    v._writes = (v._root or storage)._writes
    if len(handles) > LIMIT:
        _overfull()
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
    v = _new(tensor_type)
    v._storage = t._storage or storage_of(t)
    v._chain = chain
    if chain.view.detaches:
        v._root = Root(len(chain.links))
    elif t._root is not None:
        join(v, t)
    v._writes = (v._root or v._storage)._writes
    _, dtype, device = t._aval
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
    node = _table.get(key)
    if node is None:
        node = views.seen(source, kind, attrs)
        if node is source:
            if node.requires_grad and not graph.grad_enabled():
                node = ops.detach(node)
        elif node.requires_grad:
            node.memo.setdefault("call", (kind, (source, *attrs)))
        _table[key] = node
    return node


_unread_chains: dict[Any, Any] = {}  # results of view functions on unread memory, by layout


def cached_view(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a function that returns views (or copies) of its first argument. The key is the
    argument's node (none for unread memory), its layout and the other arguments."""

    @functools.wraps(function)
    def call(input: Any, *args: Any, **options: Any) -> Any:
        if options or not isinstance(input, Handle):
            return function(input, *args, **options)
        node = input._node
        if node is None:
            if not _is_unread(input):
                return function(input, *args)
            table = _unread_chains
            key: Any = (call, input._chain or input._aval[0], args)  # type: ignore[index]
        else:
            table = _table
            key = (call, node, input._chain, args)
        try:
            found = table.get(key)
        except TypeError:  # sizes given as a list
            return function(input, *args)
        if found is None:
            result = function(input, *args)
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


def _remember_chains(key: Any, source: Any, result: Any) -> None:
    results = result if type(result) is tuple else (result,)
    if all(
        r is not source
        and r._node is None
        and r._chain is not None
        and not r._chain.retypes
        and r._storage is source._storage
        for r in results
    ):
        if len(_unread_chains) >= views.REMEMBERED:
            _unread_chains.clear()
        chains = [r._chain for r in results]
        _unread_chains[key] = chains if type(result) is tuple else chains[0]


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
        _table[key] = made if type(result) is tuple else made[0]


def view_again(source: Any, found: tuple[Node, views.Chain | None, bool]) -> Any:
    node, chain, shares = found
    if not shares:
        return wrap(node)
    storage = source._storage or storage_of(source)
    v = _new(tensor_type)
    v._storage = storage
    v._chain = chain
    if source._root is not None:
        join(v, source)
    v._writes = (v._root or storage)._writes
    v._node = node
    storage._views.append(v)
    _append(v)
    if len(handles) > LIMIT:
        _overfull()
    return v
