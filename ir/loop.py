"""Loops: one step, made for each place of a leading axis.

A loop has three kinds of operands, in this order: sequences, along whose first dimension it walks;
initial states; and operands that every step reads whole. Its attrs begin with (sequences, states,
reverse): the number of sequences, the number of states, and whether the walk begins at the end.
A step gives the new states, then the other values that the loop keeps. The value of the loop is
flat: one result after another, each [steps, *shape]. So each result is a contiguous part of one
buffer, and a step finds its states where the step before stored them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .dtype import from_numpy
from .node import Node, grad_mode, intern
from .op import Aval, Kind, Op
from .ops.generate import constant_value, leaf
from .ops.movement import cat, reshape, slice_axis
from .passes.pipeline import lower_graph
from .reference import evaluate
from .shape import Size

PARAMS = ("sequences", "states", "reverse")


def loop(
    name: str, step: Callable[..., tuple[Node, ...]], params: tuple[str, ...], **more: Any
) -> Op:
    """The record of a loop. step(*operands, *attrs) -> nodes of one dtype, the new states first.
    The step sees one element of each sequence, and the attrs after PARAMS."""

    def infer(*args: Any) -> Aval:
        operands = [a for a in args if isinstance(a, Node)]
        _, results = body(op, operands, args[len(operands) :])
        count = operands[0].shape[0]
        return Size((count * sum(math.prod(r.shape) for r in results),)), results[0].dtype

    op = Op(
        name,
        Kind.LOOP,
        infer,
        params=(*PARAMS, *params),
        step=step,
        decompose=lambda *args: _unrolled(step, args),
        numpy=lambda *args: _evaluate(op, args),
        **more,
    )
    return op


def body(
    op: Op, operands: Sequence[Node], attrs: Sequence[Any]
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The step of a loop as a graph: its leaves, numbered as the operands, and its results. It
    doesn't depend on the number of steps."""
    sequences, *_ = attrs
    avals = tuple(
        [
            (i, Size(o.shape[1:]) if i < sequences else o.shape, o.dtype, o.device)
            for i, o in enumerate(operands)
        ]
    )
    key = (op, attrs[len(PARAMS) :], avals)
    found = _bodies.get(key)
    if found is None:
        with grad_mode(False):
            leaves = tuple([intern(leaf, (), aval[:3], aval[3]) for aval in avals])
            assert op.step is not None
            found = _bodies[key] = leaves, op.step(*leaves, *attrs[len(PARAMS) :])
    return found


_bodies: dict[Any, tuple[tuple[Node, ...], tuple[Node, ...]]] = {}


def clear() -> None:
    """Forget the steps of loops."""
    _bodies.clear()


def parts(node: Node, flat: Node | None = None) -> list[Node]:
    """The results of a loop, each [steps, *shape]: parts of its value, or of `flat`, which has the
    same layout."""
    flat = node if flat is None else flat
    count = node.operands[0].shape[0]
    out, start = [], 0
    for result in body(node.op, node.operands, node.attrs)[1]:
        stop = start + count * math.prod(result.shape)
        out.append(reshape(slice_axis(flat, 0, start, stop), (count, *result.shape)))
        start = stop
    return out


def order(count: int, reverse: bool) -> range:
    """The places of a loop's steps in the order of execution."""
    return range(count - 1, -1, -1) if reverse else range(count)


def _unrolled(step: Callable[..., tuple[Node, ...]], args: Sequence[Any]) -> Node:
    """The loop as a graph of its steps."""
    operands = [a for a in args if isinstance(a, Node)]
    sequences, states, reverse, *attrs = args[len(operands) :]
    count = operands[0].shape[0]
    whole = operands[sequences + states :]
    now: Sequence[Node] = operands[sequences : sequences + states]
    made: dict[int, tuple[Node, ...]] = {}
    for t in order(count, reverse):
        each = [reshape(slice_axis(o, 0, t, t + 1), o.shape[1:]) for o in operands[:sequences]]
        made[t] = step(*each, *now, *whole, *attrs)
        now = made[t][:states]
    flat = [reshape(made[t][k], (-1,)) for k in range(len(made[0])) for t in range(count)]
    return cat(flat, 0)


def _evaluate(op: Op, args: Sequence[Any]) -> np.ndarray:
    """The loop computed step by step, each node by its own reference."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    sequences, states, reverse = args[len(arrays) : len(arrays) + 3]
    avals = [leaf(i, Size(a.shape), from_numpy(a.dtype)) for i, a in enumerate(arrays)]
    leaves, results = body(op, avals, args[len(arrays) :])
    roots = lower_graph(results)

    def value(node: Node, known: dict[Node, Any]) -> Any:
        if node not in known:
            if node.op.kind is Kind.CONSTANT:
                known[node] = np.asarray(constant_value(node))
            else:
                known[node] = evaluate(node, [value(o, known) for o in node.operands])
        return known[node]

    now = arrays[sequences : sequences + states]
    made: dict[int, list[Any]] = {}
    count = arrays[0].shape[0]
    for t in order(count, reverse):
        each = [a[t] for a in arrays[:sequences]]
        known = dict(zip(leaves, (*each, *now, *arrays[sequences + states :]), strict=True))
        made[t] = [value(r, known) for r in roots]
        now = made[t][:states]
    return np.concatenate([made[t][k].ravel() for k in range(len(roots)) for t in range(count)])
