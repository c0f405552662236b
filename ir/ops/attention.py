"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..dtype import BOOL
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size, broadcast
from .binary import eq
from .composite import as_dtype, composite, like_first, require_float, widen
from .contraction import matmul
from .generate import constant, iota
from .movement import reshape, transpose
from .random import keep_scale
from .reduce import max, sum
from .ternary import where
from .unary import exp, zeros_like


def _safe_softmax(x: Node, axis: int) -> Node:
    if 0 in x.shape:
        return x
    axes = (axis,)
    top = max(x, axes)
    e = exp(x - where(eq(top, constant(-math.inf, x.dtype)), zeros_like(top), top))
    total = sum(e, axes)
    return e / where(eq(total, zeros_like(total)), constant(1, x.dtype), total)


def _safe_softmax_vjp(g: Node, out: Node, x: Node, axis: int) -> tuple[Node]:
    gy = g * out
    return (gy - out * sum(gy, (axis,)),)


safe_softmax = composite(
    "safe_softmax",
    like_first("safe_softmax"),
    _safe_softmax,
    vjp=_safe_softmax_vjp,
    params=("axis",),
    cost=17,
)
"""safe_softmax(x, axis): softmax, but zero where all of it is -inf (a query that sees no key)."""

# The record's operands are (q, k, v, mask?, seed?, offset?), as its attrs tell.
_PARAMS = ("scale", "causal", "dropout", "has_mask")


def _split(args: Sequence[Any]) -> tuple[Node | None, tuple[Node, ...], tuple[Any, ...]]:
    """mask, (seed, offset), (scale, causal, dropout) of what follows q, k, v."""
    *nodes, scale, causal, dropout, has_mask = args
    mask = nodes[0] if has_mask else None
    return mask, tuple(nodes[1:] if has_mask else nodes), (scale, causal, dropout)


def _attention_infer(q: Node, k: Node, v: Node, *args: Any) -> Aval:
    name = "scaled_dot_product_attention"
    mask, _, _ = _split(args)
    require_float(name, q, k, v)
    if q.dtype is not k.dtype or q.dtype is not v.dtype:
        raise RuntimeError(
            f"{name}: expected query, key and value of one dtype, "
            f"got {q.dtype}, {k.dtype} and {v.dtype}{at_user_line()}"
        )
    fits = min(q.rank, k.rank, v.rank) >= 2
    if not fits or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise RuntimeError(
            f"{name}: expected query (..., L, E), key (..., S, E) and value (..., S, Ev), "
            f"got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}{at_user_line()}"
        )
    batch = broadcast(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    scores = Size((*batch, q.shape[-2], k.shape[-2]))
    if mask is not None:
        if mask.dtype.category != BOOL:
            require_float(name, mask)
        if broadcast(scores, mask.shape) != scores:
            raise RuntimeError(
                f"{name}: a mask of shape {tuple(mask.shape)} doesn't broadcast to the scores' "
                f"{tuple(scores)}{at_user_line()}"
            )
    return Size((*batch, q.shape[-2], v.shape[-1])), q.dtype


def _attention(q: Node, k: Node, v: Node, *args: Any) -> Node:
    mask, draw, (scale, causal, dropout) = _split(args)
    # The query is scaled before the product, whose terms a float16 may not hold otherwise.
    scores = widen(matmul(q * scale, transpose(k)))
    nothing = constant(-math.inf, scores.dtype)
    if causal:
        row = reshape(iota(q.shape[-2]), (q.shape[-2], 1))
        scores = where(row >= iota(k.shape[-2]), scores, nothing)
    if mask is not None and mask.dtype.category == BOOL:
        scores = where(mask, scores, nothing)
    elif mask is not None:
        scores = scores + as_dtype(mask, scores.dtype)
    weights = safe_softmax(scores, scores.rank - 1)
    if dropout:
        seed, offset = draw
        weights = weights * keep_scale(seed, offset, weights.shape, weights.dtype, dropout)
    return matmul(as_dtype(weights, v.dtype), v)


_attention_op = Op(
    "attention",
    Kind.COMPOSITE,
    _attention_infer,
    params=_PARAMS,
    decompose=_attention,
    cost=40,
)


def scaled_dot_product_attention(
    q: Node,
    k: Node,
    v: Node,
    mask: Node | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: Node | None = None,
    offset: Node | None = None,
) -> Node:
    """softmax(scale q k^T + mask) v for q[..., L, E], k[..., S, E], v[..., S, Ev]; Vaswani et al.,
    arXiv 1706.03762.

    A bool mask tells what may be seen, a float mask is added; `causal` lets query i see keys 0 … i.
    A query that sees nothing gets zeros. `scale` is 1 / sqrt(E) by default. With `dropout` a
    share of the weights is zeroed, drawn by `seed` and `offset`. The softmax of half types is taken
    in float32.
    """
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    extra = [] if mask is None else [mask]
    if dropout:
        assert seed is not None and offset is not None, "dropout is drawn by a seed and an offset"
        extra += [seed, offset]
    attrs = (float(scale), bool(causal), float(dropout), mask is not None)
    return _attention_op(q, k, v, *extra, *attrs)
