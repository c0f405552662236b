"""MaskedTensor: a dense tensor and a mask of the elements that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.dtype import bool_
from tilewright.ir.location import at_user_line

from ... import layouts
from ..._tensor import Tensor
from ...compound import Compound, blank
from ...functions import masks, shapes
from ...recording.compounds import is_compound

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MaskedTensor", "is_masked_tensor"]

_ABSENT = "--".rjust(8)


class MaskedTensor(Compound):
    """A dense tensor of any shape, and a bool mask of that shape: True where an element is.

    Calls that look at one element at a time keep the mask; two masked operands need equal masks.
    Reductions leave out the other elements; a result of none isn't there. What lies under the mask
    has no meaning, and its gradient is zero.

    TypeError for data that is no plain tensor, or a mask that isn't bool; ValueError for shapes
    that differ.
    """

    __slots__ = ("_mask",)
    _mask: Any
    layout = layouts.strided
    _advice = "convert it with to_tensor(value), or work on its get_data()"

    def __new__(cls, data: Any, mask: Any, requires_grad: bool = False) -> Self:  # type: ignore[misc]
        for name, value in (("data", data), ("mask", mask)):
            if not isinstance(value, Tensor) or isinstance(value, MaskedTensor):
                raise TypeError(f"{name} must be a Tensor{at_user_line()}")
            if is_compound(value):
                raise NotImplementedError(
                    f"MaskedTensor: {name} must be dense here, got one of layout {value.layout}"
                    f"{at_user_line()}"
                )
        if mask.dtype is not bool_:
            raise TypeError(f"mask must have dtype bool.{at_user_line()}")
        if data.dim() != mask.dim():
            raise ValueError(f"data.dim() must equal mask.dim(){at_user_line()}")
        if data.shape != mask.shape:
            raise ValueError(f"data.size() must equal mask.size(){at_user_line()}")
        made = masked(data.detach(), mask.detach())
        return made.requires_grad_() if requires_grad else made  # type: ignore[no-any-return]

    # ---- what a compound says ----------------------------------------------------------------

    def _like(self, elements: Tensor, sizes: Any = None) -> Self:
        return masked(elements, self._mask)  # type: ignore[no-any-return]

    def _structure(self) -> tuple[Any, ...]:
        return (self._mask,)

    def _restructured(self, structure: tuple[Any, ...], elements: Tensor) -> Self:
        return masked(elements, *structure)  # type: ignore[no-any-return]

    def _take(self, other: Any) -> None:
        self._elements, self._mask, self._sizes = other._elements, other._mask, other._sizes

    def _pickled(self) -> tuple[Any, Any]:
        return (self._elements, self._mask), None

    @classmethod
    def _unpickled(cls, parts: Any, rest: Any) -> Any:
        return masked(*parts)

    # ---- what it is made of ------------------------------------------------------------------

    def get_data(self) -> Tensor:
        """The elements, also those that the mask leaves out."""
        return self._elements  # type: ignore[no-any-return]

    def get_mask(self) -> Tensor:
        """The mask: True where an element is."""
        return self._mask  # type: ignore[no-any-return]

    def to_tensor(self, value: Any) -> Tensor:
        """A dense tensor with `value` where no element is."""
        return masks.masked_fill(self._elements, ~self._mask, value)

    def is_sparse_coo(self) -> bool:
        return False

    is_sparse_csr = is_sparse_coo  # type: ignore[assignment]

    def stride(self, dim: int | None = None) -> Any:
        return self._elements.stride(dim)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return bool(self._elements.is_contiguous())

    def contiguous(self, memory_format: Any = None) -> Self:
        return self._map(lambda part: part.contiguous())

    def item(self) -> Any:
        return self._elements.item()

    def _array(self) -> Any:
        raise RuntimeError(
            "numpy() and tolist() are not supported for a MaskedTensor: use to_tensor(value) first"
            f"{at_user_line()}"
        )

    def tolist(self) -> Any:
        return self._array()

    def to_dense(self, *args: Any, **options: Any) -> Tensor:
        raise RuntimeError(
            f"to_dense: a MaskedTensor is dense; use to_tensor(value){at_user_line()}"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        texts = _text(self._elements.detach().tolist(), self._mask.tolist())
        if not self.dim():
            text = texts.strip() if texts == _ABSENT else texts
            return f"MaskedTensor({text}, {self._mask.item()})"
        return f"MaskedTensor(\n{_indented(texts, 2)}\n)"

    def __str__(self) -> str:
        return repr(self)


def masked(elements: Any, mask: Any) -> Any:
    """A MaskedTensor of these parts, which are of one shape."""
    made = blank(MaskedTensor, elements, elements.shape)
    made._mask = mask
    return made


def guarded(elements: Any, mask: Any) -> Any:
    """`elements`, which get no gradient where `mask` doesn't hold: what a formula gives there may
    be NaN."""
    if not elements.requires_grad:
        return shapes.clone(elements)
    return masks.where(mask, elements, elements.detach())


def _text(values: Any, present: Any) -> Any:
    """Elements as texts, in lists like those of `values`."""
    if isinstance(values, list):
        return [_text(v, p) for v, p in zip(values, present, strict=True)]
    if not present:
        return _ABSENT
    return f"{values:8.4f}" if isinstance(values, float) else str(values)


def _indented(texts: Any, depth: int) -> str:
    room = " " * depth
    if not texts or not isinstance(texts[0], list):
        return f"{room}[{', '.join(texts)}]"
    inner = ",\n".join(_indented(each, depth + 2) for each in texts)
    return f"{room}[\n{inner}\n{room}]"


def is_masked_tensor(obj: Any) -> bool:
    """Whether an object is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)
