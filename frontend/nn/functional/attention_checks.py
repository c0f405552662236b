"""The checks of multi_head_attention_forward, which other people's attention layers call."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tilewright.ir.dtype import bool_
from tilewright.ir.location import at_user_line

from ...functions import creation

if TYPE_CHECKING:
    from ..._tensor import Tensor


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor; None for None."""
    if input is None:
        return None
    dtype = getattr(input, "dtype", None)
    if dtype is None:
        raise RuntimeError(f"input to _none_or_dtype() must be None or Tensor{at_user_line()}")
    return dtype


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Tensor | None:
    """A mask as numbers of `target_type` to add: -inf where a bool mask is True."""
    if mask is None:
        return None
    if mask.dtype is not bool_ and not mask.is_floating_point():
        raise AssertionError(
            f"only bool and floating types of {mask_name} are supported{at_user_line()}"
        )
    if check_other and other_type is not None and mask.dtype is not other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type "
            "for both instead.",
            stacklevel=2,
        )
    if mask.is_floating_point():
        return mask
    zeros = creation.zeros_like(mask, dtype=target_type)
    return zeros.masked_fill_(mask, float("-inf"))


def _mha_shape_check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Whether the arguments of an attention have a batch. AssertionError if they don't fit."""
    ranks = query.dim(), key.dim(), value.dim()
    if ranks[0] not in (2, 3):
        raise AssertionError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{ranks[0]}-D query tensor{at_user_line()}"
        )
    batched = ranks[0] == 3
    kind = "batched (3-D)" if batched else "unbatched (2-D)"
    if ranks[1:] != (ranks[0], ranks[0]):
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {ranks[0]}-D but found "
            f"{ranks[1]}-D and {ranks[2]}-D tensors respectively{at_user_line()}"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != ranks[0] - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {ranks[0] - 1}-D but "
            f"found {key_padding_mask.dim()}-D tensor instead{at_user_line()}"
        )
    if attn_mask is None:
        return batched
    if attn_mask.dim() not in (2, 3):
        raise AssertionError(
            f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
            f"{attn_mask.dim()}-D tensor instead{at_user_line()}"
        )
    if not batched and attn_mask.dim() == 3:
        expected = (num_heads, query.shape[0], key.shape[0])
        if tuple(attn_mask.shape) != expected:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape}"
                + at_user_line()
            )
    return batched


def checked_weights(
    whole: Tensor | None, separate: tuple[Tensor | None, ...], use_separate: bool
) -> tuple[Tensor | None, ...]:
    """The weights of all three projections as one, and those of each: what isn't used is None."""
    if not use_separate:
        if whole is None:
            raise AssertionError(
                f"use_separate_proj_weight is False but in_proj_weight is None{at_user_line()}"
            )
        return whole, None, None, None
    for name, weight in zip("qkv", separate):
        if weight is None:
            raise AssertionError(
                f"use_separate_proj_weight is True but {name}_proj_weight is None{at_user_line()}"
            )
    return None, *separate


def check_static(
    what: str, given: Tensor | None, bias: Tensor | None, sizes: tuple[int, int]
) -> None:
    """Whether a key or value fits that the caller has projected. sizes: batch * heads, width."""
    if given is None:
        return
    if bias is not None:
        raise AssertionError(f"bias cannot be added to static {what}.{at_user_line()}")
    for axis, size in zip((0, 2), sizes):
        if given.shape[axis] != size:
            raise AssertionError(
                f"expecting static_{what[0]}.size({axis}) of {size}, but got {given.shape[axis]}"
                f"{at_user_line()}"
            )
