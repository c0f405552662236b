"""NAdam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.node import Node

from ..functions import from_data
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


class NAdam(Optimizer):
    """Adam with Nesterov's momentum, which grows with the steps as momentum_decay says; Dozat, ICLR
    workshop 2016.

    g is the gradient plus weight_decay p or, if decoupled, p *= 1 - lr weight_decay. foreach and
    capturable concern speed only.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check("momentum_decay value", momentum_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["mu_product"] = from_data.tensor(1.0, device=p.device)
        state["exp_avg"] = zeros_for(p)
        state["exp_avg_sq"] = zeros_for(p)
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        beta1, beta2 = group["betas"]
        rate, decay = group["lr"], group["weight_decay"]
        momentum_decay = group["momentum_decay"]
        attrs = (
            float(beta1), float(beta2), float(group["eps"]), float(decay),
            bool(group["decoupled_weight_decay"]), bool(group["maximize"]),
        )  # fmt: skip

        def numbers(step: int) -> tuple[float, ...]:
            """The rate, the momentum of this step and of the next, the correction of v, and the
            factor by which weights shrink."""
            lr = number(rate)
            mu, after = (beta1 * (1 - 0.5 * 0.96 ** (s * momentum_decay)) for s in (step, step + 1))
            return lr, mu, after, 1 - beta2**step, 1 - lr * decay

        at_step = scalars(params[0], states, numbers)
        names = ("exp_avg", "exp_avg_sq", "mu_product")
        columns = [params, *([s[name] for s in states] for name in names)]
        stepped(_nadam, attrs, at_step, *columns, [p._grad for p in params], written=4)


def _nadam(
    attrs: Any,
    count: int,
    lr: Node,
    mu: Node,
    after: Node,
    correction: Node,
    decay: Node,
    *nodes: Node,
) -> tuple[Node, ...]:
    beta1, beta2, eps, weight_decay, decoupled, maximize = attrs
    dtype = lr.dtype
    out: list[list[Node]] = [[], [], [], []]
    for p, m, v, so_far, g in zip(*columns_of(nodes, count)):
        old, g = prepared(p, g, dtype, weight_decay, maximize, decay if decoupled else None)
        wide_m = to(m, dtype)
        first = wide_m + (g - wide_m) * (1 - beta1)
        second = to(v, dtype) * beta2 + g * g * (1 - beta2)
        product = to(so_far, dtype) * mu
        root = ops.sqrt(second / correction) + eps
        ahead = g * (lr * (1 - mu) / (1 - product)) + first * (lr * after / (1 - product * after))
        out[0].append(revalued(p, to(old - ahead / root, p.dtype)))
        out[1].append(to(first, m.dtype))
        out[2].append(to(second, v.dtype))
        out[3].append(to(product, so_far.dtype))
    return tuple(n for column in out for n in column)


nadam = as_function(
    "nadam",
    NAdam,
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq", "mu_products": "mu_product"},
    "beta1 beta2 lr weight_decay momentum_decay eps",
    flags="decoupled_weight_decay foreach capturable differentiable has_complex maximize",
)
