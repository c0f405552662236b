"""Recurrent layers of floats whose products are those of `dynamic.Linear`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.ir import dtype as dtypes

from .... import nn
from ....functions.creation import empty, zeros
from ....functions.joining import stack
from ....functions.quantized import qint8
from ....nn import init
from ...quantization.qconfig import default_dynamic_qconfig
from .dynamic_linear import Linear, weight_observer

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "RNNCell"]


def _lstm(x: Any, h: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    i, f, g, o = (x + h).chunk(4, -1)
    c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(x: Any, h: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    z = (xz + hz).sigmoid()
    n = (xn + (xr + hr).sigmoid() * hn).tanh()
    return ((1 - z) * n + z * states[0],)


_STEPS: dict[str, tuple[int, int, Callable[..., tuple[Any, ...]]]] = {
    "LSTM": (4, 2, _lstm),
    "GRU": (3, 1, _gru),
    "RNN_TANH": (1, 1, lambda x, h, states: ((x + h).tanh(),)),
    "RNN_RELU": (1, 1, lambda x, h, states: ((x + h).relu(),)),
}
"""Kinds -> (gates, states, the next states of the products with the input and with the state)."""


def _product(inputs: int, outputs: int, bias: bool, dtype: Any, width: int) -> Linear:
    """A product whose weight and bias are uniform within 1 / sqrt(width) of zero."""
    bound = 1 / math.sqrt(width) if width else 0
    made = Linear(inputs, outputs, bias, dtype)
    weight, rest = (
        init.uniform_(empty(*s), -bound, bound) for s in ((outputs, inputs), (outputs,))
    )
    made._take(weight, rest if bias else None, default_dynamic_qconfig.weight())
    return made


class _Weights(nn.Module):
    """What both layers and cells have: products by the names of their weights."""

    dtype: Any
    bias: Any

    def _linear(self, name: str) -> Linear:
        return self._modules[f"_{name}"]

    def _take(self, mod: Any) -> Any:
        """Take the weights and biases of a layer of floats."""
        for name in self._weight_names():
            bias = getattr(mod, name.replace("weight", "bias")) if self.bias else None
            self._linear(name)._take(getattr(mod, name), bias, weight_observer(mod))
        return self.train(mod.training)

    def _weight_names(self) -> list[str]:
        return [name[1:] for name in self._modules]

    def get_weight(self) -> dict[str, Any]:
        """The rounded weights by their names."""
        return {name: self._linear(name).weight() for name in self._weight_names()}

    def get_bias(self) -> dict[str, Any]:
        """The biases by their names."""
        names = self._weight_names()
        return {n.replace("weight", "bias"): self._linear(n).bias() for n in names}

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


def _need(dtype: Any) -> None:
    if dtype is not qint8 and dtype is not dtypes.float16:
        raise RuntimeError(
            f"Unsupported dtype specified for dynamic quantized RNN: expected torch.qint8 or "
            f"torch.float16, got {dtype}"
        )


class _Layers(_Weights, nn.RNNBase):
    """Layers over time."""

    _mode = ""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        dtype: Any = qint8,
    ):  # fmt: skip
        nn.Module.__init__(self)
        _need(dtype)
        self.mode, self.dtype, self.bias = self._mode, dtype, bias
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout = batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, 0
        self._derive()
        directions = 2 if bidirectional else 1
        gates = _STEPS[self.mode][0] * hidden_size
        for i, names in enumerate(self._names):
            inputs = input_size if i < directions else directions * hidden_size
            for kind, width in (("weight_ih", inputs), ("weight_hh", hidden_size)):
                made = _product(width, gates, bias, dtype, hidden_size)
                self.add_module(f"_{names[kind]}", made)

    def _fields_of_torch(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layers for the weights of layers of floats."""
        if mod.proj_size:
            raise NotImplementedError("a quantized LSTM has no projections: proj_size must be 0")
        options = (mod.num_layers, mod.bias, mod.batch_first, mod.dropout, mod.bidirectional)
        dtype = weight_observer(mod).dtype
        return cls(mod.input_size, mod.hidden_size, *options, dtype)._take(mod)

    def _layer(
        self, number: int, x: Any, valid: Any, h: Any, c: Any, reverse: bool
    ) -> tuple[Any, ...]:
        names = self._names[number]
        _, count, step = _STEPS[self.mode]
        zero = zeros(x.shape[1], self.hidden_size, device=x.device)
        states = tuple(zero if s is None else s for s in (h, c)[:count])
        of_state = self._linear(names["weight_hh"])
        products = self._linear(names["weight_ih"])(x)
        steps = range(len(products))
        outputs: list[Any] = [None] * len(steps)
        for t in reversed(steps) if reverse else steps:
            new = step(products[t], of_state(states[0]), states)
            if valid is not None:
                new = tuple(n.where(valid[t], s) for n, s in zip(new, states, strict=True))
            states = new
            outputs[t] = new[0]
        return stack(outputs), *states


class LSTM(_Layers):
    """torch.nn.LSTM with rounded weights, whose inputs are rounded in each call."""

    _mode = "LSTM"


class GRU(_Layers):
    """torch.nn.GRU with rounded weights, whose inputs are rounded in each call."""

    _mode = "GRU"


class _Cell(_Weights):
    """One step."""

    _mode = ""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = qint8):
        super().__init__()
        _need(dtype)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_dtype = self.dtype = dtype
        gates = _STEPS[self._kind()][0] * hidden_size
        for name, width in (("_weight_ih", input_size), ("_weight_hh", hidden_size)):
            self.add_module(name, _product(width, gates, bias, dtype, hidden_size))

    def _kind(self) -> str:
        return self._mode

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The cell for the weights of a cell of floats."""
        dtype = weight_observer(mod).dtype
        made = cls(mod.input_size, mod.hidden_size, mod.bias, dtype=dtype)
        if hasattr(mod, "nonlinearity"):
            made.nonlinearity = mod.nonlinearity
        return made._take(mod)

    def _next(self, input: Any, states: tuple[Any, ...] | None) -> tuple[Any, ...]:
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.shape[-1]}, expected "
                f"{self.input_size}"
            )
        _, count, step = _STEPS[self._kind()]
        if states is None:
            zero = zeros(*input.shape[:-1], self.hidden_size, device=input.device)
            states = (zero,) * count
        x, h = self._linear("weight_ih")(input), self._linear("weight_hh")(states[0])
        return step(x, h, states)

    def extra_repr(self) -> str:
        said = f"{self.input_size}, {self.hidden_size}"
        return said if self.bias else f"{said}, bias=False"


class LSTMCell(_Cell):
    """torch.nn.LSTMCell with rounded weights, whose inputs are rounded in each call."""

    _mode = "LSTM"

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._next(input, None if hx is None else tuple(hx))


class GRUCell(_Cell):
    """torch.nn.GRUCell with rounded weights, whose inputs are rounded in each call."""

    _mode = "GRU"

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._next(input, None if hx is None else (hx,))[0]


class RNNCell(_Cell):
    """torch.nn.RNNCell with rounded weights, whose inputs are rounded in each call."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        dtype: Any = qint8,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, bias, dtype)  # as many gates for both
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        said = super().extra_repr()
        return said if self.nonlinearity == "tanh" else f"{said}, nonlinearity={self.nonlinearity}"

    def _kind(self) -> str:
        return f"RNN_{self.__dict__.get('nonlinearity', 'tanh').upper()}"

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._next(input, None if hx is None else (hx,))[0]
