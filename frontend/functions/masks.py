"""Choices by masks: where and masked_fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.shape import broadcast

from ..recording import Handle, record
from .arguments import as_handle, into, truth
from .call import public
from .data_sized import nonzero
from .fitting import filling
from .promotion import is_number, promoted, to

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import Number


def masked_filled(x: Node, mask: Node, value: Node) -> Node:
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{mask.dtype}{at_user_line()}"
        )
    if value.rank:
        raise RuntimeError(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.rank} dimension(s).{at_user_line()}"
        )
    shape = broadcast(x.shape, mask.shape)
    return ops.where(
        ops.expand(mask, shape), ops.expand(to(value, x.dtype), shape), ops.expand(x, shape)
    )


@public(
    "masked_fill",
    masked_filled,
    in_place=True,
    gradient=lambda args: f"MaskedFillBackward{int(not is_number(args[2]))}",
)
def masked_fill(input: Tensor, mask: Tensor, value: Number | Tensor) -> Tensor:
    """`input` with `value` where `mask` holds."""
    return record(masked_filled, input, mask, filling(value, input))


def _where(condition: Node, a: Node, b: Node) -> Node:
    if condition.dtype not in (dtypes.bool_, dtypes.uint8):
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype}{at_user_line()}"
        )
    if condition.dtype is dtypes.uint8:
        warn(
            "where received a uint8 condition tensor. This behavior is deprecated and will be "
            "removed in a future version of PyTorch. Use a boolean condition instead.",
            once=True,
        )
    a, b = promoted(a, b)
    return ops.where(truth(condition), a, b)


def _where_of(self: Tensor, condition: Tensor, other: Number | Tensor) -> Tensor:
    return where(condition, self, other)


@overload
def where(
    condition: Tensor, input: Number | Tensor, other: Number | Tensor, *, out: Tensor | None = None
) -> Tensor: ...


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@public("where", _where, method=_where_of)
def where(
    condition: Tensor,
    input: Number | Tensor | None = None,
    other: Number | Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Any:
    """`input` where `condition` holds, else `other`; with one argument, `nonzero` as a tuple."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    like = input if isinstance(input, Handle) else other if isinstance(other, Handle) else None
    made = record(_where, condition, as_handle(input, like), as_handle(other, like))
    return into(out, made, cast=False)
