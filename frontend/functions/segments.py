"""segment_reduce: reductions of parts of a dimension that follow each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import normalize_axis

from .from_data import from_numpy
from .masks import where

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import Number

_KINDS = {"max": "amax", "min": "amin"}
_OF_NONE = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "amax": -math.inf, "amin": math.inf}
"""The reductions, each with that of no elements."""


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> Tensor:
    """The "sum", "mean", "prod", "max" or "min" of each segment of `axis`, which takes its place.

    lengths[*data.shape[:axis], n], integers: the lengths of n segments, which add up to the size of
    `axis` unless `unsafe`. offsets[*data.shape[:axis], n + 1]: instead, where each begins, and the
    end of the last. initial: a number that each reduction begins with, and that of no elements.
    """
    kind = _KINDS.get(reduce, reduce)
    if kind not in _OF_NONE:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
            f"{at_user_line()}"
        )
    if indices is not None:
        raise RuntimeError(
            f"segment_reduce(): indices based reduction is not supported yet.{at_user_line()}"
        )
    if not data.dtype.is_floating_point:
        raise NotImplementedError(
            f"segment_reduce(): expected floats, got {data.dtype}{at_user_line()}"
        )
    if not data.dim():
        raise RuntimeError(f"segment_reduce(): expected a tensor with dimensions{at_user_line()}")
    axis = normalize_axis(axis, data.dim())
    sizes = _lengths(lengths, offsets)
    if sizes.ndim != axis + 1 or sizes.shape[:-1] != tuple(data.shape[:axis]):
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}."
            f"{at_user_line()}"
        )
    if sizes.size and sizes.min() < 0:
        raise RuntimeError(f"lengths contains negative value!{at_user_line()}")
    if not unsafe and offsets is None and (sizes.sum(-1) != data.shape[axis]).any():
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to "
            f"data.size(lengths.dim()-1) when !unsafe.{at_user_line()}"
        )
    found = _reduced(data, kind, sizes, axis)
    return found if initial is None else _begun(found, kind, sizes, axis, initial)


def _lengths(lengths: Any, offsets: Any) -> np.ndarray:
    if lengths is None and offsets is None:
        raise RuntimeError(
            f"segment_reduce(): Either lengths or offsets must be defined.{at_user_line()}"
        )
    given = offsets if lengths is None else lengths
    if given.dtype.is_differentiable:
        raise NotImplementedError(
            f"segment_reduce(): expected lengths of integers, got {given.dtype}{at_user_line()}"
        )
    values: np.ndarray = given.cpu().numpy()
    return np.diff(values) if lengths is None else values


def _reduced(data: Any, kind: str, sizes: np.ndarray, axis: int) -> Any:
    count, whole = sizes.shape[-1], data.shape[axis]
    ends = np.cumsum(sizes, -1).reshape(-1, count)
    places = [np.searchsorted(row, np.arange(whole), side="right") for row in ends]
    # Elements behind the last segment are one more, which is left out.
    index = from_numpy(np.stack(places).reshape(*sizes.shape[:-1], whole)).to(data.device)
    later = [1] * (data.dim() - axis - 1)
    index = index.reshape(*index.shape, *later).expand(data.shape)
    shape = [*data.shape[:axis], count + 1, *data.shape[axis + 1 :]]
    start = data.new_full(shape, _OF_NONE[kind])
    made = start.scatter_reduce(axis, index, data, kind, include_self=False)
    return made.narrow(axis, 0, count)


def _begun(found: Any, kind: str, sizes: np.ndarray, axis: int, initial: Any) -> Any:
    """Reductions that begin with a number."""
    if kind == "sum":
        return found + initial
    if kind == "prod":
        return found * initial
    if kind == "mean":
        later = [1] * (found.dim() - axis - 1)
        count = from_numpy(sizes.astype(np.int64)).to(found.device).reshape(*sizes.shape, *later)
        return where(count == 0, found.new_full((), initial), found + initial / count)
    beyond = found < initial if kind == "amax" else found > initial
    return where(beyond, found.new_full((), initial), found)
