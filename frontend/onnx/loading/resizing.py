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

    coordinates, rounding: ONNX's coordinate_transformation_mode and nearest_mode.
    """

    size: int
    out: int
    scale: float
    coordinates: str
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75

    def places(self) -> np.ndarray:
        """The place in the input of each output element."""
        x = np.arange(self.out, dtype=np.float64)
        if self.coordinates == "asymmetric":
            return x / self.scale
        if self.coordinates == "align_corners":
            return x * ((self.size - 1) / (self.out - 1) if self.out > 1 else 0)
        if self.coordinates == "pytorch_half_pixel" and self.out == 1:
            return np.zeros(1)
        if self.coordinates == "half_pixel_symmetric":
            adjusted = self.out / (self.scale * self.size)
            return self.size / 2 * (1 - adjusted) + (x + 0.5) / self.scale - 0.5
        if self.coordinates in ("half_pixel", "pytorch_half_pixel"):
            return (x + 0.5) / self.scale - 0.5
        raise NotImplementedError(f"coordinate_transformation_mode={self.coordinates}")

    def nearest(self) -> np.ndarray:
        """The input element of each output element."""
        rounded = _ROUNDING[self.rounding](self.places())
        return np.clip(rounded.astype(np.int64), 0, self.size - 1)

    def taps(self, mode: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Pairs of input elements and their weights, for each output element."""
        places = self.places()
        if mode == "linear":
            places = np.clip(places, 0, self.size - 1)
        first = np.floor(places)
        t = places - first
        weights = (1 - t, t) if mode == "linear" else _cubic(t, self.cubic)
        start = 0 if mode == "linear" else -1
        return [
            (np.clip(first.astype(np.int64) + i, 0, self.size - 1), w)
            for i, w in enumerate(weights, start)
        ]


_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(t: np.ndarray, a: float) -> tuple[np.ndarray, ...]:
    """Keys's kernel (Cubic convolution interpolation for digital image processing, 1981)."""

    def near(d: np.ndarray) -> np.ndarray:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: np.ndarray) -> np.ndarray:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return far(t + 1), near(t), near(1 - t), far(2 - t)


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
    if antialias or exclude_outside or keep_aspect_ratio_policy != "stretch":
        raise NotImplementedError("antialias, exclude_outside and keep_aspect_ratio_policy")
    chosen = range(x.dim()) if axes is None else [a % x.dim() for a in axes]
    by_scale = sizes is None or not len(sizes)
    for i, axis in enumerate(chosen):
        size = x.shape[axis]
        scale = float(scales[i]) if by_scale else int(sizes[i]) / size
        out = math.floor(size * scale) if by_scale else int(sizes[i])
        if out != size or scale != 1:
            line = Line(
                size, out, scale, coordinate_transformation_mode, nearest_mode, cubic_coeff_a
            )
            x = _along(x, axis, line, mode)
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
