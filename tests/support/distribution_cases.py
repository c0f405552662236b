"""Distributions to compare with PyTorch's: their parameters, as nested lists, and how to make
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A distribution: the class, its tensors by name, and other options."""

    name: str
    tensors: dict[str, Any]
    options: dict[str, Any] = {}
    dtype: str = "float64"

    def make(self, module: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
        """The distribution of `module` (torch or tilewright), and its parameters."""
        leaves = {
            name: module.tensor(value, dtype=getattr(module, self.dtype), requires_grad=True)
            for name, value in self.tensors.items()
        }
        made = getattr(module.distributions, self.name)(**leaves, **self.options, **more)
        return made, leaves

    @property
    def id(self) -> str:
        return "-".join([self.name, *self.tensors])


_POSITIVE = [[0.3, 1.7, 4.0], [2.5, 0.9, 12.0]]
_OTHER = [[1.2, 0.6, 3.1], [0.4, 5.0, 1.9]]
_REAL = [[-1.3, 0.2, 2.0], [0.7, -0.1, 4.0]]
_PROBS = [[0.2, 0.7, 0.5], [0.9, 0.05, 0.33]]
_ROWS = [[0.2, 0.3, 0.5], [0.7, 0.1, 0.2]]
_LOGITS = [[0.2, -1.3, 0.5], [1.7, 0.1, -0.2]]

CASES = [
    Case("Bernoulli", {"probs": _PROBS}),
    Case("Bernoulli", {"logits": _LOGITS}),
    Case("Beta", {"concentration1": _POSITIVE, "concentration0": _OTHER}),
    Case("Binomial", {"probs": _PROBS}, {"total_count": 7}),
    Case("Binomial", {"logits": _LOGITS}, {"total_count": 3}),
    Case("Categorical", {"probs": _ROWS}),
    Case("Categorical", {"logits": _LOGITS}),
    Case("Cauchy", {"loc": _REAL, "scale": _POSITIVE}),
    Case("Chi2", {"df": _POSITIVE}),
    Case("ContinuousBernoulli", {"probs": _PROBS}),
    Case("ContinuousBernoulli", {"logits": _LOGITS}),
    Case("Dirichlet", {"concentration": _POSITIVE}),
    Case("Exponential", {"rate": _POSITIVE}),
    Case("FisherSnedecor", {"df1": _POSITIVE, "df2": [[5.0, 2.5, 7.0], [3.0, 9.0, 20.0]]}),
    Case("Gamma", {"concentration": _POSITIVE, "rate": _OTHER}),
    Case(
        "GeneralizedPareto",
        {"loc": _REAL, "scale": _POSITIVE, "concentration": [[-0.4, 0.0, 0.2], [0.45, 0.7, 1.3]]},
        dtype="float32",  # PyTorch's fails for float64
    ),
    Case("Geometric", {"probs": _PROBS}),
    Case("Geometric", {"logits": _LOGITS}),
    Case("Gumbel", {"loc": _REAL, "scale": _POSITIVE}),
    Case("HalfCauchy", {"scale": _POSITIVE}),
    Case("HalfNormal", {"scale": _POSITIVE}),
    Case("InverseGamma", {"concentration": _POSITIVE, "rate": _OTHER}),
    Case("Kumaraswamy", {"concentration1": _POSITIVE, "concentration0": _OTHER}),
    Case("Laplace", {"loc": _REAL, "scale": _POSITIVE}),
    Case("LogNormal", {"loc": _REAL, "scale": _OTHER}),
    Case("LogisticNormal", {"loc": _REAL, "scale": _POSITIVE}),
    Case("Multinomial", {"probs": _ROWS}, {"total_count": 6}),
    Case("Multinomial", {"logits": _LOGITS}, {"total_count": 4}),
    Case("NegativeBinomial", {"total_count": _POSITIVE, "probs": _PROBS}),
    Case("NegativeBinomial", {"total_count": _POSITIVE, "logits": _LOGITS}),
    Case("Normal", {"loc": _REAL, "scale": _POSITIVE}),
    Case("Normal", {"loc": 0.3, "scale": _POSITIVE}),
    Case("OneHotCategorical", {"probs": _ROWS}),
    Case("OneHotCategorical", {"logits": _LOGITS}),
    Case("OneHotCategoricalStraightThrough", {"probs": _ROWS}),
    Case("Pareto", {"scale": _POSITIVE, "alpha": _OTHER}),
    Case("Poisson", {"rate": _POSITIVE}),
    Case("RelaxedBernoulli", {"temperature": 0.7, "probs": _PROBS}),
    Case("RelaxedBernoulli", {"temperature": 0.7, "logits": _LOGITS}),
    Case("RelaxedOneHotCategorical", {"temperature": 0.7, "probs": _ROWS}),
    Case("RelaxedOneHotCategorical", {"temperature": 1.3, "logits": _LOGITS}),
    Case("StudentT", {"df": _POSITIVE, "loc": _REAL, "scale": _OTHER}),
    Case("Uniform", {"low": _REAL, "high": [[0.0, 0.5, 2.5], [2.0, 1.0, 9.0]]}),
    Case("VonMises", {"loc": _REAL, "concentration": _POSITIVE}),
    Case("Weibull", {"scale": _POSITIVE, "concentration": _OTHER}),
]

_MATRICES = [
    [[1.3, 0.2, 0.1], [0.2, 0.9, -0.3], [0.1, -0.3, 2.0]],
    [[0.7, 0.0, 0.1], [0.0, 1.5, 0.4], [0.1, 0.4, 1.1]],
]
_FACTORS = [
    [[1.3, 0.0, 0.0], [0.2, 0.9, 0.0], [0.1, -0.3, 2.0]],
    [[0.7, 0.0, 0.0], [0.5, 1.5, 0.0], [0.1, 0.4, 1.1]],
]
_W = [[[0.5, 1.0], [-0.2, 0.3], [1.1, 0.0]], [[1.5, 0.1], [0.2, -0.7], [0.4, 0.9]]]

MATRIX_CASES = [
    Case("MultivariateNormal", {"loc": _REAL, "covariance_matrix": _MATRICES}),
    Case("MultivariateNormal", {"loc": _REAL, "precision_matrix": _MATRICES}),
    Case("MultivariateNormal", {"loc": _REAL, "scale_tril": _FACTORS}),
    Case("MultivariateNormal", {"loc": _REAL, "scale_tril": _FACTORS[0]}),
    Case("MultivariateNormal", {"loc": _REAL[0], "covariance_matrix": _MATRICES}),
    Case("LowRankMultivariateNormal", {"loc": _REAL, "cov_factor": _W, "cov_diag": _POSITIVE}),
    Case("LowRankMultivariateNormal", {"loc": _REAL, "cov_factor": _W[0], "cov_diag": _OTHER[0]}),
    Case("LKJCholesky", {"concentration": [0.7, 2.5]}, {"dim": 4}),
    Case("LKJCholesky", {"concentration": 1.0}, {"dim": 2}),
    Case("Wishart", {"df": [4.5, 7.0], "covariance_matrix": _MATRICES}),
    Case("Wishart", {"df": 5.5, "precision_matrix": _MATRICES}),
    Case("Wishart", {"df": [3.5, 9.0], "scale_tril": _FACTORS[0]}),
]

MADE: dict[str, Callable[[Any], Any]] = {
    "Independent": lambda m: m.distributions.Independent(
        m.distributions.Normal(_tensor(m, _REAL), _tensor(m, _POSITIVE)), 1
    ),
    "Independent of vectors": lambda m: m.distributions.Independent(
        m.distributions.Dirichlet(_tensor(m, _POSITIVE)), 1
    ),
    "mixture of normals": lambda m: m.distributions.MixtureSameFamily(
        m.distributions.Categorical(_tensor(m, _ROWS)),
        m.distributions.Normal(_tensor(m, _REAL), _tensor(m, _POSITIVE)),
    ),
    "mixture of vectors": lambda m: m.distributions.MixtureSameFamily(
        m.distributions.Categorical(_tensor(m, [0.3, 0.7])),
        m.distributions.Independent(
            m.distributions.Normal(_tensor(m, _REAL), _tensor(m, _POSITIVE)), 1
        ),
    ),
    "mixture of counts": lambda m: m.distributions.MixtureSameFamily(
        m.distributions.Categorical(_tensor(m, _ROWS)),
        m.distributions.Poisson(_tensor(m, _POSITIVE)),
    ),
    "transformed": lambda m: m.distributions.TransformedDistribution(
        m.distributions.Normal(_tensor(m, _REAL), _tensor(m, _POSITIVE)),
        [
            m.distributions.AffineTransform(_tensor(m, 0.5), _tensor(m, [1.0, -2.0, 0.5])),
            m.distributions.SigmoidTransform(),
        ],
    ),
    "transformed falls": lambda m: m.distributions.TransformedDistribution(
        m.distributions.Exponential(_tensor(m, _POSITIVE)),
        [m.distributions.AffineTransform(1.0, -2.0)],
    ),
    "transformed vectors": lambda m: m.distributions.TransformedDistribution(
        m.distributions.Normal(_tensor(m, _REAL), _tensor(m, _POSITIVE)),
        [m.distributions.StickBreakingTransform()],
    ),
    "transformed to more dimensions": lambda m: m.distributions.TransformedDistribution(
        m.distributions.Normal(_tensor(m, 0.0), _tensor(m, 1.0)),
        [m.distributions.AffineTransform(_tensor(m, _REAL), _tensor(m, _POSITIVE))],
    ),
    "reshaped": lambda m: m.distributions.TransformedDistribution(
        m.distributions.Normal(_tensor(m, _REAL), _tensor(m, _POSITIVE)),
        [m.distributions.ReshapeTransform((2, 3), (6,))],
    ),
}
"""Distributions that are made of others."""


def _tensor(module: Any, value: Any) -> Any:
    return module.tensor(value, dtype=module.float64)
