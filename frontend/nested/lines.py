"""Reductions and softmax of nested tensors along any of their dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axes, normalize_axis

from ..functions import reduction
from ..nn.functional import activation
from ..recording import record
from ..recording.builders import builder, name_of
from ..recording.compounds import rule
from .padding import padded, unpadded
from .tensors import Nested, nested


def packed(x: Any, like: Nested, ragged: int | None = None) -> Nested:
    """The reverse of `padded`, for the sequences of `like`, which has no gaps."""
    at = like._ragged_idx if ragged is None else ragged
    return nested(unpadded(x, like, at), like._rows, at)


# ---- reductions ---------------------------------------------------------------------------------


@builder("sum", gradient="SumBackward1")
def _by_sequence(x: Node, numbers: Node, count: int, axis: int) -> Node:
    """The sums of each sequence's rows along `axis`: [count, ...]."""
    order = (axis, *range(axis), *range(axis + 1, x.rank))
    rows = ops.permute(x, order)
    zeros = ops.expand(ops.constant(0, x.dtype), (count + 1, *rows.shape[1:]))
    return ops.slice_axis(ops.scatter(zeros, rows, numbers, 0, "add"), 0, 0, count)


def _axes(name: str, t: Nested, dim: Any) -> tuple[int, ...] | None:
    """The dimensions of a reduction, or None for all."""
    if dim is None or dim == ():
        return None
    axes = normalize_axes(dim if isinstance(dim, int) else tuple(dim), t.dim())
    if 0 in axes and t._ragged_idx not in axes:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not "
            f"supported for nested tensors{at_user_line()}"
        )
    if t._ragged_idx in axes and 0 not in axes and len(axes) > 1:
        raise RuntimeError(
            f"{name}(): reducing along a ragged and non-batch dimension is not supported for "
            f"nested tensors{at_user_line()}"
        )
    return None if len(axes) == t.dim() else axes


def _reducing(
    build: Callable[..., Any], along: Callable[[Nested, bool, tuple[Any, ...]], Any]
) -> Callable[..., Any]:
    """The rule of a reduction. along(t, keepdim, attrs): its result along the ragged dimension."""

    def apply(t: Nested, dim: Any, keepdim: bool, *attrs: Any) -> Any:
        t = t.contiguous()
        axes = _axes(name_of(build) or "", t, dim)
        if axes is None:
            made = record(build, t._elements, None, False, *attrs)
            return made.reshape((1,) * t.dim()) if keepdim else made
        if 0 in axes:
            inner = tuple(a - 1 for a in axes if a)
            made = record(build, t._elements, inner, keepdim, *attrs)
            return made.unsqueeze(0) if keepdim else made
        if axes == (t._ragged_idx,):
            return along(t, keepdim, attrs)
        inner = tuple(a - 1 for a in axes)
        made = record(build, t._elements, _form(build, inner), keepdim, *attrs)
        return nested(made, t._rows, _ragged_after(t, axes, keepdim))

    return apply


_OF_ONE = (reduction._argmax, reduction._argmin)  # they take one dimension, and no tuple


def _form(build: Any, axes: tuple[int, ...]) -> Any:
    return axes[0] if build in _OF_ONE else axes


def _ragged_after(t: Nested, axes: tuple[int, ...], keepdim: bool) -> int:
    """Where the ragged dimension is after a reduction over `axes`."""
    return t._ragged_idx if keepdim else t._ragged_idx - sum(a < t._ragged_idx for a in axes)


def _sum_along(t: Nested, keepdim: bool, attrs: tuple[Any, ...]) -> Any:
    x, axis = t._elements, t._ragged_idx - 1
    dtype = attrs[0]
    if dtype is None and not x.dtype.is_differentiable:
        dtype = dtypes.int64
    if dtype is not None:
        x = x.to(dtype)
    made = record(_by_sequence, x, t._rows.numbers(x.shape[axis]), t._rows.count, axis)
    return made.unsqueeze(t._ragged_idx) if keepdim else made


def _mean_along(t: Nested, keepdim: bool, attrs: tuple[Any, ...]) -> Any:
    if not t.dtype.is_differentiable and attrs[0] is None:
        return record(reduction._mean, t._elements, None, False, None)  # its error
    total = _sum_along(t, keepdim, attrs)
    counts = t._rows.counts().to(total.dtype)
    return total / counts.reshape(-1, *(1,) * (total.dim() - 1))


def _padding(build: Callable[..., Any], filling: Callable[[Any], Any]) -> Any:
    """A reduction along the ragged dimension by padding: filling(dtype) changes no result."""

    def along(t: Nested, keepdim: bool, attrs: tuple[Any, ...]) -> Any:
        wide = padded(t, filling(t.dtype))
        return record(build, wide, t._ragged_idx, keepdim, *attrs)

    return along


rule(Nested, reduction._sum)(_reducing(reduction._sum, _sum_along))
rule(Nested, reduction._mean)(_reducing(reduction._mean, _mean_along))
for _build, _filling in (
    (reduction._prod, lambda dtype: 1),
    (reduction._amax, dtypes.lowest),
    (reduction._amin, dtypes.highest),
    (reduction._argmax, dtypes.lowest),
    (reduction._argmin, dtypes.highest),
    (reduction._any, lambda dtype: 0),
    (reduction._all, lambda dtype: 1),
):
    rule(Nested, _build)(_reducing(_build, _padding(_build, _filling)))

rule(Nested, reduction._greatest)(lambda t: record(reduction._amax, t, None, False))
rule(Nested, reduction._least)(lambda t: record(reduction._amin, t, None, False))


def _extremum(build: Callable[..., Any], filling: Callable[[Any], Any]) -> Callable[..., Any]:
    def apply(t: Nested, dim: int, keepdim: bool) -> Any:
        t = t.contiguous()
        axes = _axes(name_of(build) or "", t, dim) or (0,)
        if axes == (t._ragged_idx,):
            return record(build, padded(t, filling(t.dtype)), t._ragged_idx, keepdim)
        found = record(build, t._elements, axes[0] - 1, keepdim)
        ragged = _ragged_after(t, axes, keepdim)
        return tuple(nested(part, t._rows, ragged) for part in found)

    return apply


rule(Nested, reduction._max_along)(_extremum(reduction._max_along, dtypes.lowest))
rule(Nested, reduction._min_along)(_extremum(reduction._min_along, dtypes.highest))


# ---- softmax ------------------------------------------------------------------------------------


@builder("softmax", gradient="SoftmaxBackward0")
def _softmax_by_sequence(x: Node, numbers: Node, count: int, axis: int, log: bool) -> Node:
    """Softmax over each sequence's rows along `axis`."""
    order = (axis, *range(axis), *range(axis + 1, x.rank))
    rows = ops.permute(x, order)
    shape = (count + 1, *rows.shape[1:])
    least = ops.expand(ops.constant(-math.inf, x.dtype), shape)
    top = ops.gather(ops.scatter(least, ops.detach(rows), numbers, 0, "max"), numbers, 0)
    shifted = rows - ops.where(ops.isinf(top), ops.zeros_like(top), top)
    powers = ops.exp(shifted)
    zeros = ops.expand(ops.constant(0, x.dtype), shape)
    whole = ops.gather(ops.scatter(zeros, powers, numbers, 0, "add"), numbers, 0)
    made = shifted - ops.log(whole) if log else powers / whole
    return ops.permute(made, (*range(1, axis + 1), 0, *range(axis + 1, x.rank)))


def _along(build: Callable[..., Any], log: bool) -> Callable[..., Any]:
    def apply(t: Nested, dim: int, dtype: Any) -> Any:
        at = normalize_axis(dim, t.dim())
        if at == 0:
            raise RuntimeError(
                f"{name_of(build)}(): not supported along the batch dimension of a nested tensor"
                f"{at_user_line()}"
            )
        if at != t._ragged_idx:
            return t._like(record(build, t._elements, at - 1, dtype))
        x = t._elements if dtype is None else t._elements.to(dtype)
        number = t._rows.numbers(x.shape[at - 1])
        return t._like(record(_softmax_by_sequence, x, number, t._rows.count, at - 1, log))

    return apply


rule(Nested, activation._softmax)(_along(activation._softmax, False))
rule(Nested, activation._log_softmax)(_along(activation._log_softmax, True))
