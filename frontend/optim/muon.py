"""Muon: momentum, made orthogonal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import bfloat16
from tilewright.ir.node import Node

from ..functions.promotion import to
from ..recording import revalued
from .optimizer import (
    Optimizer,
    check,
    check_real,
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


class Muon(Optimizer):
    """Steps along the orthogonal matrix that is nearest to the momentum, for matrices only; Jordan
    et al., 2024 (https://kellerjordan.github.io/posts/muon).

    ns_coefficients, ns_steps: the polynomial of a Newton-Schulz iteration, and how often it is
    applied, in bfloat16. adjust_lr_fn: 'original' multiplies the rate by sqrt(max(1, rows /
    columns)), 'match_rms_adamw' by 0.2 sqrt(max(rows, columns)).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check("learning rate", lr)
        check("momentum", momentum)
        check("weight decay", weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        if ns_steps >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{p.size()}"
                    )

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        check_real("Muon", p.dtype)
        state = self.state[p]
        state["momentum_buffer"] = zeros_for(p)
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        lr = number(group["lr"])
        attrs = (
            float(group["momentum"]), bool(group["nesterov"]),
            tuple(map(float, group["ns_coefficients"])), float(group["eps"]),
            int(group["ns_steps"]), group["adjust_lr_fn"] or "original",
        )  # fmt: skip
        at_step = scalars(params[0], [], lambda _: (lr, 1 - lr * group["weight_decay"]))
        buffers = [s["momentum_buffer"] for s in states]
        stepped(_muon, attrs, at_step, params, buffers, [p._grad for p in params], written=2)


def _orthogonal(g: Node, coefficients: tuple[float, float, float], steps: int, eps: float) -> Node:
    """The matrix with the singular vectors of `g` and singular values near 1."""
    a, b, c = coefficients
    x = to(g, bfloat16)
    tall = x.shape[0] > x.shape[1]
    x = ops.transpose(x) if tall else x
    size = to(ops.sqrt(ops.sum(to(x, g.dtype) * to(x, g.dtype), (0, 1))), bfloat16)
    x = x / ops.maximum(size, ops.full_like(size, eps))
    for _ in range(steps):
        gram = ops.matmul(x, ops.transpose(x))
        x = x * a + ops.matmul(gram * b + ops.matmul(gram, gram) * c, x)
    return to(ops.transpose(x) if tall else x, g.dtype)


def _muon(attrs: Any, count: int, lr: Node, shrink: Node, *nodes: Node) -> tuple[Node, ...]:
    momentum, nesterov, coefficients, eps, steps, adjust = attrs
    new: list[Node] = []
    buffers: list[Node] = []
    for p, buffer, g in zip(*columns_of(nodes, count), strict=True):
        old, g = prepared(p, g, lr.dtype, 0.0, False)
        before = to(buffer, lr.dtype)
        moved = before + (g - before) * (1 - momentum)
        update = g + (moved - g) * momentum if nesterov else moved
        rows, columns = p.shape
        ratio = (
            math.sqrt(max(1, rows / columns))
            if adjust == "original"
            else 0.2 * math.sqrt(max(rows, columns))
        )
        step = _orthogonal(update, coefficients, steps, eps) * (lr * ratio)
        new.append(revalued(p, to(old * shrink - step, p.dtype)))
        buffers.append(to(moved, buffer.dtype))
    return (*new, *buffers)
