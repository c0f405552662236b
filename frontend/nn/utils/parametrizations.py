"""Ready parametrizations: weight norm, and spectral norm."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line

from ...autograd import no_grad
from ...functions.sampling import randn
from .. import functional as F
from ..module import Module
from . import parametrize
from .hooked_norms import norm_except_dim, weight_of

__all__ = ["spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    """The weight from original0, its length, and original1, its direction."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return weight_of(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Train the length and the direction of a weight instead of the weight; Salimans and Kingma,
    arXiv 1602.07868. dim: along which there is a length for each place; None: one for all."""
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    """weight / its largest singular value, which power iteration finds step by step."""

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        rank = weight.dim()
        if not -rank <= dim < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{rank}, {rank - 1}] but got "
                f"{dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got n_power_iterations="
                f"{n_power_iterations}{at_user_line()}"
            )
        self.dim = dim if dim >= 0 else dim + rank
        self.eps = eps
        if rank > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight.detach())
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                start = randn(size, dtype=matrix.dtype, device=matrix.device)
                self.register_buffer(name, F.normalize(start, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Any) -> Any:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Any, count: int) -> None:
        u: Any = self._u
        v: Any = self._v
        with no_grad():
            for _ in range(count):
                u.copy_(F.normalize(matrix @ v, dim=0, eps=self.eps))
                v.copy_(F.normalize(matrix.t() @ u, dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, value: Any) -> Any:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value as a matrix of `dim` against the rest; Miyato
    et al., arXiv 1802.05957. By default `dim` is that of the outputs."""
    weight = getattr(module, name, None)
    if weight is None or not hasattr(weight, "detach"):
        raise ValueError(
            f"Module '{module}' has no parameter or buffer with name '{name}'{at_user_line()}"
        )
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, made)
