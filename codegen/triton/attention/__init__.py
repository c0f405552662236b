"""Attention by tiles, forward and backward: no program ever holds a row of scores.

A program owns a block of rows and walks along the other side, block by block. Forward and for the
gradient of the queries it owns queries and walks along keys; for the gradients of keys and values
it is the other way around, with the tile of scores turned accordingly. So every sum is made by one
program in a fixed order, without atomics. This is FlashAttention-2 (Dao, arXiv 2307.08691).
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
