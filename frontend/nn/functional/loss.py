"""Losses."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import BOOL
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

from ...functions.call import public
from ...functions.elementwise import minimum
from ...functions.promotion import WHOLE, floating, promoted, refuse
from ...functions.reduction import _mean, _sum
from ...recording import fallible_node_of, node_of, record, record_fallible, wrap
from ...recording.builders import FLOAT32, REFUSED, Gradient, builder
from ..chunking import LinearCrossEntropyOptions

if TYPE_CHECKING:
    from ..._tensor import Tensor


def _reduction(reduction: str, size_average: Any, reduce: Any) -> str:
    """PyTorch's two deprecated flags as the name of a reduction."""
    if size_average is None and reduce is None:
        return reduction
    named = "none" if reduce is False else "sum" if size_average is False else "mean"
    warn(
        f"size_average and reduce args will be deprecated, please use reduction='{named}' instead."
    )
    return named


def _by_reduction(apart: str) -> Callable[[Sequence[Any]], str]:
    """The names of `grad_fn` where PyTorch reduces by an op of its own. apart: that of the losses
    before. The reduction is the last argument."""

    def name(args: Sequence[Any]) -> str:
        return {"mean": "MeanBackward0", "sum": "SumBackward0"}.get(args[-1], apart)

    return name


def _of_two(name: str, op: Callable[..., Node], gradient: Gradient = None) -> Callable[..., Node]:
    @builder(name, casts=FLOAT32, gradient=gradient)
    def build(x: Node, target: Node, *attrs: Any) -> Node:
        x, target = promoted(x, target)
        if op is not _absolute:
            refuse(name, x, *WHOLE)
        return op(x, target, *attrs)

    return build


def _absolute(x: Node, target: Node, reduction: str) -> Node:
    if x.dtype.category in WHOLE:
        refuse("sub", x, BOOL)
        return _reduced(ops.abs(x - target), reduction)
    # PyTorch keeps the difference, so both tensors may be overwritten after the loss.
    x, target = ops.saved(x), ops.saved(target)
    if x.dtype.is_complex:
        x = ops.modulus(x - target)
        target = ops.zeros_like(x)
    return ops.l1_loss(x, target, reduction)


_mse = _of_two("mse_loss", ops.mse_loss)
_l1 = _of_two("l1_loss", _absolute, _by_reduction("AbsBackward0"))
_smooth_l1 = _of_two("smooth_l1_loss", ops.smooth_l1_loss)
_huber = _of_two("huber_loss", ops.huber_loss)


def _nll_name(args: Sequence[Any]) -> str:
    """PyTorch has a kernel for scores of two dimensions, and one for images."""
    x, reduction = args[0], args[-1]
    if x.rank == 3 and reduction == "none":
        return "ViewBackward0"
    return "NllLoss2DBackward0" if x.rank > 2 else "NllLossBackward0"


def _cross_entropy_name(args: Sequence[Any]) -> str:
    _, target, _, _, smoothing, reduction = args
    if smoothing:
        return "AddBackward0"
    if target.dtype.is_floating_point:
        return "DivBackward1" if reduction == "mean" else "NegBackward0"
    return _nll_name(args)


@builder("cross_entropy", casts=FLOAT32, gradient=_cross_entropy_name)
def _cross_entropy(x: Node, target: Node, weight: Node | None, *rest: Any) -> Node:
    if target.dtype.is_floating_point:
        both = (x, target) if weight is None else (x, target, weight)
        x, target, *weights = promoted(*both)
        weight = weights[0] if weights else None
    else:
        _check_weight(x, weight)
    # PyTorch keeps the log-probabilities, so scores may be overwritten after the loss. The
    # derivative reads a copy that no tensor holds; it costs nothing.
    return ops.cross_entropy(ops.saved(x), _classes(target), weight, *rest)


@builder("nll_loss", casts=FLOAT32, gradient=_nll_name, picks=0)
def _nll(x: Node, target: Node, weight: Node | None, *rest: Any) -> Node:
    _check_weight(x, weight)
    return ops.nll_loss(x, _classes(target), weight, *rest)


def _classes(target: Node) -> Node:
    """Indices of classes as int64; they may be bytes, too."""
    return ops.cast(target, dtypes.int64) if target.dtype is dtypes.uint8 else target


def _check_weight(x: Node, weight: Node | None) -> None:
    """Raise unless the weights of classes have the dtype of the scores."""
    if weight is not None and weight.dtype is not x.dtype:
        raise RuntimeError(
            f"expected weights of the scores' dtype {x.dtype}, but found {weight.dtype}"
            f"{at_user_line()}"
        )


def _warn_of_broadcast(input: Any, target: Any) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            stacklevel=3,
        )


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)^2, reduced; with weights of the elements their mean is a weighted one."""
    _warn_of_broadcast(input, target)
    reduction = _reduction(reduction, size_average, reduce)
    if weight is None:
        return record(_mse, input, target, reduction)
    return _weighted_mean(_weighted(record(_mse, input, target, "none"), weight), weight, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target|, reduced; with weights of the elements their mean is a weighted one."""
    _warn_of_broadcast(input, target)
    reduction = _reduction(reduction, size_average, reduce)
    if weight is None:
        return record(_l1, input, target, reduction)
    return _weighted_mean(_weighted(record(_l1, input, target, "none"), weight), weight, reduction)


def _weighted(losses: Any, weight: Any) -> Any:
    """The elements' losses times their weights; ValueError for weights of another shape."""
    if weight.shape != losses.shape:
        raise ValueError(
            f"Weights and input must have the same size, got {list(weight.shape)} and "
            f"{list(losses.shape)}.{at_user_line()}"
        )
    return losses * weight


def _weighted_mean(losses: Any, weight: Any, reduction: str) -> Any:
    """The losses, reduced; their mean divides by the sum of the weights."""
    if reduction == "mean":
        return losses.sum() / weight.sum()
    return _reduce(losses, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """With d = input - target: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, reduced."""
    _warn_of_broadcast(input, target)
    if beta < 0:
        raise RuntimeError(
            f"smooth_l1_loss does not support negative values for beta{at_user_line()}"
        )
    name = _reduction(reduction, size_average, reduce)
    return record(_smooth_l1, input, target, float(beta), name)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """With d = input - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2),
    reduced. Weights of the elements scale the losses; the mean is one of all elements."""
    _warn_of_broadcast(input, target)
    if delta <= 0:
        raise RuntimeError(
            f"huber_loss does not support non-positive values for delta.{at_user_line()}"
        )
    if weight is not None:
        loss = record(_huber, input, target, float(delta), "none")
        return _reduce(_weighted(loss, weight), reduction)
    return record(_huber, input, target, float(delta), reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(input)[target] of scores input[n, c, …] or input[c], reduced.

    target: class indices, or probabilities of the shape of the input.
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(
            f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}{at_user_line()}"
        )
    name = (
        reduction
        if size_average is None and reduce is None
        else _reduction(reduction, size_average, reduce)
    )
    return record_fallible(
        _cross_entropy,
        input,
        target,
        weight,
        operator.index(ignore_index),
        float(label_smoothing),
        name,
    )


_linear_cross_entropy = builder("linear_cross_entropy")(ops.linear_cross_entropy)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """cross_entropy of linear(input[n, in] or input[in], linear_weight[c, in], linear_bias[c]).

    For class indices the scores are computed in blocks of rows and never held all at once, whatever
    `options` would choose in PyTorch. A block is at most as large as the input, or a 16th of all
    scores. linear_weight[c, …, in] and linear_bias[c, …] give a loss at each position […]. In that
    case, and if targets are probabilities, all scores are held.
    """
    if ignore_index is not None and ignore_index >= 0 and target.dtype.is_floating_point:
        raise RuntimeError(
            "linear_cross_entropy: ignore_index is not supported for floating point target"
            f"{at_user_line()}"
        )
    if options is not None and not isinstance(options, LinearCrossEntropyOptions):
        raise TypeError(
            "linear_cross_entropy: expected nn.LinearCrossEntropyOptions as options, got "
            f"{type(options).__name__}{at_user_line()}"
        )
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(
            f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}{at_user_line()}"
        )
    return record_fallible(
        _linear_cross_entropy, input, linear_weight, target, linear_bias, weight,
        -100 if ignore_index is None else ignore_index, float(label_smoothing), reduction,
    )  # fmt: skip


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-input[target] of log-probabilities input[n, c, …] or input[c], reduced."""
    name = _reduction(reduction, size_average, reduce)
    return record_fallible(_nll, input, target, weight, operator.index(ignore_index), name)


@builder("binary_cross_entropy", casts={"cuda": REFUSED, "cpu": FLOAT32})
def _bce(x: Node, target: Node, weight: Node | None, reduction: str) -> Node:
    if x.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size ({x.shape}) "
            f"is deprecated. Please ensure they have the same size.{at_user_line()}"
        )
    if target.dtype is not x.dtype:
        raise RuntimeError(
            f"Found target of dtype {target.dtype} but expected {x.dtype}{at_user_line()}"
        )
    return ops.binary_cross_entropy(x, target, weight, reduction)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(target log(input) + (1 - target) log(1 - input)) of probabilities, reduced."""
    name = _reduction(reduction, size_average, reduce)
    loss = node_of(_bce, input, target, weight, name)
    fallible_node_of(ops.within_unit, input, "cross entropy input")
    fallible_node_of(ops.within_unit, target, "cross entropy target")
    return wrap(loss)


@builder("binary_cross_entropy_with_logits", casts=FLOAT32)
def _bce_logits(
    x: Node, target: Node, weight: Node | None, pos_weight: Node | None, reduction: str
) -> Node:
    if x.shape != target.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({x.shape})"
            f"{at_user_line()}"
        )
    x, target = promoted(x, target)
    return ops.binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), computed stably."""
    name = _reduction(reduction, size_average, reduce)
    return record(_bce_logits, input, target, weight, pos_weight, name)


def _kl_name(args: Sequence[Any]) -> str:
    *_, log_target, reduction = args
    if reduction == "batchmean":
        return "DivBackward0"
    return _by_reduction("MulBackward0" if log_target else "SubBackward0")(args)


@builder("kl_div", casts=FLOAT32, gradient=_kl_name)
def _kl(x: Node, target: Node, log_target: bool, reduction: str) -> Node:
    x, target = promoted(x, target)
    return ops.kl_div(x, target, log_target, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target (log(target) - input), `input` being log-probabilities, reduced.

    reduction: also 'batchmean', the sum divided by the batch size.
    """
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.'mean' will be changed to behave the same as 'batchmean' in the next "
            "major release.",
            stacklevel=2,
        )
    name = _reduction(reduction, size_average, reduce)
    return record(_kl, input, target, bool(log_target), name)


# Losses made of tensor operations, each one record too.


def require_reduction(name: str) -> None:
    if name not in ("none", "mean", "sum"):
        raise ValueError(f"{name} is not a valid value for reduction{at_user_line()}")


def _reduced(loss: Node, reduction: str) -> Node:
    require_reduction(reduction)
    every = tuple(range(loss.rank))
    if reduction == "none":
        return loss
    if not loss.dtype.is_differentiable:  # sums are int64, and means an error
        return (_mean if reduction == "mean" else _sum)(loss, None, False, None)
    return ops.reshape((ops.mean if reduction == "mean" else ops.sum)(loss, every), Size())


_whole = builder("reduced", gradient=_by_reduction(""))(_reduced)


def _reduce(loss: Any, reduction: str) -> Any:
    return loss if reduction == "none" else record(_whole, loss, reduction)


@builder("poisson_nll_loss", casts=FLOAT32, gradient=_by_reduction("SubBackward0"))
def _poisson(x: Node, target: Node, log_input: bool, full: bool, eps: float, how: str) -> Node:
    x, target = (floating(each) for each in promoted(x, target))
    loss = ops.exp(x) - target * x if log_input else x - target * ops.log(x + eps)
    if full:
        stirling = target * ops.log(target) - target + ops.log(target * (2 * math.pi)) * 0.5
        loss = loss + ops.where(target > 1, stirling, ops.zeros_like(target))
    return _reduced(loss, how)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target input, or input - target log(input + eps) without log_input."""
    name = _reduction(reduction, size_average, reduce)
    return record(_poisson, input, target, bool(log_input), bool(full), float(eps), name)


@builder("gaussian_nll_loss", gradient=_by_reduction("MulBackward0"))
def _gaussian(x: Node, target: Node, var: Node, full: bool, eps: float, how: str) -> Node:
    if var.shape != x.shape and var.rank == x.rank - 1:
        var = ops.unsqueeze(var, var.rank)
    wrong = [v for v, n in zip(var.shape, x.shape, strict=False) if v != n]
    if var.rank and (var.rank != x.rank or wrong not in ([], [1])):
        raise ValueError(f"var is of incorrect size{at_user_line()}")
    x, target, var = promoted(x, target, var)
    # As in PyTorch a variance below eps has the gradient of eps.
    var = ops.with_value(var, ops.maximum(var, ops.full_like(var, eps)))
    loss = (ops.log(var) + (x - target) * (x - target) / var) * 0.5
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, how)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)^2 / var) / 2, var not below eps."""
    if not hasattr(var, "shape"):
        var = input.new_full((), float(var))
    if not hasattr(target, "shape"):
        target = input.new_full((), float(target))
    return record(_gaussian, input, target, var, bool(full), float(eps), reduction)


def _hinge(x: Node) -> Node:
    """max(0, x), whose slope is one where `x` is zero: so examples that tie learn."""
    return ops.clamp(x, 0, None)


@builder("hinge_embedding_loss", casts=FLOAT32, gradient=_by_reduction("AddBackward0"))
def _hinge_embedding(x: Node, target: Node, margin: float, how: str) -> Node:
    x, target = promoted(x, target)
    zero = ops.zeros_like(x)
    # As in PyTorch, another target takes part in both.
    near = ops.where(ops.eq(target, ops.full_like(target, -1)), zero, x)
    far = ops.where(ops.eq(target, ops.full_like(target, 1)), zero, _hinge(margin - x))
    return _reduced(near + far, how)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """input where target is 1, max(0, margin - input) where target is -1."""
    name = _reduction(reduction, size_average, reduce)
    return record(_hinge_embedding, input, target, float(margin), name)


@public("hinge_embedding_loss", _hinge_embedding, method=False)
def hinge_embedding_loss_of_torch(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.hinge_embedding_loss`, with a number for the reduction: none, mean or sum."""
    return hinge_embedding_loss(input, target, margin, reduction=("none", "mean", "sum")[reduction])


@builder("soft_margin_loss", casts=FLOAT32)
def _soft_margin(x: Node, target: Node, how: str) -> Node:
    x, target = promoted(x, target)
    return _reduced(-ops.logsigmoid(x * target), how)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target input))."""
    return record(_soft_margin, input, target, _reduction(reduction, size_average, reduce))


@builder("margin_ranking_loss", casts=FLOAT32, gradient=_by_reduction("ClampMinBackward0"))
def _margin_ranking(a: Node, b: Node, target: Node, margin: float, how: str) -> Node:
    if not a.rank == b.rank == target.rank:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {a.shape}, input2: {b.shape}, target: {target.shape}{at_user_line()}"
        )
    a, b, target = promoted(a, b, target)
    return _reduced(_hinge(floating((b - a) * target) + margin), how)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target (input1 - input2) + margin)."""
    name = _reduction(reduction, size_average, reduce)
    return record(_margin_ranking, input1, input2, target, float(margin), name)


def require_margin(margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}{at_user_line()}")


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    from .linear import pairwise_distance

    require_margin(margin)
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
            f"negative {negative.dim()}D inputs{at_user_line()}"
        )
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    name = _reduction(reduction, size_average, reduce)
    return _reduce((near - far + margin).clamp_min(0), name)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos(input1, input2) where target is 1, max(0, cos - margin) where target is -1."""
    from ...functions.masks import where
    from .linear import cosine_similarity

    x, y = (each if each.dtype.is_differentiable else each * 1.0 for each in (input1, input2))
    similarity = cosine_similarity(x, y, -1)
    loss = where(target > 0, 1 - similarity, (similarity - margin).clamp_min(0))
    return _reduce(loss, _reduction(reduction, size_average, reduce))
