"""torch.distributions.generalized_pareto."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import Tensor, exp, expm1, inf, log, log1p, nan, ones_like, rand, where, zeros_like
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The generalized Pareto distribution: survival (1 + c z)^(-1 / c), where z = (x - loc) / scale
    and c is the concentration; exp(-z) for c = 0."""

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    _event_ranks = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(
        self,
        loc: Tensor | float,
        scale: Tensor | float,
        concentration: Tensor | float,
        validate_args: bool | None = None,
    ):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:  # type: ignore[override]
        end = where(self.concentration < 0, self.loc - self.scale / self.concentration, inf)
        return constraints.interval(self.loc, end)

    def _shape(self) -> tuple[Tensor, Tensor]:
        """Whether the concentration is about zero, and the concentration, or 1 if it is."""
        c = self.concentration
        is_zero = c.isclose(zeros_like(c))
        return is_zero, where(is_zero, ones_like(c), c)

    def _z(self, x: Any) -> Any:
        return (x - self.loc) / self.scale

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        below = where(c < 1, c, zeros_like(c))
        return where(c < 1, self.loc + self.scale / (1 - below), nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        below = where(c < 0.5, c, zeros_like(c))
        variance = self.scale**2 / ((1 - below) ** 2 * (1 - 2 * below))
        return where(c < 0.5, variance, nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        is_zero, c = self._shape()
        return where(is_zero, -z, -(1 + 1 / c) * log1p(c * z)) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        is_zero, c = self._shape()
        return where(is_zero, -z, -log1p(c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        return log1p(-exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        is_zero, c = self._shape()
        survival = log1p(-value)
        return self.loc + self.scale * where(is_zero, -survival, expm1(-c * survival) / c)

    def entropy(self) -> Tensor:
        return log(self.scale) + self.concentration + 1
