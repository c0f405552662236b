"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from ...functions import creation
from .api import f
from .scores import classified, labelled, labels_of, transformed
from .table import ML, operator
from .values import tensor_of


def _rows(values: list[float], count: int, device: Any) -> Any:
    """The numbers as float32 [count, ...]."""
    return tensor_of(np.array(values, np.float32).reshape(count, -1), device)


def _batch(x: Any) -> Any:
    """One example for each row."""
    x = x.to(dtypes.float32)
    return x.unsqueeze(0) if x.dim() == 1 else x


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    x: Any,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Any:
    y = _batch(x) @ _rows(coefficients, targets, x.device).t()
    if intercepts:
        y = y + _rows(intercepts, 1, x.device)
    return transformed(y, post_transform)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    x: Any,
    *,
    coefficients: list[float],
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    intercepts: list[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> Any:
    x = _batch(x)
    labels = labels_of(classlabels_ints, classlabels_strings)
    count = len(coefficients) // x.shape[1]
    scores = x @ _rows(coefficients, count, x.device).t()
    if intercepts:
        scores = scores + _rows(intercepts, 1, x.device)
    return classified(scores, labels, post_transform)


@dataclass(frozen=True)
class _Kernel:
    """A kernel of two vectors: gamma, the constant and the degree are ONNX's kernel_params."""

    kind: str
    params: tuple[float, ...]

    def __call__(self, a: Any, b: Any) -> Any:
        """The kernel of each row of a[n, size] with each of b[m, size]: [n, m]."""
        gamma, constant, degree = (*self.params, 0.0, 0.0, 0.0)[:3]
        if self.kind == "RBF":
            return f.exp(-gamma * ((a.unsqueeze(1) - b) ** 2).sum(-1))
        product = a @ b.t()
        if self.kind == "POLY":
            return (gamma * product + constant) ** degree
        return f.tanh(gamma * product + constant) if self.kind == "SIGMOID" else product


@operator("SVMRegressor", domain=ML)
def svm_regressor(
    x: Any,
    *,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: list[float],
    support_vectors: list[float] | None = None,
) -> Any:
    x = _batch(x)
    if n_supports:
        kernel = _Kernel(kernel_type, tuple(kernel_params or ()))
        near = kernel(x, _rows(support_vectors or [], n_supports, x.device))
        y = near @ _rows(coefficients, 1, x.device).t()
    else:
        y = x @ _rows(coefficients, 1, x.device).t()
    y = y + rho[0]
    if one_class:
        return f.where(y > 0, 1.0, -1.0)
    return transformed(y, post_transform)


@operator("SVMClassifier", domain=ML)
def svm_classifier(
    x: Any,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
    rho: list[float],
    support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
) -> Any:
    """A machine for each pair of classes. Each votes for one of them; the most votes win."""
    x = _batch(x)
    labels = labels_of(classlabels_ints, classlabels_strings)
    if not vectors_per_class:  # one linear function for each class
        weights = _rows(coefficients, len(labels), x.device)
        scores = x @ weights.t() + _rows(rho, 1, x.device)[:, :1]
        return classified(scores, labels, post_transform)
    classes, total = len(vectors_per_class), sum(vectors_per_class)
    kernel = _Kernel(kernel_type, tuple(kernel_params or ()))
    near = kernel(x, _rows(support_vectors or [], total, x.device))  # [n, vectors]
    weights = np.array(coefficients, np.float32).reshape(classes - 1, total)
    ends = np.cumsum([0, *vectors_per_class])
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    columns = np.zeros((total, len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        first, second = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        columns[first, p] = weights[j - 1, first]
        columns[second, p] = weights[i, second]
    decisions = near @ tensor_of(columns, x.device) + _rows(rho, 1, x.device)
    label = labelled(f.argmax(_votes(decisions, pairs, classes), 1), labels)
    if prob_a:
        a, b = _rows(prob_a, 1, x.device), _rows(prob_b or [], 1, x.device)
        shares = _coupled(f.sigmoid(-(decisions * a + b)), pairs, classes)
        return label, transformed(shares, post_transform)
    if classes == 2:  # the decision is for the first class; onnxruntime has it behind its negative
        scores = f.cat([-decisions, decisions], 1)
        return label, transformed(scores, post_transform)
    return label, transformed(decisions, post_transform)


def _votes(decisions: Any, pairs: list[tuple[int, int]], classes: int) -> Any:
    """How many machines vote for each class: [n, classes]."""
    first = (decisions > 0).to(dtypes.float32)
    choice = np.zeros((2, len(pairs), classes), np.float32)
    for p, (i, j) in enumerate(pairs):
        choice[0, p, i] = choice[1, p, j] = 1
    for_first, for_second = (tensor_of(c, decisions.device) for c in choice)
    return first @ for_first + (1 - first) @ for_second


def _coupled(shares: Any, pairs: list[tuple[int, int]], classes: int) -> Any:
    """The shares of all classes from those of pairs: the second method of Wu, Lin and Weng
    (Probability estimates for multi-class classification by pairwise coupling, 2004)."""
    if classes == 2:
        return f.cat([shares, 1 - shares], 1)
    n = shares.shape[0]
    clipped = f.clamp(shares, 1e-7, 1 - 1e-7)
    r = [[creation.zeros(n, device=shares.device)] * classes for _ in range(classes)]
    for p, (i, j) in enumerate(pairs):
        r[i][j], r[j][i] = clipped[:, p], 1 - clipped[:, p]
    pairwise = f.stack([f.stack(row, 1) for row in r], 1)  # [n, i, j]: i beats j
    quadratic = -pairwise.transpose(1, 2) * pairwise
    own = (pairwise.transpose(1, 2) ** 2).sum(2)
    quadratic = quadratic + f.diag_embed(own)
    # Minimize p' Q p where the shares sum to one: one linear system with a multiplier.
    ones = creation.ones((n, classes, 1), device=shares.device)
    zero = creation.zeros((n, 1, 1), device=shares.device)
    system = f.cat([f.cat([quadratic, ones], 2), f.cat([ones.transpose(1, 2), zero], 2)], 1)
    right = f.cat([creation.zeros((n, classes), device=shares.device), ones[:, 0]], 1)
    from ... import linalg

    return linalg.solve(system, right)[:, :classes]
