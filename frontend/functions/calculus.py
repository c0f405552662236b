"""Derivatives and integrals of sampled functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axis

from ..recording import Handle, record
from ..recording.builders import builder
from . import joining, sorting
from .arguments import into
from .call import public
from .reduction import _norm

if TYPE_CHECKING:
    from .._tensor import Tensor


@public("trapezoid", method=False, aliases=("trapz",))
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The integral along `dim` by the trapezoidal rule."""
    return _areas(y, x, dx, dim).sum(dim)


@public("cumulative_trapezoid", method=False)
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1
) -> Tensor:
    """The running integral along `dim` by the trapezoidal rule; one element fewer than `y` has."""
    return sorting.cumsum(_areas(y, x, dx, dim), dim)


def _areas(y: Any, x: Any, dx: float, dim: int) -> Any:
    """The areas of the trapezoids between neighbours."""
    size = y.shape[dim]
    if not size:
        return y.narrow(dim, 0, 0) * 1.0
    high, low = y.narrow(dim, 1, size - 1), y.narrow(dim, 0, size - 1)
    if x is None:
        return (high + low) * (dx / 2)
    n = x.shape[-1 if x.dim() == 1 else dim]
    axis = 0 if x.dim() == 1 else dim
    width = x.narrow(axis, 1, n - 1) - x.narrow(axis, 0, n - 1)
    if x.dim() == 1:
        width = width.reshape([-1 if i == dim % y.dim() else 1 for i in range(y.dim())])
    return (high + low) * width / 2


@public("gradient", method=False)
def gradient(
    input: Tensor,
    *,
    spacing: float | Sequence[float] | Sequence[Tensor] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """The derivative along each of `dim` (all by default), from neighbours' differences.

    spacing: the distance of neighbours, one number or one for each dimension; or for each
        dimension the coordinates, 1-d tensors. edge_order: 1 takes two points at the edges, 2
        takes three.
    """
    if input.dtype in (dtypes.bool_, dtypes.uint8):
        raise RuntimeError(f"torch.gradient does not support {input.dtype} input.{at_user_line()}")
    rank = input.dim()
    wanted: Any = [dim] if isinstance(dim, int) else list(range(rank)) if dim is None else list(dim)
    axes = [normalize_axis(d, rank) for d in wanted]
    if len(set(axes)) != len(axes):
        raise RuntimeError(f"torch.gradient: dim {wanted} appears multiple times{at_user_line()}")
    if edge_order not in (1, 2):
        raise RuntimeError(
            f"torch.gradient only supports edge_order=1 and edge_order=2.{at_user_line()}"
        )
    spacing = 1 if spacing is None else spacing
    one = isinstance(spacing, (int, float)) or (isinstance(spacing, Handle) and not spacing.dim())
    steps: Any = [spacing] * len(axes) if one else list(spacing)  # type: ignore[arg-type]
    if len(steps) != len(axes):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"equal to the number of dimensions {len(axes)}, but got {len(steps)}{at_user_line()}"
        )
    for axis in axes:
        if input.shape[axis] < edge_order + 1:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1"
                f"{at_user_line()}"
            )
    whole = not input.dtype.is_floating_point
    values: Any = input * 1.0 if whole else input
    return tuple([_slope(values, axis, h, edge_order) for axis, h in zip(axes, steps)])


def _slope(x: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    n = x.shape[axis]

    def at(first: int, count: int = 1) -> Any:
        return x.narrow(axis, first if first >= 0 else n + first, count)

    if isinstance(spacing, Handle) and spacing.dim():  # type: ignore[attr-defined]
        line: Any = spacing
        beside = [1] * x.dim()
        beside[axis] = -1
        gaps: Any = sorting.diff(line).reshape(beside)
        left, right = gaps.narrow(axis, 0, n - 2), gaps.narrow(axis, 1, n - 2)
        ends = [
            [gaps.narrow(axis, i, 1) for i in order]
            for order in ((0, min(1, n - 2)), (n - 2, max(n - 3, 0)))
        ]
    else:
        left = right = spacing
        ends = [[spacing, spacing]] * 2
    inner = (
        left * left * at(2, n - 2)
        + (right * right - left * left) * at(1, n - 2)
        - right * right * at(0, n - 2)
    ) / (left * right * (left + right))
    if edge_order == 1:
        first, last = (at(1) - at(0)) / ends[0][0], (at(-1) - at(-2)) / ends[1][0]
    else:
        first = _edge(at(0), at(1), at(2), *ends[0])
        last = -_edge(at(-1), at(-2), at(-3), *ends[1])
    return joining.cat([first, inner, last], axis)


def _edge(a: Any, b: Any, c: Any, near: Any, far: Any) -> Any:
    """The slope at `a` of the parabola through three points, at distances `near` and `far`."""
    return (
        -(2 * near + far) / (near * (near + far)) * a
        + (near + far) / (near * far) * b
        - near / (far * (near + far)) * c
    )


@builder("renorm_scale")
def _scale_to(norm: Node, most: float) -> Node:
    """The factors that limit norms."""
    limit = ops.full_like(norm, most)
    return ops.where(norm > limit, limit / (norm + 1e-7), ops.full_like(norm, 1))


@public("renorm", in_place=True)
def renorm(
    input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None
) -> Tensor:
    """The slices along `dim`, each scaled down to the p-norm `maxnorm` if its own is larger."""
    if not p > 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported{at_user_line()}")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}{at_user_line()}")
    if input.dim() < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input.dim()} dimensions"
            f"{at_user_line()}"
        )
    axis = normalize_axis(dim, input.dim())
    others = tuple([i for i in range(input.dim()) if i != axis])
    scale = record(_scale_to, record(_norm, input, float(p), others, True), float(maxnorm))
    return into(out, input * scale, cast=False)


@public("norm_except_dim", method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms of the slices along `dim`, in a tensor that broadcasts with `v`."""
    if dim == -1:
        return v.norm(pow)
    axis = normalize_axis(dim, v.dim())
    return v.norm(pow, [i for i in range(v.dim()) if i != axis], keepdim=True)
