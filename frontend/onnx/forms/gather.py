"""Reads and writes at positions in data."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import accumulator
from tilewright.ir.shape import broadcast

from ..align import Extent, Traced, merge
from ..exporter import Exporter, form


@form(ops.gather)
def gather(e: Exporter, t: Traced, x: str, *indices: str) -> str:
    axis = t.attrs[0]
    if len(indices) == 1:
        return e.add("Gather", x, indices[0], axis=axis)
    rank, count = t.operands[0].rank, len(indices)
    first = [*range(axis, axis + count), *range(axis), *range(axis + count, rank)]
    source = x if axis == 0 else e.add("Transpose", x, perm=first)
    found = e.add("GatherND", source, _tuples(e, t.operands[1:]))
    if axis == 0:
        return found
    # GatherND returns [*indexed, *rest]. The indexed dimensions belong behind the first `axis`
    # ones.
    placed = t.rank - (rank - count)
    back = [*range(placed, placed + axis), *range(placed), *range(placed + axis, t.rank)]
    return e.add("Transpose", found, perm=back)


@form(ops.check)
def check(e: Exporter, t: Traced, index: str) -> str:
    """The index itself, as runtimes check positions at reads."""
    return index


@form(ops.scatter)
def scatter(e: Exporter, t: Traced, base: str, values: str, *indices: str) -> str:
    axis, mode = t.attrs
    rank, count = t.rank, len(indices)
    placed = t.operands[1].rank - (rank - count)
    if axis:
        first = [*range(axis, axis + count), *range(axis), *range(axis + count, rank)]
        base = e.add("Transpose", base, perm=first)
        total = t.operands[1].rank
        moved = [*range(axis, axis + placed), *range(axis), *range(axis + placed, total)]
        values = e.add("Transpose", values, perm=moved)
    reduction = "none" if mode == "set" else mode
    wide = t.dtype if mode == "set" else accumulator(t.dtype)
    if wide is not t.dtype:
        base, values = e.cast(base, wide), e.cast(values, wide)
    out = e.add("ScatterND", base, _tuples(e, t.operands[2:]), values, reduction=reduction)
    out = out if wide is t.dtype else e.cast(out, t.dtype)
    if not axis:
        return out
    back = [*range(count, count + axis), *range(count), *range(count + axis, rank)]
    return e.add("Transpose", out, perm=back)


def _tuples(e: Exporter, indices: Sequence[Traced]) -> str:
    """The index tensors as one tensor, whose last dimension holds a position."""
    shape: tuple[Extent, ...] = merge(
        [
            tuple(broadcast(*(i.nodes[r].shape for i in indices)))
            for r in range(len(indices[0].nodes))
        ]
    )
    parts = []
    for index in indices:
        name = e.value(index)
        if index.shape != shape:
            name = e.add("Expand", name, e.ints(shape))
        parts.append(e.add("Unsqueeze", name, e.ints([len(shape)])))
    return parts[0] if len(parts) == 1 else e.add("Concat", *parts, axis=len(shape))
