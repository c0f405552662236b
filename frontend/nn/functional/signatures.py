"""Signatures of functions that are built for one, two and three dimensions, or from a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, overload

if TYPE_CHECKING:
    from ..._tensor import Tensor


class Activation(Protocol):
    def __call__(self, input: Tensor, inplace: bool = False) -> Tensor: ...


class Convolution(Protocol):
    def __call__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor: ...


class TransposedConvolution(Protocol):
    def __call__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        dilation: int | Sequence[int] = 1,
    ) -> Tensor: ...


class MaxPool(Protocol):
    @overload
    def __call__(
        self,
        input: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        return_indices: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        input: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        *,
        return_indices: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...


class AveragePool(Protocol):
    def __call__(
        self,
        input: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor: ...


class NormPool(Protocol):
    def __call__(
        self,
        input: Tensor,
        norm_type: float,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        ceil_mode: bool = False,
    ) -> Tensor: ...


class AdaptiveAveragePool(Protocol):
    def __call__(self, input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor: ...


class AdaptiveMaxPool(Protocol):
    @overload
    def __call__(
        self,
        input: Tensor,
        output_size: int | Sequence[int | None] | None,
        return_indices: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        input: Tensor,
        output_size: int | Sequence[int | None] | None,
        return_indices: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...


class Dropout(Protocol):
    def __call__(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor: ...


class Unpool(Protocol):
    def __call__(
        self,
        input: Tensor,
        indices: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor: ...


class FractionalMaxPoolIndices(Protocol):
    def __call__(
        self,
        input: Tensor,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...


class FractionalMaxPool(Protocol):
    @overload
    def __call__(
        self,
        input: Tensor,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: Literal[False] = False,
        _random_samples: Tensor | None = None,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        input: Tensor,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        *,
        return_indices: Literal[True],
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...
