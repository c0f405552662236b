"""Calls that pick, compare or write elements of quantized tensors: of the integers, as these are in
the order of their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

from ....functions import creation
from ....functions.quantized import QuantizedTensor, with_codes
from .products import dense


def _ordered(name: str) -> Callable[..., Any]:
    """A function that gives elements, perhaps beside their places."""

    def call(input: QuantizedTensor, *args: Any, **options: Any) -> Any:
        input.q_scale()
        found = getattr(input._codes, name)(*args, **options)
        if not isinstance(found, tuple):
            return input._with(found)
        return found._replace(values=input._with(found.values))  # type: ignore[attr-defined]

    return call


def _compared(name: str) -> Callable[..., Any]:
    def call(input: Any, other: Any) -> Any:
        numbers = [t.dequantize() if isinstance(t, QuantizedTensor) else t for t in (input, other)]
        return getattr(numbers[0], name)(numbers[1])

    return call


def _of_places(name: str) -> Callable[..., QuantizedTensor]:
    """A function that moves elements and computes none."""

    def call(input: QuantizedTensor, *args: Any, **options: Any) -> QuantizedTensor:
        return with_codes(input, dense(name), *args, **options)

    return call


def pad(
    input: QuantizedTensor, pad: Any, mode: str = "constant", value: float | None = None
) -> QuantizedTensor:
    if mode != "constant":
        return with_codes(input, dense("pad"), pad, mode)
    filling = input._codes_of(value or 0.0).item()
    return with_codes(input, dense("pad"), pad, mode, filling)


def copy_(self: QuantizedTensor, src: Any, non_blocking: bool = False) -> QuantizedTensor:
    """Take the numbers of `src`: those of a dense tensor at the scale here. A quantized one of the
    same shape gives its scale, too."""
    if isinstance(src, QuantizedTensor) and src.dtype is not self.dtype:
        raise RuntimeError(
            f"copy_: expected a quantized tensor of {self.dtype}, got {src.dtype}{at_user_line()}"
        )
    if isinstance(src, QuantizedTensor) and src.shape == self.shape:
        self._codes.copy_(src._codes)
        self._scale, self._zero_point, self._axis = src._scale, src._zero_point, src._axis
    else:
        self._codes.copy_(self._codes_of(src))
    return self


def fill_(self: QuantizedTensor, value: Any) -> QuantizedTensor:
    self._codes.copy_(self._codes_of(value))
    return self


def masked_fill(input: QuantizedTensor, mask: Any, value: Any) -> QuantizedTensor:
    return input._with(input._codes.masked_fill(mask, input._codes_of(value)))


def masked_fill_(self: QuantizedTensor, mask: Any, value: Any) -> QuantizedTensor:
    self._codes.masked_fill_(mask, self._codes_of(value))
    return self


def index_put_(
    self: QuantizedTensor, indices: Any, values: Any, accumulate: bool = False
) -> QuantizedTensor:
    if accumulate:
        raise RuntimeError(f"index_put_: quantized tensors don't accumulate{at_user_line()}")
    self._codes.index_put_(indices, self._codes_of(values))
    return self


def resize_(self: QuantizedTensor, *sizes: Any, **options: Any) -> QuantizedTensor:
    self._codes.resize_(*sizes, **options)
    return self


def empty_like(input: QuantizedTensor, **options: Any) -> QuantizedTensor:
    return input._with(creation.empty_like(input._codes))


def numpy(self: QuantizedTensor, **options: Any) -> NoReturn:
    raise TypeError(
        f"a quantized tensor has no array: call dequantize() or int_repr() first{at_user_line()}"
    )


BY_NAME: dict[str, Callable[..., Any]] = {
    **{name: _ordered(name) for name in ("max", "min", "sort", "topk")},
    **{name: _compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: _of_places(name) for name in ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")},
    "pad": pad,
    "copy_": copy_,
    "fill_": fill_,
    "masked_fill": masked_fill,
    "masked_fill_": masked_fill_,
    "index_put_": index_put_,
    "resize_": resize_,
    "empty_like": empty_like,
    "numpy": numpy,
    "__array__": numpy,
    "item": lambda self: self.dequantize().item(),
}
