"""Unpooling, and pooling over random windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import functional as F
from .functional.conv import tuple_of
from .module import Module

if TYPE_CHECKING:
    from .._tensor import Tensor


class _MaxUnpoolNd(Module):
    dims: int
    function: str  # its name in nn.functional, where programs replace functions

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
    ) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, self.dims)
        self.stride = self.kernel_size if stride is None else tuple_of(stride, self.dims)
        self.padding = tuple_of(padding, self.dims)

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return getattr(F, self.function)(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """The inverse of MaxPool1d with return_indices: zeros but for the maxima."""

    dims, function = 1, "max_unpool1d"


class MaxUnpool2d(_MaxUnpoolNd):
    """The inverse of MaxPool2d with return_indices: zeros but for the maxima."""

    dims, function = 2, "max_unpool2d"


class MaxUnpool3d(_MaxUnpoolNd):
    """The inverse of MaxPool3d with return_indices: zeros but for the maxima."""

    dims, function = 3, "max_unpool3d"


class _FractionalMaxPool(Module):
    dims: int
    function: str  # its name in nn.functional, where programs replace functions

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        dims = self.dims
        self.kernel_size = tuple_of(kernel_size, dims)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else tuple_of(output_size, dims)
        given: Any = output_ratio
        ratio = (given,) * dims if isinstance(given, (int, float)) else given
        self.output_ratio = None if ratio is None else tuple(ratio)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self.function)(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima over windows of an image that begin at random places; Graham, arXiv 1412.6071."""

    dims, function = 2, "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maxima over windows of a volume that begin at random places; Graham, arXiv 1412.6071."""

    dims, function = 3, "fractional_max_pool3d"
