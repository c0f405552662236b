"""Images of few channels, as networks begin with them, laid out so that tensor cores get vectors.

With channels last a place of a color image is three elements long: no vector begins at most places,
so each element would be fetched by itself. The image is copied once instead, with its border.
Either channels are filled up with zeros to whole vectors. Or several pixels that meet neighbouring
taps of the kernel become the channels of one place, each tap with its own (all five of a row for a
kernel of 5x5, two at a time for one of 4x4). This leaves a convolution of fewer taps.

Pixels are put together only where their number divides the kernel. Else a tap of zero would meet a
pixel that the kernel doesn't reach, and make NaN of its infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node

from ..chip import GATHER
from ..target import Target

VECTOR = 4
"""The least elements that are worth reading at a time. Compilers are told that sizes are multiples
of it, but not that they are multiples of 2 (`triton/emitted.py`)."""
_WIDE = 16  # bytes, the most that one instruction reads
_ISSUE = 10  # instructions for a vector
_TILE = 16  # the least columns and terms of a tensor core's product


def is_vector(channels: int, dtype: DType) -> bool:
    """Whether a step of a tile along a sum may lie in one place's channels, in whole vectors."""
    return channels >= _TILE and channels * dtype.itemsize % _WIDE == 0


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of [n, c, *in], in one group.

    sizes: the image's. places: the result's, as many as are wanted. The other fields are attrs.
    """

    batch: int
    inputs: int
    outputs: int
    sizes: tuple[int, ...]
    places: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @property
    def has_vectors(self) -> bool:
        """Whether windows lie side by side in whole vectors along a row, as patches do."""
        *_, size = self.sizes
        *_, kernel = self.kernel
        even = not any(n % VECTOR for n in (size, kernel, self.stride[-1]))
        return even and self.dilation[-1] == 1 and self.padding[-1] == (0, 0)


@dataclass(frozen=True, slots=True)
class Packing:
    """The layout of a convolution's image.

    together: how many pixels along the spatial dimension `axis` become the channels of one place.
    These are filled up to `channels`.
    """

    of: Convolution
    axis: int
    together: int
    channels: int

    @property
    def step(self) -> int:
        """The distance of neighbouring places along `axis`, in pixels."""
        return math.gcd(self.of.stride[self.axis], self.together * self.of.dilation[self.axis])

    @property
    def kernel(self) -> tuple[int, ...]:
        return _with(self.of.kernel, self.axis, self.of.kernel[self.axis] // self.together)

    @property
    def attrs(self) -> tuple[Any, ...]:
        """The attrs of the convolution of the laid out image."""
        of, axis = self.of, self.axis
        stride = _with(of.stride, axis, of.stride[axis] // self.step)
        apart = self.together * of.dilation[axis] // self.step
        rank = len(of.sizes)
        return stride, ((0, 0),) * rank, _with(of.dilation, axis, apart), 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of places of the image along each dimension."""
        stride, _, dilation, _ = self.attrs
        each = zip(self.of.places, self.kernel, stride, dilation, strict=True)
        return tuple((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in each)

    def image(self, x: Node) -> Node:
        """The laid out x[n, *in, c]."""
        of, at = self.of, self.axis + 1
        first, apart = self.step, of.dilation[self.axis]
        reach = list(self.sizes)
        reach[self.axis] = (reach[self.axis] - 1) * first + (self.together - 1) * apart + 1
        lows = [low for low, _ in of.padding]
        each = zip(reach, lows, of.sizes, strict=True)
        highs = [max(n - low - size, 0) for n, low, size in each]
        x = ops.pad(x, (0, *lows, 0), (0, *highs, 0))
        for axis, size in enumerate(reach, 1):
            x = ops.slice_axis(x, axis, 0, size)
        if self.together == 1 or (self.together == first and apart == 1):
            return self._joined(x)  # side by side
        x = ops.windows(x, (at,), (self.together,), (first,), (apart,))
        x = ops.permute(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))
        x = ops.reshape(x, (*x.shape[:-2], self.together * of.inputs))
        return filled(x, self.channels)

    def weight(self, w: Node) -> Node:
        """The weight w[o, *kernel, c] for the laid out image."""
        return self._joined(w)

    def _joined(self, x: Node) -> Node:
        """`x` with neighbouring pixels along the axis as channels."""
        at, each = self.axis + 1, self.together
        if each == 1:
            return filled(x, self.channels)
        split = ops.reshape(x, (*x.shape[:at], x.shape[at] // each, each, *x.shape[at + 1 :]))
        if at + 1 < x.rank - 1:
            order = [i for i in range(x.rank) if i != at + 1]
            split = ops.permute(split, (*order, at + 1, x.rank))
        joined = ops.reshape(split, (*split.shape[:-2], each * self.of.inputs))
        return filled(joined, self.channels)

    def unpacked(self, w: Node) -> Node:
        """The inverse of `weight`."""
        of, at = self.of, self.axis + 1
        w = ops.slice_axis(w, w.rank - 1, 0, self.together * of.inputs)
        if self.together > 1:
            w = ops.reshape(w, (*w.shape[:-1], self.together, of.inputs))
            last = w.rank - 1
            w = ops.permute(w, (*range(at + 1), last - 1, *range(at + 1, last - 1), last))
            w = ops.reshape(w, (w.shape[0], *of.kernel, of.inputs))
        return w


def filled(x: Node, channels: int = 0) -> Node:
    """x[n, *in, c] with zeros up to so many channels; up to whole vectors if none are given."""
    wanted = channels or _whole(x.shape[-1], VECTOR)
    return ops.pad(x, (0,) * x.rank, (*(0,) * (x.rank - 1), wanted - x.shape[-1]))


def _whole(channels: int, vector: int) -> int:
    return -(-channels // vector) * vector


def packing(of: Convolution, dtype: DType, target: Target, beside: int = 0) -> Packing | None:
    """The layout with the least predicted time. None if none is needed, or if fetching each element
    by itself takes less time. beside: bytes that the layout would have to copy as well."""
    if of.has_vectors:
        return None
    chip, rounded = target.chip, target.rounds(True)
    rows = of.batch * math.prod(of.places)
    columns = max(of.outputs, _TILE)
    rate = chip.flops(dtype, rounded)
    instruction = 2 / chip.vector["float32"]

    def seconds(found: Packing) -> float:
        length = found.channels * dtype.itemsize
        copied = of.batch * math.prod(found.sizes) * length
        terms = math.prod(found.kernel) * found.channels
        vectors = rows * terms * dtype.itemsize // math.gcd(length, _WIDE)
        takes = max(
            2 * rows * columns * terms / rate,
            rows * terms * dtype.itemsize / chip.cache_bandwidth,
            vectors * _ISSUE * instruction,
        )
        return takes + 2 * (copied + beside + target.launch_cost) / chip.bandwidth

    best = min(_layouts(of, dtype), key=seconds, default=None)
    terms = max(math.prod(of.kernel) * of.inputs, _TILE)
    alone = rows * terms * max(GATHER * instruction, 2 * columns / rate)
    return best if best is not None and seconds(best) < alone else None


def _layouts(of: Convolution, dtype: DType) -> Iterator[Packing]:
    """The layouts that leave several taps, so that the convolution is no matrix product. Among
    equals the layout along rows comes first."""
    last = len(of.kernel) - 1
    for axis, taps in reversed(list(enumerate(of.kernel))):
        for together in range(1, taps + 1):
            if taps % together or together == math.prod(of.kernel):
                continue
            if together == 1 and axis != last:
                continue
            for vector in {VECTOR, _WIDE // dtype.itemsize}:
                yield Packing(of, axis, together, _whole(together * of.inputs, vector))


def _with(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])
