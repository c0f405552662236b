"""Samples of images and volumes at positions that are data, as spatial transformers take them
(Jaderberg et al., arXiv 1506.02025)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.ir import ops
from tilewright.ir.dtype import accumulator, int32, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ...functions.promotion import WHOLE, refuse, to
from ...recording import record
from ...recording.builders import FLOAT32, LOWER, WIDEST, builder
from .resampling import cubic_weights

if TYPE_CHECKING:
    from ..._tensor import Tensor

GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


def _default_corners(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            f"Default {name} behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True if the old behavior is desired. See the documentation of "
            f"{name} for details.",
            stacklevel=3,
        )
    return bool(align_corners)


# ---- affine_grid -----------------------------------------------------------------------------


def _centres(size: int, aligned: bool, like: Node) -> Node:
    """The positions of `size` elements in [-1, 1]: their centres, or from corner to corner."""
    place = to(ops.iota(size), accumulator(like.dtype))
    if size == 1:
        return place * 0.0
    # Counted from the nearer end, as in `linspace`: positions that lie on elements stay on them.
    step = 2 / (size - 1)
    low, high = place * step - 1, 1 - (size - 1 - place) * step
    ends = ops.where(place < size // 2, low, high)
    return ends if aligned else ends * (size - 1) / size


@builder("affine_grid_generator", casts={"cpu": LOWER, "cuda": FLOAT32})
def _affine_grid(theta: Node, size: tuple[int, ...], aligned: bool) -> Node:
    dims = len(size)
    rows = theta.shape[0]
    wide = to(theta, accumulator(theta.dtype))
    shape = (rows, *size, dims)

    def column(k: int) -> Node:  # what position k of the base grid is multiplied by
        part = ops.slice_axis(wide, 2, k, k + 1)
        return ops.reshape(part, (rows, *(1 for _ in size), dims))

    total = ops.expand(column(dims), shape)
    for k in range(dims):  # x is the last dimension of the image, and the first of a position
        axis = dims - 1 - k
        place = _centres(size[axis], aligned, theta)
        along = [size[axis] if i == axis + 1 else 1 for i in range(dims + 2)]
        total = total + column(k) * ops.reshape(place, along)
    return to(total, theta.dtype)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid [n, h, w, 2] (or [n, d, h, w, 3]) of the affine maps theta[n, 2, 3] (theta[n, 3, 4])
    for an output of `size` (n, c, h, w) (or (n, c, d, h, w)); `grid_sample` takes it."""
    if not theta.dtype.is_floating_point:
        raise ValueError(
            f"Expected theta to have floating point type, but got {theta.dtype}{at_user_line()}"
        )
    dims = len(size) - 2
    if dims not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {tuple(size)}.{at_user_line()}"
        )
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size "
            f"{tuple(size)}. Got {theta.shape}.{at_user_line()}"
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}{at_user_line()}")
    if theta.shape[0] != size[0]:
        raise RuntimeError(
            f"Expected a batch of {size[0]} affine matrices, got {theta.shape[0]}{at_user_line()}"
        )
    aligned = _default_corners("affine_grid", align_corners)
    return record(_affine_grid, theta, tuple(map(int, size[2:])), aligned)


# ---- grid_sample -----------------------------------------------------------------------------

Place = Callable[[Node], Node]


def _full(value: float, like: Node) -> Node:
    return ops.full_like(like, value)


def _clipped(place: Node, size: int) -> Node:
    """Positions outside [0, size - 1] moved to its ends, where they have no gradient."""
    low, high = _full(0, place), _full(size - 1, place)
    return ops.where(place <= low, low, ops.where(place >= high, high, place))


def _reflected(place: Node, size: int, aligned: bool) -> Node:
    """Positions outside the image reflected at its edges, or at the centres of its corners."""
    low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
    if not span:
        return _full(0, place)
    away = place - low
    away = ops.where(away < 0, -away, away)
    times = ops.floor(away / span)
    rest = away - times * span
    odd = ops.eq(times - ops.floor(times / 2) * 2, _full(1, times))
    return _clipped(ops.where(odd, span - rest, rest) + low, size)


def _padding(mode: str, size: int, aligned: bool) -> Place:
    """Where a position is read, by what lies outside the image."""
    if mode == "border":
        return lambda place: _clipped(place, size)
    if mode == "reflection":
        return lambda place: _reflected(place, size, aligned)
    return lambda place: place


def _taps(place: Node, mode: str, moved: Place) -> tuple[Node, Node | None]:
    """Elements near each position and their weights, as [..., taps]; no weight if there is one."""
    if mode == "nearest":
        return ops.unsqueeze(ops.round(moved(place)), place.rank), None
    if mode == "bilinear":
        place = moved(place)
    first = ops.floor(place)
    count, before = (4, 1) if mode == "bicubic" else (2, 0)
    k = ops.expand(to(ops.iota(count), place.dtype), (*place.shape, count))
    part = ops.expand(ops.unsqueeze(place - first, place.rank), k.shape)
    at = ops.unsqueeze(first, place.rank) + k - before
    if mode == "bicubic":
        return moved(at), cubic_weights(part, k)
    return at, (1 - k) + (k * 2 - 1) * part  # 1 - part, and part itself


@builder(
    "grid_sampler",
    casts={"cpu": FLOAT32, "cuda": WIDEST},
    gradient=lambda args: f"GridSampler{args[0].rank - 2}DBackward0",
)
def grid_sample_of(x: Node, grid: Node, mode: str, padding: str, aligned: bool) -> Node:
    dims = x.rank - 2
    refuse(f"grid_sampler{dims}d_cpu", x, *WHOLE)
    rows, *out, _ = grid.shape
    wide = to(grid, accumulator(grid.dtype))
    # Positions of the taps [n, *out, *taps], a dimension for those along each axis of the image.
    places: list[Node] = []
    inside: list[Node] = []
    weight = None
    taps = 1
    for axis in range(dims):
        size = x.shape[axis + 2]
        k = dims - 1 - axis  # x comes first in the grid, and last in the image
        place = ops.reshape(ops.slice_axis(wide, dims + 1, k, k + 1), (rows, *out))
        place = ops.where(ops.isnan(place), _full(-1, place), place)
        place = (place + 1) * ((size - 1) / 2) if aligned else ((place + 1) * size - 1) / 2
        at, factor = _taps(place, mode, _padding(padding, size, aligned))
        taps = at.shape[-1]
        along = (rows, *out, *(taps if i == axis else 1 for i in range(dims)))
        # By way of int32, which lanes of a processor make of floats in one instruction. Whole
        # numbers are clamped, so that kernels see that they need no check.
        clamped = ops.clamp(ops.cast(at, int32), 0, size - 1)
        places.append(ops.reshape(ops.cast(clamped, int64), along))
        if padding == "zeros":
            inside.append(ops.reshape(ops.eq(ops.cast(clamped, at.dtype), at), along))
        if factor is not None:
            factor = ops.reshape(factor, along)
            weight = factor if weight is None else weight * factor
    # Channels come last, so that one read serves all of them: [n, *out, *taps, c].
    last = (0, *range(2, x.rank), 1)
    row = ops.reshape(ops.iota(rows), (rows, *(1 for _ in range(2 * dims))))
    found = ops.gather(ops.permute(x, last), row, *places, 0)
    value = to(found, wide.dtype)
    if weight is not None:
        value = value * ops.unsqueeze(weight, weight.rank)
    for seen in inside:
        seen = ops.expand(ops.unsqueeze(seen, seen.rank), value.shape)
        value = ops.where(seen, value, _full(0, value))
    inner = tuple(range(1 + dims, 1 + 2 * dims))
    value = ops.squeeze(ops.sum(value, inner), inner)
    if mode == "nearest" and grid.requires_grad:
        value = ops.overwritten(grid, value)  # the positions are steps: their gradient is zero
    return to(ops.permute(value, (0, dims + 1, *range(1, dims + 1))), x.dtype)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """input[n, c, h, w] at the positions grid[n, oh, ow, 2], as (x, y) in [-1, 1]; the result is
    [n, c, oh, ow]. For input[n, c, d, h, w] the positions are (x, y, z).

    mode: bilinear (of volumes trilinear), nearest or bicubic. padding_mode: outside are zeros, the
    border, or reflections. align_corners: -1 and 1 are the centres of the corner elements, and not
    their outer edges. NaN counts as -1.
    """
    if mode not in GRID_SAMPLE_INTERPOLATION_MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'{at_user_line()}"
        )
    if padding_mode not in GRID_SAMPLE_PADDING_MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'{at_user_line()}"
        )
    aligned = _default_corners("grid_sample", align_corners)
    dims = input.dim() - 2
    given = f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
    if dims not in (2, 3) or grid.dim() != input.dim():
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got {given}{at_user_line()}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got "
            f"{given}{at_user_line()}"
        )
    if grid.shape[-1] != dims:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {dims} in last dimension, but got grid "
            f"with sizes {list(grid.shape)}{at_user_line()}"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            f"sizes {list(input.shape)}{at_user_line()}"
        )
    if dims == 3 and mode == "bicubic":
        raise RuntimeError(
            f"grid_sampler(): bicubic interpolation only supports 4D input{at_user_line()}"
        )
    return record(grid_sample_of, input, grid, mode, padding_mode, aligned)
