"""torch.distributions.weibull."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import Tensor, exp, lgamma, log, ones_like, where, zeros_like
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """The Weibull distribution: survival exp(-(x / scale)^concentration)."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(
        self,
        scale: Tensor | float,
        concentration: Tensor | float,
        validate_args: bool | None = None,
    ):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(ones_like(self.scale), validate_args=False)
        super().__init__(base, self._parts(), validate_args=validate_args)

    def _parts(self) -> list[Any]:
        power = PowerTransform(exponent=self.concentration_reciprocal)
        return [power, AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(Weibull, _instance)
        for name in ("scale", "concentration", "concentration_reciprocal"):
            setattr(new, name, getattr(self, name).expand(batch_shape))
        base = self.base_dist.expand(batch_shape)
        TransformedDistribution.__init__(new, base, new._parts(), validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        return self.scale * exp(lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        beyond = where(k > 1, k, ones_like(k) + 1)
        mode = self.scale * ((beyond - 1) / beyond) ** beyond.reciprocal()
        return where(k > 1, mode, zeros_like(mode))

    @property
    def variance(self) -> Tensor:
        inverse = self.concentration_reciprocal
        first, second = lgamma(1 + inverse), lgamma(1 + 2 * inverse)
        return self.scale.pow(2) * (exp(second) - exp(2 * first))

    def entropy(self) -> Tensor:
        inverse = self.concentration_reciprocal
        return euler_constant * (1 - inverse) + log(self.scale * inverse) + 1
