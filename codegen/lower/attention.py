"""Attention: one kernel of contractions around a softmax, which an emitter computes by tiles.

Over parallel axes b (batch and heads) and i (queries), and reduction axes j (keys), e and c (the
elements of a query and of a value), with x = dot_e(q[b, i, e], k[b, j, e]) and s = masked x, or
masked c * tanh(x) where c caps scores, it is

    z = reduce logsumexp_j s;  p = exp(s - z)
    store out[b, i, c] = dot_j(p, v[b, j, c]);  store rows[b, i] = z

and its gradient, with i among the reduction axes and the rows' z and delta = sum(g * out) given,

    p = exp(s - z[b, i]);  d = p * (dot_c(g[b, i, c], v[b, j, c]) - delta[b, i])
    store dq[b, i, e] = dot_j(d, k);  store dk[b, j, e] = dot_i(d, q)
    store dv[b, j, c] = dot_i(p, g)

where a cap makes d (1 - tanh(x)^2) times as large.

All between memory and contractions is an ordinary expression: the way operands are read, masks, the
effect of dropout on p, the places of results. `roles` (kernel/attention.py) tells an emitter the
role of each value. Where each query sees a range of keys, as in packed sequences, memory holds the
ranges: by query, and by key for the kernel that owns keys. So an emitter walks along them alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

from tilewright.ir import ops
from tilewright.ir.dtype import accumulator, bool_
from tilewright.ir.node import Node, grad_mode, set_location
from tilewright.ir.op import REGISTRY, Fold, Kind, Op
from tilewright.ir.ops.attention import (
    attention,
    attention_args,
    attention_key_grad,
    attention_logsumexp,
    attention_query_grad,
    attention_total,
    attention_value_grad,
    attention_wide,
    cap_slope,
    kept_scale,
    masked_scores,
)
from tilewright.ir.ops.contraction import product
from tilewright.ir.ops.movement import transpose

from ..kernel import (
    Buffer,
    Dot,
    Kernel,
    Reduce,
    Store,
    Value,
)
from ..kernel import index as ix
from ..kernel.domain import Domain, Place
from ..kernel.index import Axis
from . import movement
from .lowering import Lowering
from .movement import narrow

ops.sub, ops.mul, ops.exp, ops.eq, ops.where = (
    REGISTRY[name] for name in ("sub", "mul", "exp", "eq", "where")
)


def attention_base(node: Node) -> Node | None:
    """The record of attention that `node` is, or whose result it moves."""
    while movement.is_bijection(node):
        node = node.operands[0]
    return node if node.op.kind is Kind.ATTENTION else None


def lower_attention(
    anchors: Sequence[Node],
    buffer: Callable[[Node], Buffer],
    source: Callable[[Node], Buffer | None],
    rounds: bool = True,
) -> tuple[Kernel, Lowering]:
    """The kernel of `anchors`: records of attention with the same operands, or one such record
    behind movement that only changes the places of its elements in memory."""
    bases = [_base(anchor) for anchor in anchors]
    by_key = all(base.op in (attention_key_grad, attention_value_grad) for base in bases)
    template = _Template(bases[0], source, by_key, rounds)
    stores = tuple(template.store(anchor, buffer(anchor)) for anchor in anchors)
    domain = template.lowering.domain
    return Kernel("", domain.parallel, domain.reduction, stores), template.lowering


def _base(anchor: Node) -> Node:
    base = attention_base(anchor)
    assert base is not None
    return base


class _Template:
    """The values of one kernel. Batch axes of one point are left out; no other axis has one."""

    def __init__(
        self, node: Node, source: Callable[[Node], Buffer | None], by_key: bool, rounds: bool
    ):
        self.args = a = attention_args(*node.operands, *node.attrs)
        *batch, rows, keys = a.scores_shape
        rank = len(batch)
        shape = (*batch, rows, keys, a.q.shape[-1], a.v.shape[-1])
        domain = Domain(shape, tuple(range(rank if a.rows else rank + 1, len(shape))))
        self.batch: Place = tuple(map(ix.of, domain.axes[:rank]))
        self.i, self.j, self.e, self.c = domain.axes[rank:]
        self.lowering = Lowering(domain, source, rounds)
        self.wide = accumulator(a.q.dtype)
        self.scale, factor = (self.lowering.constant(x, self.wide) for x in (a.scale, a.factor))
        q = self.at(a.q, self.i, self.e)
        self.q = self.apply(ops.mul, q, factor)
        self.scaled_q = self.apply(ops.mul, q, self.scale) if a.cap else self.q
        self.k = self.at(a.k, self.j, self.e)
        self.v = self.at(a.v, self.j, self.c)
        self.scores = self._scores(node.loc, by_key)
        self.results: dict[Node, tuple[Value, Axis, Axis | None]] = {}

    # The operands and other parts of the values.

    def at(self, node: Node, *tail: Axis | None) -> Value:
        """The element of an operand at this point of the batch and at `tail`."""
        place = (*self.batch, *(ix.ZERO if axis is None else ix.of(axis) for axis in tail))
        return self.lowering.value(node, narrow(place, node.shape))

    def apply(self, op: Op, *args: Value) -> Value:
        return self.lowering.apply(op, args, bool_ if op is ops.eq else self.wide)

    def dot(self, a: Value, b: Value, over: Axis) -> Value:
        return Dot(a, b, (over,), self.wide, self.args.q.dtype)

    def _scores(self, loc: tuple[str, int], by_key: bool) -> Value:
        a = self.args
        place = (*self.batch, ix.of(self.i), ix.of(self.j))
        before = set_location(loc)
        try:
            with grad_mode(False):
                products = product(a.q, transpose(a.k))
                scores, kept = masked_scores(a, products, by_key), kept_scale(a, self.wide)
                slope = cap_slope(a, products)
        finally:
            set_location(before)
        # Their products are this kernel's own; all else around them is lowered as usual.
        self.lowering.memo[products, place] = self.dot(self.q, self.k, self.e)
        self.kept, self.slope = (
            None if x is None else self.lowering.value(x, place) for x in (kept, slope)
        )
        return self.lowering.value(scores, place)

    def dropped(self, x: Value) -> Value:
        return x if self.kept is None else self.apply(ops.mul, x, self.kept)

    @cached_property
    def rows(self) -> Value:
        """The rows' logsumexp, 0 for a query that sees nothing: its weights are exp(-inf - 0)."""
        if self.args.rows:
            return self.at(self.args.rows[0], self.i, None)
        nothing, zero = (self.lowering.constant(x, self.wide) for x in (-math.inf, 0.0))
        return self.apply(ops.where, self.apply(ops.eq, self.total, nothing), zero, self.total)

    @cached_property
    def total(self) -> Value:
        """The logsumexp of the scores, in a forward kernel."""
        return Reduce(Fold.LOGSUMEXP, self.scores, (self.j,), self.wide)

    @cached_property
    def weights(self) -> Value:
        return self.apply(ops.exp, self.apply(ops.sub, self.scores, self.rows))

    @cached_property
    def g(self) -> Value:
        return self.at(self.args.rows[2], self.i, self.c)

    @cached_property
    def scores_grad(self) -> Value:
        back = self.dropped(self.dot(self.g, self.v, self.c))
        delta = self.at(self.args.rows[1], self.i, None)
        found = self.apply(ops.mul, self.weights, self.apply(ops.sub, back, delta))
        return found if self.slope is None else self.apply(ops.mul, found, self.slope)

    def store(self, anchor: Node, buffer: Buffer) -> Store:
        base = _base(anchor)
        if base not in self.results:  # one result may be stored at several places
            self.results[base] = _RESULTS[base.op](self)
        self.lowering.nodes[base] = None
        value, *tail = self.results[base]
        place = (*self.batch, *(ix.ZERO if axis is None else ix.of(axis) for axis in tail))
        return self.lowering.stored(anchor, base, place, value, buffer)


# The value of each record, and the axes of its shape behind the batch.
_RESULTS: dict[Op, Callable[[_Template], tuple[Value, Axis, Axis | None]]] = {
    attention: lambda t: (t.dot(t.dropped(t.weights), t.v, t.j), t.i, t.c),
    attention_wide: lambda t: (t.dot(t.dropped(t.weights), t.v, t.j), t.i, t.c),
    attention_logsumexp: lambda t: (t.rows, t.i, None),
    attention_total: lambda t: (t.total, t.i, None),
    attention_query_grad: lambda t: (
        t.apply(ops.mul, t.dot(t.scores_grad, t.k, t.j), t.scale),
        t.i,
        t.e,
    ),
    attention_key_grad: lambda t: (t.dot(t.scores_grad, t.scaled_q, t.i), t.j, t.e),
    attention_value_grad: lambda t: (t.dot(t.dropped(t.weights), t.g, t.i), t.j, t.c),
}


# The kernel's parts, for emitters.
