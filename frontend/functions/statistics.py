"""Spread and correlation: var, std, cov, corrcoef."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node

from ..recording import Handle, record
from .arguments import into
from .call import public
from .reduction import _mean, axes_of, finish, hashable, need_float

if TYPE_CHECKING:
    from .._tensor import Tensor

Dim = int | Sequence[int] | None


def _var(x: Node, dim: Dim, correction: float, keepdim: bool, root: bool) -> Node:
    need_float("std and var", x)
    axes = axes_of(x, dim)
    left = math.prod(x.shape[a] for a in axes) - correction
    if x.dtype.is_complex:  # of both parts together
        total = _var(ops.real(x), dim, correction, keepdim, False)
        total = total + _var(ops.imag(x), dim, correction, keepdim, False)
        return ops.sqrt(total) if root else total
    take = ops.deviation if root else ops.variance
    return finish(take(x, tuple(axes), left if left > 0 else 0.0), axes, keepdim)


def _spread_name(args: Sequence[Any]) -> str:
    *_, root = args
    return "StdBackward0" if root else "VarBackward0"


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 1.0 if unbiased is None or unbiased else 0.0


def _with_mean(
    x: Node, dim: Any, correction: float, keepdim: bool, root: bool
) -> tuple[Node, Node]:
    return _var(x, dim, correction, keepdim, root), _mean(x, dim, keepdim, None)


def _spread(
    input: Any,
    dim: Any,
    unbiased: Any,
    correction: Any,
    keepdim: bool,
    root: bool,
    build: Any = _var,
) -> Any:
    if isinstance(dim, bool):  # var(unbiased)
        dim, unbiased = None, dim
    taken = _correction(unbiased, correction)
    if isinstance(input, Handle) and _count(input, dim) <= taken:
        name = f"{'std' if root else 'var'}{'_mean' * (build is _with_mean)}"
        warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be "
            "strictly less than the reduction factor (input numel divided by output numel)."
        )
    return record(build, input, hashable(dim), taken, bool(keepdim), root)


def _count(input: Any, dim: Any) -> float:
    """The number of elements that each result is of; 0 if there are no results."""
    shape = input.shape
    if 0 in shape:
        return 0
    axes = range(len(shape)) if dim in (None, (), []) else dim
    axes = (axes,) if isinstance(axes, int) else axes
    if not isinstance(axes, (tuple, list, range)):
        return math.inf  # an error of the recorded call
    known = [a for a in axes if isinstance(a, int) and -len(shape) <= a < len(shape)]
    return math.prod(shape[a] for a in known)


@public("var", _var, gradient=_spread_name)
def var(
    input: Tensor,
    dim: Dim | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Variance over `dim`, divided by N - correction (1 by default)."""
    return into(out, _spread(input, dim, unbiased, correction, keepdim, False))


@public("std")
def std(
    input: Tensor,
    dim: Dim | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Standard deviation over `dim`: the root of `var`."""
    return into(out, _spread(input, dim, unbiased, correction, keepdim, True))


@public(
    "var_mean",
    _with_mean,
    method=False,
    gradient=lambda args: f"{'Std' if args[-1] else 'Var'}MeanBackward0",
)
def var_mean(
    input: Tensor,
    dim: Dim | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = _spread(
        input, dim, unbiased, correction, keepdim, False, _with_mean
    )
    return found


@public("std_mean", method=False)
def std_mean(
    input: Tensor,
    dim: Dim | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = _spread(
        input, dim, unbiased, correction, keepdim, True, _with_mean
    )
    return found


@public("cov")
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of variables in rows, observed in columns.

    fweights: how often each observation was made, integers. aweights: the weight of each
    observation, floats. Both are 1-d.
    """
    if input.dim() > 2:
        raise RuntimeError(
            "cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.dim()} dimensions{at_user_line()}"
        )
    if input.dtype is dtypes.bool_:
        raise RuntimeError(f"cov(): bool dtype is not supported for input{at_user_line()}")
    x: Any = input.reshape(1, -1) if input.dim() < 2 else input
    if not x.dtype.is_differentiable:
        x = x * 1.0
    weight: Any = None
    for name, given, floats in (("fweights", fweights, False), ("aweights", aweights, True)):
        if given is None:
            continue
        _check_weights(name, given, x.shape[1], floats)
        weight = given if weight is None else weight * given
    if weight is None:
        total: Any = x.shape[1]
        centered = x - x.mean(1, keepdim=True)
        weighted = centered
        freedom: Any = total - correction
        if freedom <= 0:
            warn(
                "cov(): degrees of freedom is <= 0. Correction should be strictly less than the "
                "number of observations."
            )
            freedom = 0
    else:
        total = weight.sum()
        centered = x - (x * weight).sum(1, keepdim=True) / total
        weighted = centered * weight
        # By reliability weights the correction counts in proportion to their squares.
        taken = (weight * aweights).sum() / total if aweights is not None else 1
        freedom = (total - correction * taken).clamp(min=0)
    return (weighted @ centered.mH / freedom).squeeze()


def _check_weights(name: str, weights: Any, count: int, floats: bool) -> None:
    if weights.dim() > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
            f"{weights.dim()} dimensions{at_user_line()}"
        )
    if weights.dtype.is_floating_point is not floats:
        kind = "floating point" if floats else "integral"
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {weights.dtype} "
            f"dtype{at_user_line()}"
        )
    if weights.numel() != count:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the "
            f"input but got {weights.numel()} != {count}{at_user_line()}"
        )
    if weights.numel() and bool((weights < 0).any().item()):
        raise RuntimeError(f"cov(): {name} cannot be negative{at_user_line()}")


@public("corrcoef")
def corrcoef(input: Tensor) -> Tensor:
    """The matrix of correlations of variables in rows, observed in columns."""
    if input.dim() > 2:
        raise RuntimeError(
            "corrcoef(): expected input to have two or fewer dimensions but got an input with "
            f"{input.dim()} dimensions{at_user_line()}"
        )
    c = cov(input)
    if c.dim() == 0:
        return c / c
    spread = c.diagonal().sqrt()
    c = c / spread.unsqueeze(1) / spread.unsqueeze(0)
    if c.is_complex():
        return record(ops.complex, c.real.clamp(-1, 1), c.imag.clamp(-1, 1))
    return c.clamp(-1, 1)
