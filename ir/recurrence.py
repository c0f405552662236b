"""Recurrent layers over time: each step is one product with the state and one cell.

A cell is written once, forward; its derivative follows from the graph. The gradient of a layer is a
loop too, which walks back with the cotangents of the states. It keeps the cotangents of all
products, so that the gradient of the weight is one product over all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .location import at_user_line
from .loop import loop, order, parts
from .node import Node, grad_enabled, grad_mode
from .op import Aval
from .ops.composite import composite
from .ops.contraction import matmul
from .ops.generate import constant, leaf
from .ops.marker import variable
from .ops.movement import cat, expand, reshape, slice_axis, sum_to, transpose, unsqueeze
from .ops.ternary import where
from .ops.unary import relu, sigmoid, tanh
from .passes.autodiff import pullback, through_decomposition
from .rewrite import substitute

Made = tuple[tuple[Node, ...], tuple[Node, ...]]


@dataclass(frozen=True)
class Cell:
    """The part of a step that follows its products.

    gates: the width of the products, in widths of the state. states: their number.
    step(x, z, *states) -> (new states, values that the derivative reads). x is the product with the
        input, z the product with the first state.
    additive: whether the step reads x + z alone.
    """

    gates: int
    states: int
    step: Callable[..., Made]
    additive: bool = True


def _parts(x: Node, count: int) -> list[Node]:
    """The gates of x[batch, count * width]. They are cut from a dimension of their own, so that no
    vector of a kernel crosses from one to the next."""
    shape = (x.shape[0], x.shape[1] // count)
    gates = reshape(x, (shape[0], count, shape[1]))
    return [reshape(slice_axis(gates, 1, i, i + 1), shape) for i in range(count)]


def _elman(function: Callable[[Node], Node]) -> Callable[..., Made]:
    def step(x: Node, z: Node, h: Node) -> Made:
        new = function(x + z)
        return (new,), (new,)

    return step


def _lstm(x: Node, z: Node, h: Node, c: Node) -> Made:
    i, f, g, o = _parts(x + z, 4)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    memory = f * c + i * g
    shown = tanh(memory)
    return (o * shown, memory), (i, f, g, o, shown)


def _gru(x: Node, z: Node, h: Node) -> Made:
    (xr, xu, xn), (zr, zu, zn) = _parts(x, 3), _parts(z, 3)
    r, u = sigmoid(xr + zr), sigmoid(xu + zu)
    n = tanh(xn + r * zn)
    return (n + u * (h - n),), (r, u, n, zn)


CELLS = {
    "rnn_tanh": Cell(1, 1, _elman(tanh)),
    "rnn_relu": Cell(1, 1, _elman(relu)),
    "lstm": Cell(4, 2, _lstm),
    "gru": Cell(3, 1, _gru, additive=False),
}


# ---- one step ------------------------------------------------------------------------------------


def _cell(*args: Any) -> Node:
    *nodes, name, index = args
    new: Node = CELLS[name].step(*nodes)[0][index]
    return new


def _cell_vjp(g: Node, out: Node, *args: Any) -> tuple[Node, ...]:
    *nodes, name, index = args
    return tuple([cell_grad(g, *nodes, name, index, i) for i in range(len(nodes))])


def _cell_grad(g: Node, *args: Any) -> Node:
    *nodes, name, index, place = args
    found: Node = cell_cotangents(g, nodes, name, index)[place]
    return found


def cell_cotangents(g: Node, nodes: Sequence[Node], name: str, index: int) -> list[Node]:
    """The cotangents of all operands of `cell_state`, given that of its result."""
    with grad_mode(True):
        inner = [variable(n, i) for i, n in enumerate(nodes)]
        found = pullback({_cell(*inner, name, index): g}, inner)
    zeros = [expand(constant(0, n.dtype), n.shape) for n in nodes]
    grads = [found.get(v, zero) for v, zero in zip(inner, zeros, strict=True)]
    return substitute(grads, dict(zip(inner, nodes, strict=True)))


def _like_state(*args: Any) -> Aval:
    state = next(a for a in args[2:] if isinstance(a, Node))
    return state.shape, state.dtype


def _like_operand(g: Node, *args: Any) -> Aval:
    operand = args[args[-1]]
    return operand.shape, operand.dtype


cell_grad = composite(
    "cell_grad", _like_operand, _cell_grad, params=("cell", "state", "operand"), cost=40
)
"""cell_grad(g, x, z, *states, cell, state, operand): the cotangent of one operand of `cell_state`,
given that of its result."""

cell_state = composite(
    "cell_state", _like_state, _cell, vjp=_cell_vjp, params=("cell", "state"), cost=20
)
"""cell_state(x, z, *states, cell, state): a new state of a cell, given its products with the input
and with its first state."""


# ---- layers --------------------------------------------------------------------------------------


def _masked(cell: Cell, valid: Sequence[Node], x: Node, z: Node, states: Sequence[Node]) -> Made:
    """A step that keeps the states of rows which are not valid."""
    new, kept = cell.step(x, z, *states)
    if valid:
        new = tuple(where(valid[0], a, b) for a, b in zip(new, states, strict=True))
    return new, kept


def _step(*args: Any) -> tuple[Node, ...]:
    *nodes, name, biased, keep = args
    cell = CELLS[name]
    w, *bias = nodes[len(nodes) - 1 - biased :]
    x, *rest = nodes[: len(nodes) - 1 - biased]
    valid, states = rest[: -cell.states], rest[-cell.states :]
    z = matmul(states[0], w)
    if bias:
        z = z + bias[0]
    new, kept = _masked(cell, valid, x, z, states)
    return (*new, *kept) if keep else new


def _grad_step(*args: Any) -> tuple[Node, ...]:
    """The cotangents of the states before a step and of its products.

    args: the cotangents of the step's states, the states before it, the values it kept, valid?, the
    cotangents that walk back, the transposed weight, the name of the cell.
    """
    *nodes, w, name = args
    cell = CELLS[name]
    count = cell.states
    above, nodes = nodes[:count], nodes[count:]
    states, nodes = nodes[:count], nodes[count:]
    carried, nodes = nodes[-count:], nodes[:-count]
    # The step again, with stand-ins for the products, which its derivative doesn't read.
    shape, dtype = states[0].shape, states[0].dtype
    products = (shape[0], cell.gates * shape[1])
    with grad_mode(True):
        x, z = (variable(leaf(i, products, dtype), i) for i in (-1, -2))
        before = [variable(s, i) for i, s in enumerate(states)]
        kept = cell.step(x, z, *before)[1]
        values, valid = nodes[: len(kept)], nodes[len(kept) :]
        new, kept = _masked(cell, valid, x, z, before)
    seeds = {n: a + b for n, a, b in zip(new, above, carried, strict=True)}
    found = pullback(seeds, (x, z, *before))
    known = dict(zip((*kept, *before), (*values, *states), strict=True))
    zero = expand(constant(0, dtype), shape)
    through = matmul(substitute([found[z]], known)[0], w)
    first, *direct = substitute([found.get(s, zero) for s in before], known)
    first = first + through if before[0] in found else through
    of_products = [found[x]] if cell.additive else [found[x], found[z]]
    return (first, *direct, *substitute(of_products, known))


def _rows(x: Node) -> Node:
    return reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))


def _vjp(g: Node, out: Node, *_: Any) -> tuple[Node | None, ...]:
    operands = out.operands
    sequences, states, reverse, name, biased, keep = out.attrs
    if grad_enabled() or not keep:  # the kept values may need a gradient too
        return through_decomposition(out, g)
    valid, initial = operands[1:sequences], operands[sequences : sequences + states]
    w = operands[sequences + states]
    made = parts(out)
    before = [_before(s, i, reverse) for s, i in zip(made, initial, strict=False)]
    given = (*parts(out, g)[:states], *before, *made[states:], *valid)
    nothing = (expand(constant(0, i.dtype), i.shape) for i in initial)
    back = recurrence_grad(*given, *nothing, transpose(w), len(given), states, not reverse, name)
    # The walk back reaches the initial states in its last step.
    last = order(out.operands[0].shape[0], not reverse)[-1]
    found = parts(back)
    first = [reshape(slice_axis(s, 0, last, last + 1), s.shape[1:]) for s in found[:states]]
    dx, dz = found[states], _rows(found[-1])
    dw = matmul(transpose(_rows(before[0])), dz)
    db = (sum_to(dz, dz.shape[1:]),) if biased else ()
    return (dx, *(None for _ in valid), *first, dw, *db)


def _before(states: Node, initial: Node, reverse: bool) -> Node:
    """The states that each step starts from, [steps, *shape]."""
    count = states.shape[0]
    first = unsqueeze(initial, 0)
    if reverse:
        return cat([slice_axis(states, 0, 1, count), first], 0)
    return cat([first, slice_axis(states, 0, 0, count - 1)], 0)


_recurrence = loop("recurrence", _step, ("cell", "biased", "keep"), vjp=_vjp)
recurrence_grad = loop("recurrence_grad", _grad_step, ("cell",))


def recurrence(
    cell: str,
    x: Node,
    initial: Sequence[Node],
    weight: Node,
    bias: Node | None = None,
    *,
    valid: Node | None = None,
    reverse: bool = False,
) -> tuple[Node, tuple[Node, ...]]:
    """A recurrent layer over x[steps, batch, gates * width], the products with its inputs.

    initial: the states [batch, width] before the first step. weight[width, gates * width] and bias
    of the products with the first state. valid[steps, batch, 1]: bool; where it is False a step
    leaves the states as they are. Returns the first state after each step, [steps, batch, width],
    and all states after the last one.
    """
    if not x.shape[0]:
        raise RuntimeError(f"Expected sequence length to be larger than 0 in RNN{at_user_line()}")
    masks = () if valid is None else (valid,)
    extra = () if bias is None else (bias,)
    operands = (x, *masks, *initial, weight, *extra)
    keep = grad_enabled() and any(o.requires_grad for o in operands)
    attrs = (1 + len(masks), len(initial), bool(reverse), cell, bool(extra), keep)
    made = parts(_recurrence(*operands, *attrs))[: len(initial)]
    last = order(x.shape[0], reverse)[-1]
    return made[0], tuple(reshape(slice_axis(s, 0, last, last + 1), s.shape[1:]) for s in made)
