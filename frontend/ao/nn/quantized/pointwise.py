"""Layers that are computed of the numbers for which integers stand, and rounded to a scale."""

from __future__ import annotations

from typing import Any

from .... import nn
from ....functions.from_data import tensor
from ....functions.quantized import QuantizedTensor, quantize_per_tensor, quint8
from ....nn import functional as F
from .functional import of_numbers

__all__ = [
    "ELU",
    "BatchNorm2d",
    "BatchNorm3d",
    "Dropout",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "PReLU",
    "Sigmoid",
    "Softmax",
]


class _Rounded(nn.Module):
    """A layer of floats whose results are rounded to `scale` and `zero_point`.

    It stands before the layer among the bases of a class. _kept: whether the scale and the zero
    point are buffers.
    """

    scale: Any
    zero_point: Any
    _kept = True

    def _begin(self, scale: Any, zero_point: Any) -> None:
        if not self._kept:
            self.scale, self.zero_point = scale, zero_point
            return
        self.register_buffer("scale", tensor(float(scale)))
        self.register_buffer("zero_point", tensor(int(zero_point)))

    def forward(self, input: Any) -> Any:
        return of_numbers(
            input, super().forward, scale=float(self.scale), zero_point=int(self.zero_point)
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer for a layer of floats that was observed."""
        scale, zero = mod.activation_post_process.calculate_qparams()
        return cls._like(mod, float(scale), int(zero))

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """A layer with the options of a layer of floats."""
        raise NotImplementedError

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"


# ---- norms -----------------------------------------------------------------------------------


class _Norm(_Rounded):
    """A norm whose weight and bias are given."""

    weight: Any
    bias: Any

    def _take(self, weight: Any, bias: Any, scale: Any, zero_point: Any) -> None:
        self.weight, self.bias = weight, bias
        self._begin(scale, zero_point)


class LayerNorm(_Norm, nn.LayerNorm):
    """torch.nn.LayerNorm of quantized tensors."""

    def __init__(
        self, normalized_shape: Any, weight: Any, bias: Any, scale: Any, zero_point: Any,
        eps: float = 1e-5, elementwise_affine: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        nn.LayerNorm.__init__(self, normalized_shape, eps, elementwise_affine)
        self._take(weight, bias, scale, zero_point)

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(
            mod.normalized_shape, mod.weight, mod.bias, scale, zero_point, mod.eps,
            mod.elementwise_affine,
        )  # fmt: skip


class GroupNorm(_Norm, nn.GroupNorm):
    """torch.nn.GroupNorm of quantized tensors."""

    def __init__(
        self, num_groups: int, num_channels: int, weight: Any, bias: Any, scale: Any,
        zero_point: Any, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        nn.GroupNorm.__init__(self, num_groups, num_channels, eps, affine)
        self._take(weight, bias, scale, zero_point)

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        sizes = mod.num_groups, mod.num_channels
        return cls(*sizes, mod.weight, mod.bias, scale, zero_point, mod.eps, mod.affine)


class _InstanceNorm(_Norm):
    def __init__(
        self, num_features: int, weight: Any, bias: Any, scale: Any, zero_point: Any,
        eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self._take(weight, bias, scale, zero_point)

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(mod.num_features, mod.weight, mod.bias, scale, zero_point, mod.eps, mod.affine)


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d of quantized tensors."""


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d of quantized tensors."""


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d of quantized tensors."""


class BatchNorm(_Rounded):
    """A batch norm with the statistics that it has, of quantized tensors."""

    num_features: int
    eps: float

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum)
        self._begin(1.0, 0)
        self.eval()

    def train(self, mode: bool = True) -> Any:
        return super().train(False)

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        norm = mod[0] if isinstance(mod, nn.Sequential) else mod
        made: Any = cls(norm.num_features, norm.eps)
        for name in ("weight", "bias", "running_mean", "running_var"):
            setattr(made, name, getattr(norm, name))
        made.scale, made.zero_point = tensor(scale), tensor(zero_point)
        return made


class BatchNorm2d(BatchNorm, nn.BatchNorm2d):
    """torch.nn.BatchNorm2d of quantized tensors."""


class BatchNorm3d(BatchNorm, nn.BatchNorm3d):
    """torch.nn.BatchNorm3d of quantized tensors."""


# ---- activations -----------------------------------------------------------------------------


class Hardswish(_Rounded, nn.Hardswish):
    """torch.nn.Hardswish of quantized tensors."""

    def __init__(self, scale: Any, zero_point: Any, device: Any = None, dtype: Any = None):
        nn.Hardswish.__init__(self)
        self._begin(scale, zero_point)

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(scale, zero_point)


class LeakyReLU(_Rounded, nn.LeakyReLU):
    """torch.nn.LeakyReLU of quantized tensors."""

    def __init__(
        self, scale: Any, zero_point: Any, negative_slope: float = 0.01, inplace: bool = False,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        nn.LeakyReLU.__init__(self, negative_slope, inplace)
        self._begin(scale, zero_point)

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(scale, zero_point, mod.negative_slope, mod.inplace)


class ELU(_Rounded, nn.ELU):
    """torch.nn.ELU of quantized tensors."""

    _kept = False

    def __init__(self, scale: Any, zero_point: Any, alpha: float = 1.0):
        nn.ELU.__init__(self, alpha)
        self._begin(scale, zero_point)

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(scale, zero_point, mod.alpha)


class Sigmoid(_Rounded, nn.Sigmoid):
    """torch.nn.Sigmoid of quantized tensors."""

    _kept = False

    def __init__(self, output_scale: float, output_zero_point: int):
        nn.Sigmoid.__init__(self)
        self._begin(output_scale, output_zero_point)
        self.output_scale, self.output_zero_point = output_scale, output_zero_point

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(scale, zero_point)

    def _get_name(self) -> str:
        return "Sigmoid"


class Softmax(_Rounded, nn.Softmax):
    """torch.nn.Softmax of quantized tensors."""

    _kept = False

    def __init__(self, dim: int | None = None, scale: float = 1.0, zero_point: int = 0):
        nn.Softmax.__init__(self, dim)
        self._begin(scale, zero_point)

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(mod.dim, scale, zero_point)


class PReLU(_Rounded):
    """torch.nn.PReLU of quantized tensors; its weight is quantized, too."""

    _kept = False

    def __init__(self, output_scale: float, output_zero_point: int, num_parameters: int = 1):
        super().__init__()
        self.num_parameters = num_parameters
        self._begin(output_scale, output_zero_point)
        self.set_weight(quantize_per_tensor(tensor([0.25] * num_parameters), 1.0, 0, quint8))

    def set_weight(self, w: QuantizedTensor) -> None:
        """Take a quantized weight (num_parameters,)."""
        self.weight = w

    def forward(self, input: Any) -> Any:
        weight = self.weight.dequantize()
        return of_numbers(
            input, lambda x: F.prelu(x, weight), scale=self.scale, zero_point=self.zero_point
        )

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        made = cls(scale, zero_point, mod.num_parameters)
        observer = mod.qconfig.weight()
        if observer.dtype is not quint8:
            raise AssertionError(f"PReLU's weight observer should have dtype quint8 but got "
                                 f"{observer.dtype}")  # fmt: skip
        weight = mod.weight.detach().float()
        observer(weight)
        step, zero = observer.calculate_qparams()
        made.set_weight(quantize_per_tensor(weight, float(step), int(zero), quint8))
        return made


class Dropout(nn.Dropout):
    """Gives its input: quantized layers aren't trained."""

    def forward(self, input: Any) -> Any:
        return input

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Dropout:
        return cls(mod.p, mod.inplace)

    def _get_name(self) -> str:
        return "QuantizedDropout"
