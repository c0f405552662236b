"""Resizing of images and other grids, and moves of channels into space and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import COMPLEX, accumulator, float32, int64, uint8
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node

from ...functions.call import public
from ...functions.elementwise import ON_A_GPU
from ...functions.promotion import WHOLE, refuse, to
from ...functions.spellings import by_numpys_names
from ...recording import record
from ...recording.builders import builder
from .byte_resampling import resized_bytes
from .pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

if TYPE_CHECKING:
    from ..._tensor import Tensor

LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def _positions(out: int, dtype: Any) -> Node:
    return to(ops.iota(out), dtype)


def _taken(x: Node, axis: int, index: Node) -> Node:
    return ops.gather(x, ops.clamp(index, 0, x.shape[axis] - 1), axis)


def _nearest(x: Node, axis: int, out: int, scale: float, centred: bool) -> Node:
    size = x.shape[axis]
    if out % size == 0 and scale * out == size:  # each element repeats equally often
        lead, tail = x.shape[: axis + 1], x.shape[axis + 1 :]
        wide = ops.expand(ops.unsqueeze(x, axis + 1), (*lead, out // size, *tail))
        return ops.reshape(wide, (*x.shape[:axis], out, *tail))
    place = _positions(out, float32)
    place = (place + 0.5) * scale if centred else place * scale
    return _taken(x, axis, to(ops.floor(place), int64))


def _along(weight: Node, axis: int, rank: int) -> Node:
    return ops.reshape(weight, (-1, *(1 for _ in range(rank - axis - 1))))


def _weighted(
    x: Node, axis: int, out: int, scale: float, aligned: bool, taps: Callable[[Node], Any]
) -> Node:
    """The weighted sum of the elements near each place; `taps`(fraction) gives their offsets and
    weights."""
    place = _positions(out, accumulator(x.dtype))
    if aligned:
        place = place * ((x.shape[axis] - 1) / (out - 1) if out > 1 else 0.0)
    else:
        place = (place + 0.5) * scale - 0.5
        if taps is _linear_taps:
            place = ops.maximum(place, ops.full_like(place, 0))
    first = ops.floor(place)
    start = to(first, int64)
    total: Node | None = None
    for offset, weight in taps(place - first):
        part = _taken(x, axis, start + offset) * to(_along(weight, axis, x.rank), x.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def _linear_taps(t: Node) -> Sequence[tuple[int, Node]]:
    return (0, 1 - t), (1, t)


def _near(d: Node, a: float = -0.75) -> Node:
    return ((a + 2) * d - (a + 3)) * d * d + 1


def _far(d: Node, a: float = -0.75) -> Node:
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _cubic_taps(t: Node) -> Sequence[tuple[int, Node]]:
    """Keys's kernel (Cubic convolution interpolation for digital image processing, 1981): _near
    within a distance of one element, _far up to two."""
    return (-1, _far(t + 1)), (0, _near(t)), (1, _near(1 - t)), (2, _far(2 - t))


def cubic_weights(t: Node, k: Node) -> Node:
    """The weights of `_cubic_taps` at once: that of the tap k = 0 … 3 for the fraction t."""
    away = ops.abs(t + 1 - k)
    inner = ops.bitwise_and(k >= 1, k <= 2)
    return ops.where(inner, _near(away), _far(away))


def _interpolate_name(args: Any) -> str:
    x, mode = args[0], args[3]
    kind = "".join(part.title() for part in mode.split("-"))
    return f"Upsample{kind}{x.rank - 2}DBackward0"


@builder("interpolate", casts=ON_A_GPU, gradient=_interpolate_name)
def interpolated(
    x: Node, size: tuple[int, ...], scales: tuple[float, ...], mode: str, aligned: bool
) -> Node:
    if mode.startswith("nearest"):
        if x.dtype is not uint8:
            refuse("compute_indices_weights_nearest", x, *WHOLE, COMPLEX)
    else:
        refuse("compute_indices_weights_linear", x, *WHOLE)
    for axis, (out, scale) in enumerate(zip(size, scales, strict=True), 2):
        if mode.startswith("nearest"):
            x = _nearest(x, axis, out, scale, mode == "nearest-exact")
        elif out != x.shape[axis] or scale != 1:
            taps = _cubic_taps if mode == "bicubic" else _linear_taps
            x = _weighted(x, axis, out, scale, aligned, taps)
    return x


def _smoothed(x: Node, axis: int, out: int, scale: float, cubic: bool) -> Node:
    """The kernel of an interpolation, as wide as `scale` elements, as a product with a matrix."""
    dtype, size = accumulator(x.dtype), x.shape[axis]
    wide = max(scale, 1.0)
    reach = (2 if cubic else 1) * wide
    centre = ops.unsqueeze((_positions(out, dtype) + 0.5) * scale, 1)
    place = _positions(size, dtype)
    away = ops.abs((place - centre + 0.5) / wide)
    if cubic:
        near = ops.where(away < 1, _near(away, -0.5), _far(away, -0.5))
        weight = ops.where(away < 2, near, ops.zeros_like(away))
    else:
        weight = ops.relu(1 - away)
    # Of the places within reach, those whose centres round to it.
    first, end = ops.floor(centre - reach + 0.5), ops.floor(centre + reach + 0.5)
    inside = ops.bitwise_and(place >= first, place < end)
    weight = ops.where(inside, weight, ops.zeros_like(weight))
    weight = weight / ops.sum(weight, (1,))  # [out, size]
    x = to(x, dtype)
    if axis == x.rank - 1:
        return ops.matmul(x, ops.transpose(weight))
    return ops.matmul(weight, x)


@builder("interpolate_antialias", casts=ON_A_GPU)
def interpolated_smoothly(
    x: Node, size: tuple[int, ...], scales: tuple[float, ...], mode: str, aligned: bool
) -> Node:
    y = x
    for axis, (out, scale) in enumerate(zip(size, scales, strict=True), 2):
        if aligned:
            scale = (x.shape[axis] - 1) / (out - 1) if out > 1 else 0.0
        if out != x.shape[axis] or scale != 1:
            y = _smoothed(y, axis, out, scale, mode == "bicubic")
    return to(y, x.dtype)


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """input[n, c, …] with its one to three last dimensions in another `size`, or `scale_factor`
    times as large.

    mode: nearest, nearest-exact, linear, bilinear, trilinear, bicubic or area. align_corners: the
    centres of the corner elements stay where they are, instead of their outer edges. antialias:
    for bilinear and bicubic, smaller images are weighted means over all elements, as Pillow has
    them.
    """
    dims = input.dim() - 2
    if mode not in (*LINEAR, "nearest", "nearest-exact", "area"):
        raise NotImplementedError(f"interpolate: there is no mode {mode!r}{at_user_line()}")
    if not 1 <= dims <= 3 or LINEAR.get(mode, dims) != dims:
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the "
            f"modes: nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact (got "
            f"{mode}){at_user_line()}"
        )
    if align_corners is not None and mode not in LINEAR:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear "
            f"| bicubic | trilinear{at_user_line()}"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D "
            f"tensor as input{at_user_line()}"
        )
    if (size is None) == (scale_factor is None):
        which = "one of size or scale_factor should be defined"
        raise ValueError(f"{'either ' if size is None else 'only '}{which}{at_user_line()}")
    spatial = tuple(input.shape[2:])
    if size is not None:
        sizes = tuple(map(int, size)) if isinstance(size, Sequence) else (int(size),) * dims
        factors = None
    else:
        given: Any = scale_factor if isinstance(scale_factor, Sequence) else (scale_factor,) * dims
        factors = tuple(map(float, given))
        sizes = tuple(math.floor(n * f) for n, f in zip(spatial, factors, strict=False))
    if len(sizes) != dims:
        raise ValueError(
            f"interpolate: expected {dims} output sizes or factors for an input of {dims} spatial "
            f"dimensions, got {len(sizes)}{at_user_line()}"
        )
    if min(sizes) <= 0 or min(spatial) <= 0:
        raise RuntimeError(
            "Input and output sizes should be greater than 0, but got input "
            f"{spatial} and output {sizes}{at_user_line()}"
        )
    if mode == "area":
        pool = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[dims - 1]
        return pool(input, sizes)
    if factors is None or recompute_scale_factor:
        scales = tuple(n / m for n, m in zip(spatial, sizes, strict=True))
    else:
        scales = tuple(1 / f for f in factors)
    if input.dtype is uint8 and mode in ("bilinear", "bicubic"):
        return resized_bytes(
            input, sizes, scales, mode == "bicubic", bool(align_corners), antialias
        )
    build = interpolated_smoothly if antialias else interpolated
    return record(build, input, sizes, scales, mode, bool(align_corners))


_OLDER = "`nn.functional.{}` is deprecated. Use `nn.functional.interpolate` instead."


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` by its older name."""
    warn(_OLDER.format("upsample"))
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    warn(_OLDER.format("upsample_nearest"))
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    warn(_OLDER.format("upsample_bilinear"))
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


@builder("pixel_unshuffle")
def _pixel_unshuffle(x: Node, r: int) -> Node:
    *lead, c, h, w = x.shape
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
            f"got {(h, w)} and {r}{at_user_line()}"
        )
    k = len(lead)
    y = ops.reshape(x, (*lead, c, h // r, r, w // r, r))
    y = ops.permute(y, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return ops.reshape(y, (*lead, c * r * r, h // r, w // r))


@by_numpys_names
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """[…, c, h r, w r] to […, c r^2, h, w]."""
    return record(_pixel_unshuffle, input, int(downscale_factor))


@builder("channel_shuffle")
def _channel_shuffle(x: Node, groups: int) -> Node:
    n, c, *rest = x.shape
    if c % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups."
            f"{at_user_line()}"
        )
    y = ops.reshape(x, (n, groups, c // groups, *rest))
    return ops.reshape(ops.transpose(y, 1, 2), x.shape)


@by_numpys_names
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Reorder the channels of input[n, c, …], which form `groups`: take one of each group in
    turn."""
    return record(_channel_shuffle, input, int(groups))


@public("native_channel_shuffle", method=False)
def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The same as channel_shuffle."""
    return channel_shuffle(input, groups)
