"""Regions of interest, cut out of feature maps and brought to one size.

Each is a weighted mean over a rectangle, and the weights are those of its rows times those of its
columns: out[p, q] = sum of rows[p, y] · map[y, x] · columns[q, x]. So a region is two products of
matrices, and its gradient two more. roi_pool, which takes the largest element, is another thing.

All take: input, feature maps [n, c, h, w]; rois [k, 5], of which each is the number of a map and a
box x1, y1, x2, y2; spatial_scale, the size of a map's element in the boxes' unit; and the size of
the result. No gradient goes to the boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ..functions.contractions import einsum
from ..functions.from_data import beside
from ..functions.joining import cat

Weights = Callable[[int, np.ndarray, np.ndarray], np.ndarray]


def roi_align(
    input: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    """Means of bilinear samples [k, c, pooled_height, pooled_width] (Mask R-CNN, 2017).

    sampling_ratio: samples of a bin along each axis; below 1, as many as a bin is wide. aligned:
    whether boxes are shifted by half an element, so that they measure between centres.
    """
    first, last = _edges(input, rois, spatial_scale, 0.5 if aligned else 0.0)
    extent = last - first if aligned else np.maximum(last - first, 1)
    rows, columns = _samples(input, first, extent, (pooled_height, pooled_width), sampling_ratio)
    made = []
    for maps, those in _by_map(input, rois):
        down = einsum("kpy,cyx->kcpx", _beside(rows[those], input), maps)
        made.append(down @ _beside(columns[those], input).unsqueeze(1).mT)
    return _in_order(made, input, rois, (input.shape[1], pooled_height, pooled_width))


def ps_roi_align(
    input: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Any, Any]:
    """roi_align in which each place of the result has channels of its own (Light-Head R-CNN, 2017).

    Returns [k, c / (pooled_height · pooled_width), pooled_height, pooled_width], and the channel
    that each element was taken from.
    """
    size = pooled_height, pooled_width
    first, last = _edges(input, rois, spatial_scale, 0.5)
    weights = _samples(input, first, last - first, size, sampling_ratio)
    return _by_position(input, rois, size, *weights)


def ps_roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any]:
    """Means over bins, in which each place of the result has channels of its own (R-FCN, 2016).

    Returns as `ps_roi_align` does.
    """
    size = pooled_height, pooled_width
    first, last = _rounded(rois, spatial_scale)
    bounds = _bins(first, np.maximum(last - first, 1), size, input.shape[2:])
    return _by_position(input, rois, size, *map(_mean_of, bounds, input.shape[2:]))


def roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any]:
    """The largest elements of bins [k, c, pooled_height, pooled_width] (Fast R-CNN, 2015).

    Returns also where in its map each was found, -1 in an empty bin, which gives 0. The places
    depend on values, so they are searched at once.
    """
    count, channels = rois.shape[0], input.shape[1]
    _check(input, rois)
    first, last = _rounded(rois, spatial_scale)
    size = pooled_height, pooled_width
    rows, columns = _bins(first, np.maximum(last - first + 1, 1), size, input.shape[2:])
    values = input.detach().cpu().float().numpy()
    width = input.shape[3]
    found = np.full((count, channels, *size), -1, np.int64)
    maps = _numbers(rois)
    for k, p, q in np.ndindex(count, *size):
        (top, bottom), (left, right) = rows[:, k, p], columns[:, k, q]
        if bottom > top and right > left:
            bin = values[maps[k], :, top:bottom, left:right].reshape(channels, -1)
            y, x = np.divmod(bin.argmax(1), right - left)
            found[k, :, p, q] = (top + y) * width + left + x
    places = beside(found, input)
    flat = input.flatten(2)[beside(maps, input)]
    taken = flat.gather(2, places.clamp(min=0).flatten(2)).view(places.shape)
    return taken.masked_fill(places < 0, 0), places.int()


# ---- boxes ------------------------------------------------------------------------------------


def _check(input: Any, rois: Any) -> None:
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise RuntimeError(f"rois must have shape [k, 5], got {list(rois.shape)}{at_user_line()}")
    if input.dim() != 4:
        raise RuntimeError(
            f"expected feature maps [n, c, h, w], got {list(input.shape)}{at_user_line()}"
        )


def _edges(input: Any, rois: Any, scale: float, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last edge of each box, [k, 2] as y, x, in elements of a map."""
    _check(input, rois)
    boxes = rois.detach().cpu().float().numpy()[:, 1:] * np.float32(scale) - np.float32(shift)
    return boxes[:, [1, 0]], boxes[:, [3, 2]]


def _rounded(rois: Any, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The edges of each box at the nearest elements; halves go away from zero."""
    boxes = rois.detach().cpu().float().numpy()[:, 1:] * np.float32(scale)
    whole = np.trunc(boxes + np.copysign(0.5, boxes)).astype(np.int64)
    return whole[:, [1, 0]], whole[:, [3, 2]]


def _numbers(rois: Any) -> np.ndarray:
    """The number of each region's map."""
    return rois.detach().cpu().numpy()[:, 0].astype(np.int64)


# ---- weights of rows and columns ---------------------------------------------------------------


def _samples(
    input: Any, first: np.ndarray, extent: np.ndarray, size: tuple[int, int], ratio: int
) -> list[np.ndarray]:
    """The weights [k, bins, elements] of both axes for means of bilinear samples."""
    return [
        _sampled(first[:, axis], extent[:, axis], size[axis], input.shape[2 + axis], ratio)
        for axis in (0, 1)
    ]


def _sampled(
    first: np.ndarray, extent: np.ndarray, bins: int, elements: int, ratio: int
) -> np.ndarray:
    weights = np.zeros((len(first), bins, elements), np.float32)
    each = extent / np.float32(bins)
    counts = np.full(len(first), ratio) if ratio > 0 else np.ceil(each).astype(np.int64)
    for count in np.unique(counts):
        if count <= 0:
            continue
        those = np.flatnonzero(counts == count)
        k, p, s = np.ogrid[: len(those), :bins, :count]
        step = each[those][:, None, None]
        place = first[those][:, None, None] + (p + (s + np.float32(0.5)) / np.float32(count)) * step
        share = np.where((place < -1) | (place > elements), 0, 1 / np.float32(count))
        place = np.clip(place, 0, elements - 1).astype(np.float32)
        low = place.astype(np.int64)
        part = place - low
        for corner, weight in ((low, 1 - part), (np.minimum(low + 1, elements - 1), part)):
            np.add.at(weights, (those[k], p, corner), (weight * share).astype(np.float32))
    return weights


def _bins(
    first: np.ndarray, extent: np.ndarray, size: tuple[int, int], maps: tuple[int, ...]
) -> list[np.ndarray]:
    """The bounds [2, k, bins] of each bin along both axes, in whole elements."""
    bounds = []
    for axis in (0, 1):
        each = extent[:, axis, None].astype(np.float32) / np.float32(size[axis])
        p = np.arange(size[axis], dtype=np.float32)
        edges = np.stack([np.floor(p * each), np.ceil((p + 1) * each)]).astype(np.int64)
        bounds.append(np.clip(edges + first[:, axis, None], 0, maps[axis]))
    return bounds


def _mean_of(bounds: np.ndarray, elements: int) -> np.ndarray:
    """The weights [k, bins, elements] of means over bins; zero where a bin is empty."""
    place = np.arange(elements)
    inside = (place >= bounds[0][..., None]) & (place < bounds[1][..., None])
    return (inside / np.maximum(inside.sum(-1, keepdims=True), 1)).astype(np.float32)


# ---- products ----------------------------------------------------------------------------------


def _beside(weights: np.ndarray, input: Any) -> Any:
    return beside(weights, input).to(input.dtype)


def _by_map(input: Any, rois: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """Each map that has regions, and the places of its regions."""
    numbers = _numbers(rois)
    for number in np.unique(numbers):
        if not 0 <= number < input.shape[0]:
            raise RuntimeError(
                f"a region is of map {number}, and there are {input.shape[0]}{at_user_line()}"
            )
        yield input[int(number)], np.flatnonzero(numbers == number)


def _in_order(made: list[Any], input: Any, rois: Any, shape: tuple[int, ...]) -> Any:
    """The regions, which were made map by map, in the order of their boxes."""
    if not made:
        return input.new_zeros((0, *shape)) + input.sum() * 0
    order = np.argsort(np.argsort(_numbers(rois), kind="stable"), kind="stable")
    whole = cat(made) if len(made) > 1 else made[0]
    return whole if (order[1:] > order[:-1]).all() else whole[beside(order, input)]


def _by_position(
    input: Any, rois: Any, size: tuple[int, int], rows: np.ndarray, columns: np.ndarray
) -> tuple[Any, Any]:
    _check(input, rois)
    places = size[0] * size[1]
    if input.shape[1] % places:
        raise RuntimeError(
            f"input channels must be a multiple of pooling height * pooling width, got "
            f"{input.shape[1]} and {size[0]} * {size[1]}{at_user_line()}"
        )
    channels = input.shape[1] // places
    made = []
    for maps, those in _by_map(input, rois):
        apart = maps.view(channels, *size, *maps.shape[1:])
        down = einsum("kpy,cpqyx->kcpqx", _beside(rows[those], input), apart)
        made.append((down * _beside(columns[those], input)[:, None, None]).sum(-1))
    taken = np.arange(input.shape[1], dtype=np.int32).reshape(1, channels, *size)
    mapping = np.repeat(taken, rois.shape[0], 0)
    return _in_order(made, input, rois, (channels, *size)), beside(mapping, input)
