"""Averaged SGD."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tilewright.ir.node import Node

from ..functions.from_data import tensor
from ..functions.promotion import to
from ..recording import grad_mode, revalued
from .counting import Counted
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


class ASGD(Optimizer):
    """SGD with a rate that decays as lr / (1 + lambd lr step)^alpha, and the mean `ax` of the
    parameters after step t0; Polyak and Juditsky, SIAM J. Control Optim. 30, 1992."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check("learning rate", lr)
        check("weight_decay value", weight_decay)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["ax"] = zeros_for(p)
        return state

    _derived = ("eta", "mu")

    def _states_to_save(self) -> Iterable[tuple[Any, Any]]:
        groups = {id(p): group for group in self.param_groups for p in group["params"]}
        for p, state in self.state.items():
            if isinstance(state, Counted):
                left = map(tensor, state.left or _left_by(groups[id(p)], state.count))
                state = {**state.packed(), **dict(zip(self._derived, left, strict=True))}
            yield p, state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        # A rate that changes takes effect one step later, in PyTorch too.
        def numbers(step: int) -> tuple[float, ...]:
            first: Any = states[0]
            eta, mu = first.left or _left_by(group, step - 1)
            left = _left_by(group, step)
            for s in states:
                s.left = left  # type: ignore[attr-defined]
            return eta, mu, 1 - group["lambd"] * eta

        attrs = (float(group["weight_decay"]), bool(group["maximize"]))
        at_step = scalars(params[0], states, numbers)
        columns = [params, [s["ax"] for s in states]]
        stepped(_asgd, attrs, at_step, *columns, [p._grad for p in params], written=2)


def asgd(
    params: list[Tensor],
    grads: list[Tensor],
    axs: list[Tensor],
    mus: list[Tensor],
    etas: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lambd: float,
    lr: float,
    t0: float,
    alpha: float,
    weight_decay: float,
) -> None:
    """One step of ASGD, for parameters and states in lists, which it writes in place."""
    with grad_mode(False):
        for p, g, ax, mu, eta, step in zip(params, grads, axs, mus, etas, state_steps, strict=True):
            g = -g if maximize else g
            if weight_decay:
                g = g + p * weight_decay
            step += 1
            p.mul_(1 - lambd * eta)
            p.sub_(g * eta)
            ax.add_((p - ax) * mu)
            eta.copy_(lr / (1 + lambd * lr * step) ** alpha)
            mu.copy_(1 / (step - t0).clamp_(min=1))


def _left_by(group: dict[str, Any], step: int) -> tuple[float, float]:
    """The rate `eta` and the share `mu` of the mean that a step leaves to the next one."""
    lr = number(group["lr"])
    if step == 0:
        return lr, 1.0
    eta = lr / (1 + group["lambd"] * lr * step) ** group["alpha"]
    return eta, 1 / max(1, step - group["t0"])


def _asgd(
    attrs: Any, count: int, eta: Node, mu: Node, shrink: Node, *nodes: Node
) -> tuple[Node, ...]:
    weight_decay, maximize = attrs
    new: list[Node] = []
    means: list[Node] = []
    for p, ax, g in zip(*columns_of(nodes, count), strict=True):
        old, g = prepared(p, g, eta.dtype, weight_decay, maximize)
        made = old * shrink - g * eta
        wide = to(ax, eta.dtype)
        mean = wide + (made - wide) * mu
        new.append(revalued(p, to(made, p.dtype)))
        means.append(to(mean, ax.dtype))
    return (*new, *means)
