"""Large kernels in blocks of rows, so that temporaries stay in cache.

A row is all that belongs to one position along dimension 0. Each NumPy call is a pass over its
operands; over a block, the passes after the first find them in cache.
"""

from __future__ import annotations

import math
import re

from .emission import Emission
from .program import Array, Statement

# Measured on Zen 4 (1 MB of L2 a core): below a million elements blocks gain nothing.
_LEAST, _BLOCK, _LEAST_CALLS = 1 << 20, 1 << 16, 3


def in_blocks(e: Emission) -> list[str] | None:
    """The lines of the program over blocks of rows; None if blocks don't pay or can't be cut."""
    rows = e.root.shape[0]
    statements = e.program.statements
    wide = [s for s in statements if any(_is_wide(a, rows) for a in _arrays(s))]
    row = max((math.prod(a.extent[1:]) for s in wide for a in _arrays(s) if a.extent), default=1)
    step = max(_BLOCK // max(row, 1), 1)
    if rows * row < _LEAST or rows < 2 * step or len(wide) < _LEAST_CALLS:
        return None
    made = {s.target.name for s in statements if s.target is not None}
    outer: dict[str, Array] = {}
    for statement in wide:
        result = statement.target or statement.writes
        if not statement.by_rows or result is None or not _is_wide(result, rows):
            return None
        for array in _arrays(statement):
            if _is_wide(array, rows) and array.name not in made:
                strides = array.strides or (1,)
                if abs(strides[0]) < max(map(abs, strides)):
                    return None  # a block would be a slice across memory
                outer[array.name] = array
    before = [line for s in statements if s not in wide for line in s.text().split("\n")]
    i, n, count = e.fresh("i"), e.argument("n", rows), e.argument("n", step)
    body = [f"{name}_ = {name}[{i} : {i} + {count}]" for name in outer]
    pattern = re.compile(rf"\b({'|'.join(outer)})\b") if outer else None
    for statement in wide:
        text = statement.text()
        body.append(pattern.sub(r"\1_", text) if pattern else text)
    return [*before, f"for {i} in range(0, {n}, {count}):", *(f"    {line}" for line in body)]


def _arrays(statement: Statement) -> list[Array]:
    more = (statement.target, statement.writes, statement.out)
    return [*statement.reads, *(a for a in more if a is not None)]


def _is_wide(array: Array, rows: int) -> bool:
    return bool(array.extent) and array.extent[0] == rows
