"""Recurrent cells, alone and over time: one native kernel for all of a step that works element by
element. Over time a product of NumPy's comes before it or after it.

The kernels are in the pack, for any width. A row of a batch is one run of a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilewright.ir.dtype import DType, bool_, float32, float64
from tilewright.ir.loop import order
from tilewright.ir.node import Node, grad_mode
from tilewright.ir.op import Op
from tilewright.ir.ops.generate import leaf
from tilewright.ir.ops.movement import expand
from tilewright.ir.recurrence import (
    CELLS,
    cell_grad,
    cell_state,
    point_cotangents,
    point_grads,
    points,
    recurrence_grad,
    recurrence_op,
)
from tilewright.ir.shape import Size

from . import linking, maps
from .composites import Parts
from .forms import Form

if TYPE_CHECKING:
    from ..native.jit import Linked
    from ..native.pack import Layout


Kernel = tuple["Layout", "Linked"]


class _Walk(NamedTuple):
    """Where an argument of the kernel lies, in bytes: (number of a buffer, start, from one row to
    the next, from one place in time to the next). before: whether a step reads what the step before
    it wrote there, and in the first one the buffer of this number."""

    buffer: int
    start: int
    row: int
    time: int = 0
    before: int = 0


def form_of(node: Node) -> Form | None:
    """The form of a layer or of its gradient; None if it has no kernel."""
    if node.op is recurrence_op:
        make = _layer
    elif node.op is recurrence_grad:
        make = _layer_grad
    else:
        return None
    found = _kernel(node, node.op, node.attrs[3])
    if found is None or [tuple(o.shape) for o in node.operands] != _shapes(node):
        return None
    return make(node, found)


def _shapes(node: Node) -> list[tuple[int, ...]]:
    """The shapes of the operands of a layer, or of its gradient."""
    operands, (sequences, states, _, name, *more) = node.operands, node.attrs
    cell = CELLS[name]
    batch, width = operands[sequences].shape
    steps, gates = operands[0].shape[0], cell.gates * width
    walked = [(steps, batch, gates)]
    whole = [(width, gates), *[(gates,)] * bool(more and more[0])]
    if node.op is recurrence_grad:
        walked = [(steps, batch, width)] * (2 * states + cell.kept)
        whole = [(gates, width)]
    masks = [(steps, batch, 1)] * (sequences - len(walked))
    return [*walked, *masks, *[(batch, width)] * states, *whole]


def parts_of(node: Node) -> Parts | None:
    """The parts of a cell's new state, or of a cotangent; None if there is no kernel. A program
    makes all of them at once."""
    *attrs, number = node.attrs
    is_forward = node.op is cell_state
    found = _kernel(node, recurrence_op if is_forward else cell_grad, *attrs)
    if found is None:
        return None
    make = _cell if is_forward else _cell_grad
    key, places = (node.op, tuple(attrs)), tuple(range(len(node.operands)))
    return [(key, places, make(node, found))], lambda *values: values[-1][number]


def _kernel(node: Node, op: Op, *attrs: Any) -> Kernel | None:
    operands = [o for o in node.operands if o.dtype is not bool_]
    if node.dtype not in (float32, float64) or any(o.dtype is not node.dtype for o in operands):
        return None
    if any(0 in o.shape for o in node.operands):
        return None
    return linking.packed(_name(op, node.dtype, *attrs))


# ---- cells -----------------------------------------------------------------------------------


def _cell(node: Node, kernel: Kernel) -> Form:
    """x, z, *states -> new states."""
    cell, np_dtype = CELLS[node.attrs[0]], node.dtype.np
    batch, width = node.operands[2].shape
    line, gates, states = width * np_dtype.itemsize, cell.gates, cell.states
    x, z, bias, valid, spare, first, out = 0, 1, 2, 3, 4, 5, 5 + states

    made = [_Walk(out + k, 0, line) for k in range(states)]
    made += [_Walk(spare, k * line, 0) for k in range(cell.kept)]
    given = [_Walk(i, k * line, gates * line) for i in (x, z) for k in range(gates)]
    given += [_Walk(bias, 0, 0)] * gates
    given += [_Walk(first + i, 0, line) for i in range(states)]
    run, places = _rows(kernel, width, made, [*given, _Walk(valid, 0, 0)])
    (walk,) = places(range(1))
    no_bias, always, kept = np.zeros(width, np_dtype), np.ones(1, bool), cell.kept * width

    def states_of(x: Any, z: Any, *before: Any) -> list[Any]:
        new = [np.empty((batch, width), np_dtype) for _ in before]
        read = map(np.ascontiguousarray, (x, z, no_bias, always, np.empty(kept, np_dtype), *before))
        run((*read, *new), walk, batch)
        return new

    return states_of


def _cell_grad(node: Node, kernel: Kernel) -> Form:
    """g, x, z, *states -> the cotangents of x, z and the states."""
    cell, np_dtype = CELLS[node.attrs[0]], node.dtype.np
    batch, width = node.operands[0].shape
    line, gates, states = width * np_dtype.itemsize, cell.gates, cell.states
    g, x, z, first, dx, dz, out = 0, 1, 2, 3, 3 + states, 4 + states, 5 + states

    made = [_Walk(out + k, 0, line) for k in range(states)]
    for each, own in ((dx, range(gates)), (dz, range(cell.sums, gates))):
        made += [_Walk(each, k * line, gates * line) for k in own]
    given = [_Walk(g, 0, line)]
    given += [_Walk(i, k * line, gates * line) for i in (x, z) for k in range(gates)]
    given += [_Walk(first + i, 0, line) for i in range(states)]
    run, places = _rows(kernel, width, made, given)
    (walk,) = places(range(1))
    both, computed = cell.sums * width, kernel[0].results
    new = np.empty if len(computed) == len(made) else np.zeros

    def grads(*arrays: Any) -> list[Any]:
        of_x = new((batch, gates * width), np_dtype)
        of_z = of_x if cell.is_additive else new(of_x.shape, np_dtype)
        direct = [new((batch, width), np_dtype) for _ in range(states)]
        run((*map(np.ascontiguousarray, arrays), of_x, of_z, *direct), walk, batch)
        if of_z is not of_x:
            of_z[:, :both] = of_x[:, :both]
        return [of_x, of_z, *direct]

    return grads


# ---- layers ----------------------------------------------------------------------------------


def _layer(node: Node, kernel: Kernel) -> Form:
    sequences, states, reverse, name, biased, keep = node.attrs
    cell, operands, np_dtype = CELLS[name], node.operands, node.dtype.np
    steps, batch, width = (*operands[0].shape[:2], operands[sequences].shape[-1])
    line, gates, masked = width * np_dtype.itemsize, cell.gates, sequences > 1
    block = batch * line  # of a state at one time
    x, z, bias, valid, spare, first = range(1, 7)

    out = [_Walk(0, k * steps * block, line, block) for k in range(states + cell.kept)]
    if not keep:
        out[states:] = [_Walk(spare, k * line, 0, 0) for k in range(cell.kept)]
    given = [_Walk(x, k * line, gates * line, gates * block) for k in range(gates)]
    given += [_Walk(z, k * line, gates * line, 0) for k in range(gates)]
    given += [_Walk(bias, k * line, 0, 0) for k in range(gates)]
    given += [out[i]._replace(before=first + i) for i in range(states)]
    given.append(_Walk(valid, 0, int(masked), batch * masked))
    run, walks = _rows(kernel, width, out, given)
    times = order(steps, reverse)
    no_bias, always = np.zeros(gates * width, np_dtype), np.ones(1, bool)
    size, kept_size = node.shape[0], cell.kept * width

    def layer(*arrays: Any) -> Any:
        read = [*map(np.ascontiguousarray, arrays[: sequences + states])]
        initial, w = read[sequences:], arrays[sequences + states]
        bias = np.ascontiguousarray(arrays[-1]) if biased else no_bias
        valid = read[1] if masked else always
        out, z = np.empty(size, np_dtype), np.empty((batch, gates * width), np_dtype)
        buffers = (out, read[0], z, bias, valid, np.empty(kept_size, np_dtype), *initial)
        made, h = [*_whole(out, 0, steps, batch, width)], initial[0]
        for t, walk in zip(times, walks(times)):
            np.matmul(h, w, z)
            run(buffers, walk, batch)
            h = made[t]
        return out

    return layer


def _layer_grad(node: Node, kernel: Kernel) -> Form:
    sequences, states, reverse, name = node.attrs
    cell, operands, np_dtype = CELLS[name], node.operands, node.dtype.np
    steps, batch, width = operands[0].shape
    line, gates = width * np_dtype.itemsize, cell.gates
    block, per_time = batch * line, batch * width
    masked = sequences > 2 * states + cell.kept

    out = [_Walk(0, k * steps * block, line, block) for k in range(states)]
    products = 1 if cell.is_additive else 2
    for each in range(products):
        start, own = (states + each * gates) * steps * block, range(each * cell.sums, gates)
        out += [_Walk(0, start + k * line, gates * line, gates * block) for k in own]
    given = [_Walk(1 + i, 0, line, block) for i in range(2 * states + cell.kept)]
    first = 1 + len(given)
    given += [out[i]._replace(before=first + i) for i in range(states)]
    given.append(_Walk(first + states, 0, int(masked), batch * masked))
    run, walks = _rows(kernel, width, out, given)
    times = order(steps, reverse)
    size, always = node.shape[0], np.ones(1, bool)
    is_direct = masked or not cell.is_additive  # a mask keeps the state
    at, both = states * steps * per_time, cell.sums * width
    of_product = (steps, batch, gates * width)

    def gradient(*arrays: Any) -> Any:
        w, read = arrays[-1], [*map(np.ascontiguousarray, arrays[:-1])]
        valid = read.pop(sequences - 1) if masked else always
        out = np.empty(size, np_dtype)
        buffers = (out, *read, valid)
        found = [*_whole(out, 0, steps, batch, width)]
        dx = dz = [*_whole(out, at, *of_product)]
        if products > 1:
            dz = [*_whole(out, at + math.prod(of_product), *of_product)]
        through = np.empty((batch, width), np_dtype)
        for t, walk in zip(times, walks(times)):
            run(buffers, walk, batch)
            if products > 1:
                dz[t][:, :both] = dx[t][:, :both]
            if is_direct:
                np.matmul(dz[t], w, through)
                found[t] += through
            else:
                np.matmul(dz[t], w, found[t])
        return out

    return gradient


def _whole(out: Any, start: int, steps: int, batch: int, width: int) -> Any:
    """A part of a loop's value, as [steps, batch, width]."""
    return out[start : start + steps * batch * width].reshape(steps, batch, width)


def _rows(
    kernel: Kernel, width: int, results: Sequence[_Walk], operands: Sequence[_Walk]
) -> tuple[Any, Callable[[range], Iterator[np.ndarray]]]:
    """The kernel as a function of (buffers, walk, rows), and a function that makes the walks at all
    places in time. They are one array that changes."""
    from ..native.calls import rows

    arguments = [*results, *operands]

    def walks(times: range) -> Iterator[np.ndarray]:
        way = times.step
        first = np.zeros((len(arguments), 5), np.int64)
        move = np.zeros_like(first)
        for i, (buffer, start, row, time, before) in enumerate(arguments):
            at = start + (times[0] - way * bool(before)) * time
            first[i] = buffer, at, buffer, at + row, row
            move[i] = 0, way * time, 0, way * time, 0
        later = first.copy()
        for i, (_, _, row, _, before) in enumerate(arguments):
            if before:
                first[i] = before, 0, before, row, row
        yield first
        for _ in times[1:]:
            later += move
            yield later

    return rows(*kernel, width, len(results), len(operands)), walks


# ---- the pack --------------------------------------------------------------------------------


def _name(op: Op, dtype: DType, *attrs: Any) -> str:
    return " ".join([op.name, *map(str, attrs), dtype.name])


def all_graphs() -> list[tuple[str, maps.Graph]]:
    """(name, graph) of every kernel, for the pack."""
    found = []
    for name, cell in CELLS.items():
        gates, states = cell.gates, cell.states
        alone = 1 + 2 * gates + states  # the operands of a cell's gradient
        for dtype in (float32, float64):
            for op, build, count in (
                (recurrence_op, points, 3 * gates + states),
                (recurrence_grad, point_grads, 3 * states + cell.kept),
            ):
                found.append((_name(op, dtype, name), _masked(build, name, count, dtype)))
            for index in range(states):
                leaves = _leaves(alone, dtype)
                graph = point_cotangents(name, leaves, index), leaves
                found.append((_name(cell_grad, dtype, name, index), graph))
    return found


def _masked(build: Callable[..., Any], name: str, count: int, dtype: DType) -> maps.Graph:
    """A graph whose last leaf says of a row whether it is valid."""
    leaves, valid = _leaves(count, dtype), leaf(count, Size((1,)), bool_)
    with grad_mode(False):
        return build(name, leaves, expand(valid, leaves[0].shape)), [*leaves, valid]


def _leaves(count: int, dtype: DType) -> list[Node]:
    return [leaf(i, Size((maps.MANY,)), dtype) for i in range(count)]
