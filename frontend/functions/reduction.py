"""Reductions, with PyTorch's signatures: dim (one, several or all), keepdim, dtype."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axes, normalize_axis

from .. import return_types
from ..recording import Handle, record
from ..recording.builders import FLOAT32, builder
from .arguments import into, truth
from .call import public
from .elementwise import ON_A_GPU, maximum, minimum
from .promotion import floating, promoted, refuse, to

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..return_types import Bounds, Indexed

Dim = int | Sequence[int] | None


def axes_of(x: Node, dim: Dim) -> tuple[int, ...]:
    if isinstance(dim, (tuple, list)) and len(dim) == 0:
        dim = None
    return normalize_axes(dim, x.rank)


def finish(result: Node, axes: tuple[int, ...], keepdim: bool) -> Node:
    return result if keepdim else ops.squeeze(result, axes)


def hashable(dim: Dim) -> Any:
    if dim is None or isinstance(dim, int):
        return dim
    return operator.index(dim) if hasattr(dim, "__index__") else tuple(map(operator.index, dim))


def need_float(name: str, x: Node) -> None:
    if not x.dtype.is_differentiable:
        raise RuntimeError(
            f"{name}: expected a floating point tensor, got {x.dtype}{at_user_line()}"
        )


def _by_dim(name: str) -> Callable[[Sequence[Any]], str]:
    """PyTorch numbers the forms of a reduction: over everything, or over `dim`."""
    return lambda args: f"{name}Backward{int(args[1] is not None)}"


def _sum(x: Node, dim: Dim, keepdim: bool, dtype: DType | None) -> Node:
    if dtype is None:
        dtype = x.dtype if x.dtype.is_differentiable else dtypes.int64
    axes = axes_of(x, dim)
    return finish(ops.sum(to(x, dtype), axes), axes, keepdim)


def _written_to(out: Tensor | None, dtype: DType | None) -> DType | None:
    """The dtype in which a fold is made that is written to `out`."""
    return out.dtype if dtype is None and out is not None else dtype


@public("sum", _sum, casts=ON_A_GPU, gradient=_by_dim("Sum"))
def sum(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Sum over `dim` (all by default). Integers and bools are summed as int64."""
    dtype = _written_to(out, dtype)
    return into(out, record(_sum, input, hashable(dim), bool(keepdim), dtype))


def _prod(x: Node, dim: Dim, keepdim: bool, dtype: DType | None) -> Node:
    if dtype is None:
        dtype = x.dtype if x.dtype.is_differentiable else dtypes.int64
    axes = axes_of(x, dim)
    return finish(ops.prod(to(x, dtype), axes), axes, keepdim)


@public("prod", _prod, casts=FLOAT32, gradient=_by_dim("Prod"))
def prod(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Product over `dim` (all by default). Integers and bools are multiplied as int64."""
    dtype = _written_to(out, dtype)
    return into(out, record(_prod, input, hashable(dim), bool(keepdim), dtype))


def _mean(x: Node, dim: Dim, keepdim: bool, dtype: DType | None) -> Node:
    if dtype is not None:
        x = to(x, dtype)
    if not x.dtype.is_differentiable:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {x.dtype}{at_user_line()}"
        )
    axes = axes_of(x, dim)
    return finish(ops.mean(x, axes), axes, keepdim)


@public("mean", _mean, gradient=_by_dim("Mean"))
def mean(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Arithmetic mean over `dim` (all by default)."""
    return into(out, record(_mean, input, hashable(dim), bool(keepdim), dtype))


def _extrema_of(name: str, x: Node, dim: Dim) -> tuple[int, ...]:
    """The dimensions to reduce, which have elements."""
    refuse("max_values_cpu" if name == "amax" else "min_values_cpu", x, dtypes.COMPLEX)
    axes = axes_of(x, dim)
    for axis in axes:
        if not x.shape[axis]:
            raise IndexError(
                f"{name}(): Expected reduction dim {axis} to have non-zero size.{at_user_line()}"
            )
    return axes


def _amax(x: Node, dim: Dim, keepdim: bool) -> Node:
    axes = _extrema_of("amax", x, dim)
    return finish(ops.max(x, axes), axes, keepdim)


def _amin(x: Node, dim: Dim, keepdim: bool) -> Node:
    axes = _extrema_of("amin", x, dim)
    return finish(ops.min(x, axes), axes, keepdim)


@public("amax", _amax)
def amax(
    input: Tensor, dim: Dim = (), keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Largest element over `dim`; ties share the gradient evenly."""
    if dim is None or dim == ():
        _some("amax", input)
    return into(out, record(_amax, input, hashable(dim), bool(keepdim)), cast=False)


@public("amin", _amin)
def amin(
    input: Tensor, dim: Dim = (), keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Smallest element over `dim`; ties share the gradient evenly."""
    if dim is None or dim == ():
        _some("amin", input)
    return into(out, record(_amin, input, hashable(dim), bool(keepdim)), cast=False)


def _arg(op: Any) -> Any:
    def build(x: Node, dim: int | None, keepdim: bool) -> Node:
        axes = axes_of(x, dim)
        if x.dtype is dtypes.bool_:
            raise RuntimeError(f"argmax and argmin do not support bool tensors{at_user_line()}")
        refuse(op.name, x, dtypes.COMPLEX)
        if not x.rank:
            return ops.constant(0, dtypes.int64, x.device)
        return finish(op(x, axes), axes, keepdim)

    return build


_argmax, _argmin = _arg(ops.argmax), _arg(ops.argmin)


@public("argmax", _argmax)
def argmax(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Position of the first largest element, along `dim` or in the flattened input."""
    return into(
        out,
        record(_argmax, input, None if dim is None else operator.index(dim), bool(keepdim)),
        cast=False,
    )


@public("argmin", _argmin)
def argmin(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Position of the first smallest element, along `dim` or in the flattened input."""
    return into(
        out,
        record(_argmin, input, None if dim is None else operator.index(dim), bool(keepdim)),
        cast=False,
    )


def _extremum_along(arg: Any) -> Any:
    def build(x: Node, dim: int, keepdim: bool) -> tuple[Node, Node]:
        axis = normalize_axis(dim, x.rank)
        key = to(x, dtypes.uint8) if x.dtype is dtypes.bool_ else x
        index = arg(key, axis, True)
        values = ops.take_along(x, index, axis) if x.rank else x
        axes = (axis,) if x.rank else ()
        return finish(values, axes, keepdim), finish(index, axes, keepdim)

    return build


_max_along, _min_along = _extremum_along(_argmax), _extremum_along(_argmin)


def _some(name: str, input: Any) -> Any:
    if isinstance(input, Handle) and 0 in input.shape:  # type: ignore[attr-defined]
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
            f"reduction dim with the 'dim' argument.{at_user_line()}"
        )
    return input


@builder("max", gradient="MaxBackward1")
def _greatest(x: Node) -> Node:
    return _amax(x, None, False)


@builder("min", gradient="MinBackward1")
def _least(x: Node) -> Node:
    return _amin(x, None, False)


@overload
def max(input: Tensor) -> Tensor: ...


@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> Indexed: ...


@overload
def max(input: Tensor, dim: Tensor, /) -> Tensor: ...


@overload
def max(input: Tensor, *, other: Tensor) -> Tensor: ...


@public("max", _max_along)
def max(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    out: Any = None,
) -> Any:
    """max(x): the largest element. max(x, dim): (values, indices). max(x, y): elementwise."""
    if isinstance(dim, Handle) or other is not None:
        return into(out, maximum(input, dim if other is None else other))  # type: ignore[arg-type]
    if dim is None:
        return into(out, record(_greatest, _some("max", input)))
    return into(
        out, return_types.max(*record(_max_along, input, operator.index(dim), bool(keepdim)))
    )


@overload
def min(input: Tensor) -> Tensor: ...


@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> Indexed: ...


@overload
def min(input: Tensor, dim: Tensor, /) -> Tensor: ...


@overload
def min(input: Tensor, *, other: Tensor) -> Tensor: ...


@public("min", _min_along)
def min(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    out: Any = None,
) -> Any:
    """min(x): the smallest element. min(x, dim): (values, indices). min(x, y): elementwise."""
    if isinstance(dim, Handle) or other is not None:
        return into(out, minimum(input, dim if other is None else other))  # type: ignore[arg-type]
    if dim is None:
        return into(out, record(_least, _some("min", input)))
    return into(
        out, return_types.min(*record(_min_along, input, operator.index(dim), bool(keepdim)))
    )


def _aminmax(x: Node, dim: Dim, keepdim: bool) -> tuple[Node, Node]:
    if not x.shape.numel() and dim == ():
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
            f"identity.{at_user_line()}"
        )
    return _amin(x, dim, keepdim), _amax(x, dim, keepdim)


@public("aminmax", _aminmax)
def aminmax(
    input: Tensor,
    *,
    dim: int | None = None,
    keepdim: bool = False,
    out: Sequence[Tensor] | None = None,
) -> Bounds:
    return into(
        out,
        return_types.aminmax(
            *record(_aminmax, input, () if dim is None else hashable(dim), bool(keepdim))
        ),
        cast=False,
    )


def _truth_over(fold: Any) -> Any:
    def build(x: Node, dim: Dim, keepdim: bool) -> Node:
        if dim == ():  # elsewhere this means all dimensions
            result = truth(x)
        else:
            axes = axes_of(x, dim)
            result = finish(fold(truth(x), axes), axes, keepdim)
        return to(result, dtypes.uint8) if x.dtype is dtypes.uint8 else result

    return build


_any, _all = _truth_over(ops.any), _truth_over(ops.all)


@public("any", _any)
def any(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Whether some element over `dim` is nonzero."""
    return into(
        out,
        record(_any, input, hashable(dim), bool(keepdim)),
        cast=out is not None and out.dtype is dtypes.uint8,
    )


@public("all", _all)
def all(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Whether every element over `dim` is nonzero."""
    return into(
        out,
        record(_all, input, hashable(dim), bool(keepdim)),
        cast=out is not None and out.dtype is dtypes.uint8,
    )


def _logsumexp(x: Node, dim: Dim, keepdim: bool) -> Node:
    x = floating(x)
    axes = axes_of(x, dim)
    if x.dtype.is_complex:  # of a shift by the largest real part
        top = ops.detach(ops.max(ops.real(x), axes))
        top = to(ops.where(ops.isfinite(top), top, ops.full_like(top, 0)), x.dtype)
        total = ops.log(ops.sum(ops.exp(x - top), axes)) + top
        return finish(total, axes, keepdim)
    return finish(ops.logsumexp(x, axes), axes, keepdim)


@public("logsumexp", _logsumexp, casts=ON_A_GPU)
def logsumexp(
    input: Tensor, dim: Dim, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow."""
    return into(out, record(_logsumexp, input, hashable(dim), bool(keepdim)))


def _norm(x: Node, p: float, dim: Dim, keepdim: bool) -> Node:
    need_float("norm", x)
    axes = axes_of(x, dim)
    if x.dtype.is_complex:
        if p == 2:  # without a root in between
            a, b = ops.real(x), ops.imag(x)
            total = finish(ops.sum(a * a + b * b, axes), axes, keepdim)
            return ops.root(total)
        x = ops.modulus(x)
    if p == math.inf:
        result = ops.max(ops.abs(x), axes)
    elif p == -math.inf:
        result = ops.min(ops.abs(x), axes)
    elif p == 0:
        result = ops.sum(ops.flat_in(x, to(truth(x), x.dtype)), axes)
    elif p == 1:
        result = ops.sum(ops.abs(x), axes)
    elif p == 2:
        result = ops.root(ops.sum(x * x, axes))
    else:
        result = _general_norm(ops.abs(x), p, axes)
    return finish(result, axes, keepdim)


def _general_norm(size: Node, p: float, axes: tuple[int, ...]) -> Node:
    """The norm of magnitudes. Where its slope has a pole PyTorch takes 0: at 0, and for p < 1 where
    an element is 0."""

    def power(x: Node, exponent: float) -> Node:
        return ops.pow(x, ops.constant(exponent, x.dtype))

    if p < 1:
        powers = _but_at_zero(size, lambda x: power(x, p), 0 if p > 0 else math.inf)
    else:
        powers = power(size, p)
    total = ops.sum(powers, axes)
    return _but_at_zero(total, lambda x: power(x, 1 / p)) if p > 0 else power(total, 1 / p)


def _but_at_zero(x: Node, function: Callable[[Node], Node], value: float = 0) -> Node:
    """The function, and `value` with zero slope where x is 0."""
    zero = ops.eq(x, ops.constant(0, x.dtype))
    found = function(ops.where(zero, ops.full_like(x, 1), x))
    return ops.where(zero, ops.full_like(x, value), found)


builder("norm", casts=ON_A_GPU, gradient="LinalgVectorNormBackward0")(_norm)


def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dim = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The p-norm of the elements over `dim`; 'fro' is 2. `torch.norm` has 'nuc', too
    (`frontend/linalg/root.py`)."""
    power = 2.0 if p in ("fro", None) else float(p)
    return into(out, record(_norm, input, power, hashable(dim), bool(keepdim)), cast=False)


@public("count_nonzero")
def count_nonzero(input: Tensor, dim: Dim = None) -> Tensor:
    """The number of nonzero elements over `dim`."""
    return sum(input != 0, dim)


def _nansum(x: Node, dim: Dim, keepdim: bool, dtype: DType | None) -> Node:
    if x.dtype.is_floating_point:
        x = ops.where(ops.ne(x, x), ops.full_like(x, 0), x)
    return _sum(x, dim, keepdim, dtype)


@public("nansum", _nansum)
def nansum(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Sum over `dim` that takes NaN for zero."""
    if input.dtype.is_complex:
        raise RuntimeError(f"nansum on CPU does not support complex inputs{at_user_line()}")
    return into(out, record(_nansum, input, hashable(dim), bool(keepdim), dtype))


@public("nanmean")
def nanmean(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Mean of the elements that aren't NaN."""
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            f"nanmean(): expected input to have floating point dtype but got {input.dtype}"
            f"{at_user_line()}"
        )
    count = sum(~input.isnan(), dim, keepdim)
    return into(out, nansum(input, dim, keepdim, dtype=dtype) / count)


def _dist(a: Node, b: Node, p: float) -> Node:
    if a.dtype is b.dtype is dtypes.bool_:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            f"`logical_xor()` operator instead.{at_user_line()}"
        )
    return _norm(ops.sub(*promoted(a, b)), p, None, False)


@public("dist", _dist, casts=ON_A_GPU)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference."""
    return record(_dist, input, other, float(p))
