"""Positions in sorted sequences, and counts in bins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented

from ..recording import Handle, record
from . import joining, shapes
from .arguments import as_handle, into
from .call import public
from .creation import ones, zeros
from .from_data import beside
from .promotion import promoted, refuse, to

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import Number


@public("bincount")
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of times each of 0, 1, … appears in a 1-d tensor; or the sum of its weights."""
    is_integral = input.dtype.category in (dtypes.SIGNED, dtypes.UNSIGNED)
    is_read, least, most = input._typed()[2] == "cpu", 0, -1
    if input.dim() == 1 and is_integral and input.numel():
        if is_read:
            array = input.detach()._array()
            least, most = int(array.min()), int(array.max())
        else:
            least, most = joining.stack(list(input.detach().aminmax())).tolist()
    if input.dim() != 1 or not is_integral or least < 0:
        raise RuntimeError(
            f"bincount only supports 1-d non-negative integral inputs.{at_user_line()}"
        )
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, got {minlength}{at_user_line()}")
    if weights is None and is_read and input.numel():
        array = np.bincount(array.astype(np.int64, copy=False), minlength=minlength)
        return beside(array.astype(np.int64, copy=False), input)
    if weights is None:
        weights = ones(input.shape, dtype=dtypes.int64, device=input.device)
    elif weights.dtype is not dtypes.float32:
        weights = weights.to(dtypes.float64)
    bins = zeros(max(most + 1, minlength), dtype=weights.dtype, device=input.device)
    return bins.scatter_add(0, input.long(), weights.detach())


@public("histc")
def histc(
    input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None
) -> Tensor:
    """Counts of elements in `bins` equal bins from `min` to `max`, or over the data if these are
    equal."""
    if input.dtype is dtypes.bool_:
        raise not_implemented("histogram_cpu", input.dtype)
    if bins <= 0:
        raise RuntimeError(f"torch.histc: bins must be > 0, but got {bins}{at_user_line()}")
    x = shapes.reshape(input.detach(), -1)
    low, high = float(min), float(max)
    if low == high and x.numel():
        low, high = map(float, joining.stack(list(x.aminmax())).tolist())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(
            f"torch.histc: range of [{low:g}, {high:g}] is not finite{at_user_line()}"
        )
    if low > high:
        raise RuntimeError(f"torch.histc: max must be larger than min{at_user_line()}")
    wide = x.double()
    place = ((wide - low) * bins / (high - low)).long().clamp(0, bins - 1)
    # One more bin, for elements outside all others.
    place = place.masked_fill(~((x >= low) & (x <= high)), bins)
    counts = zeros(bins + 1, dtype=dtypes.int64, device=input.device)
    counts = counts.scatter_add(0, place, counts.new_ones(place.shape))[:bins]
    return into(out, counts.to(input.dtype), cast=False)


def _insertion(lines: Node, values: Node, right: bool, kind: dtypes.DType) -> Node:
    lines, values = promoted(lines, values)
    refuse("searchsorted_out_cpu", values, dtypes.BOOL)
    return to(ops.insertion(lines, values, right), kind)


@public("searchsorted", _insertion, method=False)
def searchsorted(
    sorted_sequence: Tensor,
    input: Number | Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Positions at which values would be inserted in the sorted last dimension."""
    if sorter is not None and sorter.shape != sorted_sequence.shape:
        raise RuntimeError(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary "
            f"tensor {list(sorted_sequence.shape)} and sorter tensor {list(sorter.shape)}"
            f"{at_user_line()}"
        )
    lines = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    if side not in (None, "left", "right") or (right and side == "left"):
        raise RuntimeError(
            "torch.searchsorted(): side can only be 'left' or 'right', and not the opposite of "
            f"right, got side of {side} and right of {right}{at_user_line()}"
        )
    kind = dtypes.int32 if out_int32 else dtypes.int64
    values = as_handle(input, lines).detach()
    return into(
        out, record(_insertion, lines.detach(), values, right or side == "right", kind), cast=False
    )


@public("bucketize", method=False)
def bucketize(
    input: Number | Tensor,
    boundaries: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The bucket of each element between sorted `boundaries`."""
    return into(out, searchsorted(boundaries, input, out_int32=out_int32, right=right), cast=False)


def _isin(x: Node, tests: Node, invert: bool) -> Node:
    x, tests = promoted(x, ops.reshape(tests, (-1,)))
    if x.dtype.category in (dtypes.BOOL, dtypes.COMPLEX):
        raise RuntimeError(
            f"Unsupported input type encountered for isin(): {x.dtype.kind}{at_user_line()}"
        )
    last = x.rank
    equal = ops.eq(ops.unsqueeze(x, last), tests)
    found = ops.squeeze(ops.any(equal, (last,)), (last,))
    return ops.logical_not(found) if invert else found


@public("isin", _isin, method=False)
def isin(
    elements: Number | Tensor,
    test_elements: Number | Tensor,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Whether each element is among `test_elements`."""
    like = elements if isinstance(elements, Handle) else test_elements
    operands = (as_handle(each, like) for each in (elements, test_elements))
    return into(out, record(_isin, *operands, bool(invert)), cast=False)
