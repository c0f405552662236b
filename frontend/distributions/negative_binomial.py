"""torch.distributions.negative_binomial."""

from __future__ import annotations

from collections.abc import Sequence

from .. import Tensor, exp, lgamma, no_grad, sigmoid, where, zeros_like
from .. import poisson as draw
from ..nn.functional import logsigmoid
from . import constraints
from .gamma import Gamma
from .odds import Odds, one_of
from .utils import broadcast_all, lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(Odds):
    """The number of successes, of probability `probs` each, before `total_count` failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _event_ranks = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self,
        total_count: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        name, value = one_of(probs, logits)
        count, value = broadcast_all(total_count, value)
        self.total_count = count.type_as(value)
        setattr(self, name, value)
        super().__init__(value.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * exp(self.logits)).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Gamma:
        # The checks of this class are enough.
        return Gamma(self.total_count, exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():  # a Poisson number of a gamma-distributed rate
            return draw(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        density = n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        ways = lgamma(n + value) - lgamma(1.0 + value) - lgamma(n)
        # Without failures to wait for, the number is zero for sure.
        ways = where(n + value == 0.0, zeros_like(ways), ways)
        return density + ways
