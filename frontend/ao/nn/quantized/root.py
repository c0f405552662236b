"""torch.quantized_batch_norm and the torch.quantized_max_pool functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....functions.quantized import QuantizedTensor, with_codes
from .functional import of_numbers
from .products import dense

if TYPE_CHECKING:
    from ...._tensor import Tensor

Sizes = int | Sequence[int]


def _max_pool(dims: int) -> Callable[..., QuantizedTensor]:
    name = f"max_pool{dims}d"

    def pool(
        input: QuantizedTensor,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> QuantizedTensor:
        steps = stride if isinstance(stride, int) or len(stride) else None
        return with_codes(input, dense(name), kernel_size, steps, padding, dilation, ceil_mode)

    pool.__name__ = pool.__qualname__ = f"quantized_{name}"
    pool.__doc__ = f"The largest integers of windows of {dims} dimensions."
    return pool


quantized_max_pool1d, quantized_max_pool2d, quantized_max_pool3d = map(_max_pool, (1, 2, 3))


def quantized_batch_norm(
    input: QuantizedTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QuantizedTensor:
    """Normalization by a mean and a variance of each channel, at another scale."""

    def normalized(x: Any) -> Any:
        return dense("batch_norm")(x, mean, var, weight, bias, False, 0.0, eps)

    return of_numbers(input, normalized, scale=output_scale, zero_point=output_zero_point)
