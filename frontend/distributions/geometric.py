"""torch.distributions.geometric."""

from __future__ import annotations

from collections.abc import Sequence

from .. import Tensor, finfo, log, log1p, no_grad, rand, where, zeros_like
from ..nn.functional import binary_cross_entropy_with_logits
from . import constraints, validation
from .odds import Odds, one_of
from .utils import broadcast_all

__all__ = ["Geometric"]


class Geometric(Odds):
    """The number of failures before the first success, in trials of probability `probs`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _event_ranks = {"probs": 0, "logits": 0}

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):
        name, value = one_of(probs, logits)
        (value,) = broadcast_all(value)
        setattr(self, name, value)
        super().__init__(value.shape, validate_args=validate_args)
        if self._validate_args and name == "probs":
            about = (
                f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)})"
            )
            validation.require(
                constraints.positive,
                value,
                f"{about} of distribution Geometric to be positive but found invalid values",
                lambda: (
                    f"{about} of distribution {self!r} to be positive but found invalid values:\n"
                    f"{value[~(value > 0)]}"
                ),
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            u = rand(shape, dtype=self.probs.dtype, device=self.probs.device)
            u = u.clamp(min=finfo(self.probs.dtype).tiny)
            return (log(u) / log1p(-self.probs)).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        # A certain success has no failure before: 0 log(0) is 0 then.
        none = (probs == 1) & (value == 0)
        probs = where(none, zeros_like(probs), probs)
        return value * log1p(-probs) + log(self.probs)

    def entropy(self) -> Tensor:
        loss = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return loss / self.probs
