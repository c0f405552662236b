"""Which records of attention a target computes as one kernel."""

from __future__ import annotations

from tilewright.ir.node import Node
from tilewright.ir.ops.attention import attention_args

from ..target import Target

MOST_WIDTH = 256
"""The widest head whose tiles are sure to fit a thread's stack, or a GPU's registers."""


def has_template(node: Node, target: Target) -> bool:
    """Whether a target computes this record of attention as one kernel. Sizes of 0 or 1 are better
    computed as plain products."""
    a = attention_args(*node.operands, *node.attrs)
    sizes = (*a.q.shape[-2:], *a.k.shape[-2:], a.v.shape[-1])
    fits = max(a.q.shape[-1], a.v.shape[-1]) <= MOST_WIDTH and min(sizes) > 1
    return a.q.dtype.name in target.tiled_attention and fits and 0 not in a.batch
