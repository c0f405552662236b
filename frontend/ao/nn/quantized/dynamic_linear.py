"""A linear layer whose weight is rounded once, and its input in each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .... import nn
from ....functions.creation import ones, zeros
from ....functions.from_data import tensor
from ....functions.quantized import (
    QuantizedDType,
    QuantizedTensor,
    per_channel_affine,
    per_tensor_affine,
    qint8,
    quantize_per_tensor_dynamic,
    quint8,
)
from ....nn import functional as F
from ....nn.functional.narrow import linear_dynamic
from ....recording import Handle
from ...quantization.qconfig import default_dynamic_qconfig
from . import layers
from .layers import rounded

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from ...._tensor import Tensor

__all__ = ["Linear"]


class Linear(layers.Linear):
    """x[..., in_features] @ weight^T + bias, for a weight of int8 with one scale or with a scale
    for each output, or for one of float16.

    With int8 the input is rounded to 128 steps between its least and its largest element, and the
    product is one of integers. Buffers: `qweight`, `qscale` and `qzero` (the scale and the integer
    that stands for 0: numbers, or vectors of one for each row), `qsums` (of each row's integers)
    and `qbias`. State dicts have the weight and the bias, as PyTorch's.
    """

    _version = version = 4
    qweight: Any
    qbias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        dtype: QuantizedDType | DType = qint8,
    ):
        nn.Module.__init__(self)
        if dtype is not qint8 and dtype is not dtypes.float16:
            raise RuntimeError(
                "Unsupported dtype specified for dynamic quantized Linear: expected torch.qint8 "
                f"or torch.float16, got {dtype}{at_user_line()}"
            )
        self.in_features, self.out_features, self.dtype = in_features, out_features, dtype
        shape = out_features, in_features
        self._around_0 = True
        stored = dtypes.int8 if dtype is qint8 else dtypes.float16
        held = {"qweight": zeros(shape, dtype=stored), "qbias": zeros(out_features)}
        if dtype is qint8:
            held["qscale"], held["qzero"] = ones(()), zeros((), dtype=dtypes.int32)
            held["qsums"] = zeros(out_features, dtype=dtypes.int32)
        for name, buffer in held.items():
            none = name == "qbias" and not bias_
            self.register_buffer(name, None if none else buffer, persistent=False)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """The layer for the weights of a linear one, by the observer for weights of its qconfig:
        `default_dynamic_qconfig` if it has none."""
        inner = mod[0] if isinstance(mod, nn.Sequential) else mod
        observer = weight_observer(mod)
        made = cls(inner.in_features, inner.out_features, inner.bias is not None, observer.dtype)
        made._take(inner.weight, inner.bias, observer)
        return made.train(inner.training)

    def _take(self, weight: Tensor, bias: Tensor | None, observer: Any) -> None:
        """Take a weight of floats, which is rounded as the observer says, and a bias."""
        weight = weight.detach().float()
        if self.dtype is qint8:
            observer(weight)
            self.set_weight_bias(rounded(weight, observer), bias)
        else:
            self.set_weight_bias(weight, bias)

    def set_weight_bias(self, w: Tensor | QuantizedTensor, b: Tensor | None) -> None:
        """Take a quantized weight, or one of floats for a layer of float16, and a bias."""
        w = w.to(self.qweight.device)
        if self.dtype is not qint8:
            held = w.dequantize() if isinstance(w, QuantizedTensor) else w.detach()
            self.qweight = held.half()
        elif isinstance(w, QuantizedTensor) and w.dtype is qint8:
            self.qweight = w._codes
            self.qscale, self.qzero = (
                number if isinstance(number, Handle) else tensor(number)
                for number in (w._scale, w._zero_point)
            )
            self.qscale = self.qscale.to(dtypes.float32)
            self.qzero = self.qzero.to(dtypes.int32)
            self.qsums = self.qweight.to(dtypes.int32).sum(1).to(dtypes.int32)
            self._around_0 = not self.qzero.any()
        else:
            raise RuntimeError(
                f"set_weight_bias: expected a weight of torch.qint8, got {w.dtype}: "
                f"quantize_per_tensor and quantize_per_channel make them{at_user_line()}"
            )
        self.qbias = None if b is None else b.detach().clone().to(w.device)

    def weight(self) -> Any:
        """The rounded weight: a quantized tensor, or one of float16."""
        if self.dtype is not qint8:
            return self.qweight
        if not self.qscale.dim():
            number = float(self.qscale.item()), int(self.qzero.item())
            return QuantizedTensor(self.qweight, *number, qint8)
        scale, zero = self.qscale.to(dtypes.float64), self.qzero.to(dtypes.int64)
        return QuantizedTensor(self.qweight, scale, zero, qint8, 0)

    def bias(self) -> Tensor | None:
        return self.qbias

    def forward(self, x: Tensor) -> Tensor:
        if self.dtype is not qint8:
            return F.linear(x, self.qweight.to(x.dtype), self.qbias)
        if self._around_0:
            scale = self.qscale.expand(self.out_features)
            return linear_dynamic(x, self.qweight, scale, self.qsums, self.qbias)
        steps = quantize_per_tensor_dynamic(x.detach().float(), quint8, True).dequantize()
        return F.linear(steps, self.weight().dequantize(), self.qbias).to(x.dtype)

    def _weight_bias(self) -> tuple[Any, Tensor | None]:
        weight = self.weight()
        return weight if self.dtype is qint8 else weight.float(), self.bias()

    def _parts(self) -> dict[str, Any]:
        return {
            "_packed_params.dtype": self.dtype,
            "_packed_params._packed_params": self._weight_bias(),
        }

    def _apply(self, fn: Any, recurse: bool = True) -> Linear:
        """Follow a model to a device. Its conversion to other floats changes no quantized layer."""
        held = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, buffer in held.items():
            if buffer is not None and buffer.dtype is not self._buffers[name].dtype:
                self._buffers[name] = buffer.to(self._buffers[name].device)
        return self

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        said = (
            f"in_features={self.in_features}, out_features={self.out_features}, dtype={self.dtype}"
        )
        if self.dtype is not qint8:
            return said
        return f"{said}, qscheme={per_channel_affine if self.qscale.dim() else per_tensor_affine}"


def weight_observer(mod: Any) -> Any:
    """A new observer of a layer's weight, of the layer's qconfig."""
    config = getattr(mod, "qconfig", None)
    made = (default_dynamic_qconfig if config is None else config).weight()
    if made.dtype is not qint8 and made.dtype is not dtypes.float16:
        raise AssertionError(
            "The only supported dtypes for dynamic quantized layers are qint8 and float16, got: "
            f"{made.dtype}{at_user_line()}"
        )
    return made
