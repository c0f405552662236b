"""Histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line
from tilewright.ir.op import not_implemented

from .. import return_types
from ..recording import Handle
from . import joining
from .arguments import into
from .call import public
from .creation import zeros
from .ranges import linspace
from .searching import searchsorted

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..return_types import Histogram, HistogramDD


@public("histogram")
def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Sequence[Tensor] | None = None,
) -> Histogram:
    """(hist, bin_edges): the sums of weights, or the counts, of the elements in each bin.

    bins: how many of equal width, over `range` or all elements; or the edges, 1-d and increasing.
    The last bin has both its edges. density: divide by the total and by the bin's width.
    """
    edges = _edges("histogram", input.detach().reshape(-1), bins, _pair(range))
    flat = input.detach().reshape(-1, 1)
    counts = _counted("histogram", flat, [edges], weight, density, isinstance(bins, int))
    return into(out, return_types.histogram(counts, edges))


@public("histogramdd", method=False)
def histogramdd(
    input: Tensor,
    bins: int | Sequence[int] | Sequence[Tensor],
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """(hist, bin_edges) of points (..., N) in N dimensions, with the edges of each dimension."""
    if input.dim() < 2:
        raise RuntimeError(
            f"torch.histogramdd: input tensor should have at least 2 dimensions, but got "
            f"{input.dim()}{at_user_line()}"
        )
    points: Any = input.detach().reshape(-1, input.shape[-1])
    rank = points.shape[1]
    each: Any = [bins] * rank if isinstance(bins, int) else list(bins)
    if len(each) != rank:
        raise RuntimeError(
            "torch.histogramdd: The size of bins must be equal to the innermost dimension of the "
            f"input, got {len(each)} and {rank}{at_user_line()}"
        )
    if range is not None and len(range) != 2 * rank:
        raise RuntimeError(
            f"torch.histogramdd: for a {rank}-dimensional histogram range should have {2 * rank} "
            f"elements, but got {len(range)}{at_user_line()}"
        )
    edges = [
        _edges("histogramdd", points[:, i], b, range and (range[2 * i], range[2 * i + 1]))
        for i, b in enumerate(each)
    ]
    even = all(isinstance(b, int) for b in each)
    return return_types.histogramdd(
        _counted("histogramdd", points, edges, weight, density, even), tuple(edges)
    )


def _pair(range: Any) -> Any:
    if range is not None and len(range) != 2:
        raise RuntimeError(f"torch.histogram: range should have 2 elements{at_user_line()}")
    return range


def _edges(name: str, line: Any, bins: Any, range: Any) -> Any:
    if isinstance(bins, Handle):
        return bins
    if bins <= 0:
        raise RuntimeError(f"torch.{name}(): bins must be > 0, but got {bins}{at_user_line()}")
    low, high = (0.0, 1.0) if range is None else map(float, range)
    if range is None and line.numel():
        low, high = joining.stack(list(line.aminmax())).tolist()
    if low > high:
        raise RuntimeError(f"torch.{name}(): min should not exceed max{at_user_line()}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, bins + 1, dtype=line.dtype, device=line.device)


def _bin(edge: Any, x: Any, even: bool) -> Any:
    """The number of the bin of each element between the first and the last edge. even: whether the
    bins are of equal width: then it is computed, and put right by the edges beside it."""
    last = max(edge.shape[0] - 2, 0)
    if not even:
        return (searchsorted(edge, x, right=True) - 1).clamp(0, last)
    at = ((x - edge[0]) * ((last + 1) / (edge[-1] - edge[0]))).long().clamp(0, last)
    at = at - (x < edge[at]).long() + (x >= edge[at + 1]).long()
    return at.clamp(0, last)


def _counted(
    name: str, points: Any, edges: list[Any], weight: Any, density: bool, even: bool
) -> Any:
    """The histogram of points (count, dimension)."""
    if not points.dtype.is_floating_point:
        raise not_implemented(name, points.dtype)
    shape = [e.shape[0] - 1 for e in edges]
    place: Any = zeros(points.shape[0], dtype=dtypes.int64, device=points.device)
    inside: Any = place == 0
    for i, edge in enumerate(edges):
        x = points[:, i].contiguous()
        inside = inside & (x >= edge[0]) & (x <= edge[-1])
        place = place * shape[i] + _bin(edge, x, even)
    total = 1
    for n in shape:
        total *= n
    # One more bin, for points outside all others.
    place = place.masked_fill(~inside, total)
    amount = points.new_ones(points.shape[0]) if weight is None else weight.detach().reshape(-1)
    counts = zeros(total + 1, dtype=points.dtype, device=points.device)
    found: Any = counts.scatter_add(0, place, amount.to(points.dtype))[:total].reshape(shape)
    if density:
        found = found / found.sum()
        for i, edge in enumerate(edges):
            beside = [1] * len(shape)
            beside[i] = -1
            found = found / (edge[1:] - edge[:-1]).reshape(beside)
    return found
