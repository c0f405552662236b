"""torch.distributions.kl: the Kullback-Leibler divergence of two distributions.

`kl_divergence(p, q)` calls the function that is registered for the classes of both, or for the
closest of their bases. `divergences.py` and `matrix_divergences.py` register those of PyTorch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tilewright.ir.location import at_user_line

from .. import Tensor
from .distribution import Distribution

__all__ = ["kl_divergence", "register_kl"]

Divergence = Callable[[Any, Any], Any]

_KL_REGISTRY: dict[tuple[type, type], Divergence] = {}
_chosen: dict[tuple[type, type], Divergence | None] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """Decorate the function of (p, q) that gives KL(p || q) for two classes of distributions.

    As in PyTorch, any class will do: distributions that a package defines may have another base.
    """
    if not isinstance(type_p, type) or not isinstance(type_q, type):
        raise TypeError("issubclass() arg 1 must be a class")

    def register(function: Divergence) -> Divergence:
        _KL_REGISTRY[type_p, type_q] = function
        _chosen.clear()
        return function

    return register


def _choose(kind_p: type, kind_q: type) -> Divergence | None:
    """The function for the closest bases. Where the closest for p and the closest for q differ, the
    one for p, with a warning."""
    found = [(a, b) for a, b in _KL_REGISTRY if issubclass(kind_p, a) and issubclass(kind_q, b)]
    if not found:
        return None
    by_p, by_q = kind_p.__mro__.index, kind_q.__mro__.index
    left = min(found, key=lambda ab: (by_p(ab[0]), by_q(ab[1])))
    right = min(found, key=lambda ab: (by_q(ab[1]), by_p(ab[0])))
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({kind_p.__name__}, {kind_q.__name__}). Please register_kl("
            f"{left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q) = E_p[log p(x) - log q(x)], of shape batch_shape. NotImplementedError for a pair
    without a function."""
    pair = type(p), type(q)
    if pair not in _chosen:
        _chosen[pair] = _choose(*pair)
    function = _chosen[pair]
    if function is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {pair[0].__name__} and q type "
            f"{pair[1].__name__}{at_user_line()}"
        )
    result: Tensor = function(p, q)
    return result
