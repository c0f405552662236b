"""The `meta` device: tensors with a shape and a dtype, and no memory. Nothing is computed on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.codegen.target import NUMPY
from tilewright.ir.dtype import DType, from_numpy

from .device import Device

NAME = "meta"


class Absent:
    """Stands for a buffer of this shape and dtype."""

    __slots__ = ("dtype", "shape")
    nbytes = 0

    def __init__(self, shape: Sequence[int], dtype: DType):
        self.shape, self.dtype = tuple(shape), dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class MetaDevice(Device):
    """No memory: buffers are shapes."""

    name = NAME
    target = NUMPY

    def empty(self, shape: Sequence[int], dtype: DType) -> Absent:
        return Absent(shape, dtype)

    def from_numpy(self, array: np.ndarray) -> Absent:
        return Absent(array.shape, from_numpy(array.dtype))

    def copied(self, buffer: Any, source: Device) -> Absent:
        return Absent(buffer.shape, from_numpy(buffer.dtype))

    def part(self, buffer: Any, start: int, shape: Sequence[int]) -> Absent:
        return Absent(shape, buffer.dtype)

    def rows(self, buffer: Any, count: int, start: int = 0, stop: int | None = None) -> Any:
        size = (math.prod(buffer.shape) if stop is None else stop) - start
        return [Absent((size // count,), buffer.dtype)] * count

    def to_numpy(self, buffer: Any) -> NoReturn:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def arena(self, size: int) -> NoReturn:
        raise NotImplementedError("nothing is computed on the meta device")

    def view(self, arena: Any, offset: int, shape: Sequence[int], dtype: DType) -> NoReturn:
        raise NotImplementedError("nothing is computed on the meta device")

    def compile(self, kernel: Any) -> NoReturn:
        raise NotImplementedError("nothing is computed on the meta device")
