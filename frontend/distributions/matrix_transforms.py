"""Transforms of vectors, to simplices and to matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import arange, eye, finfo
from ..nn.functional import logsigmoid, pad, softplus
from . import constraints
from .transform import Transform
from .utils import tril_matrix_to_vec, vec_to_tril_matrix


def _need(shape: Sequence[int], dims: int) -> None:
    if len(shape) < dims:
        raise ValueError(f"Too few dimensions on input{at_user_line()}")


class SoftmaxTransform(Transform):
    """y = softmax(x) over the last dimension; log y is one of the x that give y."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftmaxTransform)

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.softmax(-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Sequence[int]) -> Any:
        _need(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """k - 1 real numbers to k numbers that sum to one: each breaks its part off what is left.

    The offsets log(k - i) make x = 0 the centre of the simplex (Stan's reference manual, "Unit
    simplex").
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingTransform)

    __hash__ = object.__hash__

    @staticmethod
    def _centred(x: Any) -> Any:
        left = arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device)
        return x - left.log()

    def _call(self, x: Any) -> Any:
        broken = self._centred(x).sigmoid()
        left = (1 - broken).cumprod(-1)
        return pad(broken, (0, 1), value=1) * pad(left, (1, 0), value=1)

    def _inverse(self, y: Any) -> Any:
        parts = y[..., :-1]
        left = (1 - parts.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        offsets = arange(parts.shape[-1], 0, -1, dtype=y.dtype, device=y.device).log()
        return parts.log() - left.log() + offsets

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        # dy_i / dx_i = (what is left) s (1 - s) = y_i (1 - s), of a triangular Jacobian.
        x = self._centred(x)
        return (logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        _need(shape, 1)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        _need(shape, 1)
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(Transform):
    """Square matrices to lower triangular ones with positive diagonals, which are exp of theirs."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Square matrices to positive definite ones: L Lᵀ of LowerCholeskyTransform's L."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        from ..linalg import cholesky

        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(Transform):
    """n (n - 1) / 2 real numbers to the Cholesky factor of a correlation matrix of size n.

    tanh makes partial correlations z of them. Row by row, each takes its part of what is left of
    the row's length: y_ij = z_ij sqrt(1 - Σ_{k<j} y_ik²) (Lewandowski, Kurowicka and Joe,
    "Generating random correlation matrices based on vines", 2009).
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = finfo(x.dtype).eps
        z = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - z * z).cumprod(-1).sqrt()  # the length that is left behind each column
        one = eye(z.shape[-1], dtype=z.dtype, device=z.device)
        return (z + one) * pad(left[..., :-1], (1, 0), value=1)

    def _inverse(self, y: Any) -> Any:
        left = 1 - (y * y).cumsum(-1)
        left = pad(left[..., :-1], (1, 0), value=1)
        ratio = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return ratio.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        # Of the rows: d y_ij / d z_ij is the length left before it. Of tanh: 1 - tanh².
        left = 1 - (y * y).cumsum(-1)
        lengths = tril_matrix_to_vec(pad(left[..., :-1], (1, 0), value=1), diag=-1)
        of_rows = 0.5 * lengths.log().sum(-1)
        of_tanh = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)
        return of_rows + of_tanh

    def forward_shape(self, shape: Sequence[int]) -> Any:
        _need(shape, 1)
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError(f"Input is not a flattened lower-diagonal number{at_user_line()}")
        return Size((*shape[:-1], size, size))

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        _need(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError(f"Input is not square{at_user_line()}")
        size = shape[-1]
        return Size((*shape[:-2], size * (size - 1) // 2))
