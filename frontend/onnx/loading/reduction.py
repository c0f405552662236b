"""Reductions, positions of extrema, sorting and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import dtype as dtypes

from ...functions import creation
from .api import f
from .table import operator

Reduction = Callable[[Any, list[int], bool], Any]
"""reduction(x, axes, keepdim); there is at least one axis."""


def _prod(x: Any, axes: list[int], keepdim: bool) -> Any:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = f.prod(x, axis, keepdim, dtype=x.dtype)
    return x


def _sum(x: Any, axes: list[int], keepdim: bool) -> Any:
    return f.sum(x, axes, keepdim, dtype=x.dtype)


def _mean(x: Any, axes: list[int], keepdim: bool) -> Any:
    if x.dtype.is_floating_point:
        return f.mean(x, axes, keepdim)
    count = x.numel() // max(f.sum(x, axes).numel(), 1)
    return f.div(_sum(x, axes, keepdim), count, rounding_mode="trunc")


def _extreme(search: Callable[..., Any], empty: Callable[[Any], Any]) -> Reduction:
    """The search; of nothing, the number that every other number replaces."""

    def reduce(x: Any, axes: list[int], keepdim: bool) -> Any:
        dims = {axis % x.dim() for axis in axes}
        if all(x.shape[d] for d in dims):
            if x.dtype is dtypes.bool_:
                return search(x.to(dtypes.uint8), axes, keepdim).to(dtypes.bool_)
            return search(x, axes, keepdim)
        sizes = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
        return creation.full(sizes, empty(x.dtype), dtype=x.dtype, device=x.device)

    return reduce


def _log_sum_exp(x: Any, axes: list[int], keepdim: bool) -> Any:
    return f.logsumexp(x, axes, keepdim)


def _register(name: str, reduction: Reduction) -> None:
    # The axes became an input with opset 13 (ReduceSum) and 18 (the others).
    @operator(name, host=("axes",))
    def reduce(
        x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        chosen = [] if axes is None else [int(axis) for axis in axes]
        if not chosen and noop_with_empty_axes:
            return x
        if not x.dim():
            return reduction(x.reshape(1), [0], False)
        chosen = chosen or list(range(x.dim()))
        return reduction(x, chosen, bool(keepdims))


for _name, _reduction in {
    "ReduceL1": lambda x, axes, keep: _sum(f.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: f.sqrt(_sum(x * x, axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: f.log(_sum(x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(f.amax, dtypes.lowest),
    "ReduceMean": _mean,
    "ReduceMin": _extreme(f.amin, dtypes.highest),
    "ReduceProd": _prod,
    "ReduceSum": _sum,
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
}.items():
    _register(_name, _reduction)


def _place(search: Callable[..., Any]) -> Callable[..., Any]:
    def place(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        if not select_last_index:
            return search(x, axis, bool(keepdims))
        return x.shape[axis] - 1 - search(f.flip(x, (axis,)), axis, bool(keepdims))

    return place


operator("ArgMax")(_place(f.argmax))
operator("ArgMin")(_place(f.argmin))


@operator("TopK", host=("k",))
def top_k(x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    """TopK. Before opset 10 k was an attribute."""
    values, places = f.topk(x, int(k[0] if hasattr(k, "shape") else k), axis, bool(largest))
    return values, places


def _running(name: str, function: Callable[..., Any], neutral: int) -> None:
    @operator(name, host=("axis",))
    def run(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        dim = int(axis.item())
        ordered = f.flip(x, (dim,)) if reverse else x
        total = function(ordered, dim, dtype=x.dtype)
        if exclusive:
            first = creation.full_like(total.narrow(dim, 0, min(1, total.shape[dim])), neutral)
            total = f.cat([first, total.narrow(dim, 0, max(total.shape[dim] - 1, 0))], dim)
        return f.flip(total, (dim,)) if reverse else total


_running("CumSum", f.cumsum, 0)
_running("CumProd", f.cumprod, 1)
