"""Attention and what stands beside it in a transformer: rotations, caches, recurrent forms."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir import dtype as dtypes

from ...functions import creation, ranges
from ...nn.functional.attention import capped_attention
from .api import F, f
from .table import operator
from .values import dtype_of


def heads_apart(x: Any, heads: int | None) -> Any:
    """[n, time, heads * size] as [n, heads, time, size]; four dimensions as they are."""
    if x.dim() == 4:
        return x
    if heads is None:
        raise ValueError("three dimensions need q_num_heads and kv_num_heads")
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


@operator("Attention")
def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    outputs: int,
) -> Any:
    """Attention with a cache, groups of heads, windows and a cap of the scores.

    The scores themselves are computed only if something asks for them; else a fused kernel takes
    everything.
    """
    packed = query.dim() == 3
    q = heads_apart(query, q_num_heads)
    k, v = heads_apart(key, kv_num_heads), heads_apart(value, kv_num_heads)
    if past_key is not None:
        k, v = f.cat([past_key, k], 2), f.cat([past_value, v], 2)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    past = 0 if past_key is None else past_key.shape[2]
    windows = left_window_size, 0 if is_causal else right_window_size
    allowed = _visible(q, k, past, lengths, windows)
    bias = None
    if mask is not None:
        mask = _whole(mask, k.shape[2])
        if mask.dtype.is_floating_point:
            bias = mask
        else:
            allowed = mask if allowed is None else allowed & mask
    plain = outputs < 4 and softmax_precision in (None, 1)
    if plain and (allowed is None or bias is None):
        out = _fused(q, k, v, allowed, bias, scale, softcap)
        scores = None
    else:
        out, scores = _open(
            q, k, v, allowed, bias, scale, softcap, softmax_precision, qk_matmul_output_mode
        )
    if packed:
        out = out.transpose(1, 2).flatten(2)
    return out, k, v, scores


def _visible(q: Any, k: Any, past: int, lengths: Any, windows: tuple[int, int]) -> Any:
    """Which keys each query may see, as [.., queries, keys]; None if all of them."""
    left, right = windows
    if left < 0 and right < 0 and lengths is None:
        return None
    rows, columns = q.shape[2], k.shape[2]
    row = ranges.arange(rows, device=q.device)[:, None]
    column = ranges.arange(columns, device=q.device)
    seen = None
    if lengths is not None:
        lengths = lengths.reshape(-1, 1, 1, 1)
        seen = column < lengths
        row = row + (lengths - rows)
    elif past:
        row = row + past
    if left >= 0:
        seen = _both(seen, column >= row - left)
    if right >= 0:
        seen = _both(seen, column <= row + right)
    return seen


def _both(a: Any, b: Any) -> Any:
    return b if a is None else a & b


def _whole(mask: Any, columns: int) -> Any:
    """A mask with all keys. Those that it leaves out are hidden."""
    lacking = columns - mask.shape[-1]
    if not lacking:
        return mask
    if mask.dtype.is_floating_point:
        return F.pad(mask, [0, lacking], value=-math.inf)
    hidden = creation.zeros((*mask.shape[:-1], lacking), dtype=mask.dtype, device=mask.device)
    return f.cat([mask, hidden], -1)


def _shared(x: Any, heads: int) -> Any:
    """The heads of keys or values, each repeated for the queries that share it."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def _fused(q: Any, k: Any, v: Any, allowed: Any, bias: Any, scale: float, cap: float) -> Any:
    k, v = _shared(k, q.shape[1]), _shared(v, q.shape[1])
    out = capped_attention(q, k, v, bias if allowed is None else allowed, scale, cap)
    if allowed is not None:  # a query that sees nothing gets zeros
        out = f.where(allowed.any(-1, keepdim=True), out, 0.0)
    elif bias is not None:
        out = f.where((bias == -math.inf).all(-1, keepdim=True), 0.0, out)
    return out


def _open(
    q: Any,
    k: Any,
    v: Any,
    allowed: Any,
    bias: Any,
    scale: float,
    softcap: float,
    precision: int | None,
    mode: int,
) -> tuple[Any, Any]:
    """(output, scores), step by step. mode: after which step the scores are given."""
    k, v = _shared(k, q.shape[1]), _shared(v, q.shape[1])
    root = creation.full((), math.sqrt(scale), dtype=q.dtype, device=q.device)
    scores = (q * root) @ (k.transpose(2, 3) * root)
    steps = [scores]
    if softcap:
        scores = softcap * f.tanh(scores / softcap)
    steps.append(scores)
    total = creation.zeros((), dtype=q.dtype, device=q.device) if bias is None else bias
    if allowed is not None:
        total = f.where(allowed, total, -math.inf)
    scores = scores + total
    steps.append(scores)
    wide = scores if precision is None else scores.to(dtype_of(precision))
    weights = F.softmax(wide, -1).to(q.dtype)
    if total.dim() > 1:
        weights = f.where((total == -math.inf).all(-1, keepdim=True), 0.0, weights)
    steps.append(weights)
    return weights @ v, steps[mode]


@operator("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    softmax_precision: int | None = None,
    score_mod: Any = None,
    prob_mod: Any = None,
) -> Any:
    """Attention whose scores and probabilities pass through graphs of the model."""
    k, v = _shared(key, query.shape[1]), _shared(value, query.shape[1])
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    scores = (query @ k.transpose(2, 3)) * scale
    if score_mod is not None:
        (scores,) = score_mod(scores)
    wide = scores if softmax_precision is None else scores.to(dtype_of(softmax_precision))
    weights = F.softmax(wide, -1)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return weights.to(query.dtype) @ v


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Any,
    cos: Any,
    sin: Any,
    places: Any = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:
    """Rotate pairs of elements by angles that grow with the position (arXiv:2104.09864)."""
    packed = x.dim() == 3
    heads = heads_apart(x, num_heads or None)
    if places is not None:
        cos, sin = cos[places], sin[places]  # [n, time, size / 2]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    size = rotary_embedding_dim or heads.shape[-1]
    turned, rest = heads[..., :size], heads[..., size:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., : size // 2], turned[..., size // 2 :]
    real, imaginary = a * cos - b * sin, a * sin + b * cos
    if interleaved:
        turned = f.stack([real, imaginary], -1).flatten(-2)
    else:
        turned = f.cat([real, imaginary], -1)
    out = turned if size == heads.shape[-1] else f.cat([turned, rest], -1)
    return out.transpose(1, 2).flatten(2) if packed else out


@operator("TensorScatter")
def tensor_scatter(
    cache: Any, update: Any, begin: Any = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    """Write a part of a cache, at a place of its own for each example of the batch."""
    axis %= cache.dim()
    line = ranges.arange(update.shape[axis], device=cache.device)
    place = line if begin is None else begin.reshape(-1, 1) + line
    if mode == "circular":
        place = f.remainder(place, cache.shape[axis])
    shape = [1] * cache.dim()
    shape[axis] = update.shape[axis]
    if begin is not None:
        shape[0] = cache.shape[0]
    index = place.reshape(shape).expand(update.shape)
    return f.scatter(cache, axis, index, update)


@operator("LinearAttention")
def linear_attention(
    query: Any,
    key: Any,
    value: Any,
    state: Any = None,
    decay: Any = None,
    beta: Any = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> Any:
    """Attention as a recurrence: a state of [size of keys, size of values] for each head."""
    q, k, v = (
        heads_apart(x, n)
        for x, n in zip((query, key, value), (q_num_heads, kv_num_heads, kv_num_heads), strict=True)
    )
    scale = scale or 1 / math.sqrt(q.shape[3])
    n, heads, time, size = k.shape
    dtype = query.dtype
    if dtype in dtypes.HALVES:  # the state adds up over all times
        q, k, v = (x.float() for x in (q, k, v))
        state, decay, beta = (x if x is None else x.float() for x in (state, decay, beta))
    if state is None:
        state = creation.zeros((n, heads, size, v.shape[3]), dtype=q.dtype, device=q.device)
    forget = None
    if update_rule.startswith("gated"):
        forget = f.exp(heads_apart(decay, heads))  # [n, heads, time, size or 1]
    rate = None
    if update_rule.endswith("delta"):
        rate = beta.transpose(1, 2)[..., None]  # [n, heads or 1, time, 1]
    outs = []
    for t in range(time):
        key_t, value_t = k[:, :, t, :, None], v[:, :, t, None, :]
        if forget is not None:
            state = state * forget[:, :, t, :, None]
        if rate is not None:
            known = (state * key_t).sum(2, keepdim=True)
            value_t = rate[:, :, t, :, None] * (value_t - known)
        state = state + key_t * value_t
        wide = _shared(state, q_num_heads)
        outs.append((q[:, :, t, :, None] * wide).sum(2) * scale)
    out = f.stack(outs, 1) if outs else q.transpose(1, 2)[..., : v.shape[3]]
    return out.flatten(2).to(dtype), state.to(dtype)


@operator("CausalConvWithState")
def causal_conv_with_state(
    x: Any, weight: Any, bias: Any = None, state: Any = None, *, activation: str = "none"
) -> Any:
    """A convolution of each channel with its past, of which the last part is given on."""
    before = weight.shape[2] - 1
    if state is None:
        state = creation.zeros((x.shape[0], x.shape[1], before), dtype=x.dtype, device=x.device)
    whole = f.cat([state, x], 2)
    y = F.conv1d(whole, weight, bias, groups=x.shape[1])
    if activation in ("silu", "swish"):
        y = F.silu(y)
    elif activation != "none":
        raise ValueError(f"expected the activation silu, swish or none, got {activation!r}")
    return y, whole[..., whole.shape[2] - before :]
