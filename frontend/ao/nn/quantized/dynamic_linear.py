"""A linear layer whose weight is rounded once, and its input in each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line

from .... import nn
from ....functions.creation import ones, zeros
from ....functions.quantized import (
    QuantizedDType,
    QuantizedTensor,
    per_channel_affine,
    per_tensor_affine,
    qint8,
)
from ....nn import functional as F
from ....recording import record
from ...quantization.rounding import by_rows

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from ...._tensor import Tensor

__all__ = ["Linear"]


class Linear(nn.Module):
    """x[..., in_features] @ weight^T + bias, for a weight of int8 with a scale for each output, or
    for one of float16.

    With int8 the input is rounded to 256 steps between its least and its largest element, and the
    product is one of integers. Buffers: `qweight`, `qscale` (of each row), `qsums` (of each row's
    integers) and `qbias`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        dtype: QuantizedDType | DType = qint8,
    ):
        super().__init__()
        if dtype is not qint8 and dtype is not dtypes.float16:
            raise RuntimeError(
                "Unsupported dtype specified for dynamic quantized Linear: expected torch.qint8 "
                f"or torch.float16, got {dtype}{at_user_line()}"
            )
        self.in_features, self.out_features, self.dtype = in_features, out_features, dtype
        shape = out_features, in_features
        if dtype is qint8:
            self.register_buffer("qweight", zeros(shape, dtype=dtypes.int8))
            self.register_buffer("qscale", ones(out_features))
            self.register_buffer("qsums", zeros(out_features, dtype=dtypes.int32))
        else:
            self.register_buffer("qweight", zeros(shape, dtype=dtypes.float16))
        self.register_buffer("qbias", zeros(out_features) if bias_ else None)

    @classmethod
    def from_float(
        cls,
        mod: nn.Linear,
        dtype: QuantizedDType | DType = qint8,
        use_precomputed_fake_quant: bool = False,
    ) -> Linear:
        """The layer for the weights of `mod`."""
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, dtype)
        made.set_weight_bias(mod.weight, mod.bias)
        return made.train(mod.training)

    def set_weight_bias(self, w: Tensor | QuantizedTensor, b: Tensor | None) -> None:
        """Takes a weight of floats, which is rounded, and a bias."""
        weight = w.dequantize() if isinstance(w, QuantizedTensor) else w.detach()
        if self.dtype is qint8:
            self.qweight, self.qscale = by_rows(weight.float())
            self.qsums = self.qweight.to(dtypes.int32).sum(1).to(dtypes.int32)
        else:
            self.qweight = weight.half()
        self.qbias = None if b is None else b.detach().clone()

    def weight(self) -> Any:
        """The rounded weight: a quantized tensor, or one of float16."""
        if self.dtype is not qint8:
            return self.qweight
        zero = zeros(self.out_features, dtype=dtypes.int64)
        return QuantizedTensor(self.qweight, self.qscale, zero, qint8, 0)

    def bias(self) -> Tensor | None:
        return self.qbias

    def forward(self, x: Tensor) -> Tensor:
        bias = () if self.qbias is None else (self.qbias,)
        if self.dtype is qint8:
            return record(ops.linear_dynamic, x, self.qweight, self.qscale, self.qsums, *bias)
        return F.linear(x, self.qweight.to(x.dtype), self.qbias)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        said = (
            f"in_features={self.in_features}, out_features={self.out_features}, dtype={self.dtype}"
        )
        scheme = per_channel_affine if self.dtype is qint8 else per_tensor_affine
        return f"{said}, qscheme={scheme}" if self.dtype is qint8 else said
