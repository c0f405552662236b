"""Backward passes: record the gradients of leaves, given the gradients of outputs.

A pass goes through the nodes of this epoch first. Where it meets a tensor of an earlier epoch, it
goes on in that tensor's history. The latest epoch comes first, so that the pass enters each history
once, with its whole gradient.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, format_location
from tilewright.ir.ops.marker import value_node
from tilewright.ir.passes import autodiff
from tilewright.ir.passes.autodiff import Passed, pullback
from tilewright.ir.rewrite import substitute

from .. import recording
from ..recording import epoch, views
from ..recording.derivations import (
    Derivation,
    derive,
    derive_all,
    derive_together,
    is_copied,
    is_fixed,
    is_read_transposed,
    is_spared,
    placeholder,
    saves,
    values_read,
)
from ..recording.histories import Held, History, earliest_first
from ..recording.parts import differentiable, is_call
from . import anomaly, rows
from .arriving import Arriving

if TYPE_CHECKING:
    from .._tensor import Tensor

TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Specify retain_graph=True if you need to backward through the "
    "graph a second time"
)
RETAINED = -1  # the id of the hook that keeps a non-leaf tensor's gradient; it runs last


def gradients(
    roots: Sequence[tuple[Any, Node]],
    *,
    wanted: Sequence[Any] | None,
    retain_graph: bool,
    create_graph: bool,
    accumulate: Callable[[Any, Node], None] | None = None,
) -> list[tuple[Any, Node]]:
    """(tensor, its gradient's node) for every leaf tensor, or for each of `wanted` that is reached.

    roots: (tensor, node of its cotangent). Called inside `recording.hold()`.
    accumulate: adds the gradient of a leaf to its `.grad`. Where hooks run on the way, it is called
        as soon as a gradient is whole, and the result has the others.
    """
    epoch.clock.differentiated = True
    watched = anomaly.looks() or recording.clock.watching is not None
    if wanted is None and len(roots) == 1 and not create_graph and not watched:
        found = _leaf_gradients(*roots[0], retain_graph)
        if found is not None:
            return found
    seeds: dict[Node, Node] = {}
    for t, g in roots:
        node = recording.resolve(t)
        seeds[node] = seeds[node] + g if node in seeds else g
    going = _Pass(wanted, create_graph, accumulate)
    derivation = going.through_nodes(seeds, recording.hooked)
    seen = [recording.resolve(t) for t, _ in roots if t._grad_freed]
    freed = [node for node in seen if node.op is not ops.variable]
    if freed and (derivation.saved or any(map(_unpacks, freed))):
        raise RuntimeError(TWICE + at_user_line())
    going.through_histories()
    if not retain_graph:
        for t, _ in roots:
            if t._node is not None and t._node.op is not ops.variable:
                t._grad_freed = True
                recording.mark_freed(t._node)
        for history in going.used:
            if not history.is_inner and saves(history.node):
                history.free()
    if wanted is None:
        return list(going.found.values())
    return [(t, going.found[id(t)][1]) for t in wanted if id(t) in going.found]


def _leaf_gradients(t: Any, seed: Node, retain_graph: bool) -> list[tuple[Any, Node]] | None:
    """The gradients in the usual case, by a few lookups: the whole graph is in this epoch, and ends
    in leaf tensors that are each met once. None in other cases."""
    node = recording.resolve(t)
    if recording.hooked or recording.contexts or t._grad_freed or node.op is ops.variable:
        return None
    derivation = derive(node, seed)
    changed = recording.changed_for(derivation.saved, (node,)) if epoch.mutated else ()
    if changed:
        with recording.grad_mode(False):
            grads = _renewed(derivation, _present_values(changed, (node,)))
        derivation = Derivation(derivation.seeds, grads)
    found = {}
    for place, g in derivation.places:
        target = recording.variable_target(place)
        if isinstance(target, History) or target in found:
            return None
        found[target] = g
    if not retain_graph:
        t._grad_freed = True
        recording.mark_freed(node)
    return list(found.items())


def _unpacks(root: Node) -> bool:
    """Whether the backward pass of `root` goes through a call that keeps values of its own."""
    calls = filter(is_call, differentiable(root))
    return any(recording.contexts[n.attrs[0]][0].saves for n in calls)


ACCUMULATING: weakref.WeakSet[Any] = weakref.WeakSet()
"""Hooks of AccumulateGrad nodes, which stand among those of the leaf. They come after the leaf's
own, and see only the gradients that are added to the leaf's."""


def call_hooks(
    hooks: dict[int, Callable[[Any], Any]] | None, g: Node, accumulates: bool = True
) -> Node:
    """The gradient `g` of a tensor after its hooks have seen it. All get the same object, on which
    one may leave something for the next. accumulates: whether it is added to the leaf's."""
    given = [(k == RETAINED, hook in ACCUMULATING, hook) for k, hook in (hooks or {}).items()]
    seen = None
    for _, waits, hook in sorted(given, key=lambda each: each[:2]):
        if waits and not accumulates:
            continue
        if seen is None:
            seen = rows.as_tensor(g)
        replaced = hook(seen)
        if replaced is not None:
            seen, g = replaced, rows.as_node(replaced)
    return g


class _Pass:
    """One backward pass.

    found: gradients by the id of their tensor. wanted: the ids of the tensors asked for; None for
        all leaves.
    pending: histories to go through, and the gradients of their nodes. used: histories that the
        pass has gone through. needed: whether a history leads to a wanted tensor.
    latest: the epoch that the pass is in. waiting: the nodes at which parts of its graph begin ->
        the number of parts through which the pass has to go before.
    refused: nodes in this epoch of saved values that were overwritten since -> their own nodes. A
        gradient asked for that reads one is an error. called: nodes of earlier epochs whose
        tensors' hooks have been called.
    accumulate: as in `gradients`.
    """

    def __init__(
        self,
        wanted: Sequence[Any] | None,
        create_graph: bool,
        accumulate: Callable[[Any, Node], None] | None,
    ):
        self.tensors = list({id(t): t for t in wanted or ()}.values())  # one may be asked for twice
        self.wanted = None if wanted is None else {id(t) for t in wanted}
        self.create_graph = create_graph
        self.accumulate = accumulate
        self.found: dict[int, tuple[Any, Node]] = {}
        self.pending: dict[History, Node] = {}
        self.used: list[History] = []
        self.needed: dict[History, bool] = {}
        self.latest = -1
        self.waiting: dict[Node, int] = {}
        self.refused: dict[Node, Node] = {}
        self.called: set[Node] = set()

    def add(self, t: Tensor, g: Node) -> None:
        if self.wanted is None or id(t) in self.wanted:
            before = self.found.get(id(t))
            self.found[id(t)] = (t, g if before is None else before[1] + g)

    def publish(self, t: Any) -> None:
        """Add the gradient found for leaf `t` to its `.grad`, and forget it."""
        found = self.found.pop(id(t), None)
        if found is not None and self.accumulate is not None:
            self.accumulate(*found)

    def arrive(self, target: Tensor, g: Node) -> None:
        """Add a gradient that has reached a leaf tensor, or a tensor of an earlier epoch."""
        if isinstance(target, History):
            before = self.pending.get(target)
            self.pending[target] = g if before is None else before + g
        else:
            self.add(target, g)

    # ---- this epoch ----------------------------------------------------------------------

    def through_nodes(
        self, seeds: dict[Node, Node], hooks: dict[Node, list[dict[int, Any]]]
    ) -> Derivation:
        for _, cotangents in recording.contexts:
            cotangents.clear()  # a failed pass may have left some
        inner = {epoch.history_node(t): t for t in self.tensors}
        self._tell(
            recording.clock.number, seeds, inner, lambda n: recording.variable_target(n.attrs[0])
        )
        return self._through(seeds, inner, hooks)

    def _tell(
        self, number: int, roots: Iterable[Node], inner: Any, target: Callable[[Node], Any]
    ) -> None:
        """Tell who watches of the nodes of an epoch through which the pass goes.

        inner: the nodes of tensors asked for. target: that of a variable.
        """
        if recording.clock.watching is None:
            return
        leads: dict[Node, set[Node]] = {}
        for node in autodiff.differentiable(list(roots)):
            on = {o for o in node.operands if o in leads}
            ends = node.op is ops.variable and self._is_wanted(target(node))
            if on or ends or node in inner:
                leads[node] = on
        recording.clock.watching.passed(number, leads)

    def _through(
        self, seeds: dict[Node, Node], inner: dict[Node, Any], hooks: dict[Node, Any]
    ) -> Derivation:
        """Go through nodes of this epoch. inner: the nodes of the tensors asked for."""
        plain = {n: t for n, t in inner.items() if n.op is not ops.variable}

        def is_wanted(n: Node) -> bool:
            ends = n.op is ops.variable
            return n in plain or (ends and self._is_wanted(recording.variable_target(n.attrs[0])))

        arrived: Collection[Node] = ()
        written: Collection[Node] = epoch.mutated
        if anomaly.looks():
            hooks = _joined(hooks, anomaly.watches(seeds))
        if len(seeds) == 1 and not plain and not hooks and not recording.contexts:
            ((root, seed),) = seeds.items()
            derivation = derive(root, seed, self.create_graph)
        else:
            watching = {n: _watch(n, each) for n, each in hooks.items()}
            if self.accumulate is not None:
                arriving = Arriving(seeds, self.pending, self.add, self.publish)
                watching, arrived = arriving.over(watching), arriving.targets
                written = frozenset(epoch.mutated)  # hooks may write to what the pass has read
            with recording.grad_mode(self.create_graph):
                derivation = derive_all(
                    seeds,
                    self.create_graph,
                    targets=tuple(plain),
                    hooks=watching,
                    is_wanted=None if self.wanted is None else is_wanted,
                )
        changed = recording.changed_for(derivation.saved, seeds) if written else []
        if arrived:
            changed = [n for n in changed if n in written]
        if changed and self.wanted is not None:  # what other gradients read may have changed
            read = values_read(
                (g for n, g in derivation.grads.items() if is_wanted(n)),
                seeds,
            )
            changed = [n for n in changed if n in read]
        if changed and recording.contexts:  # a user-written derivative may keep copies of them
            held = [h._node for h in recording.handles if h._node is not None]
            read = values_read(derivation.grads.values(), seeds, held)
            changed = [n for n in changed if n in read]
        if self.refused:
            asked = derivation.grads.items()
            wanted = [g for n, g in asked if self.wanted is None or is_wanted(n)]
            for node in values_read(wanted, seeds):
                if node in self.refused:
                    raise _modified(self.refused[node])
        grads = derivation.grads
        if changed:
            with recording.grad_mode(self.create_graph):
                grads = _renewed(derivation, _present_values(changed, seeds))
        for node, g in grads.items():
            t = plain.get(node)
            if t is not None:
                if has_twin(node, t):
                    raise twins(node)
                self.add(t, g)
            if node.op is ops.variable and node not in arrived:
                self.arrive(recording.variable_target(node.attrs[0]), g)
        return derivation

    # ---- earlier epochs --------------------------------------------------------------------

    def through_histories(self) -> None:
        while self.pending:
            latest = max(h.epoch for h in self.pending)
            if latest != self.latest:
                self._begin(latest)
            # A gradient reaches last the tensors that an epoch read first.
            reached = reversed(self.pending.items())
            batch = {h: g for h, g in reached if h.epoch == latest and h.node not in self.waiting}
            for history in batch:
                del self.pending[history]
            arrived = {*batch}
            self._call_hooks(batch)
            through = self._through_which(batch)
            for t, g in self._wanted_in(batch, through):
                self.add(t, g)
            batch = through
            for history in batch:
                if history.is_freed:
                    raise RuntimeError(TWICE + at_user_line())
                if history.is_captured and epoch.clock.capturing:
                    raise RuntimeError(
                        "the backward pass of what another graph computes can't be captured: what "
                        "was saved is that of one replay. Capture both in one graph, or call "
                        f"backward() after the replay{at_user_line()}"
                    )
            self.used.extend(batch)
            self._through_batch(batch)
            self._leave(arrived)

    def _call_hooks(self, batch: dict[History, Node]) -> None:
        """Call the hooks on tensors at whose nodes the pass enters `batch`. The gradient of such a
        tensor, which may be asked for, is the one after its hooks."""
        entered = Counter(h.node for h in batch)
        for history in batch:
            node = history.node
            hooks = history.shared.hooks.get(node)
            if not hooks or entered[node] > 1 or _is_inside(node, batch):
                continue
            if not self._is_wanted(history):
                continue
            with recording.grad_mode(self.create_graph):
                for each in hooks:
                    if not isinstance(each, NodeHooks):
                        batch[history] = call_hooks(each, batch[history])
            self.called.add(node)

    def _begin(self, number: int) -> None:
        """Find in what order the pass goes through the histories of an epoch. Nothing but each
        other leads to these any more."""
        self.latest = number
        begun = [h for h in self.pending if h.epoch == number]
        seen = {*begun}
        stack = [*begun]
        while stack:
            for each in stack.pop().inner():
                self.waiting[each.node] = self.waiting.get(each.node, 0) + 1
                if each not in seen:
                    seen.add(each)
                    stack.append(each)
        self._tell_of(number, begun)

    def _leave(self, histories: Iterable[History]) -> None:
        """Let the histories go on that wait for nothing but `histories`. Those that no gradient has
        reached are left, too."""
        stack = list(histories)
        while stack:
            for each in stack.pop().inner():
                self.waiting[each.node] -= 1
                if not self.waiting[each.node]:
                    del self.waiting[each.node]
                    if each not in self.pending:
                        stack.append(each)

    def _through_which(self, batch: dict[History, Node]) -> dict[History, Node]:
        """Those of `batch` that the pass goes on through: they lead to a tensor asked for, or are
        that of one to which another one leads, too."""
        needed = [h for h in batch if self._is_needed(h)]
        met = {
            h
            for h in batch
            if h in needed or (_history_wanted(h, self.tensors) and _is_inside(h.node, needed))
        }
        return {h: g for h, g in batch.items() if h in met}

    def _wanted_in(
        self, batch: dict[History, Node], through: dict[History, Node]
    ) -> list[tuple[Any, Node]]:
        """The tensors asked for whose histories are in `batch`, with their gradients, except those
        that `_through_batch` finds on its way `through` others."""
        return [
            (t, g)
            for t in self.tensors
            for history, g in batch.items()
            if _begins_at(history, t)
            if history not in through or not _is_inside(history.node, through)
        ]

    def _is_needed(self, history: History) -> bool:
        if self.wanted is None:
            return True
        for each in earliest_first(history, lambda h: h not in self.needed):
            self.needed[each] = self._leads_on(each)
        return self.needed[history]

    def _is_wanted(self, target: Any) -> bool:
        """Whether the gradient that arrives at `target` is asked for, or leads to one that is."""
        if self.wanted is None:
            return True
        if isinstance(target, History):
            return _history_wanted(target, self.tensors) or self._is_needed(target)
        return id(target) in self.wanted

    def _leads_on(self, history: History) -> bool:
        """Whether `history` leads to a wanted tensor. The answer for earlier histories is known."""
        assert self.wanted is not None
        if any(id(t) in self.wanted for t in history.leaf_tensors()):
            return True
        if any(_node_in(t, history) not in (None, history.node) for t in self.tensors):
            return True
        if history.is_freed:  # the histories before it aren't known
            return any(
                own is not None and own.epoch < history.epoch
                for own in map(_history_of, self.tensors)
            )
        return any(self.needed[h] or _history_wanted(h, self.tensors) for h in history.before())

    def _tell_of(self, number: int, histories: Sequence[History]) -> None:
        """As `_tell`, of an epoch that is over."""
        if recording.clock.watching is None:
            return
        targets = {n: t for h in histories for n, t in h.ends().targets.items()}
        roots = [h.node for h in histories]
        graph = frozenset(autodiff.differentiable(roots))
        inner = {n: t for t in self.tensors for h in histories if (n := _node_of(t, h)) in graph}
        self._tell(number, roots, inner, targets.__getitem__)

    def _inner_of(self, batch: Iterable[History]) -> dict[Node, Any]:
        """The nodes of tensors asked for that the pass meets on its way through `batch`."""
        inner = {}
        for t in self.tensors:
            for history in batch:
                node = _node_in(t, history)
                if node is None or node.op is ops.variable:  # a pass ends in variables anyway
                    continue
                if node is not history.node or _is_inside(node, batch):
                    if history.shared.has_twin(node, t):
                        raise twins(node)
                    inner[node] = t
        return inner

    def _through_batch(self, batch: dict[History, Node]) -> None:
        inner = self._inner_of(batch)
        special = inner or anomaly.looks() or any(h.call_contexts or _hooks_of(h) for h in batch)
        if batch and (special or self.create_graph):
            self._again(batch, inner)
            return
        if batch:
            self._through_saved(batch)

    def _through_saved(self, batch: dict[History, Node]) -> None:
        """Go on by derivations over the values that the epoch saved.

        Cotangents are added in the same order as within an epoch: to the ones that a target
        already has.
        """
        targets = {n: t for history in batch for n, t in history.targets.items()}
        begun = self._begun(targets)
        given: dict[Node, Node] = {}
        for history, g in batch.items():  # histories that compute the same share a node
            before = given.get(history.node)
            given[history.node] = g if before is None else before + g
        given |= begun
        stops = {h.node: h.stops for h in batch}
        stops = {n: stops.get(n, () if n.op is ops.variable else (n,)) for n in given}
        derivation = derive_together(stops)
        seeds = {n: placeholder(n, i) for i, n in enumerate(given)}
        wanted = {n: g for n, g in derivation.grads.items() if self._is_wanted(targets[n])}
        saved = derivation.saved
        if len(wanted) < len(derivation.grads):
            read = values_read(wanted.values(), seeds, stops=derivation.stops)
            saved = tuple(n for n in saved if n in read)
        mapping = {seeds[n]: g for n, g in given.items()}
        holders: dict[Node, History] = {}
        for history in batch:
            for kept in history.values():
                for value in kept:
                    holders.setdefault(value, history)
        for node in saved:
            value = value_node(node)
            fixed = is_fixed(value)
            mapping[node] = value if fixed else _saved_value(batch, node, holders[value])
        grads = _instantiate(tuple(wanted.values()), mapping)
        for node in begun:  # before anything arrives: a target may have several variables
            self._forget(targets[node])
        for node, grad in zip(wanted, grads, strict=True):
            self.arrive(targets[node], grad)

    def _begun(self, targets: dict[Node, Any]) -> dict[Node, Node]:
        """For each target that already has a gradient: one of its variables, and the gradient."""
        found: dict[int, tuple[Node, Node]] = {}
        for node, target in targets.items():
            if isinstance(target, History):
                g = self.pending.get(target)
            else:
                g = self.found.get(id(target), (None, None))[1]
            if g is not None:
                found.setdefault(id(target), (node, g))
        return dict(found.values())

    def _forget(self, target: Any) -> None:
        if isinstance(target, History):
            del self.pending[target]
        else:
            del self.found[id(target)]

    def _again(self, batch: dict[History, Node], inner: dict[Node, Any]) -> None:
        """Record the forward graphs again in this epoch, from their leaves, and go through the new
        graphs."""
        mapping: dict[Node, Node] = {}
        attrs: dict[Node, tuple[Any, ...]] = {}
        hooks: dict[Node, list[dict[int, Any]]] = {}
        for history in batch:
            _revive(history, mapping, attrs, self.refused)
            hooks.update(_hooks_of(history))
        ends: dict[Node, Node] = {}
        if self.create_graph:  # later passes are asked for gradients by the same tensors
            for n, t in inner.items():
                own, end = _history_of(t), epoch.history_node(t)
                is_whole = t._chain is not None or end is recording.resolve(t)
                if own is not None and own.node is n and is_whole and n not in mapping:
                    mapping[n], ends[n] = recording.resolve(t), end
        for history in batch:
            for n in history.unread() if history.call_contexts else ():
                mapping.setdefault(n, ops.expand(ops.constant(0, n.dtype, n.device), n.shape))
        hooked = [n for n in hooks if n not in mapping]
        args = [a for n in hooked for a in n.memo.get("call", (None, ()))[1] if isinstance(a, Node)]
        olds = [*(h.node for h in batch), *inner, *hooked, *args]
        with recording.grad_mode(True):
            made = substitute(olds, mapping, attrs, as_made=True)
        news = dict(zip(olds, made, strict=True))
        seeds: dict[Node, Node] = {}
        for history, g in batch.items():
            root = news[history.node]
            seeds[root] = seeds[root] + g if root in seeds else g
        for n in hooked:  # hooks on nodes ask for the operands of the call
            if "call" in n.memo:
                build, own = n.memo["call"]
                again = [news[a] if isinstance(a, Node) else a for a in own]
                news[n].memo.setdefault("call", (build, again))
        if self.create_graph:  # a later pass goes through the new nodes, too
            for n in hooked:
                for each in hooks[n]:
                    epoch.watch(recording.hooked, news[n], each)
        watched = {
            news[n]: [h for h in hooks[n] if n not in self.called or isinstance(h, NodeHooks)]
            for n in hooked
        }
        self._through(seeds, {ends.get(n, news[n]): t for n, t in inner.items()}, watched)


def _revive(
    history: History,
    mapping: dict[Node, Node],
    attrs: dict[Node, tuple[Any, ...]],
    refused: dict[Node, Node],
) -> None:
    """Map the inputs of the graph of `history` to stand-ins in this epoch. Those that no derivative
    may read, as they were overwritten, are `refused`."""
    needed: Sequence[Node] = ()
    if not history.calls:
        needed = derive(history.node, placeholder(history.node), stops=history.stops).saved
    saved = {value_node(n) for n in needed}
    of_tensors = {
        value
        for value, n in ((value_node(n), n) for n in needed if n.op is not ops.saved)
        if value in history.overwritten or not is_copied(n)
    }
    for node, held in history.leaf_values.items():
        if node not in mapping:
            is_changed = held.is_changed or held.is_rewritten or node in history.overwritten
            mapping[node] = recording.resolve(held.tensor)
            if node in saved and is_changed and (node in of_tensors or _is_in_numpy(held)):
                refused[mapping[node]] = node
    for node, value in history.scalar_values.items():
        if node not in mapping:
            mapping[node] = recording.scalar(value, node.dtype, node.device)
    for node, target in history.targets.items():
        if node in attrs or node in mapping:
            continue
        value = value_node(node)
        own = history.leaf_values.get(value) or history.saved.get(value)
        if own is not None and not isinstance(target, History) and _is_itself(target, own):
            mapping[node] = recording.resolve(target)
        elif own is not None and (value in history.saved or node in history.stops):
            # Begin with it, not with what made it.
            mapping[node] = recording.variable(recording.resolve(own.tensor), target)
        else:
            attrs[node] = (len(recording.variables),)
            recording.variables.append(target)
    for node, context in history.call_contexts.items():
        if node not in attrs:
            attrs[node] = (len(recording.contexts), *node.attrs[1:])
            recording.contexts.append(context)
            context[1].clear()  # a failed pass may have left some


def _hooks_of(history: History) -> dict[Node, list[dict[int, Any]]]:
    """The hooks on the way of a gradient through `history`."""
    if not history.shared.hooks:
        return {}
    inside = history.shared.hooks.keys() & history.inside  # looks through the smaller one
    return {n: history.shared.hooks[n] for n in sorted(inside, key=lambda n: n.seq)}


def _is_itself(t: Any, held: Held) -> bool:
    """Whether leaf tensor `t` still has the value that the history kept."""
    if held.owner is None or held.is_moved or held.is_changed or held.is_rewritten:
        return False
    return held.state is (t._storage or t) and recording.resolve(t).op is ops.variable


def _history_of(t: Any) -> History | None:
    """The history of `t`, if an earlier epoch computed it, and this one hasn't written to it since
    with gradients."""
    history: History | None = t._history if t._chain is not None else (t._storage or t)._history
    if history is None:
        return None
    node = epoch.history_node(t)
    is_still = node.op is ops.variable and recording.variable_target(node.attrs[0]) is history
    return history if is_still else None


def _begins_at(history: History, t: Any) -> bool:
    """Whether `history` is that of `t`, or the inner one at its node."""
    own = _node_of(t, history) if history.is_inner else _history_of(t)
    return own is (history.node if history.is_inner else history)


def _history_wanted(history: History, tensors: Sequence[Any]) -> bool:
    return any(_begins_at(history, t) for t in tensors)


def _node_of(t: Any, history: History) -> Node | None:
    """The node of `t` in the epoch of `history`, if it had one."""
    own = _history_of(t)
    if own is not None and own.epoch == history.epoch:
        return own.node
    return history.shared.node_of(t)


def _node_in(t: Any, history: History) -> Node | None:
    """The node of `t` in the graph of `history`, if it has one."""
    node = _node_of(t, history)
    return node if node in history.inside else None


def _is_inside(node: Node, batch: Iterable[History]) -> bool:
    """Whether `node` is on the way to another history's node."""
    return any(h.node is not node and node in h.inside for h in batch)


def _joined(first: dict[Node, Any], second: dict[Node, Any]) -> dict[Node, Any]:
    return {n: [*first.get(n, ()), *second.get(n, ())] for n in (*first, *second)}


class NodeHooks:
    """The hooks on one call: those `before` the gradients of its operands are computed, and those
    `after`. owner: the object that has them, for as long as its graph lasts."""

    def __init__(self) -> None:
        self.before: dict[int, Callable[..., Any]] = {}
        self.after: dict[int, Callable[..., Any]] = {}
        self.owner: Any = None

    def arrived(self, g: Node) -> Node:
        """The gradient of the call's result, after the hooks before it."""
        for hook in list(self.before.values()):
            replaced = hook((rows.as_tensor(g),))
            if replaced is not None:
                g = rows.as_node(replaced[0] if isinstance(replaced, tuple) else replaced)
        return g

    def passed_on(self, node: Node, g: Node) -> Node | Passed:
        """The gradient of the result `node`, with those of its operands where hooks come after."""
        if not self.after:
            return g
        _, args = node.memo["call"]
        places = [a for a in args if isinstance(a, Node)]
        inputs = tuple(dict.fromkeys(a for a in places if a.requires_grad))
        parts = pullback({node: g}, inputs, stops=inputs, create_graph=recording.is_grad_enabled())
        for hook in list(self.after.values()):
            left = dict(parts)  # an operand that is there twice gets its gradient once
            found = [left.pop(a, None) for a in places]
            grads = tuple(None if part is None else rows.as_tensor(part) for part in found)
            replaced = hook(grads, (rows.as_tensor(g),))
            if replaced is None:
                continue
            given = replaced if isinstance(replaced, tuple) else (replaced,)
            if len(given) != len(places):
                raise RuntimeError(
                    f"a hook on a node returned {len(given)} gradients, expected {len(places)}"
                    f"{at_user_line()}"
                )
            parts = {
                a: rows.as_node(t)
                for a, t, before in zip(places, given, found, strict=True)
                if t is not None and (before is not None or a not in parts)
            }
        return Passed(g, parts)


def _watch(node: Node, hooks: Sequence[Any]) -> Callable[[Node], Node | Passed]:
    of_nodes = [each for each in hooks if isinstance(each, NodeHooks)]

    def run(g: Node) -> Node | Passed:
        for each in hooks:
            g = each.arrived(g) if isinstance(each, NodeHooks) else call_hooks(each, g)
        found: Node | Passed = g
        for each in of_nodes:  # there is one, as a call has one object
            found = each.passed_on(node, g)
        return found

    return run


def has_twin(node: Node, t: Any) -> bool:
    """Whether another tensor of this epoch shares `node` with `t`: interning makes one node of two
    tensors that compute the same, and where both were used their gradients can't be told apart."""
    own = t._storage or t
    views = t._storage._views if t._storage is not None else ()  # some were made in earlier epochs
    others = [h for h in (*recording.handles, *views) if h._node is node and h is not t]
    return any(t._chain is not None or (h._storage or h) is not own for h in others)


def twins(node: Node) -> RuntimeError:
    """The error where the gradient of one of two twins is asked for."""
    return RuntimeError(
        "the gradient of this tensor can't be told from that of another one that was computed by "
        f"the same expression (at {format_location(node.loc)}); compute it once, or take this one "
        f"from a clone(){at_user_line()}"
    )


def _refuse(changed: Iterable[Node], roots: Iterable[Node]) -> None:
    """Raise if a value was overwritten that the backward pass of `roots` reads."""
    for node in changed:
        if not is_spared(node, roots):
            raise _modified(node)


def _present_values(changed: Iterable[Node], roots: Iterable[Node]) -> dict[Node, Node]:
    """What stands in the place of values that were overwritten through `.data`: PyTorch's backward
    pass reads that. RuntimeError for other writes."""
    values = {n: recording.present(n) for n in changed}
    _refuse((n for n, now in values.items() if now is None), roots)
    return {n: now for n, now in values.items() if now is not None and not is_spared(n, roots)}


def _renewed(derivation: Derivation, values: dict[Node, Node]) -> dict[Node, Node]:
    """The gradients of a derivation, where they read other values of some forward nodes."""
    if not values:
        return derivation.grads
    kept = (*derivation.saved, *derivation.seeds.values())
    mapping = {**dict(zip(kept, kept, strict=True)), **values}
    grads = substitute(tuple(derivation.grads.values()), mapping)
    return dict(zip(derivation.grads, grads, strict=True))


def _modified(node: Node) -> RuntimeError:
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {list(node.shape)}, computed by {node.op.name} at {format_location(node.loc)}"
        f"{at_user_line()}"
    )


def _instantiate(grads: tuple[Node, ...], mapping: dict[Node, Node]) -> tuple[Node, ...]:
    """The gradient graph over this epoch's values. A repeated step finds it in the cache."""
    key = (_instantiate, grads, tuple(mapping.items()))
    table = epoch.table(False)
    found = table.get(key)
    if found is None:
        with recording.grad_mode(False):
            found = table[key] = tuple(substitute(grads, mapping))
    return found


def _saved_value(batch: Iterable[History], node: Node, history: History) -> Node:
    """The value of a node, which `history`, one of `batch`, has kept."""
    value = value_node(node)
    if value.op is ops.scalar:
        return recording.scalar(history.scalar_values[value], value.dtype, value.device)
    held = history.saved.get(value) or history.leaf_values[value]
    now = history.rewritten.get(node)
    overwritten = value in history.overwritten and now is None
    if now is not None:
        held = now
    if overwritten or held.is_changed:
        if _is_in_numpy(held):  # that memory has the new value
            raise _modified(value)
        written = overwritten and node.op is not ops.saved
        if written or not is_copied(node):
            _refuse((node,), [h.node for h in batch])
    if held.is_rewritten and not is_copied(node):
        roots = [h.node for h in batch]
        is_old = held.is_moved and is_read_transposed(node, roots)
        if not (is_old or is_spared(node, roots)):
            return value_node(views.apply(epoch.resolve_state(held.owner), held.chain))
    return value_node(recording.resolve(held.tensor))


def _is_in_numpy(held: Held) -> bool:
    return held.owner is not None and held.state._shared is not None
