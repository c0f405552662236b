"""Derivations: the gradient graphs of nodes, and the values of the forward pass that they read."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node, beneath, intern
from tilewright.ir.op import Kind
from tilewright.ir.ops.marker import value_node
from tilewright.ir.passes import autodiff
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.rewrite import above
from tilewright.ir.shape import Size

from .parts import differentiable, inside, is_call, is_call_output


@dataclass
class Derivation:
    """The gradient graph of nodes, from their seeds to the variables.

    seeds: node -> its cotangent. grads: variable node -> its cotangent. stops: nodes at which it
    ends besides, whose cotangents are among `grads`.
    """

    seeds: dict[Node, Node]
    grads: dict[Node, Node]
    stops: tuple[Node, ...] = ()

    @functools.cached_property
    def places(self) -> tuple[tuple[int, Node], ...]:
        """The cotangents of variables, by the variable's number."""
        return tuple([(n.attrs[0], g) for n, g in self.grads.items() if n.op is ops.variable])

    @functools.cached_property
    def saved(self) -> tuple[Node, ...]:
        """The forward values that the cotangents read."""
        return values_read(self.grads.values(), self.seeds, stops=self.stops)


def derive(
    root: Node, seed: Node, create_graph: bool = False, stops: tuple[Node, ...] = ()
) -> Derivation:
    """The gradients of `root` with respect to every variable and to `stops`, where it ends; cached
    on `root`."""
    key = ("gradients", seed, create_graph, stops)
    found = root.memo.get(key)
    if found is None:
        found = root.memo[key] = derive_all({root: seed}, create_graph, stops=stops)
    return found


def saves(root: Node) -> bool:
    """Whether the backward pass of `root` reads values of the forward pass."""
    found: bool | None = root.memo.get("saves")
    if found is None:
        found = root.memo["saves"] = _reads_below(root)
    return found


def _reads_below(root: Node) -> bool:
    """Whether a node that a gradient of `root` reaches reads values, or may do so as the user wrote
    its derivative."""
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node.requires_grad and node not in seen:
            if is_call(node) or is_call_output(node):
                return True
            if not all(map(is_fixed, read_by_vjp(node))):
                return True
            seen.add(node)
            stack.extend(node.operands)
    return False


def derive_all(
    seeds: dict[Node, Node],
    create_graph: bool,
    targets: Any = (),
    hooks: Any = None,
    stops: tuple[Node, ...] = (),
    is_wanted: Callable[[Node], bool] | None = None,
    since: int = -1,
) -> Derivation:
    """The gradients of several nodes with respect to every variable, to `targets` and to `stops`.

    hooks: as in `pullback`. is_wanted: whether the cotangent of a node is asked for; the walk
    leaves out the nodes that lead to none of these. since: a number that none of these is older
    than, see `differentiable`.
    """
    through = autodiff.differentiable(seeds, stops, since)
    if is_wanted is not None:
        through = _leading(through, is_wanted)
    if hooks:
        through = _leaves_before_readers(through)
    wanted = [*[n for n in through if n.op is ops.variable], *targets, *stops]
    grads = pullback(
        seeds, wanted, stops=stops, create_graph=create_graph, hooks=hooks, through=through
    )
    return Derivation(dict(seeds), grads, stops)


def _leading(through: list[Node], is_wanted: Callable[[Node], bool]) -> list[Node]:
    """Those of a walk, operands first, that are wanted or lead to one that is."""
    found: dict[Node, None] = {}
    for node in through:
        if is_wanted(node) or any(o in found for o in node.operands):
            found[node] = None
    return list(found)


def _leaves_before_readers(through: list[Node]) -> list[Node]:
    """The nodes of a walk with each variable right before the first node that reads it: a walk
    backwards then knows its cotangent as early as it can."""
    leaves = {n for n in through if n.op is ops.variable}
    found: dict[Node, None] = {}
    for node in through:
        if node not in leaves:
            found.update((o, None) for o in node.operands if o in leaves)
            found[node] = None
    return [*found, *(n for n in through if n not in found)]


def values_read(
    grads: Iterable[Node],
    seeds: dict[Node, Node],
    held: Iterable[Node] = (),
    stops: tuple[Node, ...] = (),
) -> tuple[Node, ...]:
    """The forward values that cotangents read. seeds: node -> its cotangent. held: other values
    that exist, such as those that a user-written derivative keeps. stops: where the walk ended."""
    grads = tuple(grads)
    known = _read_from(grads, seeds, stops) if not held else None
    if known is None:
        known = {*beneath((*seeds, *held)), *seeds.values()}
    saved: dict[Node, None] = {}
    for node in above(grads, known):
        saved.update((o, None) for o in node.operands if o in known)
    saved.update((g, None) for g in grads if g in known)
    for seed in seeds.values():
        saved.pop(seed, None)
    return tuple(n for n in saved if not is_fixed(n))


def _read_from(
    grads: tuple[Node, ...], seeds: dict[Node, Node], stops: tuple[Node, ...]
) -> set[Node] | None:
    """The nodes that a gradient flows through, with their operands and the seeds, if cotangents
    read nothing beneath these; None if they do. So what a pass costs doesn't depend on how much was
    computed without gradients before."""
    through = autodiff.differentiable(seeds, stops)
    near = {*through, *seeds.values()}
    ends = frozenset(stops)
    for node in through:
        if node not in ends:
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


def derive_together(stops: Mapping[Node, tuple[Node, ...]]) -> Derivation:
    """The gradients with respect to every variable, from cotangents of several nodes. These are
    placeholders, numbered in order. Cached on the first node.

    stops: each of the nodes -> where the gradients of its part of the graph end besides.
    """
    nodes = tuple(stops)
    if len(nodes) == 1:
        return derive(nodes[0], placeholder(nodes[0]), stops=stops[nodes[0]])
    ends = tuple(dict.fromkeys(itertools.chain(*stops.values())))
    found = nodes[0].memo.get(("gradients", nodes, ends))
    if found is None:
        seeds = {node: placeholder(node, i) for i, node in enumerate(nodes)}
        found = derive_all(seeds, False, stops=ends)
        # Only values that single nodes read are kept.
        found.saved = tuple(dict.fromkeys(n for each in stops.items() for n in reads_of(*each)))
        nodes[0].memo["gradients", nodes, ends] = found
    return found


def has_calls(root: Node, stops: tuple[Node, ...] = ()) -> bool:
    """Whether a gradient of `root` goes through a user-written derivative before `stops`."""
    key = ("calls", stops) if stops else "calls"
    found = root.memo.get(key)
    if found is None:
        found = root.memo[key] = any(map(is_call, inside(root, stops)))
    return found


def reads_of(root: Node, stops: tuple[Node, ...] = ()) -> tuple[Node, ...]:
    """The recorded nodes that the backward pass of `root`, as far as `stops`, reads.

    A graph with user-written derivatives can't be derived ahead of time. The backward pass computes
    it again from its leaves instead.
    """
    if has_calls(root, stops) or not saves(root):
        return ()
    if len(inside(root, stops)) == 1:
        return tuple([n for n in dict.fromkeys(read_by_vjp(root)) if not is_fixed(n)])
    try:
        return derive(root, placeholder(root), stops=stops).saved
    except NotImplementedError:  # the backward pass will raise it
        return ()


def saved_nodes(root: Node, stops: tuple[Node, ...] = ()) -> tuple[Node, ...]:
    """The forward values to keep for the backward pass of `root`, without values of leaves.

    These are the values that it reads, and those from which a pass that records the graph again
    begins: of `stops`, and of leaf tensors that the epoch computed, instead of the updates that
    made them.
    """
    key = ("saved", stops) if stops else "saved"
    found = root.memo.get(key)
    if found is None:
        ends = (n for n in inside(root, stops) if n.op is ops.variable)
        read = dict.fromkeys(value_node(n) for n in (*reads_of(root, stops), *ends, *stops))
        is_kept = (n.op.kind is not Kind.LEAF and not is_fixed(n) for n in read)
        found = root.memo[key] = tuple(itertools.compress(read, is_kept))
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
        if old in n.operands and old in read_by_vjp(n):
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
    return not any(node in read_by_vjp(n) for n in readers)


def is_read_transposed(node: Node, roots: Iterable[Node]) -> bool:
    """Whether only linear layers read a leaf that was given other memory. PyTorch keeps a
    transposed view of their weights, which stays in the memory that it had."""
    users = (n for root in roots for n in differentiable(root) if node in n.operands)
    readers = {n.op for n in users if node in read_by_vjp(n)}
    return readers == {ops.linear}


def read_by_vjp(node: Node) -> list[Node]:
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


def is_copied(node: Node) -> bool:
    """Whether a copy is among the markers of a node, so that writes to what it copied don't
    matter."""
    while node.op in ops.MARKERS:
        if node.op is ops.clone or node.op is ops.saved:
            return True
        node = node.operands[ops.MARKERS[node.op]]
    return False
