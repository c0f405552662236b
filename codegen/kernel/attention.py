"""The roles of values in an attention kernel: queries, keys, weights, rows."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeGuard

from tilewright.ir import ops
from tilewright.ir.op import Op

from . import Apply, Constant, Dot, Kernel, Load, Position, Reduce, Store, Value, data_values
from . import index as ix
from .index import Axis, Index


@dataclass(frozen=True)
class Span:
    """value: `capped` where first <= along < stop, -inf elsewhere. `along` is the axis of queries
    or of keys; first and stop vary with the other one."""

    value: Apply
    along: Axis
    first: Value
    stop: Value


@dataclass(frozen=True)
class Roles:
    """The role of each value and axis of an attention kernel.

    batch: the parallel axes except that of the queries. query, key, inner, outer: i, j, e and c.
    products: dot(q, k); capped: what masks hide, products or what a cap makes of them; scores:
        these masked; weights: exp(scores - rows), if they are used.
    causal: the value that is `capped` where j <= i and -inf elsewhere, if there is one.
    span: the range of queries or keys outside of which scores are -inf, if there is one.
    total: the logsumexp of the scores, in a forward kernel; back: dot(g, v), in a gradient.
    stores: each store, with the contraction over queries or keys that it stores, if there is one.
    """

    batch: tuple[Axis, ...]
    query: Axis
    key: Axis
    inner: Axis
    outer: Axis
    products: Dot
    capped: Value
    scores: Value
    weights: Apply | None
    causal: Apply | None
    span: Span | None
    total: Reduce | None
    back: Dot | None
    stores: tuple[tuple[Store, Dot | None], ...]

    @property
    def looks_up(self) -> bool:
        """Whether a table says where the keys lie that a kernel walks along."""
        if self.walked is not self.key:
            return False
        loads = (v for v in _beneath(self.products.b) if isinstance(v, Load))
        return any(any(data_values(load.offset)) for load in loads)

    @property
    def widths(self) -> list[Axis]:
        """The axis along a head of each sum over queries or keys that is stored."""
        sums = (dot.axes() for _, dot in self.stores if dot is not None)
        return [self.outer if self.outer in axes else self.inner for axes in sums]

    @property
    def walked(self) -> Axis | None:
        """The axis of all sums, queries or keys; None if there are sums over both."""
        if self.total is not None:
            return self.key
        axes = {axis for _, dot in self.stores if dot is not None for axis in dot.over}
        return axes.pop() if len(axes) == 1 else None


def roles(kernel: Kernel) -> Roles | None:
    """The roles in an attention kernel; None if the kernel is not of that form."""
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
    capped = next((v for v in kernel.values if _caps(v, products)), products)
    causal = next((v for v in kernel.values if _is_causal(v, capped, query, key)), None)
    spans = (_span(v, capped, axis) for v in kernel.values for axis in (query, key))
    span = next(filter(None, spans), None)
    return Roles(
        kernel.parallel[: len(axes) - 4], query, key, inner, outer,
        products, capped, scores, weights, causal, span, total, back, tuple(stores),
    )  # fmt: skip


def _beneath(*roots: Value, stop: Collection[int] = ()) -> list[Value]:
    """`roots` and all values they are computed from, but nothing below ids in `stop`."""
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
    """Whether this is the weights, perhaps times a value that doesn't depend on the scores."""
    if value is weights:
        return True
    if not _is(value, ops.mul) or value.args[0] is not weights:
        return False
    return all(v is not products for v in _beneath(value.args[1]))


def _is_rows(value: Value, total: Reduce) -> bool:
    """Whether this is `total`, with 0 in the place of -inf."""
    if value is total:
        return True
    if (
        not _is(value, ops.where)
        or not _is_constant(value.args[1], 0)
        or value.args[2] is not total
    ):
        return False
    test = value.args[0]
    return _is(test, ops.eq) and test.args[0] is total and _is_constant(test.args[1], -math.inf)


def _caps(value: Value, products: Dot) -> bool:
    """Whether this is c * tanh(products)."""
    if not _is(value, ops.mul) or not isinstance(value.args[1], Constant):
        return False
    return _is(value.args[0], ops.tanh) and value.args[0].args[0] is products


def _hides(value: Value, capped: Value) -> TypeGuard[Apply]:
    """Whether this is `capped` or -inf."""
    if not _is(value, ops.where) or value.args[1] is not capped:
        return False
    return _is_constant(value.args[2], -math.inf)


def _is_causal(value: Value, capped: Value, query: Axis, key: Axis) -> TypeGuard[Apply]:
    if not _hides(value, capped):
        return False
    test = value.args[0]
    return _is(test, ops.ge) and [_place(a) for a in test.args] == [ix.of(query), ix.of(key)]


def _span(value: Value, capped: Value, along: Axis) -> Span | None:
    if not _hides(value, capped) or not _is(value.args[0], ops.bitwise_and):
        return None
    tests = {test.op: test.args for test in value.args[0].args if isinstance(test, Apply)}
    if tests.keys() != {ops.ge, ops.lt}:
        return None
    (low, first), (high, stop) = tests[ops.ge], tests[ops.lt]
    fits = _place(low) == _place(high) == ix.of(along)
    return Span(value, along, first, stop) if fits else None


def _place(value: Value) -> Index | None:
    return value.index if isinstance(value, Position) else None
