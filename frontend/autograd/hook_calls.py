"""Calls of the user's hooks during a backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import Passed, pullback

from .. import recording
from ..recording import compounds
from . import rows
from .calls import operands_of

RETAINED = -1  # the id of the hook that keeps a non-leaf tensor's gradient; it runs last

ACCUMULATING: weakref.WeakSet[Any] = weakref.WeakSet()
"""Hooks of AccumulateGrad nodes, which stand among those of the leaf. They come after the leaf's
own, and see only the gradients that are added to the leaf's."""


def call_hooks(
    hooks: dict[int, Callable[[Any], Any]] | None, g: Node, accumulates: bool = True
) -> Node:
    """The gradient `g` of a tensor after its hooks have seen it. All get the same object, on which
    one may leave something for the next. accumulates: whether it is added to the leaf's."""
    if not hooks:
        return g
    given = rows.as_tensor(g)
    seen = after_hooks(hooks, given, accumulates)
    return g if seen is given and compounds.is_compound(given) else rows.as_node(seen)


def after_hooks(hooks: dict[int, Callable[[Any], Any]], seen: Any, accumulates: bool = True) -> Any:
    """As `call_hooks`, of tensors."""
    given = [(k == RETAINED, hook in ACCUMULATING, hook) for k, hook in hooks.items()]
    for _, waits, hook in sorted(given, key=lambda each: each[:2]):
        if accumulates or not waits:
            replaced = hook(seen)
            if replaced is not None:
                _check(hook, seen, replaced)
                seen = replaced
    return seen


def _check(hook: Any, seen: Any, replaced: Any) -> None:
    """Raise an error unless a hook has returned what may take the place of the gradient `seen`."""
    if not isinstance(replaced, recording.Handle):
        kind = type(replaced).__name__
        raise TypeError(f"expected Variable, but hook returned '{kind}'{at_user_line()}")
    name = getattr(hook, "__name__", "") or type(hook).__name__
    if replaced.dtype is not seen.dtype:
        raise RuntimeError(
            f"hook '{name}' has changed the type of value (was {seen.dtype} got {replaced.dtype})"
            f"{at_user_line()}"
        )
    if replaced.shape != seen.shape:
        raise RuntimeError(
            f"hook '{name}' has changed the size of value (was {list(seen.shape)} got "
            f"{list(replaced.shape)}){at_user_line()}"
        )


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
        places, turned = _places(node)
        inputs = tuple(dict.fromkeys(a for a in places if a.requires_grad))
        parts = pullback({node: g}, inputs, stops=inputs, create_graph=recording.is_grad_enabled())
        for hook in list(self.after.values()):
            left = dict(parts)  # an operand that is there twice gets its gradient once
            found = [left.pop(a, None) for a in places]
            tensors = [None if part is None else rows.as_tensor(part) for part in found]
            grads = tuple(
                t.t() if t is not None and i in turned else t for i, t in enumerate(tensors)
            )
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
                a: rows.as_node(t.t() if i in turned else t)
                for i, (a, t, before) in enumerate(zip(places, given, found, strict=True))
                if t is not None and (before is not None or a not in parts)
            }
        return Passed(g, parts)


def _places(node: Node) -> tuple[list[Node], set[int]]:
    """The operands of a call, and the numbers of those whose gradients hooks see transposed."""
    shown = operands_of(node)
    if all(isinstance(each, Node) or each.name == "TBackward0" for each in shown):
        turned = {i for i, each in enumerate(shown) if not isinstance(each, Node)}
        return [each if isinstance(each, Node) else each.operands[0] for each in shown], turned
    _, args = node.memo["call"]
    return [a for a in args if isinstance(a, Node)], set()


def as_one(node: Node, hooks: Sequence[Any]) -> Callable[[Node], Node | Passed]:
    of_nodes = [each for each in hooks if isinstance(each, NodeHooks)]

    def run(g: Node) -> Node | Passed:
        for each in hooks:
            g = each.arrived(g) if isinstance(each, NodeHooks) else call_hooks(each, g)
        found: Node | Passed = g
        for each in of_nodes:  # there is one, as a call has one object
            found = each.passed_on(node, g)
        return found

    return run
