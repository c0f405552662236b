"""torch.distributions.binomial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from .. import Tensor, arange, exp, lgamma, log1p, no_grad
from .. import binomial as draw
from . import constraints
from .odds import Odds, one_of
from .utils import broadcast_all

__all__ = ["Binomial"]


class Binomial(Odds):
    """The number of successes among `total_count` trials of probability `probs`."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _event_ranks = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self,
        total_count: Tensor | int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        name, value = one_of(probs, logits)
        count, value = broadcast_all(total_count, value)
        self.total_count = count.type_as(value)
        setattr(self, name, value)
        super().__init__(value.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:  # type: ignore[override]
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return draw(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, x = self.total_count, self.logits
        # -n log(1 - p), where 1 - p = 1 / (1 + exp(logits)).
        failures = n * ((x + x.abs()) / 2 + log1p(exp(-x.abs())))
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return ways + value * x - failures

    def _count(self, asked: str) -> int:
        """The common number of trials."""
        count = int(self.total_count.max())
        if self.total_count.min() != count:
            raise NotImplementedError(
                f"Inhomogeneous total count not supported by `{asked}`.{at_user_line()}"
            )
        return count

    def entropy(self) -> Tensor:
        self._count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._count("enumerate_support")
        values = arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values
