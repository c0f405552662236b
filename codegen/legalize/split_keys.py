"""Attention of few queries to many keys, as in decoding: keys in parts, whose results are joined.

A program owns queries and walks along keys, so few queries would leave most of a GPU idle. With
z_p the logsumexp of part p's scores and y_p its result, the whole has z = logsumexp_p z_p and
y = sum_p exp(z_p - z) y_p (Dao et al., Flash-Decoding, 2023). Parts are cut by size alone, and
their results aren't rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.attention import (
    AttentionArgs,
    attention,
    attention_args,
    attention_attrs,
    attention_logsumexp,
    attention_total,
    attention_wide,
)
from tilewright.ir.ops.composite import as_dtype
from tilewright.ir.rewrite import on

from ..target import Target
from .templates import has_template

_ROWS = 64
"""The least queries of a program's tile."""
_EVEN = 128
"""Keys of a part are a multiple: blocks of keys end with it."""
_LEAST = 256
"""The least keys of a part."""
_FULL = 2
"""Programs of each multiprocessor that keep memory busy."""


@on(attention, attention_logsumexp)
@dataclass(frozen=True)
class SplitKeys:
    """Splits the keys of attention whose programs are too few to keep the machine busy. With
    dropout, causal masks or ranges of keys a key's place counts: these stay as they are. So does a
    single query, which has no template: its products have programs enough."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        if not self.target.split_keys or not has_template(node, self.target):
            return None
        a = attention_args(*node.operands, *node.attrs)
        size = self._size(a)
        if size is None or a.causal or a.spans or a.dropout:
            return None
        keys = a.k.shape[-2]
        even = keys // size * size
        parts = [_parts(a, 0, even, size)]
        if even < keys:
            parts.append(_parts(a, even, keys, keys - even))
        totals, results = (ops.cat(list(each), 0) for each in zip(*parts, strict=True))
        return _joined(totals, results, node)

    def _size(self, a: AttentionArgs) -> int | None:
        """The keys of a part; None if there are programs enough, or too few keys."""
        queries, keys = a.scores_shape[-2:]
        programs = math.prod(a.batch) * -(-queries // _ROWS)
        if not programs or 2 * programs > self.target.chip.multiprocessors:
            return None
        least = max(2, -(-_FULL * self.target.chip.multiprocessors // programs))
        most = min(2 * least, keys // _LEAST)
        if most < 2:
            return None
        for parts in range(least, most + 1):
            if keys % (parts * _EVEN) == 0:
                return keys // parts
        parts = min(least, most)
        return max(_LEAST, keys // (parts * _EVEN) * _EVEN)


def _parts(a: AttentionArgs, first: int, stop: int, size: int) -> tuple[Node, Node]:
    """(logsumexp, result) of each part of the keys first … stop - 1, along a dimension of their own
    in front of all others: heads that share keys stay neighbours."""
    count = (stop - first) // size
    rank = len(a.batch) + 2

    def whole(x: Node) -> Node:
        return ops.reshape(x, (*(1,) * (rank - x.rank), *x.shape))

    def cut(x: Node, axis: int) -> Node:
        x = ops.slice_axis(whole(x), axis, first, stop)
        x = ops.reshape(x, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
        return ops.permute(x, (axis, *(i for i in range(rank + 1) if i != axis)))

    operands = [ops.unsqueeze(whole(a.q), 0), cut(a.k, rank - 2), cut(a.v, rank - 2)]
    if a.mask is not None:
        one = a.mask.rank == 0 or a.mask.shape[-1] == 1
        operands.append(ops.unsqueeze(whole(a.mask), 0) if one else cut(a.mask, rank - 1))
    attrs = attention_attrs(a.scale, cap=a.cap, has_mask=a.mask is not None)
    return attention_total(*operands, *attrs), attention_wide(*operands, *attrs)


def _joined(totals: Node, results: Node, node: Node) -> Node:
    """The result of all parts, or their logsumexp, as `node` has it; 0 where nothing is seen."""
    nothing = ops.constant(-math.inf, totals.dtype)
    top = ops.max(totals, (0,))
    top = ops.where(ops.eq(top, nothing), ops.zeros_like(top), top)
    shares = ops.exp(totals - top)
    sums = ops.sum(shares, (0,))
    blind = ops.eq(sums, ops.zeros_like(sums))
    if node.op is attention_logsumexp:
        found = ops.where(blind, sums, top + ops.log(sums))
    else:
        one = ops.constant(1, sums.dtype)
        found = ops.sum(results * shares, (0,)) / ops.where(blind, one, sums)
    return as_dtype(ops.reshape(found, node.shape), node.dtype)
