"""RMSprop."""

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


class RMSprop(Optimizer):
    """v is a running mean of g^2 (alpha); p -= lr u, with u = g / (sqrt(v) + eps) or, with
    momentum, a running sum of u; Tieleman and Hinton, lecture 6.5 of Neural Networks for Machine
    Learning.

    centered: subtract the square of the running mean of g from v, which then estimates the
    variance.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check("learning rate", lr)
        check("epsilon value", eps)
        check("momentum value", momentum)
        check("weight_decay value", weight_decay)
        check("alpha value", alpha)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["square_avg"] = zeros_for(p)
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_for(p)
        if group["centered"]:
            state["grad_avg"] = zeros_for(p)
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        rate = group["lr"]
        momentum, centered = float(group["momentum"]), bool(group["centered"])
        attrs = (
            float(group["alpha"]), float(group["eps"]), float(group["weight_decay"]), momentum,
            centered, bool(group["maximize"]),
        )  # fmt: skip
        columns = [params, [s["square_avg"] for s in states]]
        if momentum > 0:
            columns.append([s["momentum_buffer"] for s in states])
        if centered:
            columns.append([s["grad_avg"] for s in states])
        lr = scalars(params[0], states, lambda _: (number(rate),))
        written = len(columns)
        stepped(_rmsprop, attrs, lr, *columns, [p._grad for p in params], written=written)


def _rmsprop(attrs: Any, count: int, lr: Node, *nodes: Node) -> tuple[Node, ...]:
    alpha, eps, weight_decay, momentum, centered, maximize = attrs
    columns = columns_of(nodes, count)
    out: list[list[Node]] = [[] for _ in columns[:-1]]
    dtype = lr.dtype
    for row in zip(*columns):
        p, v = row[0], row[1]
        old, g = prepared(p, row[-1], dtype, weight_decay, maximize)
        square = to(v, dtype) * alpha + g * g * (1 - alpha)
        out[1].append(to(square, v.dtype))
        spread = square
        if centered:
            a = to(row[-2], dtype)
            average = a + (g - a) * (1 - alpha)
            out[-1].append(to(average, row[-2].dtype))
            spread = square - average * average
        move = g / (ops.sqrt(spread) + eps)
        if momentum > 0:
            move = to(row[2], dtype) * momentum + move
            out[2].append(to(move, row[2].dtype))
        out[0].append(revalued(p, to(old - move * lr, p.dtype)))
    return tuple(n for column in out for n in column)


rmsprop = as_function(
    "rmsprop",
    RMSprop,
    {
        "square_avgs": "square_avg",
        "grad_avgs": "grad_avg",
        "momentum_buffer_list": "momentum_buffer",
    },
    "lr alpha eps weight_decay momentum centered",
    flags="foreach maximize differentiable capturable has_complex",
    counts=True,
)
