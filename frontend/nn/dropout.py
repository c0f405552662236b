"""Dropout layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import functional as F
from .module import Module

if TYPE_CHECKING:
    from .._tensor import Tensor


class _DropoutNd(Module):
    function: str  # its name in nn.functional, where programs replace functions

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training each element is zero with probability `p`, else x / (1 - p)."""

    function = "dropout"


class Dropout1d(_DropoutNd):
    """In training each channel of x[n, c, l] is zero with probability `p`, else x / (1 - p)."""

    function = "dropout1d"


class Dropout2d(_DropoutNd):
    """In training each channel of x[n, c, h, w] is zero with probability `p`, else x / (1 - p)."""

    function = "dropout2d"


class Dropout3d(_DropoutNd):
    """In training each channel of x[n, c, d, h, w] is zero with probability `p`."""

    function = "dropout3d"


class AlphaDropout(_DropoutNd):
    """Dropout that keeps zero mean and unit variance, for selu networks."""

    function = "alpha_dropout"


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels of x[n, c, …]."""

    function = "feature_alpha_dropout"
