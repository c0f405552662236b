"""The end of an epoch: values for all live tensors, and histories for later backward passes."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from sys import getrefcount
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.interruption import pass_on
from tilewright.ir.node import Node, beneath
from tilewright.ir.rewrite import above
from tilewright.runtime import debug, tiers
from tilewright.runtime.baseline import timed
from tilewright.runtime.device import told
from tilewright.runtime.plan import Incomplete, Plan

from . import epoch, inference, interrupts, novelty, threads
from .epoch import (
    clock,
    contexts,
    counted,
    differentiable_views,
    drawn,
    fallible,
    freed,
    given,
    handles,
    hooked,
    leaves,
    moved,
    mutated,
    rewritten,
    scalars,
    storages,
    tables,
    variables,
    viewed,
    windows,
)
from .histories import Ends, History, Viewed
from .keeping import histories_of, histories_of_views, keep
from .references import BASE_COUNT, WALKED_COUNT
from .states import NO_BUFFER, Failed, Handle, Storage

TABLE_LIMIT = 200_000
"""The number of interned nodes from which a flush clears the tables if they go on growing. A step
of more nodes that repeats needs all of them; it has up to three times as many."""
CHECKED = 16
"""Epochs between two counts of the nodes."""
PATIENCE = 4
"""How many counts may find that the tables have grown beyond the limit."""
LAUNCH_LIMIT = 20_000
"""The number of launches of all plans from which a flush clears the tables too. The code of each
launch takes two or three memory mappings, and Linux allows a process 65,530."""


SELDOM_USED: list[Any] = [
    storages, windows, variables, scalars, drawn, counted, freed, contexts, mutated, rewritten,
    moved, viewed, differentiable_views, given, hooked, fallible,
]  # fmt: skip
"""What is cleared at the end of an epoch, if it isn't empty."""
Update = Callable[[], Iterable[Handle]]
"""Returns the tensors that an optimizer's step writes."""
Refusal = Callable[[Node | None], Exception | None]
"""Returns why a node's value can't be computed now, or None if it can. For None it says why a flush
isn't possible."""
_refusal: Refusal | None = None
_asked: tuple[Refusal, ...] = ()
between: Callable[[], None] | None = None
"""Called between two epochs, when no work is half done."""


def flush(update: Update | None = None) -> None:
    """Compute all live values, and begin a new epoch.

    If a value can't be computed (an index out of range, no memory), the others still get theirs,
    and the first error is raised here, once. A tensor without a value raises its error when it is
    read; a failed in-place write leaves the old value. If gradients can't be derived, all get their
    values and no history. An interrupt loses nothing: the next flush tries the values that are
    still live again.

    update: returns the tensors that an optimizer's step writes. After any error none of them is
        written: in PyTorch the error would have come before the step.
    """
    if novelty.noted:
        clock.effects += 1  # it ends a piece of work, as a read does
    if _refusal is None and not (handles or storages or leaves):
        return
    threads.claim()
    if _refusal is not None:
        check(None)
    if clock.holding or not (handles or storages or leaves):
        return
    grad = graph.grad_enabled()
    try:
        clock.holding = 1
        error = _flush(update)
    except BaseException:  # an interrupt, perhaps while the compiler had changed the mode
        graph.set_grad_enabled(grad)
        raise
    finally:
        clock.holding = 0
    if threads.guarded:
        threads.relax()
    if between is not None:
        between()
    if error is not None:
        raise error


def check(node: Node | None) -> None:
    """Raise what refuses to compute `node`, or for None to flush, if anything does."""
    reason = None if _refusal is None else _refusal(node)
    if reason is not None:
        raise reason


def end_step(update: Update | None = None) -> None:
    """Begin a new epoch, unless calls are recorded for inspection only."""
    if _refusal is None:
        flush(update)


def values_of(nodes: tuple[Node, ...]) -> list[Any]:
    """Compute the buffers of nodes without ending the epoch."""
    for node in nodes:
        check(node)
    return computed(nodes, [b for _, _, b in leaves])


def computed(roots: tuple[Node, ...], buffers: list[Any]) -> list[Any]:
    """The buffers of `roots`, of those of leaves."""
    try:
        plan = tiers.plan_for(roots)
        if timed.tell is not None:
            return timed.run(plan, (), buffers, scalars, ())
        return plan.run(buffers, scalars)
    except Incomplete as incomplete:
        raise incomplete.error from None


@contextmanager
def unevaluated(refusal: Callable[[], Exception]) -> Iterator[None]:
    """Record calls without ever computing them, to inspect their nodes.

    Inside the block a read of a value raises `refusal()`. The end of the block drops the recorded
    nodes: in-place writes are undone, and new gradients become None.
    """
    before = suspend(lambda _: refusal())
    try:
        yield
    finally:
        resume(before)
        _forget_missing_gradients()
        drop()


@contextmanager
def refusing(refusal: Refusal) -> Iterator[None]:
    """Ask `refusal` too before a value is computed. The epoch isn't ended, before or after."""
    global _refusal, _asked
    before = _refusal, _asked

    def both(node: Node | None) -> Exception | None:
        return refusal(node) or (None if before[0] is None else before[0](node))

    _refusal, _asked = both, (*_asked, refusal)
    try:
        yield
    finally:
        _refusal, _asked = before


def is_refusing(node: Node | None = None) -> bool:
    """Whether the code runs in a block of `refusing`, and there `node` can't be computed."""
    return bool(_asked) if node is None else any(r(node) is not None for r in _asked)


def suspend(refusal: Refusal) -> tuple[Any, ...]:
    """Record calls without computing them. Pass the result to `resume` to end this."""
    global _refusal
    flush()
    before = _refusal, clock.holding, clock.looking
    _refusal, clock.holding = refusal, clock.holding + 1
    clock.change(looking=True)
    return before


def resume(before: tuple[Any, ...]) -> None:
    """Compute values again. The recorded nodes remain."""
    global _refusal
    _refusal, clock.holding, looking = before
    clock.change(looking=looking)


def drop() -> None:
    """Forget all recorded nodes, which undoes in-place writes."""
    _forget_views()
    _end_epoch()


def pending() -> tuple[Node, ...]:
    """The nodes of all values that a flush would compute now."""
    _forget_views()
    return tuple(state._node for state in _live()[0])


Computer = Plan | tiers.Baseline | tiers.Shapes


class _Outcome:
    """Facts about a tuple of live nodes.

    avals: of the nodes. collects: which of them collect gradients.
    tracked: places of those that can be differentiated later.
    plans: plans that compute them, by the other nodes to save and the calls that can fail.
    usual: the plan where there are none of either.
    ops: of the latest of these plans; 1 if it was compiled at once. is_small: whether it costs less
        to compute their calls at once.
    """

    __slots__ = ("avals", "collects", "is_small", "ops", "plans", "tracked", "usual")

    def __init__(self, nodes: tuple[Node, ...]):
        self.avals = [(n.shape, n.dtype, n.device or "cpu") for n in nodes]
        self.collects = [n.op is ops.variable for n in nodes]
        self.tracked = [i for i, n in enumerate(nodes) if n.requires_grad and not self.collects[i]]
        self.plans: dict[tuple[tuple[Node, ...], tuple[Node, ...]], Computer | Apart] = {}
        self.usual: Computer | Apart | None = None
        self.ops, self.is_small = 1, False


_outcomes: dict[tuple[Node, ...], _Outcome] = {}


def _flush(update: Update | None) -> Exception | None:
    if storages or windows:
        _forget_views()
    live, replaced = _live()
    nodes = tuple([s._node for s in live])
    outcome = _outcomes.get(nodes)
    if outcome is None:
        outcome = _outcomes[nodes] = _Outcome(nodes)
    histories: dict[int, History] = {}
    kept: Sequence[History] = ()
    underived: Exception | None = None
    if outcome.tracked:
        try:
            histories, kept = histories_of(live, nodes, outcome.tracked)
        except Exception as error:
            pass_on(error)
            underived = error
    plan = outcome.usual
    if timed.tell is not None:
        plan = _plan_for(outcome, nodes, kept, _dropped(nodes))
    elif plan is None or plan.due or kept or fallible:
        plan = _plan_for(outcome, nodes, kept)
    elif clock.news or clock.few or outcome.is_small:
        novelty.is_known(outcome.ops, outcome.is_small)
    buffers = [b for _, _, b in leaves]
    donated = _donations(live, replaced) if replaced and not kept else ()
    if not donated:
        return _complete(plan, buffers, (), live, outcome, histories, kept, update, underived)
    with interrupts.deferred():
        return _complete(plan, buffers, donated, live, outcome, histories, kept, update, underived)


def _dropped(live: Sequence[Node]) -> list[Node]:
    """The results that no tensor and no other call needs any more. A profile wants to see their
    calls, too."""
    made = dict.fromkeys(t._node for t in handles if t._node is not None and t._node.operands)
    needed = beneath([*live, *(o for node in made for o in node.operands)])
    return [node for node in made if node not in needed]


def _plan_for(
    outcome: _Outcome,
    nodes: tuple[Node, ...],
    kept: Sequence[History],
    dropped: Sequence[Node] = (),
) -> Computer | Apart | None:
    """What computes live nodes and dropped ones, saves what histories need and makes the checks of
    the epoch; None if there is nothing to do."""
    saved = [n for h in kept for n in h.saved_nodes]
    extra = tuple(dict.fromkeys([*saved, *dropped])) if kept or dropped else ()
    checked = tuple(fallible) if fallible else ()
    plan = outcome.plans.get((extra, checked))
    roots = (*nodes, *extra)
    if plan is not None and clock.news:
        novelty.is_known(outcome.ops, False)
    is_new = plan is None
    if (is_new and (roots or checked)) or (plan is not None and plan.due):
        try:
            plan = tiers.plan_for(roots, checked)
        except Exception as error:  # a compiler error: compute what can be compiled
            pass_on(error)
            if debug.level():
                print(f"tilewright: {len(roots)} values one by one: {error}", file=sys.stderr)
            plan = Apart(roots, checked)
        outcome.plans[extra, checked] = plan
        if is_new:
            is_baseline = isinstance(plan, tiers.Baseline)
            outcome.ops = plan.ops if is_baseline else 1  # type: ignore[union-attr]
            outcome.is_small = is_baseline and not outcome.tracked and _is_small(outcome)
            novelty.is_new(outcome.ops)
    if not (extra or checked):
        outcome.usual = plan
    return plan


def _is_small(outcome: _Outcome) -> bool:
    """Whether the epoch has few ops on few elements, all on the host."""
    sizes = [math.prod(a[0]) for a in outcome.avals if a[2] == "cpu"]
    sizes += [b.size for _, _, b in leaves if b.__class__ is np.ndarray]
    return (
        outcome.ops <= novelty.FEW
        and len(sizes) == len(outcome.avals) + len(leaves)
        and max(sizes, default=0) <= novelty.ELEMENTS
    )


class Apart:
    """Computes values one by one where they can't be compiled together, with the interface of a
    plan. If all of them fail, nothing changes."""

    due = False

    def __init__(self, roots: tuple[Node, ...], fallible: tuple[Node, ...]):
        self.recorded, self.fallible = roots, fallible

    def run(self, buffers: list[Any], scalars: list[Any], donated: Sequence[Any] = ()) -> list[Any]:
        values = [_value(root, buffers) for root in self.recorded]
        errors = [v for v in values if isinstance(v, Exception)]
        if len(errors) == len(values) and not any(isinstance(e, MemoryError) for e in errors):
            del values, errors  # the error's traceback holds this frame
            return tiers.compiled_for(self.recorded, self.fallible).run(buffers, scalars)
        checked = [_value(root, buffers) for root in self.fallible]
        errors += [v for v in checked if isinstance(v, Exception)]
        if errors:
            raise Incomplete(values, errors[0])
        return values


def _value(root: Node, buffers: list[Any]) -> Any:
    """The buffer of a node, or its error."""
    try:
        return tiers.plan_for((root,)).run(buffers, scalars)[0]
    except Incomplete as incomplete:
        return incomplete.error
    except Exception as error:
        return told(error.with_traceback(None))  # frames would keep memory alive


def _alone(plan: Computer | Apart, values: list[Any], buffers: list[Any]) -> list[Any]:
    """The values of a plan's roots, where those without one are computed alone: a launch that fails
    takes values with it that are right."""
    missing = [i for i, v in enumerate(values) if isinstance(v, Exception)]
    if len(missing) < 2 or isinstance(plan, Apart):
        return values
    if not any(isinstance(values[i], MemoryError) for i in missing):
        for i in missing:
            values[i] = _value(plan.recorded[i], buffers)
    return values


def _complete(
    plan: Computer | Apart | None,
    buffers: list[Any],
    donated: Sequence[tuple[int, int]],
    live: list[Any],
    outcome: _Outcome,
    histories: dict[int, History],
    kept: Sequence[History],
    update: Update | None,
    error: Exception | None,
) -> Exception | None:
    """Run the plan, and end the epoch with its values. error: one that has come before."""
    values: list[Any] = []
    if plan is not None:
        try:
            if timed.tell is None:
                values = plan.run(buffers, scalars, donated)
            else:
                values = timed.run(plan, tuple(fallible), buffers, scalars, donated)
        except Incomplete as incomplete:
            error = incomplete.error
            found = incomplete.values if donated else _alone(plan, incomplete.values, buffers)
            values = [Failed(v) if isinstance(v, Exception) else v for v in found]
    if error is not None and update is not None:
        written = {id(t._storage or t) for t in update()}
        for i, state in enumerate(live):
            if id(state) in written:
                values[i] = Failed(error)
    # Interrupted steps are started again: half a flush must not remain.
    if kept and plan is not None:
        _surely(keep, kept, plan.recorded, values, live)
    if error is not None:
        _surely(_hand_out, live, outcome, histories, values, True)
        _surely(_forget_missing_gradients)
        _surely(_end_epoch)
        return error
    views: Sequence[tuple[Viewed, History]] = ()
    try:
        _hand_out(live, outcome, histories, values, False)
        if differentiable_views:
            views = histories_of_views(kept)
        _end_epoch()
    except BaseException:
        _hand_out(live, outcome, histories, values, False)
        _end_epoch()
        raise
    for seen, history in views:
        v = seen.view()
        if v is not None:
            is_own = history.node is seen.node
            v._history = history if is_own else history.of_view(seen.node, seen.writes)
    return None


def _surely(step: Callable[..., None], *args: Any) -> None:
    try:
        step(*args)
    except BaseException:
        step(*args)
        raise


def _forget_views() -> None:
    """Drop the nodes of views. After the epoch they look in their storage, which gets the
    values."""
    for storage in (*storages, *windows):
        owner = id(storage)  # no reference: these tell whether it is alive
        for v in storage._views:
            node = v._node
            if node is not None:
                v._aval = (node.shape, node.dtype, node.device or "cpu")
                if node.requires_grad and v._history is None:  # an earlier epoch's continues
                    writes = (v._root or storage)._writes
                    seen = Viewed(weakref.ref(v), node, storage._node, writes)
                    differentiable_views[id(v)] = seen
                v._node = None
                if viewed.setdefault(node, (owner, v._chain))[0] != owner:
                    viewed[node] = 0, None  # it isn't known whose value is read
        storage._views.clear()


def _live() -> tuple[list[Any], list[tuple[int, int]]]:
    """The tensors and storages whose values can still be read, or that were mutated; and (place in
    that list, number of the leaf) for those whose old value was read."""
    live: list[Any] = [
        t
        for t in handles
        if getrefcount(t) > WALKED_COUNT and t._storage is None and t._node is not None
    ]
    if variables:
        live = _without_lost(live)
    replaced: list[tuple[int, int]] = []
    if storages:
        _add_live_storages(live, replaced)
    changed = [
        place
        for place, (state, rest, _) in enumerate(leaves)
        if state is not None
        and state._node is not rest
        and state.__class__ is not Storage
        and state._storage is None  # type: ignore[attr-defined]
        and getrefcount(state) > 3  # the tuple, `state` and the argument
    ]
    if changed:
        replaced += zip(range(len(live), len(live) + len(changed)), changed)
        live += [leaves[place][0] for place in changed]
    return live, replaced


def _without_lost(live: list[Any]) -> list[Any]:
    """Live tensors without new leaves of the gradient that only the list of `variables` holds, if
    nothing that is live was made of them: those of a module that went to another device at once."""
    lost = {
        id(v)
        for v in variables
        if isinstance(v, Handle)
        and v._buffer is None
        and getrefcount(v) <= WALKED_COUNT + 2  # the lists of the live and of variables
    }
    if not lost:
        return live
    made = [t for t in live if id(t) not in lost]
    states = [*made, *storages, *[state for state, _, _ in leaves if state is not None]]
    roots = [s._node for s in states if s._node is not None]
    read = {n for n in above([*roots, *fallible], ()) if n.op is ops.variable}
    return [t for t in live if id(t) not in lost or t._node in read]


def _add_live_storages(live: list[Any], replaced: list[tuple[int, int]]) -> None:
    """The part of `_live` for storages."""
    # References to a storage come from `storages`, from `leaves` if it was read, and from its
    # tensors. Only `handles` keeps some of these alive.
    orphans: dict[int, int] = {}
    for i in [
        id(t._storage) for t in handles if t._storage is not None and getrefcount(t) <= WALKED_COUNT
    ]:
        orphans[i] = orphans.get(i, 0) + 1
    for storage, count in zip(storages, list(map(getrefcount, storages)), strict=True):
        place = storage._place
        is_leaf = 0 <= place < len(leaves) and leaves[place][0] is storage
        if is_leaf and leaves[place][1] is storage._node:
            continue
        if storage._node is not None and count > BASE_COUNT + is_leaf + orphans.get(id(storage), 0):
            if is_leaf:
                replaced.append((len(live), place))
            live.append(storage)


def _donations(live: list[Any], replaced: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The leaves that get a new value and whose old memory nobody else refers to."""
    # Four references: the state, its entry in `leaves`, the list of buffers and the argument.
    return [
        (i, place)
        for i, place in replaced
        if live[i]._shared is None
        and getrefcount(live[i]._buffer) == 4
        and not (windows and any(live[i] is w for w in windows))
    ]


def _hand_out(
    live: list[Any],
    outcome: _Outcome,
    histories: dict[int, History],
    values: list[Any],
    incomplete: bool,
) -> None:
    for s, value, aval, collects in zip(live, values, outcome.avals, outcome.collects):
        s._node = None
        if incomplete and type(value) is Failed and s._buffer is not None:
            continue  # it loses this epoch's writes, but keeps its old value
        s._buffer = value
        s._aval = aval
        if s._history is not None:
            s._history = None
        # Places that collect gradients keep their flag; every other value comes without one ...
        if not collects and s._requires_grad:
            s._requires_grad = False
    for i in outcome.tracked:  # ... unless it has a history.
        s = live[i]
        if s._buffer is values[i]:
            s._history = histories.get(id(s))


def _forget_missing_gradients() -> None:
    """Drop gradients without values, since the next backward pass mustn't add to them."""
    for t in variables:
        grad = t._grad if isinstance(t, Handle) else None
        if grad is not None and (grad._storage or grad)._buffer.__class__ in NO_BUFFER:
            t._grad = None  # type: ignore[union-attr]


def _end_epoch() -> None:
    if epoch.inferring:
        inference.mark()
    for t in handles:
        t._node = None
    for state, _, _ in leaves:
        if state is not None:
            state._node = None
    for storage in storages:
        storage._node = None
        storage._views.clear()
    for storage in windows:
        storage._views.clear()
    handles.clear()
    leaves.clear()
    if epoch.inferring:
        inference.begin()
    if any(SELDOM_USED):
        for each in SELDOM_USED:
            if each:
                each.clear()
    number = clock.number = clock.number + 1
    if clock.ends.is_asked:
        clock.ends = Ends(number)
    clock.ends.number = number
    clock.differentiated = clock.stepped = False
    clock.leaf_bytes, clock.checked_bytes = 0, epoch.BYTES
    if number % CHECKED == 0 and (_are_full() or tiers.held() > LAUNCH_LIMIT):
        clear_tables()


_size = 0
_growths = 0
"""The last count of the nodes, and how many counts since the tables were cleared found that they
had grown beyond the limit."""


def _are_full() -> bool:
    global _size, _growths
    before, _size = _size, _recorded()
    _growths += _size > max(TABLE_LIMIT, 1.02 * before)
    return _growths >= PATIENCE or _size > 3 * TABLE_LIMIT


def _recorded() -> int:
    """The number of nodes, or of call results in all modes, whichever is greater."""
    return max(graph.table_size(), sum(map(len, tables.values())))


def clear_tables() -> None:
    """Forget all nodes and plans; only between epochs."""
    global _size, _growths
    _size = _growths = 0
    everything: tuple[Any, ...] = (
        *tables.values(),
        epoch.recipes,
        epoch.families,
        epoch.known,
        epoch.met,
        epoch.sites,
        epoch.leaf_nodes,
        epoch.latest_nodes,
        epoch.variable_nodes,
        epoch.scalar_nodes,
        _outcomes,
    )
    for table in everything:
        table.clear()
    graph.clear_tables()
    tiers.clear()


def dead_leaf_bytes() -> int:
    """Bytes of the leaves that only this epoch keeps alive."""
    total = 0
    for i in range(len(leaves)):
        # Three references: the leaf's tuple, the local name and the argument.
        state, _, buffer = leaves[i]
        if state is None or getrefcount(state) <= 3:
            total += getattr(buffer, "nbytes", 0)
    return total
