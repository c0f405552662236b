"""How weights are rounded: to 8 bits with a scale for each row, to 4 with one for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import dtype as dtypes

from ...functions.creation import full_like
from ...nn.functional.narrow import BLOCK, _convert_weight_to_int4pack

if TYPE_CHECKING:
    from ..._tensor import Tensor


def by_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(integers from -127 to 127, int8; the scale of each row) of a matrix of floats. A row of
    zeros has scale 1."""
    widest = weight.detach().float().abs().amax(1)
    scale = _scale(widest, 127)
    rounded = (weight.detach().float() / scale.unsqueeze(1)).round().clamp(-127, 127)
    return rounded.to(dtypes.int8), scale


def by_groups(weight: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """(integers from 0 to 15, packed, of shape [out, in / 32, 16]; scale and offset of each group
    of `size` places, [out, in / size]) of a matrix of floats: w = q * scale + offset."""
    rows, columns = weight.shape
    groups = weight.detach().float().view(rows, columns // size, size)
    low = groups.amin(2)
    scale = _scale(groups.amax(2) - low, 15)
    rounded = ((groups - low.unsqueeze(2)) / scale.unsqueeze(2)).round().clamp(0, 15)
    packed = _convert_weight_to_int4pack(rounded.to(dtypes.int32).view(rows, columns), 1)
    return packed.view(rows, columns // BLOCK, BLOCK // 2), scale, low


def _scale(width: Tensor, steps: int) -> Tensor:
    return (width / steps).where(width > 1e-30, full_like(width, 1))
