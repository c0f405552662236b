"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ..functions.creation import empty
from . import functional as F
from . import init
from .functional.conv import tuple_of
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """The base of convolutions: options, weight and bias. All sizes are tuples with a number for
    each spatial dimension."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(
                f"Invalid padding string {padding!r}, should be one of {{'valid', 'same'}}"
            )
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {set(_PADDING_MODES)}, "
                f"but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        outer = (
            (in_channels, out_channels // groups)
            if transposed
            else (out_channels, in_channels // groups)
        )
        self.weight = Parameter(empty(*outer, *kernel_size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    @property
    def _reversed_padding_repeated_twice(self) -> list[int]:
        """The padding as F.pad wants it: last dimension first, before and after."""
        out: list[int] = []
        for axis in reversed(range(len(self.kernel_size))):
            if self.padding == "same":
                spread = self.dilation[axis] * (self.kernel_size[axis] - 1)
                out += [spread // 2, spread - spread // 2]
            elif self.padding == "valid":
                out += [0, 0]
            else:
                out += [int(self.padding[axis])] * 2
        return out

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        dims = len(self.kernel_size)
        if self.padding != (0,) * dims:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * dims:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * dims:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Conv(_ConvNd):
    """Conv1d to Conv3d: `dims` counts the spatial dimensions."""

    dims: int
    function: str  # its name in nn.functional, where programs replace functions

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        dims = self.dims
        super().__init__(
            in_channels, out_channels,
            tuple_of(kernel_size, dims, "kernel_size"),
            tuple_of(stride, dims, "stride"),
            padding if isinstance(padding, str) else tuple_of(padding, dims, "padding"),
            tuple_of(dilation, dims, "dilation"),
            False, (0,) * dims, groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Apply the convolution with another weight and bias, as subclasses do."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
            padding = 0
        return getattr(F, self.function)(
            input, weight, bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Conv):
    """Cross-correlation of x[n, in, l] (or [in, l]) with weight[out, in / groups, k], plus bias.

    Weight and bias are uniform within 1 / sqrt(in / groups * k) of zero.
    """

    dims = 1
    function = "conv1d"


class Conv2d(_Conv):
    """Cross-correlation of x[n, in, h, w] (or [in, h, w]) with weight[out, in / groups, kh, kw],
    plus bias[out].

    padding: a number, one a dimension, 'valid' or 'same'. padding_mode: 'zeros', 'reflect',
    'replicate' or 'circular'. Weight and bias are uniform within 1 / sqrt(in / groups * kh * kw) of
    zero.
    """

    dims = 2
    function = "conv2d"


class Conv3d(_Conv):
    """Cross-correlation of x[n, in, d, h, w] with weight[out, in / groups, kd, kh, kw], plus
    bias[out]."""

    dims = 3
    function = "conv3d"


class _ConvTransposeNd(_ConvNd):
    """ConvTranspose1d to ConvTranspose3d: `dims` counts the spatial dimensions."""

    dims: int
    function: str  # its name in nn.functional, where programs replace functions

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        dims = self.dims
        super().__init__(
            in_channels, out_channels,
            tuple_of(kernel_size, dims, "kernel_size"),
            tuple_of(stride, dims, "stride"),
            tuple_of(padding, dims, "padding"),
            tuple_of(dilation, dims, "dilation"),
            True, tuple_of(output_padding, dims, "output_padding"),
            groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding
        if output_size is not None:
            extra = self._output_padding(input, tuple(output_size))
        return getattr(F, self.function)(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups,
            self.dilation,
        )  # fmt: skip

    def _output_padding(self, input: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        size = size[-self.dims :]
        out = []
        for i, wanted in enumerate(size):
            n = input.shape[input.dim() - self.dims + i]
            least = (
                (n - 1) * self.stride[i]
                - 2 * self.padding[i]
                + self.dilation[i] * (self.kernel_size[i] - 1)
                + 1
            )
            if not least <= wanted < least + self.stride[i]:
                raise ValueError(
                    f"requested an output size of {size}, but valid sizes range from {least} to "
                    f"{least + self.stride[i] - 1} in dimension {i}{at_user_line()}"
                )
            out.append(wanted - least)
        return tuple(out)


class _ConvTransposeMixin(_ConvTransposeNd):
    """The base's older name, which packages import. No layer derives from it."""


class ConvTranspose1d(_ConvTransposeNd):
    """The transposed convolution of x[n, in, l] with weight[in, out / groups, k], plus
    bias[out]."""

    dims = 1
    function = "conv_transpose1d"


class ConvTranspose2d(_ConvTransposeNd):
    """The transposed convolution of x[n, in, h, w] with weight[in, out / groups, kh, kw], plus
    bias[out]."""

    dims = 2
    function = "conv_transpose2d"


class ConvTranspose3d(_ConvTransposeNd):
    """The transposed convolution of x[n, in, d, h, w] with weight[in, out / groups, …], plus
    bias[out]."""

    dims = 3
    function = "conv_transpose3d"


class Fold(Module):
    """Overlapping columns summed into an image; see functional.fold."""

    def __init__(
        self,
        output_size: int | Sequence[int],
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """The windows of an image as columns; see functional.unfold."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class PixelShuffle(Module):
    """[…, c r^2, h, w] to […, c, h r, w r]."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"
