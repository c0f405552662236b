"""The derivatives of a case, contracted with random weights."""

from __future__ import annotations

import functools

import numpy as np
from graph_oracle import Case, gradients, inner, random_like
from op_cases import (
    WEIGHT,
    WEIGHT_LEAF,
)

from tilewright.ir import ops
from tilewright.ir.node import Node


def probe(each: Case) -> tuple[list[Node], dict[Node, np.ndarray], list[Node]]:
    """[y, *first, *second], the values of the leaves, and the differentiated inputs.

    first: of <y, w> in the inputs x, with w random; second: of <first, u> in x, with u random.
    """
    values = each.leaves()
    values[WEIGHT_LEAF] = WEIGHT
    inputs = [n for n in values if n.op is ops.variable]
    y = each.f(*list(values)[: len(each.inputs)])

    def constant(like: Node, name: str) -> Node:
        node = ops.leaf(name, like.shape, like.dtype)
        values[node] = random_like(name, like.shape)
        return node

    first = gradients(inner(y, constant(y, "w")), inputs)
    total = [inner(g, constant(g, f"u{i}")) for i, g in enumerate(first)]
    second = gradients(functools.reduce(lambda a, b: a + b, total), inputs)
    return [y, *first, *second], values, inputs
