"""The divergences KL(p || q) of normal distributions of vectors."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import broadcast

from .. import Tensor
from ..linalg import solve_triangular
from .kl import register_kl
from .lowrank_multivariate_normal import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal, half_log_det, mahalanobis


def _require_same_size(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            f"computed{at_user_line()}"
        )


def _half_log_det(d: Any) -> Any:
    if isinstance(d, LowRankMultivariateNormal):
        return d._half_log_det()
    return half_log_det(d._unbroadcasted_scale_tril)


def _roots(d: Any) -> list[Any]:
    """Matrices whose squares A Aᵀ sum to the covariance matrix."""
    if isinstance(d, LowRankMultivariateNormal):
        return [d._unbroadcasted_cov_factor, d._unbroadcasted_cov_diag.sqrt().diag_embed()]
    return [d._unbroadcasted_scale_tril]


def _solved(factor: Any, matrix: Any) -> Any:
    """L⁻¹ A; batches broadcast."""
    shape = broadcast(factor.shape[:-2], matrix.shape[:-2])
    return solve_triangular(
        factor.expand(*shape, *factor.shape[-2:]),
        matrix.expand(*shape, *matrix.shape[-2:]),
        upper=False,
    )


def _square(matrix: Any) -> Any:
    return matrix.pow(2).sum((-2, -1))


def _traces(p: Any, q: Any) -> Any:
    """The trace of Σq⁻¹ Σp."""
    total: Any = 0.0
    for root in _roots(p):
        if isinstance(q, LowRankMultivariateNormal):
            # The Woodbury identity: D⁻¹ - (Wᵀ D⁻¹)ᵀ C⁻¹ (Wᵀ D⁻¹).
            diagonal = q._unbroadcasted_cov_diag
            scaled = q._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
            inner = _solved(q._capacitance_tril, scaled @ root)
            total = total + _square(root / diagonal.sqrt().unsqueeze(-1)) - _square(inner)
        else:
            total = total + _square(_solved(q._unbroadcasted_scale_tril, root))
    return total


def _distance(p: Any, q: Any) -> Any:
    """(μq - μp)ᵀ Σq⁻¹ (μq - μp)."""
    off = q.loc - p.loc
    if not isinstance(q, LowRankMultivariateNormal):
        return mahalanobis(q._unbroadcasted_scale_tril, off)
    diagonal = q._unbroadcasted_cov_diag
    scaled = q._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
    within = (scaled @ off.unsqueeze(-1)).squeeze(-1)
    return (off.pow(2) / diagonal).sum(-1) - mahalanobis(q._capacitance_tril, within)


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _normals(p: Any, q: Any) -> Tensor:
    _require_same_size(p, q)
    n = p.event_shape[0]
    log_dets = _half_log_det(q) - _half_log_det(p)
    result: Tensor = log_dets + 0.5 * (_traces(p, q) + _distance(p, q) - n)
    return result
