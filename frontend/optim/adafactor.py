"""Adafactor: second moments of matrices as one of rows and one of columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions.from_data import upload
from ..functions.promotion import to
from ..recording import revalued
from .counting import Counted
from .optimizer import (
    Optimizer,
    check,
    check_real,
    columns_of,
    number,
    prepared,
    scalars,
    stepped,
    wide,
)

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


class Adafactor(Optimizer):
    """Steps of a length relative to the parameter, by g / sqrt(v); Shazeer and Stern, arXiv
    1804.04235.

    v of a matrix is the product of running means over its rows and its columns, whose share of the
    past is 1 - step^beta2_decay. eps: the least v (by default the dtype's), and the least length of
    a parameter. d: the largest root mean square of an update.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check("learning rate", lr)
        if beta2_decay > 0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and eps[0] < 0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}{at_user_line()}")
        if eps[1] < 0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}{at_user_line()}")
        if d < 1:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        check("weight_decay", weight_decay)
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        shape, dtype, device = p._typed()
        check_real("Adafactor", dtype)

        def zeros(size: tuple[int, ...]) -> Any:
            return upload(np.zeros(size, dtype.np), dtype, device)

        state = self.state[p] = Counted()
        if len(shape) > 1:
            state["row_var"] = zeros((*shape[:-1], 1))
            state["col_var"] = zeros((*shape[:-2], 1, shape[-1]))
        else:
            state["variance"] = zeros(tuple(shape))
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        rate, decay, power = group["lr"], group["weight_decay"], group["beta2_decay"]

        def numbers(step: int) -> tuple[float, ...]:
            lr = number(rate)
            return min(lr, 1 / math.sqrt(step)), step**power, 1 - lr * decay

        # Matrices and vectors have different states; a step is counted once for all of them.
        at_step = scalars(params[0], states, numbers)
        for names in (("row_var", "col_var"), ("variance",)):
            chosen = [(p, s) for p, s in zip(params, states, strict=True) if names[0] in s]
            if not chosen:
                continue
            least = group["eps"][0]
            if least is None:
                least = float(np.finfo(wide(chosen[0][0]).np).eps)
            attrs = (
                float(least), float(group["eps"][1]), float(group["d"]), float(decay),
                bool(group["maximize"]),
            )  # fmt: skip
            columns = [[p for p, _ in chosen], *([s[n] for _, s in chosen] for n in names)]
            grads = [p._grad for p, _ in chosen]
            stepped(_adafactor, attrs, at_step, *columns, grads, written=len(columns))


def _mean_square(x: Node, axes: tuple[int, ...]) -> Node:
    return ops.mean(x * x, axes)


def _adafactor(
    attrs: Any, count: int, rate: Node, share: Node, shrink: Node, *nodes: Node
) -> tuple[Node, ...]:
    least, least_length, most, weight_decay, maximize = attrs
    columns = columns_of(nodes, count)
    out: list[list[Node]] = [[] for _ in columns[:-1]]
    dtype = rate.dtype
    for p, *moments, g in zip(*columns, strict=True):
        old, g = prepared(p, g, dtype, 0.0, maximize)
        every = tuple(range(old.rank))
        length = ops.sqrt(ops.reshape(_mean_square(old, every), ()))
        alpha = ops.maximum(length, ops.full_like(length, least_length)) * rate
        if weight_decay:
            old = old * shrink

        def moved(mean: Node, new: Node) -> Node:
            before = to(mean, dtype)
            return before + (new - before) * share

        if len(moments) == 2:
            rows = moved(moments[0], _mean_square(g, (old.rank - 1,)))
            cols = moved(moments[1], _mean_square(g, (old.rank - 2,)))
            mean = ops.mean(rows, (old.rank - 2,))
            square = rows * cols / ops.maximum(mean, ops.full_like(mean, least))
            new_moments = [rows, cols]
        else:
            square = moved(moments[0], g * g)
            new_moments = [square]
        update = ops.rsqrt(ops.maximum(square, ops.full_like(square, least * least))) * g
        size = ops.sqrt(ops.reshape(_mean_square(update, every), ())) / most
        size = ops.maximum(size, ops.full_like(size, 1))
        new = old - update * (alpha / size)
        out[0].append(revalued(p, to(new, p.dtype)))
        for place, moment, value in zip(out[1:], moments, new_moments, strict=True):
            place.append(to(value, moment.dtype))
    return tuple(n for column in out for n in column)
