"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import functional as F
from .functional.conv import tuple_of
from .module import Module

if TYPE_CHECKING:
    from .._tensor import Tensor


class _MaxPoolNd(Module):
    function: str  # its name in nn.functional, where programs replace functions

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            self.return_indices,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The largest element of each window of the last dimension."""

    function = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """The largest element of each window of the last two dimensions."""

    function = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """The largest element of each window of the last three dimensions."""

    function = "max_pool3d"


class _AvgPoolNd(Module):
    function: str  # its name in nn.functional, where programs replace functions
    divisor_override: int | None = None

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad, self.divisor_override,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of the last dimension."""

    function = "avg_pool1d"

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(
            tuple_of(kernel_size, 1),
            None if stride is None else tuple_of(stride, 1),
            tuple_of(padding, 1),
            ceil_mode,
            count_include_pad,
        )


class AvgPool2d(_AvgPoolNd):
    """The mean of each window of the last two dimensions."""

    function = "avg_pool2d"


class AvgPool3d(_AvgPoolNd):
    """The mean of each window of the last three dimensions."""

    function = "avg_pool3d"


class _Adaptive(Module):
    function: str  # its name in nn.functional, where programs replace functions

    def __init__(self, output_size: int | Sequence[int]) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPoolNd(_Adaptive):
    pass


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of windows such that `output_size` of them cover the last dimension."""

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of windows such that `output_size` of them cover the last two dimensions."""

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means of windows such that `output_size` of them cover the last three dimensions."""

    function = "adaptive_avg_pool3d"


class _AdaptiveMaxPoolNd(_Adaptive):
    def __init__(self, output_size: int | Sequence[int], return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima of windows such that `output_size` of them cover the last dimension."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima of windows such that `output_size` of them cover the last two dimensions."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima of windows such that `output_size` of them cover the last three dimensions."""

    function = "adaptive_max_pool3d"


class _LPPoolNd(Module):
    function: str  # its name in nn.functional, where programs replace functions

    def __init__(
        self,
        norm_type: float,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The p-norm of each window of the last dimension."""

    function = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of the last two dimensions."""

    function = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of the last three dimensions."""

    function = "lp_pool3d"
