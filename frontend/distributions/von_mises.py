"""torch.distributions.von_mises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import Tensor, cos, log, no_grad
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["VonMises"]


class VonMises(Distribution):
    """The von Mises distribution of angles: density proportional to exp(concentration cos(x -
    loc))."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _event_ranks = {"loc": 0, "concentration": 0}

    def __init__(self, loc: Tensor, concentration: Tensor, validate_args: bool | None = None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        from ..special import i0e

        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        # I0(k) = i0e(k) exp(k), and cos - 1 keeps the sum small.
        return k * (cos(value - self.loc) - 1) - math.log(2 * math.pi) - log(i0e(k))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        from ..functions.variates import von_mises

        shape = self._extended_shape(sample_shape)
        with no_grad():
            off: Any = von_mises(self.concentration.expand(shape))
            return (off + math.pi + self.loc) % (2 * math.pi) - math.pi

    @property
    def mean(self) -> Tensor:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance."""
        from ..special import i0e, i1e

        return 1 - i1e(self.concentration) / i0e(self.concentration)
