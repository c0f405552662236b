"""Histories: the graph that computed a tensor, kept after its epoch for a later backward pass."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.ir import ops
from tilewright.ir.node import Node, beneath, intern
from tilewright.ir.op import Kind
from tilewright.ir.passes import autodiff
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.rewrite import above
from tilewright.ir.shape import Size

if TYPE_CHECKING:
    from .views import Chain


@dataclass
class Derivation:
    """The gradient graph of nodes, from their seeds to the variables.

    seeds: node -> its cotangent. grads: variable node -> its cotangent.
    """

    seeds: dict[Node, Node]
    grads: dict[Node, Node]

    @functools.cached_property
    def places(self) -> tuple[tuple[int, Node], ...]:
        """The cotangents of variables, by the variable's number."""
        return tuple([(n.attrs[0], g) for n, g in self.grads.items() if n.op is ops.variable])

    @functools.cached_property
    def saved(self) -> tuple[Node, ...]:
        """The forward values that the cotangents read."""
        return values_read(self.grads.values(), self.seeds)


def derive(root: Node, seed: Node, create_graph: bool = False) -> Derivation:
    """The gradients of `root` with respect to every variable, cached on `root`."""
    key = ("gradients", seed, create_graph)
    found = root.memo.get(key)
    if found is None:
        found = root.memo[key] = derive_all({root: seed}, create_graph)
    return found


def saves(root: Node) -> bool:
    """Whether the backward pass of `root` reads values of the forward pass."""
    found: bool | None = root.memo.get("saves")
    if found is None:
        found = root.memo["saves"] = has_calls(root) or _reads_below(root)
    return found


def _reads_below(root: Node) -> bool:
    """Whether a node that a gradient of `root` reaches reads values."""
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node.requires_grad and node not in seen:
            if not all(map(is_fixed, _read_by_vjp(node))):
                return True
            seen.add(node)
            stack.extend(node.operands)
    return False


def derive_all(
    seeds: dict[Node, Node], create_graph: bool, targets: Any = (), hooks: Any = None
) -> Derivation:
    variables = [n for n in autodiff.differentiable(seeds) if n.op is ops.variable]
    grads = pullback(seeds, [*variables, *targets], create_graph=create_graph, hooks=hooks)
    return Derivation(dict(seeds), grads)


def values_read(
    grads: Iterable[Node], seeds: dict[Node, Node], held: Iterable[Node] = ()
) -> tuple[Node, ...]:
    """The forward values that cotangents read. seeds: node -> its cotangent. held: other values
    that exist, such as those that a user-written derivative keeps."""
    grads = tuple(grads)
    known = _read_from(grads, seeds) if not held else None
    if known is None:
        known = {*beneath((*seeds, *held)), *seeds.values()}
    saved: dict[Node, None] = {}
    for node in above(grads, known):
        saved.update((o, None) for o in node.operands if o in known)
    saved.update((g, None) for g in grads if g in known)
    for seed in seeds.values():
        saved.pop(seed, None)
    return tuple(n for n in saved if not is_fixed(n))


def _read_from(grads: tuple[Node, ...], seeds: dict[Node, Node]) -> set[Node] | None:
    """The nodes that a gradient flows through, with their operands and the seeds, if cotangents
    read nothing beneath these; None if they do. So what a pass costs doesn't depend on how much was
    computed without gradients before."""
    through = autodiff.differentiable(seeds)
    near = {*through, *seeds.values()}
    for node in through:
        near.update(node.operands)
    if any(n.op.kind is Kind.LEAF for n in above(grads, near)):
        return None
    return near


def is_fixed(node: Node) -> bool:
    """Whether a node is the same in every epoch, as constants and positions are. Such a node has no
    device, and is computed again where it is read."""
    if node.op.kind is Kind.CONSTANT:
        return True
    return node.device is None and all(n.op is not ops.scalar for n in beneath((node,)))


def placeholder(like: Node, number: int = 0) -> Node:
    """A stand-in for an unknown cotangent, with its number among several."""
    found: Node | None = like.memo.get(("placeholder", number))
    if found is None:
        found = intern(ops.leaf, (), (-1 - number, Size(like.shape), like.dtype), like.device)
        like.memo["placeholder", number] = found
    return found


def derive_together(nodes: tuple[Node, ...]) -> Derivation:
    """The gradients with respect to every variable, from cotangents of all `nodes`. These are
    placeholders, numbered in order. Cached on the first node."""
    if len(nodes) == 1:
        return derive(nodes[0], placeholder(nodes[0]))
    found = nodes[0].memo.get(("gradients", nodes))
    if found is None:
        found = derive_all({node: placeholder(node, i) for i, node in enumerate(nodes)}, False)
        # Keep only the values that derivations of single nodes read.
        kept = dict.fromkeys(n for node in nodes for n in derive(node, placeholder(node)).saved)
        found.saved = tuple(kept)
        nodes[0].memo["gradients", nodes] = found
    return found


def has_calls(root: Node) -> bool:
    """Whether a gradient of `root` goes through a user-written derivative."""
    found = root.memo.get("calls")
    if found is None:
        found = any(n.op.name == "function_call" for n in differentiable(root))
        root.memo["calls"] = found
    return found


def is_call_output(node: Node) -> bool:
    """Whether a node is an output of a call with a user-written derivative."""
    return bool(node.operands) and node.operands[0].op.name == "function_call"


def reads_of(root: Node) -> tuple[Node, ...]:
    """The recorded nodes that the backward pass of `root` reads.

    A graph with user-written derivatives can't be derived ahead of time. The backward pass computes
    it again from its leaves instead.
    """
    if has_calls(root) or not saves(root):
        return ()
    try:
        return derive(root, placeholder(root)).saved
    except NotImplementedError:  # the backward pass will raise it
        return ()


def saved_nodes(root: Node) -> tuple[Node, ...]:
    """The forward values to keep for the backward pass of `root`, without values of leaves.

    These are the values that it reads, and the values of leaf tensors that the epoch computed. A
    pass that records the graph again begins with the latter, not with the updates that made them.
    """
    found = root.memo.get("saved")
    if found is None:
        ends = (n for n in differentiable(root) if n.op is ops.variable)
        read = dict.fromkeys(value_node(n) for n in (*reads_of(root), *ends))
        found = root.memo["saved"] = tuple(n for n in read if n.op.kind is not Kind.LEAF)
    return found


def reads(node: Node, old: Node) -> bool:
    """Whether the derivative of `node`, or of a node between `old` and `node`, reads `old`."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        n = stack.pop()
        if n in seen or n.seq <= old.seq or not n.requires_grad:
            continue
        seen.add(n)
        if old in n.operands and old in _read_by_vjp(n):
            return True
        stack.extend(n.operands)
    return False


def leads_to(node: Node, old: Node) -> bool:
    """Whether a gradient of `node` goes to `old`."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        n = stack.pop()
        if n is old:
            return True
        if n in seen or n.seq <= old.seq or not n.requires_grad:
            continue
        seen.add(n)
        stack.extend(n.operands)
    return False


def is_spared(node: Node, roots: Iterable[Node]) -> bool:
    """Whether a value that the backward pass of `roots` reads may have been overwritten: only the
    derivative of `node` itself reads it, where PyTorch computes it again."""
    if not node.op.spares_result:
        return False
    readers = (n for root in roots for n in differentiable(root) if node in n.operands)
    return not any(node in _read_by_vjp(n) for n in readers)


def is_read_transposed(node: Node, roots: Iterable[Node]) -> bool:
    """Whether only linear layers read a leaf that was given other memory. PyTorch keeps a
    transposed view of their weights, which stays in the memory that it had."""
    users = (n for root in roots for n in differentiable(root) if node in n.operands)
    readers = {n.op for n in users if node in _read_by_vjp(n)}
    return readers == {ops.linear}


def _read_by_vjp(node: Node) -> list[Node]:
    """The values, of `node` and of its operands, that its derivative reads."""
    nodes = (*node.operands, node)
    # All nodes of its instruction read the same places, except those whose derivative a user wrote.
    memo = node.memo if node.op.kind is Kind.MARKER else node.instruction.memo
    key = ("read", *map(nodes.index, nodes))
    places = memo.get(key)
    if places is None:
        hit = _reached(node)
        places = memo[key] = [i for i, n in enumerate(nodes) if n in hit]
    return [nodes[i] for i in places]


def _reached(node: Node) -> set[Node]:
    """`node` and its operands, as far as its derivative is computed from them."""
    try:
        grads = pullback({node: placeholder(node)}, node.operands, stops=node.operands)
    except (NotImplementedError, RuntimeError):
        grads = {}
    values = {node, *node.operands}
    hit: set[Node] = set()
    seen: set[Node] = set()
    stack = list(grads.values())
    while stack:
        n = stack.pop()
        if n in values:
            hit.add(n)
        elif n not in seen:
            seen.add(n)
            stack.extend(n.operands)
    return hit


def value_node(node: Node) -> Node:
    """The node of the value beneath a marker."""
    while node.op in ops.MARKERS:
        node = node.operands[ops.MARKERS[node.op]]
    return node


def is_copied(node: Node) -> bool:
    """Whether a copy is among the markers of a node, so that writes to what it copied don't
    matter."""
    while node.op in ops.MARKERS:
        if node.op is ops.clone or node.op is ops.saved:
            return True
        node = node.operands[ops.MARKERS[node.op]]
    return False


def differentiable(root: Node) -> frozenset[Node]:
    """The nodes that a gradient of `root` can reach, including `root`.

    Nodes behind a `detach` aren't among them. `root` reads them, but a backward pass neither
    reaches nor frees them.
    """
    found = root.memo.get("differentiable")
    if found is None:
        found = root.memo["differentiable"] = frozenset(autodiff.differentiable([root]))
    return found


@dataclass(eq=False)
class Ends:
    """Where gradients leave the graph of an epoch, and the hooks in it.

    During the epoch both are in its lists; `is_asked` says that they must be here when it is over.

    number: of the epoch. targets, hooks: see History.
    """

    number: int
    targets: dict[Node, Any] = field(default_factory=dict)
    hooks: dict[Node, list[dict[int, Any]]] = field(default_factory=dict)
    is_asked: bool = False


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
    """The graph of a tensor whose epoch is over.

    saved, leaf_values: node -> its value.
    targets: variable node -> the leaf tensor that collects its gradient, or the earlier history
        where the gradient continues. Variables behind a `detach` have no target, which would keep
        earlier histories alive.
    hooks: node -> dictionaries of hooks on its gradient; shared by the epoch's histories.
    overwritten: saved nodes whose tensors were changed in place within the epoch. rewritten: read
        nodes whose tensors were changed through `.data` within the epoch -> what has their values.
    is_captured: whether its saved values are memory of a graph, which each replay overwrites.
    """

    node: Node
    epoch: int
    saved_nodes: tuple[Node, ...]
    is_freed: bool = False
    is_captured: bool = False
    saved: dict[Node, Held] = field(default_factory=dict)
    leaf_values: dict[Node, Held] = field(default_factory=dict)
    rewritten: dict[Node, Held] = field(default_factory=dict)
    scalar_values: dict[Node, Any] = field(default_factory=dict)
    targets: dict[Node, Any] = field(default_factory=dict)
    call_contexts: dict[Node, Any] = field(default_factory=dict)
    hooks: dict[Node, list[dict[int, Any]]] = field(default_factory=dict)
    overwritten: frozenset[Node] = frozenset()
    _reached: tuple[weakref.ref[Any], ...] | None = None  # the leaf tensors, after the first search

    def _inputs(self) -> list[Node]:
        """The inputs whose values a backward pass may read.

        A user-written derivative reads values of its own: not those of the operands of its call,
        and not the result of the call.
        """
        found = self.node.memo.get("inputs")
        if found is None:
            start = self.node.operands[0] if is_call_output(self.node) else self.node
            few = _few_inputs(start)
            inputs = self._all_inputs(start) if few is None else few
            found = self.node.memo["inputs"] = sorted(inputs, key=lambda n: n.seq)
        return found

    def _all_inputs(self, start: Node) -> set[Node]:
        known = set(self.variables)
        before: set[Node] = set()
        stack = [start]
        while stack:
            node = stack.pop()
            if node in known:
                if node.op is ops.variable:
                    before.add(value_node(node))
                continue
            known.add(node)
            stack.extend(_inputs_lead_to(node))
        return {n for n in known | before if n.op.kind is Kind.LEAF}

    def unread(self) -> list[Node]:
        """The leaves that have no value any more, as no backward pass reads them."""
        known = set(self._inputs())
        return [n for n in beneath([self.node]) if n.op is ops.leaf and n not in known]

    def _ends(self) -> list[Node]:
        found = self.node.memo.get("ends")
        if found is None:
            inside = sorted(differentiable(self.node), key=lambda n: n.seq)
            found = self.node.memo["ends"] = [
                n for n in inside if n.op is ops.variable or n.op.name == "function_call"
            ]
        return found

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
        return [n for n in self._ends() if n.op.name == "function_call"]

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
        self.targets, self.call_contexts = variables, calls
        self.rewritten, self.overwritten = rewritten, overwritten

    def before(self) -> list[History]:
        """The earlier histories where gradients of this one continue."""
        return [t for t in self.targets.values() if isinstance(t, History)]

    def values(self) -> tuple[dict[Node, Any], ...]:
        """All kept values, by node."""
        return self.saved, self.leaf_values, self.scalar_values

    def leaf_tensors(self) -> list[Any]:
        """The living leaf tensors that a gradient through this history reaches."""
        if self._reached is None:
            for history in earliest_first(self, lambda h: h._reached is None):
                history._reached = _leaf_tensors(history.targets.values())
        assert self._reached is not None
        return [t for ref in self._reached if (t := ref()) is not None]

    def ends(self) -> Ends:
        """Its own as those of its epoch."""
        return Ends(self.epoch, self.targets, self.hooks)

    def free(self) -> None:
        """Release everything. A second backward pass through this history is an error."""
        if self.is_freed:
            return
        self.leaf_tensors()  # remembers the leaf tensors, which alone are kept
        self.is_freed = True
        self.saved, self.leaf_values, self.scalar_values, self.rewritten = {}, {}, {}, {}
        self.targets, self.call_contexts, self.hooks = {}, {}, {}


def _inputs_lead_to(node: Node) -> list[Node]:
    is_call = node.op.name == "function_call"
    return [o for o in node.operands if not (is_call and o.op is ops.variable)]


_FEW = 64


def _few_inputs(root: Node) -> frozenset[Node] | None:
    """The inputs beneath `root`, as `History` means them, with those of variables that the epoch
    computed; None if there are many. They are remembered at each node on the way, so that the
    results of all rounds of a loop together are walked through once."""
    stack = [root]
    while stack:
        node = stack[-1]
        if "few inputs" in node.memo:
            stack.pop()
            continue
        value = value_node(node) if node.op is ops.variable else node
        if value.op.kind is Kind.LEAF:
            found: frozenset[Node] | None = frozenset((value,))
        else:
            operands = _inputs_lead_to(node)
            missing = [o for o in operands if "few inputs" not in o.memo]
            if missing:
                stack.extend(missing)
                continue
            found = _united([o.memo["few inputs"] for o in operands])
        stack.pop().memo["few inputs"] = found
    few: frozenset[Node] | None = root.memo["few inputs"]
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


def _leaf_tensors(targets: Iterable[Any]) -> tuple[weakref.ref[Any], ...]:
    """The leaf tensors among `targets`, and those that the histories in `targets` reach."""
    found: dict[int, weakref.ref[Any]] = {}  # by id of the reference: tensors aren't compared
    for target in targets:
        known = target._reached or () if isinstance(target, History) else (weakref.ref(target),)
        for ref in known:
            found[id(ref)] = ref
    return tuple(found.values())


def earliest_first(history: History, is_open: Callable[[History], bool]) -> Iterator[History]:
    """The open histories of `history` and its predecessors, earlier ones first.

    The caller closes each history that it takes, so each is met once, however many paths lead to
    it. The walk doesn't recurse: a carried state can make chains longer than Python's stack.
    """
    stack = [history]
    while stack:
        latest = stack[-1]
        earlier = [h for h in latest.before() if is_open(h)] if is_open(latest) else []
        if earlier:
            stack.extend(earlier)
            continue
        stack.pop()
        if is_open(latest):
            yield latest
