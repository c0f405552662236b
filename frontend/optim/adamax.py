"""Adamax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.node import Node

from ..functions.promotion import to
from ..recording import revalued
from .counting import Counted
from .functions import as_function
from .optimizer import (
    Optimizer,
    check,
    check_betas,
    columns_of,
    number,
    prepared,
    scalars,
    stepped,
    zeros_for,
)

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


class Adamax(Optimizer):
    """m is a running mean of g, u the larger of beta2 u and |g| + eps; p -= lr m' / u, with m'
    corrected for its start at zero; Kingma and Ba, arXiv 1412.6980, section 7.

    g is the gradient plus weight_decay p. foreach and capturable concern speed only.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check("learning rate", lr)
        check("epsilon value", eps)
        check_betas(betas)
        check("weight_decay value", weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["exp_avg"] = zeros_for(p)
        state["exp_inf"] = zeros_for(p)
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        beta1, beta2 = group["betas"]
        rate = group["lr"]
        attrs = (
            float(beta1), float(beta2), float(group["eps"]), float(group["weight_decay"]),
            bool(group["maximize"]),
        )  # fmt: skip
        size = scalars(params[0], states, lambda step: (number(rate) / (1 - beta1**step),))
        columns = (params, [s["exp_avg"] for s in states], [s["exp_inf"] for s in states])
        stepped(_adamax, attrs, size, *columns, [p._grad for p in params], written=3)


def _adamax(attrs: Any, count: int, step_size: Node, *nodes: Node) -> tuple[Node, ...]:
    beta1, beta2, eps, weight_decay, maximize = attrs
    dtype = step_size.dtype
    out: list[list[Node]] = [[], [], []]
    for p, m, u, g in zip(*columns_of(nodes, count)):
        old, g = prepared(p, g, dtype, weight_decay, maximize)
        wide_m = to(m, dtype)
        first = wide_m + (g - wide_m) * (1 - beta1)
        largest = ops.maximum(to(u, dtype) * beta2, ops.abs(g) + eps)
        out[0].append(revalued(p, to(old - first / largest * step_size, p.dtype)))
        out[1].append(to(first, m.dtype))
        out[2].append(to(largest, u.dtype))
    return tuple(n for column in out for n in column)


adamax = as_function(
    "adamax",
    Adamax,
    {"exp_avgs": "exp_avg", "exp_infs": "exp_inf"},
    "eps beta1 beta2 lr weight_decay",
    flags="foreach maximize differentiable capturable has_complex",
    counts=True,
)
