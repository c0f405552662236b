"""The state of an epoch, which is the time between two flushes.

Tensors that hold values are numbered as leaves in the order of their first use, so a repeated
program meets the same nodes again. Lists are cleared in place, because other modules import them,
and bound methods of them, by name.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, grad_mode, intern
from tilewright.ir.shape import Size
from tilewright.runtime import devices

from . import views
from .histories import Ends, History, Viewed
from .references import OwnReference
from .roots import Root, is_outdated, source_of

if TYPE_CHECKING:
    from ..amp.casts import Casts

Aval = tuple[Size, dtypes.DType, str]


class Watching(Protocol):
    """Somebody who is told what a program does."""

    def called(self, result: Any, nodes: Sequence[Any]) -> None:
        """A call has given a node or nodes, of these operands."""

    def passed(self, number: int, inputs: Mapping[Node, set[Node]]) -> None:
        """A backward pass goes through nodes of the epoch of this number, from each of them to some
        of its operands."""


class Saving(Protocol):
    """The user's hooks on saved values: what `pack` makes of a tensor is kept, and `unpack` makes a
    tensor of it."""

    def __call__(self, result: Any, nodes: Sequence[Any], args: Sequence[Any]) -> Any:
        """The nodes to record for a call: its results with a derivative that unpacks values.

        result: its node or nodes. nodes, args: its operands, as nodes and as they were given.
        """

    def pack(self, t: Any) -> Any: ...

    def unpack(self, kept: Any) -> Any: ...


class State:
    """The state of a storage. A tensor that shares its memory with no other is its own storage.

    _node: its value in this epoch, or None if it hasn't been used yet.
    _buffer: its memory, once computed. _aval: shape, dtype and device of the buffer.
    _history: the graph that computed it in an earlier epoch, if a gradient may be needed.
    _changes: counts in-place writes, except those through `.data`. _rewrites: counts those.
    _place: its number among the epoch's leaves.
    """

    _node: Node | None = None
    _buffer: Any = None
    _aval: Aval | None = None
    _history: History | None = None
    _requires_grad = False
    _changes = _rewrites = 0
    _place = -1
    _shared: SharedMemory | None = None


class Storage(State):
    """Memory that several tensors share. `_views` are the tensors with a node in this epoch.

    _first: the tensor that had the memory to itself, weakly.
    _writes: counts in-place writes, except those through `.data`.
    _detached: its detached tensors, if it has a history (see roots.py).
    """

    _views: list[Handle]
    _first: OwnReference | None = None
    _writes = 0
    _detached: list[OwnReference] | None = None
    _leaf_owner: Handle | None = None  # the tensor that collects gradients, if it is a leaf


class Handle(State):
    """The state of a Tensor: memory of its own, or a storage and a chain of views of it.

    _writes: the count of writes of its root or storage when it was made.
    _root: the root of its history; None if it has its storage's history.
    _leaf: the tensor that collects the gradient of this view, if that isn't its storage's owner.
    _parent: the view that this view was taken of, where calls are computed at once.
    _moves: counts how often it was given other memory. _move_is_read: whether the last time was an
        assignment to `.data`, after which a backward pass reads its new value.
    """

    _storage: Storage | None = None
    _chain: views.Chain | None = None
    _writes = 0
    _root: Root | None = None
    _leaf: Handle | None = None
    _parent: Handle | None = None
    _grad: Handle | None = None
    _hooks: dict[int, Callable[..., Any]] | None = None
    _post_hooks: dict[int, Callable[..., Any]] | None = None
    _grad_freed = False
    _grad_dtype: Any = NotImplemented  # that of `.grad`, if it isn't its own
    _moves = 0
    _move_is_read = False

    if TYPE_CHECKING:  # Tensor's attributes, for modules that know only Handle

        def __getattr__(self, name: str) -> Any: ...


tensor_type: type[Handle] = Handle  # the public class, set by _tensor.py
parameter_type: type[Handle] = Handle  # its subclass for parameters, set by nn/parameter.py
inferring = inferred = False  # whether inference mode is on, and whether it ever was
untracked = 0  # the count of writes of a tensor made in inference mode, set by inference.py


class Failed:
    """Takes the place of a buffer whose computation failed."""

    def __init__(self, error: Exception):
        self.kind, self.args = type(error), error.args

    def error(self) -> Exception:
        return self.kind(*self.args)


Leaf = tuple[State | None, Node, Any]
"""(state, its node at rest, its buffer); the state is None for a snapshot of shared memory."""

handles: list[Handle] = []  # all tensors recorded in this epoch
leaves: list[Leaf] = []  # values that the epoch read
storages: list[Storage] = []  # storages with a node
windows: list[Storage] = []  # storages with a part that was read as a leaf of its own
variables: list[Handle | History] = []  # targets of gradients: leaf tensors, or earlier histories
scalars: list[Any] = []  # numbers that are inputs of the run
drawn: dict[int, tuple[str, Any]] = {}  # draws: place -> ("seed" or "offset", generator)
counted: list[Any] = []  # in a capture: (first place, states, numbers by the step)
mutated: set[Node] = set()  # overwritten values, for the check in backward
# Those of them that were overwritten through `.data` -> (the memory's node after that, the view).
rewritten: dict[Node, tuple[Node, views.Chain | None]] = {}
moved: set[Node] = set()  # values of leaves that were given other memory, likewise
viewed: dict[Node, tuple[int, views.Chain | None]] = {}  # views' storages by id, in a flush
differentiable_views: dict[int, Viewed] = {}  # see histories.Shared
freed: list[tuple[Node, int]] = []  # (root of a backward pass, number of handles then)
given: dict[Node, int] = {}  # results with a gradient -> how many more tensors have the same
hooked: dict[Node, list[dict[int, Any]]] = {}  # hooks on the gradient of a node
contexts: list[Any] = []  # contexts of autograd.Function calls
fallible: dict[Node, int] = {}  # nodes of calls that can fail -> how often each was recorded

tables: dict[tuple[Any, ...], dict[Any, Any]] = {}  # results of calls, by mode: see `table`
recipes: dict[Any, Any] = {}  # of calls, by builder, grad mode, types and attrs
families: dict[Any, Any] = {}  # of calls that differ in sizes alone, see volatile.py
sites: dict[Any, set[Any]] = {}  # numbers seen at a site
leaf_nodes: dict[Any, Node] = {}
latest_nodes: dict[int, tuple[Aval, Node]] = {}  # the last leaf node of each place, with its aval
variable_nodes: dict[Any, Node] = {}
scalar_nodes: dict[Any, Node] = {}

LIMIT = 0 if devices.flag("TW_EAGER") else 4096
"""The number of pending results that causes a flush. It bounds loops that read no values."""
BYTES = 256 << 20
"""Bytes of dead leaves that cause a flush: old batches that only the epoch keeps alive."""


class Clock:
    """Counters and modes of the epoch.

    number: of the epoch. holding: depth of the blocks in which it must not end.
    leaf_bytes: bytes of its leaves; checked_bytes: the count at which to look for dead ones again.
    looking: whether calls are recorded for inspection only.
    capturing: whether calls are recorded for a graph (see replay/capture.py).
    observing: whether a call's outcome will be kept (see replay/outcome.py).
    differentiated: whether it has had a backward pass. stepped: whether a leaf that collects
        gradients got a new value after that, for example by a manual update.
    effects: counts effects without nodes: reads of values, and settings of generators.
    ends: where its gradients leave it, for calls that the user has hold of.
    casts: autocast's casts of operands, or None (see amp/casts.py).
    stand_ins: builder -> the one that makes its nodes, while calls are recorded for a graph that is
        generic in sizes (see `standing_in`).
    watching: is told of calls and of backward passes, or None (see utils/flop_counter.py).
    saving: takes what calls save for their derivatives to the user's hooks, or None (see
        autograd/saving.py).
    table: the results of calls in the present mode, which `modes.py` swaps.
    limit: the number of pending results from which the epoch ends, 0 while one call more ends it;
        usual_limit: what it is otherwise.
    news: how many graphs were new lately. volatile: whether calls are computed at once therefore
        (see novelty.py). taping: whether those with a gradient are, too (see tape.py).
    """

    def __init__(self) -> None:  # fields of the object are read faster than those of its class
        self.number = self.holding = 0
        self.leaf_bytes, self.checked_bytes = 0, BYTES
        self.looking = self.capturing = self.observing = False
        self.differentiated = self.stepped = False
        self.effects = 0
        self.ends = Ends(0)
        self.casts: Casts | None = None
        self.stand_ins: Mapping[Any, Callable[..., Any]] = {}
        self.saving: Saving | None = None
        self.watching: Watching | None = None
        self.table: Any = None
        self.limit = self.usual_limit = LIMIT
        self.news, self.volatile, self.taping = 0, False, True


clock = Clock()


def table(grad: bool, casts: Casts | None = None) -> dict[Any, Any]:
    """The table of call results for one mode."""
    return tables.setdefault((grad, casts, id(clock.stand_ins)), {})


clock.table = table(True)


# ---- tensors → nodes -------------------------------------------------------------------------


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
            if inferred:
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


CONTINUES = "continues"
"""The key of a node's memo for the node whose history it has beside a value of its own: the one
before a write without gradients, or the end that leads to the history of a view."""


def history_node(t: Any) -> Node:
    """The node in this epoch that all uses of `t` since its last write with gradients lead to. A
    write without gradients gives a tensor a new value and leaves its history; only its views are
    then new to autograd, as in PyTorch."""
    node = resolve(t)
    if t._chain is not None:
        end = None if t._history is None else node.memo.get(CONTINUES)
        return node if end is None else end
    return origin(node)


def origin(node: Node) -> Node:
    """The node whose history a tensor with `node` has."""
    while CONTINUES in node.memo:
        node = node.memo[CONTINUES]
    return node


NEW, ANOTHER = -1, 1 << 30
"""Numbers of aliases: of what is new to autograd, with views at lower ones; and above the second
one, those in results that are another tensor's, too."""


def another(node: Node) -> Node:
    """The node of a result that another tensor of the epoch has got already, so that a gradient
    reaches the tensor that was used."""
    count = given[node] = given[node] + 1
    known = node.memo.get("others")
    if known is None:
        known = node.memo["others"] = []
    if count > len(known):
        known.append(_computed_beside(node, ANOTHER + count))
    return known[count - 1]  # type: ignore[no-any-return]


def _computed_beside(node: Node, number: int) -> Node:
    """A node that computes the same as `node`."""
    *others, last = node.operands  # the first one of a Function's output is its call
    with grad_mode(True):
        own = node.instruction.of((*others, ops.alias(last, number)))
    if "call" in node.memo:
        own.memo.setdefault("call", node.memo["call"])
    return own


def continuing(end: Node, value: Node) -> Node:
    """The node of a tensor with this value whose history is that of `end`."""
    with grad_mode(True):
        node = ops.with_value(end, ops.detach(value) if value.requires_grad else value)
    node.memo[CONTINUES] = end
    return node


def own_node(node: Node) -> Node:
    """A node that computes the same as `node`, for a tensor with hooks. So they don't see the
    gradient that another call which computes the same on its way has."""
    copies = (_computed_beside(node, i) for i in itertools.count(1))
    return next(n for n in copies if n not in hooked)


def watch(
    watched: dict[Node, list[Any]], node: Node, hooks: dict[int, Callable[[Any], Any]] | Any
) -> None:
    """Have backward passes call `hooks` with the gradient of `node`. They are a tensor's by number,
    or `autograd.hook_calls.NodeHooks`."""
    known = watched.setdefault(node, [])
    if not any(hooks is each for each in known):
        known.append(hooks)


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


def leaf_node(place: int, aval: Aval) -> Node:
    """The node of the leaf at `place`."""
    known = latest_nodes.get(place)
    if known is not None and known[0] is aval:
        return known[1]
    key = (place, aval)
    node = leaf_nodes.get(key)
    if node is None:
        shape, dtype, device = aval
        node = leaf_nodes[key] = intern(ops.leaf, (), (place, shape, dtype), device)
    latest_nodes[place] = aval, node
    return node


def _told_apart(node: Node, state: Any) -> Node:
    """The node of a leaf, with a mark outside of inference mode if its tensor was made in it."""
    if inferring or state._changes is not untracked or not inferred:
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
    # The view was taken before, so the present grad mode doesn't affect it.
    with grad_mode(base.requires_grad or graph.grad_enabled()):
        node = _seen_from(t, storage, base)
    if node.requires_grad and t._chain is not None and storage._shared is None:
        if node in given:
            node = another(node)
        else:
            given[node] = 0
    if t._requires_grad and storage._leaf_owner is not t:
        node = variable(node, t)
    source = None if t._root is None else source_of(t)
    if source is not None:
        history = resolve(source)
        with grad_mode(True):
            for kind, attrs in t._chain.links[t._root.depth :]:
                history = views.seen(history, kind, attrs)
            if history.requires_grad:
                node = ops.with_value(history, node)
    return node if t._history is None else _continuing(t, storage, base, node)


def _seen_from(t: Any, storage: Storage, base: Node) -> Node:
    """What the view `t` shows of `base`. Its gradient goes through the views that it was taken of,
    until the memory is written to: then PyTorch makes each view anew from the base."""
    chain, parent = t._chain, t._parent
    is_anew = chain is not None and t._writes != (t._root or storage)._writes
    if is_anew:
        return seen_anew(base, chain)
    if parent is not None and not (is_anew or chain.detaches) and parent._storage is storage:
        node = resolve(parent)
        for kind, attrs in chain.links[len(parent._chain.links) :]:
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
    end = _marked(ops.expand(ops.constant(0, node.dtype, node.device), node.shape), history)
    return continuing(end, node)


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
        if inferred:
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


NO_BUFFER = (type(None), Failed)  # classes that stand in the place of a buffer


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


def variable(node: Node, target: Any) -> Node:
    """Mark `node` as an end of gradients within this epoch. `target`: a leaf tensor or a
    history."""
    if clock.differentiated and node.op is not ops.leaf:
        clock.stepped = True
    return _marked(node, target)


def _marked(node: Node, target: Any) -> Node:
    place = len(variables)
    variables.append(target)
    key = (node, place)
    marked = variable_nodes.get(key)
    if marked is None:
        marked = variable_nodes[key] = ops.variable(node, place)
    return marked


def variable_target(place: int) -> Any:
    return variables[place]


def leaf_tensor(node: Node) -> Any:
    """The leaf tensor with the value `node`, or None."""
    if node.op is not ops.variable:
        return None
    target = variables[node.attrs[0]]
    return None if isinstance(target, History) else target


def scalar(value: Any, dtype: dtypes.DType, device: str | None = None) -> Node:
    """A number that changes from step to step, bound when the graph runs.

    device: of results that depend on nothing else, such as random numbers.
    """
    key = (len(scalars), dtype, device)
    scalars.append(value)
    node = scalar_nodes.get(key)
    if node is None:
        node = scalar_nodes[key] = intern(ops.scalar, (), key[:2], device)
    return node


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


def add_check(node: Node) -> None:
    """Let the end of the epoch make the checks in `node`, whether or not anything reads it."""
    fallible[node] = fallible.get(node, 0) + 1


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


class SharedMemory:
    """Memory that NumPy may see. Ops that read it take a snapshot.

    keep: the user's array that the tensor was made from; it counts as shared while somebody else
        refers to it. exported: a weak reference that dies with the last array that was handed out.
        One of the two is set.
    """

    def __init__(self, keep: Any = None, exported: weakref.ref[Any] | None = None):
        self.keep = keep
        self.exported = exported

    def released(self) -> bool:
        """Whether no outside array shows the memory any more."""
        if self.exported is not None:
            return self.exported() is None
        array = self.keep
        # `array`, `self.keep`, the state's `_buffer`, the caller's `buffer` and the argument.
        return array.base is None and getrefcount(array) <= 5
