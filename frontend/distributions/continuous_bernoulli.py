"""torch.distributions.continuous_bernoulli."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from .. import Tensor, exp, full_like, log, log1p, no_grad, ones_like, rand, where, zeros_like
from ..nn.functional import binary_cross_entropy_with_logits
from . import constraints
from .exp_family import ExponentialFamily
from .odds import Odds, one_of
from .utils import broadcast_all, clamp_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(Odds, ExponentialFamily):
    """Numbers in [0, 1] with density proportional to probs^x (1 - probs)^(1 - x) (Loaiza-Ganem and
    Cunningham, arXiv 1907.06845).

    lims: the range of `probs` around 1/2 in which formulas would divide zero by zero. There they
    are Taylor polynomials.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _event_ranks = {"probs": 0, "logits": 0}

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ):
        name, value = one_of(probs, logits)
        (value,) = broadcast_all(value)
        if name == "probs":
            if validate_args and not bool(constraints.unit_interval.check(value).all()):
                raise ValueError(f"The parameter probs has invalid values{at_user_line()}")
            value = clamp_probs(value)
        setattr(self, name, value)
        self._lims = lims
        super().__init__(value.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(ContinuousBernoulli, _instance)
        new._lims = self._lims
        return super().expand(batch_shape, new)

    def _is_stable(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        """`probs`, or a probability nearby where formulas are unstable."""
        return where(self._is_stable(), self.probs, full_like(self.probs, self._lims[0]))

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of the factor of the density: 2 atanh(1 - 2 p) / (1 - 2 p)."""
        p = self._cut_probs()
        below = where(p <= 0.5, p, zeros_like(p))
        above = where(p >= 0.5, p, ones_like(p))
        log_norm = (log1p(-p) - log(p)).abs().log() - where(
            p <= 0.5, log1p(-2.0 * below), log(2.0 * above - 1.0)
        )
        x = (self.probs - 0.5).pow(2)
        taylor = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return where(self._is_stable(), log_norm, taylor)

    @property
    def mean(self) -> Tensor:
        p = self._cut_probs()
        mean = p / (2.0 * p - 1.0) + 1.0 / (log1p(-p) - log(p))
        x = self.probs - 0.5
        taylor = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x
        return where(self._is_stable(), mean, taylor)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def variance(self) -> Tensor:
        p = self._cut_probs()
        variance = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (log1p(-p) - log(p)).pow(2)
        x = (self.probs - 0.5).pow(2)
        taylor = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return where(self._is_stable(), variance, taylor)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        likelihood = -binary_cross_entropy_with_logits(logits, value, reduction="none")
        return likelihood + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        p = self._cut_probs()
        cdf = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        return where(self._is_stable(), cdf, value).clamp(min=0.0, max=1.0)

    def icdf(self, value: Tensor) -> Tensor:
        p = self._cut_probs()
        x = (log1p(-p + value * (2.0 * p - 1.0)) - log1p(-p)) / (log(p) - log1p(-p))
        return where(self._is_stable(), x, value)

    def entropy(self) -> Tensor:
        failure, success = log1p(-self.probs), log(self.probs)
        return self.mean * (failure - success) - self._cont_bern_log_norm() - failure

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Tensor:
        """log((exp(x) - 1) / x)."""
        low, high = self._lims
        stable = (x <= low - 0.5) | (x > high - 0.5)
        cut = where(stable, x, full_like(x, low - 0.5))
        log_norm = (exp(cut) - 1.0).abs().log() - cut.abs().log()
        return where(stable, log_norm, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
