"""Losses by margins and by several labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import bool_, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ...functions.promotion import promoted
from ...recording import record, record_fallible
from ...recording.builders import FLOAT32, builder
from .linear import pairwise_distance
from .loss import _reduced, _reduction, require_margin, require_reduction

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = [
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "triplet_margin_with_distance_loss",
]


@builder("multi_margin_loss", casts=FLOAT32)
def _multi_margin(
    x: Node, target: Node, weight: Node | None, p: int, margin: float, reduction: str
) -> Node:
    require_reduction(reduction)
    alone = x.rank < 2
    if alone:
        x, target = ops.reshape(x, (1, -1)), ops.reshape(target, (1,))
    if x.rank != 2 or target.shape != x.shape[:1]:
        raise RuntimeError(
            f"multi_margin_loss: expected scores (N, C) and classes (N,), got {tuple(x.shape)} and "
            f"{tuple(target.shape)}{at_user_line()}"
        )
    n, classes = x.shape
    if weight is not None and weight.shape != (classes,):
        error = ValueError if weight.rank != 1 else RuntimeError
        raise error(
            f"multi_margin_loss: expected one weight for each of {classes} classes, got "
            f"{tuple(weight.shape)}{at_user_line()}"
        )
    if not classes or target.dtype is not int64:
        raise RuntimeError(
            f"multi_margin_loss: expected int64 numbers of {classes} classes, got {target.dtype}"
            f"{at_user_line()}"
        )
    target = ops.checked(target, classes, 1, "class")
    place = ops.unsqueeze(target, 1)
    loss = ops.relu(margin - ops.take_along(x, place, 1) + x)
    if p == 2:
        loss = loss * loss
    if weight is not None:
        loss = loss * ops.unsqueeze(ops.gather(weight, target, 0), 1)
    own = ops.eq(place, ops.iota(classes))
    loss = ops.sum(ops.where(own, ops.full_like(loss, 0), loss), (1,)) / classes
    return _reduced(ops.reshape(loss, () if alone else (n,)), reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the other classes i of max(0, margin - x[target] + x[i])^p.

    p: 1 or 2. weight: one for each class; the target's class chooses it.
    """
    if p not in (1, 2):
        raise ValueError(f"only p == 1 and p == 2 supported{at_user_line()}")
    name = _reduction(reduction, size_average, reduce)
    return record_fallible(_multi_margin, input, target, weight, int(p), float(margin), name)


@builder("multilabel_margin_loss", casts=FLOAT32)
def _multilabel_margin(x: Node, target: Node, reduction: str) -> Node:
    require_reduction(reduction)
    if x.rank > 2 or (x.rank == 2 and x.shape[1] == 0) or target.shape != x.shape:
        raise RuntimeError(
            "multilabel_margin_loss: expected scores (N, C) or (C,) and classes of that shape, "
            f"got {tuple(x.shape)} and {tuple(target.shape)}{at_user_line()}"
        )
    if target.dtype is not int64:
        raise RuntimeError(
            f"multilabel_margin_loss: expected int64 targets, got {target.dtype}{at_user_line()}"
        )
    alone = x.rank < 2
    if alone:
        x, target = ops.reshape(x, (1, -1)), ops.reshape(target, (1, -1))
    n, classes = x.shape
    # Numbers after the first -1 of a row are no classes.
    ended = ops.cast(ops.cumsum(ops.cast(target < 0, int64), 1), bool_)
    listed = ops.logical_not(ended)
    ends = ops.eq(target, ops.full_like(target, -1))
    place = ops.checked(ops.where(ends, ops.full_like(target, 0), target), classes, 1, "class")
    scores = ops.take_along(x, place, 1)
    named = ops.bitwise_and(
        ops.eq(ops.unsqueeze(target, 2), ops.iota(classes)), ops.unsqueeze(listed, 2)
    )
    other = ops.logical_not(ops.any(named, (1,)))
    loss = 1 - ops.unsqueeze(scores, 2) + ops.unsqueeze(x, 1)
    counted = ops.bitwise_and(ops.bitwise_and(ops.unsqueeze(listed, 2), other), loss > 0)
    loss = ops.sum(ops.where(counted, loss, ops.full_like(loss, 0)), (1, 2)) / classes
    return _reduced(ops.reshape(loss, () if alone else (n,)), reduction)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum of max(0, 1 - x[j] + x[i]) over the listed classes j and the unlisted classes i,
    divided by the number of classes.

    target: int64, one entry for each class: the listed classes, then -1 if they are fewer.
    """
    return record_fallible(
        _multilabel_margin, input, target, _reduction(reduction, size_average, reduce)
    )


@builder(
    "multilabel_soft_margin_loss",
    gradient=lambda args: (
        "SumBackward0" if args[-1] == "sum" else f"MeanBackward{int(args[-1] == 'none')}"
    ),
)
def _multilabel(x: Node, target: Node, weight: Node | None, reduction: str) -> Node:
    x, target = promoted(x, target)
    loss = -(target * ops.logsigmoid(x) + (1 - target) * ops.logsigmoid(-x))
    if weight is not None:
        loss, weight = promoted(loss, weight)
        loss = loss * weight
    last = loss.rank - 1
    return _reduced(ops.squeeze(ops.mean(loss, (last,)), (last,)), reduction)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes (last) of -(target log(sigmoid(x)) + (1 - target) log(sigmoid(-x)))."""
    name = _reduction(reduction, size_average, reduce)
    if weight is not None and not hasattr(weight, "shape"):
        weight = input.new_full((), float(weight))
    return record(_multilabel, input, target, weight, name)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin); d is pairwise_distance by
    default."""
    require_margin(margin)
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return record(_reduced, (near - far + margin).clamp_min(0), reduction)
