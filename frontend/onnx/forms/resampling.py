"""Interpolation as Resize, and samples at positions as GridSample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import float32, int64

from ...nn.functional.grids import grid_sample_of
from ...nn.functional.resampling import interpolated, interpolated_smoothly
from ..align import Extent, Traced, Varying, across
from ..exporter import Exporter, whole
from .movement import arange


@whole(interpolated, interpolated_smoothly)
def _resize(e: Exporter, t: Traced, x: str) -> str | None:
    build, arguments, _ = t.attrs
    _, sizes, scales, mode, aligned = arguments
    smooth = build is interpolated_smoothly
    nearest = mode.startswith("nearest")
    if not t.dtype.is_floating_point or t.dtype.itemsize == 8:
        return None
    if mode == "bicubic" and t.rank != 4:
        return None
    factors = _factors(t, sizes, scales)
    if nearest and (factors is None or not all(map(_is_exact, factors))):
        # The places where Resize reads would be rounded otherwise than ours.
        for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True), 2):
            x = _taken(e, x, axis, (t.operands[0].shape[axis], size), scale, mode != "nearest")
        return x
    options: dict[str, Any] = {
        "mode": "nearest" if nearest else "cubic" if mode == "bicubic" else "linear",
        "coordinate_transformation_mode": "align_corners"
        if aligned
        else "asymmetric"
        if mode == "nearest"
        else "half_pixel",
    }
    if nearest:
        options["nearest_mode"] = "floor" if mode == "nearest" else "round_prefer_ceil"
    if mode == "bicubic":
        options["cubic_coeff_a"] = -0.5 if smooth else -0.75
    if smooth:
        options |= {"antialias": 1, "exclude_outside": 1}
    if factors is not None and not aligned:
        lead = np.ones(2, np.float32)
        array = np.concatenate([lead, np.array(factors, np.float32)])
        return e.add("Resize", x, "", e.constant(array), **options)
    if any(not _is_plain(t, axis, scales) for axis in range(len(sizes))) and not aligned:
        return None
    lead_sizes = e.add("Shape", x, start=0, end=2)
    target = e.add("Concat", lead_sizes, e.ints(sizes), axis=0)
    return e.add("Resize", x, "", "", target, **options)


def _taken(
    e: Exporter, x: str, axis: int, sizes: tuple[Extent, Extent], scale: Any, centred: bool
) -> str:
    """x with the elements along `axis` that are nearest to `scale` times each place."""
    before, after = sizes
    place = e.cast(arange(e, after), float32)
    if centred:
        place = e.add("Add", place, e.number(0.5, float32))
    place = e.cast(e.add("Floor", e.add("Mul", place, e.number(scale, float32))), int64)
    last = e.number(across(lambda n: n - 1, before), int64)
    return e.add("Gather", x, e.add("Min", place, last), axis=axis)


def _factors(t: Traced, sizes: Sequence[Extent], scales: Sequence[Any]) -> list[float] | None:
    """How many times larger the result is along each axis, if ONNX finds the same sizes by it."""
    out = []
    inner = t.operands[0].shape[2:]
    for before, after, scale in zip(inner, sizes, scales, strict=True):
        if not isinstance(scale, (int, float)) or not scale:
            return None
        factor = 1 / scale
        single = float(np.float32(factor))
        pairs = zip(_each(before, t), _each(after, t), strict=True)
        if abs(single - factor) > 1e-12 or any(math.floor(b * single) != a for b, a in pairs):
            return None
        out.append(single)
    return out


def _is_plain(t: Traced, axis: int, scales: Sequence[Any]) -> bool:
    """Whether the scale of an axis is the quotient of its sizes."""
    before = _each(t.operands[0].shape[2 + axis], t)
    after = _each(t.shape[2 + axis], t)
    scale = scales[axis]
    each = scale if isinstance(scale, tuple) else [scale] * len(before)
    return all(abs(s * a - b) < 1e-6 * b for s, a, b in zip(each, after, before, strict=True))


def _each(size: Extent, t: Traced) -> Sequence[int]:
    return size if isinstance(size, Varying) else [size] * len(t.nodes)


def _is_exact(factor: float) -> bool:
    """Whether places divided by the factor are rounded as places times its inverse are: whole
    factors, and halves, quarters and so on."""
    return float(factor).is_integer() or math.frexp(factor)[0] == 0.5


_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


@whole(grid_sample_of)
def _grid_sample(e: Exporter, t: Traced, x: str, grid: str) -> str | None:
    mode, padding, aligned = t.attrs[1][2:]
    volumes = t.rank == 5
    same = all(o.dtype is t.dtype for o in t.operands)
    if not same or t.dtype.itemsize != 4 or (volumes and e.opset < 20):
        return None
    return e.add(
        "GridSample",
        x,
        grid,
        mode=_MODES[mode] if e.opset >= 20 else mode,
        padding_mode=padding,
        align_corners=int(aligned),
    )
