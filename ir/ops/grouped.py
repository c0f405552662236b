"""Products of matrices in groups whose bounds are data, as for a mixture of experts.

Group i has the rows bounds[i] <= s < bounds[i + 1] of a matrix. The two records are linear in both
matrices, and each is the other's gradient, so derivatives of any order exist.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from ..dtype import accumulator, from_numpy, int64
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size
from .binary import bitwise_and, maximum, minimum
from .contraction import matmul
from .generate import constant, iota
from .movement import pad, reshape, slice_axis, transpose
from .reduce import max as max_
from .reduce import sum as sum_
from .ternary import where
from .unary import cast


def group_bounds(ends: Node, total: int) -> Node:
    """The bounds, int64[G + 1], of groups that end at ends[G] among `total` rows.

    Whatever `ends` holds, the bounds ascend from 0 and none is beyond `total`. A group that would
    end before the one in front of it is empty.
    """
    ends = minimum(maximum(cast(ends, int64), constant(0, int64)), constant(total, int64))
    ends = pad(ends, (1,), (0,))
    count = ends.shape[0]
    upto = iota(count) <= reshape(iota(count), (count, 1))
    return reshape(max_(where(upto, ends, constant(0, int64)), (1,)), (count,))


def is_within(bounds: Node, total: int) -> Node:
    """bool[G, total]: whether a row belongs to a group."""
    count = bounds.shape[0] - 1
    begin, stop = (reshape(slice_axis(bounds, 0, i, i + count), (count, 1)) for i in (0, 1))
    row = iota(total)
    return bitwise_and(row >= begin, row < stop)


def _check(name: str, a: Node, b: Node, bounds: Node) -> None:
    if a.dtype is not b.dtype or not a.dtype.is_floating_point:
        raise RuntimeError(
            f"{name}: expected matrices of one floating dtype, got {a.dtype} and {b.dtype}"
            f"{at_user_line()}"
        )
    assert bounds.rank == 1 and bounds.dtype is int64


def _matmul_infer(x: Node, w: Node, bounds: Node) -> Aval:
    _check("grouped_matmul", x, w, bounds)
    if x.rank != 2 or w.rank != 3 or x.shape[1] != w.shape[1]:
        raise RuntimeError(
            f"grouped_matmul: inner sizes differ: {tuple(x.shape)} @ {tuple(w.shape)}"
            f"{at_user_line()}"
        )
    assert bounds.shape[0] == w.shape[0] + 1
    return Size((x.shape[0], w.shape[2])), x.dtype


def _matmul_numpy(x: Any, w: Any, bounds: Any) -> Any:
    wide = accumulator(from_numpy(x.dtype)).np
    y = np.zeros((x.shape[0], w.shape[2]), wide)
    for matrix, (begin, stop) in zip(w, pairwise(bounds.tolist())):
        if begin < stop:
            rows, matrix = (each.astype(wide, copy=False) for each in (x[begin:stop], matrix))
            np.matmul(rows, matrix, y[begin:stop])
    return y.astype(x.dtype, copy=False)


def _matmul_vjp(g: Node, out: Node, x: Node, w: Node, bounds: Node) -> tuple[Node | None, ...]:
    dx = grouped_matmul(g, transpose(w), bounds) if x.requires_grad else None
    dw = grouped_weight_grad(x, g, bounds) if w.requires_grad else None
    return dx, dw, None


def _matmul_decomposed(x: Node, w: Node, bounds: Node) -> Node:
    """The products of all rows with all matrices; each row picks that with its own matrix."""
    groups, rows, columns = w.shape[0], *_matmul_infer(x, w, bounds)[0]
    products = matmul(x, w)
    own = reshape(is_within(bounds, rows), (groups, rows, 1))
    chosen = sum_(where(own, products, constant(0, x.dtype)), (0,))
    return reshape(chosen, (rows, columns))


grouped_matmul = Op(
    "grouped_matmul",
    Kind.CONTRACTION,
    _matmul_infer,
    vjp=_matmul_vjp,
    numpy=_matmul_numpy,
    decompose=_matmul_decomposed,
)
"""y[s] = x[s, k] @ w[i, k, n] for the rows s of group i; zeros for rows of no group."""


def _weight_grad_infer(x: Node, g: Node, bounds: Node) -> Aval:
    _check("grouped_weight_grad", x, g, bounds)
    if x.rank != 2 or g.rank != 2 or x.shape[0] != g.shape[0]:
        raise RuntimeError(
            f"grouped_weight_grad: expected matrices of as many rows, got {tuple(x.shape)} and "
            f"{tuple(g.shape)}{at_user_line()}"
        )
    return Size((bounds.shape[0] - 1, x.shape[1], g.shape[1])), x.dtype


def _weight_grad_numpy(x: Any, g: Any, bounds: Any) -> Any:
    wide = accumulator(from_numpy(x.dtype)).np
    dtype = x.dtype
    x, g = (each.astype(wide, copy=False) for each in (x, g))
    y = np.zeros((len(bounds) - 1, x.shape[1], g.shape[1]), wide)
    for part, (begin, stop) in zip(y, pairwise(bounds.tolist())):
        if begin < stop:
            np.matmul(x[begin:stop].T, g[begin:stop], part)
    return y.astype(dtype, copy=False)


def _weight_grad_vjp(h: Node, out: Node, x: Node, g: Node, bounds: Node) -> tuple[Node | None, ...]:
    dx = grouped_matmul(g, transpose(h), bounds) if x.requires_grad else None
    dg = grouped_matmul(x, h, bounds) if g.requires_grad else None
    return dx, dg, None


def _weight_grad_decomposed(x: Node, g: Node, bounds: Node) -> Node:
    """A product for each group; the rows of other groups are replaced by zeros."""
    own = is_within(bounds, x.shape[0])
    own = reshape(own, (*own.shape, 1))
    x, g = (where(own, each, constant(0, each.dtype)) for each in (x, g))
    return matmul(transpose(x), g)


grouped_weight_grad = Op(
    "grouped_weight_grad",
    Kind.CONTRACTION,
    _weight_grad_infer,
    vjp=_weight_grad_vjp,
    numpy=_weight_grad_numpy,
    decompose=_weight_grad_decomposed,
)
"""The adjoint of `grouped_matmul` in w: y[i] = sum of x[s, k]^T g[s, n] over group i's rows s."""


def has_trivial_size(node: Node) -> bool:
    """Whether a product in groups has a size of 0 or 1, and is better off as primitives."""
    a, b, _ = node.operands
    return math.prod(node.shape) == 0 or min(*node.shape, *a.shape, *b.shape) < 2


def grouped_mm(a: Node, b: Node, ends: Node | None) -> Node:
    """One product for each group. A matrix without a dimension for groups is cut into slices.

    a[M, K] @ b[G, K, N]: groups of rows of a, and of the result [M, N], rows of none being zeros.
    a[G, M, K] @ b[K, N]: groups of columns of b, and of the result [M, N].
    a[M, K] @ b[K, N]: groups of K; the result is [G, M, N].
    a[G, M, K] @ b[G, K, N]: without `ends`, a product of stacks of matrices.
    """
    if ends is None:
        return matmul(a, b)
    if a.rank == b.rank == 2:
        return grouped_weight_grad(transpose(a), b, group_bounds(ends, b.shape[0]))
    if a.rank == 2:
        return grouped_matmul(a, b, group_bounds(ends, a.shape[0]))
    bounds = group_bounds(ends, b.shape[1])
    return transpose(grouped_matmul(transpose(b), transpose(a), bounds))
