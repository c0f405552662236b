"""Resize and Upsample: one dimension at a time, at places computed on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import ops

from ...recording import record
from .api import f
from .table import operator
from .values import tensor_of


@dataclass(frozen=True)
class Line:
    """A dimension that is resized from `size` to `out` elements, `scale` times as long.

    coordinates, rounding: ONNX's coordinate_transformation_mode and nearest_mode. begin, end: the
    region that tf_crop_and_resize takes, in shares of the whole. smooth: whether the filter of a
    smaller image is as wide as its steps. inside: whether only elements of the input count.
    """

    size: int
    out: int
    scale: float
    coordinates: str
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    begin: float = 0.0
    end: float = 1.0
    smooth: bool = False
    inside: bool = False

    def places(self) -> np.ndarray:
        """The place in the input of each output element."""
        x = np.arange(self.out, dtype=np.float64)
        last, whole = self.size - 1, self.scale * self.size
        if self.coordinates == "asymmetric":
            return x / self.scale
        if self.coordinates == "align_corners":
            return x * (last / (self.out - 1) if self.out > 1 else 0)
        if self.coordinates == "tf_crop_and_resize":
            if self.out == 1:
                return np.array([(self.begin + self.end) / 2 * last])
            return self.begin * last + x * ((self.end - self.begin) * last / (self.out - 1))
        if self.coordinates == "pytorch_half_pixel" and self.out == 1:
            return np.zeros(1)
        if self.coordinates == "half_pixel_symmetric":
            return self.size / 2 * (1 - self.out / whole) + (x + 0.5) / self.scale - 0.5
        if self.coordinates in ("half_pixel", "pytorch_half_pixel"):
            return (x + 0.5) / self.scale - 0.5
        raise NotImplementedError(f"coordinate_transformation_mode={self.coordinates}")

    def outside(self) -> np.ndarray:
        """Which output elements lie outside of the input, and so have no value of it."""
        if self.coordinates != "tf_crop_and_resize":
            return np.zeros(self.out, np.bool_)
        places = self.places()
        return (places < 0) | (places > self.size - 1)

    def nearest(self) -> np.ndarray:
        """The input element of each output element."""
        rounded = _ROUNDING[self.rounding](self.places())
        return np.clip(rounded.astype(np.int64), 0, self.size - 1)

    def taps(self, mode: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Pairs of input elements and their weights, for each output element."""
        wide = max(1.0, 1 / self.scale) if self.smooth else 1.0
        reach = math.ceil((1 if mode == "linear" else 2) * wide)
        places = self.places()
        first = np.floor(places).astype(np.int64) - reach + 1
        index = first + np.arange(2 * reach)[:, None]  # [taps, out]
        distance = np.abs(index - places) / wide
        if mode == "linear":
            weight = np.maximum(1 - distance, 0)
        else:
            weight = _cubic(distance, self.cubic)
        if self.inside:
            weight = np.where((index >= 0) & (index < self.size), weight, 0)
        if self.inside or self.smooth:
            weight = weight / weight.sum(0)
        index = np.clip(index, 0, self.size - 1)
        return [(i, w) for i, w in zip(index, weight, strict=True) if w.any()]


_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys's kernel (Cubic convolution interpolation for digital image processing, 1981)."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@functools.lru_cache(maxsize=256)
def _tensors(line: Line, mode: str, dtype: Any, device: Any) -> tuple[Any, ...]:
    """The taps as tensors; for mode `nearest` the elements alone."""
    if mode == "nearest":
        return (tensor_of(line.nearest(), device),)
    return tuple(
        (tensor_of(index, device), tensor_of(weight.astype(dtype.np), device))
        for index, weight in line.taps(mode)
    )


def _along(x: Any, axis: int, line: Line, mode: str) -> Any:
    if mode == "nearest":
        factor = line.out // line.size
        if line.out == factor * line.size and np.array_equal(
            line.nearest(), np.arange(line.out) // factor
        ):
            lead, tail = x.shape[: axis + 1], x.shape[axis + 1 :]
            wide = f.unsqueeze(x, axis + 1).expand(*lead, factor, *tail)
            return wide.reshape(*lead[:-1], line.out, *tail)
        (index,) = _tensors(line, mode, None, x.device)
        return record(ops.gather, x, index, axis)
    total: Any = None
    for index, weight in _tensors(line, mode, x.dtype, x.device):
        column = weight.reshape([-1] + [1] * (x.dim() - 1 - axis))
        part = record(ops.gather, x, index, axis) * column
        total = part if total is None else total + part
    return total


@operator("Resize", since=11, host=("roi", "scales", "sizes"))
def resize(
    x: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    chosen = list(range(x.dim())) if axes is None else [a % x.dim() for a in axes]
    by_scale = sizes is None or not len(sizes)
    crops = coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None
    kept = None
    if not by_scale and keep_aspect_ratio_policy != "stretch":
        ratios = [int(n) / x.shape[axis] for n, axis in zip(sizes, chosen, strict=True)]
        kept = min(ratios) if keep_aspect_ratio_policy == "not_larger" else max(ratios)
    for i, axis in enumerate(chosen):
        size = x.shape[axis]
        begin, end = (float(roi[i]), float(roi[i + len(chosen)])) if crops else (0.0, 1.0)
        if by_scale:
            scale = float(scales[i])
            out = math.floor(size * (end - begin) * scale)
        elif kept is not None:
            scale, out = kept, math.floor(kept * size + 0.5)
        else:
            scale, out = int(sizes[i]) / size, int(sizes[i])
        if out == size and scale == 1 and (begin, end) == (0, 1):
            continue
        line = Line(
            size, out, scale, coordinate_transformation_mode, nearest_mode, cubic_coeff_a,
            begin, end, bool(antialias), bool(exclude_outside),
        )  # fmt: skip
        x = _along(x, axis, line, mode)
        outside = line.outside()
        if outside.any():
            column = [-1] + [1] * (x.dim() - 1 - axis)
            x = f.where(tensor_of(outside, x.device).reshape(column), extrapolation_value, x)
    return x


@operator("Upsample", "Resize", host=("scales",))
def upsample(x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    """Upsample, and Resize before opset 11. In the oldest opsets scales were an attribute."""
    return resize(
        x,
        None,
        scales,
        mode="linear" if mode == "bilinear" else mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
