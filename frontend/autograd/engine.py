"""Backward passes: record the gradients of leaves, given the gradients of outputs.

A pass goes through the nodes of this epoch first. Where it meets a tensor of an earlier epoch, it
goes on in that tensor's history. The latest epoch comes first, so that the pass enters each history
once, with its whole gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.ops.marker import value_node
from tilewright.ir.passes import autodiff
from tilewright.ir.rewrite import substitute

from .. import recording
from ..recording import epoch, novelty, resolving
from ..recording.derivations import (
    Derivation,
    derive,
    derive_all,
    derive_together,
    is_fixed,
    placeholder,
    saves,
    values_read,
)
from ..recording.histories import History
from ..recording.parts import differentiable, is_call
from ..recording.roots import historied
from . import anomaly
from .arriving import Arriving
from .goal import Goal, by_shared, history_of, inside, node_of
from .hook_calls import NodeHooks, as_one, call_hooks
from .pending import Pending
from .revival import hooks_of, revive
from .twins import has_twin, twins
from .values import freed, modified, present_values, renewed, saved_value

if TYPE_CHECKING:
    from .._tensor import Tensor

_FEW_HOOKS = 16
"""The hooks of an epoch that a pass looks at without asking which of them it meets."""


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
    novelty.is_recorded(not (create_graph or watched or recording.hooked or recording.contexts))
    if wanted is None and len(roots) == 1 and not create_graph and not watched:
        found = _leaf_gradients(*roots[0], retain_graph)
        if found is not None:
            return found
    seeds: dict[Node, Node] = {}
    for t, g in roots:
        node = recording.resolve(t)
        seeds[node] = seeds[node] + g if node in seeds else g
    seen = [recording.resolve(t) for t, _ in roots if t._grad_freed]
    used_up = [node for node in seen if node.op is not ops.variable]
    if any(map(_unpacks, used_up)):
        raise freed()  # before functions of the program run, or leaves get gradients
    going = _Pass(wanted, create_graph, accumulate)
    derivation = going.through_nodes(seeds, recording.hooked)
    if used_up and derivation.saved:
        raise freed()
    going.through_histories()
    if not retain_graph:
        for t, _ in roots:
            if t._node is not None and t._node.op is not ops.variable:
                t._grad_freed = True
                recording.mark_freed(t._node)
        for history in reversed(going.used):
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
            grads = renewed(derivation, present_values(changed, (node,)))
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


class _Pass:
    """One backward pass.

    goal: the tensors asked for. found: gradients by the id of their tensor.
    pending: histories to go through, with the gradients of their nodes. used: histories that the
        pass has gone through.
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
        self.goal = Goal(wanted)
        self.create_graph = create_graph
        self.accumulate = accumulate
        self.found: dict[int, tuple[Any, Node]] = {}
        self.pending = Pending()
        self.used: list[History] = []
        self.latest = -1
        self.waiting: dict[Node, int] = {}
        self.refused: dict[Node, Node] = {}
        self.called: set[Node] = set()

    def add(self, t: Tensor, g: Node) -> None:
        if self.goal.is_wanted(t):
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
            self.pending.add(target, g)
        else:
            self.add(target, g)

    # ---- this epoch ----------------------------------------------------------------------

    def through_nodes(
        self, seeds: dict[Node, Node], hooks: dict[Node, list[dict[int, Any]]]
    ) -> Derivation:
        for _, cotangents in recording.contexts:
            cotangents.clear()  # a failed pass may have left some
        inner = {resolving.history_node(historied(t)): t for t in self.goal.tensors}
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
            ends = node.op is ops.variable and self.goal.is_wanted(target(node))
            if on or ends or node in inner:
                leads[node] = on
        recording.clock.watching.passed(number, leads)

    def _through(
        self,
        seeds: dict[Node, Node],
        inner: dict[Node, Any],
        hooks: dict[Node, Any],
        are_apart: bool = False,
    ) -> Derivation:
        """Go through nodes of this epoch. inner: the nodes of the tensors asked for. are_apart:
        whether no other tensor can be meant by these, as they stand for nodes of an earlier epoch
        (`Goal.inside`)."""
        plain = {n: t for n, t in inner.items() if n.op is not ops.variable}

        def is_wanted(n: Node) -> bool:
            ends = n.op is ops.variable
            return n in plain or (
                ends and self.goal.is_wanted(recording.variable_target(n.attrs[0]))
            )

        arrived: Collection[Node] = ()
        written: Collection[Node] = epoch.mutated
        if len(hooks) > _FEW_HOOKS:  # most are of what the program computed and forgot
            hooks = {n: hooks[n] for n in autodiff.differentiable(seeds) if n in hooks}
        if anomaly.looks():
            hooks = _joined(hooks, anomaly.watches(seeds))
        if len(seeds) == 1 and not plain and not hooks and not recording.contexts:
            ((root, seed),) = seeds.items()
            derivation = derive(root, seed, self.create_graph)
        else:
            watching = {n: as_one(n, each) for n, each in hooks.items()}
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
                    is_wanted=None if self.goal.is_all else is_wanted,
                    since=_oldest(plain) if len(plain) == len(self.goal.tensors) else -1,
                )
        changed = recording.changed_for(derivation.saved, seeds) if written else []
        if arrived:
            changed = [n for n in changed if n in written]
        if changed and not self.goal.is_all:  # what other gradients read may have changed
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
            wanted = [g for n, g in asked if self.goal.is_all or is_wanted(n)]
            for node in values_read(wanted, seeds):
                if node in self.refused:
                    raise modified(self.refused[node])
        grads = derivation.grads
        if changed:
            with recording.grad_mode(self.create_graph):
                grads = renewed(derivation, present_values(changed, seeds))
        for node, g in grads.items():
            t = plain.get(node)
            if t is not None:
                if not are_apart and has_twin(node, t):
                    raise twins(node)
                self.add(t, g)
            if node.op is ops.variable and node not in arrived:
                self.arrive(recording.variable_target(node.attrs[0]), g)
        return derivation

    # ---- earlier epochs --------------------------------------------------------------------

    def through_histories(self) -> None:
        while self.pending:
            latest, histories = self.pending.latest()
            if latest != self.latest:
                self._begin(latest, histories)
            batch = self.pending.ready(self.waiting)
            if self.create_graph and len(batch) > 1:  # graphs end at tensors inside, see `_again`
                inner = inside(batch)
                batch = {h: g for h, g in batch.items() if h.node not in inner}
            self.pending.enter(batch)
            arrived = {*batch}
            self._call_hooks(batch)
            through = self.goal.through(batch)
            for t, g in self.goal.reached(batch, through):
                self.add(t, g)
            batch = through
            for history in batch:
                if history.is_freed:
                    raise freed()
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
        hooked = {h: hooks for h in batch if (hooks := h.shared.hooks.get(h.node))}
        if not hooked:
            return
        entered = Counter(h.node for h in batch)
        inner = inside(batch)
        for history, hooks in hooked.items():
            node = history.node
            if entered[node] > 1 or node in inner or not self.goal.is_wanted(history):
                continue
            with recording.grad_mode(self.create_graph):
                for each in hooks:
                    if not isinstance(each, NodeHooks):
                        batch[history] = call_hooks(each, batch[history])
            self.called.add(node)

    def _begin(self, number: int, begun: Iterable[History]) -> None:
        """Find in what order the pass goes through the histories of an epoch. Nothing but each
        other leads to these any more."""
        self.latest = number
        seen = {*begun}
        stack = [*begun]
        while stack:
            for each in stack.pop().inner():
                self.waiting[each.node] = self.waiting.get(each.node, 0) + 1
                if each not in seen:
                    seen.add(each)
                    stack.append(each)
        self._tell_of(number, [*begun])

    def _leave(self, histories: Iterable[History]) -> None:
        """Let the histories go on that wait for nothing but `histories`. Those that no gradient has
        reached are left, too."""
        stack = list(histories)
        while stack:
            for each in stack.pop().inner():
                self.waiting[each.node] -= 1
                if not self.waiting[each.node]:
                    del self.waiting[each.node]
                    self.pending.release(each.node)
                    if each not in self.pending:
                        stack.append(each)

    def _tell_of(self, number: int, histories: Sequence[History]) -> None:
        """As `_tell`, of an epoch that is over."""
        if recording.clock.watching is None:
            return
        targets = {n: t for h in histories for n, t in h.ends().targets.items()}
        roots = [h.node for h in histories]
        graph = frozenset(autodiff.differentiable(roots))
        inner = {
            n: t for t in self.goal.tensors for h in histories if (n := node_of(t, h)) in graph
        }
        self._tell(number, roots, inner, targets.__getitem__)

    def _through_batch(self, batch: dict[History, Node]) -> None:
        inner = self.goal.inside(batch)
        special = inner or anomaly.looks() or any(h.call_contexts or hooks_of(h) for h in batch)
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
        wanted = {n: g for n, g in derivation.grads.items() if self.goal.is_wanted(targets[n])}
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
            mapping[node] = value if fixed else saved_value(batch, node, holders[value])
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
            self.pending.remove(target)
        else:
            del self.found[id(target)]

    def _again(self, batch: dict[History, Node], inner: dict[Node, Any]) -> None:
        """Record the forward graphs again in this epoch, from their leaves, and go through the new
        graphs."""
        mapping: dict[Node, Node] = {}
        attrs: dict[Node, tuple[Any, ...]] = {}
        hooks: dict[Node, list[dict[int, Any]]] = {}
        for history in batch:
            revive(history, mapping, attrs, self.refused)
            hooks.update(hooks_of(history))
        ends: dict[Node, Node] = {}
        if self.create_graph:  # later passes are asked for gradients by the same tensors
            for n, t in inner.items():
                own, end = history_of(t), resolving.history_node(t)
                is_whole = t._chain is not None or end is recording.resolve(t)
                if own is not None and own.node is n and is_whole and n not in mapping:
                    mapping[n], ends[n] = recording.resolve(t), end
        for history in batch:
            for n in history.unread() if history.call_contexts else ():
                mapping.setdefault(n, ops.expand(ops.constant(0, n.dtype, n.device), n.shape))
        if self.create_graph:
            ends |= self._end_at_tensors(batch, mapping, attrs)
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
        nodes = {ends.get(n, news[n]): t for n, t in inner.items()}
        self._through(seeds, nodes, watched, are_apart=True)

    def _end_at_tensors(
        self, batch: dict[History, Node], mapping: dict[Node, Node], attrs: dict[Node, Any]
    ) -> dict[Node, Node]:
        """Let the new graphs end at tensors and views that live inside the old ones, and go on in
        their own histories: a later pass may be asked for the gradient by one. The result has the
        nodes that stand for the views."""
        known = {*mapping, *(h.node for h in batch)}
        of_views = {}
        living: list[History] = []
        for shared, histories in by_shared(batch).items():
            met = inside(histories).difference(known)
            for n, v in shared.living_views():
                if n in met:
                    mapping[n], of_views[n] = recording.resolve(v), resolving.history_node(v)
            living += [h for h in shared.living if h.node in met and not h.is_freed]
        inner = [h for h in living if h.node not in mapping and h.node.op is not ops.variable]
        ends = {h.node: h for h in sorted(inner, key=lambda h: h.node.seq)}
        with recording.grad_mode(True):
            values = substitute(tuple(ends), mapping, attrs, as_made=True)
        for (n, h), value in zip(ends.items(), values, strict=True):
            mapping[n] = recording.variable(ops.detach(value), h)
        return of_views


def _oldest(nodes: Iterable[Node]) -> int:
    return min((n.seq for n in nodes), default=-1)


def _joined(first: dict[Node, Any], second: dict[Node, Any]) -> dict[Node, Any]:
    return {n: [*first.get(n, ()), *second.get(n, ())] for n in (*first, *second)}


def _instantiate(grads: tuple[Node, ...], mapping: dict[Node, Node]) -> tuple[Node, ...]:
    """The gradient graph over this epoch's values. A repeated step finds it in the cache."""
    key = (_instantiate, grads, tuple(mapping.items()))
    table = epoch.table(False)
    found = table.get(key)
    if found is None:
        with recording.grad_mode(False):
            found = table[key] = tuple(substitute(grads, mapping))
    return found
