"""Reverse-mode differentiation: cotangents as more graph.

Callers see PyTorch's gradients of complex values z = x + iy, dL/dx + i dL/dy. The walk carries
their conjugates. So the derivative of a holomorphic function is the formula that holds for real
numbers, and a conjugate is taken at the ends alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import NotImplementedType
from typing import TYPE_CHECKING, NamedTuple, cast

from ..node import Node, format_location, grad_enabled, grad_mode, set_location
from ..op import Kind
from ..ops.complex import conj
from ..ops.composite import as_dtype, widen
from ..ops.movement import sum_to
from ..ops.unary import widened
from ..recipe import by_recipe

if TYPE_CHECKING:
    from ..op import Cotangents


class Passed(NamedTuple):
    """A cotangent that a hook has passed on by itself.

    g: the cotangent of the hook's node. parts: those of the nodes from which that is computed.
    """

    g: Node
    parts: Mapping[Node, Node]


Hook = Callable[[Node], "Node | Passed"]


def pullback(
    seeds: Mapping[Node, Node],
    targets: Collection[Node],
    *,
    stops: Collection[Node] = (),
    create_graph: bool = False,
    hooks: Mapping[Node, Hook] | None = None,
    through: Sequence[Node] | None = None,
) -> dict[Node, Node]:
    """Cotangents of `targets`, given those of the outputs in `seeds`.

    The walk ends at `stops` (and at nodes that require no gradient); a target that no gradient
    reaches is missing from the result. With `create_graph` the result can be differentiated again.
    A hook gets the whole cotangent of its node and returns another one in its place, which it may
    have passed on already.

    through: `differentiable(seeds, stops)`, if the caller knows it.
    """
    before = set_location(None)
    try:
        with grad_mode(create_graph):
            given = {node: conj(g) for node, g in seeds.items()}
            watched = {node: _conjugated(hook) for node, hook in (hooks or {}).items()}
            way = differentiable(given, stops) if through is None else through
            found = _pullback(given, way, set(targets), set(stops), watched)
            return {node: conj(g) for node, g in found.items()}
    finally:
        set_location(before)


def _conjugated(hook: Hook) -> Hook:
    def run(g: Node) -> Node | Passed:
        found = hook(conj(g))
        if isinstance(found, Passed):
            return Passed(conj(found.g), {n: conj(part) for n, part in found.parts.items()})
        return conj(found)

    return run


def _pullback(
    seeds: Mapping[Node, Node],
    through: Sequence[Node],
    targets: set[Node],
    stops: set[Node],
    hooks: Mapping[Node, Hook],
    within: bool = False,
) -> dict[Node, Node]:
    """through: the nodes of the walk, operands first.
    within: whether to differentiate inside of one record, whose halves are rounded at its ends
        alone. Otherwise each cotangent that arrives at a half is rounded before it is added."""
    cotangents = dict(seeds)
    found: dict[Node, Node] = {}
    for node in reversed(through):
        g = cotangents.pop(node, None)
        if g is None:
            continue
        set_location(node.loc)
        passed: Mapping[Node, Node] | None = None
        if node in hooks:
            given = hooks[node](g)
            g, passed = given if isinstance(given, Passed) else (given, None)
        if node in targets:
            found[node] = g
        if node in stops:
            continue
        if passed is not None:
            for operand, own in passed.items():
                before = cotangents.get(operand)
                cotangents[operand] = own if before is None else before + own
            continue
        for operand, part in zip(node.operands, _vjp(node, g), strict=True):
            if part is None or not operand.requires_grad:
                continue
            if operand.op is widened and operand not in targets and not within:
                operand = operand.operands[0]
                part = as_dtype(part, operand.dtype)
            before = cotangents.get(operand)
            cotangents[operand] = part if before is None else before + part
    return found


def differentiable(
    roots: Collection[Node], stops: Collection[Node] = (), since: int = -1
) -> list[Node]:
    """The nodes through which a gradient can flow, operands first.

    The order follows from the graph alone, not from the age of its nodes: a node may be older than
    one that its program computes before it. So gradients are added in one order, whatever was
    recorded before.

    since: the `Node.seq` below which nodes are left out. Operands come before their users, so those
        that lead to a node of this number are all there.
    """
    found: dict[Node, None] = {}
    begun: set[Node] = set(stops)
    stack = [r for r in reversed(list(roots)) if r.requires_grad]
    while stack:
        node = stack[-1]
        if node in begun:
            stack.pop()
            found[node] = None
            continue
        begun.add(node)
        stack += [
            o
            for o in reversed(node.operands)
            if o.requires_grad and o not in found and o.seq >= since
        ]
    return list(found)


def _vjp(node: Node, g: Node) -> tuple[Node | None, ...]:
    """Cotangents of the operands, each of its operand's shape."""
    nodes = (g, *node.operands, node)
    if node.op.kind is Kind.MARKER:  # the user may have written its derivative, with effects
        return _cotangents(*nodes)
    key = "vjp", g.type, grad_enabled()
    found: tuple[Node | None, ...] = by_recipe(node.instruction.memo, key, _cotangents, nodes, node)
    return found


def _cotangents(g: Node, *nodes: Node) -> tuple[Node | None, ...]:
    """The cotangents of the operands of the last node, before which they stand."""
    node = nodes[-1]
    op, operands, attrs = node.op, node.operands, node.attrs
    parts: Cotangents = NotImplemented
    if op.vjp is not None and op.kind is Kind.ELEMENTWISE:
        # A cotangent is one op to PyTorch, so halves are rounded at its end alone.
        parts = op.vjp(widen(g), widen(node), *map(widen, operands), *attrs)
    elif op.vjp is not None:
        parts = op.vjp(g, node, *operands, *attrs)
    if isinstance(parts, NotImplementedType):
        if op.decompose is None:
            raise NotImplementedError(
                f"the derivative of {op.name} is not implemented "
                f"(recorded at {format_location(node.loc)})"
            )
        return through_decomposition(node, g)
    if op.kind is not Kind.ELEMENTWISE:
        return tuple(cast("tuple[Node | None, ...]", parts))
    found: list[Node | None] = []
    for part, operand in zip(parts, operands, strict=True):
        if part is None or not operand.requires_grad:
            found.append(None)
            continue
        whole = part if isinstance(part, Node) else part()
        found.append(sum_to(as_dtype(whole, operand.dtype), operand.shape))
    return tuple(found)


def through_decomposition(node: Node, g: Node) -> tuple[Node | None, ...]:
    """The cotangents of a composite's operands, by differentiating its decomposition."""
    inner = decomposed(node)
    ends = set(node.operands)
    before = set_location(node.loc)
    try:
        found = _pullback({inner: g}, differentiable((inner,), ends), ends, ends, {}, within=True)
    finally:
        set_location(before)
    # An operand that is there several times gets its whole gradient in its first place.
    return tuple([found.pop(o, None) for o in node.operands])


def decomposed(node: Node) -> Node:
    """The decomposition of a composite, cached on the node."""
    inner: Node | None = node.memo.get("decomposed")
    if inner is None:
        decompose, attrs = node.op.decompose, node.attrs
        assert decompose is not None

        def build(*operands: Node) -> Node:
            return decompose(*operands, *attrs)

        with grad_mode(True):
            made: Node = by_recipe(node.instruction.memo, "decomposed", build, node.operands)
        inner = node.memo["decomposed"] = made
    return inner
