"""torch.nn.attention.varlen: attention within sequences packed in one dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilewright.ir import ops
from tilewright.ir.dtype import int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ...recording import record
from ...recording.builders import builder

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """A request for more results of `varlen_attn`: `lse`, the rows' logsumexp."""

    lse: bool = False


@builder("varlen_attn")
def _attend(
    q: Node,
    k: Node,
    v: Node,
    cu_q: Node,
    cu_k: Node | None,
    used: Node | None,
    pages: Node | None,
    window: tuple[int, int],
    scale: float | None,
) -> tuple[Node, Node]:
    count = _check(q, k, v, cu_q, cu_k, used, pages)
    if pages is not None and used is not None:
        each = pages.shape[1] * k.shape[1]
        k, v = (_paged(x, pages, used) for x in (k, v))
        cu_k = ops.iota(count + 1) * each
    assert cu_k is not None
    if scale is None:
        scale = q.shape[-1] ** -0.5 if q.shape[-1] else 1.0
    return ops.packed_attention(
        q, k, v, ops.packed(q.shape[0], cu_q), ops.packed(k.shape[0], cu_k, used),
        before=window[0], after=window[1], scale=scale,
    )  # fmt: skip


def _check(
    q: Node, k: Node, v: Node, cu_q: Node, cu_k: Node | None, used: Node | None, pages: Node | None
) -> int:
    """The number of sequences; RuntimeError if the operands don't fit."""
    rank = 3 if pages is None else 4
    found = [tuple(x.shape) for x in (q, k, v)]
    if q.rank != 3 or k.rank != rank or v.rank != rank or k.shape[:-1] != v.shape[:-1]:
        keys = "(T_k, H_kv, D)" if pages is None else "(pages, page_size, H_kv, D)"
        raise RuntimeError(
            f"varlen_attn: expected query (T_q, H_q, D), key and value {keys}, "
            f"got {found[0]}, {found[1]} and {found[2]}{at_user_line()}"
        )
    if pages is not None and used is None:
        raise RuntimeError(f"varlen_attn: block_table needs seqused_k{at_user_line()}")
    if pages is None and cu_k is None:
        raise RuntimeError(f"varlen_attn: cu_seq_k is missing{at_user_line()}")
    count = cu_q.shape[0] - 1 if cu_q.rank == 1 else 0
    if count < 1:
        raise RuntimeError(
            f"varlen_attn: expected cu_seq_q of shape (N + 1,) with N > 0 sequences, "
            f"got {tuple(cu_q.shape)}{at_user_line()}"
        )
    lengths = {
        "cu_seq_k": (cu_k if pages is None else None, (count + 1,)),
        "seqused_k": (used, (count,)),
        "block_table": (pages, (count, pages.shape[-1] if pages is not None else 0)),
    }
    for name, (x, shape) in lengths.items():
        if x is not None and x.shape != shape:
            raise RuntimeError(
                f"varlen_attn: expected {name} of shape {shape} for {count} sequences, "
                f"got {tuple(x.shape)}{at_user_line()}"
            )
    return count


def _paged(x: Node, pages: Node, used: Node) -> Node:
    """[pages, page_size, H, D] as rows of H x D, in the order of the table. Unused entries of the
    table may be anything."""
    count, most = pages.shape
    first = ops.iota(most) * x.shape[1]
    is_used = first < ops.reshape(ops.cast(used, int64), (count, 1))
    table = ops.where(is_used, ops.cast(pages, int64), ops.constant(0, int64))
    return ops.reshape(ops.gather(x, table, 0), (count * most * x.shape[1], *x.shape[2:]))


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of query[T_q, H_q, D] within each sequence of key and value[T_k, H_kv, D].

    Sequence n has the queries cu_seq_q[n] … cu_seq_q[n + 1] and the keys cu_seq_k[n] …
    cu_seq_k[n + 1]; seqused_k keeps only the first seqused_k[n] of these keys. The last query and
    the last key of a sequence lie at the same place. A query sees window_size[0] keys before its
    own place and window_size[1] keys after it; -1 means all. So (-1, 0) is causal. A query that
    sees nothing gets zeros. With enable_gqa H_q may be a multiple of H_kv.

    block_table[N, P] names the pages of each sequence's keys in key and value[pages, page_size,
    H_kv, D]; cu_seq_k isn't read then. On GPUs kernels look pages up and copy none. max_q, max_k
    and num_splits aren't needed: results never depend on how work is split.

    Works, with gradients, for any floating dtype on any device. Returns the output [T_q, H_q, D].
    return_aux.lse adds the logsumexp of each row of scores [H_q, T_q]; a row without scores
    gives -inf.
    """
    heads, own = query.shape[1], key.shape[1 if block_table is None else 2]
    if not enable_gqa and heads != own:
        raise ValueError(
            "Expect query and key/value to have the same number of heads "
            f"but got Hq={heads} and Hkv={own}. Try setting enable_gqa=True for GQA."
            f"{at_user_line()}"
        )
    if enable_gqa and heads % own:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA "
            f"but got Hq={heads} and Hkv={own}.{at_user_line()}"
        )
    before, after = window_size
    out, lse = record(
        _attend, query, key, value, cu_seq_q, cu_seq_k, seqused_k, block_table,
        (int(before), int(after)), None if scale is None else float(scale),
    )  # fmt: skip
    return (out, lse) if return_aux is not None and return_aux.lse else out


def varlen_attn_out(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """`varlen_attn` into `out`, which it returns."""
    found, lse = varlen_attn(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k,
        return_aux=AuxRequest(lse=True), scale=scale, window_size=window_size,
        enable_gqa=enable_gqa, seqused_k=seqused_k, block_table=block_table, num_splits=num_splits,
    )  # fmt: skip
    out.copy_(found)
    return (out, lse) if return_aux is not None and return_aux.lse else out
