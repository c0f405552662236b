"""torch.distributions.studentT."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import Tensor, digamma, full_like, inf, lgamma, log, log1p, nan, rsqrt, where
from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import broadcast_all, standard_normal

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t distribution of `df` degrees of freedom, scaled and shifted."""

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    _event_ranks = {"df": 0, "loc": 0, "scale": 0}

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor | float = 0.0,
        scale: Tensor | float = 1.0,
        validate_args: bool | None = None,
    ):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df > 1, self.loc, nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        df = self.df
        beyond = where(df > 2, df, full_like(df, 3))  # no division by zero in the gradient
        m = where(df > 2, self.scale.pow(2) * beyond / (beyond - 2), inf)
        return where(df > 1, m, nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        z = standard_normal(shape, self.df.dtype, self.df.device)
        chi2 = Chi2(self.df, validate_args=False).rsample(sample_shape)
        return self.loc + self.scale * z * rsqrt(chi2 / self.df)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        df = self.df
        y = (value - self.loc) / self.scale
        normalizer = (
            log(self.scale)
            + 0.5 * log(df)
            + 0.5 * math.log(math.pi)
            + lgamma(0.5 * df)
            - lgamma(0.5 * (df + 1.0))
        )
        return -0.5 * (df + 1.0) * log1p(y**2.0 / df) - normalizer

    def entropy(self) -> Tensor:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = lgamma(half) + math.lgamma(0.5) - lgamma(more)
        return (
            log(self.scale) + more * (digamma(more) - digamma(half)) + 0.5 * log(self.df) + log_beta
        )
