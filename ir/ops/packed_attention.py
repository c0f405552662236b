"""Attention over sequences of different lengths that lie one after another in one dimension."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..dtype import int64
from ..node import Node
from .attention import attention, attention_attrs, attention_logsumexp
from .binary import bitwise_and, maximum, minimum
from .gather import gather
from .generate import constant, iota
from .movement import expand, permute, reshape, slice_axis
from .reduce import sum
from .ternary import where
from .unary import cast


class Packed(NamedTuple):
    """N > 0 sequences among `total` rows. begin and stop, int64[N], are their bounds."""

    total: int
    begin: Node
    stop: Node


def packed(total: int, bounds: Node, used: Node | None = None) -> Packed:
    """Sequences from bounds[n] to bounds[n + 1]; only the first used[n] rows of each, if given."""
    bounds = cast(bounds, int64)
    count = bounds.shape[0] - 1
    begin, stop = (slice_axis(bounds, 0, i, i + count) for i in (0, 1))
    if used is not None:
        stop = begin + cast(used, int64)
    return Packed(total, begin, stop)


def spans(own: Packed, other: Packed, before: int, after: int) -> tuple[Node, Node]:
    """(first, stop): row i of `own` meets the rows first[i] <= j < stop[i] of `other`.

    Rows meet within their sequence only. The last rows of both sides lie at the same place;
    `before` and `after`, unless negative, limit how many places before and after row i a row may
    lie. A row without a sequence meets none. int64[own.total], within 0 … other.total whatever the
    bounds are.
    """
    row = iota(own.total)
    inner = slice_axis(own.begin, 0, 1, own.begin.shape[0])
    begun = inner <= reshape(row, (own.total, 1))
    # The last sequence that has begun, or the first.
    which = reshape(sum(cast(begun, int64), (1,)), (own.total,))
    begin, stop, first, last = (
        gather(x, which, 0) for x in (own.begin, own.stop, other.begin, other.stop)
    )
    beside = row + last - stop  # the row of `other` that lies where this one lies
    exists = bitwise_and(row >= begin, row < stop)
    if before >= 0:
        first = maximum(first, beside - before)
    if after >= 0:
        last = minimum(last, beside + after + 1)
    last = where(exists, minimum(last, constant(other.total, int64)), first)
    return maximum(first, constant(0, int64)), last


def packed_attention(
    q: Node,
    k: Node,
    v: Node,
    queries: Packed,
    keys: Packed,
    *,
    before: int = -1,
    after: int = -1,
    scale: float,
) -> tuple[Node, Node]:
    """(softmax(scale q k^T) v within each sequence, [T, H, Ev]; the rows' logsumexp, [H, T],
    of float32 for half types).

    q is [T, H, E], k and v are [S, G, E] and [S, G, Ev], and each of the G heads serves H / G of
    the query's. Windows are as in `spans`. A query that sees nothing gets zeros.
    """
    q, k, v = (permute(x, (1, 0, 2)) for x in (q, _repeated(k, q), _repeated(v, q)))
    first, stop = spans(queries, keys, before, after)
    args = (q, k, v, first, stop, *spans(keys, queries, after, before))
    attrs = attention_attrs(scale, has_spans=True)
    total = reshape(attention_logsumexp(*args, *attrs), q.shape[:2])
    total = where(first < stop, total, constant(-math.inf, total.dtype))
    return permute(attention(*args, *attrs), (1, 0, 2)), total


def _repeated(x: Node, q: Node) -> Node:
    """[S, G, E] to [S, H, E]."""
    rows, own, width = x.shape
    heads = q.shape[1]
    wide = expand(reshape(x, (rows, own, 1, width)), (rows, own, heads // own, width))
    return reshape(wide, (rows, heads, width))
