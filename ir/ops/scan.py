"""Sequential operations along one axis: cumulative sums, products and extrema, and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import BOOL, accumulator, complex64, float32, from_numpy, int64
from ..node import Node
from ..op import Aval, Fold, Kind, Op, not_implemented
from .binary import bitwise_and, bitwise_or, eq, maximum, ne
from .composite import require_float
from .gather import put_along
from .generate import constant
from .movement import expand, flip, positions_along
from .ternary import where
from .unary import abs, cast, exp, full_like, log, log1p, zeros_like


def _accumulation(name: str, ufunc: Any, fold: Fold, vjp: Any, **more: Any) -> Op:
    """A cumulative fold that keeps the dtype. Half types accumulate in float32, and float32 in
    float64 if the op is `wide`."""

    def infer(x: Node, axis: int) -> Aval:
        if x.dtype.category == BOOL:
            raise not_implemented(name, x.dtype, "expected numbers, as x.int() gives")
        return x.shape, x.dtype

    def numpy(x: Any, axis: int) -> Any:
        own = accumulator(from_numpy(x.dtype))
        wide = {float32: np.float64, complex64: np.complex128} if more.get("wide") else {}
        inner = wide.get(own, own.np)
        return ufunc(x, axis=axis, dtype=inner).astype(x.dtype)

    return Op(name, Kind.SCAN, infer, params=("axis",), vjp=vjp, numpy=numpy, fold=fold, **more)


def _suffix_sum(x: Node, axis: int) -> Node:
    return flip(cumsum(flip(x, (axis,)), axis), (axis,))


cumsum_op = _accumulation(
    "cumsum",
    np.cumsum,
    Fold.SUM,
    lambda g, out, x, axis: (_suffix_sum(g, axis),),
    onnx="CumSum",
    wide=True,
    complex=True,
)


def cumsum(x: Node, axis: int) -> Node:
    """Element i is the sum of elements 0 … i of `x` along `axis`."""
    return cumsum_op(x, axis) if x.rank else x


def _cumprod_vjp(g: Node, out: Node, x: Node, axis: int) -> tuple[Node]:
    # d out[j] / d x[i] is out[j] / x[i] for j >= i. Where x[i] is the first zero, it is the product
    # of the others: cumprod with a 1 for that zero. Past the first zero it is 0.
    zero = eq(x, zeros_like(x))
    rank = cumsum(cast(zero, int64), axis)
    first = bitwise_and(zero, eq(rank, full_like(rank, 1)))
    one = full_like(x, 1)
    at_first = _suffix_sum(g * cumprod(where(first, one, x), axis), axis)
    elsewhere = _suffix_sum(g * out, axis) / where(zero, one, x)
    return (where(first, at_first, where(zero, zeros_like(x), elsewhere)),)


cumprod_op = _accumulation("cumprod", np.cumprod, Fold.PROD, _cumprod_vjp, wide=True, complex=True)


def cumprod(x: Node, axis: int) -> Node:
    """Element i is the product of elements 0 … i of `x` along `axis`.

    The gradient is right at zeros; the second derivative misses the term between two zeros.
    """
    return cumprod_op(x, axis) if x.rank else x


def _integer(name: str, numpy: Any, params: tuple[str, ...], **more: Any) -> Op:
    return Op(name, Kind.SCAN, lambda x, *_: (x.shape, int64), params=params, numpy=numpy, **more)


def _to_places(g: Node, index: Node, axis: int) -> tuple[Node]:
    """The cotangent of running extrema goes to their places."""
    return (put_along(zeros_like(g), g, index, axis, "add"),)


cummax_op = _accumulation(
    "cummax",
    np.maximum.accumulate,
    Fold.MAX,
    lambda g, out, x, axis: _to_places(g, cummax_index(x, axis), axis),
)
cummin_op = _accumulation(
    "cummin",
    np.minimum.accumulate,
    Fold.MIN,
    lambda g, out, x, axis: _to_places(g, cummin_index(x, axis), axis),
)


def cummax(x: Node, axis: int) -> Node:
    """Element i is the largest of elements 0 … i of `x` along `axis`; NaN is the largest."""
    return cummax_op(x, axis) if x.rank else x


def cummin(x: Node, axis: int) -> Node:
    """Element i is the smallest of elements 0 … i of `x` along `axis`; NaN is the smallest."""
    return cummin_op(x, axis) if x.rank else x


def _running_index(ufunc: Any, extremum: Op) -> dict[str, Any]:
    """How the index of a running extremum is computed: by NumPy, and by two running extrema."""

    def numpy(x: Any, axis: int) -> Any:
        running = ufunc.accumulate(x, axis=axis)
        # NaN, once met, is the extremum, and the last NaN is the one that counts.
        with np.errstate(invalid="ignore"):
            hit = (x == running) | (x != x)
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        place = np.arange(x.shape[axis], dtype=np.int64).reshape(shape)
        return np.maximum.accumulate(np.where(hit, place, 0), axis=axis)

    def decompose(x: Node, axis: int) -> Node:
        hit = bitwise_or(eq(x, extremum(x, axis)), ne(x, x))
        here = positions_along(axis, x.shape)
        return cummax_op(where(hit, expand(here, x.shape), zero_index(x)), axis)

    return {"numpy": numpy, "decompose": decompose}


def _index(name: str, **more: Any) -> Op:
    return Op(name, Kind.COMPOSITE, lambda x, axis: (x.shape, int64), params=("axis",), **more)


cummax_index_op = _index("cummax_index", **_running_index(np.maximum, cummax_op))
cummin_index_op = _index("cummin_index", **_running_index(np.minimum, cummin_op))


def cummax_index(x: Node, axis: int) -> Node:
    """int64: where the largest of elements 0 … i lies, the last one of equals; NaN is largest."""
    return cummax_index_op(x, axis) if x.rank else zero_index(x)


def cummin_index(x: Node, axis: int) -> Node:
    """int64: where the smallest of elements 0 … i lies, the last one of equals; NaN is smallest."""
    return cummin_index_op(x, axis) if x.rank else zero_index(x)


def zero_index(x: Node) -> Node:
    return expand(constant(0, int64, x.device), x.shape)


def positions_in_order(x: Any, axis: int, descending: bool) -> Any:
    # NumPy has no order with NaN for the dtypes of ml_dtypes.
    key = x.astype(np.float32) if x.dtype.kind == "V" else x
    if not descending:
        return np.argsort(key, axis=axis, kind="stable")
    # Backwards twice: equal elements keep their order, and NaN comes first.
    order = np.flip(np.argsort(np.flip(key, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - order


argsort_op = _integer("argsort", positions_in_order, ("axis", "descending"))


def argsort(x: Node, axis: int, descending: bool = False) -> Node:
    """int64: the stable order that sorts `x` along `axis`; NaN counts as larger than all numbers.

    The sorted values are `take_along(x, argsort(x, axis), axis)`, which has the gradient.
    """
    return argsort_op(x, axis, descending) if x.rank else zero_index(x)


def logaddexp(a: Node, b: Node) -> Node:
    """log(exp(a) + exp(b)), without overflow."""
    # The difference of infinities of one sign is NaN, here and in the gradient.
    apart = a - b
    apart = where(eq(a, b), zeros_like(apart), apart)
    return maximum(a, b) + log1p(exp(-abs(apart)))


def _logcumsumexp_vjp(g: Node, out: Node, x: Node, axis: int) -> tuple[Node]:
    """The sums of g[j] exp(x[i] - out[j]) over j >= i, in logarithms too, by the sign of g."""
    nothing, zero = full_like(g, -np.inf), zeros_like(g)

    def part(size: Node) -> Node:
        term = where(eq(out, nothing), nothing, log(size) - out)
        return exp(x + flip(logcumsumexp(flip(term, (axis,)), axis), (axis,)))

    return (part(maximum(g, zero)) - part(maximum(-g, zero)),)


logcumsumexp_op = _accumulation(
    "logcumsumexp", np.logaddexp.accumulate, Fold.LOGSUMEXP, _logcumsumexp_vjp, wide=True
)


def logcumsumexp(x: Node, axis: int) -> Node:
    """Element i is log(exp(x[0]) + … + exp(x[i])) along `axis`; no term is lost beside a larger one
    that comes later."""
    require_float("logcumsumexp", x)
    return logcumsumexp_op(x, axis) if x.rank else x
