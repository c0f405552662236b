"""Cross entropy of linear scores that are never held all at once.

The rows are taken in blocks of `block_rows`. Forward, the scores of a block give its losses.
Backward computes the scores again, or uses them while they are there if both run together. At any
time one block of scores is held (in backward two: scores and their cotangents).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce as fold
from typing import Any, NamedTuple

from ..dtype import FLOAT, int64
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size
from .classification import (
    cross_entropy,
    cross_entropy_cotangent,
    cross_entropy_in_passing,
    mean_divisor,
)
from .composite import as_dtype, require_float, widen
from .contraction import matmul, product
from .linear import linear
from .loss import check_reduction
from .movement import cat, expand, reshape, slice_axis, transpose
from .reduce import sum

MOST_BLOCKS = 16
"""The most blocks. More would cost more, in graph and sums of gradients, than they save memory."""
SMALL = 1 << 22
"""Bytes of scores up to which another block isn't worth it."""


def block_rows(rows: int, width: int, classes: int, itemsize: int) -> int:
    """The number of rows of a block. Its scores are about as large as the input, but no smaller
    than 1 / MOST_BLOCKS of all scores or SMALL bytes."""
    by_input, by_size = -(-classes // max(width, 1)), -(-rows * classes * itemsize // SMALL)
    return -(-rows // max(min(by_input, by_size, MOST_BLOCKS), 1))


class _Args(NamedTuple):
    """The operands and attrs of a record, by name. g: the cotangent of the loss, for a gradient.
    Half types stay as they are where products read them; elsewhere they are float32."""

    x: Node
    w: Node
    target: Node
    bias: Node | None
    weight: Node | None
    g: Node | None
    ignore_index: int
    smoothing: float
    reduction: str


_PARAMS = ("ignore_index", "label_smoothing", "reduction", "has_bias", "has_weight")


def _args(*args: Any) -> _Args:
    x, w, target, *more, ignore_index, smoothing, reduction, has_bias, has_weight = args
    bias = more.pop(0) if has_bias else None
    weight = widen(more.pop(0)) if has_weight else None
    g = widen(more.pop(0)) if more else None
    return _Args(x, w, target, bias, weight, g, ignore_index, smoothing, reduction)


class _Block(NamedTuple):
    """Some rows of the input, their targets, and their scores."""

    start: int
    stop: int
    x: Node
    target: Node
    scores: Node


def _blocks(a: _Args) -> list[_Block]:
    rows, width = a.x.shape
    step = block_rows(rows, width, a.w.shape[0], a.x.dtype.itemsize)
    found = []
    for start in range(0, max(rows, 1), max(step, 1)):
        stop = min(start + step, rows)
        x, target = (slice_axis(n, 0, start, stop) for n in (a.x, a.target))
        scores = linear(x, a.w, *(() if a.bias is None else (a.bias,)))
        found.append(_Block(start, stop, x, target, widen(scores)))
    return found


def _infer(*args: Any) -> Aval:
    a = _args(*args)
    check_reduction("linear_cross_entropy", a.reduction)
    require_float("linear_cross_entropy", a.x, a.w)
    return a.target.shape if a.reduction == "none" else Size(), a.x.dtype


def _loss(*args: Any) -> Node:
    a = _args(*args)
    each = [
        cross_entropy_in_passing(b.scores, b.target, a.weight, a.ignore_index, a.smoothing)
        for b in _blocks(a)
    ]
    if a.reduction == "none":
        return as_dtype(cat(each, 0), a.x.dtype)
    total = _total(reshape(sum(part, (0,)), ()) for part in each)
    return as_dtype(total / _divisor(a) if a.reduction == "mean" else total, a.x.dtype)


def _total(parts: Iterable[Node]) -> Node:
    """The sum over blocks, in float32 for half types. The new part is the first operand of each
    addition, so a walk through the graph meets the blocks in their order."""
    total: Node = fold(lambda total, part: part + total, map(widen, parts))
    return total


def _divisor(a: _Args) -> Node:
    return mean_divisor(widen(a.x), a.target, a.weight, a.ignore_index)


def _scores_grads(a: _Args) -> list[tuple[_Block, Node]]:
    """The cotangent of each block's scores."""
    g = a.g
    assert g is not None
    if a.reduction == "mean":
        g = g / _divisor(a)
    found = []
    for b in _blocks(a):
        rows = b.stop - b.start
        own = slice_axis(g, 0, b.start, b.stop) if a.reduction == "none" else expand(g, (rows,))
        d = cross_entropy_cotangent(own, b.scores, b.target, a.weight, a.ignore_index, a.smoothing)
        found.append((b, as_dtype(d, a.x.dtype)))
    return found


def _vjp(g: Node, out: Node, *args: Any) -> tuple[Node | None, ...]:
    a = _args(*args)
    if a.weight is not None and a.weight.requires_grad:
        raise NotImplementedError("the derivative of linear_cross_entropy for weight is missing")
    nodes, attrs = args[: -len(_PARAMS)], args[-len(_PARAMS) :]

    def part(grad: Op, x: Node) -> Node | None:
        return grad(*nodes, g, *attrs) if x.requires_grad else None

    found = [part(_input_grad, a.x), part(_weight_grad, a.w), None]
    if a.bias is not None:
        found.append(part(_bias_grad, a.bias))
    return *found, *(None for _ in nodes[len(found) :])


_loss_op = Op(
    "linear_cross_entropy", Kind.COMPOSITE, _infer, _PARAMS, vjp=_vjp, decompose=_loss, cost=40
)


def _gradient(which: str, combined: Callable[[_Args], Node]) -> Op:
    def infer(*args: Any) -> Aval:
        x = getattr(_args(*args), which)
        return x.shape, x.dtype

    def decompose(*args: Any) -> Node:
        a = _args(*args)
        return as_dtype(combined(a), a.x.dtype)

    name = f"linear_cross_entropy_{which}_grad"
    return Op(name, Kind.COMPOSITE, infer, _PARAMS, decompose=decompose, cost=40)


_input_grad = _gradient("x", lambda a: cat([matmul(d, a.w) for _, d in _scores_grads(a)], 0))
_weight_grad = _gradient(
    "w", lambda a: _total(product(transpose(d), b.x) for b, d in _scores_grads(a))
)
_bias_grad = _gradient(
    "bias", lambda a: reshape(_total(sum(d, (0,)) for _, d in _scores_grads(a)), a.w.shape[:1])
)


def linear_cross_entropy(
    x: Node,
    w: Node,
    target: Node,
    bias: Node | None = None,
    weight: Node | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Node:
    """cross_entropy of the scores x w^T + bias of x[n, d] or x[d] and w[c, d], by blocks of rows.

    With w[c, ..., d] and bias[c, ...] each position [...] has a score for each class. Such losses,
    and those whose targets are probabilities, hold all scores in memory.
    """
    if w.rank < 2 or x.rank not in (1, 2) or x.shape[-1] != w.shape[-1] or (w.rank > 2 > x.rank):
        raise RuntimeError(
            "linear_cross_entropy: expected an input of shape (N, in_features) or (in_features,) "
            f"and a weight of shape (C, ..., in_features), got {tuple(x.shape)} and "
            f"{tuple(w.shape)}{at_user_line()}"
        )
    if bias is not None and bias.shape != w.shape[:-1]:
        raise RuntimeError(
            f"linear_cross_entropy: expected a bias of shape {tuple(w.shape[:-1])}, got "
            f"{tuple(bias.shape)}{at_user_line()}"
        )
    if w.rank > 2 or target.dtype.category == FLOAT:
        scores = _all_scores(x, w, bias)
        return cross_entropy(scores, target, weight, ignore_index, label_smoothing, reduction)
    if target.shape != x.shape[:-1] or target.dtype is not int64:
        raise RuntimeError(
            "linear_cross_entropy: expected a target of int64 class indices of shape "
            f"{tuple(x.shape[:-1])}, got {target.dtype} {tuple(target.shape)}{at_user_line()}"
        )
    rows = reshape(x, (1, *x.shape)) if x.rank == 1 else x
    targets = reshape(target, (rows.shape[0],))
    extra = [n for n in (bias, weight) if n is not None]
    attrs = (ignore_index, float(label_smoothing), reduction, bias is not None, weight is not None)
    loss = _loss_op(rows, w, targets, *extra, *attrs)
    return reshape(loss, target.shape) if reduction == "none" else loss


def _all_scores(x: Node, w: Node, bias: Node | None) -> Node:
    rows = reshape(w, (-1, w.shape[-1]))
    extra = () if bias is None else (reshape(bias, (rows.shape[0],)),)
    return reshape(linear(x, rows, *extra), (*x.shape[:-1], *w.shape[:-1]))
