"""Views of parts of a tensor along one dimension: slices, rows, several of them at once."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.dtype import BOOL, FLOAT, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import normalize_axis

from ..recording import Handle, cached_view, view, views
from .arguments import is_whole
from .call import public
from .spellings import also_named, by_numpys_names

if TYPE_CHECKING:
    from .._tensor import Tensor


@public("narrow")
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int | Tensor) -> Tensor:
    """`length` elements of dimension `dim` from `start` on."""
    length = operator.index(length)
    if input.dim() == 0:
        raise RuntimeError(f"narrow() cannot be applied to a 0-dim tensor.{at_user_line()}")
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative.{at_user_line()}")
    axis = normalize_axis(dim, input.dim())
    if isinstance(start, Handle) and (start.dim() or not BOOL < start.dtype.category < FLOAT):
        raise RuntimeError(f"start must be an 0-dim integral Tensor.{at_user_line()}")
    size, start = input.shape[axis], operator.index(start)
    if not -size <= start <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
            f"{at_user_line()}"
        )
    begin = start + (size if start < 0 else 0)
    if begin + length > size:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({size}){at_user_line()}"
        )
    return slice_dim(input, axis, begin, begin + length)


@cached_view
@by_numpys_names
def slice_dim(input: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    return _sliced(input, views.SLICE, axis, start, stop, step)


def _sliced(
    t: Any, kind: views.View, axis: int, start: int, stop: int, step: int = 1, *more: Any
) -> Any:
    shape = t.shape
    starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return view(t, kind, tuple(starts), tuple(stops), tuple(steps), *more)


@public("select")
@cached_view
@by_numpys_names
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Element `index` of dimension `dim`, which is dropped."""
    if input.dim() == 0:
        raise IndexError(f"select() cannot be applied to a 0-dim tensor.{at_user_line()}")
    axis = normalize_axis(dim, input.dim())
    size = input.shape[axis]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at "
            f"dimension {axis}{at_user_line()}"
        )
    return _row(input, views.SELECT, axis, index % size)


def _row(t: Any, kind: views.View, axis: int, at: int) -> Any:
    shape = t.shape
    rank = len(shape)
    starts, stops, steps = [0] * rank, list(shape), (1,) * rank
    starts[axis], stops[axis] = at, at + 1
    kept = (*range(axis), *range(axis + 1, rank))
    return view(t, kind, tuple(starts), tuple(stops), steps, kept)


Bounds = tuple[int | None, int | None, int | None]


def part_of(t: Any, key: Sequence[int | Bounds]) -> Any:
    """The view that drops a dimension for each int, and takes a slice (start, stop, step) of each
    other one; `t` itself if that is all of it. The key has an entry for each dimension."""
    shape = t.shape
    starts, stops, steps, kept = [], [], [], []
    for axis, (each, size) in enumerate(zip(key, shape, strict=True)):
        if isinstance(each, int):
            if not -size <= each < size:
                raise IndexError(
                    f"index {each} is out of bounds for dimension {axis} with size {size}"
                    f"{at_user_line()}"
                )
            start = stop = each % size
            stop, step = stop + 1, 1
        else:
            start, stop, step = bounds(each, size)
            kept.append(axis)
        starts.append(start)
        stops.append(stop)
        steps.append(step)
    place = tuple(starts), tuple(stops), tuple(steps)
    if len(kept) < len(shape):
        last = next(each for each in reversed(key) if each != _ALL)
        kind = views.SELECT if type(last) is int else views.SLICE
        return view(t, kind, *place, tuple(kept))
    is_whole = not any(starts) and stops == list(shape) and max(steps, default=1) == 1
    return t if is_whole else view(t, views.SLICE, *place)


_ALL: Bounds = (None, None, None)


def bounds(part: Bounds, size: int) -> tuple[int, int, int]:
    """The start, stop and step of a slice of a dimension of `size`."""
    if part[2] is not None and part[2] <= 0:
        raise ValueError(f"step must be greater than zero{at_user_line()}")
    start, stop, step = slice(*part).indices(size)
    return start, max(start, stop), step


@public("unbind")
@cached_view
@by_numpys_names
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`."""
    if input.dim() == 0:
        raise IndexError(
            f"Dimension specified as {dim} but tensor has no dimensions{at_user_line()}"
        )
    axis = normalize_axis(dim, input.dim())
    return tuple(_row(input, views.UNBIND, axis, i) for i in range(input.shape[axis]))


@public("split")
@cached_view
@also_named(tensor="input", split_size="split_size_or_sections")
def split(
    input: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Views of the given size(s) along `dim`."""
    if not isinstance(split_size_or_sections, int):
        if is_whole(split_size_or_sections):
            return split(input, int(split_size_or_sections), dim)  # type: ignore[arg-type, call-overload]
        return split_with_sizes(input, split_size_or_sections, dim)
    return _parts(input, views.SPLIT, *_even(input, split_size_or_sections, dim))


def _even(t: Any, step: int, dim: int) -> tuple[int, list[int]]:
    """The axis, and the lengths of parts of `step` elements along it."""
    axis = _axis_of("split", t, dim)
    size = t.shape[axis]
    if step < 0:
        raise RuntimeError(
            f"split expects split_size be non-negative, but got split_size={step}{at_user_line()}"
        )
    if step == 0 and size:
        raise RuntimeError(
            "split_size can only be 0 if dimension size is 0, but got dimension size of "
            f"{size}{at_user_line()}"
        )
    return axis, [min(step, size - a) for a in range(0, size, step)] if size else [0]


@public("split_with_sizes")
@cached_view
@by_numpys_names
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of these sizes along `dim`."""
    axis = _axis_of("split_with_sizes", input, dim)
    size, lengths = input.shape[axis], [int(s) for s in split_sizes]
    if sum(lengths) != size or min(lengths, default=0) < 0:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's "
            f"size at dimension {axis}), but got split_sizes={lengths}{at_user_line()}"
        )
    return _parts(input, views.SPLIT_WITH_SIZES, axis, lengths)


def _axis_of(name: str, t: Any, dim: int) -> int:
    if t.dim() == 0:
        raise RuntimeError(f"{name} expects at least a 1-dimensional tensor{at_user_line()}")
    return normalize_axis(dim, t.dim())


def _parts(t: Any, kind: views.View, axis: int, lengths: Sequence[int]) -> tuple[Any, ...]:
    """Views of these sizes, one after another."""
    bounds = itertools.pairwise(itertools.accumulate(lengths, initial=0))
    more = (None, (axis, tuple(lengths))) if kind.multiple else ()
    return tuple(_sliced(t, kind, axis, start, stop, 1, *more) for start, stop in bounds)


@public("chunk")
@cached_view
@by_numpys_names
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size along `dim`; the last may be smaller. A dimension of
    size 0 gives `chunks` views."""
    axis, lengths = _nearly_even(input, chunks, dim)
    kind = views.SPLIT if input.shape[axis] else views.SPLIT_WITH_SIZES
    return _parts(input, kind, axis, lengths)


def _nearly_even(t: Any, chunks: int, dim: int) -> tuple[int, list[int]]:
    """The axis, and the lengths of at most `chunks` parts along it."""
    axis, chunks = _axis_of("chunk", t, dim), operator.index(chunks)
    if chunks <= 0:
        raise RuntimeError(
            f"chunk expects `chunks` to be greater than 0, got: {chunks}{at_user_line()}"
        )
    size = t.shape[axis]
    return _even(t, -(-size // chunks), axis) if size else (axis, [0] * chunks)


@public("tensor_split")
@cached_view
@by_numpys_names
@also_named(
    sections="indices_or_sections",
    indices="indices_or_sections",
    tensor_indices_or_sections="indices_or_sections",
)
def tensor_split(
    input: Tensor, indices_or_sections: int | Sequence[int] | Tensor, dim: int = 0
) -> tuple[Tensor, ...]:
    """Views between the given indices along `dim`, or a given number of views of nearly one size.

    A tensor of integers may give the indices or the number.
    """
    if isinstance(indices_or_sections, Handle):
        at: Any = indices_or_sections
        if at.dtype is not int64:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                f"{at.dtype.kind}{at_user_line()}"
            )
        if at.dim() > 1:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                f"one-dimensional tensor, but got a tensor with {at.dim()} dims{at_user_line()}"
            )
        indices_or_sections = at.tolist()
    if input.dim() == 0:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
            f"{at_user_line()}"
        )
    axis = normalize_axis(dim, input.dim())
    size = input.shape[axis]
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {n}{at_user_line()}")
        base, extra = divmod(size, n)
        return _parts(input, views.SLICE, axis, [base + (i < extra) for i in range(n)])
    bounds = [0, *[min(max(b + size if b < 0 else b, 0), size) for b in indices_or_sections], size]
    return tuple(slice_dim(input, axis, a, max(a, b)) for a, b in itertools.pairwise(bounds))


@public("unsafe_split")
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`split` into parts that may be written to in place where a gradient is at stake."""
    return _parts(input, views.SLICE, *_even(input, split_size, dim))


@public("unsafe_split_with_sizes")
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """`split_with_sizes` into parts that may be written to in place where a gradient is at
    stake."""
    lengths = [int(s) for s in split_sizes]
    split_with_sizes(input, lengths, dim)  # its checks
    return _parts(input, views.SLICE, _axis_of("split_with_sizes", input, dim), lengths)


@public("unsafe_chunk")
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk` into parts that may be written to in place where a gradient is at stake."""
    return _parts(input, views.SLICE, *_nearly_even(input, chunks, dim))
