"""Layers in evaluation folded into the linear layer before them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

from ...functions.creation import ones_like, zeros_like
from ..module import Module
from ..parameter import Parameter

if TYPE_CHECKING:
    from ..._tensor import Tensor

T = TypeVar("T", bound=Module)

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution that does what it and a batch norm behind it do."""
    b = zeros_like(bn_rm) if conv_b is None else conv_b
    w = ones_like(bn_rm) if bn_w is None else bn_w
    shift = zeros_like(bn_rm) if bn_b is None else bn_b
    scale = w * (bn_rv + bn_eps).rsqrt()
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    weight = (conv_w * scale.reshape(shape)).to(dtype=conv_w.dtype)
    bias = ((b - bn_rm) * scale + shift).to(dtype=b.dtype)
    return (
        Parameter(weight.detach(), conv_w.requires_grad),
        Parameter(bias.detach(), b.requires_grad if conv_b is not None else conv_w.requires_grad),
    )


def _fused(layer: T, bn: Any, **options: Any) -> T:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    made: Any = copy.deepcopy(layer)
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    made.weight, made.bias = fuse_conv_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        **options,
    )  # fmt: skip
    return made


def fuse_conv_bn_eval(conv: T, bn: Module, transpose: bool = False) -> T:
    """A copy of the convolution that does the work of the batch norm behind it, too."""
    return _fused(conv, bn, transpose=transpose)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer that does what it and a batch norm behind it do."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_eval(linear: T, bn: Module) -> T:
    """A copy of the linear layer that does the work of the batch norm behind it, too."""
    features, channels = getattr(linear, "out_features", 0), getattr(bn, "num_features", 0)
    if channels not in (1, features):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    return _fused(linear, bn)
