"""torch.distributions.fishersnedecor."""

from __future__ import annotations

from collections.abc import Sequence

from .. import Tensor, finfo, lgamma, log, log1p, nan, where
from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The F distribution: the ratio of two chi-squares, each over its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _event_ranks = {"df1": 0, "df2": 0}

    def __init__(self, df1: Tensor | float, df2: Tensor | float, validate_args: bool | None = None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        df2 = where(self.df2 > 2, self.df2, nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, mode, nan)

    @property
    def variance(self) -> Tensor:
        df1, df2 = self.df1, where(self.df2 > 4, self.df2, nan)
        return 2 * df2.pow(2) * (df1 + df2 - 2) / (df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        above, below = (
            Gamma(df * 0.5, df * 0.5, validate_args=False).rsample(sample_shape)
            for df in (self.df1, self.df2)
        )
        tiny = finfo(below.dtype).tiny
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        return (
            lgamma(a + b)
            - lgamma(a)
            - lgamma(b)
            + a * log(ratio)
            + (a - 1) * log(value)
            - (a + b) * log1p(ratio * value)
        )
