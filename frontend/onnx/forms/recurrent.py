"""Recurrent layers as ONNX's, which walk over any number of steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir import ops

from ...nn.functional import recurrent
from ..align import Traced
from ..exporter import Exporter, whole
from ..whole import SLOT

_CELLS: dict[str, tuple[str, tuple[int, ...], dict[str, object]]] = {
    "lstm": ("LSTM", (0, 3, 1, 2), {}),
    # Our gate reads the state's product, and not the product of the gated state.
    "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "rnn_tanh": ("RNN", (0,), {"activations": ["Tanh"]}),
    "rnn_relu": ("RNN", (0,), {"activations": ["Relu"]}),
}
"""A cell -> (the operator, the places of its gates among PyTorch's, attributes)."""


@whole(recurrent.layer)
def _layer(e: Exporter, t: Traced, *inputs: str) -> str | None:
    _, arguments, result = t.attrs
    given = iter(range(len(inputs)))
    places = [next(given) if a is SLOT else None for a in arguments[:9]]
    x, valid, h, c, w_ih, w_hh, b_ih, b_hh, w_hr = places
    cell, reverse = arguments[9:]
    if valid is not None or w_hr is not None or t.dtype.itemsize < 4:
        return None
    op_type, gates, attributes = _CELLS[cell]
    assert x is not None and w_ih is not None and w_hh is not None
    width = t.operands[w_hh].shape[1]
    bias = ""
    if b_ih is not None or b_hh is not None:
        both = [_bias(e, t, place, gates, width) for place in (b_ih, b_hh)]
        bias = e.add("Unsqueeze", e.add("Concat", *both, axis=0), e.ints([0]))
    states = [_state(e, inputs[s]) if s is not None else "" for s in (h, c)]
    names = [
        inputs[x],
        *(_weight(e, t, place, gates) for place in (w_ih, w_hh)),
        bias,
        "",
        *(states if cell == "lstm" else states[:1]),
    ]
    while not names[-1]:
        names.pop()
    made = e.add_many(
        op_type,
        3 if cell == "lstm" else 2,
        *names,
        hidden_size=width,
        direction="reverse" if reverse else "forward",
        **attributes,
    )
    return e.add("Squeeze", made[result], e.ints([0 if result else 1]))


def _state(e: Exporter, state: str) -> str:
    return e.add("Unsqueeze", state, e.ints([0]))


def _weight(e: Exporter, t: Traced, place: int, gates: Sequence[int]) -> str:
    """[gates * width, inputs] as [1, gates * width, inputs], in ONNX's order of gates."""
    return _state(e, _ordered(e, t.operands[place], gates))


def _bias(e: Exporter, t: Traced, place: int | None, gates: Sequence[int], width: object) -> str:
    if place is None:
        assert isinstance(width, int)
        return e.constant(np.zeros(len(gates) * width, t.dtype.np))
    return _ordered(e, t.operands[place], gates)


def _ordered(e: Exporter, weight: Traced, gates: Sequence[int]) -> str:
    name = e.value(weight)
    if tuple(gates) == tuple(range(len(gates))):
        return name
    if weight.op is ops.leaf and name in e.initializers:
        parts = np.split(e.initializers[name], len(gates))
        return e.weight(f"{name}.gates", np.concatenate([parts[g] for g in gates]))
    parts_ = e.add_many("Split", len(gates), name, axis=0, num_outputs=len(gates))
    return e.add("Concat", *(parts_[g] for g in gates), axis=0)
