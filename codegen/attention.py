"""Attention: one kernel of contractions around a softmax, which an emitter computes by tiles.

Over parallel axes b (batch and heads) and i (queries), and reduction axes j (keys), e and c (the
elements of a query and of a value), with s = masked dot_e(q[b, i, e], k[b, j, e]), it is

    z = reduce logsumexp_j s;  p = exp(s - z)
    store out[b, i, c] = dot_j(p, v[b, j, c]);  store rows[b, i] = z

and its gradient, with i among the reduction axes and the rows' z and delta = sum(g * out) given,

    p = exp(s - z[b, i]);  d = p * (dot_c(g[b, i, c], v[b, j, c]) - delta[b, i])
    store dq[b, i, e] = dot_j(d, k);  store dk[b, j, e] = dot_i(d, q)
    store dv[b, j, c] = dot_i(p, g)

All between memory and contractions is an ordinary expression: how operands are read, masks, what
dropout does to p, where results are stored. `roles` tells an emitter which value plays which part.
Where each query sees a range of keys, as in packed sequences, the ranges are in memory: by queries,
and by keys for the kernel that owns keys, so that an emitter can walk along what is met alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from tilewright.ir import ops
from tilewright.ir.dtype import accumulator, bool_
from tilewright.ir.node import Node, grad_mode, set_location
from tilewright.ir.op import Fold, Kind, Op
from tilewright.ir.ops.attention import (
    attention,
    attention_args,
    attention_key_grad,
    attention_logsumexp,
    attention_query_grad,
    attention_value_grad,
    kept_scale,
    masked_scores,
)
from tilewright.ir.ops.contraction import product
from tilewright.ir.ops.movement import transpose

from . import index as ix
from . import movement
from .domain import Domain, Place
from .index import Axis, Index
from .kernel import (
    Apply,
    Buffer,
    Constant,
    Dot,
    Kernel,
    Position,
    Reduce,
    Store,
    Value,
    data_values,
)
from .lower import Lowering
from .movement import narrow
from .target import Target

MOST_WIDTH = 256
"""The widest head whose tiles are sure to fit a thread's stack, or a GPU's registers."""


def has_template(node: Node, target: Target) -> bool:
    """Whether a target computes this record of attention as one kernel. What has a size of 0 or 1
    is better off as plain products."""
    a = attention_args(*node.operands, *node.attrs)
    sizes = (*a.q.shape[-2:], *a.k.shape[-2:], a.v.shape[-1])
    fits = max(a.q.shape[-1], a.v.shape[-1]) <= MOST_WIDTH and min(sizes) > 1
    return a.q.dtype.name in target.tiled_attention and fits and 0 not in a.batch


def attention_base(node: Node) -> Node | None:
    """The record of attention that `node` is, or is the moved result of."""
    while movement.is_bijection(node):
        node = node.operands[0]
    return node if node.op.kind is Kind.ATTENTION else None


def lower_attention(
    anchors: Sequence[Node],
    buffer: Callable[[Node], Buffer],
    source: Callable[[Node], Buffer | None],
    rounds: bool = True,
) -> tuple[Kernel, Lowering]:
    """The kernel of `anchors`: records of attention of the same operands, or such a record through
    movement that only changes where its elements are stored."""
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
        self.scale = self.lowering.constant(a.scale, self.wide)
        self.q = self.apply(ops.mul, self.at(a.q, self.i, self.e), self.scale)
        self.k = self.at(a.k, self.j, self.e)
        self.v = self.at(a.v, self.j, self.c)
        self.scores = self._scores(node.loc, by_key)
        self.results: dict[Node, tuple[Value, Axis, Axis | None]] = {}

    # What the values are made of.

    def at(self, node: Node, *tail: Axis | None) -> Value:
        """The element of an operand at this point of the batch and of `tail`."""
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
        finally:
            set_location(before)
        # Their products are this kernel's own; all around them is lowered as it stands.
        self.lowering.memo[products, place] = self.dot(self.q, self.k, self.e)
        self.kept = None if kept is None else self.lowering.value(kept, place)
        return self.lowering.value(scores, place)

    def dropped(self, x: Value) -> Value:
        return x if self.kept is None else self.apply(ops.mul, x, self.kept)

    @cached_property
    def rows(self) -> Value:
        """The rows' logsumexp, 0 for a query that sees nothing: its weights are exp(-inf - 0)."""
        if self.args.rows:
            return self.at(self.args.rows[0], self.i, None)
        total = Reduce(Fold.LOGSUMEXP, self.scores, (self.j,), self.wide)
        nothing, zero = (self.lowering.constant(x, self.wide) for x in (-math.inf, 0.0))
        return self.apply(ops.where, self.apply(ops.eq, total, nothing), zero, total)

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
        return self.apply(ops.mul, self.weights, self.apply(ops.sub, back, delta))

    def store(self, anchor: Node, buffer: Buffer) -> Store:
        base = _base(anchor)
        if base not in self.results:  # it may be stored at several places
            self.results[base] = _RESULTS[base.op](self)
        self.lowering.nodes[base] = None
        value, *tail = self.results[base]
        place = (*self.batch, *(ix.ZERO if axis is None else ix.of(axis) for axis in tail))
        return self.lowering.stored(anchor, base, place, value, buffer)


# What each record is, and the axes that its shape has after the batch.
_RESULTS: dict[Op, Callable[[_Template], tuple[Value, Axis, Axis | None]]] = {
    attention: lambda t: (t.dot(t.dropped(t.weights), t.v, t.j), t.i, t.c),
    attention_logsumexp: lambda t: (t.rows, t.i, None),
    attention_query_grad: lambda t: (
        t.apply(ops.mul, t.dot(t.scores_grad, t.k, t.j), t.scale),
        t.i,
        t.e,
    ),
    attention_key_grad: lambda t: (t.dot(t.scores_grad, t.q, t.i), t.j, t.e),
    attention_value_grad: lambda t: (t.dot(t.dropped(t.weights), t.g, t.i), t.j, t.c),
}


# The kernel's parts, for emitters.


@dataclass(frozen=True)
class Span:
    """value: `products` where first <= along < stop, -inf elsewhere. first and stop vary with the
    other one of queries and keys."""

    value: Apply
    along: Axis
    first: Value
    stop: Value


@dataclass(frozen=True)
class Roles:
    """Which value of an attention kernel plays which part.

    batch: the parallel axes but that of the queries. query, key, inner, outer: i, j, e and c.
    products: dot(q, k); scores: these masked; weights: exp(scores - rows), if they are used.
    causal: the value that is `products` where j <= i and -inf elsewhere, if there is one.
    span: where else than in a range of queries or keys the scores are -inf, if that is so.
    total: the logsumexp of the scores, in a forward kernel; back: dot(g, v), in a gradient.
    stores: each store with the contraction over queries or keys that it is made of, if it is.
    """

    batch: tuple[Axis, ...]
    query: Axis
    key: Axis
    inner: Axis
    outer: Axis
    products: Dot
    scores: Value
    weights: Apply | None
    causal: Apply | None
    span: Span | None
    total: Reduce | None
    back: Dot | None
    stores: tuple[tuple[Store, Dot | None], ...]

    @property
    def walked(self) -> Axis | None:
        """The axis that all sums are over, queries or keys; None if there are sums over both."""
        if self.total is not None:
            return self.key
        axes = {axis for _, dot in self.stores if dot is not None for axis in dot.over}
        return axes.pop() if len(axes) == 1 else None


def roles(kernel: Kernel) -> Roles | None:
    """The parts of an attention kernel; None if a kernel is not of that form."""
    total = next((v for v in kernel.values if isinstance(v, Reduce)), None)
    axes = (*kernel.parallel, *kernel.reduction)
    if len(axes) < 4 or len(kernel.reduction) != (4 if total is None else 3):
        return None
    query, key, inner, outer = axes[-4:]
    dots = [v for v in kernel.values if isinstance(v, Dot)]
    first = [d for d in dots if not any(isinstance(v, Dot) for v in _beneath(*d.operands()))]
    sums = tuple(d for d in dots if d not in first)
    found = {d.over: d for d in first}
    products, back = found.pop((inner,), None), found.pop((outer,), None)
    allowed = {(key,)} if total is not None else {(query,), (key,)}
    if products is None or found or any(d.over not in allowed for d in sums):
        return None
    weights = next((v for v in kernel.values if _weighs(v, products)), None)
    if total is not None:
        scores = total.arg
        rows = None if weights is None else weights.args[0].operands()[1]
        fits = back is None and (rows is None or _is_rows(rows, total))
        fits = fits and all(_is_weighted(d.a, weights, products) for d in sums)
    else:
        fits = weights is not None and total is None
        scores = weights.args[0].operands()[0] if weights is not None else products
    inside = {id(products), id(back), id(scores), id(weights)}
    ends = {id(v) for v in (*sums, total)}
    reached = _beneath(*(s.value for s in kernel.stores), stop=ends)
    placed = query in products.a.axes() and key in products.b.axes()
    if not (fits and placed) or any(id(v) in inside for v in reached):
        return None
    stores = []
    for store in kernel.stores:
        made_of = [d for d in sums if any(v is d for v in _beneath(store.value))]
        if len(made_of) > 1 or (not made_of and total is None):
            return None
        stores.append((store, made_of[0] if made_of else None))
    causal = next((v for v in kernel.values if _is_causal(v, products, query, key)), None)
    spans = (_span(v, products, axis) for v in kernel.values for axis in (query, key))
    span = next(filter(None, spans), None)
    return Roles(
        kernel.parallel[: len(axes) - 4], query, key, inner, outer,
        products, scores, weights, causal, span, total, back, tuple(stores),
    )  # fmt: skip


def _beneath(*roots: Value, stop: Collection[int] = ()) -> list[Value]:
    """`roots` and all they are computed from, not below those whose id is in `stop`."""
    seen: dict[int, Value] = {}
    stack = list(roots)
    while stack:
        value = stack.pop()
        if id(value) in seen or id(value) in stop:
            continue
        seen[id(value)] = value
        stack.extend(value.operands())
        for index in value.indices():
            stack.extend(data_values(index))
    return list(seen.values())


def _is(value: Value, op: Op) -> TypeGuard[Apply]:
    return isinstance(value, Apply) and value.op is op


def _is_constant(value: Value, number: float) -> bool:
    return isinstance(value, Constant) and bool(value.value == number)


def _weighs(value: Value, products: Dot) -> TypeGuard[Apply]:
    """Whether this is exp(scores - rows)."""
    if not _is(value, ops.exp) or not _is(value.args[0], ops.sub):
        return False
    return any(v is products for v in _beneath(value.args[0].args[0]))


def _is_weighted(value: Value, weights: Value | None, products: Dot) -> bool:
    """Whether this is the weights, or these times what the scores don't decide."""
    if value is weights:
        return True
    if not _is(value, ops.mul) or value.args[0] is not weights:
        return False
    return all(v is not products for v in _beneath(value.args[1]))


def _is_rows(value: Value, total: Reduce) -> bool:
    """Whether this is `total`, 0 where that is -inf."""
    if value is total:
        return True
    if not _is(value, ops.where) or value.args[2] is not total:
        return False
    if not _is_constant(value.args[1], 0):
        return False
    test = value.args[0]
    return _is(test, ops.eq) and test.args[0] is total and _is_constant(test.args[1], -math.inf)


def _hides(value: Value, products: Dot) -> TypeGuard[Apply]:
    """Whether this is `products` or -inf."""
    if not _is(value, ops.where) or value.args[1] is not products:
        return False
    return _is_constant(value.args[2], -math.inf)


def _is_causal(value: Value, products: Dot, query: Axis, key: Axis) -> TypeGuard[Apply]:
    if not _hides(value, products):
        return False
    test = value.args[0]
    return _is(test, ops.ge) and [_place(a) for a in test.args] == [ix.of(query), ix.of(key)]


def _span(value: Value, products: Dot, along: Axis) -> Span | None:
    if not _hides(value, products) or not _is(value.args[0], ops.bitwise_and):
        return None
    tests = {test.op: test.args for test in value.args[0].args if isinstance(test, Apply)}
    if tests.keys() != {ops.ge, ops.lt}:
        return None
    (low, first), (high, stop) = tests[ops.ge], tests[ops.lt]
    fits = _place(low) == _place(high) == ix.of(along)
    return Span(value, along, first, stop) if fits else None


def _place(value: Value) -> Index | None:
    return value.index if isinstance(value, Position) else None
