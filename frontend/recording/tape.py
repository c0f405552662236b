"""The tape: calls that were computed at once, and that gradients flow through.

Each call is like an epoch of its own, and each of its results has a history (`histories.py`). A
backward pass goes through the calls themselves, by templates of their derivatives
(`autograd/taped.py`). For what a tape doesn't know, such as writes to saved values, hooks on views
or `grad_fn`, a history of the tape becomes what an epoch would have left: its graph is built when
somebody first looks at it.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.generate import constant
from tilewright.ir.ops.marker import value_node
from tilewright.ir.shape import Size

from . import epoch, flushing, novelty, resolving, views
from .aliases import another
from .derivations import saved_nodes
from .epoch import PLACE, clock, given
from .families import Number
from .histories import Held, History, Leads, Shared, Viewed, after, with_views
from .roots import source_of
from .rounding import rounded_once
from .states import Aval, Handle
from .wrapping import of_array

Array = np.ndarray


class Refused(Exception):
    """A gradient flows through a tensor in a way that the tape doesn't know."""


def target_of(t: Any) -> Any:
    """Where the gradient of a tensor at rest goes: a leaf tensor or a history. None if it has
    none."""
    storage = t._storage
    if storage is None:
        return t._history or (t if t._requires_grad else None)
    chain = t._chain
    if t._root is not None and source_of(t) is not None:
        raise Refused
    if chain is not None:
        if t._history is not None:
            raise Refused
        if t._requires_grad:  # a leaf that looks at the memory of another tensor
            return t
        if chain.detaches or t._root is not None:
            return None
    target = storage._history or (storage._leaf_owner if storage._requires_grad else None)
    if target is not None and chain is not None:
        if chain.layout is None or chain.retypes or is_watched(t):
            raise Refused
        if chain.multiple is not None and t._writes != storage._writes:
            raise Refused
    return target


def is_watched(t: Any) -> bool:
    """Whether a view, or one that it was taken of, has hooks."""
    while t is not None:
        if t._hooks:
            return True
        t = t._parent
    return False


class Part:
    """How a view that a call read looks at its memory, where its gradient goes to that of the
    memory.

    base: the memory, of this shape, which the view looks at through `chain`; None after a backward
    pass, or if NumPy sees it. writes: how often it had been written to.
    """

    __slots__ = ("base", "chain", "shape", "writes")
    base: Any

    def __init__(self, view: Any):
        storage = view._storage
        # What may be written to isn't kept: the call has a copy of its part.
        self.base, self.chain = None if is_kept_apart(storage) else storage._buffer, view._chain
        self.shape, self.writes = storage._buffer.shape, storage._writes

    @classmethod
    def of(cls, chain: views.Chain, shape: tuple[int, ...]) -> Part:
        """A part of no memory in particular."""
        made = object.__new__(cls)
        made.base, made.chain, made.shape, made.writes = None, chain, shape, 0
        return made

    def spread(self, g: Array) -> Array:
        """The gradient of the memory, by that of the view."""
        if self.chain.repeats:
            return self._gathered(g)
        if g.size == math.prod(self.shape):
            shape, strides, _ = self.chain.layout
            order = sorted(range(len(shape)), key=lambda i: (-strides[i], shape[i] != 1, i))
            return g.transpose(order).reshape(self.shape)
        whole = np.zeros(self.shape, g.dtype)
        self.seen_in(whole)[...] = g
        return whole

    def _gathered(self, g: Array) -> Array:
        """The same where the view may show an element twice, whose gradients are added."""
        shape, strides, offset = self.chain.layout  # type: ignore[misc]
        repeated = tuple([i for i, step in enumerate(strides) if not step and shape[i] > 1])
        if repeated:
            g = g.sum(repeated, keepdims=True)
        places = np.array(offset)
        for i, (size, step) in enumerate(zip(g.shape, strides)):
            places = places + (np.arange(size) * step).reshape(size, *[1] * (g.ndim - i - 1))
        whole = np.zeros(self.shape, g.dtype)
        np.add.at(whole.reshape(-1), places, g)
        return whole

    def seen_in(self, whole: Array) -> Any:
        """The part of memory like its own that the view is."""
        return views.seen_in(whole, self.chain)


def is_kept_apart(storage: Any) -> bool:
    """Whether calls on the tape have copies of the parts that they read of memory: NumPy may write
    to it, or the program writes to it part by part."""
    history = storage._history
    is_written = history.__class__ is Taped and history.call.known.writes_in_place
    return is_written or storage._shared is not None


def part(t: Any, target: Any) -> Part | None:
    """A tensor as a part of its memory, if its gradient goes there; target: where it goes."""
    is_whole = target is None or t._chain is None or target is t
    return None if is_whole else Part(t)


class Users(Protocol):
    """A derivative that a program has written."""

    def cotangents(self, call: Call, given: dict[int, Any]) -> Sequence[Any]:
        """Those of the operands `template.cotangents`, or None, by those of the results that a
        gradient reaches. All are tensors."""

    def nodes(
        self, operands: Sequence[Node], leaf: Callable[[Array | None, Aval], Node]
    ) -> tuple[Node, ...]:
        """The nodes of the results. leaf: makes that of a value."""

    def context(self) -> Any:
        """What `epoch.contexts` has of the call."""

    def free(self) -> None:
        """Release all values, as no pass will come."""


class Call:
    """A call on the tape.

    known: what it is. number: of its epoch. operands: the tensors that it read, arrays of numbers,
    and Numbers, in order. arrays: their values; both are None after a backward pass. counts: of the
    operands' writes then, see `counts`. targets: where their gradients go, or None. parts: those
    operands that are views, by place. kept: the arrays that its derivative reads; None once a
    backward pass has freed them. stages: what composites among its ops have left. results: the
    living ones, with the count of their writes. hooks: of results, by number, see `epoch.watch`; or
    None. users: the derivative, if a program has written it.
    """

    __slots__ = (
        "__weakref__", "_graph", "arrays", "counts", "hooks", "kept", "known", "number", "operands",
        "parts", "results", "shared", "stages", "targets", "users",
    )  # fmt: skip

    def __init__(
        self,
        known: Any,
        operands: list[Any],
        arrays: list[Any],
        targets: Sequence[Any],
        kept: Sequence[Any],
        stages: dict[Any, Any],
    ):
        self.known, self.operands, self.arrays, self.targets = known, operands, arrays, targets
        self.kept: Sequence[Any] | None = kept
        self.stages = stages
        self.counts: list[Any] = []
        self.parts: dict[int, Part] | None = None
        for t in operands:
            if t.__class__ is np.ndarray or t.__class__ is Number:
                self.counts.append(None)
            elif t._storage is None:
                self.counts.append((t._changes, t._rewrites, t._moves))
            else:
                found = None if t._chain is None else part(t, targets[len(self.counts)])
                if found is not None:
                    _note_taped(t)
                    self.parts = self.parts or {}
                    self.parts[len(self.counts)] = found
                self.counts.append(counts(t))
        self.number = _number()
        self.results: list[tuple[weakref.ref[Any], int, int]] = []
        self.hooks: dict[int, list[Any]] | None = None
        self.users: Users | None = None
        self.shared: Shared | None = None
        self._graph: _Graph | None = None

    @property
    def is_changed(self) -> bool:
        """Whether something that the derivative reads was written to since."""
        template = self.known.template
        for i in template.operands_read:
            before = self.counts[i]
            if before is not None and counts(self.operands[i]) != before:
                return True
        for i in template.results_read:
            ref, changes, rewrites = self.results[i]
            t = ref()
            if t is not None:
                state = t._storage or t
                if state._changes != changes or state._rewrites != rewrites:
                    return True
        return False

    @property
    def graph(self) -> _Graph:
        if self._graph is None:
            novelty.is_untaped()
            self._graph = _Graph(self)
            self.shared = self._graph.shared
            for index, hooks in (self.hooks or {}).items():
                for each in hooks:
                    epoch.watch(self.shared.hooks, self._graph.nodes[index], each)
        return self._graph

    def zeros(self, index: int) -> Array:
        """The cotangent of a result that no gradient reaches."""
        shape, dtype, _ = self.known.avals[index]
        return np.zeros(shape, dtype.np)

    def backward(self, seeds: Sequence[Array]) -> Sequence[Any]:
        """The cotangents of the operands `template.cotangents`, by those of the results. Called in
        a block of `quietly`."""
        assert self.kept is not None
        return self.known.backward(self.kept, seeds, self.stages)

    def result(self, index: int) -> Any:
        """A result that the derivative reads, as a tensor in memory of its own."""
        template = self.known.template
        assert self.kept is not None
        kept = self.kept[[*template.reads].index(len(self.operands) + index)]
        made = of_array(kept, self.known.avals[index])
        if index in template.seeds:
            made._history = Taped(self, index)
        return made

    def free(self) -> None:
        """Release all values. If the derivative reads any, a second pass is an error."""
        if self.known.template.reads:
            self.kept = None
            self.stages.clear()
            if self.users is not None:
                self.users.free()
        for i, count in enumerate(self.counts):
            if count is not None:
                self.operands[i] = self.arrays[i] = None
        if self.parts is not None:
            for each in self.parts.values():
                each.base = None


def _note_taped(view: Any) -> None:
    """Note that a call has read a view, and by it those that it was taken of."""
    while view is not None and not view._is_taped:
        view._is_taped = True
        view = view._parent


def counts(t: Any) -> tuple[int, int, int]:
    """How often the memory of a tensor was written to, also through `.data`, and how often the
    tensor was given other memory; see Held."""
    state = t._storage or t
    return state._changes, state._rewrites, t._moves


_epoch, _count = -1, 0  # that of the latest call, and its number there


def now() -> float:
    """A number below those of all later calls."""
    return _number()


def _number() -> float:
    """The number of a call's epoch: between that of the last epoch and that of the present one,
    whose calls may read its results."""
    global _epoch, _count
    if _epoch != clock.number:
        _epoch, _count = clock.number, 0
    _count += 1
    return _epoch - 1 + _count * 2.0**-30


class Taped(History):
    """The history of a result of a call on the tape. Its graph is built when it is looked at."""

    def __init__(self, call: Call, index: int):
        self.call, self.index, self.epoch = call, index, call.number  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Whether it is that of the same result: gradients that arrive at both are added."""
        is_taped = other.__class__ is Taped
        return is_taped and self.call is other.call and self.index == other.index  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((id(self.call), self.index))

    @property
    def is_freed(self) -> bool:  # type: ignore[override]
        return self.call.kept is None

    def free(self) -> None:
        self.call.free()

    def leads(self) -> Leads:
        if "targets" in self.__dict__:
            return super().leads()
        call = self.call
        ends = [t for i in call.known.template.cotangents if (t := call.targets[i]) is not None]
        own = [weakref.ref(t) for t in ends if not isinstance(t, History)]
        return tuple(own), tuple([t for t in ends if isinstance(t, History)])

    def __getattr__(self, name: str) -> Any:
        if name not in _BUILT:
            raise AttributeError(name)
        self.call.graph.tell(self)
        return self.__dict__[name]


_BUILT = {
    "node", "saved_nodes", "saved", "leaf_values", "rewritten", "scalar_values", "targets",
    "call_contexts", "shared",
}  # fmt: skip
"""What a history of the tape doesn't have until its graph is built."""


class _Graph:
    """The graph of a call, as its own epoch would have it.

    nodes: of the results. buffers: of the leaves, whose values `held` has. targets: of the
    variables. viewed: the nodes of views, and how they look at memory. told: the histories that
    have what is here.
    """

    def __init__(self, call: Call):
        self.call = call
        self.buffers: list[Any] = []
        self.targets: dict[Node, Any] = {}
        self.held: dict[Node, Held] = {}
        self.viewed: dict[Node, tuple[int, views.Chain]] = {}
        self.shared = Shared()
        self.told: list[weakref.ref[Taped]] = []
        known: dict[Any, Node] = {}
        args: list[Any] = []
        with graph.grad_mode(True):
            said = call.known
            places = iter(range(len(call.operands)))
            for each in said.args:
                if each is not PLACE:
                    args.append(each)
                    continue
                i = next(places)
                operand, (shape, dtype, _) = call.operands[i], said.operands[i]
                if call.counts[i] is None:
                    is_array = operand.__class__ is np.ndarray
                    args.append(constant(operand[()], dtype) if is_array else operand.constant)
                    continue
                of = call.parts.get(i) if call.parts else None
                base, target = call.arrays[i] if of is None else of.base, call.targets[i]
                own = call.arrays[i] if of is not None and base is None else None
                key = (i if operand is None else id(_state(operand)), id(base), target is None)
                node = known.get(key)
                if node is None:
                    whole = shape if of is None else of.shape
                    node = known[key] = self._leaf(i, base, (Size(whole), dtype, "cpu"), target)
                if of is not None:
                    node = self._view(i, of, node)
                if own is not None:
                    value = self._leaf(i, own, (Size(shape), dtype, "cpu"), None)
                    node = ops.with_value(node, value)
                args.append(node)
            args.extend(said.shapes[len(call.operands) :])
            if call.users is not None:
                self.nodes = [*call.users.nodes(args, self._value)]
            else:
                made = rounded_once(said.build, args)
                results = (made,) if made.__class__ is Node else tuple(made)
                self.nodes = [ops.clone(r) if r in args else r for r in results]
        for i, node in enumerate(self.nodes):
            if node.requires_grad and call.users is None:
                node.memo.setdefault("call", (said.build, args))
                if len(self.nodes) > 1:
                    node.memo["among"], node.memo["number"] = len(self.nodes), i
        if self.shared.views:
            with_views.add(self.shared)
            _graphs_of_views.add(self)

    def _new(self, value: Array, aval: Aval) -> tuple[Node, Handle]:
        """A leaf of a value, and a tensor that has it."""
        node = epoch.leaf_node(len(self.buffers), aval)
        holder = Handle()
        holder._buffer, holder._aval = value, aval
        self.buffers.append(value)
        return node, holder

    def _value(self, value: Array | None, aval: Aval) -> Node:
        """The node of a value that nobody else has, or that nothing reads any more."""
        if value is None:
            value = np.zeros(aval[0], aval[1].np)
        node, holder = self._new(value, aval)
        self.held[node] = Held.of(holder, None)
        return node

    def _leaf(self, place: int, base: Any, aval: Aval, target: Any) -> Node:
        """The node of the memory of an operand, or of what it has of it; target: where its gradient
        goes, or None."""
        t = self.call.operands[place]
        if base is None:  # no derivative reads it any more
            base = np.zeros(aval[0], aval[1].np)
        node, holder = self._new(base, aval)
        changes, rewrites, moves = self.call.counts[place]
        owner = None if t is None else t if t._moves != moves else _state(t)
        is_whole = target is not None or base is not self.call.arrays[place]
        chain = None if t is None or is_whole else t._chain
        self.held[node] = Held(holder, owner, changes, rewrites, moves if owner is t else 0, chain)
        if target is None:
            return node
        variable = ops.variable(node, len(self.buffers) - 1)
        self.targets[variable] = target
        return variable

    def _view(self, place: int, part: Part, node: Node) -> Node:
        """The node of an operand that looks at memory with `node`, and those of the views that it
        was taken of."""
        t, base = self.call.operands[place], node
        if t is None:
            return views.apply(node, part.chain)
        done = 0
        for view in reversed(_way_to(t, part.writes)):
            links = view._chain.links
            meeting = view._meeting
            if (
                meeting is not None
                and meeting.writes == part.writes
                and meeting.epoch < self.call.number
                and node.requires_grad
            ):
                node = self._end(place, view, meeting, value_node(base))
                done = len(links)
                continue
            if not done and view._writes != part.writes:
                node = resolving.seen_anew(node, view._chain)
            else:
                for kind, attrs in links[done:]:
                    node = views.seen(node, kind, attrs)
            done = len(links)
            if node.requires_grad:
                known = self.shared.views.get(id(view))
                if known is not None:
                    node = known.node
                elif value_node(node) in self.viewed:  # by a view that is alike
                    given.setdefault(node, 0)
                    node = another(node)
            self.viewed[value_node(node)] = place, view._chain
            if node.requires_grad:
                self.shared.views[id(view)] = Viewed(weakref.ref(view), node, base, part.writes)
        return node

    def _end(self, place: int, view: Any, meeting: History, base: Node) -> Node:
        """The node of a view at which the graph ends."""
        for node, target in self.targets.items():
            if target is meeting:
                return node
        node = ops.variable(views.apply(base, view._chain), -1 - len(self.targets))
        self.targets[node] = meeting
        self.viewed[value_node(node)] = place, view._chain
        return node

    def tell(self, history: Taped) -> None:
        """Fill in the fields of a history."""
        self.told.append(weakref.ref(history))
        node = self.nodes[history.index]
        to_keep = () if history.is_freed else saved_nodes(node)
        values = flushing.computed(to_keep, self.buffers) if to_keep else []
        history.__dict__.update(
            node=node,
            saved_nodes=to_keep,
            saved={n: self._held(n, value) for n, value in zip(to_keep, values)},
            rewritten={},
            scalar_values={},
            call_contexts={},
            shared=self.shared,
            targets={},
            leaf_values={},
        )
        history.targets = {n: self.targets[n] for n in history.variables}
        if self.call.users is not None:
            history.call_contexts = {n: self.call.users.context() for n in history.calls}
        if not history.is_freed:
            history.leaf_values = {n: self.held[n] for n in history.leaves}

    def forget(self) -> None:
        """Have the graph built anew when it is looked at again."""
        for ref in self.told:
            history = ref()
            for name in _BUILT if history is not None else ():
                history.__dict__.pop(name, None)  # type: ignore[union-attr]
        self.call._graph = None

    def _held(self, node: Node, value: Any) -> Held:
        holder = Handle()
        holder._buffer, holder._aval = value, (node.shape, node.dtype, "cpu")
        if node in self.viewed:
            place, chain = self.viewed[node]
            changes, rewrites, _ = self.call.counts[place]
            return Held(holder, self.call.operands[place]._storage, changes, rewrites, 0, chain)
        if node in self.nodes:
            ref, changes, rewrites = self.call.results[self.nodes.index(node)]
            owner = ref()
            if owner is not None:
                return Held.of(holder, owner)._replace(changes=changes, rewrites=rewrites)
        return Held.of(holder, None)


_graphs_of_views: weakref.WeakSet[_Graph] = weakref.WeakSet()
"""Those of calls that read views with a gradient, as far as they are built."""
_meetings = itertools.count(1)


def meet(t: Any) -> None:
    """Let the gradients of all uses of the view `t` meet in a history of its own, as if an epoch
    had made it, so that its hooks see their sum. So do those of the views that it was taken of."""
    if t._chain is None or t._chain.detaches or not clock.volatile or clock.holding:
        return
    storage = t._storage
    way = _way_to(t, storage._writes)[::-1]
    if storage._node is not None or any(view._node is not None for view in way):
        flushing.flush()
    target = storage._history or (storage._leaf_owner if storage._requires_grad else None)
    if target is None or t._chain.layout is None or t._chain.retypes or t._root is not None:
        return
    base, writes, shape, done = target, storage._writes, storage._buffer.shape, 0
    for view in way:
        known = view._history
        if known is None:
            known = view._history = view._meeting = _meeting_in(view, done, shape, target)
            known.base, known.writes = base, writes
        elif known.base is not base or known.writes != writes:
            continue
        else:
            view._meeting = known
        target, shape, done = known, view.shape, len(view._chain.links)
    for each in list(_graphs_of_views):
        if id(t) in each.shared.views and not each.shared.hooks:
            each.forget()


def _meeting_in(view: Any, done: int, shape: Sequence[int], target: Any) -> History:
    """A history of `view`, whose gradients go on to `target`: what its chain shows from the link
    `done` on, where the shape is this."""
    number = next(_meetings)
    with graph.grad_mode(True):
        leaf = epoch.leaf_node(number, (Size(shape), view.dtype, "cpu"))
        node = start = ops.variable(leaf, number)
        for kind, attrs in view._chain.links[done:]:
            node = views.seen(node, kind, attrs)
    history = History(node, after(target), ())
    history.targets = {start: target}
    return history


def _way_to(t: Any, writes: int) -> list[Any]:
    """The view `t` and those that it was taken of, whose memory had been written to so often."""
    found = [t]
    while found[-1]._parent is not None and found[-1]._writes == writes:
        found.append(found[-1]._parent)
    return found


calling: weakref.WeakSet[Call] = weakref.WeakSet()
"""The calls in whose backward pass functions of the program are called."""


def plain(t: Any) -> Taped | None:
    """The history of a tensor that is no view, if it is on the tape and its graph isn't built."""
    state = _state(t)
    history = state._history
    if history.__class__ is not Taped or t._chain is not None or t._root is not None:
        return None
    is_present = state._node is not None or t._node is not None
    return None if is_present or history.call.shared is not None else history


def watch(history: Taped, hooks: Any) -> None:
    """Have backward passes call hooks with the gradient of a result."""
    call = history.call
    if call.hooks is None:
        call.hooks = {}
        calling.add(call)
    epoch.watch(call.hooks, history.index, hooks)


def is_watched_by(history: Taped, hooks: Any) -> bool:
    """Whether a result has these hooks."""
    known = (history.call.hooks or {}).get(history.index, ())
    return any([each is hooks for each in known])


def note(call: Call, results: Sequence[Any]) -> None:
    """Give the results of a call their histories."""
    call.results = [(weakref.ref(t), 0, 0) for t in results]
    for i in call.known.template.seeds:
        results[i]._history = Taped(call, i)


def rebound(t: Any, made: Any) -> bool:
    """Whether `t` was overwritten with the result of a call, and has its history now. Nothing else
    looks at its memory."""
    if made is t or made._storage is not None or made.shape != t.shape:
        return False
    history = made._history
    let_overwrite(t, made)
    t._buffer, t._aval, t._history = made._buffer, made._aval, history
    t._changes += 1
    if history.__class__ is Taped:
        history.call.results[history.index] = weakref.ref(t), t._changes, t._rewrites
    return True


def let_overwrite(t: Any, made: Any, since: float = math.inf) -> None:
    """Let `t` be overwritten with the result `made` of a call, which may itself have read it: its
    derivative reads the old value. So do those of the calls from the number `since` on, of which it
    was made."""
    reached, seen = [made], set()
    while reached:
        history = reached.pop()._history
        if history.__class__ is not Taped or id(history.call) in seen:
            continue
        call = history.call
        seen.add(id(call))
        for i, each in enumerate(call.operands):
            if call.counts[i] is None:
                continue
            if _state(each) is _state(t):
                if t._storage is not None:
                    _keep_apart(call, i)
                call.operands[i] = _copy(call, i)
            elif each._history.__class__ is Taped and each._history.call.number >= since:
                reached.append(each)


def _state(t: Any) -> Any:
    return t._storage or t


def _keep_apart(call: Call, place: int) -> None:
    """Let a call have a copy of an operand, whose memory is about to change."""
    array = call.arrays[place]
    if array.base is None and call.operands[place]._chain is not None:
        return  # it has one
    call.arrays[place] = own = array.copy()
    if call.kept is not None:
        call.kept = [own if a is array else a for a in call.kept]
    if call.parts is not None and place in call.parts:
        call.parts[place].base = None


def _copy(call: Call, place: int) -> Any:
    """A tensor of its own with what an operand had."""
    made, t, array = object.__new__(epoch.tensor_type), call.operands[place], call.arrays[place]
    made._buffer, made._aval = array, (Size(array.shape), t.dtype, "cpu")
    made._changes, made._rewrites, made._moves = call.counts[place]
    made._chain = call.parts[place].chain if call.parts and place in call.parts else None
    return made
