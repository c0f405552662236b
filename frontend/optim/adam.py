"""Adam and its variants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions.promotion import to
from ..recording import Handle, revalued
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


def _check_tensors(lr: Any, betas: Any, refused: bool) -> None:
    """ValueError for options in tensors where PyTorch's `foreach` can't read them (`refused`)."""
    if refused and isinstance(lr, Handle):
        raise ValueError(
            "lr as a Tensor is not supported for capturable=False and foreach=True" + at_user_line()
        )
    kinds = [next((k for k in (float, Handle) if isinstance(b, k)), None) for b in betas]
    if kinds not in ([float] * 2, [Handle] * 2):
        raise ValueError(f"betas must be either both floats or both Tensors{at_user_line()}")
    for i, beta in enumerate(betas):
        if refused and isinstance(beta, Handle):
            raise ValueError(
                f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True"
                + at_user_line()
            )


class Adam(Optimizer):
    """m and v are running means of g and g^2 (betas); p -= lr m' / (sqrt(v') + eps), with m' and v'
    corrected for their start at zero; Kingma and Ba, arXiv 1412.6980.

    g is the gradient plus weight_decay p (its negative if `maximize`). amsgrad takes the largest v
    so far; Reddi et al., arXiv 1904.09237. foreach, fused and capturable concern speed only: here
    all parameters of a group are one kernel.
    """

    decoupled = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check("learning rate", lr)
        check("epsilon value", eps)
        _check_tensors(lr, betas, bool(foreach) and not capturable)
        check_betas(betas)
        check("weight_decay value", weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay or self.decoupled,
        })  # fmt: skip

    _counts = True

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p] = Counted()
        state["exp_avg"] = zeros_for(p)
        state["exp_avg_sq"] = zeros_for(p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_for(p)
        return state

    def _update_rows(self, group: dict[str, Any], p: Any, g: Any) -> None:
        raise RuntimeError(
            "Adam does not support sparse gradients, please consider SparseAdam instead"
            f"{at_user_line()}"
        )

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        beta1, beta2 = map(number, group["betas"])
        rate, decay = group["lr"], group["weight_decay"]
        decoupled = group.get("decoupled_weight_decay", self.decoupled)
        amsgrad = bool(group["amsgrad"])
        attrs = (
            float(beta1), float(beta2), float(group["eps"]), float(decay), amsgrad,
            bool(group["maximize"]), bool(decoupled),
        )  # fmt: skip

        def numbers(step: int) -> tuple[float, ...]:
            lr = number(rate)
            return lr / (1 - beta1**step), math.sqrt(1 - beta2**step), 1 - lr * decay

        columns = [params, [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]]
        if amsgrad:
            columns.append([s["max_exp_avg_sq"] for s in states])
        written = len(columns)
        at_step = scalars(params[0], states, numbers)
        stepped(_adam, attrs, at_step, *columns, [p._grad for p in params], written=written)


class AdamW(Adam):
    """Adam with weight decay p *= 1 - lr weight_decay, which leaves the gradient as it is;
    Loshchilov and Hutter, arXiv 1711.05101."""

    decoupled = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused,
        )  # fmt: skip


def _adam(
    attrs: Any, count: int, step_size: Node, root_correction: Node, decay: Node, *nodes: Node
) -> tuple[Node, ...]:
    beta1, beta2, eps, weight_decay, amsgrad, maximize, decoupled = attrs
    columns = columns_of(nodes, count)
    out: list[list[Node]] = [[] for _ in columns[:-1]]
    dtype = step_size.dtype
    for row in zip(*columns):
        p, m, v, *_ = row
        shrink = decay if decoupled else None
        old, g = prepared(p, row[-1], dtype, weight_decay, maximize, shrink)
        wide_m, wide_v = to(m, dtype), to(v, dtype)
        first = ops.running_mean(wide_m, g, beta1)
        second = ops.running_square(wide_v, g, beta2)
        largest = second
        if amsgrad:
            largest = ops.maximum(to(row[3], dtype), second)
            out[3].append(to(largest, row[3].dtype))
        new = ops.adam_update(old, first, largest, step_size, root_correction, eps)
        out[0].append(revalued(p, to(new, p.dtype)))
        out[1].append(to(first, m.dtype))
        out[2].append(to(second, v.dtype))
    return tuple(n for column in out for n in column)


adam = as_function(
    "adam",
    Adam,
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq", "max_exp_avg_sqs": "max_exp_avg_sq"},
    "amsgrad beta1 beta2 lr weight_decay eps maximize",
    flags="foreach capturable differentiable fused grad_scale found_inf has_complex "
    "decoupled_weight_decay",
    counts=True,
)
adamw = as_function(
    "adamw",
    AdamW,
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq", "max_exp_avg_sqs": "max_exp_avg_sq"},
    "amsgrad beta1 beta2 lr weight_decay eps maximize",
    flags="foreach capturable differentiable fused grad_scale found_inf has_complex",
)
