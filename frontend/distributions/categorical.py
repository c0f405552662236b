"""torch.distributions.categorical."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, broadcast

from .. import Tensor, arange, finfo, full, int64, multinomial, nan, no_grad
from . import constraints
from .distribution import Distribution
from .odds import one_of
from .utils import lazy_property, logits_to_probs, probs_to_logits

__all__ = ["Categorical"]


class Categorical(Distribution):
    """One of k classes, by `probs` of shape (..., k), which are normalized, or by `logits`,
    unnormalized log probabilities."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _event_ranks = {"probs": 1, "logits": 1}

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        name, value = one_of(probs, logits)
        if value.dim() < 1:
            raise ValueError(
                f"`{name}` parameter must be at least one-dimensional.{at_user_line()}"
            )
        if name == "probs":
            self.probs = value / value.sum(-1, keepdim=True)
        else:
            self.logits = value - value.logsumexp(dim=-1, keepdim=True)
        self._num_events = value.shape[-1]
        super().__init__(value.shape[:-1], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(Categorical, _instance)
        new._num_events = self._num_events
        return super().expand(batch_shape, new)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:  # type: ignore[override]
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def _param(self) -> Tensor:
        known = self.__dict__
        found: Tensor = known["probs"] if "probs" in known else known["logits"]
        return found

    @property
    def param_shape(self) -> Size:
        return self._param.size()

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits)

    def _undefined(self) -> Tensor:
        shape = self._extended_shape()
        return full(shape, nan, dtype=self._param.dtype, device=self._param.device)

    @property
    def mean(self) -> Tensor:
        return self._undefined()

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return self._undefined()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        with no_grad():
            drawn = multinomial(rows, Size(sample_shape).numel(), True)
        return drawn.T.reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        at = value.to(int64).unsqueeze(-1)
        shape = broadcast(at.shape[:-1], self._batch_shape)
        logits = self.logits.expand(*shape, self._num_events)
        return logits.gather(-1, at.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        # A class of probability zero has no part in the sum, though its logarithm is -inf.
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(self._num_events, dtype=int64, device=self._param.device)
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values
