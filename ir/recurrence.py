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
    point(*gates, *states) -> (new states, values that the derivative reads), element by element.
    sums: the number of leading gates that are read as x + z alone, where x is the product with the
        input, and z the product with the first state. `point` takes these sums, the other gates of
        x, and the other gates of z.
    kept: the number of values that the derivative reads.
    """

    gates: int
    states: int
    point: Callable[..., Made]
    kept: int
    sums: int

    @property
    def is_additive(self) -> bool:
        """Whether a step reads nothing but x + z and, beyond its product, no first state."""
        return self.sums == self.gates

    def step(self, x: Node, z: Node, *states: Node) -> Made:
        """As `point`, from the products [batch, gates * width]."""
        if self.is_additive:
            return self.point(*_parts(x + z, self.gates), *states)
        return self.point(*self.read(_parts(x, self.gates), _parts(z, self.gates)), *states)

    def read(self, x: Sequence[Node], z: Sequence[Node]) -> list[Node]:
        """What `point` takes of the gates of the two products."""
        sums = [a + b for a, b in zip(x[: self.sums], z, strict=False)]
        return [*sums, *x[self.sums :], *z[self.sums :]]


def _parts(x: Node, count: int) -> list[Node]:
    """The gates of x[batch, count * width]. They are cut from a dimension of their own, so that no
    vector of a kernel crosses from one to the next."""
    if count == 1:
        return [x]
    shape = (x.shape[0], x.shape[1] // count)
    gates = reshape(x, (shape[0], count, shape[1]))
    return [reshape(slice_axis(gates, 1, i, i + 1), shape) for i in range(count)]


def _elman(function: Callable[[Node], Node]) -> Callable[..., Made]:
    def point(x: Node, h: Node) -> Made:
        new = function(x)
        return (new,), (new,)

    return point


def _lstm(i: Node, f: Node, g: Node, o: Node, h: Node, c: Node) -> Made:
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    memory = f * c + i * g
    shown = tanh(memory)
    return (o * shown, memory), (i, f, g, o, shown)


def _gru(r: Node, u: Node, xn: Node, zn: Node, h: Node) -> Made:
    r, u = sigmoid(r), sigmoid(u)
    n = tanh(xn + r * zn)
    return (n + u * (h - n),), (r, u, n, zn)


CELLS = {
    "rnn_tanh": Cell(1, 1, _elman(tanh), kept=1, sums=1),
    "rnn_relu": Cell(1, 1, _elman(relu), kept=1, sums=1),
    "lstm": Cell(4, 2, _lstm, kept=5, sums=4),
    "gru": Cell(3, 1, _gru, kept=4, sums=2),
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
    found = _cotangents(g, nodes, lambda *inner: _cell(*inner, name, index))
    return [_or_zeros(each, n) for each, n in zip(found, nodes, strict=True)]


def _cotangents(
    g: Node, operands: Sequence[Node], function: Callable[..., Node]
) -> list[Node | None]:
    """The cotangents of the operands of a function of nodes, given that of its result. None: of
    those that it doesn't read."""
    with grad_mode(True):
        inner = [variable(n, i) for i, n in enumerate(operands)]
        found = pullback({function(*inner): g}, inner)
    return _substituted([found.get(v) for v in inner], dict(zip(inner, operands, strict=True)))


def _substituted(found: Sequence[Node | None], known: dict[Node, Node]) -> list[Node | None]:
    return [None if each is None else substitute([each], known)[0] for each in found]


def _or_zeros(found: Node | None, like: Node) -> Node:
    return expand(constant(0, like.dtype), like.shape) if found is None else found


def _like_state(*args: Any) -> Aval:
    *nodes, name, _ = args
    state = nodes[2]
    batch, width = state.shape
    product = (batch, CELLS[name].gates * width)
    if any(n.shape != product for n in nodes[:2]) or any(s.shape != state.shape for s in nodes[2:]):
        raise RuntimeError(
            f"a cell of states {list(state.shape)} takes products {list(product)}, got "
            f"{[list(n.shape) for n in nodes]}{at_user_line()}"
        )
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


def _masked(valid: Sequence[Node], new: Sequence[Node], states: Sequence[Node]) -> tuple[Node, ...]:
    """The states after a step that keeps those of rows which are not valid."""
    if not valid:
        return tuple(new)
    return tuple([where(valid[0], a, b) for a, b in zip(new, states, strict=True)])


def _step(*args: Any) -> tuple[Node, ...]:
    *nodes, name, biased, keep = args
    cell = CELLS[name]
    w, *bias = nodes[len(nodes) - 1 - biased :]
    x, *rest = nodes[: len(nodes) - 1 - biased]
    valid, states = rest[: -cell.states], rest[-cell.states :]
    z = matmul(states[0], w)
    if bias:
        z = z + bias[0]
    new, kept = cell.step(x, z, *states)
    new = _masked(valid, new, states)
    return (*new, *kept) if keep else new


def _grad_step(*args: Any) -> tuple[Node, ...]:
    """The cotangents of the states before a step and of its products.

    args: the cotangents of the step's states, the states before it, the values it kept, valid?, the
    cotangents that walk back, the transposed weight, the name of the cell.
    """
    *nodes, w, name = args
    cell = CELLS[name]
    state = nodes[cell.states]
    products = leaf(-1, (state.shape[0], cell.gates * state.shape[1]), state.dtype)
    direct, found = _derived(cell, cell.step, [products, products], nodes)
    of_products = found[:1] if cell.is_additive else found
    through = matmul(found[-1], w)
    first = through if direct[0] is None else direct[0] + through
    return (first, *[_or_zeros(each, state) for each in direct[1:]], *of_products)


def _derived(
    cell: Cell, step: Callable[..., Made], read: Sequence[Node], nodes: Sequence[Node]
) -> tuple[list[Node | None], list[Node]]:
    """The cotangents of the states before a step, as far as it reads them itself, and of `read`,
    what it reads before the states.

    read: stand-ins, as the derivative reads none of their values. nodes: as `_grad_step`, without
    the weight.
    """
    count = cell.states
    above, states, carried = nodes[:count], nodes[count : 2 * count], nodes[-count:]
    values = nodes[2 * count : 2 * count + cell.kept]
    valid = nodes[2 * count + cell.kept : -count]
    with grad_mode(True):
        inputs = [variable(each, -1 - i) for i, each in enumerate(read)]
        before = [variable(s, i) for i, s in enumerate(states)]
        new, kept = step(*inputs, *before)
        new = _masked(valid, new, before)
    seeds = {n: a + b for n, a, b in zip(new, above, carried, strict=True)}
    found = pullback(seeds, (*inputs, *before))
    known = dict(zip((*kept, *before), (*values, *states), strict=True))
    direct = _substituted([found.get(s) for s in before], known)
    return direct, substitute([found[i] for i in inputs], known)


# ---- element by element ----------------------------------------------------------------------


def points(name: str, leaves: Sequence[Node], valid: Node) -> tuple[Node, ...]:
    """The results of a step, new states first, of arrays of any one shape.

    leaves: the gates of x, those of z, those of z's bias, and the states. valid: bool.
    """
    cell = CELLS[name]
    n = cell.gates
    x, z, bias, states = leaves[:n], leaves[n : 2 * n], leaves[2 * n : 3 * n], leaves[3 * n :]
    z = [a + b for a, b in zip(z, bias, strict=True)]
    new, kept = cell.point(*cell.read(x, z), *states)
    return (*_masked([valid], new, states), *kept)


def point_grads(name: str, leaves: Sequence[Node], valid: Node) -> tuple[Node, ...]:
    """The cotangents of a step, of arrays of any one shape: those of the states before it, as far
    as it reads them itself, and of what `point` reads before them.

    leaves: as `_grad_step`, without the weight and `valid`.
    """
    cell = CELLS[name]
    like, n = leaves[0], cell.states
    count = 2 * cell.gates - cell.sums
    read = [leaf(-1 - i, like.shape, like.dtype) for i in range(count)]
    direct, found = _derived(cell, cell.point, read, [*leaves[:-n], valid, *leaves[-n:]])
    return (*[_or_zeros(each, like) for each in direct], *found)


def point_cotangents(name: str, leaves: Sequence[Node], index: int) -> list[Node | None]:
    """As `point_grads`, given the cotangent of one new state alone. None: of what that doesn't
    depend on.

    leaves: that cotangent, the gates of x, those of z, and the states. index: that of the state.
    """
    cell = CELLS[name]
    g, n, count = leaves[0], cell.gates, cell.states
    states = leaves[1 + 2 * n :]
    read = cell.read(leaves[1 : 1 + n], leaves[1 + n : 1 + 2 * n])

    def new(*inner: Node) -> Node:
        return cell.point(*inner[count:], *inner[:count])[0][index]

    return _cotangents(g, [*states, *read], new)


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


recurrence_op = loop("recurrence", _step, ("cell", "biased", "keep"), vjp=_vjp)
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
    made = parts(recurrence_op(*operands, *attrs))[: len(initial)]
    last = order(x.shape[0], reverse)[-1]
    return made[0], tuple(reshape(slice_axis(s, 0, last, last + 1), s.shape[1:]) for s in made)
