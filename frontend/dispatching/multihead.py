"""Attention of several heads, as PyTorch has it over functions that ask."""

from __future__ import annotations

from typing import Any

from . import late
from .layers import unasked


def attention(
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Any, in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool,
    dropout_p: float, out_proj_weight: Any, out_proj_bias: Any, training: bool = True,
    key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None,
    v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None,
    average_attn_weights: bool = True, is_causal: bool = False, batch_first: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    top = late.top()
    functional = top.nn.functional
    others = (bias_k, bias_v, static_k, static_v)
    if any(t is not None for t in others) or add_zero_attn or (dropout_p and training):
        return unasked(  # type: ignore[no-any-return]
            functional.multi_head_attention_forward, query, key, value, embed_dim_to_check,
            num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p,
            out_proj_weight, out_proj_bias, training, key_padding_mask, need_weights, attn_mask,
            use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, static_k,
            static_v, average_attn_weights, is_causal, batch_first,
        )  # fmt: skip
    is_one, width = query.dim() == 2, embed_dim_to_check
    is_self = query is key is value
    given = [query] if is_self else [query, key, value]
    if is_one:
        given = [t.unsqueeze(1) for t in given]
    elif batch_first:
        given = [t.transpose(1, 0) for t in given]
    if is_self and not use_separate_proj_weight:
        whole = functional.linear(given[0], in_proj_weight, in_proj_bias)
        length, batch, _ = whole.shape
        parts = whole.view([length, batch, 3, width]).unsqueeze(0).transpose(0, -2).squeeze(-2)
        parts = parts.contiguous()
        q, k, v = (parts[i] for i in range(3))
    else:
        weights = [q_proj_weight, k_proj_weight, v_proj_weight]
        weights = weights if use_separate_proj_weight else in_proj_weight.split(width)
        given = given * 3 if is_self else given
        biases = [None] * 3 if in_proj_bias is None else in_proj_bias.split(width)
        q, k, v = map(functional.linear, given, weights, biases)
    (length, batch, _), seen = q.shape, k.shape[0]
    head = width // num_heads
    mask = _mask(top, query, attn_mask, key_padding_mask, (batch, num_heads, length, seen))
    q, k, v = (t.view([t.shape[0], batch * num_heads, head]).transpose(0, 1) for t in (q, k, v))
    weight = None
    if need_weights:
        q = q * head**-0.5
        turned = k.transpose(-2, -1)
        if mask is None:
            scores = top.bmm(q, turned)
        else:
            flat = mask.expand([batch, num_heads, length, seen])
            scores = top.baddbmm(flat.reshape([batch * num_heads, length, seen]), q, turned)
        weight = functional.softmax(scores, dim=-1)
        out = top.bmm(weight, v).transpose(0, 1).reshape([length * batch, width])
        weight = weight.view([batch, num_heads, length, seen])
        weight = weight.mean([1]) if average_attn_weights else weight
    else:
        heads = [t.view([batch, num_heads, t.shape[1], head]) for t in (q, k, v)]
        hint = is_causal and key_padding_mask is None
        found = functional.scaled_dot_product_attention(
            *heads, None if hint else mask, 0.0, is_causal=hint
        )
        out = found.permute([2, 0, 1, 3]).reshape([length * batch, width])
    out = functional.linear(out, out_proj_weight, out_proj_bias).view([length, batch, width])
    if is_one:
        return out.squeeze(1), None if weight is None else weight.squeeze(0)
    return out.transpose(1, 0) if batch_first else out, weight


def _mask(top: Any, query: Any, mask: Any, padding: Any, sizes: tuple[int, int, int, int]) -> Any:
    """What is added to the scores, of shape [batch or 1, heads or 1, length, seen]; or None."""
    batch, heads, length, seen = sizes
    found = []
    if mask is not None:
        shape = [1, 1, length, seen] if mask.dim() == 2 else [batch, heads, length, seen]
        found.append(_added(top, query, mask).view(shape))
    if padding is not None:
        found.append(_added(top, query, padding).view([batch, 1, 1, seen]))
    if len(found) < 2:
        return found[0] if found else None
    return found[0] + found[1]


def _added(top: Any, query: Any, mask: Any) -> Any:
    """A mask as what is added: True hides."""
    if mask.dtype is not top.bool:
        return mask
    return top.zeros_like(mask, dtype=query.dtype).masked_fill_(mask, -top.inf)
