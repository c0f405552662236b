"""Attention by tiles, forward and backward: no program ever holds a row of scores.

A program owns a block of rows and walks along the other side, block by block. For the results and
for the gradient of queries it owns queries and walks along keys. For the gradients of keys and
values it owns keys, walks along queries, and the tile of scores is transposed. So one program makes
each sum, in a fixed order, without atomics. This is FlashAttention-2 (Dao, arXiv 2307.08691).
"""

from __future__ import annotations

from ...kernel.attention import roles
from ...schedule import Schedule
from ..scope import Body
from ..text import Block
from .forward import forward
from .gradient import gradient
from .writer import Writer


def attention(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the kernel; returns its constexprs and the number of programs."""
    parts = roles(body.kernel)
    if parts is None:
        raise NotImplementedError(f"{body.kernel.name}: a chain of folds that is not attention")
    writer = Writer(body, block, parts, schedule)
    if parts.total is None:
        gradient(writer)
    else:
        forward(writer, parts.total)
    return writer.constexprs, writer.programs
