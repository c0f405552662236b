"""torch.distributions.mixture_same_family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import Tensor, no_grad
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: `mixture_distribution` chooses among the distributions in the last batch dimension
    of `component_distribution`."""

    arg_constraints: dict[str, Any] = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an  instance of "
                f"torch.distributions.Categorical{at_user_line()}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution needs to be an instance of "
                f"torch.distributions.Distribution{at_user_line()}"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        of_mixture = mixture_distribution.batch_shape
        of_component = Size(component_distribution.batch_shape[:-1])
        for a, b in zip(reversed(of_mixture), reversed(of_component)):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({of_mixture}) is not compatible with "
                    f"`component_distribution.batch_shape`({of_component}){at_user_line()}"
                )
        count = mixture_distribution.logits.shape[-1]
        components = component_distribution.batch_shape[-1]
        if count != components:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({components}){at_user_line()}"
            )
        self._num_component = count
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(of_component, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = Size(batch_shape)
        new._component_distribution = self._component_distribution.expand(
            (*batch_shape, self._num_component)
        )
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        super(MixtureSameFamily, new).__init__(
            batch_shape, new._component_distribution.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:  # type: ignore[override]
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        return self._component_distribution

    def _weights(self) -> Tensor:
        """The probabilities of the components, with ones for the dimensions of an event."""
        probs = self._mixture_distribution.probs
        return probs.reshape(*probs.shape, *[1] * self._event_ndims)

    @property
    def mean(self) -> Tensor:
        axis = -1 - self._event_ndims
        return (self._weights() * self._component_distribution.mean).sum(axis)

    @property
    def variance(self) -> Tensor:
        # Var(X) = E[Var(X | component)] + Var(E[X | component])
        axis, weights = -1 - self._event_ndims, self._weights()
        inside = (weights * self._component_distribution.variance).sum(axis)
        off = self._component_distribution.mean - self._with_components(self.mean)
        return inside + (weights * off.pow(2)).sum(axis)

    def _with_components(self, x: Tensor) -> Tensor:
        """`x` with a dimension of size one for the components, before the event."""
        return x.unsqueeze(x.dim() - self._event_ndims)

    def cdf(self, x: Tensor) -> Tensor:
        chances = self._component_distribution.cdf(self._with_components(x))
        return (chances * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(x)
        of_components = self._component_distribution.log_prob(self._with_components(x))
        weights = self._mixture_distribution.logits.log_softmax(-1)
        return (of_components + weights).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            batch, event = len(self.batch_shape), self.event_shape
            axis = len(sample_shape) + batch
            chosen = self._mixture_distribution.sample(sample_shape)
            values = self._component_distribution.sample(sample_shape)
            lead = (*sample_shape, *self.batch_shape)
            at = chosen.expand(lead).reshape(*lead, 1, *[1] * len(event)).expand(*lead, 1, *event)
            return values.gather(axis, at).squeeze(axis)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self._mixture_distribution},\n  "
            f"{self._component_distribution})"
        )
