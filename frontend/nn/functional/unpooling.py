"""Unpooling, and pooling over windows that are drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import COMPLEX, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ...functions.promotion import WHOLE, refuse, to
from ...recording import record, record_fallible
from ...recording.builders import builder
from .conv import tuple_of

if TYPE_CHECKING:
    from ..._tensor import Tensor
    from .signatures import FractionalMaxPool, FractionalMaxPoolIndices, Unpool

# ---- unpooling -------------------------------------------------------------------------------


def _unpooled(x: Node, index: Node, size: tuple[int, ...]) -> Node:
    """Zeros […, *size] with x[…, *window] written at `index`, positions in `size` flattened."""
    refuse(f"max_unpool{len(size)}d", x, *WHOLE, COMPLEX)
    lead = x.shape[: x.rank - len(size)]
    count = math.prod(size)
    index = ops.checked(ops.reshape(index, (*lead, -1)), count, len(lead), "unpool")
    base = ops.expand(ops.constant(0, x.dtype), (*lead, count))
    flat = ops.put_along(base, ops.reshape(x, index.shape), index, len(lead), "set")
    return ops.reshape(flat, (*lead, *size))


def _output_size(
    name: str, input: Any, kernel: Any, stride: Any, padding: Any, wanted: Sequence[int] | None
) -> tuple[int, ...]:
    dims = len(kernel)
    spatial = input.shape[input.dim() - dims :]
    usual = tuple(
        (n - 1) * s + k - 2 * p for n, s, k, p in zip(spatial, stride, kernel, padding, strict=True)
    )
    if wanted is None:
        return usual
    size = tuple(int(s) for s in wanted)
    size = size[2:] if len(size) == dims + 2 else size
    if len(size) != dims:
        raise ValueError(
            f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it "
            f"has a length of '{len(size)}'{at_user_line()}"
        )
    for d, (u, s) in enumerate(zip(usual, stride, strict=True)):
        if not u - s < size[d] < u + s:
            raise ValueError(
                f'invalid output_size "{list(size)}" (dim {d} must be between {u - s} and {u + s})'
                f"{at_user_line()}"
            )
    return size


def _max_unpool(dims: int) -> Unpool:
    name = f"max_unpool{dims}d"
    build = builder(name, gradient=f"MaxUnpool{dims}DBackward0")(
        lambda x, index, size: _unpooled(x, index, size)
    )

    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        if indices.dtype is not int64:
            raise RuntimeError(
                f"elements in indices should be type int64 but got: {indices.dtype}{at_user_line()}"
            )
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"Input to {name} should be a {dims + 1}d or {dims + 2}d Tensor, but got a tensor "
                f"with {input.dim()} dimensions{at_user_line()}"
            )
        if input.shape != indices.shape:
            raise RuntimeError(
                f"Expected shape of indices to be: {list(input.shape)} but got: "
                f"{list(indices.shape)}{at_user_line()}"
            )
        kernel = tuple_of(kernel_size, dims)
        step = kernel if stride is None else tuple_of(stride, dims)
        pad = tuple_of(padding, dims)
        size = _output_size(name, input, kernel, step, pad, output_size)
        return record_fallible(build, input, indices, size)

    max_unpool.__name__ = max_unpool.__qualname__ = name
    max_unpool.__doc__ = (
        f"The inverse of max_pool{dims}d: zeros, with each element at its position in `indices`."
        "\n\n    output_size: the size before pooling, if the default isn't right."
    )
    return max_unpool


max_unpool1d, max_unpool2d, max_unpool3d = _max_unpool(1), _max_unpool(2), _max_unpool(3)

# ---- fractional pooling ----------------------------------------------------------------------


def _starts(u: Node, size: int, out: int, kernel: int) -> Node:
    """Where `out` windows of `kernel` begin in `size` elements: [n, c, out], for u[n, c] in [0, 1).

    Graham's pseudorandom sequence, floor(alpha (i + u)) - floor(alpha u), whose last window ends
    where the input ends.
    """
    place = ops.reshape(ops.iota(out), (1, 1, out))
    alpha = (size - kernel) / (out - 1) if out > 1 else 0.0
    u = ops.unsqueeze(u, 2)
    start = to(ops.trunc((to(place, u.dtype) + u) * alpha) - ops.trunc(u * alpha), int64)
    last = ops.expand(ops.eq(place, ops.constant(out - 1, int64)), start.shape)
    return ops.where(last, ops.full_like(start, size - kernel), start)


def _fractional_builder(dims: int) -> Callable[..., Any]:
    def build(x: Node, samples: Node, kernel: Any, out: Any, with_indices: bool) -> Any:
        alone = x.rank == dims + 1
        x = ops.unsqueeze(x, 0) if alone else x
        rows, channels, *spatial = x.shape
        samples = ops.slice_axis(samples, 0, 0, rows)
        places = []
        flat: Node | None = None
        for d in range(dims):
            k = 1 - d if dims == 2 else d  # of an image, the width comes first
            u = ops.reshape(ops.slice_axis(samples, 2, k, k + 1), (rows, channels))
            start = _starts(u, spatial[d], out[d], kernel[d])
            outer = (out[d] if i == d else 1 for i in range(dims))
            inner = (kernel[d] if i == d else 1 for i in range(dims))
            begin = ops.reshape(start, (rows, channels, *outer, *(1 for _ in range(dims))))
            offset = ops.reshape(ops.iota(kernel[d]), (*(1 for _ in range(dims + 2)), *inner))
            place = begin + offset
            places.append(place)
            flat = place if flat is None else flat * spatial[d] + place
        assert flat is not None
        ones = (1,) * (2 * dims)
        row = ops.reshape(ops.iota(rows), (rows, 1, *ones))
        channel = ops.reshape(ops.iota(channels), (1, channels, *ones))
        view = ops.gather(x, row, channel, *places, 0)
        axes = tuple(range(2 + dims, 2 + 2 * dims))
        values = ops.squeeze(ops.first_max(view, axes), axes)
        if not with_indices:
            return ops.squeeze(values, (0,)) if alone else values
        which = ops.argmax(view, axes)
        count = math.prod(kernel)
        every = ops.reshape(flat, (*values.shape, count))
        picked = ops.reshape(which, (*values.shape, 1))
        index = ops.squeeze(ops.take_along(every, picked, every.rank - 1), (every.rank - 1,))
        made = (values, index)
        return tuple(ops.squeeze(m, (0,)) for m in made) if alone else made

    return builder(f"fractional_max_pool{dims}d", gradient=f"FractionalMaxPool{dims}DBackward0")(
        build
    )


def _fractional(dims: int) -> tuple[FractionalMaxPool, FractionalMaxPoolIndices]:
    name = f"fractional_max_pool{dims}d"
    build = _fractional_builder(dims)

    def pool(
        input: Tensor,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output_size or an output_ratio"
                f"{at_user_line()}"
            )
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got: "
                f"{list(input.shape)}{at_user_line()}"
            )
        kernel = tuple_of(kernel_size, dims)
        spatial = input.shape[input.dim() - dims :]
        if output_size is None:
            given: Any = output_ratio
            ratio = (given,) * dims if isinstance(given, (int, float)) else tuple(given)
            out = tuple(int(n * r) for n, r in zip(spatial, ratio, strict=True))
        else:
            out = tuple_of(output_size, dims)
        for n, k, o in zip(spatial, kernel, out, strict=True):
            if o + k - 1 > n or k < 1 or o < 1:
                raise RuntimeError(
                    f"{name}(): pool size {k} and output size {o} don't fit into an input of size "
                    f"{n}: output + pool - 1 may be at most the input{at_user_line()}"
                )
        samples: Any = _random_samples
        if samples is None:
            from ...functions.sampling import rand

            rows = 1 if input.dim() == dims + 1 else input.shape[0]
            samples = rand(
                rows, input.shape[-dims - 1], dims, dtype=input.dtype, device=input.device
            )
        return record(build, input, samples, kernel, out, bool(return_indices))

    def with_indices(
        input: Tensor,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        return pool(input, kernel_size, output_size, output_ratio, True, _random_samples)

    pool.__name__ = pool.__qualname__ = name
    with_indices.__name__ = with_indices.__qualname__ = f"{name}_with_indices"
    pool.__doc__ = (
        f"Maxima over windows of the last {dims} dimensions, which begin at random places; Graham, "
        "arXiv 1412.6071.\n\n    output_size, or output_ratio times the input's: the number of "
        "windows. return_indices: also where\n    the maxima were, as positions in these "
        f"dimensions flattened. _random_samples[n, c, {dims}]: numbers in\n    [0, 1) that decide "
        "where windows begin."
    )
    return pool, with_indices


fractional_max_pool2d, fractional_max_pool2d_with_indices = _fractional(2)
fractional_max_pool3d, fractional_max_pool3d_with_indices = _fractional(3)
