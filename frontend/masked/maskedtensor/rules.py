"""What calls do with masked tensors: with their elements, and with their masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.dtype import bool_
from tilewright.ir.location import at_user_line

from ...functions import creation, joining, masks, reduction, statistics
from ...nested.pointwise import BUILDERS, by_element
from ...nn.functional import activation
from ...recording import Handle, record, views
from ...recording.compounds import rule
from ...recording.viewing import view
from .. import normalizations, reductions
from .core import MaskedTensor, is_masked_tensor, masked


def _same(first: MaskedTensor, other: MaskedTensor) -> bool:
    mine, its = first._mask, other._mask
    if mine is its:
        return True
    return mine.shape == its.shape and bool((mine == its).all().item())


def _matched(name: str, args: tuple[Any, ...]) -> tuple[MaskedTensor, list[Any]]:
    """The first masked operand, and the elements of all. ValueError if their masks differ."""
    first: MaskedTensor = next(a for a in args if is_masked_tensor(a))
    if not all(_same(first, a) for a in args if is_masked_tensor(a)):
        raise ValueError(
            f"{name}: Input masks must match. Use torch.where or get_data() to combine tensors of "
            f"different masks{at_user_line()}"
        )
    return first, [a._elements if is_masked_tensor(a) else a for a in args]


def _elementwise(build: Callable[..., Any]) -> Callable[..., Any]:
    call = by_element(build, _matched)

    def apply(*args: Any) -> Any:
        made = call(*args)
        if made._mask.shape != made.shape:  # a dense operand is larger
            made._mask = made._mask.expand(made.shape)
        return made

    return apply


for _build in BUILDERS:
    if _build is not masks._where:
        rule(MaskedTensor, _build)(_elementwise(_build))


@rule(MaskedTensor, masks._where)
def _where(condition: Any, a: Any, b: Any) -> Any:
    def parts(t: Any) -> tuple[Any, Any]:
        if is_masked_tensor(t):
            return t._elements, t._mask
        return t, creation.ones_like(condition)

    if not isinstance(condition, Handle) or is_masked_tensor(condition):
        raise NotImplementedError(f"where: the condition must be a dense tensor{at_user_line()}")
    (x, has_x), (y, has_y) = parts(a), parts(b)
    return masked(
        record(masks._where, condition, x, y), record(masks._where, condition, has_x, has_y)
    )


@rule(MaskedTensor, creation.filled)
def _filled(t: Any, value: Any, dtype: Any, requires_grad: bool) -> Any:
    made = t._like(creation.full_like(t._elements.detach(), value, dtype=dtype))
    return made.requires_grad_(requires_grad)


# ---- views --------------------------------------------------------------------------------------


def _viewing(kind: Any) -> Callable[..., Any]:
    def apply(t: MaskedTensor, *attrs: Any) -> Any:
        return masked(view(t._elements, kind, *attrs), view(t._mask, kind, *attrs))

    return apply


for _kind in (
    views.RESHAPE, views.VIEW, views.PERMUTE, views.TRANSPOSE, views.T, views.SLICE, views.SELECT,
    views.UNSQUEEZE, views.SQUEEZE, views.SQUEEZE_ONE, views.SQUEEZE_SOME, views.EXPAND,
    views.ALIAS, views.SPLIT, views.SPLIT_WITH_SIZES, views.UNBIND, views.UNFOLD, views.DIAGONAL,
):  # fmt: skip
    rule(MaskedTensor, _kind)(_viewing(_kind))


def _joining(build: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*args: Any) -> Any:
        *tensors, dim = args
        parts = [
            (t._elements, t._mask)
            if is_masked_tensor(t)
            else (t, creation.ones_like(t, dtype=bool_))
            for t in tensors
        ]
        elements, present = zip(*parts, strict=True)
        return masked(record(build, *elements, dim), record(build, *present, dim))

    return apply


for _build in (joining._cat, joining._stack):
    rule(MaskedTensor, _build)(_joining(_build))


# ---- reductions ---------------------------------------------------------------------------------


def _reducing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a reduction by one of torch.masked. attrs: a dtype, if it takes one."""

    def apply(t: MaskedTensor, dim: Any, keepdim: bool, *attrs: Any) -> Any:
        options = {"dtype": attrs[0]} if attrs and attrs[0] is not None else {}
        made = function(t._elements, dim, keepdim=keepdim, mask=t._mask, **options)
        return masked(made, _any(t, dim, keepdim))

    return apply


def _any(t: MaskedTensor, dim: Any, keepdim: bool) -> Any:
    """Where a reduction has an element to look at."""
    return record(reduction._any, t._mask, None if dim == () else dim, keepdim)


for _build, _function in (
    (reduction._sum, reductions.sum),
    (reduction._mean, reductions.mean),
    (reduction._prod, reductions.prod),
    (reduction._amax, reductions.amax),
    (reduction._amin, reductions.amin),
    (reduction._argmax, reductions.argmax),
    (reduction._argmin, reductions.argmin),
    (reduction._logsumexp, reductions.logsumexp),
):
    rule(MaskedTensor, _build)(_reducing(_function))

rule(MaskedTensor, reduction._greatest)(lambda t: record(reduction._amax, t, None, False))
rule(MaskedTensor, reduction._least)(lambda t: record(reduction._amin, t, None, False))


def _truth(build: Callable[..., Any], neutral: bool) -> Callable[..., Any]:
    def apply(t: MaskedTensor, dim: Any, keepdim: bool) -> Any:
        made = record(build, t.to_tensor(neutral), dim, keepdim)
        return masked(made, record(reduction._any, t._mask, dim, keepdim))

    return apply


rule(MaskedTensor, reduction._all)(_truth(reduction._all, True))
rule(MaskedTensor, reduction._any)(_truth(reduction._any, False))


@rule(MaskedTensor, statistics._var)
def _var(t: MaskedTensor, dim: Any, correction: float, keepdim: bool, root: bool) -> Any:
    function = reductions.std if root else reductions.var
    made = function(t._elements, dim, correction=correction, keepdim=keepdim, mask=t._mask)
    return masked(made, _any(t, dim, keepdim))


@rule(MaskedTensor, reduction._norm)
def _norm(t: MaskedTensor, p: float, dim: Any, keepdim: bool) -> Any:
    made = reductions.norm(t._elements, p, dim, keepdim=keepdim, mask=t._mask)
    return masked(made, _any(t, dim, keepdim))


def _normalizing(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(t: MaskedTensor, dim: int, dtype: Any) -> Any:
        return t._like(function(t._elements, dim, dtype=dtype, mask=t._mask))

    return apply


rule(MaskedTensor, activation._softmax)(_normalizing(normalizations.softmax))
rule(MaskedTensor, activation._log_softmax)(_normalizing(normalizations.log_softmax))
