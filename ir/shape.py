"""Shapes, and the rules by which they combine."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np

from .location import at_user_line

Ints = Sequence[int]
"""One number for each dimension."""
Pairs = Sequence[tuple[int, int]]
"""(front, back): two numbers for each dimension."""


_item: Any = tuple.__getitem__
_tuple: Any = tuple.__new__


class Size(tuple[int, ...]):
    """A shape: a tuple of ints with PyTorch's name and repr. So are its parts and sums.

    What has a whole number, as a tensor with one, becomes that number. TypeError for anything else.
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[SupportsIndex] = ()) -> Size:
        made: Size = _tuple(cls, sizes)
        for each in made:
            if type(each) is not int:
                made = _tuple(cls, map(_whole, enumerate(made)))
                break
        return made

    def numel(self) -> int:
        return math.prod(self)

    @overload
    def __getitem__(self, place: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Size: ...
    def __getitem__(self, place: SupportsIndex | slice) -> int | Size:
        part: int | Size = _item(self, place)
        return shape_of(part) if type(part) is tuple else part

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other))

    def __mul__(self, times: Any) -> Any:
        return _tuple(Size, tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"


shape_of: Callable[[Iterable[int]], Size] = functools.partial(_tuple, Size)
"""A shape of what are ints for sure. It looks at none of them, so calls may make it."""


def _whole(numbered: tuple[int, Any]) -> int:
    place, size = numbered
    if isinstance(size, (int, np.integer)) and size is not True and size is not False:
        return size  # type: ignore[return-value]
    try:
        return operator.index(size)
    except TypeError:
        raise TypeError(
            "torch.Size() takes an iterable of 'int' "
            f"(item {place} is '{type(size).__name__}'){at_user_line()}"
        ) from None


def check_storage(shape: Sequence[int], itemsize: int) -> None:
    """RuntimeError for a shape whose size in bytes is no int64."""
    if math.prod(shape) * itemsize >= 1 << 63:
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(shape)}{at_user_line()}"
        )


def broadcast(*shapes: Sequence[int]) -> Size:
    """The common shape of `shapes` by NumPy's rules; RuntimeError if there is none."""
    if len(shapes) == 2:
        a, b = shapes
        if a == b or not b:
            return a if type(a) is Size else shape_of(a)
        if not a:
            return b if type(b) is Size else shape_of(b)
    rank = max(map(len, shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if size == 1 or size == out[i]:
                continue
            if out[i] != 1:
                listed = " and ".join(str(tuple(s)) for s in shapes)
                raise RuntimeError(
                    f"The size of tensor a ({out[i]}) must match the size of tensor b ({size}) at "
                    f"non-singleton dimension {i}: shapes {listed} don't broadcast{at_user_line()}"
                )
            out[i] = size
    return shape_of(out)


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front; IndexError if it is out of range."""
    bound = max(rank, 1)
    if not -bound <= axis < bound:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {axis}){at_user_line()}"
        )
    return axis % bound


def normalize_axes(axes: int | Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted axes counted from the front; None is every axis."""
    if axes is None:
        return tuple(range(rank))
    listed = (axes,) if isinstance(axes, int) else tuple(axes)
    out = sorted(normalize_axis(int(a), rank) for a in listed)
    if len(set(out)) != len(out):
        raise RuntimeError(f"an axis appears twice in {listed}{at_user_line()}")
    return tuple(out) if rank else ()


def infer_reshape(shape: Sequence[int], target: Sequence[int]) -> Size:
    """`target` with its -1 filled in; RuntimeError if it doesn't hold `shape`'s elements."""
    count, known, at = math.prod(shape), 1, -1
    sizes = [int(s) for s in target]
    for i, each in enumerate(sizes):
        if each >= 0:
            known *= each
        elif each == -1 and at < 0:
            at = i
        else:
            raise RuntimeError(
                f"invalid shape {tuple(sizes)}: only one size may be -1{at_user_line()}"
            )
    if at >= 0 and known and count % known == 0:
        sizes[at] = count // known
    elif at >= 0 or known != count:
        raise RuntimeError(
            f"shape {tuple(sizes)} is invalid for input of size {count} "
            f"(shape {tuple(shape)}){at_user_line()}"
        )
    return shape_of(sizes)


def require_positive(name: str, **numbers: Sequence[int]) -> None:
    """RuntimeError for a stride or a dilation of windows that isn't larger than zero."""
    for what, values in numbers.items():
        if any(v <= 0 for v in values):
            raise RuntimeError(
                f"{name}: {what} should be greater than zero, but got {list(values)}"
                f"{at_user_line()}"
            )


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    shape = tuple(shape)  # a Size is slower
    strides = [1] * len(shape)
    step = 1
    for i in range(len(shape) - 1, 0, -1):
        step *= shape[i] or 1
        strides[i - 1] = step
    return tuple(strides)


def reshape_strides(
    shape: Sequence[int], strides: Sequence[int], target: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides by which memory of (shape, strides) is viewed as `target`; None if it can't be.

    A dimension of size 1 gets the stride that it would have with a larger size, as in PyTorch.
    """
    if strides == contiguous_strides(shape):
        return contiguous_strides(target)
    return _reshape_strides(tuple(shape), tuple(strides), tuple(target))


@functools.lru_cache(1024)
def _reshape_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...] | None:
    if math.prod(target) == 0:
        return strides if shape == target else contiguous_strides(target)
    # Runs of source dimensions that lie contiguously in memory, from the last one: [elements,
    # innermost stride].
    runs = [[1, strides[-1] if strides else 1]]
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1 or stride == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= size
        else:
            runs.append([size, stride])
    out: list[int] = []
    run, taken = 0, 1
    for size in reversed(target):
        if size != 1 and taken == runs[run][0]:
            run, taken = run + 1, 1
        out.append(taken * runs[run][1])
        taken *= size
        if runs[run][0] % taken:
            return None
    return tuple(reversed(out))
