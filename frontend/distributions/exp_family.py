"""torch.distributions.exp_family: distributions with density exp(<t(x), θ> - F(θ) + k(x))."""

from __future__ import annotations

from typing import Any

from .. import Tensor
from ..autograd import enable_grad, grad
from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """An exponential family: natural parameters θ, log normalizer F, carrier measure k.

    Its entropy and the KL divergence of two of its members follow from the gradient of F (Nielsen
    and Nock, "Entropies and cross-entropies of exponential families", ICIP 2010).
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        """θ, one tensor for each statistic."""
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        """F(θ)."""
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        """The mean of k(x)."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """F(θ) - <θ, ∇F(θ)> - E[k(x)]."""
        result: Any = -self._mean_carrier_measure
        with enable_grad():
            natural = [p.detach().requires_grad_() for p in self._natural_params]
            normalizer = self._log_normalizer(*natural)
            slopes = grad(normalizer.sum(), natural, create_graph=True)
        result = result + normalizer
        for parameter, slope in zip(natural, slopes):
            term = parameter * slope
            result = result - term.reshape(*self._batch_shape, -1).sum(-1)
        return result
