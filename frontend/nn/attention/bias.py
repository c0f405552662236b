"""torch.nn.attention.bias: causal masks of queries and keys of different lengths."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from tilewright.ir.dtype import bool_

from ..._tensor import Tensor
from ...functions import creation, joining
from ...overriding import without_classes

if TYPE_CHECKING:
    from ...types import DeviceLike

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """UPPER_LEFT: query i sees keys 0 to i. LOWER_RIGHT: the last query sees all keys."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A causal mask as `attn_mask` of scaled_dot_product_attention: a tensor of bool, of shape
    (seq_len_q, seq_len_kv). Other functions take no such tensor."""

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError("variant must be a CausalVariant")
        with without_classes():
            made: CausalBias = creation.empty(0, dtype=bool_).as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def _materialize(self, device: DeviceLike | None = None) -> Tensor:
        """The mask: True where a query sees a key."""
        shift = self.seq_len_kv - self.seq_len_q if self.variant == 2 else 0
        ones = creation.ones(self.seq_len_q, self.seq_len_kv, dtype=bool_, device=device)
        return joining.tril(ones, shift)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.__name__ != "scaled_dot_product_attention":
            return super().__torch_function__(func, types, args, kwargs or {})
        given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args))
        given |= kwargs or {}
        if given.get("is_causal"):
            raise ValueError("CausalBias should not be used with causal=True")
        bias = given["attn_mask"]
        with without_classes():
            square = bias.variant == CausalVariant.UPPER_LEFT or bias.seq_len_q == bias.seq_len_kv
            given["is_causal"] = square
            given["attn_mask"] = None if square else bias._materialize(given["query"].device)
            return func(**given)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return str(self._materialize())


def causal_upper_left(*size: int) -> CausalBias:
    """The mask in which query i sees keys 0 to i, of a size (queries, keys)."""
    rows, columns = size
    return CausalBias(CausalVariant.UPPER_LEFT, rows, columns)


def causal_lower_right(*size: int) -> CausalBias:
    """The mask in which the last query sees all keys, of a size (queries, keys)."""
    rows, columns = size
    return CausalBias(CausalVariant.LOWER_RIGHT, rows, columns)
