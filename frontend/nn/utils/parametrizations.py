"""Ready parametrizations: weight norm, spectral norm, and orthogonal matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.ir.location import at_user_line

from ...autograd import no_grad
from ...functions.creation import eye, zeros_like
from ...functions.joining import cat
from ...functions.limits import finfo
from ...functions.sampling import randn
from ...linalg import householder_product, matrix_exp, qr, solve
from ...linalg.root import geqrf
from .. import functional as F
from ..module import Module
from . import parametrize
from .hooked_norms import norm_except_dim, weight_of

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


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
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(partial(_take_old_names, name))
    return module


def _take_old_names(name: str, state_dict: Any, prefix: str, *_: Any) -> None:
    """Give the tensors of `torch.nn.utils.weight_norm` in a state their names here."""
    old = [f"{prefix}{name}_{each}" for each in "gv"]
    if all(key in state_dict for key in old):
        for i, key in enumerate(old):
            state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)


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
                v.copy_(F.normalize(matrix.t().conj() @ u, dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / (u.conj() * (matrix @ v)).sum()

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


class _Orthogonal(Module):
    """A matrix with orthonormal columns (rows, if it is wide) from any matrix X of its shape.

    form: 'matrix_exp' and 'cayley' take the skew matrix of X's lower triangle, whose exponential
    and Cayley transform are orthogonal; 'householder' takes the reflectors below the diagonal.
    base: a matrix that is multiplied from the left, so that any orthogonal matrix can be set.
    """

    base: Any

    def __init__(self, weight: Any, form: str, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and form == "householder":
            raise ValueError(
                "The householder parametrization does not support complex tensors." + at_user_line()
            )
        self.shape, self.form = weight.shape, form
        self.register_buffer("base", None)
        if use_trivialization:
            self.base = _whole(weight)

    def forward(self, X: Any) -> Any:
        n, k = X.shape[-2:]
        wide = n < k
        if wide:
            X, n, k = X.mT, k, n
        if self.form == "householder":
            reflectors = X.tril(diagonal=-1)
            factors = 2.0 / (1.0 + (reflectors * reflectors).sum(dim=-2))
            Q = householder_product(reflectors, factors)
            Q = Q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            X = X.tril()
            if n != k:
                X = cat([X, X.new_zeros(n, n - k).expand(*X.shape[:-2], -1, -1)], dim=-1)
            skew = X - X.mH
            if self.form == "matrix_exp":
                Q = matrix_exp(skew)
            else:
                one = eye(n, dtype=X.dtype, device=X.device)
                Q = solve(one - skew / 2, one + skew / 2)
            Q = Q[..., :k]
        if self.base is not None:
            Q = self.base @ Q
        return Q.mT if wide else Q

    def right_inverse(self, Q: Any) -> Any:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {tuple(self.shape)}. Got a tensor"
                f" of shape {tuple(Q.shape)}.{at_user_line()}"
            )
        wide = Q.shape[-2] < Q.shape[-1]
        tall = Q.mT if wide else Q
        if self.base is None:
            if self.form != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley "
                    f"parametrizations when use_trivialization=False.{at_user_line()}"
                )
            A, tau = geqrf(tall)
            # The signs that LAPACK's reflectors leave to R stand on the diagonal.
            A.diagonal(dim1=-2, dim2=-1).sign_()
            A.diagonal(dim1=-2, dim2=-1)[tau == 0.0] *= -1
            return A.mT if wide else A
        self.base = _completed(tall if _is_orthonormal(tall) else _orthonormal(tall))
        # Each map makes the identity of this matrix.
        start = zeros_like(Q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start


def _whole(weight: Any) -> Any:
    n = max(weight.shape[-2:])
    return eye(n, dtype=weight.dtype, device=weight.device).expand(*weight.shape[:-2], n, n).clone()


def _is_orthonormal(Q: Any) -> bool:
    """Whether the columns are orthonormal to the accuracy of their dtype."""
    k = Q.shape[-1]
    one = eye(k, dtype=Q.dtype, device=Q.device)
    eps = 10.0 * k * finfo(Q.dtype).eps
    return bool(((Q.mH @ Q - one).abs() <= eps).all())


def _orthonormal(X: Any) -> Any:
    """The orthonormal columns of a QR decomposition, of determinant and signs as X's."""
    Q, R = qr(X)
    return Q * R.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _completed(Q: Any) -> Any:
    """An orthogonal matrix whose first columns are Q."""
    n, k = Q.shape[-2:]
    if n == k:
        return Q.clone()
    more = randn(*Q.shape[:-1], n - k, dtype=Q.dtype, device=Q.device)
    more = more - Q @ (Q.mH @ more)
    more = more - Q @ (Q.mH @ more)  # once more, for what rounding left
    return cat([Q, _orthonormal(more)], dim=-1)


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a weight orthogonal: its columns, or its rows if it is wide, are orthonormal.

    orthogonal_map: 'matrix_exp', by default for square matrices and complex ones, 'cayley', or
    'householder', the default of others. use_trivialization: steps start at the present weight;
    without it the first two maps can't be assigned to. Lezcano-Casado, arXiv 1909.09501.
    """
    weight = getattr(module, name, None)
    if weight is None or not hasattr(weight, "detach"):
        raise ValueError(
            f"Module '{module}' has no parameter or buffer with name '{name}'{at_user_line()}"
        )
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
            + at_user_line()
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
            f"{orthogonal_map}{at_user_line()}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
