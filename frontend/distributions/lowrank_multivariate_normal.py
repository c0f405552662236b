"""torch.distributions.lowrank_multivariate_normal."""

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
from .multivariate_normal import half_log_det, mahalanobis
from .utils import lazy_property, standard_normal

__all__ = ["LowRankMultivariateNormal"]


def capacitance_factor(factor: Any, diagonal: Any) -> Any:
    """The Cholesky factor of I + Wᵀ D⁻¹ W, a matrix of the small size of W's columns."""
    scaled = factor.mT / diagonal.unsqueeze(-2)
    k = factor.shape[-1]
    return cholesky(scaled @ factor + eye(k, dtype=factor.dtype, device=factor.device))


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with the covariance matrix W Wᵀ + D: `cov_factor` W of
    shape (..., n, k), and `cov_diag`, the diagonal of D.

    Determinant and inverse are those of a matrix of size k, by the matrix determinant lemma and the
    Woodbury identity.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ):
        if loc.dim() < 1:
            raise ValueError(f"loc must be at least one-dimensional.{at_user_line()}")
        event_shape = Size(loc.shape[-1:])
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch "
                f"dimensions{at_user_line()}"
            )
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(
                f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m"
                f"{at_user_line()}"
            )
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(
                f"cov_diag must be a batch of vectors with shape {event_shape}{at_user_line()}"
            )
        try:
            batch_shape = broadcast(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}{at_user_line()}"
            ) from None
        self.loc = loc.expand(*batch_shape, *event_shape)
        self.cov_factor = cov_factor.expand(*batch_shape, *cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(*batch_shape, *event_shape)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._capacitance_tril = capacitance_factor(cov_factor, cov_diag)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(LowRankMultivariateNormal, _instance)
        batch_shape = Size(batch_shape)
        vector = (*batch_shape, *self._event_shape)
        new.loc, new.cov_diag = self.loc.expand(vector), self.cov_diag.expand(vector)
        new.cov_factor = self.cov_factor.expand(*vector, self.cov_factor.shape[-1])
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        super(LowRankMultivariateNormal, new).__init__(
            batch_shape, self._event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        variance = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return variance.expand(*self._batch_shape, *self._event_shape)

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        # W Wᵀ + D = √D (I + √D⁻¹ W Wᵀ √D⁻¹) √D: the middle is well conditioned.
        deviation = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / deviation
        n = self._event_shape[0]
        middle = scaled @ scaled.mT + eye(n, dtype=scaled.dtype, device=scaled.device)
        return self._whole(deviation * cholesky(middle))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        factor = self._unbroadcasted_cov_factor
        return self._whole(factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        # D⁻¹ - AᵀA with A = C⁻¹ Wᵀ D⁻¹, where C Cᵀ is the capacitance matrix.
        inverse = self._unbroadcasted_cov_diag.reciprocal()
        scaled = self._unbroadcasted_cov_factor.mT * inverse.unsqueeze(-2)
        a = solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._whole(inverse.diag_embed() - a.mT @ a)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        options = self.loc.dtype, self.loc.device
        low = standard_normal((*shape[:-1], self.cov_factor.shape[-1]), *options)
        own = standard_normal(shape, *options)
        return (
            self.loc
            + (self._unbroadcasted_cov_factor @ low.unsqueeze(-1)).squeeze(-1)
            + self._unbroadcasted_cov_diag.sqrt() * own
        )

    def _half_log_det(self) -> Any:
        return half_log_det(self._capacitance_tril) + (
            0.5 * self._unbroadcasted_cov_diag.log().sum(-1)
        )

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        off = value - self.loc
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        within = (scaled @ off.unsqueeze(-1)).squeeze(-1)
        square = (off.pow(2) / self._unbroadcasted_cov_diag).sum(-1) - mahalanobis(
            self._capacitance_tril, within
        )
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + square) - self._half_log_det()

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        entropy = 0.5 * n * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return entropy.expand(self._batch_shape)
