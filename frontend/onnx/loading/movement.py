"""Rearrangements, and values made from shapes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.ir.dtype import from_numpy

from ...functions import ranges
from .api import F, f
from .table import operator
from .values import LARGEST_HOST, NARROW, Host, dtype_of


@operator("Identity", either=("x",), known="never")
def identity(x: Any) -> Any:
    return x


@operator("Shape")
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(tuple(x.shape)[start:end], np.int64)


@operator("Size")
def size(x: Any) -> Any:
    return np.array(x.numel(), np.int64)


@operator("Constant", known="function")
def constant(
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Any:
    for given, dtype in (
        (value, None),
        (sparse_value, None),
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ):
        if given is not None:
            return np.asarray(given, dtype)
    raise ValueError("a constant without a value")


@operator("ConstantOfShape", host=("shape",), known="function")
def constant_of_shape(shape: Any, *, value: Any = None, device: Any = None) -> Any:
    filler = np.zeros(1, np.float32) if value is None else value
    sizes = [int(n) for n in shape]
    if math.prod(sizes) <= LARGEST_HOST or filler.dtype in NARROW:
        return np.full(sizes, filler.reshape(()), filler.dtype)
    first = Host(filler.reshape(())).tensor(device)
    return first.expand(sizes)


@operator("Range", host=("start", "limit", "delta"), known="function")
def range_(start: Any, limit: Any, delta: Any, device: Any = None) -> Any:
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    if count > LARGEST_HOST:  # more than a list of positions
        line = ranges.arange(count, dtype=from_numpy(start.dtype), device=device)
        return line * delta.item() + start.item()
    return np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


@operator("EyeLike")
def eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    rows, columns = x.shape
    row, column = (ranges.arange(n, device=x.device) for n in (rows, columns))
    ones = row[:, None] + k == column
    return ones.to(x.dtype if dtype is None else dtype_of(dtype))


@operator("Reshape", host=("shape",))
def reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = [int(s) for s in shape]
    if not allowzero:
        sizes = [x.shape[i] if s == 0 else s for i, s in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten", moves=True)
def flatten(x: Any, *, axis: int = 1) -> Any:
    split = axis + x.dim() if axis < 0 else axis
    sizes = tuple(x.shape)
    return x.reshape(int(np.prod(sizes[:split])), int(np.prod(sizes[split:])))


@operator("Transpose", moves=True)
def transpose(x: Any, *, perm: list[int] | None = None) -> Any:
    return f.permute(x, perm if perm is not None else list(range(x.dim()))[::-1])


@operator("Squeeze", host=("axes",))
def squeeze(x: Any, axes: Any = None) -> Any:
    if axes is None:
        return f.squeeze(x)
    dropped = {int(a) % x.dim() for a in axes}
    wrong = [a for a in dropped if x.shape[a] != 1]
    if wrong:
        raise ValueError(f"the dimension {wrong[0]} of {list(x.shape)} is not 1")
    return x.reshape([s for i, s in enumerate(x.shape) if i not in dropped])


@operator("Unsqueeze", host=("axes",))
def unsqueeze(x: Any, axes: Any) -> Any:
    axes = np.atleast_1d(axes)
    rank = x.dim() + len(axes)
    for axis in sorted(int(a) % rank for a in axes):
        x = f.unsqueeze(x, axis)
    return x


@operator("Expand", host=("shape",))
def expand(x: Any, shape: Any) -> Any:
    return f.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), tuple(map(int, shape))))


@operator("Tile", host=("repeats",))
def tile(x: Any, repeats: Any) -> Any:
    return f.tile(x, repeats.tolist())


@operator("Concat", moves=True)
def concat(*tensors: Any, axis: int) -> Any:
    return f.cat(tensors, axis)


@operator("Split", host=("split",))
def split(
    x: Any, split: Any = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int
) -> Any:
    """Split. Before opset 13 the sizes were an attribute. Without sizes the last part may be
    smaller."""
    if split is not None:
        return tuple(f.split(x, [int(s) for s in split], axis))
    length = -(-x.shape[axis] // (num_outputs or outputs))
    return tuple(f.split(x, length, axis))


@operator("Slice", host=("starts", "ends", "axes", "steps"))
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    axes = range(len(starts)) if axes is None else axes
    steps = itertools.repeat(1) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        # ONNX clamps as Python's slices do, except for an end before the first element.
        dim, places = int(axis), range(x.shape[int(axis)])
        part = places[slice(int(start), int(end), int(step))]
        if step < 0:
            x = f.flip(x, (dim,))
            part = range(len(places))[len(places) - 1 - part.start :: -int(step)][: len(part)]
        x = x[(slice(None),) * (dim % x.dim()) + (slice(part.start, max(part.stop, 0), part.step),)]
    return x


_MODES = {"edge": "replicate", "wrap": "circular"}  # PyTorch's names


@operator("Pad", host=("pads", "value", "axes"))
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    """Pad. Before opset 11 pads and value were attributes."""
    count = len(pads) // 2
    chosen = range(count) if axes is None else [int(a) % x.dim() for a in axes]
    pairs = [(0, 0)] * x.dim()
    for axis, low, high in zip(chosen, pads[:count], pads[count:], strict=True):
        pairs[axis] = int(low), int(high)
    filler = 0 if value is None else np.asarray(value).item()
    first = next((i for i, pair in enumerate(pairs) if pair != (0, 0)), x.dim())
    sizes = [n for pair in pairs[first:][::-1] for n in pair]
    return F.pad(x, sizes, _MODES.get(mode, mode), filler) if sizes else x


@operator("CenterCropPad", host=("shape",), moves=True)
def center_crop_pad(x: Any, shape: Any, *, axes: list[int] | None = None) -> Any:
    """The middle of x, with zeros around it where x is smaller."""
    chosen = range(x.dim()) if axes is None else [a % x.dim() for a in axes]
    pairs = [(0, 0)] * x.dim()
    for axis, size in zip(chosen, map(int, shape), strict=True):
        extra = size - x.shape[axis]
        if extra < 0:
            x = x.narrow(axis, -extra // 2, size)
        else:
            pairs[axis] = extra // 2, extra - extra // 2
    return F.pad(x, [n for pair in pairs[::-1] for n in pair])


@operator("Trilu", host=("k",))
def triangle(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    return (f.triu if upper else f.tril)(x, 0 if k is None else int(k.item()))


@operator("DepthToSpace", moves=True)
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    y = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // blocksize**2, h * blocksize, w * blocksize)


@operator("SpaceToDepth", moves=True)
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    if mode == "CRD":
        return F.pixel_unshuffle(x, blocksize)
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    return y.permute(0, 3, 5, 1, 2, 4).reshape(n, c * blocksize**2, h // blocksize, w // blocksize)
