"""What distributions share: parameters of one shape, probabilities and logits, triangles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from .. import (
    Tensor,
    arange,
    broadcast_tensors,
    enable_grad,
    finfo,
    log,
    log1p,
    randn,
    sigmoid,
    softmax,
    tensor,
)

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "euler_constant",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Tensor | float) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of their common shape. A number gets the dtype and device of
    the first tensor; if there is none, the default dtype. ValueError for anything else."""
    if not all(isinstance(v, (Tensor, Real)) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
            f"__torch_function__.{at_user_line()}"
        )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    options: dict[str, Any] = (
        {} if first is None else {"dtype": first.dtype, "device": first.device}
    )
    made = [v if isinstance(v, Tensor) else tensor(float(v), **options) for v in values]
    if all(t.shape == made[0].shape for t in made[1:]):
        return tuple(made)
    return tuple(broadcast_tensors(*made))


def standard_normal(shape: Sequence[int], dtype: DType, device: Any) -> Tensor:
    return randn(tuple(shape), dtype=dtype, device=device)


def sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last `dim` dimensions."""
    if dim == 0:
        return value
    return value.reshape(*value.shape[: len(value.shape) - dim], -1).sum(-1)


_standard_normal = standard_normal  # names that programs around PyTorch import
_sum_rightmost = sum_rightmost


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds as probabilities if `is_binary`, else unnormalized log probabilities of classes, in
    the last dimension, as probabilities."""
    return sigmoid(logits) if is_binary else softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities at least the dtype's epsilon away from 0 and 1."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The log odds of probabilities if `is_binary`, else their logarithms."""
    inside = clamp_probs(probs)
    return log(inside) - log1p(-inside) if is_binary else log(inside)


class lazy_property:
    """An attribute that its method computes at the first access, with gradients.

    Accessed through the class it is itself a property, so that documentation tools see it.
    """

    def __init__(self, wrapped: Callable[[Any], Any]):
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return _LazyOfClass(self.wrapped)
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyOfClass(lazy_property, property):
    """A lazy property of a class, which is a property too."""

    def __init__(self, wrapped: Callable[[Any], Any]):
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements of matrices on and below diagonal `diag`, row by row, in one dimension."""
    size = mat.shape[-1]
    if not -size <= diag < size:
        raise ValueError(
            f"diag ({diag}) provided is outside [{-size}, {size - 1}].{at_user_line()}"
        )
    return mat[(..., *_below(size, diag, mat.device))]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Matrices with the elements of vectors on and below diagonal `diag`, row by row; else zero."""
    count = vec.shape[-1]
    # A triangle of n + diag rows has (n + diag) (n + diag + 1) / 2 elements, among them a corner
    # outside of the matrix if diag > 0.
    twice = 1 + 2 * diag
    corner = abs(diag) * (diag + 1) // 2
    n = round(((twice**2 + 8 * (count + corner)) ** 0.5 - twice) / 2)
    rows, columns = _below(n, diag, vec.device)
    if rows.numel() != count:
        raise ValueError(
            f"The size of last dimension is {count} which cannot be expressed as the lower "
            f"triangular part of a square D x D matrix.{at_user_line()}"
        )
    out = vec.new_zeros((*vec.shape[:-1], n, n))
    out[..., rows, columns] = vec
    return out


def _below(size: int, diag: int, device: Any) -> tuple[Tensor, Tensor]:
    """The rows and columns of the elements on and below a diagonal."""
    at = arange(size, device=device)
    rows, columns = (at < at.reshape(-1, 1) + (diag + 1)).nonzero(as_tuple=True)
    return rows, columns
