"""Recipes: the nodes that a function makes of others, kept for operands of the same types.

A function that builds nodes (a call's builder, a VJP, a decomposition) sees no more of its operands
than their types, which of them are one, the values of constants, and the bounds of integers. When
it would run on operands that are alike in this for the third time, it runs on stand-ins. From then
on its nodes are made of the operands without it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from .node import OPAQUE, Instruction, Node
from .ops.check import bounds
from .ops.generate import leaf
from .rewrite import above

Build = Callable[..., Any]
"""A function of nodes that returns a node, or a tuple of nodes and None."""

_PATIENCE = 2
"""How often a function runs on like operands before its recipe is made, which takes longer than a
run. A step of a new length with two layers is cheaper without recipes."""


def by_recipe(
    known: dict[Any, Any],
    key: Hashable,
    build: Build,
    operands: tuple[Node, ...],
    out: Node | None = None,
) -> Any:
    """`build(*operands)`, by the recipe that `known` keeps, if it has one.

    key: all on which the result depends beside what is seen of the operands; the types of these,
        too.
    out: the last operand, if `build` may ask for its op, attrs and operands, which are among those
        before it.
    """
    seen: list[Any] = [key]
    for place, each in enumerate(operands):
        alike = each.instruction.alike
        if alike is each.type:
            continue
        if alike is not OPAQUE:
            seen += place, each
        elif each.op.shows == "operands":  # a `widened` gives its half back (`as_dtype`)
            return build(*operands)
        else:
            seen += place, bounds(each)
    if len({*operands}) < len(operands):
        seen += map(operands.index, operands)
    if len(seen) > 1:
        key = tuple(seen)
    recipe = known.get(key, 0)
    if recipe.__class__ is int:
        if recipe < _PATIENCE:
            known[key] = recipe + 1
            return build(*operands)
        recipe = known[key] = Recipe(build, operands, out)
    return recipe(operands)


class Recipe:
    """The nodes that `build` makes of operands with the types of `operands`.

    A place is the position of a node among the operands, the nodes `fixed`, which depend on none of
    them, and those that the steps make.
    steps: (instruction, places of its operands).
    results: the places of what `build` returns; alone: whether that is one node.
    """

    __slots__ = ("alone", "fixed", "results", "steps")

    def __init__(self, build: Build, operands: Sequence[Node], out: Node | None = None):
        images: dict[Node, Node] = {}
        for number, each in enumerate(operands):
            if each.op.shows == "attrs":
                images[each] = each
            elif each not in images and each is not out:
                images[each] = _stand_in(each, number)
        if out is not None:
            images[out] = out.instruction.of(tuple([images[o] for o in out.operands]))
        inner = [images[each] for each in operands]
        result = build(*inner)
        self.alone = isinstance(result, Node)
        roots: list[Node | None] = [result] if isinstance(result, Node) else [*result]
        needed = above([r for r in roots if r is not None], dict.fromkeys(inner))
        moving = {*inner}
        for node in needed:
            if not moving.isdisjoint(node.operands):
                moving.add(node)
        self.fixed = [node for node in needed if node not in moving]
        made = [node for node in needed if node in moving]
        places = {node: i for i, node in enumerate((*inner, *self.fixed, *made))}
        self.steps = [(n.instruction, tuple([places[o] for o in n.operands])) for n in made]
        self.results = [None if r is None else places[r] for r in roots]

    def __call__(self, operands: Sequence[Node]) -> Any:
        """What `build` returns for `operands`."""
        nodes = [*operands, *self.fixed]
        for instruction, places in self.steps:
            inner = tuple([nodes[i] for i in places])
            nodes.append(instruction.nodes.get(inner) or instruction.new(inner))
        results = [None if i is None else nodes[i] for i in self.results]
        return results[0] if self.alone else tuple(results)


def _stand_in(operand: Node, number: int) -> Node:
    """The node that stands for operand `number`. Nothing computes it."""
    of = operand.type
    key = number, bounds(operand) if of.is_integer else None
    found = of.stand_ins.get(key)
    if found is None:
        instruction = Instruction(leaf, (None, of.shape, of.dtype), of, (True, None))
        found = of.stand_ins[key] = instruction.of(())
        if key[1] is not None:
            found.memo["bounds"] = key[1]
    return found
