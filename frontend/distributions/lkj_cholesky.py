"""torch.distributions.lkj_cholesky."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import Tensor, arange, finfo, lgamma, no_grad, randn
from ..nn.functional import pad
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices M of size `dim`, where M has a density proportional
    to det(M)^(concentration - 1) (Lewandowski, Kurowicka and Joe, "Generating random correlation
    matrices based on vines and extended onion method", 2009)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None
    ):
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
                f"{at_user_line()}"
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)
        self._beta = self._of_rows()

    def _of_rows(self) -> Beta:
        """The distributions of the squared lengths of the rows, without the diagonal."""
        places = arange(
            self.dim - 1, dtype=self.concentration.dtype, device=self.concentration.device
        )
        first = pad(places + 0.5, (1, 0), value=0.5)
        offset = pad(places, (1, 0))
        marginal = self.concentration + 0.5 * (self.dim - 2)
        return Beta(first, marginal.unsqueeze(-1) - 0.5 * offset, validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(LKJCholesky, _instance)
        batch_shape = Size(batch_shape)
        new.dim, new.concentration = self.dim, self.concentration.expand(batch_shape)
        new._beta = self._beta.expand((*batch_shape, self.dim))
        super(LKJCholesky, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """By the onion method: each row is a direction on a sphere, times a length below one."""
        with no_grad():
            lengths = self._beta.sample(sample_shape).unsqueeze(-1)
            normal = randn(
                self._extended_shape(sample_shape),
                dtype=lengths.dtype,
                device=lengths.device,
            ).tril(-1)
            norm = normal.pow(2).sum(-1, keepdim=True).sqrt()
            direction = normal / norm.clamp(min=finfo(norm.dtype).tiny)
            w = lengths.sqrt() * direction  # the first row is zero
            tiny = finfo(w.dtype).tiny
            diagonal = (1 - w.pow(2).sum(-1)).clamp(min=tiny).sqrt()
            return w + diagonal.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        # The Jacobian of the factor counts each diagonal element by the length of its column.
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = arange(2, self.dim + 1, dtype=value.dtype, device=value.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        density = (order * diagonal.log()).sum(-1)
        rest = self.dim - 1
        alpha = self.concentration + 0.5 * rest
        places = arange(1, rest + 1, dtype=value.dtype, device=value.device)
        # π^((n - 1) n / 4) Π Γ(η + (n - 1 - k) / 2) / Γ(η + (n - 1) / 2)^(n - 1), n the dimension.
        log_gammas = lgamma(alpha.unsqueeze(-1) - 0.5 * places).sum(-1)
        normalizer = rest * (rest + 1) / 4 * math.log(math.pi) + log_gammas - lgamma(alpha) * rest
        return density - normalizer
