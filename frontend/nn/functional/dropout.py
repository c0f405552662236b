"""Dropout: elements or whole channels set to zero at random."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from tilewright.ir import ops
from tilewright.ir.dtype import float32
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.ops.random import keep_scale

from ...functions.call import public
from ...functions.sampling import draw
from ...recording import record_into
from ...recording.builders import builder

if TYPE_CHECKING:
    from ..._tensor import Tensor
    from .signatures import Dropout


def _check(p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise ValueError(
            f"dropout probability has to be between 0 and 1, but got {p}{at_user_line()}"
        )
    return float(p)


_dropout = builder("dropout", gradient="MulBackward0")(ops.dropout)


@public("dropout", method=False)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training each element is zero with probability `p`, else x / (1 - p)."""
    p = _check(p)
    if not training or p == 0.0:
        return input
    return record_into(inplace, _dropout, input, *draw(), p)


@builder("feature_dropout", gradient="MulBackward0")
def _feature_dropout(x: Node, seed: Node, offset: Node, p: float, lead: int) -> Node:
    mask = (*x.shape[:lead], *(1 for _ in range(x.rank - lead)))
    return x * keep_scale(seed, offset, mask, x.dtype, p)


def of_channels(input: Tensor, p: float, training: bool, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of input[n, c, …]."""
    p = _check(p)
    if input.dim() < 2:
        raise RuntimeError(
            f"Feature dropout requires at least 2 dimensions in the input{at_user_line()}"
        )
    if not training or p == 0.0:
        return input
    return record_into(inplace, _feature_dropout, input, *draw(), p, 2)


def _features(dims: int) -> Dropout:
    def function(
        input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        p, rank = _check(p), input.dim()
        if rank not in (dims + 1, dims + 2):
            if dims == 1:
                raise RuntimeError(
                    f"dropout1d: Expected 2D or 3D input, but received a {rank}D input"
                    f"{at_user_line()}"
                )
            warnings.warn(
                f"dropout{dims}d: Received a {rank}-D input. Its first two dimensions are taken "
                f"for batch and channels; {dims + 1}-D and {dims + 2}-D inputs are meant",
                stacklevel=2,
            )
        elif dims == 2 and rank == 3:
            warnings.warn(
                "dropout2d: Received a 3-D input, which is taken for (N, C, L), not for an image "
                "without a batch: use dropout1d, or unsqueeze(0)",
                stacklevel=2,
            )
        if not training or p == 0.0:
            return input
        # Without a batch dimension the channels come first; PyTorch's dropout2d always has one.
        lead = 2 if dims == 2 or rank == dims + 2 else 1
        if rank < lead:
            raise RuntimeError(
                f"dropout{dims}d: Feature dropout requires at least 2 dimensions in the input, got "
                f"{rank}{at_user_line()}"
            )
        return record_into(inplace, _feature_dropout, input, *draw(), p, lead)

    function.__name__ = function.__qualname__ = f"dropout{dims}d"
    function.__doc__ = "In training each channel is zero with probability `p`, else x / (1 - p)."
    return function


dropout1d, dropout2d, dropout3d = _features(1), _features(2), _features(3)


def _alpha_dropout(x: Node, seed: Node, offset: Node, p: float, features: bool) -> Node:
    low = -1.7580993408473766  # the limit of selu far below zero
    # Whole channels x[n, c, …] share a draw.
    drawn = (*x.shape[:2], *(1 for _ in range(x.rank - 2))) if features else x.shape
    kept = ops.expand(ops.uniform(seed, offset, drawn, float32), x.shape)
    kept = kept >= ops.full_like(kept, p)
    a = 1 / math.sqrt((1 - p) * (1 + p * low * low)) if p < 1 else 0.0
    b = -a * low * p
    return ops.where(kept, x, ops.full_like(x, low)) * a + b


@public("alpha_dropout", _alpha_dropout, method=False)
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps zero mean and unit variance, for selu networks."""
    p = _check(p)
    if not training or p == 0.0:
        return input
    return record_into(inplace, _alpha_dropout, input, *draw(), p, False)


@public("feature_alpha_dropout", method=False)
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels of input[n, c, …]."""
    p = _check(p)
    if not training or p == 0.0:
        return input
    if input.dim() < 2:
        raise RuntimeError(
            f"Feature dropout requires at least 2 dimensions in the input{at_user_line()}"
        )
    return record_into(inplace, _alpha_dropout, input, *draw(), p, True)
