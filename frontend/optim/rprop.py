"""Rprop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions.promotion import to
from ..recording import revalued
from .counting import Counted
from .functions import as_function
from .optimizer import Optimizer, check, columns_of, number, scalars, stepped, wide, zeros_for

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


class Rprop(Optimizer):
    """Each element's step grows by etas[1] where its gradient keeps its sign, and shrinks by
    etas[0] where the sign turns, within step_sizes. p -= step sign(g), except in the step where g
    turns; Riedmiller and Braun, ICNN 1993.

    foreach and capturable concern speed only.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check("learning rate", lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}{at_user_line()}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["prev"] = zeros_for(p)
        state["step_size"] = zeros_for(p, _both(p, float(number(group["lr"]))))
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        attrs = (
            *map(float, group["etas"]), *map(float, group["step_sizes"]), bool(group["maximize"]),
            wide(params[0]),
        )  # fmt: skip
        scalars(params[0], states, lambda _: ())  # counts
        columns = (params, [s["prev"] for s in states], [s["step_size"] for s in states])
        stepped(_rprop, attrs, (), *columns, [p._grad for p in params], written=3)


def _both(p: Tensor, value: float) -> complex:
    """`value`, of a complex parameter for both parts."""
    return complex(value, value) if p.dtype.is_complex else value


def _rprop(attrs: Any, count: int, *nodes: Node) -> tuple[Node, ...]:
    less, more, least, most, maximize, dtype = attrs
    out: list[list[Node]] = [[], [], []]
    for p, last, size, g in zip(*columns_of(nodes, count)):
        g = to(g, dtype)
        if maximize:
            g = -g
        agreed = g * to(last, dtype)
        one = ops.full_like(g, 1)
        turned = agreed < 0
        factor = ops.where(agreed > 0, one * more, ops.where(turned, one * less, one))
        step = ops.minimum(ops.maximum(to(size, dtype) * factor, one * least), one * most)
        kept = ops.where(turned, ops.full_like(g, 0), g)
        out[0].append(revalued(p, to(to(p, dtype) - ops.sign(kept) * step, p.dtype)))
        out[1].append(to(kept, last.dtype))
        out[2].append(to(step, size.dtype))
    return tuple(n for column in out for n in column)


rprop = as_function(
    "rprop",
    Rprop,
    {"prevs": "prev", "step_sizes": "step_size"},
    "step_size_min step_size_max etaminus etaplus",
    flags="foreach capturable maximize differentiable has_complex",
    counts=True,
)
