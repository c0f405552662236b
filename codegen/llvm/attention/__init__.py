"""Attention by tiles: scores exist for a block of queries and a block of keys at a time.

A tile of scores has a row for each key and its lanes run along the queries (s^T = k q^T). So the
softmax is arithmetic between registers, and the tile is the transposed left operand of the product
with the values. Operands are first written to scratch tiles: rows of float32 or float64, padded
with zeros. So all products are alike, whatever expression, layout or dtype the operands have.

This is FlashAttention (Dao et al., arXiv 2205.14135). Blocks that a causal mask hides are skipped.
"""

from __future__ import annotations

import math

from ...kernel import Kernel
from ...kernel.attention import Roles
from .. import tile
from ..body import Body
from ..code import module_text
from ..form import Form
from ..machine import Machine
from ..phases import Written
from ..schedule import Schedule
from ..types import computed
from .forward import Forward
from .gradient import Gradient
from .writer import KEYS, QUERIES, block_of


def form_of(kernel: Kernel, parts: Roles, machine: Machine, schedule: Schedule) -> Form:
    """Lanes along the queries, which are the rows of some products and the columns of others."""
    lanes = machine.vector_bytes // parts.products.dtype.itemsize
    block = queries(parts, machine, schedule)
    return Form(parts.query, lanes, parts.batch, 1, block, peeled=False)


def queries(parts: Roles, machine: Machine, schedule: Schedule) -> int:
    """The number of queries in a tile of scores."""
    unit = math.lcm(*tile.step(machine, computed(parts.products.dtype)))
    return block_of(parts.query.extent, schedule.columns or QUERIES, unit)


def write(body: Body, parts: Roles, schedule: Schedule) -> Written:
    """The kernel, in one phase."""
    writer = Gradient if parts.total is None else Forward
    chunks = writer(body, parts, schedule.rows or KEYS).write()
    return Written(module_text([body.code]), body.arguments, (chunks,))
