"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.node import Node

from .. import recording
from ..functions.promotion import to
from ..recording import revalued
from .functions import as_function
from .optimizer import (
    Optimizer,
    _begun,
    check,
    columns_of,
    number,
    prepared,
    required,
    scalars,
    stepped,
    zeros_for,
)

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


class SGD(Optimizer):
    """p -= lr v, with v = g or, with momentum, v = momentum v + (1 - dampening) g.

    g is the gradient plus weight_decay p (its negative if `maximize`); with nesterov the step is
    along g + momentum v; Sutskever et al., ICML 2013. foreach and fused concern speed only: here
    all parameters of a group are one kernel.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if lr is not required:
            check("learning rate", lr)
        check("momentum value", momentum)
        check("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        })  # fmt: skip

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        return self.state[p] if group["momentum"] else {}

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        momentum, dampening = float(group["momentum"]), float(group["dampening"])
        attrs = (
            momentum, dampening, float(group["weight_decay"]), bool(group["nesterov"]),
            bool(group["maximize"]),
        )  # fmt: skip
        grads = [p._grad for p in params]
        rate = group["lr"]
        lr = scalars(params[0], (), lambda _: (number(rate),))
        if not momentum:
            stepped(_sgd, (*attrs, False), lr, params, grads, written=1)
            return
        fresh = [(p, s) for p, s in zip(params, states) if self._is_fresh(s)]
        for p, s in fresh:
            s["momentum_buffer"] = zeros_for(p)
        if not fresh or not dampening:
            # A buffer of zeros becomes the gradient in the first step, as it should.
            buffers = [s["momentum_buffer"] for s in states]
            stepped(_sgd, (*attrs, False), lr, params, buffers, grads, written=2)
            return
        # The first gradient is not dampened.
        new = {id(p) for p, _ in fresh}
        for first in (True, False):
            some = [(p, s) for p, s in zip(params, states) if (id(p) in new) is first]
            if some:
                ps = [p for p, _ in some]
                buffers = [s["momentum_buffer"] for _, s in some]
                stepped(_sgd, (*attrs, first), lr, ps, buffers, [p._grad for p in ps], written=2)

    def _is_fresh(self, state: dict[str, Any]) -> bool:
        """Whether a parameter has had no step yet. One that a group has twice begins twice."""
        held = state.get("momentum_buffer")
        return held is None or (self._repeats and any(held is b for b in _begun))

    def _update_rows(self, group: dict[str, Any], p: Any, g: Any) -> None:
        """Momentum is a sparse tensor too, which only decays where it has been."""
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        momentum = group["momentum"]
        if momentum:
            state = self.state[p]
            held = state.get("momentum_buffer")
            if held is None:
                held = g.detach().clone()
            else:
                held = held * momentum + g * (1 - group["dampening"])
            state["momentum_buffer"] = held.coalesce()
            g = g + held * momentum if group["nesterov"] else held
        (lr,) = scalars(p, (), lambda _: (number(group["lr"]),))
        step = recording.node_of(_sgd_rows, p, g._elements, g._at, lr)
        recording.assign_all([p], [step])


def _sgd_rows(p: Node, values: Node, at: Node, lr: Node) -> Node:
    rows = [ops.reshape(ops.slice_axis(at, 0, i, i + 1), at.shape[1:]) for i in range(at.shape[0])]
    step = to(to(values, lr.dtype) * -lr, p.dtype)
    return revalued(p, ops.scatter(p, step, *rows, 0, "add"))


def _sgd(attrs: Any, count: int, lr: Node, *nodes: Node) -> tuple[Node, ...]:
    momentum, dampening, weight_decay, nesterov, maximize, first = attrs
    columns = columns_of(nodes, count)
    params, grads = columns[0], columns[-1]
    buffers = columns[1] if momentum else params
    new_params, new_buffers = [], []
    for p, g, b in zip(params, grads, buffers):
        old, g = prepared(p, g, lr.dtype, weight_decay, maximize)
        if momentum:
            kept = to(b, lr.dtype) * momentum + (
                g if first or not dampening else g * (1 - dampening)
            )
            new_buffers.append(to(kept, b.dtype))
            g = g + kept * momentum if nesterov else kept
        new_params.append(revalued(p, to(ops.descended(old, g, lr), p.dtype)))
    return (*new_params, *new_buffers)


sgd = as_function(
    "sgd",
    SGD,
    {"momentum_buffer_list": "momentum_buffer"},
    "weight_decay momentum lr dampening nesterov maximize",
    flags="has_sparse_grad foreach fused grad_scale found_inf",
    counts=False,
)
