"""RAdam."""

from __future__ import annotations

import math
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


class RAdam(Optimizer):
    """Adam that scales its adaptive rate by how well the variance is known at a step, and takes
    plain steps at first; Liu et al., arXiv 1908.03265.

    g is the gradient plus weight_decay p or, if decoupled, p *= 1 - lr weight_decay. foreach and
    capturable concern speed only.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check("learning rate", lr)
        check("epsilon value", eps)
        check_betas(betas)
        check("weight_decay value", weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["exp_avg"] = zeros_for(p)
        state["exp_avg_sq"] = zeros_for(p)
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        beta1, beta2 = group["betas"]
        rate, decay = group["lr"], group["weight_decay"]
        decoupled = bool(group["decoupled_weight_decay"])
        attrs = (
            float(beta1), float(beta2), float(group["eps"]), float(decay), decoupled,
            bool(group["maximize"]),
        )  # fmt: skip
        most = 2 / (1 - beta2) - 1

        def numbers(step: int) -> tuple[float, ...]:
            """The size of a step, the factors of the adaptive and of the plain step, and the factor
            by which weights shrink."""
            lr, rest = number(rate), 1 - beta2**step
            length = most - 2 * step * beta2**step / rest
            size = lr / (1 - beta1**step)
            if length <= 5:
                return size, 0.0, 1.0, 1 - lr * decay
            scale = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
            return size, math.sqrt(scale * rest), 0.0, 1 - lr * decay

        at_step = scalars(params[0], states, numbers)
        columns = (params, [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states])
        stepped(_radam, attrs, at_step, *columns, [p._grad for p in params], written=3)


def _radam(
    attrs: Any, count: int, size: Node, adaptive: Node, plain: Node, decay: Node, *nodes: Node
) -> tuple[Node, ...]:
    beta1, beta2, eps, weight_decay, decoupled, maximize = attrs
    dtype = size.dtype
    out: list[list[Node]] = [[], [], []]
    for p, m, v, g in zip(*columns_of(nodes, count)):
        old, g = prepared(p, g, dtype, weight_decay, maximize, decay if decoupled else None)
        wide_m = to(m, dtype)
        first = wide_m + (g - wide_m) * (1 - beta1)
        second = to(v, dtype) * beta2 + g * g * (1 - beta2)
        new = old - first * size * (adaptive / (ops.sqrt(second) + eps) + plain)
        out[0].append(revalued(p, to(new, p.dtype)))
        out[1].append(to(first, m.dtype))
        out[2].append(to(second, v.dtype))
    return tuple(n for column in out for n in column)


radam = as_function(
    "radam",
    RAdam,
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq"},
    "beta1 beta2 lr weight_decay eps",
    flags="decoupled_weight_decay foreach differentiable capturable has_complex maximize",
    counts=True,
)
