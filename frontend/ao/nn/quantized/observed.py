"""Quantized layers that observed ones become."""

from __future__ import annotations

import copy
import importlib
from typing import Any, NoReturn

from ....functions.quantized import quantize_per_tensor, quint8
from .. import quantizable

__all__ = ["LSTM", "MultiheadAttention"]


class LSTM(quantizable.LSTM):
    """torch.nn.LSTM of quantized tensors. `from_observed` makes it."""

    def _get_name(self) -> str:
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, *args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed LSTM module. Please, see the "
            "examples on quantizable LSTMs."
        )

    @classmethod
    def from_observed(cls, other: Any) -> LSTM:
        """The layers at the scales that were observed."""
        static = importlib.import_module("...quantization.static", __package__)
        made: LSTM = static.convert(copy.deepcopy(other).eval(), inplace=True)
        made.__class__ = cls
        return made


class MultiheadAttention(quantizable.MultiheadAttention):
    """torch.nn.MultiheadAttention of quantized tensors. `from_observed` makes it."""

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, *args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed MHA module. Please, see the "
            "examples on quantizable MHAs."
        )

    @classmethod
    def from_observed(cls, other: Any) -> MultiheadAttention:
        """The layer at the scales that were observed."""
        static = importlib.import_module("...quantization.static", __package__)
        made: MultiheadAttention = static.convert(copy.deepcopy(other).eval(), inplace=True)
        made.__class__ = cls
        for name in ("in_proj_weight", "in_proj_bias"):
            del made._parameters[name]
        if other.bias_k is None:
            return made
        observers = importlib.import_module("...quantization.observers", __package__)
        observer = observers.MinMaxObserver(dtype=quint8)
        observer(other.bias_k.detach())
        scale, zero_point = observer.calculate_qparams()
        for name in ("bias_k", "bias_v"):  # both at the scale of the first, as in PyTorch
            value = made._parameters.pop(name).detach()
            setattr(made, name, quantize_per_tensor(value, float(scale), int(zero_point), quint8))
        return made
