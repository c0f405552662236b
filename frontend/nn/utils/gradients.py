"""Functions over the parameters of a model and their gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import accumulator
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ... import recording
from ..._tensor import Tensor
from ...functions.promotion import to
from ...recording import Handle, record


def _gradients(parameters: Any) -> list[Any]:
    listed = [parameters] if isinstance(parameters, Handle) else list(parameters)
    return [p.grad for p in listed if p.grad is not None]


def _total_norm(*args: Any) -> Node:
    *grads, p = args
    if p in (0, math.inf, -math.inf):
        whole, meet = (ops.min, ops.minimum) if p < 0 else (ops.max, ops.maximum)
        norms = [ops.reshape(whole(_size(g), tuple(range(g.rank))), ()) for g in grads]
        if p == 0:  # a norm of norms: the number of tensors with another element than 0
            norms = [to(ops.ne(n, ops.zeros_like(n)), n.dtype) for n in norms]
            meet = ops.add
        out: Node = norms[0]
        for n in norms[1:]:
            out = meet(out, to(n, out.dtype))
        return out
    total: Node | None = None
    for g in grads:
        if p == 2:
            wide = to(g, accumulator(g.dtype))
            power = _square(wide)
        else:
            wide = _size(g)
            wide = to(wide, accumulator(wide.dtype))
            power = ops.pow(wide, ops.full_like(wide, p))
        part = ops.reshape(ops.sum(power, tuple(range(g.rank))), ())
        total = part if total is None else total + to(part, total.dtype)
    assert total is not None
    if p == 2:
        return ops.sqrt(total)
    return ops.pow(total, ops.constant(1 / p, total.dtype))


def _size(x: Node) -> Node:
    return ops.modulus(x) if x.dtype.is_complex else ops.abs(x)


def _square(x: Node) -> Node:
    """|x|^2, without a root in between."""
    if not x.dtype.is_complex:
        return x * x
    a, b = ops.real(x), ops.imag(x)
    return a * a + b * b


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of all tensors."""
    listed = [tensors] if isinstance(tensors, Handle) else list(tensors)
    if not listed:
        from ...functions.from_data import tensor

        return tensor(0.0)
    with recording.grad_mode(False):
        norm = record(_total_norm, *listed, float(norm_type))
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is "
            f"non-finite, so it cannot be clipped{at_user_line()}"
        )
    return norm


def _scaled(*args: Any) -> tuple[Node, ...]:
    norm, *grads, max_norm = args
    scale = max_norm / (norm + 1e-6)
    scale = ops.minimum(scale, ops.full_like(scale, 1))
    return tuple(
        g * to(scale, g.dtype) if g.dtype.is_complex else to(to(g, scale.dtype) * scale, g.dtype)
        for g in grads
    )


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale all gradients so that their common norm, now `total_norm`, is at most `max_norm`."""
    grads = _gradients(parameters)
    if not grads:
        return
    with recording.grad_mode(False):
        scaled = record(_scaled, total_norm, *grads, float(max_norm))
        recording.assign_all(grads, [recording.resolve(s) for s in scaled])


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`; returns the norm."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    norm = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Deprecated: clip_grad_norm_."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def _limited(*args: Any) -> tuple[Node, ...]:
    *grads, bound = args
    return tuple(ops.clamp(g, -bound, bound) for g in grads)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value]."""
    grads = _gradients(parameters)
    if not grads:
        return
    with recording.grad_mode(False):
        nodes = recording.node_of(_limited, *grads, float(clip_value))
        recording.assign_all(grads, nodes)


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """All parameters flattened into one vector."""
    from ...functions.joining import cat

    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Any]) -> None:
    """Write a vector made by parameters_to_vector back into the parameters."""
    if not isinstance(vec, Handle):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    values: Any = vec
    start = 0
    with recording.grad_mode(False):
        for p in parameters:
            count = p.numel()
            p.copy_(values[start : start + count].view_as(p))
            start += count
