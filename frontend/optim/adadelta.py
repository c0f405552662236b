"""Adadelta."""

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

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


class Adadelta(Optimizer):
    """p -= lr d, where d = g sqrt(mean of d^2 + eps) / sqrt(mean of g^2 + eps), with means that run
    with rho; Zeiler, arXiv 1212.5701.

    g is the gradient plus weight_decay p. foreach and capturable concern speed only.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check("learning rate", lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}{at_user_line()}")
        check("epsilon value", eps)
        check("weight_decay value", weight_decay)
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["square_avg"] = zeros_for(p)
        state["acc_delta"] = zeros_for(p)
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        rate = group["lr"]
        attrs = (
            float(group["rho"]), float(group["eps"]), float(group["weight_decay"]),
            bool(group["maximize"]),
        )  # fmt: skip
        lr = scalars(params[0], states, lambda _: (number(rate),))
        columns = (params, [s["square_avg"] for s in states], [s["acc_delta"] for s in states])
        stepped(_adadelta, attrs, lr, *columns, [p._grad for p in params], written=3)


def _adadelta(attrs: Any, count: int, lr: Node, *nodes: Node) -> tuple[Node, ...]:
    rho, eps, weight_decay, maximize = attrs
    out: list[list[Node]] = [[], [], []]
    for p, squares, deltas, g in zip(*columns_of(nodes, count)):
        old, g = prepared(p, g, lr.dtype, weight_decay, maximize)
        square = to(squares, lr.dtype) * rho + g * g * (1 - rho)
        wide = to(deltas, lr.dtype)
        delta = ops.sqrt(wide + eps) / ops.sqrt(square + eps) * g
        out[0].append(revalued(p, to(old - delta * lr, p.dtype)))
        out[1].append(to(square, squares.dtype))
        out[2].append(to(wide * rho + delta * delta * (1 - rho), deltas.dtype))
    return tuple(n for column in out for n in column)


adadelta = as_function(
    "adadelta",
    Adadelta,
    {"square_avgs": "square_avg", "acc_deltas": "acc_delta"},
    "lr rho eps weight_decay maximize",
    flags="capturable foreach differentiable has_complex",
    counts=True,
)
