"""LSTMs whose parts are observed, and then quantized."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from .... import cat, nn, stack, tanh
from ....functions.creation import zeros
from ....functions.quantized import QuantizedTensor, quantize_per_tensor
from ..quantized.functional_modules import FloatFunctional

__all__ = ["LSTM", "LSTMCell"]


class LSTMCell(nn.Module):
    """One step of an LSTM, in which each product, sum and gate is a module."""

    def __init__(
        self, input_dim: int, hidden_dim: int, bias: bool = True, device: Any = None,
        dtype: Any = None, *, split_gates: bool = False,
    ):  # fmt: skip
        super().__init__()
        if split_gates:
            raise NotImplementedError(
                "a quantizable LSTM has one product for all gates: split_gates must be False"
            )
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input_size, self.hidden_size, self.bias = input_dim, hidden_dim, bias
        self.igates = nn.Linear(input_dim, 4 * hidden_dim, bias=bias, **where)
        self.hgates = nn.Linear(hidden_dim, 4 * hidden_dim, bias=bias, **where)
        self.gates = FloatFunctional()
        self.input_gate, self.forget_gate = nn.Sigmoid(), nn.Sigmoid()
        self.cell_gate, self.output_gate = nn.Tanh(), nn.Sigmoid()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()

    def forward(self, x: Any, hidden: Any = None) -> Any:
        h, c = self.initialize_hidden(x.shape[0], x) if hidden is None else hidden
        gates = self.gates.add(self.igates(x), self.hgates(h))
        width = gates.shape[1] // 4
        i, f, g, o = (gates.narrow(1, n * width, width) for n in range(4))
        kept = self.fgate_cx.mul(self.forget_gate(f), c)
        added = self.igate_cgate.mul(self.input_gate(i), self.cell_gate(g))
        c = self.fgate_cx_igate_cgate.add(kept, added)
        return self.ogate_cy.mul(self.output_gate(o), tanh(c)), c

    def initialize_hidden(self, batch_size: int, like: Any = None) -> Any:
        """States of zeros: quantized, if `like` is."""
        zero: Any = zeros(batch_size, self.hidden_size)
        if isinstance(like, QuantizedTensor):
            zero = quantize_per_tensor(zero, 1.0, 0, like.dtype)
        return zero, zero

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"

    @classmethod
    def from_params(
        cls, wi: Any, wh: Any, bi: Any = None, bh: Any = None, split_gates: bool = False
    ) -> LSTMCell:
        """The cell with these weights and biases."""
        if (bi is None) != (bh is None):
            raise AssertionError("bi and bh must both be None or both have values")
        made = cls(wi.shape[1], wh.shape[1], bi is not None, split_gates=split_gates)
        for layer, weight, bias in ((made.igates, wi, bi), (made.hgates, wh, bh)):
            layer.weight = nn.Parameter(weight.detach())
            if bias is not None:
                layer.bias = nn.Parameter(bias.detach())
        return made

    @classmethod
    def from_float(
        cls, other: Any, use_precomputed_fake_quant: bool = False, split_gates: bool = False
    ) -> LSTMCell:
        """The cell for a cell of floats that has a qconfig."""
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        biases: tuple[Any, Any] = (other.bias_ih, other.bias_hh) if other.bias else (None, None)
        made = cls.from_params(other.weight_ih, other.weight_hh, *biases, split_gates=split_gates)
        made.qconfig = made.igates.qconfig = made.hgates.qconfig = other.qconfig
        return made


class _LSTMSingleLayer(nn.Module):
    """One direction: x[steps, batch, inputs] to (outputs, states)."""

    def __init__(self, cell: LSTMCell):
        super().__init__()
        self.cell = cell

    def forward(self, x: Any, hidden: Any = None) -> Any:
        outputs = []
        for t in range(x.shape[0]):
            hidden = self.cell(x[t], hidden)
            outputs.append(hidden[0])
        return stack(outputs), hidden


class _LSTMLayer(nn.Module):
    """One layer in one or both directions."""

    def __init__(self, cells: list[LSTMCell]):
        super().__init__()
        for name, cell in zip(("layer_fw", "layer_bw"), cells):
            self.add_module(name, _LSTMSingleLayer(cell))

    def forward(self, x: Any, hidden: list[Any]) -> Any:
        y, last = self.layer_fw(x, hidden[0])
        if len(hidden) == 1:
            return y, [last]
        back, first = self.layer_bw(x.flip(0), hidden[1])
        return cat([y, back.flip(0)], -1), [last, first]


class LSTM(nn.Module):
    """torch.nn.LSTM, with a module for each of its operations."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Any = None, dtype: Any = None, *, split_gates: bool = False,
    ):  # fmt: skip
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
        if dropout > 0:
            warnings.warn(
                "dropout option for quantizable LSTM is ignored. If you are training, please, use "
                "nn.LSTM version followed by `prepare` step.",
                stacklevel=2,
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional = bidirectional
        self.training = False
        directions = 2 if bidirectional else 1
        sizes = [input_size] + [hidden_size * directions] * (num_layers - 1)
        options: dict[str, Any] = {"device": device, "dtype": dtype, "split_gates": split_gates}
        self.layers = nn.ModuleList([
            _LSTMLayer([LSTMCell(n, hidden_size, bias, **options) for _ in range(directions)])
            for n in sizes
        ])  # fmt: skip

    def forward(self, x: Any, hidden: Any = None) -> Any:
        x = x.transpose(0, 1) if self.batch_first else x
        directions = 2 if self.bidirectional else 1
        count = self.num_layers * directions
        if hidden is None:
            states = [None] * count
        else:
            states = list(zip(*(list(s) for s in hidden), strict=True))  # type: ignore[arg-type]
        last: list[Any] = []
        for i, layer in enumerate(self.layers):
            x, found = layer(x, states[i * directions : (i + 1) * directions])
            last += found
        h, c = (stack(list(each)) for each in zip(*last, strict=True))
        return (x.transpose(0, 1) if self.batch_first else x), (h, c)

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> Any:
        """The observed layers for layers of floats that have a qconfig."""
        if not isinstance(other, nn.LSTM):
            raise AssertionError(f"expected a torch.nn.LSTM, got {type(other).__name__}")
        config = getattr(other, "qconfig", None) or qconfig
        if not config:
            raise AssertionError("other must have qconfig or qconfig must be provided")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "dropout option")
            made = cls(
                other.input_size, other.hidden_size, other.num_layers, other.bias,
                other.batch_first, other.dropout, other.bidirectional, split_gates=split_gates,
            )  # fmt: skip
        cells = [LSTMCell.from_params(*each) for each in other.all_weights]
        directions = len(cells) // other.num_layers
        made.layers = nn.ModuleList(
            _LSTMLayer(cells[i : i + directions]) for i in range(0, len(cells), directions)
        )
        made.qconfig = config
        static = importlib.import_module("...quantization.static", __package__)
        ready = static.prepare_qat if other.training else static.prepare
        return ready(made.train(other.training), inplace=True)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError(
            "It looks like you are trying to convert a non-quantizable LSTM module. Please, see "
            "the examples on quantizable LSTMs."
        )
