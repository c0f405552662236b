"""Adagrad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions.promotion import to
from ..recording import revalued
from .counting import Counted
from .functions import as_function
from .optimizer import (
    Optimizer,
    check,
    columns_of,
    number,
    prepared,
    scalars,
    stepped,
    zeros_for,
)
from .rows import step_rows, widened

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


class Adagrad(Optimizer):
    """s is the sum of g^2 so far; p -= lr' g / (sqrt(s) + eps), with
    lr' = lr / (1 + lr_decay (step - 1)); Duchi et al., JMLR 12, 2011."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check("learning rate", lr)
        check("lr_decay value", lr_decay)
        check("weight_decay value", weight_decay)
        check("initial_accumulator_value value", initial_accumulator_value)
        check("epsilon value", eps)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "fused": fused,
        })  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                self._new_state(group, p)

    def share_memory(self) -> None:
        """Move the sums to memory that processes share which are forked from this one."""
        for state in self.state.values():
            state["sum"].share_memory_()

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["sum"] = zeros_for(p, group["initial_accumulator_value"])
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        lr, decay = group["lr"], group["lr_decay"]
        attrs = (float(group["weight_decay"]), float(group["eps"]), bool(group["maximize"]))
        rate = scalars(params[0], states, lambda step: (number(lr) / (1 + (step - 1) * decay),))
        columns = (params, [s["sum"] for s in states], [p._grad for p in params])
        stepped(_adagrad, attrs, rate, *columns, written=2)

    def _update_rows(self, group: dict[str, Any], p: Any, g: Any) -> None:
        if group["weight_decay"]:
            raise RuntimeError(
                f"weight_decay option is not compatible with sparse gradients{at_user_line()}"
            )
        state = self.state.get(p) or self._new_state(group, p)
        lr, decay = group["lr"], group["lr_decay"]
        attrs = (float(group["eps"]), bool(group["maximize"]))
        rate = scalars(p, [state], lambda step: (number(lr) / (1 + (step - 1) * decay),))
        step_rows(_adagrad_rows, attrs, rate, g, p, state["sum"])


def _adagrad_rows(attrs: Any, g: Node, lr: Node, p: Node, total: Node) -> tuple[Node, ...]:
    eps, maximize = attrs
    g, p, total = widened(lr.dtype, g, p, total)
    total = total + g * g
    step = g / (ops.sqrt(total) + eps) * lr
    return (p + step if maximize else p - step), total


def _adagrad(attrs: Any, count: int, lr: Node, *nodes: Node) -> tuple[Node, ...]:
    weight_decay, eps, maximize = attrs
    new_params, new_sums = [], []
    for p, s, g in zip(*columns_of(nodes, count)):
        old, g = prepared(p, g, lr.dtype, weight_decay, maximize)
        total = to(s, lr.dtype) + g * g
        new_sums.append(to(total, s.dtype))
        new_params.append(revalued(p, to(old - g / (ops.sqrt(total) + eps) * lr, p.dtype)))
    return (*new_params, *new_sums)


adagrad = as_function(
    "adagrad",
    Adagrad,
    {"state_sums": "sum"},
    "lr weight_decay lr_decay eps maximize",
    flags="fused grad_scale found_inf has_sparse_grad foreach differentiable has_complex",
    counts=True,
)
