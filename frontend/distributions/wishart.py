"""torch.distributions.wishart."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, broadcast

from .. import Tensor, arange, digamma, lgamma, nan, randn, tensor, where
from ..linalg import cholesky, solve_triangular
from . import constraints
from .chi2 import Chi2
from .exp_family import ExponentialFamily
from .multivariate_normal import factor_of_inverse, half_log_det, inverse_by, one_matrix
from .utils import lazy_property

__all__ = ["Wishart"]


def _log_multigamma(a: Any, n: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension n."""
    places = 0.5 * arange(n, dtype=a.dtype, device=a.device)
    return n * (n - 1) / 4 * math.log(math.pi) + lgamma(a.unsqueeze(-1) - places).sum(-1)


class Wishart(ExponentialFamily):
    """The distribution of Σ x xᵀ over `df` normal vectors x of mean zero and the given covariance
    (or its inverse, or its Cholesky factor). df is a real number above n - 1."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        name, matrix = one_matrix(
            {
                "scale_tril": scale_tril,
                "covariance_matrix": covariance_matrix,
                "precision_matrix": precision_matrix,
            },
            AssertionError,
        )
        if not isinstance(df, Tensor):
            df = tensor(float(df), dtype=matrix.dtype, device=matrix.device)
        batch_shape = broadcast(matrix.shape[:-2], df.shape)
        event_shape = matrix.shape[-2:]
        n = event_shape[-1]
        if bool((df <= n - 1).any()):
            raise ValueError(
                f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.{at_user_line()}"
            )
        self.df = df.expand(batch_shape)
        setattr(self, name, matrix.expand(*batch_shape, n, n))
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        if bool((self.df < n).any()):
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 "
                "< df < ndim.",
                stacklevel=2,
            )
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = factor_of_inverse(matrix)
        self._chi2 = self._of_diagonal()

    def _of_diagonal(self) -> Chi2:
        """The squares of the diagonal in Bartlett's decomposition."""
        n = self._event_shape[-1]
        places = arange(n, dtype=self.df.dtype, device=self.df.device)
        return Chi2(self.df.unsqueeze(-1) - places, validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        batch_shape = Size(batch_shape)
        new.df = self.df.expand(batch_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                setattr(new, name, getattr(self, name).expand(*batch_shape, *self._event_shape))
        new._chi2 = self._chi2.expand((*batch_shape, self._event_shape[-1]))
        super(Wishart, new).__init__(batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand(*self._batch_shape, *self._event_shape)

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
        return self.df.reshape(*self._batch_shape, 1, 1) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = where(factor <= 0, nan, factor)
        return factor.reshape(*self._batch_shape, 1, 1) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.reshape(*self._batch_shape, 1, 1) * (v.pow(2) + products)

    def _bartlett_sampling(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """L A Aᵀ Lᵀ, where A has roots of chi-squares on its diagonal and normal numbers below
        (Bartlett, 1933)."""
        shape = self._extended_shape(sample_shape)
        normal = randn(shape, dtype=self.df.dtype, device=self.df.device).tril(-1)
        diagonal = self._chi2.rsample(sample_shape).clamp(min=1e-30).sqrt().diag_embed()
        factor = self._unbroadcasted_scale_tril @ (normal + diagonal)
        return factor @ factor.mT

    def rsample(
        self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None
    ) -> Tensor:
        """Draw matrices. max_try_correction: how often singular matrices are drawn again; 3 by
        default where df is low, else 0."""
        sample = self._bartlett_sampling(sample_shape)
        if max_try_correction is None:
            low = bool((self.df < self._event_shape[-1]).any())
            max_try_correction = 3 if low else 0
        for _ in range(max_try_correction):
            singular = ~constraints.positive_definite.check(sample.detach())
            if not bool(singular.any()):
                return sample
            again = self._bartlett_sampling(sample_shape)
            sample = where(singular.unsqueeze(-1).unsqueeze(-1), again, sample)
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        nu, n = self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        of_value = cholesky(value)
        shape = broadcast(factor.shape[:-2], of_value.shape[:-2])
        ratio = solve_triangular(
            factor.expand(*shape, n, n), of_value.expand(*shape, n, n), upper=False
        )
        return (
            -nu * (n * math.log(2) / 2 + half_log_det(factor))
            - _log_multigamma(nu / 2, n)
            + (nu - n - 1) * half_log_det(of_value)
            - ratio.pow(2).sum((-2, -1)) / 2  # half the trace of V⁻¹ X
        )

    def entropy(self) -> Tensor:
        nu, n = self.df, self._event_shape[-1]
        places = 0.5 * arange(n, dtype=nu.dtype, device=nu.device)
        digammas = digamma(nu.unsqueeze(-1) / 2 - places).sum(-1)
        return (
            (n + 1) * (n * math.log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril))
            + _log_multigamma(nu / 2, n)
            - (nu - n - 1) / 2 * digammas
            + nu * n / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Tensor:
        n = self._event_shape[-1]
        power = y + (n + 1) / 2
        log_det = 2 * half_log_det(cholesky(-2 * x))
        return power * (n * math.log(2) - log_det) + _log_multigamma(power, n)
