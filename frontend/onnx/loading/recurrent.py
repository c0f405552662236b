"""LSTM, GRU and RNN: one layer of ONNX, in one or both directions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...functions import creation
from ...nn.functional import root
from .api import F, f
from .table import operator

Function = Callable[[Any], Any]

_ACTIVATIONS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "elu": (lambda x, a: F.elu(x, a), (1.0,)),
    "hardsigmoid": (lambda x, a, b: f.clamp(a * x + b, 0.0, 1.0), (0.2, 0.5)),
    "leakyrelu": (lambda x, a: F.leaky_relu(x, a), (0.01,)),
    "relu": (lambda x: F.relu(x), ()),
    "scaledtanh": (lambda x, a, b: a * f.tanh(b * x), (1.0, 1.0)),
    "sigmoid": (lambda x: f.sigmoid(x), ()),
    "softplus": (lambda x: F.softplus(x), ()),
    "softsign": (lambda x: F.softsign(x), ()),
    "tanh": (lambda x: f.tanh(x), ()),
    "thresholdedrelu": (lambda x, a: F.threshold(x, a, 0.0), (1.0,)),
}
"""A function of ONNX's name in small letters, and the defaults of alpha and beta."""


def _functions(
    names: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
) -> list[Function]:
    """The activations. Those that take an alpha or a beta take the next ones of the lists."""
    given: list[Iterator[float]] = [iter(alphas or ()), iter(betas or ())]
    made: list[Function] = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise ValueError(f"there is no activation {name!r}")
        function, defaults = _ACTIVATIONS[name.lower()]
        options = [next(g, d) for g, d in zip(given, defaults, strict=False)]
        made.append(functools.partial(_clipped, function, options, clip))
    return made


def _clipped(function: Any, options: Sequence[float], clip: float | None, x: Any) -> Any:
    return function(x if clip is None else f.clamp(x, -clip, clip), *options)


Step = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
"""(the product of the input at a time, the states) to the next states. The first is the output."""


def _run(
    x: Any,
    weights: Sequence[Any],
    states: Sequence[Any],
    lengths: Any,
    direction: str,
    layout: int,
    step_of: Callable[[int, Any, Any], tuple[Any, Step]],
) -> Any:
    """Run a layer over x[time, n, size].

    weights: W, R and B, with a dimension for the directions. step_of: makes (the input's product at
    all times, the step) of a direction, of its number and the time in the front.
    """
    if layout:
        x, states = x.transpose(0, 1), [s if s is None else s.transpose(0, 1) for s in states]
    w, r, _ = weights
    count, hidden = w.shape[0], r.shape[2]
    time, batch = x.shape[:2]
    if (direction == "bidirectional") != (count == 2):
        raise ValueError(f"the direction {direction} and weights of {count} directions")
    outputs, lasts = [], []
    for d in range(count):
        backward = direction == "reverse" or d == 1
        products, step = step_of(d, w, x)
        now = tuple(
            creation.zeros((batch, hidden), dtype=x.dtype, device=x.device) if s is None else s[d]
            for s in states
        )
        found: list[Any] = [None] * time
        for t in range(time)[::-1] if backward else range(time):
            after = step(products[t], now)
            if lengths is None:
                now = after
                found[t] = now[0]
            else:  # behind the end of an example its states stay, and its output is zero
                running = (t < lengths)[:, None]
                now = tuple(f.where(running, a, b) for a, b in zip(after, now, strict=True))
                found[t] = f.where(running, after[0], 0.0)
        outputs.append(f.stack(found) if found else x.new_zeros((0, batch, hidden)))
        lasts.append(now)
    y = f.stack(outputs, 1)  # [time, directions, n, hidden]
    ends = [f.stack(line) for line in zip(*lasts, strict=True)]
    if layout:
        y, ends = y.permute(2, 0, 1, 3), [e.transpose(0, 1) for e in ends]
    return y, *ends


def _layer(
    function: Any,
    x: Any,
    weights: Sequence[Any],
    states: Sequence[Any],
    direction: str,
    layout: int,
    order: Sequence[int],
) -> Any:
    """A layer with PyTorch's equations, whose times are one loop of the graph.

    function: torch.lstm or one of its kin. order: the places of PyTorch's gates among ONNX's.
    """
    w, r, b = weights
    count, hidden = w.shape[0], r.shape[2]
    if layout:
        x, states = x.transpose(0, 1), [s if s is None else s.transpose(0, 1) for s in states]
    backward = direction == "reverse"
    x = f.flip(x, (0,)) if backward else x
    zeros = creation.zeros((count, x.shape[1], hidden), dtype=x.dtype, device=x.device)
    states = [zeros if s is None else s for s in states]

    def gates(parameter: Any) -> Any:
        parts = f.split(parameter, hidden, 0)
        return parameter if len(parts) == 1 else f.cat([parts[i] for i in order], 0)

    parameters = []
    for d in range(count):
        biases = [] if b is None else _bias(b, d, len(order), hidden)
        parameters += [gates(p) for p in (w[d], r[d], *biases)]
    options = (b is not None, 1, 0.0, False, count == 2, False)
    y, *ends = function(x, states if len(states) > 1 else states[0], parameters, *options)
    y = f.flip(y, (0,)) if backward else y
    y = y.reshape(*y.shape[:2], count, hidden)  # [time, n, directions, hidden]
    if layout:
        return y.transpose(0, 1), *(e.transpose(0, 1) for e in ends)
    return y.transpose(1, 2), *ends


def _bias(b: Any, d: int, parts: int, hidden: int) -> tuple[Any, Any]:
    """The biases of W and of R."""
    if b is None:
        return None, None
    whole = b[d]
    return whole[: parts * hidden], whole[parts * hidden :]


def _names(activations: Sequence[str] | None, default: Sequence[str], count: int) -> list[str]:
    return list(activations or [*default] * count)


@operator("LSTM")
def lstm(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    peephole: Any = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    names = _names(activations, ("Sigmoid", "Tanh", "Tanh"), w.shape[0])
    plain = lengths is None and clip is None and peephole is None and not input_forget
    if plain and names == ["Sigmoid", "Tanh", "Tanh"] * w.shape[0]:
        return _layer(root.lstm, x, (w, r, b), (h, c), direction, layout, (0, 2, 3, 1))
    functions = _functions(names, activation_alpha, activation_beta, clip)
    hidden = r.shape[2]

    def step_of(d: int, w: Any, x: Any) -> tuple[Any, Step]:
        of_input, of_state = _bias(b, d, 4, hidden)
        gate, cell_in, cell_out = functions[3 * d : 3 * d + 3]
        peeps = [None] * 3 if peephole is None else list(f.split(peephole[d], hidden, 0))

        def step(product: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            h, c = states
            i, o, forget, new = f.split(product + F.linear(h, r[d], of_state), hidden, -1)
            if peeps[0] is not None:
                i, forget = i + peeps[0] * c, forget + peeps[2] * c
            i = gate(i)
            forget = 1 - i if input_forget else gate(forget)
            c = forget * c + i * cell_in(new)
            o = gate(o if peeps[1] is None else o + peeps[1] * c)
            return o * cell_out(c), c

        return F.linear(x, w[d], of_input), step

    return _run(x, (w, r, b), (h, c), lengths, direction, layout, step_of)


@operator("GRU")
def gru(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    names = _names(activations, ("Sigmoid", "Tanh"), w.shape[0])
    plain = lengths is None and clip is None and linear_before_reset
    if plain and names == ["Sigmoid", "Tanh"] * w.shape[0]:
        return _layer(root.gru, x, (w, r, b), (h,), direction, layout, (1, 0, 2))
    functions = _functions(names, activation_alpha, activation_beta, clip)
    hidden = r.shape[2]

    def step_of(d: int, w: Any, x: Any) -> tuple[Any, Step]:
        of_input, of_state = _bias(b, d, 3, hidden)
        gate, candidate = functions[2 * d : 2 * d + 2]
        gates, last = r[d][: 2 * hidden], r[d][2 * hidden :]
        of_gates = of_last = None
        if of_state is not None:
            of_gates, of_last = of_state[: 2 * hidden], of_state[2 * hidden :]

        def step(product: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            (h,) = states
            both = gate(product[..., : 2 * hidden] + F.linear(h, gates, of_gates))
            z, reset = both[..., :hidden], both[..., hidden:]
            if linear_before_reset:
                past = reset * F.linear(h, last, of_last)
            else:
                past = F.linear(reset * h, last, of_last)
            new = candidate(product[..., 2 * hidden :] + past)
            return ((1 - z) * new + z * h,)

        return F.linear(x, w[d], of_input), step

    return _run(x, (w, r, b), (h,), lengths, direction, layout, step_of)


@operator("RNN")
def rnn(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> Any:
    names = _names(activations, ("Tanh",), w.shape[0])
    kinds = {"Tanh": root.rnn_tanh, "Relu": root.rnn_relu}
    if lengths is None and clip is None and names == [names[0]] * w.shape[0] and names[0] in kinds:
        return _layer(kinds[names[0]], x, (w, r, b), (h,), direction, layout, (0,))
    functions = _functions(names, activation_alpha, activation_beta, clip)

    def step_of(d: int, w: Any, x: Any) -> tuple[Any, Step]:
        of_input, of_state = _bias(b, d, 1, r.shape[2])

        def step(product: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            return (functions[d](product + F.linear(states[0], r[d], of_state)),)

        return F.linear(x, w[d], of_input), step

    return _run(x, (w, r, b), (h,), lengths, direction, layout, step_of)
