"""Losses."""

from __future__ import annotations

from typing import Any

from ...functions import ranges
from .api import F, f
from .table import operator


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """-x at the classes of the target; classes are the dimension 1."""
    target = target.long()
    counted = None
    if ignore_index is not None:
        counted = target != ignore_index
        target = f.where(counted, target, 0)
    loss = -f.gather(x, 1, target.unsqueeze(1)).squeeze(1)
    share: Any = None
    if weight is not None:
        share = weight[target]
    if counted is not None:
        share = counted.to(x.dtype) if share is None else f.where(counted, share, 0.0)
        loss = f.where(counted, loss, 0.0)
    if share is not None:
        loss = loss * share
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if share is None else loss.sum() / share.sum()


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    logs = F.log_softmax(scores, 1)
    loss = negative_log_likelihood(
        logs, target, weight, ignore_index=ignore_index, reduction=reduction
    )
    return loss, logs


@operator("Hardmax", since=13)
def hardmax(x: Any, *, axis: int = -1) -> Any:
    """1 at the first largest element along `axis`, else 0."""
    place = f.argmax(x, axis, True)
    line = ranges.arange(x.shape[axis], device=x.device)
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    return (line.reshape(shape) == place).to(x.dtype)


@operator("Hardmax")
def hardmax_of_rows(x: Any, *, axis: int = 1) -> Any:
    """Before opset 13 all dimensions from `axis` on counted as one."""
    return hardmax(x.flatten(axis), axis=-1).reshape(x.shape)
