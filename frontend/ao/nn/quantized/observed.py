"""The quantized LSTM, which an observed one becomes."""

from __future__ import annotations

import copy
import importlib
from typing import Any, NoReturn

from .. import quantizable

__all__ = ["LSTM"]


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
