"""torch.distributions.multinomial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import Tensor, exp, full_like, inf, lgamma, no_grad, ones_like, tensor, where, zeros
from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """How often each of k classes comes in `total_count` draws; parameters as in Categorical."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        if not isinstance(total_count, int):
            raise NotImplementedError(f"inhomogeneous total_count is not supported{at_user_line()}")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args=validate_args)  # checks them
        super().__init__(
            self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=False
        )
        self._validate_args = self._categorical._validate_args

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(Multinomial, _instance)
        batch_shape = Size(batch_shape)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        super(Multinomial, new).__init__(batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:  # type: ignore[override]
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            drawn = self._categorical.sample((self.total_count, *sample_shape)).movedim(0, -1)
            shape = self._extended_shape(sample_shape)
            counts = zeros(shape, dtype=self.probs.dtype, device=self.probs.device)
            return counts.scatter_add(-1, drawn, ones_like(drawn, dtype=counts.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits = self.logits
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        # A class of probability zero that never comes has no part in the sum.
        logits = where((value == 0) & (logits == -inf), full_like(logits, 0), logits)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = tensor(float(self.total_count), dtype=self.probs.dtype, device=self.probs.device)
        # The mean of log(x!), class by class: the count of one class is binomial.
        counts = Binomial(self.total_count, probs=self.probs, validate_args=False)
        support = counts.enumerate_support(expand=False)[1:]
        chances = exp(counts.log_prob(support))
        mean_of_log_factorials = (chances * lgamma(support + 1)).sum((0, -1))
        return n * self._categorical.entropy() - lgamma(n + 1) + mean_of_log_factorials
