"""Branches and loops. Their bodies run step by step, as often as the values ask for.

A condition that is known on the host decides while the graph is recorded. Any other is computed
first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .api import f
from .table import operator
from .values import Host, Narrow, array_of, on_device

Body = Any
"""A graph as a function of values (`Body` in `graph.py`, which is above this module)."""


@operator("If", either=("condition",), known="never")
def if_(condition: Any, *, then_branch: Body, else_branch: Body) -> Any:
    chosen = then_branch if bool(array_of(condition).item()) else else_branch
    return tuple(chosen())


@operator("Loop", either=("trips", "condition", "carried"), known="never")
def loop(
    trips: Any = None,
    condition: Any = None,
    *carried: Any,
    body: Body,
    outputs: int,
    device: Any = None,
) -> Any:
    """The carried values after the last turn, and what each turn gives, stacked."""
    most = None if trips is None else int(array_of(trips).item())
    going = True if condition is None else bool(array_of(condition).item())
    state, count = list(carried), len(carried)
    scans: list[list[Any]] = [[] for _ in range(outputs - count)]
    turn = 0
    while going and (most is None or turn < most):
        again, *found = body(Host(np.int64(turn)), Host(np.bool_(True)), *state)
        state = found[:count]
        for scan, value in zip(scans, found[count:], strict=False):
            scan.append(value)
        going = bool(array_of(again).item())
        turn += 1
    stacked = [
        stack(scan, device) if scan else body.none_of(1 + count + i) for i, scan in enumerate(scans)
    ]
    return (*state, *stacked)


def stack(values: list[Any], device: Any, axis: int = 0) -> Any:
    """Values of one shape, along a new axis."""
    if all(isinstance(v, Host) for v in values):
        return np.stack([v.array for v in values], axis)
    tensors = [on_device(v, device) for v in values]
    if isinstance(tensors[0], Narrow):
        return Narrow(f.stack([t.carrier for t in tensors], axis), tensors[0].dtype)
    return f.stack(tensors, axis)


@operator("Scan", since=9, either=("values",), known="never")
def scan(
    *values: Any,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
    outputs: int,
    device: Any = None,
) -> Any:
    count = len(values) - num_scan_inputs
    state = list(values[:count])
    lines = [on_device(v, device) for v in values[count:]]
    axes = scan_input_axes or [0] * num_scan_inputs
    backward = scan_input_directions or [0] * num_scan_inputs
    length = {int(x.shape[a]) for x, a in zip(lines, axes, strict=True)}
    if len(length) != 1:
        raise ValueError(f"expected scan inputs of one length, got {sorted(length)}")
    (turns,) = length
    found: list[list[Any]] = [[] for _ in range(outputs - count)]
    for turn in range(turns):
        places = [turns - 1 - turn if b else turn for b in backward]
        parts = [f.select(x, a, p) for x, a, p in zip(lines, axes, places, strict=True)]
        results = body(*state, *parts)
        state = results[:count]
        for line, value in zip(found, results[count:], strict=False):
            line.append(value)
    out_axes = scan_output_axes or [0] * len(found)
    out_backward = scan_output_directions or [0] * len(found)
    stacked = [
        stack(line[::-1] if b else line, device, axis) if line else body.none_of(count + i)
        for i, (line, axis, b) in enumerate(zip(found, out_axes, out_backward, strict=True))
    ]
    return (*state, *stacked)


@operator("Scan")
def scan_of_batches(
    lengths: Any,
    *values: Any,
    body: Body,
    num_scan_inputs: int,
    directions: list[int] | None = None,
    outputs: int,
    device: Any = None,
) -> Any:
    """Scan of opset 8: a batch of sequences, each of a length of its own."""
    if lengths is not None:
        raise NotImplementedError("Scan of opset 8 with lengths")
    tensors = [on_device(v, device) for v in values]
    results = [
        scan(
            *[f.select(x, 0, i) for x in tensors],
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
            outputs=outputs,
            device=device,
        )
        for i in range(int(tensors[0].shape[0]))
    ]
    return tuple(
        stack([_value(v) for v in column], device) for column in zip(*results, strict=True)
    )


def _value(found: Any) -> Any:
    return Host(found) if isinstance(found, np.ndarray) else found
