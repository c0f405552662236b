"""Histories: the graph that computed a tensor, kept after its epoch for a later backward pass."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import Kind
from tilewright.ir.ops.marker import value_node
from tilewright.ir.rewrite import above

from .derivations import reads_of
from .parts import differentiable, inside, is_call, is_call_output

if TYPE_CHECKING:
    from .views import Chain

References = tuple[weakref.ref[Any], ...]
Leads = tuple[References, tuple["History", ...]]
"""Where gradients go on: leaf tensors, by the one reference to each, and earlier histories."""
_MANY: References = (weakref.ref(object),)
"""Stands for more leaf tensors than a history remembers."""


@dataclass(eq=False)
class Ends:
    """Where gradients leave the graph of an epoch, and the hooks in it.

    During the epoch both are in its lists; `is_asked` says that they must be here when it is over.

    number: of the epoch. targets, hooks: see History. held: see History; None in the present epoch.
    """

    number: int
    targets: dict[Node, Any] = field(default_factory=dict)
    hooks: dict[Node, list[dict[int, Any]]] = field(default_factory=dict)
    is_asked: bool = False
    held: Callable[[Node], Held | None] | None = None


class Viewed(NamedTuple):
    """A view that required a gradient in an epoch.

    view: a reference to it. node: its node there. base: that of its memory. writes: how often that
        had been written to.
    """

    view: weakref.ref[Any]
    node: Node
    base: Node | None
    writes: int


@dataclass(eq=False)
class Shared:
    """What the histories of an epoch have in common, so that all of them see a hook that is set
    later.

    hooks: node -> dictionaries of hooks on its gradient.
    views: views that required a gradient, by their id. A view that is read in a later epoch has a
        node there too.
    alike: the nodes that several tensors had, other than views.
    living: the histories of its tensors, while they last.
    """

    hooks: dict[Node, list[dict[int, Any]]] = field(default_factory=dict)
    views: dict[int, Viewed] = field(default_factory=dict)
    alike: frozenset[Node] = frozenset()
    living: weakref.WeakSet[History] = field(default_factory=weakref.WeakSet)

    def __post_init__(self) -> None:
        if self.views:
            with_views.add(self)

    def node_of(self, t: Any) -> Node | None:
        """The node that the view `t` had in the epoch; None if its memory was written to since, as
        the view is then new to autograd. A tensor that is no view has the node of its history."""
        seen, storage = self.views.get(id(t)), t._storage
        if seen is None or storage is None or t._chain is None:
            return None
        is_still = (t._root or storage)._writes == seen.writes and seen.view() is t
        return seen.node if is_still else None

    def living_views(self) -> Iterator[tuple[Node, Any]]:
        """Views that are as they were in the epoch, and the nodes that they had there."""
        for seen in self.views.values():
            v = seen.view()
            if v is not None and self.node_of(v) is not None:
                yield seen.node, v

    def has_twin(self, node: Node, t: Any) -> bool:
        """Whether another tensor than `t` had `node`, too. Their gradients can't be told apart."""
        return node in self.alike or any(
            seen.node is node and seen.view() is not t for seen in self.views.values()
        )


with_views: weakref.WeakSet[Shared] = weakref.WeakSet()
"""Those with views, of all epochs that have histories."""


class Held(NamedTuple):
    """A value that a history keeps.

    tensor: holds it. owner: the tensor or storage that had it, or None; changes, rewrites, moves:
        what that had counted by then. chain: how it was seen there.
    """

    tensor: Any
    owner: Any
    changes: int
    rewrites: int
    moves: int
    chain: Chain | None

    @classmethod
    def of(cls, tensor: Any, owner: Any, chain: Chain | None = None) -> Held:
        if owner is None:
            return cls(tensor, None, 0, 0, 0, None)
        state = _state(owner)
        moves = getattr(owner, "_moves", 0)
        return cls(tensor, owner, state._changes, state._rewrites, moves, chain)

    @property
    def is_changed(self) -> bool:
        """Whether the owner was written to since, otherwise than through `.data`."""
        return self.owner is not None and not self.is_moved and self.changes != self.state._changes

    @property
    def is_rewritten(self) -> bool:
        """Whether the owner was written to or moved through `.data` since."""
        if self.is_moved:
            return bool(self.owner._move_is_read)
        return self.owner is not None and self.rewrites != self.state._rewrites

    @property
    def state(self) -> Any:
        """That of the owner's memory."""
        return _state(self.owner)

    @property
    def is_moved(self) -> bool:
        """Whether the owner was given other memory since."""
        return bool(self.moves != getattr(self.owner, "_moves", 0))


def _state(owner: Any) -> Any:
    return getattr(owner, "_storage", None) or owner


@dataclass(eq=False)
class History:
    """The graph of a tensor whose epoch is over, or of a part of that epoch's graph.

    stops: the nodes at which its part of the graph ends, where many results live (see
        `partition`). is_inner: whether only histories of its own epoch lead to it. A backward pass
        through one of them doesn't free it, as others may lead to it too.
    saved, leaf_values: node -> its value.
    targets: variable node -> the leaf tensor that collects its gradient, or the earlier history
        where the gradient continues; stop -> the inner history that begins there. Variables behind
        a `detach` have no target, which would keep earlier histories alive.
    shared: what it has in common with the epoch's other histories.
    overwritten: saved nodes whose tensors were changed in place within the epoch. rewritten: read
        nodes whose tensors were changed through `.data` within the epoch -> what has their values.
    is_captured: whether its saved values are memory of a graph, which each replay overwrites.
    base: of a view's, where the gradient of its memory goes: a leaf tensor, or the history of the
        memory. writes: how often that had been written to. After a write the view is new to
        autograd.
    """

    node: Node
    epoch: int
    saved_nodes: tuple[Node, ...]
    stops: tuple[Node, ...] = ()
    is_inner: bool = False
    is_freed: bool = False
    is_captured: bool = False
    saved: dict[Node, Held] = field(default_factory=dict)
    leaf_values: dict[Node, Held] = field(default_factory=dict)
    rewritten: dict[Node, Held] = field(default_factory=dict)
    scalar_values: dict[Node, Any] = field(default_factory=dict)
    targets: dict[Node, Any] = field(default_factory=dict)
    call_contexts: dict[Node, Any] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)
    overwritten: frozenset[Node] = frozenset()
    base: Any = None
    writes: int = 0
    _leads: Leads | None = field(default=None, repr=False)  # after it is freed
    # The leaf tensors, if they are few, after the first search.
    _few: References | None = field(default=None, repr=False)

    def _inputs(self) -> list[Node]:
        """The inputs whose values a backward pass may read.

        A user-written derivative reads values of its own: not those of the operands of its call,
        and not the result of the call.
        """
        found = self.node.memo.get(("inputs", self.stops))
        if found is None:
            start = self.node.operands[0] if is_call_output(self.node) else self.node
            few = None if self.stops else _few_inputs(start)
            inputs = self._all_inputs(start) if few is None else few
            found = sorted(inputs, key=lambda n: n.seq)
            self.node.memo["inputs", self.stops] = found
        return found

    def _all_inputs(self, start: Node) -> set[Node]:
        ends = {*self.variables, *self.stops}
        known = set(ends)
        before: set[Node] = set()
        stack = [start]
        while stack:
            node = stack.pop()
            if node in known:
                if node in ends:
                    before.add(value_node(node))
                continue
            known.add(node)
            stack.extend(_inputs_lead_to(node))
        return {n for n in known | before if n.op.kind is Kind.LEAF}

    def unread(self) -> list[Node]:
        """The leaves that have no value any more, as no backward pass reads them."""
        known = set(self._inputs())
        ends = frozenset(self.stops)
        return [n for n in above([self.node], ends) if n.op is ops.leaf and n not in known]

    def _ends(self) -> list[Node]:
        found = self.node.memo.get(("ends", self.stops))
        if found is None:
            ends = [n for n in self.inside if n.op is ops.variable or is_call(n)]
            found = sorted(ends, key=lambda n: n.seq)
            self.node.memo["ends", self.stops] = found
        return found

    @property
    def inside(self) -> frozenset[Node]:
        """The nodes that a gradient of its node can reach before it ends at its stops."""
        return inside(self.node, self.stops)

    @property
    def reads(self) -> tuple[Node, ...]:
        """The nodes whose values its backward pass reads."""
        return reads_of(self.node, self.stops)

    @property
    def leaves(self) -> list[Node]:
        return [n for n in self._inputs() if n.op is ops.leaf]

    @property
    def scalars(self) -> list[Node]:
        return [n for n in self._inputs() if n.op is ops.scalar]

    @property
    def variables(self) -> list[Node]:
        return [n for n in self._ends() if n.op is ops.variable]

    @property
    def calls(self) -> list[Node]:
        return [n for n in self._ends() if is_call(n)]

    def keep(
        self,
        saved: Any,
        leaves: Any,
        scalars: Any,
        variables: Any,
        calls: Any,
        rewritten: dict[Node, Held],
        overwritten: frozenset[Node],
    ) -> None:
        self.saved, self.leaf_values, self.scalar_values = saved, leaves, scalars
        self.targets, self.call_contexts = {**self.targets, **variables}, calls
        self.rewritten, self.overwritten = rewritten, overwritten

    def before(self) -> list[History]:
        """The earlier histories where gradients of this one continue."""
        return [t for t in self.targets.values() if isinstance(t, History)]

    def values(self) -> tuple[dict[Node, Any], ...]:
        """All kept values, by node."""
        return self.saved, self.leaf_values, self.scalar_values

    def leaf_tensors(self) -> list[Any]:
        """The living leaf tensors that a gradient through this history reaches."""
        found: dict[int, weakref.ref[Any]] = {}  # by id of the reference: tensors aren't compared
        seen, stack = {self}, [self]
        while stack:
            own, earlier = stack.pop().leads()
            found.update((id(ref), ref) for ref in own)
            for each in earlier:
                if each not in seen:
                    seen.add(each)
                    stack.append(each)
        return [t for ref in found.values() if (t := ref()) is not None]

    def leads(self) -> Leads:
        """Where gradients of this one go on, known after it is freed, too."""
        if self._leads is not None:
            return self._leads
        own = [weakref.ref(t) for t in self.targets.values() if not isinstance(t, History)]
        return tuple(own), tuple(self.before())

    def ends(self) -> Ends:
        """Those of its epoch, as far as they lie beneath its node."""
        targets: dict[Node, Any] = {}
        stack, seen = [self], {self}
        while stack:
            for node, target in stack.pop().targets.items():
                if node.op is ops.variable:
                    targets[node] = target
                elif target not in seen:
                    seen.add(target)
                    stack.append(target)
        return Ends(self.epoch, targets, self.shared.hooks, held=self.held)

    def of_view(self, node: Node, writes: int) -> History:
        """The history of a view with `node`, where this is that of its memory."""
        return replace(self, node=node, is_inner=False, base=self, writes=writes)

    def held(self, node: Node) -> Held | None:
        """The value of a node in its graph, if the backward pass reads it."""
        value, seen, stack = value_node(node), {self}, [self]
        while stack:
            each = stack.pop()
            found = each.saved.get(value) or each.leaf_values.get(value)
            if found is not None:
                return found
            more = [h for h in each.inner() if h not in seen]
            seen.update(more)
            stack.extend(more)
        return None

    def inner(self) -> list[History]:
        """The histories that begin at its stops."""
        return [t for t in self.before() if t.is_inner]

    def free(self) -> None:
        """Release everything. A second backward pass through this history is an error."""
        if self.is_freed:
            return
        few = _few_leaves(self)
        self._leads = _past_open(self) if few is None else (few, ())
        self.is_freed = True
        self.saved, self.leaf_values, self.scalar_values, self.rewritten = {}, {}, {}, {}
        self.targets, self.call_contexts, self.shared = {}, {}, Shared()


def after(target: Any) -> Any:
    """The number of an epoch after that of `target`, a leaf tensor or a history, and before all
    that reads its tensor."""
    return math.nextafter(target.epoch if isinstance(target, History) else -1.0, math.inf)


def _inputs_lead_to(node: Node) -> list[Node]:
    of_call = is_call(node)
    return [o for o in node.operands if not (of_call and o.op is ops.variable)]


_FEW = 64


def _few_inputs(root: Node) -> frozenset[Node] | None:
    """The inputs beneath `root`, as `History` means them, with those of variables that the epoch
    computed; None if there are many."""
    return _few(root, "few inputs", _input_at, _inputs_lead_to)


def _input_at(node: Node) -> Node | None:
    value = value_node(node) if node.op is ops.variable else node
    return value if value.op.kind is Kind.LEAF else None


def variables_of(root: Node) -> Iterable[Node]:
    """The variables that a gradient of `root` can reach."""
    few = _few(root, "few variables", _variable_at, _gradients_lead_to)
    found = [n for n in differentiable(root) if n.op is ops.variable] if few is None else few
    return sorted(found, key=lambda n: n.seq)


def _variable_at(node: Node) -> Node | None:
    return node if node.op is ops.variable else None


def _gradients_lead_to(node: Node) -> list[Node]:
    return [o for o in node.operands if o.requires_grad]


def _few(
    root: Node,
    name: str,
    at: Callable[[Node], Node | None],
    lead_to: Callable[[Node], Sequence[Node]],
) -> frozenset[Node] | None:
    """The ends beneath `root`; None if there are many. They are remembered at each node on the way,
    so that the results of all rounds of a loop together are walked through once.

    at: the end at a node, or None. lead_to: the operands where the way goes on.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        if name in node.memo:
            stack.pop()
            continue
        end = at(node)
        if end is not None:
            found: frozenset[Node] | None = frozenset((end,))
        else:
            operands = lead_to(node)
            missing = [o for o in operands if name not in o.memo]
            if missing:
                stack.extend(missing)
                continue
            found = _united([o.memo[name] for o in operands])
        stack.pop().memo[name] = found
    few: frozenset[Node] | None = root.memo[name]
    return few


def _united(sets: Sequence[frozenset[Node] | None]) -> frozenset[Node] | None:
    """The union; None if it has many elements, or one of the sets is None."""
    found: frozenset[Node] = frozenset()
    for each in sets:
        if each is None:
            return None
        if not each <= found:  # usually one has all that the others have, and is shared
            found = each if found <= each else found | each
    return found if len(found) <= _FEW else None


def _few_leaves(history: History) -> References | None:
    """The leaf tensors that a history reaches; None if these are many. Each history remembers
    them, so that chains are walked through once."""
    for each in earliest_first(history, lambda h: h._few is None):
        own, earlier = each.leads()
        found = {id(ref): ref for ref in own}
        for h in earlier:
            found.update((id(ref), ref) for ref in h._few or ())
        is_many = len(found) > _FEW or any(h._few is _MANY for h in earlier)
        each._few = _MANY if is_many else tuple(found.values())
    return None if history._few is _MANY else history._few


def _past_open(history: History) -> Leads:
    """Where gradients of a history go on, past those that aren't freed: a freed one keeps none of
    these, which have values."""
    own, earlier = history.leads()
    found = {id(ref): ref for ref in own}
    freed: list[History] = []
    seen, stack = {*earlier}, [*earlier]
    while stack:
        each = stack.pop()
        if each.is_freed:
            freed.append(each)
            continue
        own, earlier = each.leads()
        found.update((id(ref), ref) for ref in own)
        more = [h for h in earlier if h not in seen]
        seen.update(more)
        stack.extend(more)
    return tuple(found.values()), tuple(freed)


def earliest_first(history: History, is_open: Callable[[History], bool]) -> Iterator[History]:
    """The open histories of `history` and its predecessors, earlier ones first.

    The caller closes each history that it takes, so each is met once, however many paths lead to
    it. The walk doesn't recurse: a carried state can make chains longer than Python's stack.
    """
    stack = [history]
    while stack:
        latest = stack[-1]
        earlier = [h for h in latest.leads()[1] if is_open(h)] if is_open(latest) else []
        if earlier:
            stack.extend(earlier)
            continue
        stack.pop()
        if is_open(latest):
            yield latest
