"""Recurrent layers."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line, warn

from .. import overriding
from ..functions import creation, from_data
from ..functions.joining import cat, stack
from ..recording import record
from . import functional as F
from . import init
from .functional import recurrent
from .module import Module
from .parameter import Parameter
from .utils.rnn import Layout, PackedSequence

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike

_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}
_GATES = {"LSTM": 4, "GRU": 3}


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """Deprecated: tensor.index_select(dim, permutation)."""
    warnings.warn(
        "`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` "
        "instead",
        FutureWarning,
        stacklevel=2,
    )
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """The base of RNN, LSTM and GRU: layers in one or both directions over time.

    The input is [steps, batch, input_size], with batch_first [batch, steps, input_size], unbatched
    [steps, input_size], or a PackedSequence. States are [layers * directions, batch, size]. All
    parameters are uniform within 1 / sqrt(hidden_size) of zero.
    """

    bias_ih_l0: Any

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        _check_options(hidden_size, num_layers, dropout, proj_size)
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}",
                stacklevel=3,
            )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        out = proj_size or hidden_size
        gates = _GATES.get(mode, 1) * hidden_size
        directions = range(2 if bidirectional else 1)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self._derive()
        names = iter(self._names)
        for layer in range(num_layers):
            inputs = out * len(directions) if layer else input_size
            for _ in directions:
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (gates, inputs),
                    "weight_hh": (gates, out),
                }
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in zip(next(names).values(), shapes.values(), strict=True):
                    setattr(self, name, Parameter(creation.empty(*shape, **where)))
        self.reset_parameters()

    _names: list[dict[str, str]]
    """The names of the parameters of each layer and direction, by their kinds."""
    _derived = (
        "_names",
        "_flat_weights",
        "_flat_weights_names",
        "_flat_weight_refs",
        "_all_weights",
    )

    def _derive(self) -> None:
        kinds = ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * self.bias
        kinds += ["weight_hr"] * bool(self.__dict__.setdefault("proj_size", 0))
        self._names = [
            {kind: f"{kind}_l{layer}{suffix}" for kind in kinds}
            for layer in range(self.num_layers)
            for suffix in (("", "_reverse") if self.bidirectional else ("",))
        ]

    def _fields_of_torch(self) -> dict[str, Any]:
        fields = ("_all_weights", "_flat_weights_names", "_flat_weights")
        return {name: getattr(self, name) for name in fields}

    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of the parameters of each layer and direction."""
        return [list(each.values()) for each in self._names]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for each in self._all_weights for name in each]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Any]) -> None:
        for name, weight in zip(self._flat_weights_names, weights, strict=True):
            setattr(self, name, weight)

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing. PyTorch moves the weights into one buffer for cuDNN here."""

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names.values()] for names in self._names]

    def extra_repr(self) -> str:
        out = f"{self.input_size}, {self.hidden_size}"
        defaults = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        for name, default in defaults.items():
            if getattr(self, name) != default:
                out += f", {name}={getattr(self, name)}"
        return out

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D instead"
                f"{at_user_line()}"
            )
        alone = input.dim() == 2
        if alone:
            input = input.unsqueeze(1)
            states = self._states(hx, 1, 2)
            states = None if states is None else [s.unsqueeze(1) for s in states]
        else:
            input = input.transpose(0, 1) if self.batch_first else input
            states = self._states(hx, input.shape[1], 3)
        y, last = self._run(input, None, states)
        if alone:
            return y.squeeze(1), self._as_given([s.squeeze(1) for s in last])
        return (y.transpose(0, 1) if self.batch_first else y), self._as_given(last)

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> tuple[Any, Any]:
        data = packed.data
        layout = Layout(packed.batch_sizes.numpy())
        padded, places, valid = (
            from_data.tensor(a, device=data.device)
            for a in (layout.padded, layout.places, layout.valid)
        )
        states = self._states(hx, layout.batch, 3)
        if states is not None and packed.sorted_indices is not None:
            states = [s.index_select(1, packed.sorted_indices) for s in states]
        shape = (layout.steps, layout.batch, data.shape[-1])
        y, last = self._run(data.index_select(0, padded).reshape(shape), valid, states)
        if packed.unsorted_indices is not None:
            last = [s.index_select(1, packed.unsorted_indices) for s in last]
        y = y.reshape(-1, y.shape[-1]).index_select(0, places)
        return packed._with(y), self._as_given(last)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """RuntimeError for an input of the wrong rank or size, ValueError for integers."""
        if not input.is_floating_point():
            raise ValueError(
                f"RNN input dtype ({input.dtype}) must be floating point{at_user_line()}"
            )
        rank = 3 if batch_sizes is None else 2
        if input.dim() != rank:
            raise RuntimeError(
                f"input must have {rank} dimensions, got {input.dim()}{at_user_line()}"
            )
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{input.shape[-1]}{at_user_line()}"
            )

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of an initial state for an input."""
        batch = input.shape[0 if self.batch_first else 1]
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        return len(self._names), batch, self.proj_size or self.hidden_size

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the initial cell of an LSTM for an input."""
        return (*self.get_expected_hidden_size(input, batch_sizes)[:2], self.hidden_size)

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, ...],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:  # fmt: skip
        """RuntimeError unless a state has the shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)) + at_user_line())

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """RuntimeError for an input or states of the wrong shape."""
        self.check_input(input, batch_sizes)
        states = list(hidden) if self.mode == "LSTM" else [hidden]
        shapes = [
            self.get_expected_hidden_size(input, batch_sizes),
            self.get_expected_cell_size(input, batch_sizes),
        ]
        for i, (state, shape) in enumerate(zip(states, shapes, strict=False)):
            which = f"hidden[{i}]" if self.mode == "LSTM" else "hidden"
            self.check_hidden_size(state, shape, f"Expected {which} size {{}}, got {{}}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The states in another order of the batch; in the same without a permutation."""
        if permutation is None:
            return hx
        if self.mode == "LSTM":
            return tuple(apply_permutation(state, permutation) for state in hx)
        return apply_permutation(hx, permutation)

    def _as_given(self, states: list[Any]) -> Any:
        return tuple(states) if self.mode == "LSTM" else states[0]

    def _states(self, hx: Any, batch: int, rank: int) -> list[Any] | None:
        """The initial states, checked; None if none were given."""
        if hx is None:
            return None
        states = list(hx) if self.mode == "LSTM" else [hx]
        layers = len(self._names)
        sizes = [self.proj_size or self.hidden_size, self.hidden_size]
        for i, (state, size) in enumerate(zip(states, sizes, strict=False)):
            expected = (layers, size) if rank == 2 else (layers, batch, size)
            if tuple(state.shape) != expected:
                which = f"hidden[{i}]" if self.mode == "LSTM" else "hidden"
                raise RuntimeError(
                    f"Expected {which} size {expected}, got {list(state.shape)}{at_user_line()}"
                )
        return states

    def _run(self, x: Any, valid: Any, states: list[Any] | None) -> tuple[Any, list[Any]]:
        """All layers over x[steps, batch, inputs]: the outputs, and the states after them."""
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{x.shape[-1]}{at_user_line()}"
            )
        directions = 2 if self.bidirectional else 1
        found: list[tuple[Any, ...]] = []
        for first in range(0, len(self._names), directions):
            outputs = []
            for i in range(first, first + directions):
                h, c = (*(s[i] for s in states or ()), None, None)[:2]
                y, *last = self._layer(i, x, valid, h, c, i != first)
                outputs.append(y)
                found.append(tuple(last))
            x = outputs[0] if directions == 1 else cat(outputs, 2)
            if self.dropout and first + directions < len(self._names):
                x = F.dropout(x, self.dropout, self.training)
        return x, [stack(each) for each in zip(*found, strict=True)]

    def _layer(
        self, number: int, x: Any, valid: Any, h: Any, c: Any, reverse: bool
    ) -> tuple[Any, ...]:
        """One layer in one direction: its outputs, and the states after them."""
        named = {kind: getattr(self, name) for kind, name in self._names[number].items()}
        made: tuple[Any, ...] = run_layer(
            x, valid, h, c, **named, cell=_CELLS[self.mode], reverse=reverse
        )
        return made


def _tell_modes() -> None:
    if overriding.state.dispatching:
        warn("recurrent layers run no operators here, and ask no TorchDispatchMode", once=True)


def run_layer(
    x: Any,
    valid: Any,
    h: Any,
    c: Any,
    weight_ih: Any,
    weight_hh: Any,
    bias_ih: Any = None,
    bias_hh: Any = None,
    weight_hr: Any = None,
    *,
    cell: str,
    reverse: bool,
) -> Any:
    """One layer in one direction: `recurrent.layer`, as graphs of torch.fx call it."""
    _tell_modes()
    return record(
        recurrent.layer, x, valid, h, c, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr, cell,
        reverse,
    )  # fmt: skip


def run_cell(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, cell: str) -> Any:
    """One step: `recurrent.step`, as graphs of torch.fx call it."""
    _tell_modes()
    return record(recurrent.step, x, h, c, w_ih, w_hh, b_ih, b_hh, cell)


def _check_options(hidden_size: int, num_layers: int, dropout: Any, proj_size: int) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element "
            "being zeroed"
        )
    if not isinstance(hidden_size, int):
        raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    if hidden_size <= 0:
        raise ValueError("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with relu. Elman, 1990."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first,
            dropout, bidirectional, 0, device, dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; Hochreiter and Schmidhuber, 1997. Its states are (h, c).

    proj_size: if positive, h is projected to that size (Sak et al., arXiv 1402.1128).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """Gated recurrent units; Cho et al., arXiv 1406.1078."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        proj_size: None = None,
    ) -> None:
        if proj_size is not None:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype,
        )  # fmt: skip


class RNNCellBase(Module):
    """One step: weight_ih, weight_hh, bias_ih and bias_hh, uniform within 1 / sqrt(hidden_size)."""

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        wide = num_chunks * hidden_size
        shapes = {"weight_ih": (wide, input_size), "weight_hh": (wide, hidden_size)}
        for name, shape in shapes.items():
            setattr(self, name, Parameter(creation.empty(*shape, device=device, dtype=dtype)))
        for name in ("bias_ih", "bias_hh"):
            made = Parameter(creation.empty(wide, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")

    def _step(self, cell: str, input: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(
                f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead{at_user_line()}"
            )
        for state in states:
            if state.dim() not in (1, 2):
                raise ValueError(
                    f"{name}: Expected hidden to be 1D or 2D, got {state.dim()}D instead"
                    f"{at_user_line()}"
                )
        alone = input.dim() == 1
        if alone:
            input, states = input.unsqueeze(0), tuple(s.unsqueeze(0) for s in states)
        h, c = (*states, None, None)[:2]
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        new = run_cell(input, h, c, *weights, cell)
        return tuple(s.squeeze(0) for s in new) if alone else new


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with relu."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}{at_user_line()}")
        return self._step(f"rnn_{self.nonlinearity}", input, () if hx is None else (hx,))[0]

    def extra_repr(self) -> str:
        shown = super().extra_repr()
        return shown if self.nonlinearity == "tanh" else f"{shown}, nonlinearity=relu"


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (h, c) to (h', c')."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, Any]:
        h, c = self._step("lstm", input, () if hx is None else tuple(hx))
        return h, c


class GRUCell(RNNCellBase):
    """One step of a GRU."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("gru", input, () if hx is None else (hx,))[0]
