"""torch.distributions.multivariate_normal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, broadcast

from .. import Tensor, eye
from ..linalg import cholesky, solve_triangular
from . import constraints
from .distribution import Distribution
from .utils import lazy_property, standard_normal

__all__ = ["MultivariateNormal"]


def half_log_det(factor: Any) -> Any:
    """Half the logarithm of the determinant of L Lᵀ, from L."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def mahalanobis(factor: Any, off: Any) -> Any:
    """offᵀ (L Lᵀ)⁻¹ off, the squared distance in units of the deviations; batches broadcast."""
    shape = broadcast(factor.shape[:-2], off.shape[:-1])
    n = off.shape[-1]
    if len(factor.shape) == 2 and off.dim() > 1:  # one factor for all: one solve of many columns
        columns = off.reshape(-1, n).mT
        return solve_triangular(factor, columns, upper=False).pow(2).sum(-2).reshape(shape)
    whitened = solve_triangular(
        factor.expand(*shape, n, n), off.expand(*shape, n).unsqueeze(-1), upper=False
    )
    return whitened.pow(2).sum((-2, -1))


def factor_of_inverse(precision: Any) -> Any:
    """The Cholesky factor of the inverse of a positive definite matrix, by the factor of the matrix
    with its rows and columns in opposite order."""
    factor = cholesky(precision.flip(-2, -1)).flip(-2, -1).mT
    n = precision.shape[-1]
    identity = eye(n, dtype=precision.dtype, device=precision.device).expand(precision.shape)
    return solve_triangular(factor, identity, upper=False)


_precision_to_scale_tril = factor_of_inverse  # PyTorch's name, which packages import


def inverse_by(factor: Any) -> Any:
    """(L Lᵀ)⁻¹."""
    identity = eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse = solve_triangular(factor, identity.expand(factor.shape), upper=False)
    return inverse.mT @ inverse


def one_matrix(matrices: dict[str, Any], error: type[Exception]) -> tuple[str, Any]:
    """The name and the value of the one matrix that is given; an error for more or none."""
    given = [(name, m) for name, m in matrices.items() if m is not None]
    if len(given) != 1:
        raise error(
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            f"{at_user_line()}"
        )
    name, matrix = given[0]
    if matrix.dim() < 2:
        raise ValueError(
            f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            f"{at_user_line()}"
        )
    return name, matrix


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, of mean `loc` and one of: the covariance matrix, its
    inverse, or its Cholesky factor, which is what all computations take."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        if loc.dim() < 1:
            raise ValueError(f"loc must be at least one-dimensional.{at_user_line()}")
        name, matrix = one_matrix(
            {
                "covariance_matrix": covariance_matrix,
                "scale_tril": scale_tril,
                "precision_matrix": precision_matrix,
            },
            ValueError,
        )
        batch_shape = broadcast(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand(*batch_shape, *matrix.shape[-2:]))
        self.loc = loc.expand(*batch_shape, loc.shape[-1])
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = factor_of_inverse(matrix)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(MultivariateNormal, _instance)
        batch_shape = Size(batch_shape)
        n = self._event_shape[0]
        new.loc = self.loc.expand(*batch_shape, n)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                setattr(new, name, getattr(self, name).expand(*batch_shape, n, n))
        super(MultivariateNormal, new).__init__(batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return self._whole(inverse_by(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        squares = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return squares.expand(*self._batch_shape, *self._event_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        z = standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ z.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        factor = self._unbroadcasted_scale_tril
        square = mahalanobis(factor, value - self.loc)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + square) - half_log_det(factor)

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        entropy = 0.5 * n * (1.0 + math.log(2 * math.pi)) + half_log_det(
            self._unbroadcasted_scale_tril
        )
        return entropy.expand(self._batch_shape)
