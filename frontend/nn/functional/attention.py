"""Attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import bool_
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ...functions.promotion import to
from ...functions.sampling import draw
from ...recording import record
from ...recording.builders import LOWER, builder
from .attention_checks import check_static, checked_weights

if TYPE_CHECKING:
    from ..._tensor import Tensor


def _attend_name(args: Sequence[Any]) -> str:
    """PyTorch has a kernel for batches of heads on the CPU; other calls are products."""
    q, dropout = args[0], args[6]
    by_kernel = q.rank == 4 and not dropout
    return f"{'ScaledDotProductFlashAttentionForCpu' if by_kernel else 'UnsafeView'}Backward0"


@builder("scaled_dot_product_attention", casts=LOWER, gradient=_attend_name)
def _attend(
    q: Node,
    k: Node,
    v: Node,
    mask: Node | None,
    seed: Node | None,
    offset: Node | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Node:
    if grouped:
        k, v = (repeated_heads(n, q.shape[-3]) for n in (k, v))
    return ops.scaled_dot_product_attention(
        q, k, v, mask,
        causal=causal, scale=scale, dropout=dropout, seed=seed, offset=offset,
    )  # fmt: skip


@builder("scaled_dot_product_attention", casts=LOWER)
def _attend_capped(q: Node, k: Node, v: Node, mask: Node | None, scale: float, cap: float) -> Node:
    return ops.scaled_dot_product_attention(q, k, v, mask, scale=scale, cap=cap)


def repeated_heads(x: Node, heads: int) -> Node:
    own = x.shape[-3]
    if heads % own:
        raise RuntimeError(
            f"Number of heads in key and value must divide the number of heads in query, got {own} "
            f"and {heads}{at_user_line()}"
        )
    lead, tail = x.shape[:-3], x.shape[-2:]
    wide = ops.expand(ops.unsqueeze(x, x.rank - 2), (*lead, own, heads // own, *tail))
    return ops.reshape(wide, (*lead, heads, *tail))


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale query key^T + mask) value, of query[…, L, E], key[…, S, E], value[…, S, Ev].

    attn_mask: bool (True may be seen) or added to the scores. is_causal: row i sees the columns up
        to i, of those that `attn_mask` shows. scale is 1 / sqrt(E) by default.
    """
    seed, offset = draw() if dropout_p else (None, None)
    return record(
        _attend, query, key, value, attn_mask, seed, offset,
        float(dropout_p), bool(is_causal), None if scale is None else float(scale),
        bool(enable_gqa),
    )  # fmt: skip


def capped_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, scale: float, cap: float
) -> Tensor:
    """scaled_dot_product_attention whose scores pass through cap * tanh(score / cap) before the
    mask. A cap of 0 is none."""
    return record(_attend_capped, query, key, value, attn_mask, scale, float(cap))


# Multi-head attention.


def _heads(x: Node, heads: int) -> Node:
    """[L, N, E] to [N, heads, L, E / heads]."""
    length, batch, width = x.shape
    split = ops.reshape(x, (length, batch, heads, width // heads))
    return ops.permute(split, (1, 2, 0, 3))


def _slices(x: Node, parts: int) -> list[Node]:
    """Equal parts of dimension 0."""
    size = x.shape[0] // parts
    return [ops.slice_axis(x, 0, i * size, (i + 1) * size) for i in range(parts)]


def _projected(
    inputs: Sequence[Node], weights: tuple[Node | None, ...], bias: Node | None
) -> list[Node]:
    whole, *each = weights
    biases: list[Any] = [()] * 3 if bias is None else [(b,) for b in _slices(bias, 3)]
    if whole is not None and inputs[0] is inputs[1] is inputs[2]:
        # Self-attention: one product for all three.
        y = ops.linear(inputs[0], whole, *(() if bias is None else (bias,)))
        width = y.shape[-1] // 3
        return [ops.slice_axis(y, 2, i * width, (i + 1) * width) for i in range(3)]
    parts = _slices(whole, 3) if whole is not None else each
    return [ops.linear(x, w, *b) for x, w, b in zip(inputs, parts, biases, strict=True)]  # type: ignore[arg-type]


def _joined(mask: Node | None, other: Node | None, dtype: Any) -> Node | None:
    """Two masks as one: bool, True for what may be seen, or numbers to add."""
    if mask is None or other is None:
        return other if mask is None else mask
    if mask.dtype is bool_ and other.dtype is bool_:
        return ops.bitwise_and(mask, other)

    def added(m: Node) -> Node:
        if m.dtype is not bool_:
            return to(m, dtype)
        zero = ops.constant(0, dtype)
        return ops.where(m, zero, ops.constant(-math.inf, dtype))

    return added(mask) + added(other)


def _seen(mask: Node) -> Node:
    """Negate a mask: multi-head attention in PyTorch masks what may not be seen."""
    return ops.logical_not(mask) if mask.dtype is bool_ else mask


def _multi_head_name(args: Sequence[Any]) -> str:
    if args[0].rank == 2:
        return "SqueezeBackward1"
    return "TransposeBackward0" if args[-1] else "ViewBackward0"


@builder("multi_head_attention_forward", casts=LOWER, gradient=_multi_head_name)
def _multi_head(*args: Any) -> Any:
    (
        query, key, value, in_weight, q_weight, k_weight, v_weight, in_bias, bias_k, bias_v,
        static_k, static_v, out_weight, out_bias, padding, mask, seed, offset, heads, zero_attn,
        dropout, causal, need_weights, average, batch_first,
    ) = args  # fmt: skip
    alone = query.rank == 2
    same = query is key is value
    inputs: list[Node] = []
    for x in (query, key, value):
        if same and inputs:
            inputs.append(inputs[0])
            continue
        if alone:
            x = ops.unsqueeze(x, 1)
        elif batch_first:
            x = ops.transpose(x, 0, 1)
        inputs.append(x)
    length, batch, width = inputs[0].shape
    if width % heads:
        raise AssertionError(
            f"embed_dim {width} not divisible by num_heads {heads}{at_user_line()}"
        )
    weights = (in_weight, q_weight, k_weight, v_weight)
    q, k, v = _projected(inputs, weights, in_bias)
    if padding is not None:
        padding = _seen(ops.unsqueeze(padding, 0) if alone else padding)
    if mask is not None:
        mask = _seen(mask)
    extra = 0
    if bias_k is not None:
        k = ops.cat([k, ops.expand(bias_k, (1, batch, bias_k.shape[-1]))], 0)
        v = ops.cat([v, ops.expand(bias_v, (1, batch, bias_v.shape[-1]))], 0)
        extra += 1
    q = _heads(q, heads)
    k, v = (
        _heads(x, heads)
        if static is None
        else ops.reshape(static, (batch, heads, *static.shape[1:]))
        for x, static in ((k, static_k), (v, static_v))
    )
    if zero_attn:
        zero = ops.constant(0, k.dtype)
        k, v = (ops.pad(x, (0, 0, 0, 0), (0, 0, 1, 0), value=zero) for x in (k, v))
        extra += 1
    if extra:
        # Added keys may always be seen.
        def longer(m: Node) -> Node:
            value = ops.constant(True if m.dtype is bool_ else 0, m.dtype)
            return ops.pad(m, (0,) * m.rank, (*(0,) * (m.rank - 1), extra), value=value)

        padding = None if padding is None else longer(padding)
        mask = None if mask is None else longer(mask)
    if padding is not None:
        padding = ops.reshape(padding, (batch, 1, 1, padding.shape[-1]))
    if mask is not None and mask.rank == 3:
        mask = ops.reshape(mask, (batch, heads, *mask.shape[1:]))
    seen = _joined(mask, padding, q.dtype)
    if need_weights:
        scores = ops.matmul(q / math.sqrt(q.shape[-1]), ops.transpose(k))
        if seen is not None:
            if seen.dtype is bool_:
                scores = ops.where(seen, scores, ops.constant(-math.inf, scores.dtype))
            else:
                scores = scores + to(seen, scores.dtype)
        attention = ops.softmax(scores, scores.rank - 1)
        if dropout:
            attention = ops.dropout(attention, seed, offset, dropout)
        mixed = ops.matmul(attention, v)
    else:
        mixed = ops.scaled_dot_product_attention(
            q, k, v, seen, causal=causal and seen is None, dropout=dropout, seed=seed, offset=offset
        )
    mixed = ops.reshape(ops.permute(mixed, (2, 0, 1, 3)), (length, batch, width))
    out = ops.linear(mixed, out_weight, *(() if out_bias is None else (out_bias,)))
    if alone:
        out = ops.squeeze(out, (1,))
    elif batch_first:
        out = ops.transpose(out, 0, 1)
    if not need_weights:
        return out
    if average:
        attention = ops.squeeze(ops.mean(attention, (1,)), (1,))
    return out, ops.squeeze(attention, (0,)) if alone else attention


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads between projections of query[L, N, E], key and value[S, N, …].

    static_k, static_v: [N * heads, S, E / heads], in the place of the projected key and value.
    Returns the output and, with need_weights, the weights [N, L, S] (or [N, heads, L, S]).
    """
    if query.shape[-1] != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {query.shape[-1]}"
            f"{at_user_line()}"
        )
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    whole, *each = checked_weights(in_proj_weight, separate, use_separate_proj_weight)
    batch = 1 if query.dim() == 2 else query.shape[0 if batch_first else 1]
    sizes = (batch * num_heads, embed_dim_to_check // num_heads)
    check_static("key", static_k, bias_k, sizes)
    check_static("value", static_v, bias_v, sizes)
    if is_causal and attn_mask is None:
        raise RuntimeError(f"Need attn_mask if specifying the is_causal hint.{at_user_line()}")
    dropout = float(dropout_p) if training else 0.0
    seed, offset = draw() if dropout else (None, None)
    # If nothing else is masked, the hint spares reading the mask.
    hint = is_causal and not need_weights and key_padding_mask is None
    result = record(
        _multi_head, query, key, value, whole, *each, in_proj_bias, bias_k, bias_v, static_k,
        static_v, out_proj_weight, out_proj_bias, key_padding_mask, None if hint else attn_mask,
        seed, offset, num_heads, bool(add_zero_attn), dropout, bool(hint), bool(need_weights),
        bool(average_attn_weights), bool(batch_first),
    )  # fmt: skip
    return result if need_weights else (result, None)
