"""torch.onnx.operators: sizes as tensors, with which models compute what an export keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..functions.queries import _shape_as_tensor as shape_as_tensor

if TYPE_CHECKING:
    from .._tensor import Tensor

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def reshape_from_tensor_shape(x: Tensor, shape: Tensor) -> Tensor:
    """`x` with the sizes that a tensor holds."""
    return x.reshape([int(size) for size in shape])
