"""Sums of products in segments: a product of matrices for each group."""

from __future__ import annotations

from ..kernel import Segment
from .emission import Context, Emission
from .fold import dimensions, spread
from .layout import Layout
from .product import operand, unfolded
from .program import Array


def grouped_dot(
    e: Emission, a: Array, b: Array, over: tuple[int, ...], segment: Segment, context: Context
) -> Array:
    domain = context.domain
    bounds = [e.of(v, context) for v in (segment.first, segment.stop)]
    (along,) = dimensions((segment.along,), domain)
    group = next(d for d, n in enumerate(bounds[0].extent) if n != 1)
    of_rows = group in over
    inner = tuple(d for d in over if d != group)
    kept = [d for d in range(domain.rank) if d not in (*over, group)]
    left = (along,) if of_rows else tuple(d for d in kept if b.extent[d] == 1)
    right = tuple(d for d in kept if d not in left)
    layout = Layout((group,), left, right, inner, flipped=False, loop=None, step=0)
    first = operand(e, spread(e, a, (*left, *inner), domain), layout, True)
    dims = (group, *inner, *right) if of_rows else (*inner, *right)
    second = operand(e, spread(e, b, dims, domain), layout, False)
    extent = tuple(
        1 if d in inner or (d == group and of_rows) else n for d, n in enumerate(domain.shape)
    )
    reads = (first, second, *bounds)
    call = "products_of_rows" if of_rows else "products_of_segments"
    text = f"support.{call}({', '.join(r.name for r in reads)})"
    shape = (extent[group], first.extent[-2], second.extent[-1])
    out = e.let(text, a.dtype, shape, reads, stem="dot_")
    return unfolded(e, out, extent, layout)
