"""Products of nested tensors, and attention within their sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions import products
from ..functions.from_data import beside
from ..functions.sampling import draw
from ..nn.functional import attention
from ..recording import record
from ..recording.builders import LOWER, builder
from ..recording.compounds import rule
from .lines import packed
from .padding import padded
from .tensors import Nested, is_nested, nested


@rule(Nested, products._matmul)
def _matmul(a: Any, b: Any) -> Any:
    """A product in which the ragged dimension is one of rows, or is summed over."""
    if is_nested(a) and not is_nested(b) and b.dim() <= 2:
        if a._ragged_idx == a.dim() - 1:
            raise _no_product(a, b)
        made = record(products._matmul, a._elements, b)
        return a._like(made)
    if a.dim() != b.dim():
        raise _no_product(a, b)
    if is_nested(a) and is_nested(b):
        return _of_both(a, b)
    if is_nested(a) and a._ragged_idx == a.dim() - 2:
        return packed(padded(a, 0) @ b, a)
    if is_nested(b) and b._ragged_idx == b.dim() - 1:
        return packed(a @ padded(b, 0), b)
    raise _no_product(a, b)


def _of_both(a: Nested, b: Nested) -> Any:
    """[B, …, M, j] @ [B, …, j, N], which is dense."""
    summed = a._ragged_idx == a.dim() - 1 and b._ragged_idx == b.dim() - 2
    if not summed or a._rows is not b._rows:
        raise _no_product(a, b)
    return padded(a, 0) @ padded(b, 0)


def _no_product(a: Any, b: Any) -> RuntimeError:
    return RuntimeError(
        f"matmul(): not supported between inputs of shapes {tuple(a.shape)} and {tuple(b.shape)}"
        f"{at_user_line()}"
    )


@builder("scaled_dot_product_attention", casts=LOWER)
def _within(
    q: Node,
    k: Node,
    v: Node,
    of_q: Node,
    of_k: Node,
    lengths_q: Node | None,
    lengths_k: Node | None,
    causal: bool,
    scale: float | None,
) -> Node:
    """Attention of [H, T, E] within sequences along the middle dimension."""
    q, k, v = (ops.permute(x, (1, 0, 2)) for x in (q, k, v))
    if scale is None:
        scale = q.shape[-1] ** -0.5 if q.shape[-1] else 1.0
    queries = ops.packed(q.shape[0], of_q, lengths_q)
    keys = ops.packed(k.shape[0], of_k, lengths_k)
    after = 0 if causal else -1
    out, _ = ops.packed_attention(q, k, v, queries, keys, after=after, scale=scale)
    return ops.permute(out, (1, 0, 2))


@rule(Nested, attention._attend)
def _attend(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    seed: Any,
    offset: Any,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Nested:
    if not all(is_nested(t) and t.dim() == 4 and t._ragged_idx == 2 for t in (q, k, v)):
        raise ValueError(
            "scaled_dot_product_attention: expected query, key and value to be nested tensors of "
            f"shape (batch, heads, ragged, width), got {[tuple(t.shape) for t in (q, k, v)]}: use "
            f"transpose(1, 2){at_user_line()}"
        )
    if mask is not None:
        raise ValueError(f"Masks are not yet supported!{at_user_line()}")
    if k._rows is not v._rows or q._rows.count != k._rows.count:
        raise ValueError(
            "scaled_dot_product_attention: key and value must share their offsets, and query must "
            f"have as many sequences{at_user_line()}"
        )
    if causal and q._rows is not k._rows:
        raise NotImplementedError(
            "scaled_dot_product_attention: is_causal expects query and key to share their offsets"
            f"{at_user_line()}"
        )
    heads, own = q.shape[1], k.shape[1]
    if heads != own and not grouped:
        raise ValueError(
            f"scaled_dot_product_attention: expected as many heads in query and key, got {heads} "
            f"and {own}: enable_gqa=True lets heads of the query share those of the key"
            f"{at_user_line()}"
        )
    if dropout:
        return _padded_attention(q, k, v, dropout, causal, scale, grouped)
    made = record(
        _within, q._elements, k._elements, v._elements, q._rows.offsets, k._rows.offsets,
        q._rows.lengths, k._rows.lengths, causal, scale,
    )  # fmt: skip
    return nested(made, q._rows, 2)


def _padded_attention(
    q: Any, k: Any, v: Any, dropout: float, causal: bool, scale: Any, grouped: bool
) -> Nested:
    """Attention with dropout, which the packed kernel doesn't have: over padded sequences."""
    if q._rows.lengths is not None or k._rows.lengths is not None:
        q, k, v = (t.contiguous() for t in (q, k, v))
    size, longest = k._rows.longest(), q._rows.longest()
    _, lengths = k._rows.on_host()
    seen = np.arange(size) < lengths[:, None, None, None]
    if causal:
        seen = seen & (np.arange(size) <= np.arange(longest)[:, None])
    mask = beside(
        np.ascontiguousarray(np.broadcast_to(seen, (*seen.shape[:2], longest, size))), q._elements
    )
    # A query behind its sequence's end sees keys too, so that no row is without any.
    wide = [padded(t, 0) for t in (q, k, v)]
    # What the call drew was for its epoch, which any of the calls above may have ended.
    made = record(attention._attend, *wide, mask, *draw(), dropout, False, scale, grouped)
    return packed(made, q)
