"""torch.distributions.transformed_distribution."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import Tensor, no_grad
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of f(x), where x has `base_distribution` and f is a transform, or a list of
    transforms from the first to the last."""

    arg_constraints: dict[str, Any] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ):
        if isinstance(transforms, Transform):
            transforms = [transforms]
        if not isinstance(transforms, list):
            raise ValueError(
                f"transforms must be a Transform or list, but was {transforms}{at_user_line()}"
            )
        if not all(isinstance(t, Transform) for t in transforms):
            raise ValueError(
                f"transforms must be a Transform or a list of Transforms{at_user_line()}"
            )
        self.transforms = transforms
        base_shape = Size((*base_distribution.batch_shape, *base_distribution.event_shape))
        base_dims = len(base_distribution.event_shape)
        whole = ComposeTransform(transforms)
        if len(base_shape) < whole.domain.event_dim:
            raise ValueError(
                "base_distribution needs to have shape with size at least "
                f"{whole.domain.event_dim}, but got {base_shape}.{at_user_line()}"
            )
        shape = Size(whole.forward_shape(base_shape))
        expanded = Size(whole.inverse_shape(shape))
        if base_shape != expanded:
            base_distribution = base_distribution.expand(expanded[: len(expanded) - base_dims])
        taken = whole.domain.event_dim - base_dims
        if taken > 0:
            base_distribution = Independent(base_distribution, taken)
        self.base_dist = base_distribution
        dims = whole.codomain.event_dim + max(base_dims - whole.domain.event_dim, 0)
        assert len(shape) >= dims
        cut = len(shape) - dims
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def _derive(self, base_distribution: Distribution, transforms: list[Transform]) -> None:
        """Initialize with a base distribution that has checked all parameters."""
        TransformedDistribution.__init__(self, base_distribution, transforms, validate_args=False)
        self._validate_args = base_distribution._validate_args

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(TransformedDistribution, _instance)
        batch_shape = Size(batch_shape)
        whole = ComposeTransform(self.transforms)
        base_shape = whole.inverse_shape((*batch_shape, *self.event_shape))
        cut = len(base_shape) - len(self.base_dist.event_shape)
        new.base_dist = self.base_dist.expand(base_shape[:cut])
        new.transforms = self.transforms
        super(TransformedDistribution, new).__init__(
            batch_shape, self.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:  # type: ignore[override]
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self.event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        dims = len(self.event_shape)
        result: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, y)
            result = result - sum_rightmost(slope, dims - transform.domain.event_dim)
            y = x
        of_base = self.base_dist.log_prob(y)
        return result + sum_rightmost(of_base, dims - len(self.base_dist.event_shape))

    def _sign(self) -> Any:
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return sign

    def _mirrored(self, chance: Any) -> Any:
        """`chance`, or 1 - chance where the transforms fall."""
        sign = self._sign()
        if isinstance(sign, Real) and sign == 1:
            return chance
        return sign * (chance - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        """The distribution function, of transforms of numbers that rise or fall."""
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._mirrored(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of the distribution function."""
        return self._transformed(self.base_dist.icdf(self._mirrored(value)))
