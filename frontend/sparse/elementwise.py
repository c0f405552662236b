"""Elementwise functions of sparse tensors: those that keep zeros, sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tilewright.ir.location import at_user_line

from ..functions import complexes, composed, creation, elementwise, special
from ..functions.call import DECLARED
from ..functions.joining import cat
from ..recording import Handle, record
from ..recording.compounds import rule
from . import structure
from .blocks import Blocked, in_layout_of, sum_of_blocks
from .tensors import (
    COO,
    Compressed,
    Lines,
    Sparse,
    _picked,
    _spread,
    as_coo,
    coo,
    coo_at,
    is_sparse,
    lines,
    rows_at,
    to_compressed,
)

# The order of imports: these modules declare the functions that are named below.
_DECLARING = (complexes, composed, special)

# Functions with f(0) = 0, of which the elements alone are computed. Those that are linear take each
# part of a sum by itself.
_KEEPING_ZERO = (
    "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan isneginf "
    "isposinf log1p rad2deg relu sgn sign signbit sin sinh sqrt square tan tanh trunc angle"
)
_LINEAR = "neg positive conj real imag conj_physical"


def _of_elements(build: Callable[..., Any], linear: bool) -> Callable[..., Any]:
    def apply(t: Any, *attrs: Any) -> Any:
        whole = t.coalesce() if isinstance(t, COO) and not linear else t
        return whole._like(record(build, whole._elements, *attrs))

    return apply


for _names, _linear in ((_KEEPING_ZERO, False), (_LINEAR, True)):
    for _name in _names.split():
        for _build in DECLARED[_name].builders if _name in DECLARED else ():
            rule(Sparse, _build)(_of_elements(_build, _linear))
rule(Sparse, elementwise._round)(_of_elements(elementwise._round, False))


@rule(Sparse, elementwise._nan_to_num)
def _nan_to_num(t: Any, nan: Any, high: Any, low: Any) -> Any:
    whole = t.coalesce() if isinstance(t, COO) else t
    return whole._like(record(elementwise._nan_to_num, whole._elements, nan, high, low))


# ---- sums ---------------------------------------------------------------------------------------


def _need_same_shape(name: str, a: Any, b: Any) -> None:
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(
            f"{name}: expected 'self' and 'other' to have same size, but self has size "
            f"{list(a.shape)} while other has size {list(b.shape)} (sparse tensors are not "
            f"broadcast){at_user_line()}"
        )


def _need_tensor(value: Any) -> None:
    if not isinstance(value, Handle):
        _no_dense()


def _no_dense() -> NoReturn:
    raise RuntimeError(
        "add(sparse, dense) is not supported. Use add(dense, sparse) instead." + at_user_line()
    )


def summed(a: Any, b: Any) -> Any:
    """a + b, of which at least one is sparse."""
    _need_tensor(a)
    _need_tensor(b)
    if is_sparse(a) and is_sparse(b):
        return _of_both(a, b)
    if is_sparse(a) and isinstance(a, COO):
        _no_dense()
    dense, sparse = (b, a) if is_sparse(a) else (a, b)
    _need_same_shape("add", dense, sparse)
    by = as_coo(sparse)
    return dense + record(_spread, by._elements, by._at, tuple(by._sizes))


def _of_both(a: Any, b: Any) -> Any:
    _need_same_shape("add", a, b)
    if type(a) is not type(b):
        raise RuntimeError(
            f"add: expected tensors of one layout, got {a.layout} and {b.layout}{at_user_line()}"
        )
    if a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same number of sparse dimensions, got "
            f"{a.sparse_dim()} and {b.sparse_dim()}{at_user_line()}"
        )
    if _is_same(a, b):
        return a._like(a._elements + b._elements)
    if isinstance(a, Blocked):
        return sum_of_blocks(a, b, _concatenated)
    if isinstance(a, Compressed):
        return to_compressed(_concatenated(as_coo(a), as_coo(b)), a._by_rows)
    whole = _concatenated(a, b)
    return whole.coalesce() if a._is_merged and b._is_merged else whole


def _is_same(a: Any, b: Any) -> bool:
    """Whether two tensors share their positions."""
    return type(a) is type(b) and all(
        x is y for x, y in zip(a._structure(), b._structure(), strict=True)
    )


def _concatenated(a: COO, b: COO) -> COO:
    """a + b by all elements of both."""
    return coo(cat([a._at, b._at], 1), cat([a._elements, b._elements]), a._sizes)


@rule(Sparse, elementwise._add)
def _add(a: Any, b: Any) -> Any:
    return summed(a, b)


@rule(Sparse, elementwise._add_scaled)
def _add_scaled(a: Any, b: Any, alpha: Any) -> Any:
    return summed(a, b * alpha)


@rule(Sparse, elementwise._sub)
def _sub(a: Any, b: Any) -> Any:
    _need_tensor(a)
    _need_tensor(b)
    return summed(a, -b)


@rule(Sparse, elementwise._sub_scaled)
def _sub_scaled(a: Any, b: Any, alpha: Any) -> Any:
    return summed(a, -(b * alpha))


# ---- products -----------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return not isinstance(value, Handle) or (value.dim() == 0 and not is_sparse(value))


@rule(Sparse, elementwise._mul)
def _mul(a: Any, b: Any) -> Any:
    if _is_number(b):
        return a._like(a._elements * b)
    if _is_number(a):
        return b._like(a * b._elements)
    if is_sparse(a) and is_sparse(b):
        return _intersection(a, b)
    return _by_dense(a, b) if is_sparse(a) else _by_dense(b, a)


def _by_dense(sparse: Any, dense: Any) -> Any:
    by = as_coo(sparse)
    try:
        whole = dense.expand(tuple(sparse.shape))
    except RuntimeError:
        raise RuntimeError(
            f"mul: a dense operand must broadcast to the sparse one's size {list(sparse.shape)}, "
            f"got {list(dense.shape)}{at_user_line()}"
        ) from None
    factors = record(_picked, whole, by._at).reshape(sparse._elements.shape)
    return sparse._like(sparse._elements * factors)


def _intersection(a: Any, b: Any) -> Any:
    _need_same_shape("mul", a, b)
    if _is_same(a, b) and (isinstance(a, Lines) or a._is_merged):
        return a._like(a._elements * b._elements)
    left, right = as_coo(a).coalesce(), as_coo(b).coalesce()
    if left.sparse_dim() != right.sparse_dim():
        raise RuntimeError(
            "mul: expected as many sparse dimensions in both operands, got "
            f"{left.sparse_dim()} and {right.sparse_dim()}{at_user_line()}"
        )
    if left._at is right._at:
        found = left._like(left._elements * right._elements)
    else:
        sizes = left._sparse_sizes()
        at, i, j = structure.common(left._positions(), right._positions(), sizes)
        found = coo_at(at, rows_at(left._elements, i) * rows_at(right._elements, j), left._sizes)
    return in_layout_of(a, found)


def _need_number(value: Any) -> None:
    if not _is_number(value):
        raise RuntimeError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{list(value.shape)} for divisor){at_user_line()}"
        )


@rule(Sparse, elementwise._div)
def _div(a: Any, b: Any) -> Any:
    _need_number(b)
    return a._like(a._elements / b)


@rule(Sparse, elementwise._div_trunc)
def _div_trunc(a: Any, b: Any) -> Any:
    _need_number(b)
    whole = a.coalesce() if isinstance(a, COO) else a
    return whole._like(record(elementwise._div_trunc, whole._elements, b))


@rule(Sparse, elementwise._div_floor, *DECLARED["floor_divide"].builders)
def _floor_divide(a: Any, b: Any) -> Any:
    _need_number(b)
    whole = a.coalesce() if isinstance(a, COO) else a
    return whole._like(whole._elements // b)


@rule(Sparse, *DECLARED["dist"].builders)
def _dist(a: Any, b: Any, p: float) -> Any:
    apart = summed(a, -b)
    held = apart.coalesce() if isinstance(apart, COO) else apart
    return held._elements.norm(p)


@rule(Sparse, elementwise._pow)
def _pow(a: Any, b: Any) -> Any:
    exponent = b.item() if isinstance(b, Handle) and _is_number(b) else b
    if isinstance(exponent, Handle) or not is_sparse(a):
        raise NotImplementedError(
            f"pow: a sparse tensor can be raised to a number only{at_user_line()}"
        )
    if exponent == 0:
        raise RuntimeError(
            "pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor "
            f"dense{at_user_line()}"
        )
    whole = a.coalesce() if isinstance(a, COO) else a
    return whole._like(whole._elements**exponent)


@rule(Sparse, creation.full)
def _full(t: Any, value: Any, dtype: Any, requires_grad: bool) -> Any:
    """A compressed tensor with a number at its positions."""
    if not isinstance(t, Lines):
        raise NotImplementedError(
            f"full_like: not implemented for tensors of layout {t.layout}{at_user_line()}"
        )
    kind = t.dtype if dtype is None else dtype
    made = t._like(creation.full_like(t._elements.detach(), value, dtype=kind))
    return made.requires_grad_(requires_grad)


@rule(Sparse, creation.filled)
def _filled(t: Any, value: Any, dtype: Any, requires_grad: bool) -> Any:
    """Zeros: a tensor of the same size without elements. A compressed one may be filled with ones,
    at its positions."""
    kind = t.dtype if dtype is None else dtype
    elements = t._elements.detach()
    if isinstance(t, Compressed) and value:
        return _full(t, value, dtype, requires_grad)
    if value:
        raise NotImplementedError(
            f"ones_like: not implemented for tensors of layout {t.layout}{at_user_line()}"
        )
    if isinstance(t, Lines):
        pointers = t._pointers.new_zeros(t._pointers.shape)
        none = elements.narrow(len(t._batch), 0, 0).to(kind)
        empty = lines(type(t), t._by_rows, pointers, t._minor[..., :0], none, t._sizes)
        return empty.requires_grad_(requires_grad)
    none = elements.new_zeros((0, *elements.shape[1:]), dtype=kind)
    made = coo_at(np.empty((t.sparse_dim(), 0), np.int64), none, t._sizes)
    return made.requires_grad_(requires_grad)
