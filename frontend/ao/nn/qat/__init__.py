"""torch.ao.nn.qat: layers that round their weights while they are trained."""

from __future__ import annotations

from typing import Any

from .... import nn
from ....nn.functional import embedding, embedding_bag, linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]


class Rounding(nn.Module):
    """A layer of floats, `_of`, whose weight passes through `weight_fake_quant`."""

    weight: Any
    bias: Any

    def _begin(self, qconfig: Any) -> None:
        if not qconfig:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer for a layer of floats, or one followed by a ReLU, which has a qconfig."""
        config = getattr(mod, "qconfig", None)
        if not config:
            raise AssertionError("Input float module must have a valid qconfig")
        inner = mod[0] if isinstance(mod, nn.Sequential) else mod
        layer = copied(cls, inner)
        layer._begin(config)
        layer.train(mod.training)
        return layer


def copied(cls: type, inner: Any) -> Any:
    """A layer of `cls` with the options and the parameters of a layer of floats."""
    layer = cls.__new__(cls)  # type: ignore[call-overload]
    nn.Module.__init__(layer)
    state = ("_parameters", "_buffers", "_modules", "_hooks", "training", "qconfig")
    for name, value in inner.__dict__.items():
        if name not in state and not isinstance(value, (nn.Parameter, nn.Module)):
            layer.__dict__[name] = value
    for name, value in inner.named_parameters(recurse=False):
        layer.register_parameter(name, value)
    if "bias" not in dict(layer.named_parameters(recurse=False)):
        layer.register_parameter("bias", None)
    return layer


class Linear(Rounding, nn.Linear):
    """x[..., in_features] @ weight^T + bias, with the weight rounded."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        **options: Any,
    ):
        nn.Linear.__init__(self, in_features, out_features, bias, **options)
        self._begin(qconfig)

    def forward(self, input: Any) -> Any:
        return linear(input, self.weight_fake_quant(self.weight), self.bias)


class _Conv(Rounding):
    _conv_forward: Any

    def __init__(self, *args: Any, qconfig: Any = None, **options: Any):
        super().__init__(*args, **options)
        self._begin(qconfig)

    def forward(self, input: Any) -> Any:
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)


class Conv1d(_Conv, nn.Conv1d):
    """A convolution of input[n, c, w], with the weight rounded."""


class Conv2d(_Conv, nn.Conv2d):
    """A convolution of input[n, c, h, w], with the weight rounded."""


class Conv3d(_Conv, nn.Conv3d):
    """A convolution of input[n, c, d, h, w], with the weight rounded."""


class Embedding(Rounding, nn.Embedding):
    """Rows of a rounded weight at indices."""

    def __init__(self, *args: Any, qconfig: Any = None, **options: Any):
        nn.Embedding.__init__(self, *args, **options)
        self._begin(qconfig)

    def forward(self, input: Any) -> Any:
        return embedding(
            input, self.weight_fake_quant(self.weight), self.padding_idx, self.max_norm,
            self.norm_type, self.scale_grad_by_freq, self.sparse,
        )  # fmt: skip


class EmbeddingBag(Rounding, nn.EmbeddingBag):
    """Sums or averages of rows of a rounded weight over bags of indices."""

    def __init__(self, *args: Any, qconfig: Any = None, **options: Any):
        nn.EmbeddingBag.__init__(self, *args, **options)
        self._begin(qconfig)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        return embedding_bag(
            input, self.weight_fake_quant(self.weight), offsets, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.mode, self.sparse, per_sample_weights,
            self.include_last_offset, self.padding_idx,
        )  # fmt: skip
