"""torch.distributions.logistic_normal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import Tensor
from . import constraints
from .independent import Independent
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """The distribution on the simplex of k numbers that StickBreakingTransform makes of k - 1
    normal ones."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True
    base_dist: Independent

    def __init__(
        self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None
    ):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        self._derive(base, [StickBreakingTransform()])

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(LogisticNormal, _instance)
        return super().expand(batch_shape, _instance=new)

    @property
    def loc(self) -> Tensor:
        base: Any = self.base_dist.base_dist
        return base.loc

    @property
    def scale(self) -> Tensor:
        base: Any = self.base_dist.base_dist
        return base.scale
