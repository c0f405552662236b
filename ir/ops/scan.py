"""Sequential operations along one axis: cumulative sums, products and extrema, and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import BOOL, accumulator, complex64, float32, from_numpy, int64
from ..node import Node
from ..op import Aval, Fold, Kind, Op, not_implemented
from .binary import bitwise_and, bitwise_or, eq, maximum, ne
from .composite import composite, require_float
from .gather import put_along
from .generate import constant
from .movement import cat, expand, flip, positions_along, slice_axis
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


def _cumprod_grad(g: Node, out: Node, x: Node, axis: int) -> Node:
    # d out[j] / d x[i] is out[j] / x[i] for j >= i. Where x[i] is the first zero, it is the product
    # of the others: cumprod with a 1 for that zero. Past the first zero it is 0.
    zero = eq(x, zeros_like(x))
    rank = cumsum(cast(zero, int64), axis)
    first = bitwise_and(zero, eq(rank, full_like(rank, 1)))
    one = full_like(x, 1)
    at_first = _suffix_sum(g * cumprod(where(first, one, x), axis), axis)
    elsewhere = _suffix_sum(g * out, axis) / where(zero, one, x)
    return where(first, at_first, where(zero, zeros_like(x), elsewhere))


def _cumprod_grad_vjp(
    h: Node, made: Node, g: Node, out: Node, x: Node, axis: int
) -> tuple[Node | None, ...]:
    """By the product of the elements before each, and the rest: the cotangents of those behind,
    times what lies between. It divides by nothing, so zeros are no exceptions."""
    size = x.shape[axis]
    one = full_like(_part(x, axis, 0, 1), 1)
    before = cat([one, cumprod(_part(x, axis, 0, size - 1), axis)], axis)
    next_one = cat([_part(x, axis, 1, size), one], axis)
    rest = flip(_recurrence(flip(next_one, (axis,)), flip(g, (axis,)), axis), (axis,))
    dg = _recurrence(x, h * before, axis)
    # Of the factors between, and of those before.
    between = _part(dg, axis, 0, size - 1) * _part(rest, axis, 1, size)
    dx = cat([zeros_like(one), between], axis)
    behind = cat([_part(h * rest, axis, 1, size), zeros_like(one)], axis)
    return dg, None, dx + _cumprod_grad_op(behind, out, x, axis)


def _recurrence(a: Node, b: Node, axis: int) -> Node:
    """y[i] = b[i] + a[i] y[i - 1], each by the one before it, then by two more, four, …"""
    size, by = a.shape[axis], 1
    while by < size:
        ahead, early = _part(a, axis, by, size), (axis, 0, size - by)
        b = cat([_part(b, axis, 0, by), _part(b, axis, by, size) + ahead * _part(b, *early)], axis)
        a = cat([_part(a, axis, 0, by), ahead * _part(a, *early)], axis)
        by *= 2
    return b


_part = slice_axis
_cumprod_grad_op = composite(
    "cumprod_grad",
    lambda g, out, x, axis: (x.shape, x.dtype),
    _cumprod_grad,
    vjp=_cumprod_grad_vjp,
    params=("axis",),
    complex=True,
    cost=8,
)
"""The cotangent of x from that of its cumprod."""


def _cumprod_vjp(g: Node, out: Node, x: Node, axis: int) -> tuple[Node]:
    return (_cumprod_grad_op(g, out, x, axis) if x.shape[axis] else x,)


def _products(x: Any, axis: int, dtype: Any) -> Any:
    if not np.issubdtype(dtype, np.complexfloating):
        return np.cumprod(x, axis, dtype=dtype)
    # As in PyTorch, 1 comes first: the product of it and an infinity has a part that is NaN.
    return np.delete(np.cumprod(np.insert(x.astype(dtype), 0, 1, axis), axis), 0, axis)


cumprod_op = _accumulation("cumprod", _products, Fold.PROD, _cumprod_vjp, wide=True, complex=True)


def cumprod(x: Node, axis: int) -> Node:
    """Element i is the product of elements 0 … i of `x` along `axis`."""
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


def _shares_infer(g: Node, *_: Any) -> Aval:
    return g.shape, g.dtype


def _shares(g: Node, a: Node, b: Node, axis: int, behind: bool) -> Node:
    """In logarithms, by the sign of g: the exponentials alone could overflow."""
    nothing, zero = full_like(g, -np.inf), zeros_like(g)
    axes = (axis,) if behind else ()

    def part(size: Node) -> Node:
        term = where(eq(b, nothing), nothing, log(size) - b)
        total = flip(logcumsumexp(flip(term, axes), axis), axes)
        return where(eq(total, nothing), zero, exp(a + total))

    return part(maximum(g, zero)) - part(maximum(-g, zero))


def _shares_vjp(
    g: Node, out: Node, x: Node, a: Node, b: Node, axis: int, behind: bool
) -> tuple[Node, ...]:
    dx = _shares_op(g, -b, -a, axis, not behind)
    return dx, g * out, -x * dx


_shares_op = composite(
    "shares_of_exponentials",
    _shares_infer,
    _shares,
    vjp=_shares_vjp,
    params=("axis", "behind"),
    cost=8,
)
"""(g, a, b; axis, behind): element i is the sum of g[j] exp(a[i] - b[j]) over j >= i if `behind`,
else over j <= i. It is linear in g, and its derivatives are such sums, so they are numbers also
where g is 0."""


def _logcumsumexp_vjp(g: Node, out: Node, x: Node, axis: int) -> tuple[Node]:
    return (_shares_op(g, x, out, axis, True),)


logcumsumexp_op = _accumulation(
    "logcumsumexp", np.logaddexp.accumulate, Fold.LOGSUMEXP, _logcumsumexp_vjp, wide=True
)


def logcumsumexp(x: Node, axis: int) -> Node:
    """Element i is log(exp(x[0]) + … + exp(x[i])) along `axis`; no term is lost beside a larger one
    that comes later."""
    require_float("logcumsumexp", x)
    return logcumsumexp_op(x, axis) if x.rank else x
