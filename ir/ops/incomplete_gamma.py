"""The regularized incomplete gamma functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op, Part
from ..shape import broadcast
from .composite import require_float
from .polygamma import lgamma
from .unary import exp, log


def _density(a: Node, x: Node) -> Node:
    """x^(a - 1) exp(-x) / gamma(a)."""
    return exp((a - 1) * log(x) - x - lgamma(a))


def _vjp(name: str, sign: float) -> Callable[..., tuple[Part, Part]]:
    def vjp(g: Node, out: Node, a: Node, x: Node) -> tuple[Part, Part]:
        if a.requires_grad:
            raise NotImplementedError(
                f"the derivative for '{name}: input' is not implemented.{at_user_line()}"
            )
        return None, lambda: g * _density(a, x) * sign

    return vjp


def _record(name: str, sign: float) -> Op:
    def infer(a: Node, x: Node) -> Aval:
        require_float(name, a, x)
        return broadcast(a.shape, x.shape), a.dtype

    more: dict[str, Any] = {"domain": (0.2, 6), "cost": 400, "error": 4, "llvm": name}
    return Op(
        name,
        Kind.ELEMENTWISE,
        infer,
        vjp=_vjp(name, sign),
        numpy=f"special.{name}({{0}}, {{1}})",
        triton=f"tw_{name}({{0}}, {{1}})",
        **more,
    )


igamma = _record("igamma", 1.0)
"""P(a, x), the integral of t^(a - 1) exp(-t) from 0 to x over gamma(a)."""
igammac = _record("igammac", -1.0)
"""Q(a, x) = 1 - P(a, x), with full relative precision where it is small."""
