"""Samples of images at places that are computed: grids, regions, moved taps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...vision.deformable import deform_conv2d
from ...vision.regions import roi_align as mean_of_regions
from ...vision.regions import roi_pool
from .api import F, f
from .linear import flat
from .table import operator
from .values import tensor_of

_MODES = {"linear": "bilinear", "cubic": "bicubic"}  # PyTorch's names


@operator("GridSample")
def grid_sample(
    x: Any,
    grid: Any,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Any:
    dims = x.dim() - 2
    wide = x if x.dtype.is_floating_point else x.to(grid.dtype)
    if dims == 1:  # an image with one row
        wide, grid = wide.unsqueeze(2), F.pad(grid, [0, 1]).unsqueeze(1)
    name = _MODES.get(mode, mode)
    out = F.grid_sample(wide, grid.to(wide.dtype), name, padding_mode, bool(align_corners))
    return (out.squeeze(2) if dims == 1 else out).to(x.dtype)


@operator("AffineGrid", host=("size",))
def affine_grid(theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    return F.affine_grid(theta, [int(n) for n in size], bool(align_corners))


@operator("DeformConv")
def deform_conv(
    x: Any,
    weight: Any,
    offset: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    dims = x.dim() - 2
    if dims != 2:
        raise NotImplementedError(f"DeformConv over {dims} dimensions: expected two")
    strides, dilations, pads = strides or [1, 1], dilations or [1, 1], pads or [0] * 4
    low, high = pads[:dims], pads[dims:]
    if low != high:  # zeros are what lies outside anyway
        x = F.pad(x, flat(list(zip(low, high, strict=True))))
        low = [0, 0]
    if bias is None:
        bias = x.new_zeros(weight.shape[0])
    options = (*strides, *low, *dilations, group, offset_group, mask is not None)
    moved: Any = deform_conv2d
    return moved(x, weight, offset, mask, bias, *options)


@operator("RoiAlign", since=16)
def roi_align(
    x: Any,
    rois: Any,
    maps: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    """The mean of bilinear samples in each bin of a region; in mode `max` the largest of them,
    weighted as they are."""
    aligned = coordinate_transformation_mode == "half_pixel"
    boxes = f.cat([maps.to(rois.dtype).reshape(-1, 1), rois], 1)
    if mode == "avg":
        return mean_of_regions(
            x, boxes, spatial_scale, output_height, output_width, sampling_ratio, aligned
        )
    size = output_height, output_width
    return _largest_samples(x, boxes, size, sampling_ratio, spatial_scale, aligned)


@operator("RoiAlign")
def roi_align_unaligned(x: Any, rois: Any, maps: Any, **options: Any) -> Any:
    """RoiAlign before opset 16."""
    return roi_align(x, rois, maps, coordinate_transformation_mode="output_half_pixel", **options)


def _largest_samples(
    x: Any, boxes: Any, size: tuple[int, int], ratio: int, scale: float, aligned: bool
) -> Any:
    """For each bin the largest of the products of four neighbours and their bilinear weights."""
    numbers = np.asarray(boxes.detach().cpu(), np.float64)
    shift = 0.5 if aligned else 0.0
    out = []
    for box in numbers:
        left, top, right, bottom = box[1:] * scale - shift
        extent = np.array([bottom - top, right - left])
        if not aligned:
            extent = np.maximum(extent, 1.0)
        bins = extent / np.array(size)
        counts = [ratio] * 2 if ratio > 0 else [int(n) for n in np.ceil(bins)]
        rows, row_weights = _taps(top, bins[0], size[0], counts[0], x.shape[2])
        columns, column_weights = _taps(left, bins[1], size[1], counts[1], x.shape[3])
        picture = x[int(box[0])]
        down = picture[:, tensor_of(rows, x.device)]  # [c, 2 * samples, w]
        found = down[:, :, tensor_of(columns, x.device)]
        weights = row_weights[:, None] * column_weights
        found = found * tensor_of(weights.astype(x.dtype.np), x.device)
        channels = x.shape[1]
        split = found.reshape(channels, size[0], counts[0] * 2, size[1], counts[1] * 2)
        out.append(f.amax(split, (2, 4)))
    return f.stack(out) if out else x.new_zeros((0, x.shape[1], *size))


def _taps(
    start: float, step: float, bins: int, count: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The two neighbours of each sample, and their weights."""
    at = start + step * (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / count)
    inside = (at >= -1) & (at <= size)
    at = np.clip(at, 0, size - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, size - 1)
    part = at - low
    places = np.stack([low, high], -1).reshape(-1)
    weights = np.stack([(1 - part) * inside, part * inside], -1).reshape(-1)
    return places, weights


@operator("MaxRoiPool")
def max_roi_pool(x: Any, rois: Any, *, pooled_shape: list[int], spatial_scale: float = 1.0) -> Any:
    return roi_pool(x, rois, spatial_scale, *pooled_shape)[0]
