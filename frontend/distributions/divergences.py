"""The divergences KL(p || q) of distributions of numbers.

Across families they are -H(p) - E_p[log q(x)]. The second term needs a few moments of p: the mean,
the variance, E[log x].
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir.location import at_user_line

from .. import Tensor, digamma, erf, exp, full_like, inf, lgamma, log, log1p, where, zeros_like
from ..autograd import enable_grad, grad
from ..nn.functional import softplus
from . import matrix_divergences  # noqa: F401  (registers pairs)
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .kl import kl_divergence, register_kl
from .laplace import Laplace
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import broadcast_all, euler_constant, sum_rightmost

# ---- within a family -------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    one = where(p.probs == 0, 0.0, where(q.probs == 0, inf, one))
    zero = where(p.probs == 1, 0.0, where(q.probs == 1, inf, zero))
    return one + zero


@register_kl(Beta, Beta)
def _betas(p: Beta, q: Beta) -> Tensor:
    return _dirichlets(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlets(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    normalizers = lgamma(total) - lgamma(b.sum(-1)) - (lgamma(a) - lgamma(b)).sum(-1)
    return normalizers + ((a - b) * (digamma(a) - digamma(total).unsqueeze(-1))).sum(-1)


@register_kl(Binomial, Binomial)
def _binomials(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
            f"{at_user_line()}"
        )
    kl = p.total_count * (p.probs * (p.logits - q.logits) + log1p(-p.probs) - log1p(-q.probs))
    return where(p.total_count > q.total_count, inf, kl)


@register_kl(Categorical, Categorical)
def _categoricals(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = where(p.probs == 0, 0.0, where(q.probs == 0, inf, terms))
    return terms.sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categoricals(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categoricals(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoullis(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() + _cross_continuous_bernoulli(p.mean, q)


@register_kl(Exponential, Exponential)
def _exponentials(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - log(ratio) - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_families(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log normalizer (Nielsen and Nock, ICIP 2010)."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed "
            f"using Bregman divergences{at_user_line()}"
        )
    with enable_grad():
        of_p = [t.detach().requires_grad_() for t in p._natural_params]
        normalizer = p._log_normalizer(*of_p)
        slopes = grad(normalizer.sum(), of_p, create_graph=True)
    of_q = q._natural_params
    result: Any = q._log_normalizer(*of_q) - normalizer
    for a, b, slope in zip(of_p, of_q, slopes):
        result = result - sum_rightmost((b - a) * slope, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gammas(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = lgamma(b) - lgamma(a) + (a - b) * digamma(a)
    return b * log(p.rate / q.rate) + shapes + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbels(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, off = p.scale / q.scale, (p.loc - q.loc) / q.scale
    transform = exp(lgamma(1 + ratio) - off)
    return off - log(ratio) + ratio * euler_constant + transform - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometrics(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normals(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normals(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplaces(p: Laplace, q: Laplace) -> Tensor:
    ratio, off = p.scale / q.scale, (p.loc - q.loc).abs()
    return -log(ratio) + off / q.scale + ratio * exp(-off / p.scale) - 1


@register_kl(Normal, Normal)
def _normals(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    off = ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + off - 1 - log(ratio))


@register_kl(Cauchy, Cauchy)
def _cauchys(p: Cauchy, q: Cauchy) -> Tensor:
    """Chyzak and Nielsen, arXiv 1905.10965."""
    sums = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return log(sums) - log(4 * p.scale * q.scale)


@register_kl(Pareto, Pareto)
def _paretos(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    kl = q.alpha * log(p.scale / q.scale) - log(ratio) + ratio - 1
    return where(p.scale < q.scale, inf, kl)


@register_kl(Poisson, Poisson)
def _poissons(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (log(p.rate) - log(q.rate)) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniforms(p: Uniform, q: Uniform) -> Tensor:
    kl = log((q.high - q.low) / (p.high - p.low))
    return where((q.low > p.low) | (q.high < p.high), inf, kl)


@register_kl(Independent, Independent)
def _independents(p: Independent, q: Independent) -> Tensor:
    dims = p.reinterpreted_batch_ndims
    if dims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), dims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    more = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), more)


# ---- across families: the cross entropies -E[log q(x)] ---------------------------------------


def _cross_exponential(mean: Any, q: Exponential) -> Any:
    return q.rate * mean - log(q.rate)


def _cross_gamma(mean: Any, mean_log: Any, q: Gamma) -> Any:
    a, rate = q.concentration, q.rate
    return lgamma(a) - a * log(rate) - (a - 1) * mean_log + rate * mean


def _cross_normal(mean: Any, variance: Any, q: Normal) -> Any:
    square = q.scale.pow(2)
    return 0.5 * (log(2 * math.pi * square) + (variance + (mean - q.loc).pow(2)) / square)


def _cross_continuous_bernoulli(mean: Any, q: ContinuousBernoulli) -> Any:
    return -mean * q.logits - log1p(-q.probs) - q._cont_bern_log_norm()


def _cross_gumbel(mean: Any, mean_exp: Any, q: Gumbel) -> Any:
    """mean_exp: E[exp(-(x - loc) / scale)]."""
    return log(q.scale) + (mean - q.loc) / q.scale + mean_exp


# ---- across families -------------------------------------------------------------------------


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - p.probs * log(q.rate) + q.rate


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p: Beta, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() + _cross_continuous_bernoulli(p.mean, q)


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
def _unit_exponential(p: Any, q: Exponential) -> Tensor:
    return -p.entropy() + _cross_exponential(p.mean, q)


@register_kl(Beta, Gamma)
def _beta_gamma(p: Beta, q: Gamma) -> Tensor:
    a, b = p.concentration1, p.concentration0
    return -p.entropy() + _cross_gamma(p.mean, digamma(a) - digamma(a + b), q)


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _any_normal(p: Any, q: Normal) -> Tensor:
    return -p.entropy() + _cross_normal(p.mean, p.variance, q)


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _unit_uniform(p: Any, q: Uniform) -> Tensor:
    kl = -p.entropy() + log(q.high - q.low)
    return where((q.low > 0) | (q.high < 1), inf, kl)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    return -p.entropy() + _cross_gamma(p.mean, -log(p.rate) - euler_constant, q)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Exponential, q: Gumbel) -> Tensor:
    product = p.rate * q.scale
    mean_exp = exp(q.loc / q.scale) * product / (product + 1)
    return -p.entropy() + _cross_gumbel(p.mean, mean_exp, q)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Gamma, q: Exponential) -> Tensor:
    return -p.entropy() + _cross_exponential(p.mean, q)


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Gamma, q: Gumbel) -> Tensor:
    mean_exp = exp(q.loc / q.scale - p.concentration * log1p(1 / (p.rate * q.scale)))
    return -p.entropy() + _cross_gumbel(p.mean, mean_exp, q)


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Tensor:
    mean_exp = exp((q.loc - p.loc) / q.scale + 0.5 * (p.scale / q.scale).pow(2))
    return -p.entropy() + _cross_gumbel(p.mean, mean_exp, q)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    z = (p.loc - q.loc) / p.scale
    # E|x - loc| of a normal x: the mean of a folded normal distribution.
    folded = math.sqrt(2 / math.pi) * exp(-0.5 * z.pow(2)) + z * erf(math.sqrt(0.5) * z)
    return -p.entropy() + log(2 * q.scale) + p.scale * folded / q.scale


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Pareto, q: Exponential) -> Tensor:
    return where(p.alpha <= 1, inf, -p.entropy() + _cross_exponential(p.mean, q))


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Pareto, q: Gamma) -> Tensor:
    mean_log = log(p.scale) + p.alpha.reciprocal()
    return where(p.alpha <= 1, inf, -p.entropy() + _cross_gamma(p.mean, mean_log, q))


@register_kl(Pareto, Normal)
def _pareto_normal(p: Pareto, q: Normal) -> Tensor:
    return where(p.alpha <= 2, inf, -p.entropy() + _cross_normal(p.mean, p.variance, q))


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    log_beta = lgamma(a) + lgamma(b) - lgamma(a + b)
    inside = _mean_log(p.low, p.high), _mean_log(1 - p.high, 1 - p.low)
    kl = -p.entropy() + log_beta - (a - 1) * inside[0] - (b - 1) * inside[1]
    return where((p.high > 1) | (p.low < 0), inf, kl)


def _mean_log(low: Any, high: Any) -> Any:
    """E[log x] of numbers uniform in [low, high]."""

    def integral(x: Any) -> Any:
        return where(x > 0, x * log(where(x > 0, x, 1.0)) - x, 0.0)

    return (integral(high) - integral(low)) / (high - low)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    kl = -p.entropy() + _cross_continuous_bernoulli(p.mean, q)
    return where((p.high > 1) | (p.low < 0), inf, kl)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return where(p.low < 0, inf, -p.entropy() + _cross_exponential(p.mean, q))


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    kl = -p.entropy() + _cross_gamma(p.mean, _mean_log(p.low, p.high), q)
    return where(p.low < 0, inf, kl)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Uniform, q: Gumbel) -> Tensor:
    low, high = (exp((q.loc - end) / q.scale) for end in (p.low, p.high))
    mean_exp = q.scale * (low - high) / (p.high - p.low)
    return -p.entropy() + _cross_gumbel(p.mean, mean_exp, q)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    a = q.alpha
    cross = (a + 1) * _mean_log(p.low, p.high) - log(a) - a * log(q.scale)
    return where(p.low < q.scale, inf, -p.entropy() + cross)


def _infinite(p: Any, q: Any) -> Tensor:
    """The divergence where p has values that q never has."""
    if isinstance(p, Poisson):
        return full_like(p.rate, inf)
    return full_like(broadcast_all(p.entropy(), zeros_like(q.mean))[0], inf)


_ON_LINE: tuple[type, ...] = (Gumbel, Laplace, Normal)
_ABOVE_ZERO: tuple[type, ...] = (Exponential, Gamma)
_IN_UNIT: tuple[type, ...] = (Beta, ContinuousBernoulli)
_LARGER = (
    ((*_ON_LINE, *_ABOVE_ZERO, Pareto), (*_IN_UNIT, Uniform)),
    ((*_ON_LINE, *_ABOVE_ZERO, *_IN_UNIT), (Pareto,)),
    (_ON_LINE, _ABOVE_ZERO),
    ((Poisson,), (Bernoulli, Binomial)),
)
"""Families p with values that no member of q has."""
for _of_p, _of_q in _LARGER:
    for _p in _of_p:
        for _q in _of_q:
            register_kl(_p, _q)(_infinite)
