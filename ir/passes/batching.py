"""Batching: the graph of a function of one example becomes that of all examples.

`vmap` records its function once, on nodes of the op `example`. Here each node that depends on one
is made anew with an axis for the batch in front. The rules are those of the primitives. A composite
is batched through its decomposition, and an op without a rule runs on one example after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..location import at_user_line
from ..node import Node, grad_mode, set_location
from ..op import Kind
from ..ops import activation, contraction, marker, movement, quantized, reduce
from ..ops.fourier import back_op, fourier_op, half_op
from ..ops.gather import gather, scatter
from ..ops.generate import DRAWS, constant, iota, scalar
from ..ops.movement import cat, expand, permute, reshape, slice_axis
from .autodiff import decomposed


class Batching:
    """The batched forms of nodes, for one call of `vmap`.

    level: of the examples. size: how many there are. draws: the place of the first run-time number
    whose draws differ between the examples; None if all examples share the draws.
    slow: the names of ops that ran on one example after another.
    """

    def __init__(self, level: int, size: int, draws: int | None = None):
        self.level, self.size, self.draws = level, size, draws
        self.slow: set[str] = set()
        self._found: dict[Node, Node | None] = {}

    def of(self, root: Node) -> Node | None:
        """`root` for all examples, which are its first axis; None if they all share one value."""
        stack, found = [root], self._found
        while stack:
            node = stack[-1]
            unknown = [] if self._is_example(node) else [o for o in node.operands if o not in found]
            if node not in found and unknown:
                stack += unknown
                continue
            stack.pop()
            if node not in found:
                found[node] = self._batched(node)
        return found[root]

    def whole(self, node: Node) -> Node:
        """`node` for all examples, also where they share one value."""
        found = self.of(node)
        if found is not None:
            return found
        return expand(reshape(node, (1, *node.shape)), (self.size, *node.shape))

    def aligned(self, node: Node, rank: int) -> Node:
        """`node` for broadcasting with others: a batched one as if an example had `rank` axes."""
        found = self.of(node)
        if found is None:
            return node
        return reshape(found, (self.size, *[1] * (rank - node.rank), *node.shape))

    def _is_example(self, node: Node) -> bool:
        return node.op is marker.example and node.attrs[0] == self.level

    def _is_draw(self, node: Node) -> bool:
        return self.draws is not None and node.op is scalar and node.attrs[0] >= self.draws

    def _batched(self, node: Node) -> Node | None:
        if self._is_example(node):
            return node.operands[0]
        op = node.op
        drawn = any(self._is_draw(o) for o in node.operands)
        if not drawn and all(self._found[o] is None for o in node.operands):
            return None
        before = set_location(node.loc)
        try:
            with grad_mode(node.instruction.recorded[0]):
                if op in DRAWS:
                    return op(*node.operands, (self.size, *node.attrs[0]))
                rule = _BY_OP.get(op)
                if rule is None and op.decompose is not None:
                    return self.whole(decomposed(node))
                rule = rule or _BY_KIND.get(op.kind, _one_by_one)
                return rule(self, node)
        finally:
            set_location(before)


Rule = Callable[[Batching, Node], Node]


def _one_by_one(batch: Batching, node: Node) -> Node:
    batch.slow.add(node.op.name)
    if batch.size == 0:
        return expand(constant(0, node.dtype, node.device), (0, *node.shape))
    parts = []
    for i in range(batch.size):
        given = []
        for operand in node.operands:
            found = batch.of(operand)
            if found is not None:
                found = reshape(slice_axis(found, 0, i, i + 1), operand.shape)
            given.append(operand if found is None else found)
        parts.append(reshape(node.op(*given, *node.attrs), (1, *node.shape)))
    return cat(parts, 0)


def _broadcast(batch: Batching, node: Node) -> Node:
    rank = max(o.rank for o in node.operands)
    return node.op(*[batch.aligned(o, rank) for o in node.operands], *node.attrs)


def _in_front(batch: Batching, node: Node) -> Node:
    """Ops for which leading axes are a batch."""
    return node.op(*map(batch.whole, node.operands), *node.attrs)


_KEPT = (marker.detach, marker.clone, marker.saved, marker.with_value, marker.overwritten)


def _marked(batch: Batching, node: Node) -> Node:
    if node.op in _KEPT:
        return _in_front(batch, node)
    # A place where an inner function collected gradients, or an op that the user differentiated.
    place = marker.MARKERS.get(node.op)
    if place is None:  # the mark of a call of torch.autograd.Function, which has no value
        if any(batch.whole(o).requires_grad for o in node.operands):
            raise RuntimeError(
                "vmap: a torch.autograd.Function can't be differentiated from outside of the vmap "
                "that calls it: take the gradient inside, as in vmap(grad(f)), or write the "
                f"function with differentiable ops{at_user_line()}"
            )
        return expand(constant(0, node.dtype), (batch.size, *node.shape))
    return batch.whole(node.operands[place])


def _shifted(axes: Sequence[int]) -> tuple[int, ...]:
    """Axes of an example as those of a batch; negative ones count from the end in both."""
    return tuple(a + 1 if a >= 0 else a for a in axes)


def _along_axes(batch: Batching, node: Node) -> Node:
    """Ops of one operand whose first attr are axes, or an axis."""
    (x,) = node.operands
    if x.rank == 0:  # an axis that isn't there
        return batch.whole(decomposed(node)) if node.op.decompose else _one_by_one(batch, node)
    first, *rest = node.attrs
    moved = _shifted((first,))[0] if isinstance(first, int) else _shifted(first)
    return node.op(batch.whole(x), moved, *rest)


def _reshape(batch: Batching, node: Node) -> Node:
    return reshape(batch.whole(node.operands[0]), (batch.size, *node.shape))


def _permute(batch: Batching, node: Node) -> Node:
    return permute(batch.whole(node.operands[0]), (0, *_shifted(node.attrs[0])))


def _expand(batch: Batching, node: Node) -> Node:
    return expand(batch.aligned(node.operands[0], node.rank), (batch.size, *node.shape))


def _slice(batch: Batching, node: Node) -> Node:
    starts, stops, steps = node.attrs
    x = batch.whole(node.operands[0])
    return movement.slice_(x, (0, *starts), (batch.size, *stops), (1, *steps))


def _pad(batch: Batching, node: Node) -> Node:
    x, value = node.operands
    if batch.of(value) is not None:
        return _one_by_one(batch, node)
    low, high, interior = ((0, *attr) for attr in node.attrs)
    return movement.pad_op(batch.whole(x), value, low, high, interior)


def _cat(batch: Batching, node: Node) -> Node:
    return cat([batch.whole(o) for o in node.operands], node.attrs[0] + 1)


def _positions(batch: Batching, indices: Sequence[Node]) -> list[Node]:
    """Indices for all examples, after those of the examples themselves."""
    rank = max(i.rank for i in indices)
    own = reshape(iota(batch.size), (batch.size, *[1] * rank))
    return [own, *[batch.aligned(i, rank) for i in indices]]


def _gather(batch: Batching, node: Node) -> Node:
    x, *indices = node.operands
    (axis,) = node.attrs
    if all(batch.of(i) is None for i in indices):
        return gather(batch.whole(x), *indices, axis + 1)
    if batch.of(x) is None:
        rank = max(i.rank for i in indices)
        made = gather(x, *[batch.aligned(i, rank) for i in indices], axis)
        return _moved(made, axis, 1, 0)
    # The indexed axes come first, behind that of the examples.
    turned = _moved(batch.whole(x), 1, axis, x.rank + 1 - axis)
    made = gather(turned, *_positions(batch, indices), 0)
    return _moved(made, made.rank - axis, axis, 1)


def _scatter(batch: Batching, node: Node) -> Node:
    base, values, *indices = node.operands
    axis, mode = node.attrs
    whole, given = batch.whole(base), batch.whole(values)
    if all(batch.of(i) is None for i in indices):
        return scatter(whole, given, *indices, axis + 1, mode)
    whole = _moved(whole, 1, axis, whole.rank - axis)
    given = _moved(given, 1, axis, given.rank - axis)
    made = scatter(whole, given, *_positions(batch, indices), 0, mode)
    return _moved(made, made.rank - axis, axis, 1)


def _moved(x: Node, start: int, count: int, to: int) -> Node:
    """`x` with `count` axes from `start` on moved to begin at `to`."""
    moved = range(start, start + count)
    order = [i for i in range(x.rank) if i not in moved]
    order[to:to] = moved
    return permute(x, order)


# ---- convolutions: a batch of inputs is more inputs, one of weights is more groups -----------


def _merged(x: Node, axis: int) -> Node:
    """A batched node with the axis of the examples made part of `axis` of an example."""
    x = _moved(x, 0, 1, axis)
    return reshape(x, (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))


def _split(batch: Batching, x: Node, axis: int) -> Node:
    """The inverse of `_merged`."""
    size = x.shape[axis] // batch.size
    x = reshape(x, (*x.shape[:axis], batch.size, size, *x.shape[axis + 1 :]))
    return _moved(x, axis, 1, 0)


def _conv(batch: Batching, node: Node) -> Node:
    if batch.size == 0:
        return _one_by_one(batch, node)
    x, w = node.operands
    *attrs, groups = node.attrs
    if batch.of(w) is None:
        return _split(batch, node.op(_merged(batch.whole(x), 0), w, *node.attrs), 0)
    made = node.op(
        _merged(batch.whole(x), 1), _merged(batch.whole(w), 0), *attrs, groups * batch.size
    )
    return _split(batch, made, 1)


def _conv_weight_grad(batch: Batching, node: Node) -> Node:
    if batch.size == 0:
        return _one_by_one(batch, node)
    *attrs, groups = node.attrs
    given = [_merged(batch.whole(o), 1) for o in node.operands]
    return _split(batch, node.op(*given, *attrs, groups * batch.size), 0)


_BY_KIND: dict[Kind, Rule] = {
    Kind.ELEMENTWISE: _broadcast,
    Kind.REDUCE: _along_axes,
    Kind.SCAN: _along_axes,
    Kind.CHECK: _in_front,
    Kind.HOST: _in_front,
    Kind.TRANSFER: _in_front,
    Kind.MARKER: _marked,
}

_BY_OP: dict[object, Rule] = {
    movement.reshape_op: _reshape,
    movement.permute_op: _permute,
    movement.expand_op: _expand,
    movement.slice_op: _slice,
    movement.pad_op: _pad,
    movement.flip_op: _along_axes,
    movement.cat_op: _cat,
    movement.windows_op: _along_axes,
    contraction.matmul: _broadcast,
    contraction.matmul_wide: _broadcast,
    contraction.matmul_fast: _broadcast,
    quantized.integer_matmul: _broadcast,
    contraction.conv: _conv,
    contraction.conv_input_grad: _conv,
    contraction.conv_weight_grad: _conv_weight_grad,
    contraction.conv_weight_grad_wide: _conv_weight_grad,
    gather: _gather,
    scatter: _scatter,
    **dict.fromkeys((fourier_op, half_op, back_op), _along_axes),
    # Composites that are better off whole: their records know how to round.
    reduce.variance: _along_axes,
    reduce.deviation: _along_axes,
    activation.softmax: _along_axes,
    activation.log_softmax: _along_axes,
    activation.logsumexp: _along_axes,
}
"""Rules of ops that differ from those of their kind."""
