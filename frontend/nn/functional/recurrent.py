"""Recurrent layers and cells as builders of nodes."""

from __future__ import annotations

from typing import Any

from tilewright.ir import ops, recurrence
from tilewright.ir.dtype import HALVES
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ...recording.builders import FIRST, LOWER, builder


def _layer_name(args: Any) -> str:
    """PyTorch has a kernel for the layers of an LSTM on the CPU, and stacks the steps of others."""
    return "MkldnnRnnLayerBackward0" if args[-2] == "lstm" else "StackBackward0"


@builder("rnn", casts=LOWER, gradient=_layer_name)
def layer(
    x: Node,
    valid: Node | None,
    h: Node | None,
    c: Node | None,
    w_ih: Node,
    w_hh: Node,
    b_ih: Node | None,
    b_hh: Node | None,
    w_hr: Node | None,
    cell: str,
    reverse: bool,
) -> tuple[Node, ...]:
    """Apply one layer in one direction to x[steps, batch, inputs], with weights as in PyTorch.

    valid[steps, batch, 1]: whether a sequence reaches a step. w_hr[out, width] projects the states.
    Returns the outputs [steps, batch, out] and the last states, each [batch, …].
    """
    kind = recurrence.CELLS[cell]
    batch, width = x.shape[1], w_hh.shape[0] // kind.gates
    zero = ops.expand(ops.constant(0, x.dtype), (batch, width))
    inside = None if kind.is_additive else b_hh
    outside = [b for b in (b_ih, b_hh) if b is not None and b is not inside]
    bias = outside[:1] if len(outside) < 2 else [outside[0] + outside[1]]
    products = ops.linear(x, w_ih, *bias)  # for all steps at once
    if w_hr is not None:
        # The loop keeps the state before its projection, which becomes part of the weight. Only
        # the first step starts from a projected state.
        if h is not None:
            products = products + _at_first(ops.linear(h, w_hh), x.shape[0], valid, reverse)
        h, w_hh = None, ops.matmul(w_hh, w_hr)
    initial = [zero if s is None else s for s in (h, c)[: kind.states]]
    y, last = recurrence.recurrence(
        cell, products, initial, ops.transpose(w_hh), inside, valid=valid, reverse=reverse
    )
    if w_hr is not None:
        return ops.linear(y, w_hr), ops.linear(last[0], w_hr), *last[1:]
    return y, *last


def _at_first(x: Node, steps: int, valid: Node | None, reverse: bool) -> Node:
    """x[batch, …] at the first step of each sequence, zeros elsewhere: [steps, batch, …]."""
    x = ops.unsqueeze(x, 0)
    if valid is None:
        after = (0 if reverse else steps - 1, 0, 0)
        return ops.pad(x, (steps - 1 - after[0], 0, 0), after)
    nothing = ops.constant(False, valid.dtype)
    if reverse:
        inner, low, high = ops.slice_axis(valid, 0, 1, steps), (0, 0, 0), (1, 0, 0)
    else:
        inner, low, high = ops.slice_axis(valid, 0, 0, steps - 1), (1, 0, 0), (0, 0, 0)
    earlier = ops.pad(inner, low, high, value=nothing)
    first = ops.bitwise_and(valid, ops.logical_not(earlier))
    return ops.where(first, x, ops.constant(0, x.dtype))


def _check_state(number: int, state: Node, batch: int, width: int) -> None:
    """RuntimeError unless a cell's state is [batch, width]."""
    if state.shape[0] != batch:
        raise RuntimeError(
            f"Input batch size {batch} doesn't match hidden{number} batch size {state.shape[0]}"
            f"{at_user_line()}"
        )
    if state.shape[1] != width:
        raise RuntimeError(
            f"hidden{number} has inconsistent hidden_size: got {state.shape[1]}, expected {width}"
            f"{at_user_line()}"
        )


_LAST_CALLS = {"lstm": "Mul", "gru": "Add", "rnn_tanh": "Tanh", "rnn_relu": "Relu"}


@builder(
    "rnn_cell",
    casts={"cuda": LOWER, "cpu": FIRST},
    gradient=lambda args: f"{_LAST_CALLS[args[-1]]}Backward0",
)
def step(
    x: Node,
    h: Node | None,
    c: Node | None,
    w_ih: Node,
    w_hh: Node,
    b_ih: Node | None,
    b_hh: Node | None,
    cell: str,
) -> tuple[Node, ...]:
    """One step of a cell from x[batch, inputs]: the new states, each [batch, width]."""
    kind = recurrence.CELLS[cell]
    for i, state in enumerate((h, c)):
        if state is not None:
            _check_state(i, state, x.shape[0], w_hh.shape[1])
    zero = ops.expand(ops.constant(0, x.dtype), (x.shape[0], w_hh.shape[1]))
    states = [zero if s is None else s for s in (h, c)[: kind.states]]
    products = (
        ops.linear(a, w, *(() if b is None else (b,)))
        for a, w, b in ((x, w_ih, b_ih), (states[0], w_hh, b_hh))
    )
    operands = (*products, *states)
    if x.dtype in HALVES:  # rounded after each op, as in PyTorch
        return kind.step(*operands)[0]
    return tuple([recurrence.cell_state(*operands, cell, i) for i in range(kind.states)])
