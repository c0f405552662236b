"""Random graphs over a few shapes, so that nodes meet again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from tilewright.ir import ops
from tilewright.ir.dtype import float64, int64
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

UNARY = (ops.exp, ops.sin, ops.neg, ops.tanh, ops.relu)


BINARY = (ops.add, ops.mul, ops.sub, ops.maximum)


FOLDS = (ops.sum, ops.max, ops.min, ops.mean)


def _bounded(x: Node) -> Node:
    """Values that no chain of ops lets grow without bound."""
    return ops.sin(x)


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    """Roots of a graph over a few shapes, so that nodes meet again and again."""
    return _build(draw, draw(st.sampled_from([(2, 3), (3, 3), (2, 3, 2), (4, 2)])))


_PAIRS = [
    ((5, 6), (4, 7)),
    ((4, 4), (5, 5)),
    ((4, 4), (4, 6)),  # sizes that are equal in one of them alone
    ((4, 6), (4, 4)),
    ((6, 6), (5, 7)),
    ((2, 3, 4), (3, 2, 4)),
    ((2, 2, 4), (2, 3, 5)),
    ((2, 3), (5, 7)),
    ((7, 2), (2, 7)),
    ((3, 3, 2), (2, 4, 4)),
]


@st.composite
def graphs_in_two_sizes(draw: st.DrawFn) -> tuple[list[Node], list[Node]]:
    """The roots of two graphs that are made alike, of other shapes."""
    first, second = draw(st.sampled_from(_PAIRS))
    drawn: list[Any] = []

    def noted(strategy: st.SearchStrategy[Any]) -> Any:
        drawn.append((strategy, draw(strategy)))
        return drawn[-1][1]

    one, rest = _build(noted, first), iter(drawn)

    def again(_: st.SearchStrategy[Any]) -> Any:
        return next(rest)[1]

    try:
        return one, _build(again, second)
    except Exception:  # its sizes took another way
        reject()


def _build(draw: Callable[[st.SearchStrategy[Any]], Any], dims: tuple[int, ...]) -> list[Node]:
    nodes: list[Node] = [ops.leaf(i, Size(dims), float64) for i in range(2)]
    nodes.append(ops.leaf(2, Size(dims[-1:]), float64))

    def pick() -> Node:
        return nodes[draw(st.integers(0, len(nodes) - 1))]

    def unary() -> Node:
        return draw(st.sampled_from(UNARY))(_bounded(pick()))

    def binary() -> Node:
        x, y = pick(), pick()
        if x.rank < y.rank:
            x, y = y, x
        fits = all(a == b or b == 1 for a, b in zip(x.shape[x.rank - y.rank :], y.shape))
        return draw(st.sampled_from(BINARY))(x, y if fits else ops.constant(0.5, float64))

    def fold() -> Node:
        x = pick()
        axes = [a for a in range(x.rank) if draw(st.booleans())]
        return _bounded(draw(st.sampled_from(FOLDS))(x, tuple(axes))) if axes else x

    def spread() -> Node:
        x = pick()
        if 1 not in x.shape or x.rank != len(dims):
            return _bounded(x)
        return ops.expand(x, Size(d if s == 1 else s for s, d in zip(x.shape, dims)))

    def movement() -> Node:
        x = pick()
        kind = draw(st.integers(0, 5))
        if kind == 0:
            return ops.permute(x, draw(st.permutations(range(x.rank))))
        if kind == 1:
            return ops.reshape(x, (-1,))
        if kind == 2:
            return ops.flip(x, (0,)) if x.rank else x
        if kind == 3 and x.rank and x.shape[0] > 1:
            return ops.pad(ops.slice_axis(x, 0, 0, x.shape[0] - 1), *_borders(x.rank))
        if kind == 4 and x.rank and x.shape[-1] % 2 == 0 and x.rank > 1:
            return ops.reshape(x, (*x.shape[:-2], x.shape[-2] * 2, x.shape[-1] // 2))
        return ops.cat([x, _bounded(x)], 0) if x.rank and x.shape[0] < 7 else x

    def product() -> Node:
        x = pick()
        if x.rank < 2:
            return _bounded(x)
        y = ops.transpose(x) if draw(st.booleans()) else ops.transpose(pick_like(x))
        return _bounded(ops.matmul(x, y))

    def pick_like(x: Node) -> Node:
        alike = [n for n in nodes if n.shape == x.shape]
        return alike[draw(st.integers(0, len(alike) - 1))]

    def indexed() -> Node:
        x = pick()
        if not x.rank:
            return x
        where = np.arange(3) * 7 % x.shape[0]
        at = ops.cat([ops.reshape(ops.constant(int(i), int64), (1,)) for i in where], 0)
        if draw(st.booleans()):
            return ops.gather(x, at, 0)
        return ops.scatter(
            x, ops.gather(_bounded(x), at, 0), at, 0, draw(st.sampled_from(["add", "set"]))
        )

    def scan() -> Node:
        x = pick()
        if not x.rank:
            return x
        axis = draw(st.integers(0, x.rank - 1))
        return _bounded(ops.cumsum(x, axis % x.rank))  # that of another graph may have more

    steps = (
        unary,
        unary,
        binary,
        binary,
        binary,
        fold,
        fold,
        spread,
        movement,
        product,
        indexed,
        scan,
    )
    for _ in range(draw(st.integers(3, 14))):
        made = steps[draw(st.integers(0, len(steps) - 1))]()
        if made.shape.numel() <= 40:
            nodes.append(made)
    roots = draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=4, unique=True))
    return [nodes[-1], *(nodes[i] for i in roots)]


def _borders(rank: int) -> tuple[list[int], list[int]]:
    low, high = [0] * rank, [0] * rank
    low[0] = 1
    return low, high
