"""Pooling over the last one, two or three dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import require_positive

from ...functions.arguments import is_whole
from ...functions.call import public
from ...functions.promotion import WHOLE, refuse
from ...functions.spellings import by_numpys_names
from ...recording import record
from ...recording.builders import FLOAT32, Casts, builder
from .conv import tuple_of

if TYPE_CHECKING:
    from ..._tensor import Tensor
    from .signatures import AdaptiveAveragePool, AdaptiveMaxPool, AveragePool, MaxPool, NormPool


def _casts(dims: int) -> Casts:
    """Autocast's class: on the CPU PyTorch pools volumes in float32."""
    return {"cpu": FLOAT32} if dims == 3 else None


def _check(name: str, dims: int, x: Node) -> None:
    if x.rank not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D or {dims + 2}D input to {name}, but got input of size "
            f"{list(x.shape)}{at_user_line()}"
        )
    if 0 in x.shape[x.rank - dims - 1 :]:
        raise RuntimeError(
            f"{name}: only the batch may be empty, got an input of size {list(x.shape)}"
            f"{at_user_line()}"
        )


def _padding(
    name: str, x: Node, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[tuple[int, int], ...]:
    dims = len(kernel)
    _check(name, dims, x)
    require_positive(name, kernel_size=kernel, stride=stride, dilation=dilation)
    for k, p in zip(kernel, padding, strict=True):
        if p < 0 or p > k // 2:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, "
                f"kernel_size={k}{at_user_line()}"
            )
    each = zip(x.shape[x.rank - dims :], kernel, stride, padding, dilation, strict=True)
    return tuple(ops.pool_padding(*one, ceil_mode) for one in each)


def _max_builder(dims: int) -> Callable[..., Any]:
    name = f"max_pool{dims}d"

    def build(x: Node, kernel: Any, stride: Any, padding: Any, *rest: Any) -> Any:
        dilation, ceil_mode, with_indices = rest
        pairs = _padding(name, x, kernel, stride, padding, dilation, ceil_mode)
        refuse(name, x, BOOL)
        values = ops.max_pool(x, kernel, stride, pairs, dilation)
        if not with_indices:
            return values
        return values, ops.max_pool_indices(x, kernel, stride, pairs, dilation)

    return builder(name, casts=_casts(dims), gradient=_pool_name("MaxPool", "WithIndices", dims))(
        build
    )


def _pool_name(kind: str, ending: str, dims: int) -> str:
    """PyTorch pools one dimension as an image of one row."""
    return "SqueezeBackward1" if dims == 1 else f"{kind}{dims}D{ending}Backward0"


def _max_pool(dims: int) -> MaxPool:
    build = _max_builder(dims)

    def max_pool(
        input: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        kernel = tuple_of(kernel_size, dims)
        return record(
            build,
            input,
            kernel,
            kernel if stride is None or stride in ([], ()) else tuple_of(stride, dims),
            tuple_of(padding, dims),
            tuple_of(dilation, dims),
            bool(ceil_mode),
            bool(return_indices),
        )

    name = max_pool.__name__ = max_pool.__qualname__ = f"max_pool{dims}d"
    max_pool.__doc__ = (
        f"The largest element of each window of the last {dims} dimensions.\n\n    return_indices: "
        "also where it was, as a position in these dimensions flattened."
    )
    return public(name, build, method=False)(max_pool)


max_pool1d, max_pool2d, max_pool3d = _max_pool(1), _max_pool(2), _max_pool(3)


def _max_pool_with_indices(dims: int) -> Callable[..., tuple[Tensor, Tensor]]:
    pool = (max_pool1d, max_pool2d, max_pool3d)[dims - 1]

    def with_indices(
        input: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        return pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)

    name = with_indices.__name__ = with_indices.__qualname__ = f"max_pool{dims}d_with_indices"
    with_indices.__doc__ = f"max_pool{dims}d with return_indices=True."
    return public(name, method=False)(with_indices) if dims == 1 else with_indices


max_pool1d_with_indices, max_pool2d_with_indices = (
    _max_pool_with_indices(1),
    _max_pool_with_indices(2),
)
max_pool3d_with_indices = _max_pool_with_indices(3)


def _whole_means(
    x: Node, kernel: Any, stride: Any, pairs: Any, counted: tuple[int, ...], divisor: int
) -> Node:
    """The means of windows of whole numbers, without their fractions. counted: how much of the
    padding counts. divisor: what to divide by; 0 for the number of elements."""
    dims = len(kernel)
    first = x.rank - dims
    low, high = ([0] * first + [pair[i] for pair in pairs] for i in (0, 1))
    axes = tuple(range(first, x.rank))
    windows = ops.windows(ops.pad(x, low, high), axes, kernel, stride, (1,) * dims)
    inner = tuple(range(x.rank, x.rank + dims))
    total = ops.squeeze(ops.sum(windows, inner), inner)
    count = ops.full_like(total, divisor or 1)
    for axis, k, s, p in zip(axes, kernel, stride, counted) if not divisor else ():
        begin = ops.iota(total.shape[axis]) * s - low[axis]
        end = ops.minimum(begin + k, ops.full_like(begin, x.shape[axis] + p))
        along = end - ops.maximum(begin, ops.full_like(begin, -p))
        count = count * ops.reshape(along, [-1 if a == axis else 1 for a in range(x.rank)])
    size = ops.floor_divide(ops.abs(total), ops.abs(count))
    return ops.where(ops.ne(total < 0, count < 0), -size, size)


def _avg_builder(dims: int) -> Callable[..., Node]:
    name = f"avg_pool{dims}d"

    def build(x: Node, kernel: Any, stride: Any, padding: Any, *rest: Any) -> Node:
        ceil_mode, count_include_pad, divisor = rest
        pairs = _padding(name, x, kernel, stride, padding, (1,) * dims, ceil_mode)
        if x.dtype is int64:
            counted = padding if count_include_pad else (0,) * dims
            return _whole_means(x, kernel, stride, pairs, counted, divisor)
        return ops.avg_pool(x, kernel, stride, pairs, count_include_pad, divisor)

    return builder(name, casts=_casts(dims), gradient=_pool_name("AvgPool", "", dims))(build)


def _avg_pool(dims: int) -> AveragePool:
    build = _avg_builder(dims)

    def avg_pool(
        input: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        if divisor_override == 0:
            raise RuntimeError(f"divisor must be not zero{at_user_line()}")
        kernel = tuple_of(kernel_size, dims)
        return record(
            build,
            input,
            kernel,
            kernel if stride is None or stride in ([], ()) else tuple_of(stride, dims),
            tuple_of(padding, dims),
            bool(ceil_mode),
            bool(count_include_pad),
            divisor_override or 0,
        )

    name = avg_pool.__name__ = avg_pool.__qualname__ = f"avg_pool{dims}d"
    avg_pool.__doc__ = f"The mean of each window of the last {dims} dimensions."
    # PyTorch has the others in nn.functional only.
    declare = public(name, build, method=False) if dims == 1 else by_numpys_names
    return declare(avg_pool)


avg_pool1d, avg_pool2d, avg_pool3d = _avg_pool(1), _avg_pool(2), _avg_pool(3)


def _lp_pool(dims: int) -> NormPool:
    pool = (avg_pool1d, avg_pool2d, avg_pool3d)[dims - 1]

    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        total = pool(input**norm_type, kernel_size, stride, 0, ceil_mode)
        count = math.prod(tuple_of(kernel_size, dims))
        return (total.sign() * total.abs().relu() * count) ** (1 / norm_type)

    lp_pool.__name__ = lp_pool.__qualname__ = f"lp_pool{dims}d"
    lp_pool.__doc__ = f"The p-norm of each window of the last {dims} dimensions."
    return lp_pool


lp_pool1d, lp_pool2d, lp_pool3d = _lp_pool(1), _lp_pool(2), _lp_pool(3)


def _adaptive_builder(name: str, dims: int, op: Any, indices: Any) -> Callable[..., Any]:
    def build(x: Node, output_size: Any, with_indices: bool) -> Any:
        _check(name, dims, x)
        sizes = tuple(
            s if o is None else o
            for s, o in zip(x.shape[x.rank - dims :], output_size, strict=True)
        )
        if min(sizes) < 0:
            raise RuntimeError(
                f"{name}: elements of output_size must be greater than or equal to 0 but received "
                f"{list(sizes)}{at_user_line()}"
            )
        refuse(name, x, *WHOLE)
        values = op(x, sizes)
        return (values, indices(x, sizes)) if with_indices else values

    is_mean = op is ops.adaptive_avg_pool
    kind = _pool_name("AdaptiveAvgPool" if is_mean else "AdaptiveMaxPool", "", dims)

    def gradient(args: Any) -> str:
        whole = is_mean and dims > 1 and set(args[1]) == {1}
        return "MeanBackward1" if whole else kind

    return builder(name, casts=_casts(dims) if is_mean else None, gradient=gradient)(build)


def _output_size(value: Any, dims: int) -> tuple[int | None, ...]:
    if value is None or isinstance(value, int):
        return (value,) * dims
    if is_whole(value):
        return (int(value),) * dims
    out = tuple(None if v is None else int(v) for v in value)
    if len(out) != dims:
        raise RuntimeError(f"output_size must have {dims} entries, got {out}{at_user_line()}")
    return out


def _with_indices(pool: AdaptiveMaxPool) -> Callable[..., tuple[Tensor, Tensor]]:
    """The function torch.x of a maximum pool, which always returns the positions too."""

    def function(
        input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
    ) -> tuple[Tensor, Tensor]:
        return pool(input, output_size, return_indices=True)

    return function


@overload
def _adaptive(kind: Literal["avg"], dims: int) -> AdaptiveAveragePool: ...


@overload
def _adaptive(kind: Literal["max"], dims: int) -> AdaptiveMaxPool: ...


def _adaptive(kind: str, dims: int) -> Callable[..., Any]:
    op = ops.adaptive_avg_pool if kind == "avg" else ops.adaptive_max_pool
    name = f"adaptive_{kind}_pool{dims}d"
    build = _adaptive_builder(name, dims, op, ops.adaptive_max_pool_indices)

    def pool(
        input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
    ) -> Any:
        sizes = _output_size(output_size, dims)
        if dims > 1 and input.dim() <= dims and isinstance(output_size, Sequence):
            raise ValueError(f"Input dimension should be at least {dims + 1}{at_user_line()}")
        return record(build, input, sizes, bool(return_indices))

    pool.__name__ = pool.__qualname__ = name
    what = "Means" if kind == "avg" else "Maxima"
    pool.__doc__ = f"{what} of windows such that `output_size` of them cover the input."
    if dims == 1 and kind == "avg":
        return public(name, build, method=False)(pool)
    if dims == 1:
        public(name, build, method=False)(_with_indices(pool))
    return pool


adaptive_avg_pool1d, adaptive_avg_pool2d = _adaptive("avg", 1), _adaptive("avg", 2)
adaptive_avg_pool3d = _adaptive("avg", 3)
adaptive_max_pool1d, adaptive_max_pool2d = _adaptive("max", 1), _adaptive("max", 2)
adaptive_max_pool3d = _adaptive("max", 3)
adaptive_max_pool1d_with_indices = _with_indices(adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(adaptive_max_pool3d)
