"""Activations. Defaults of attributes are ONNX's, not PyTorch's."""

from __future__ import annotations

from typing import Any

from .api import F, f
from .table import operator


@operator("Relu")
def relu(x: Any) -> Any:
    return F.relu(x)


@operator("LeakyRelu")
def leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    return F.leaky_relu(x, alpha)


@operator("ThresholdedRelu")
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    return F.threshold(x, alpha, 0.0)


@operator("PRelu")
def prelu(x: Any, slope: Any) -> Any:
    if slope.dim() == 1 and x.dim() > 1 and slope.shape[0] not in (1, x.shape[-1]):
        slope = slope.reshape([-1] + [1] * (x.dim() - 2))  # one for each channel, as in opset 6
    return f.where(x < 0, x * slope, x)


@operator("Elu")
def elu(x: Any, *, alpha: float = 1.0) -> Any:
    return F.elu(x, alpha)


@operator("Celu")
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    return F.celu(x, alpha)


@operator("Selu")
def selu(x: Any, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Any:
    return F.elu(x, alpha) * gamma


@operator("Gelu")
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return F.gelu(x, approximate)


@operator("Sigmoid")
def sigmoid(x: Any) -> Any:
    return f.sigmoid(x)


@operator("HardSigmoid")
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return f.clamp(x * alpha + beta, 0.0, 1.0)


@operator("HardSwish")
def hard_swish(x: Any) -> Any:
    return F.hardswish(x)


@operator("Mish")
def mish(x: Any) -> Any:
    return F.mish(x)


@operator("Swish")
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return F.silu(x) if alpha == 1 else x * f.sigmoid(x * alpha)


@operator("SwiGLU")
def swiglu(gate: Any, x: Any, *, alpha: float = 1.0) -> Any:
    return swish(gate, alpha=alpha) * x


@operator("Softplus")
def softplus(x: Any) -> Any:
    return F.softplus(x)


@operator("Softsign")
def softsign(x: Any) -> Any:
    return F.softsign(x)


@operator("Shrink")
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    outside = f.where(x < -lambd, x + bias, 0.0)
    return f.where(x > lambd, x - bias, outside)


@operator("Softmax", since=13)
def softmax(x: Any, *, axis: int = -1) -> Any:
    return F.softmax(x, axis)


@operator("LogSoftmax", since=13)
def log_softmax(x: Any, *, axis: int = -1) -> Any:
    return F.log_softmax(x, axis)


# Before opset 13 all dimensions from `axis` on counted as one.


@operator("Softmax")
def softmax_of_rows(x: Any, *, axis: int = 1) -> Any:
    return F.softmax(x.flatten(axis), -1).reshape(x.shape)


@operator("LogSoftmax")
def log_softmax_of_rows(x: Any, *, axis: int = 1) -> Any:
    return F.log_softmax(x.flatten(axis), -1).reshape(x.shape)
