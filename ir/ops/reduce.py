"""Folds over axes. The axes stay in the shape with size 1; `squeeze` drops them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtype import BOOL, accumulator, bool_, int64
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Fold, Kind, Op
from ..shape import Size
from .binary import eq
from .composite import as_dtype, composite, widen
from .generate import constant
from .movement import expand
from .ternary import where
from .unary import cast, sqrt, zeros_like


def reduced_shape(shape: Sequence[int], axes: Sequence[int]) -> Size:
    return Size(1 if i in axes else s for i, s in enumerate(shape))


def _infer(name: str, x: Node, axes: tuple[int, ...], needs_elements: bool) -> Aval:
    if needs_elements and any_empty(x.shape, axes):
        raise IndexError(
            f"{name}: can't reduce an empty dimension of {tuple(x.shape)}{at_user_line()}"
        )
    return reduced_shape(x.shape, axes), x.dtype


def _reduction(
    name: str, numpy: Any, fold: Fold, *, needs_elements: bool = False, **more: Any
) -> Op:
    return Op(
        name,
        Kind.REDUCE,
        lambda x, axes: _infer(name, x, axes, needs_elements),
        params=("axes",),
        numpy=numpy,
        fold=fold,
        **more,
    )


def _wide(ufunc: Any) -> Any:
    """A NumPy reduction that keeps the dtype and accumulates halves in float32."""

    def reduce(x: Any, axes: tuple[int, ...]) -> Any:
        from ..dtype import from_numpy

        wide = accumulator(from_numpy(x.dtype)).np
        return ufunc(x, axis=axes, keepdims=True, dtype=wide).astype(x.dtype)

    return reduce


sum_op = _reduction(
    "sum",
    _wide(np.sum),
    Fold.SUM,
    vjp=lambda g, out, x, axes: (expand(g, x.shape),),
    onnx="ReduceSum",
    complex=True,
)


def sum(x: Node, axes: Sequence[int]) -> Node:
    """Sum over `axes`, in the dtype of `x`."""
    return sum_op(x, tuple(axes)) if axes else x


def _prod_vjp(g: Node, out: Node, x: Node, axes: tuple[int, ...]) -> tuple[Node]:
    # The slope is the product of the other elements: out / x, also if another one is zero. Where x
    # itself is zero it is computed anew. Then the other zeros are a factor with derivatives: of one
    # it is their sum, and of two half the square of their sum less the sum of their squares.
    # (Fourth derivatives miss the term among four zeros.)
    zero = eq(x, zeros_like(x))
    count = sum(cast(zero, int64), axes)
    safe = where(zero, zeros_like(x) + 1, x)
    others = prod(safe, axes)
    nothing = where(zero, x, zeros_like(x))
    one = sum(nothing, axes) - nothing
    two = (one * one - (sum(nothing * nothing, axes) - nothing * nothing)) / 2
    at_zero = where(count < 3, others * one, others * two)
    at_zero = where(count < 2, expand(others, x.shape), at_zero)
    at_zero = where(count > 3, zeros_like(x), at_zero)
    return (g * where(zero, at_zero, out / safe),)


prod_op = _reduction(
    "prod",
    _wide(np.prod),
    Fold.PROD,
    vjp=_prod_vjp,
    onnx="ReduceProd",
    domain=(0.5, 1.5),
    complex=True,
)


def prod(x: Node, axes: Sequence[int]) -> Node:
    """Product over `axes`, in the dtype of `x`."""
    return prod_op(x, tuple(axes)) if axes else x


def _extremum_vjp(g: Node, out: Node, x: Node, axes: tuple[int, ...]) -> tuple[Node]:
    # Ties share the gradient evenly, as in PyTorch's amax and amin.
    hit = cast(eq(x, out), x.dtype)
    return (g / sum(hit, axes) * hit,)


max_op = _reduction(
    "max",
    lambda x, axes: np.max(x, axis=axes, keepdims=True),
    Fold.MAX,
    needs_elements=True,
    vjp=_extremum_vjp,
    onnx="ReduceMax",
)
min_op = _reduction(
    "min",
    lambda x, axes: np.min(x, axis=axes, keepdims=True),
    Fold.MIN,
    needs_elements=True,
    vjp=_extremum_vjp,
    onnx="ReduceMin",
)


def max(x: Node, axes: Sequence[int]) -> Node:
    """Largest element over `axes`; NaN if one is among them."""
    return max_op(x, tuple(axes)) if axes else x


def min(x: Node, axes: Sequence[int]) -> Node:
    """Smallest element over `axes`; NaN if one is among them."""
    return min_op(x, tuple(axes)) if axes else x


def _truth(name: str, numpy: Any, fold: Fold) -> Op:
    def infer(x: Node, axes: tuple[int, ...]) -> Aval:
        if x.dtype.category != BOOL:
            raise TypeError(f"{name}: expected a bool tensor, got {x.dtype}{at_user_line()}")
        return reduced_shape(x.shape, axes), bool_

    return Op(name, Kind.REDUCE, infer, params=("axes",), numpy=numpy, fold=fold)


any_op = _truth("any", lambda x, axes: np.any(x, axis=axes, keepdims=True), Fold.ANY)
all_op = _truth("all", lambda x, axes: np.all(x, axis=axes, keepdims=True), Fold.ALL)


def any(x: Node, axes: Sequence[int]) -> Node:
    return any_op(x, tuple(axes)) if axes else x


def all(x: Node, axes: Sequence[int]) -> Node:
    return all_op(x, tuple(axes)) if axes else x


def _arg_infer(x: Node, axes: tuple[int, ...]) -> Aval:
    if any_empty(x.shape, axes):
        raise IndexError(
            f"argmax: can't reduce an empty dimension of {tuple(x.shape)}{at_user_line()}"
        )
    return reduced_shape(x.shape, axes), int64


def any_empty(shape: Sequence[int], axes: Sequence[int]) -> bool:
    return 0 in [shape[a] for a in axes]


def _arg_numpy(function: Any) -> Any:
    def reduce(x: Any, axes: tuple[int, ...]) -> Any:
        kept = [i for i in range(x.ndim) if i not in axes]
        count = math.prod(x.shape[i] for i in axes)
        flat = np.transpose(x, (*kept, *axes)).reshape([*(x.shape[i] for i in kept), count])
        return function(flat, axis=-1).astype(np.int64).reshape(reduced_shape(x.shape, axes))

    return reduce


argmax = Op(
    "argmax",
    Kind.REDUCE,
    _arg_infer,
    params=("axes",),
    numpy=_arg_numpy(np.argmax),
    onnx="ArgMax",
    fold=Fold.ARGMAX,
)
"""Row-major position, within `axes`, of the first largest element (NaN is the largest)."""
argmin = Op(
    "argmin",
    Kind.REDUCE,
    _arg_infer,
    params=("axes",),
    numpy=_arg_numpy(np.argmin),
    onnx="ArgMin",
    fold=Fold.ARGMIN,
)
"""Row-major position, within `axes`, of the first smallest element (NaN is the smallest)."""


def mean(x: Node, axes: Sequence[int]) -> Node:
    """Arithmetic mean over `axes`, for floats; halves are summed and divided in float32."""
    assert x.dtype.is_differentiable, "mean is taken of floats"
    count = math.prod(x.shape[a] for a in axes)
    return as_dtype(sum(widen(x), axes) / float(count), x.dtype)


# ---- variances -------------------------------------------------------------------------------
#
# The divisor is the number of elements less PyTorch's correction, but never below 0.


def _spread(name: str, decompose: Any, vjp: Any) -> Op:
    return composite(
        name,
        lambda x, axes, divisor: (reduced_shape(x.shape, axes), x.dtype),
        decompose,
        vjp=vjp,
        params=("axes", "divisor"),
        wide=True,
    )


def _squares(x: Node, axes: tuple[int, ...], divisor: float) -> Node:
    centred = x - mean(x, axes)
    return sum(centred * centred, axes) / constant(divisor, x.dtype)


def _variance_vjp(
    g: Node, out: Node, x: Node, axes: tuple[int, ...], divisor: float
) -> tuple[Node | None, ...]:
    return (g * ((x - mean(x, axes)) * (2.0 / divisor if divisor else math.nan)),)


def _deviation_vjp(g: Node, out: Node, *args: Any) -> tuple[Node | None, ...]:
    # Where all elements are equal there is a kink; PyTorch takes its middle, zero.
    flat = eq(out, zeros_like(out))
    slope = where(flat, zeros_like(out), g / where(flat, zeros_like(out) + 1, out + out))
    return _variance_vjp(slope, out, *args)


variance = _spread("variance", _squares, _variance_vjp)
"""variance(x, axes, divisor): the sum of squared distances from the mean over `axes`, divided."""
deviation = _spread("deviation", lambda *args: sqrt(_squares(*args)), _deviation_vjp)
"""deviation(x, axes, divisor): the root of `variance`."""
