"""Losses of class scores x[n, c, ...] or x[c]: negative log-likelihood and cross entropy.

A target is a class index for each position, with the shape of `x` without its class dimension
(int64; positions with `ignore_index` don't count), or probabilities with the shape of `x`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..dtype import FLOAT, int64
from ..location import at_user_line
from ..node import Node
from ..op import Aval
from ..shape import Size
from .activation import log_softmax, logsumexp
from .binary import eq, ne
from .check import checked
from .composite import composite, require_float
from .gather import gather, take_along
from .generate import constant
from .loss import check_reduction, reduced
from .movement import expand, reshape, squeeze, unsqueeze
from .reduce import sum
from .select import at_position
from .ternary import where
from .unary import exp, full_like, zeros_like


def _class_axis(x: Node) -> int:
    return 0 if x.rank == 1 else 1


def _check(name: str, x: Node, target: Node, weight: Sequence[Node], indices: bool) -> Size:
    """The shape of the unreduced loss."""
    require_float(name, x, *weight)
    if x.rank == 0:
        raise RuntimeError(f"{name}: expected scores of at least one dimension{at_user_line()}")
    axis = _class_axis(x)
    each = Size((*x.shape[:axis], *x.shape[axis + 1 :]))
    wanted = each if indices else x.shape
    if indices and target.dtype is int64 and target.rank:
        _check_batch(name, x, target)
    if target.shape != wanted or (indices and target.dtype is not int64):
        kind = "int64 class indices" if indices else "class probabilities"
        raise RuntimeError(
            f"{name}: expected a target of {kind} of shape {tuple(wanted)} for scores of shape "
            f"{tuple(x.shape)}, got {target.dtype} {tuple(target.shape)}{at_user_line()}"
        )
    if weight and weight[0].shape != (x.shape[axis],):
        raise RuntimeError(
            f"{name}: expected a weight for each of {x.shape[axis]} classes, "
            f"got shape {tuple(weight[0].shape)}{at_user_line()}"
        )
    return each


def _check_batch(name: str, x: Node, target: Node) -> None:
    """ValueError, as in PyTorch, for another number of targets than of scores."""
    if x.rank > 1 and x.shape[0] != target.shape[0]:
        raise ValueError(
            f"{name}: Expected input batch_size ({x.shape[0]}) to match target batch_size "
            f"({target.shape[0]}).{at_user_line()}"
        )
    if x.rank == 1 and target.shape[0] != 1:
        raise ValueError(
            f"{name}: For 1D input, 1D target must have size 1, but got target size: "
            f"{target.shape[0]}{at_user_line()}"
        )


def _by_class(weight: Node, x: Node) -> Node:
    axis = _class_axis(x)
    return reshape(weight, [s if i == axis else 1 for i, s in enumerate(x.shape)])


def _total(x: Node) -> Node:
    return reshape(sum(x, tuple(range(x.rank))), ())


@dataclass(frozen=True)
class _Picked:
    """The values that index targets pick. Every node has the shape of the scores with one class."""

    axis: int
    valid: Node  # whether the position counts
    index: Node  # the class, 0 where none counts
    weight: Node  # of the class, 0 where none counts

    def score(self, x: Node) -> Node:
        return take_along(x, self.index, self.axis)

    def hit(self, x: Node) -> Node:
        return at_position(self.index, x.shape, (self.axis,))

    def reduce(self, loss: Node, reduction: str) -> Node:
        """The loss without its class dimension, reduced; the mean is weighted."""
        if reduction == "mean":
            return _total(loss) / _total(self.weight)
        return reduced(squeeze(loss, (self.axis,)), reduction)

    def cotangent(self, g: Node, reduction: str) -> Node:
        """The cotangent of the unreduced loss."""
        if reduction == "none":
            return unsqueeze(g, self.axis)
        if reduction == "sum":
            return g
        # Where no position counts the mean is NaN, and the gradient zero.
        total = _total(self.weight)
        return g / where(eq(total, zeros_like(total)), full_like(total, 1), total)


def _pick(x: Node, target: Node, weight: Sequence[Node], ignore_index: int) -> _Picked:
    axis = _class_axis(x)
    at = unsqueeze(target, axis)
    valid = ne(at, full_like(at, ignore_index))
    classes = weight[0].shape[0] if weight else x.shape[axis]
    index = checked(where(valid, at, zeros_like(at)), classes, axis, "target")
    each = gather(weight[0], index, 0) if weight else constant(1, x.dtype)
    return _Picked(axis, valid, index, where(valid, each, constant(0, x.dtype)))


def _no_weight_gradient(name: str, weight: Sequence[Node]) -> None:
    if any(w.requires_grad for w in weight):
        raise NotImplementedError(f"the derivative of {name} for weight is not implemented")


# Negative log-likelihood: (x, target, weight?, ignore_index, reduction).


def _nll_infer(x: Node, target: Node, *args: Any) -> Aval:
    *weight, _, reduction = args
    check_reduction("nll_loss", reduction)
    each = _check("nll_loss", x, target, weight, True)
    return (each if reduction == "none" else Size()), x.dtype


def _nll(x: Node, target: Node, *args: Any) -> Node:
    *weight, ignore_index, reduction = args
    picked = _pick(x, target, weight, ignore_index)
    score = picked.score(x)
    # Not just weight zero: the score may be inf where a position doesn't count.
    loss = where(picked.valid, -score * picked.weight, zeros_like(score))
    return picked.reduce(loss, reduction)


def _nll_vjp(g: Node, out: Node, x: Node, target: Node, *args: Any) -> tuple[Node | None, ...]:
    *weight, ignore_index, reduction = args
    _no_weight_gradient("nll_loss", weight)
    picked = _pick(x, target, weight, ignore_index)
    # A comparison instead of a scatter: it fuses, and the result is dense anyway.
    each = picked.cotangent(g, reduction) * picked.weight
    dx = where(picked.hit(x), -each, zeros_like(x))
    return dx, None, *(None for _ in weight)


nll_op = composite(
    "nll_loss",
    _nll_infer,
    _nll,
    vjp=_nll_vjp,
    params=("ignore_index", "reduction"),
    onnx="NegativeLogLikelihoodLoss",
    cost=4,
)


def nll_loss(
    x: Node,
    target: Node,
    weight: Node | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Node:
    """-weight[target] x[target] of log-probabilities; the mean is weighted."""
    return nll_op(x, target, *(() if weight is None else (weight,)), ignore_index, reduction)


# Cross entropy with class indices: (x, target, weight?, ignore_index, label_smoothing, reduction).


def _cross_entropy_infer(x: Node, target: Node, *args: Any) -> Aval:
    *weight, _, _, reduction = args
    check_reduction("cross_entropy", reduction)
    each = _check("cross_entropy", x, target, weight, True)
    return (each if reduction == "none" else Size()), x.dtype


def _cross_entropy(x: Node, target: Node, *args: Any) -> Node:
    *weight, ignore_index, smoothing, reduction = args
    picked = _pick(x, target, weight, ignore_index)
    loss = _losses(x, picked, picked.score(x), weight, smoothing)
    return picked.reduce(loss, reduction)


def _losses(
    x: Node, picked: _Picked, score: Node, weight: Sequence[Node], smoothing: float
) -> Node:
    """The loss at each position, given the score of its class."""
    axes = (picked.axis,)
    top = logsumexp(x, axes)
    loss = (top - score) * picked.weight
    if smoothing:
        # The share of every class, the sum over c of weight[c] (logsumexp - x[c]) / classes.
        spread = top - x
        if weight:
            spread = spread * _by_class(weight[0], x)
        loss = loss * (1 - smoothing) + sum(spread, axes) * (smoothing / x.shape[picked.axis])
    return where(picked.valid, loss, zeros_like(loss))


def _cross_entropy_vjp(
    g: Node, out: Node, x: Node, target: Node, *args: Any
) -> tuple[Node | None, ...]:
    *weight, _, _, _ = args
    _no_weight_gradient("cross_entropy", weight)
    return cross_entropy_grad(g, x, target, *args), None, *(None for _ in weight)


def _cross_entropy_grad(g: Node, x: Node, target: Node, *args: Any) -> Node:
    # The derivative of -sum of q_c log p_c by x is p sum(q) - q. p is the softmax, and q_c follows
    # from the smoothed target and the weight of class c.
    *weight, ignore_index, smoothing, reduction = args
    picked = _pick(x, target, weight, ignore_index)
    p = exp(x - logsumexp(x, (picked.axis,)))
    g = picked.cotangent(g, reduction)
    dx = (p - where(picked.hit(x), full_like(x, 1), zeros_like(x))) * (g * picked.weight)
    if smoothing:
        classes = x.shape[picked.axis]
        share = where(picked.valid, expand(g, picked.valid.shape), zeros_like(picked.weight))
        if weight:
            every = _by_class(weight[0], x)
            spread = p * _total(weight[0]) - every
        else:
            spread = p * classes - 1
        dx = dx * (1 - smoothing) + spread * (share * (smoothing / classes))
    return dx


cross_entropy_grad = composite(
    "cross_entropy_grad",
    lambda g, x, *_: (x.shape, x.dtype),
    _cross_entropy_grad,
    params=("ignore_index", "label_smoothing", "reduction"),
    cost=20,
)
"""cross_entropy_grad(g, *operands and attrs of cross_entropy): the cotangent of the scores."""


def cross_entropy_in_passing(
    x: Node, target: Node, weight: Node | None, ignore_index: int, smoothing: float
) -> Node:
    """The unreduced cross entropy of scores[n, c] with class indices. It consists of folds along
    the rows, also for the score of the target, so nothing reads a row after its folds."""
    extra = () if weight is None else (weight,)
    picked = _pick(x, target, extra, ignore_index)
    score = sum(where(picked.hit(x), x, zeros_like(x)), (picked.axis,))
    return picked.reduce(_losses(x, picked, score, extra, smoothing), "none")


def cross_entropy_cotangent(
    g: Node, x: Node, target: Node, weight: Node | None, ignore_index: int, smoothing: float
) -> Node:
    """The cotangent of scores, given that of their unreduced cross entropy with class indices."""
    extra = () if weight is None else (weight,)
    return _cross_entropy_grad(g, x, target, *extra, ignore_index, smoothing, "none")


def mean_divisor(x: Node, target: Node, weight: Node | None, ignore_index: int) -> Node:
    """The divisor of the mean over positions: the weights of their classes, summed."""
    return _total(_pick(x, target, () if weight is None else (weight,), ignore_index).weight)


cross_entropy_op = composite(
    "cross_entropy",
    _cross_entropy_infer,
    _cross_entropy,
    vjp=_cross_entropy_vjp,
    params=("ignore_index", "label_smoothing", "reduction"),
    onnx="SoftmaxCrossEntropyLoss",
    cost=20,
)


# Cross entropy with probabilities: (x, target, weight?, label_smoothing, reduction).


def _soft_infer(x: Node, target: Node, *args: Any) -> Aval:
    *weight, _, reduction = args
    check_reduction("cross_entropy", reduction)
    each = _check("cross_entropy", x, target, weight, False)
    return (each if reduction == "none" else Size()), x.dtype


def _soft(x: Node, target: Node, *args: Any) -> Node:
    *weight, smoothing, reduction = args
    axis = _class_axis(x)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / x.shape[axis]
    if weight:
        target = target * _by_class(weight[0], x)
    loss = squeeze(sum(-log_softmax(x, axis) * target, (axis,)), (axis,))
    return reduced(loss, reduction)


_soft_op = composite(
    "cross_entropy_probabilities",
    _soft_infer,
    _soft,
    params=("label_smoothing", "reduction"),
    cost=20,
)


def cross_entropy(
    x: Node,
    target: Node,
    weight: Node | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Node:
    """-sum over classes of weight q log(softmax(x)), q being the target: 1 at a class index, or
    probabilities of the dtype of `x`; with label_smoothing e it is (1 - e) q + e / classes.

    The mean is weighted by the targets' classes if they are indices, else it is over positions.
    """
    extra = () if weight is None else (weight,)
    if target.dtype.category == FLOAT:
        return _soft_op(x, target, *extra, float(label_smoothing), reduction)
    return cross_entropy_op(x, target, *extra, ignore_index, float(label_smoothing), reduction)
