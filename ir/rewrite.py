"""The one rewrite engine: rules that map a node to a better one, bottom-up to a fixpoint."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, TypeVar

from .node import Node, grad_mode, intern, set_location
from .op import Kind, Op

Rule = Callable[[Node], Node | None]
"""Returns the replacement of a node whose operands are already rewritten, or None."""


_AnyRule = TypeVar("_AnyRule")


def on(*subjects: Op | Kind) -> Callable[[_AnyRule], _AnyRule]:
    """Says of which ops, or kinds of ops, a rule may replace nodes. It is asked about no others."""

    def said(rule: _AnyRule) -> _AnyRule:
        rule.subjects = subjects  # type: ignore[attr-defined]
        return rule

    return said


_done: dict[tuple[Rule, ...], dict[Node, Node]] = {}


def clear() -> None:
    """Forget the results of earlier rewrites."""
    _done.clear()


def rewrite(roots: Sequence[Node], rules: Sequence[Rule]) -> list[Node]:
    """`roots` with the first rule that fires applied at each node until none does.

    A replacement is rewritten in turn, so a rule may answer with nodes that other rules apply to.
    The result is for compilation: its nodes carry no gradient. The replacement of each node is
    remembered for the next graph that contains it.
    """
    done = _done.setdefault(tuple(rules), {})
    of = _Suited(rules)
    before = set_location(None)
    try:
        with grad_mode(False):
            for root in roots:
                _rewrite(root, of, done)
    finally:
        set_location(before)
    return [done[r] for r in roots]


class _Suited(dict[Op, tuple[Rule, ...]]):
    """The rules that may replace nodes of an op."""

    def __init__(self, rules: Sequence[Rule]):
        super().__init__()
        self._rules = [(rule, getattr(rule, "subjects", None)) for rule in rules]

    def __missing__(self, op: Op) -> tuple[Rule, ...]:
        self[op] = found = tuple(
            rule
            for rule, subjects in self._rules
            if subjects is None or op in subjects or op.kind in subjects
        )
        return found


def _rewrite(root: Node, rules: Mapping[Op, Sequence[Rule]], done: dict[Node, Node]) -> None:
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        pending = [o for o in node.operands if o not in done]
        if pending:
            stack.extend(pending)
            continue
        operands = tuple(done[o] for o in node.operands)
        set_location(node.loc)
        # Interned again even if unchanged: a node recorded with gradient has a twin without.
        own = node.device if node.op.kind is Kind.TRANSFER else None
        current = intern(node.op, operands, node.attrs, own) if operands else node
        if current is not node and current in done:
            done[node] = done[current]
            stack.pop()
            continue
        replacement = None
        for rule in rules[current.op]:
            replacement = rule(current)
            if replacement is not None:
                break
        if replacement is None or replacement is current:
            done[node] = done[current] = current
            stack.pop()
        elif replacement in done:
            done[node] = done[current] = done[replacement]
            stack.pop()
        else:
            stack.append(replacement)


def substitute(
    roots: Sequence[Node],
    mapping: Mapping[Node, Node],
    attrs: Mapping[Node, tuple[Any, ...]] | None = None,
    *,
    as_made: bool = False,
) -> list[Node]:
    """`roots` with some nodes replaced by others, and some attrs, in the current grad mode.

    as_made: whether a node that was made without gradients, of operands that require one, stays so.
    """
    done = dict(mapping)
    changed = attrs or {}
    for node in above(roots, done):
        operands = tuple(done.get(o, o) for o in node.operands)
        if operands != node.operands or node in changed:
            own = node.device if node.op.kind is Kind.TRANSFER else None
            arguments = node.op, operands, changed.get(node, node.attrs), own, node.loc
            made = intern(*arguments)
            is_new = as_made and made.requires_grad and not node.requires_grad
            if is_new and any(o.requires_grad for o in node.operands):
                with grad_mode(False):
                    made = intern(*arguments)
            done[node] = made
    return [done.get(r, r) for r in roots]


def above(roots: Sequence[Node], stops: Container[Node]) -> list[Node]:
    """The nodes of a graph above `stops`, operands first."""
    seen: set[Node] = set()
    stack = [r for r in roots if r not in stops]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(o for o in node.operands if o not in stops)
    return sorted(seen, key=lambda n: n.seq)
