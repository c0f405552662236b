"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..dtype import BOOL, DType, accumulator
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size, broadcast
from .binary import bitwise_and, eq
from .composite import as_dtype, composite, like_first, require_float, widen
from .contraction import matmul, product
from .generate import constant, iota
from .movement import expand, reshape, sum_to, transpose
from .random import keep_scale
from .reduce import max, sum
from .ternary import where
from .unary import exp, full_like, log, tanh, zeros_like


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

# Every record here has the operands (q, k, v, mask?, four spans?, seed?, offset?); its attrs tell
# which are there. A gradient has three more: the rows' logsumexp, their sum of g * out, and g.
_PARAMS = ("scale", "cap", "causal", "dropout", "has_mask", "has_spans")


@dataclass(frozen=True)
class AttentionArgs:
    """The operands and attrs of a record of attention, by name.

    cap: the bound c of scores that pass through c * tanh(score / c) before masks; 0 for none.
    spans: (first[L], stop[L], first[S], stop[S]) or (): query i sees keys first[i] <= j < stop[i].
        The second pair says the same by key: queries first[j] <= i < stop[j] see key j.
    rows: (logsumexp[..., L, 1], sum of g * out[..., L, 1], g[..., L, Ev]) of a gradient, else ().
    """

    q: Node
    k: Node
    v: Node
    mask: Node | None
    spans: tuple[Node, ...]
    draw: tuple[Node, ...]
    rows: tuple[Node, ...]
    scale: float
    cap: float
    causal: bool
    dropout: float

    @property
    def factor(self) -> float:
        """What products of queries and keys are scaled by, before they are capped."""
        return self.scale / self.cap if self.cap else self.scale

    @property
    def batch(self) -> Size:
        return broadcast(self.q.shape[:-2], self.k.shape[:-2], self.v.shape[:-2])

    @property
    def scores_shape(self) -> Size:
        return Size((*self.batch, self.q.shape[-2], self.k.shape[-2]))


def attention_args(*args: Any) -> AttentionArgs:
    """The operands and attrs of a record, by name."""
    q, k, v, *nodes, scale, cap, causal, dropout, has_mask, has_spans = args
    rest = iter(nodes)
    mask = next(rest) if has_mask else None
    spans = tuple(islice(rest, 4 if has_spans else 0))
    draw = tuple(islice(rest, 2 if dropout else 0))
    return AttentionArgs(q, k, v, mask, spans, draw, tuple(rest), scale, cap, causal, dropout)


def attention_attrs(
    scale: float,
    *,
    cap: float = 0.0,
    causal: bool = False,
    dropout: float = 0.0,
    has_mask: bool = False,
    has_spans: bool = False,
) -> tuple[float, float, bool, float, bool, bool]:
    """The attrs of a record, in their order."""
    return float(scale), float(cap), bool(causal), float(dropout), has_mask, has_spans


def _attention_infer(*args: Any) -> Aval:
    name = "scaled_dot_product_attention"
    a = attention_args(*args)
    q, k, v, mask = a.q, a.k, a.v, a.mask
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
    scores = a.scores_shape
    lengths = scores[-2:]
    if any(x.shape != (n,) for x, n in zip(a.spans, (*lengths[:1] * 2, *lengths[1:] * 2))):
        raise RuntimeError(
            f"{name}: expected spans of shapes ({lengths[0]},) and ({lengths[1]},), "
            f"got {[tuple(x.shape) for x in a.spans]}{at_user_line()}"
        )
    if mask is not None:
        if mask.dtype.category != BOOL:
            require_float(name, mask)
        if broadcast(scores, mask.shape) != scores:
            raise RuntimeError(
                f"{name}: a mask of shape {tuple(mask.shape)} doesn't broadcast to the scores' "
                f"{tuple(scores)}{at_user_line()}"
            )
    return Size((*a.batch, q.shape[-2], v.shape[-1])), q.dtype


def capped_scores(a: AttentionArgs, products: Node) -> Node:
    """The scores from products of queries and keys times `a.factor`, before masks."""
    return tanh(products) * a.cap if a.cap else products


def cap_slope(a: AttentionArgs, products: Node) -> Node | None:
    """How much a capped score grows with the one that is not; None where nothing is capped."""
    if not a.cap:
        return None
    share = tanh(products)
    return constant(1, products.dtype) - share * share


def masked_scores(a: AttentionArgs, products: Node, by_key: bool = False) -> Node:
    """The scores from products of queries and keys times `a.factor`: -inf where nothing is seen.

    by_key: whether to use the spans of keys instead of those of queries.
    """
    scores, mask = capped_scores(a, products), a.mask
    nothing = constant(-math.inf, scores.dtype)
    queries, keys = a.scores_shape[-2:]
    row = reshape(iota(queries), (queries, 1))
    if a.causal:
        scores = where(row >= iota(keys), scores, nothing)
    if a.spans and by_key:
        first, stop = a.spans[2:]
        scores = where(bitwise_and(row >= first, row < stop), scores, nothing)
    elif a.spans:
        first, stop = (reshape(x, (queries, 1)) for x in a.spans[:2])
        scores = where(bitwise_and(iota(keys) >= first, iota(keys) < stop), scores, nothing)
    if mask is not None and mask.dtype.category == BOOL:
        scores = where(mask, scores, nothing)
    elif mask is not None:
        scores = scores + as_dtype(mask, scores.dtype)
    return scores


def kept_scale(a: AttentionArgs, dtype: DType) -> Node | None:
    """The factors by which dropout multiplies weights; None without dropout."""
    if not a.dropout:
        return None
    seed, offset = a.draw
    return keep_scale(seed, offset, a.scores_shape, dtype, a.dropout)


def _dropped(a: AttentionArgs, x: Node) -> Node:
    kept = kept_scale(a, x.dtype)
    return x if kept is None else x * kept


def _products(a: AttentionArgs) -> Node:
    # The scale applies to products in float32: a float16 might not hold them.
    return product(a.q, transpose(a.k)) * a.factor


def _scores(a: AttentionArgs) -> Node:
    return masked_scores(a, _products(a))


def _weights(a: AttentionArgs) -> Node:
    scores = _scores(a)
    return safe_softmax(scores, scores.rank - 1)


def _attention(*args: Any) -> Node:
    a = attention_args(*args)
    return matmul(as_dtype(_dropped(a, _weights(a)), a.v.dtype), a.v)


def _attention_vjp(g: Node, out: Node, *args: Any) -> Any:
    return _cotangents(ATTENTION_GRADS, sum(widen(g) * widen(out), (out.rank - 1,)), g, *args)


def _total_vjp(g: Node, out: Node, *args: Any) -> Any:
    # A score's share of its row's logsumexp is its weight p. Without a cotangent of attention's
    # result that of a score, p * (product - delta), is p * g for delta = -g.
    a = attention_args(*args)
    nothing = expand(constant(0, a.q.dtype), Size((*a.batch, a.q.shape[-2], a.v.shape[-1])))
    return _cotangents(ATTENTION_GRADS[:2], -g, nothing, *args)


def _cotangents(grads: Sequence[Op], delta: Node, g: Node, *args: Any) -> Any:
    """Those of the first operands, from g and what its rows subtract from its products with v."""
    a = attention_args(*args)
    if a.mask is not None and a.mask.requires_grad:
        return NotImplemented  # the mask's gradient is as large as the scores: nothing is saved
    rows = attention_logsumexp(*args), delta, g
    nodes, attrs = args[: -len(_PARAMS)], args[-len(_PARAMS) :]
    parts = [
        sum_to(grad(*nodes, *rows, *attrs), x.shape) if x.requires_grad else None
        for grad, x in zip(grads, (a.q, a.k, a.v))
    ]
    return *parts, *(None for _ in nodes[len(parts) :])


def _record(
    name: str, infer: Callable[..., Aval], decompose: Callable[..., Node], **more: Any
) -> Op:
    return Op(name, Kind.ATTENTION, infer, params=_PARAMS, decompose=decompose, cost=40, **more)


attention = _record(
    "attention",
    _attention_infer,
    _attention,
    vjp=_attention_vjp,
    aten="scaled_dot_product_attention",
)


def _wide_infer(*args: Any) -> Aval:
    shape, dtype = _attention_infer(*args)
    return shape, accumulator(dtype)


def _attention_wide(*args: Any) -> Node:
    a = attention_args(*args)
    return product(as_dtype(_dropped(a, _weights(a)), a.v.dtype), a.v)


attention_wide = _record("attention_wide", _wide_infer, _attention_wide)
"""attention whose result isn't rounded: float32 for half types. It has no gradient."""


def _logsumexp_infer(*args: Any) -> Aval:
    (*batch, rows, _), dtype = _attention_infer(*args)
    return Size((*batch, rows, 1)), accumulator(dtype)


def _logsumexp(*args: Any) -> Node:
    scores = _scores(attention_args(*args))
    axes = (scores.rank - 1,)
    if 0 in scores.shape:
        return full_like(sum(scores, axes), 0)
    top = max(scores, axes)
    empty = eq(top, constant(-math.inf, top.dtype))
    found = top + log(sum(exp(scores - top), axes))
    return where(empty, zeros_like(top), found)


attention_logsumexp = _record("attention_logsumexp", _logsumexp_infer, _logsumexp)
"""attention_logsumexp(operands of attention) -> [..., L, 1]: the logsumexp of each row of scores, 0
where a query sees nothing. float32 for half types."""


def _total(*args: Any) -> Node:
    scores = _scores(attention_args(*args))
    axes = (scores.rank - 1,)
    if 0 in scores.shape:
        return full_like(sum(scores, axes), -math.inf)
    top = max(scores, axes)
    empty = eq(top, constant(-math.inf, top.dtype))
    return top + log(sum(exp(scores - where(empty, zeros_like(top), top)), axes))


attention_total = _record("attention_total", _logsumexp_infer, _total, vjp=_total_vjp)
"""attention_logsumexp that is -inf where a query sees nothing."""


def _gradient(name: str, which: str, decompose: Callable[[AttentionArgs], Node]) -> Op:
    """The record of one cotangent, for the whole batch: broadcasting isn't undone."""

    def infer(*args: Any) -> Aval:
        a = attention_args(*args)
        x = getattr(a, which)
        return Size((*a.batch, *x.shape[-2:])), x.dtype

    aten = "_scaled_dot_product_flash_attention_backward"
    return _record(name, infer, lambda *args: decompose(attention_args(*args)), aten=aten)


def _scores_grad(a: AttentionArgs) -> Node:
    """The cotangent of the scores, in q's dtype. The weights are computed from the scores as in the
    forward pass, so both share these nodes; a template gets them from the rows' logsumexp."""
    _, delta, g = a.rows
    back = _dropped(a, product(g, transpose(a.v)))
    found, slope = _weights(a) * (back - delta), cap_slope(a, _products(a))
    return as_dtype(found if slope is None else found * slope, a.q.dtype)


attention_query_grad = _gradient(
    "attention_query_grad",
    "q",
    lambda a: as_dtype(product(_scores_grad(a), a.k) * a.scale, a.q.dtype),
)
attention_key_grad = _gradient(
    "attention_key_grad",
    "k",
    lambda a: as_dtype(product(transpose(_scores_grad(a)), a.q) * a.scale, a.k.dtype),
)
attention_value_grad = _gradient(
    "attention_value_grad",
    "v",
    lambda a: matmul(transpose(as_dtype(_dropped(a, _weights(a)), a.v.dtype)), a.rows[2]),
)
ATTENTION_GRADS = (attention_query_grad, attention_key_grad, attention_value_grad)


def scaled_dot_product_attention(
    q: Node,
    k: Node,
    v: Node,
    mask: Node | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    cap: float = 0.0,
    dropout: float = 0.0,
    seed: Node | None = None,
    offset: Node | None = None,
    spans: Sequence[Node] = (),
) -> Node:
    """softmax(scale q k^T + mask) v for q[..., L, E], k[..., S, E], v[..., S, Ev]; Vaswani et al.,
    arXiv 1706.03762.

    A bool mask tells what may be seen, a float mask is added. `causal` lets query i see keys 0 … i,
    `spans` a range of keys (see AttentionArgs); a template walks along that range only. A query
    that sees nothing gets zeros. `scale` is 1 / sqrt(E) by default. With a `cap` c, scores are
    c * tanh(scale q k^T / c) before masks. `dropout` zeroes a share of the
    weights, drawn by `seed` and `offset`. The softmax of half types is taken in float32.

    The gradient computes the weights again from each row's logsumexp, the only trace of the scores
    that is kept (Dao et al., arXiv 2205.14135). So a target that has a template for
    `Kind.ATTENTION` never holds the scores; other targets compute the primitives that the records
    decompose into.
    """
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    extra = [*(() if mask is None else (mask,)), *spans]
    if dropout:
        assert seed is not None and offset is not None, "dropout is drawn by a seed and an offset"
        extra += [seed, offset]
    kinds = {"has_mask": mask is not None, "has_spans": bool(spans)}
    attrs = attention_attrs(scale, cap=cap, causal=causal, dropout=dropout, **kinds)
    return attention(q, k, v, *extra, *attrs)
