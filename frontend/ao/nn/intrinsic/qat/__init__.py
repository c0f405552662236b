"""torch.ao.nn.intrinsic.qat: layers with what follows them, trained with rounded weights."""

from __future__ import annotations

from typing import Any

from ..... import nn
from .....nn.functional import linear, relu
from .....nn.utils.fusion import fuse_conv_bn_weights
from ...qat import Conv1d, Conv2d, Conv3d, Linear, copied

__all__ = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearReLU",
    "freeze_bn_stats",
    "update_bn_stats",
]


class _WithReLU:
    def forward(self, input: Any) -> Any:
        return relu(super().forward(input))  # type: ignore[misc]


class LinearReLU(_WithReLU, Linear):
    """A linear layer with its weight rounded, and a ReLU."""


class ConvReLU1d(_WithReLU, Conv1d):
    """A convolution with its weight rounded, and a ReLU."""


class ConvReLU2d(_WithReLU, Conv2d):
    """A convolution with its weight rounded, and a ReLU."""


class ConvReLU3d(_WithReLU, Conv3d):
    """A convolution with its weight rounded, and a ReLU."""


class _Normed:
    """A product and a batch norm. The weight is rounded as it will be once the norm's scale is
    in it (Jacob et al., CVPR 2018): the result of the product is divided by that scale again,
    and the norm takes it."""

    bn: Any
    weight: Any
    bias: Any
    weight_fake_quant: Any
    _conv_forward: Any

    def _factor(self) -> Any:
        return self.bn.weight / (self.bn.running_var + self.bn.eps).sqrt()

    def forward(self, input: Any) -> Any:
        factor = self._factor()
        rows = [-1] + [1] * (self.weight.dim() - 1)
        made = self._conv_forward(
            input, self.weight_fake_quant(self.weight * factor.reshape(rows)), None
        )
        rows = [1, -1] + [1] * (made.dim() - 2)
        made = made / factor.reshape(rows)
        if self.bias is not None:
            made = made + self.bias.reshape(rows)
        return self.bn(made)

    def folded(self) -> tuple[Any, Any]:
        """The weight and the bias of the product with the norm in them."""
        bn = self.bn
        return fuse_conv_bn_weights(
            self.weight, self.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer for a layer and a batch norm in sequence, which have a qconfig."""
        if not getattr(mod, "qconfig", None):
            raise AssertionError("Input float module must have a valid qconfig")
        layer = copied(cls, mod[0])
        layer.bn = mod[1]
        layer._begin(mod.qconfig)
        layer.train(mod.training)
        return layer

    def update_bn_stats(self) -> Any:
        """Let the norm take the statistics of batches."""
        self.bn.training = True
        return self

    def freeze_bn_stats(self) -> Any:
        """Let the norm keep its statistics."""
        self.bn.training = False
        return self


class LinearBn1d(_Normed, Linear):
    """A linear layer and a batch norm."""

    _conv_forward = staticmethod(linear)


class ConvBn1d(_Normed, Conv1d):
    """A convolution of input[n, c, w] and a batch norm."""


class ConvBn2d(_Normed, Conv2d):
    """A convolution of input[n, c, h, w] and a batch norm."""


class ConvBn3d(_Normed, Conv3d):
    """A convolution of input[n, c, d, h, w] and a batch norm."""


class ConvBnReLU1d(_WithReLU, ConvBn1d):
    """The same and a ReLU."""


class ConvBnReLU2d(_WithReLU, ConvBn2d):
    """The same and a ReLU."""


class ConvBnReLU3d(_WithReLU, ConvBn3d):
    """The same and a ReLU."""


def update_bn_stats(mod: nn.Module) -> None:
    """For `model.apply`: let norms take the statistics of batches."""
    if isinstance(mod, _Normed):
        mod.update_bn_stats()


def freeze_bn_stats(mod: nn.Module) -> None:
    """For `model.apply`: let norms keep their statistics."""
    if isinstance(mod, _Normed):
        mod.freeze_bn_stats()
