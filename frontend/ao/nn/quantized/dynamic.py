"""torch.ao.nn.quantized.dynamic: layers whose weights are rounded once, and their inputs in each
call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....functions.quantized import (
    quantize_per_tensor_dynamic,
    quint8,
)
from . import layers, products
from .dynamic_linear import Linear
from .products import product_of
from .recurrent import GRU, LSTM, GRUCell, LSTMCell, RNNCell

if TYPE_CHECKING:
    from ...._tensor import Tensor

__all__ = [
    "GRU",
    "LSTM",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "RNNCell",
]


class _Dynamic:
    """A convolution whose input is rounded to 128 steps in each call, with a result of floats.

    It stands before a quantized convolution among the bases of a class.
    """

    _kind = "DynamicQuantized"

    def forward(self: Any, input: Tensor, reduce_range: bool = True) -> Tensor:
        self._need_dims(input)
        x = quantize_per_tensor_dynamic(input.detach(), quint8, reduce_range)
        of, terms = product_of(self._function(), self._weight, **self._options())
        return products.floats(of, x, self._weight, self._bias, channel=1, terms=terms)


def _dynamic(layer: type) -> Any:
    made = type(layer.__name__, (_Dynamic, layer), {"__module__": __name__})
    made.__doc__ = f"{layer.__name__} of floats, with a quantized weight."
    return made


Conv1d, Conv2d, Conv3d = map(_dynamic, (layers.Conv1d, layers.Conv2d, layers.Conv3d))
ConvTranspose1d = _dynamic(layers.ConvTranspose1d)
ConvTranspose2d = _dynamic(layers.ConvTranspose2d)
ConvTranspose3d = _dynamic(layers.ConvTranspose3d)
