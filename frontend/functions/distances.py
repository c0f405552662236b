"""Distances between the rows of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import ops
from tilewright.ir.dtype import float32, float64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..recording import lowered, record
from ..recording.builders import FLOAT32, builder
from .call import public
from .products import _matmul
from .reduction import _norm

if TYPE_CHECKING:
    from .._tensor import Tensor

_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
_FEW = 25  # up to so many rows PyTorch subtracts by default


@builder("cdist", gradient="EuclideanDistBackward0", casts=FLOAT32)
def _euclidean(a: Node, b: Node) -> Node:
    """The distances of rows from their products: |a|^2 + |b|^2 - 2 a b. Rows that are equal, or so
    near that this is not positive, have the distance and the slope 0."""
    first, second = (ops.sum(x * x, (x.rank - 1,)) for x in (a, b))
    squares = first + ops.transpose(second) - _matmul(a, ops.transpose(b)) * 2.0
    none = squares <= 0
    roots = ops.sqrt(ops.where(none, ops.full_like(squares, 1), squares))
    return ops.where(none, ops.full_like(squares, 0), roots)


@builder("cdist", casts=FLOAT32)
def _apart(a: Node, b: Node, p: float) -> Node:
    return _norm(ops.unsqueeze(a, a.rank - 1) - ops.unsqueeze(b, b.rank - 2), p, (-1,), False)


@public("cdist", method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = _MODES[0]) -> Tensor:
    """The p-distance of every row of `x1` to every row of `x2`.

    compute_mode: whether Euclidean distances come from a product of matrices, which is faster and
    cancels digits of small distances; by default they do from 26 rows on.
    """
    for name, x in (("X1", x1), ("X2", x2)):
        if x.dim() < 2:
            raise RuntimeError(
                f"cdist only supports at least 2D tensors, {name} got: {x.dim()}D{at_user_line()}"
            )
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: "
            f"{x2.shape[-1]}{at_user_line()}"
        )
    if not (x1.dtype.is_floating_point and x2.dtype.is_floating_point):
        raise RuntimeError(f"cdist only supports floating-point dtypes{at_user_line()}")
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values{at_user_line()}")
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode{at_user_line()}")
    x1, x2 = lowered(_euclidean, x1, x2)
    many = max(x1.shape[-2], x2.shape[-2]) > _FEW
    chosen = compute_mode == _MODES[1] or (compute_mode == _MODES[0] and many)
    if p == 2 and chosen and x1.dtype in (float32, float64):
        return record(_euclidean, x1, x2)  # type: ignore[return-value]
    return record(_apart, x1, x2, float(p))


@builder("pdist", casts={"cuda": FLOAT32})
def _pdist(rows: Node, others: Node, p: float) -> Node:
    return _norm(rows - others, p, (-1,), False)


@public("pdist", method=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-distance of every two rows of a matrix."""
    from .joining import triu_indices

    if not input.dtype.is_floating_point:
        raise RuntimeError(f"pdist only supports floating-point dtypes{at_user_line()}")
    i, j = triu_indices(input.shape[0], input.shape[0], 1)
    return record(_pdist, input[i], input[j], float(p))
