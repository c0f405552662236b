"""Calls of nested tensors that look at one element or one row at a time: they are calls of all
rows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line

from ..functions import creation, elementwise, masks, sampling
from ..functions.call import DECLARED
from ..nn.functional import activation, normalization
from ..nn.functional.dropout import _alpha_dropout
from ..nn.functional.linear import _embedding, _linear
from ..recording import Handle, record
from ..recording.builders import name_of
from ..recording.compounds import rule
from .padding import unpadded
from .tensors import Nested, is_nested

_OPTIONED = (
    elementwise._add, elementwise._add_scaled, elementwise._sub, elementwise._sub_scaled,
    elementwise._div, elementwise._div_trunc, elementwise._number_by, elementwise._round,
    elementwise._clamp_low, elementwise._clamp_high, elementwise._clamp_between,
    elementwise._lerp, elementwise._lerp_from_begin, elementwise._lerp_from_end,
    elementwise._addcmul, elementwise._addcdiv, elementwise._nan_to_num, elementwise._isclose,
    masks._where, masks.masked_filled,
)  # fmt: skip
_ACTIVATIONS = (
    activation._silu, activation._softplus, ops.gelu, ops.elu, ops.celu, ops.leaky_relu,
    ops.relu, ops.relu6, ops.mish, ops.selu, ops.hardswish, ops.hardsigmoid, ops.softsign,
    ops.tanhshrink, ops.hardtanh, ops.threshold, ops.hardshrink, ops.softshrink, ops.logsigmoid,
    ops.dropout, _alpha_dropout,
)  # fmt: skip


def aligned(t: Any, like: Nested) -> Any:
    """A dense operand so that it broadcasts with the elements of `like`."""
    if t.dim() > like.dim():
        raise NotImplementedError(
            f"a nested tensor of {like.dim()} dimensions can't be broadcast with a dense one of "
            f"{t.dim()}{at_user_line()}"
        )
    ragged = like._ragged_idx - like.dim()  # counted from the end, as broadcasting does
    if t.dim() < -ragged:
        return t
    if t.shape[ragged] != 1:
        whole = t.dim() == like.dim() and t.shape[0] == like._rows.count
        if whole and like._rows.lengths is None and t.shape[ragged] == like._rows.longest():
            return unpadded(t, like, like._ragged_idx)
        raise RuntimeError(
            f"a dense operand of shape {list(t.shape)} doesn't broadcast with a nested tensor of "
            f"shape {tuple(like.shape)}: its size in the ragged dimension must be 1, or that of "
            f"the longest sequence in a padded operand{at_user_line()}"
        )
    if t.dim() < like.dim():
        return t
    if t.shape[0] == 1:
        return t.squeeze(0)
    if t.shape[0] != like._rows.count:
        raise RuntimeError(
            f"a dense operand of shape {list(t.shape)} doesn't broadcast with a nested tensor of "
            f"shape {tuple(like.shape)}{at_user_line()}"
        )
    return by_rows(t.squeeze(like._ragged_idx), like)


def by_rows(t: Any, like: Nested) -> Any:
    """t[sequences, ...], which has no ragged dimension, for each row of `like`."""
    axis = like._ragged_idx - 1
    number = like._rows.numbers(like._elements.shape[axis])
    last = max(like._rows.count - 1, 0)
    return t.index_select(0, number.clamp(0, last)).movedim(0, axis)


def matched(name: str, args: tuple[Any, ...]) -> tuple[Nested, list[Any]]:
    """The first nested operand, and all operands as they meet element by element."""
    first: Nested = next(a for a in args if is_nested(a))
    for a in args:
        if is_nested(a) and (a._rows is not first._rows or a._ragged_idx != first._ragged_idx):
            raise RuntimeError(
                f"cannot call binary pointwise function {name} with inputs of shapes "
                f"{tuple(first.shape)} and {tuple(a.shape)}{at_user_line()}"
            )
    return first, [
        a._elements if is_nested(a) else aligned(a, first) if isinstance(a, Handle) else a
        for a in args
    ]


Matching = Callable[[str, tuple[Any, ...]], tuple[Any, list[Any]]]
"""From the name of a call and its operands: the first compound, and the elements of all."""


def by_element(build: Callable[..., Any], matched: Matching) -> Callable[..., Any]:
    """The rule of a call that looks at one element at a time: it is a call of the elements."""

    def apply(*args: Any) -> Any:
        name = name_of(build) or ""
        first, parts = matched(name, args)
        if name in _OPERATORS and not all(isinstance(p, Handle) for p in parts):
            return first._like(_OPERATORS[name](*parts))
        return first._like(record(build, *parts))

    return apply


_OPERATORS: dict[Any, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "div": operator.truediv,
    "reciprocal": operator.truediv,
}
"""The calls of two operands by name, where one may be a number."""
BUILDERS: dict[Any, None] = dict.fromkeys((*_OPTIONED, *_ACTIVATIONS))
"""What looks at one element at a time."""
for _op in DECLARED.values():
    if _op.operands:
        BUILDERS.update(dict.fromkeys(_op.builders))
    if _op.operands == 2 and _op.function is not None:
        _OPERATORS[_op.name] = _op.function
for _build in BUILDERS:
    rule(Nested, _build)(by_element(_build, matched))


@rule(Nested, creation.filled)
@rule(Nested, creation.full)
def _filled(t: Any, value: Any, dtype: Any, requires_grad: bool) -> Any:
    made = t._like(creation.full_like(t._elements.detach(), value, dtype=dtype))
    return made.requires_grad_(requires_grad)


def _drawing(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(t: Any, options: dict[str, Any]) -> Any:
        return t._like(function(t._elements, **options))

    return apply


for _function in (sampling.rand_like, sampling.randn_like):
    rule(Nested, _function)(_drawing(_function))


# ---- rows ---------------------------------------------------------------------------------------


def _need_regular(name: str, t: Nested, dims: int) -> None:
    """RuntimeError if the ragged dimension is among the last `dims`."""
    if t._ragged_idx >= t.dim() - dims:
        raise RuntimeError(
            f"{name}(): not supported over the ragged dimension of a nested tensor of shape "
            f"{tuple(t.shape)}{at_user_line()}"
        )


@rule(Nested, _linear)
def _affine(x: Any, weight: Any, *bias: Any) -> Any:
    _need_regular("linear", x, 1)
    return x._like(record(_linear, x._elements, weight, *bias))


def _normalizing(build: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, dims: int, *args: Any) -> Any:
        _need_regular(name_of(build) or "", x, dims)
        return x._like(record(build, x._elements, dims, *args))

    return apply


for _build in (normalization._layer_norm, normalization._rms_norm):
    rule(Nested, _build)(_normalizing(_build))


@rule(Nested, _embedding)
def _embedded(index: Any, weight: Any, *attrs: Any) -> Any:
    return index._like(record(_embedding, index._elements, weight, *attrs))
