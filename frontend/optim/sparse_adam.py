"""SparseAdam, for sparse gradients."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..recording import grad_mode
from ..recording.compounds import is_compound
from .optimizer import Optimizer, check, check_betas, number, scalars, zeros_for
from .rows import step_rows, widened

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


class SparseAdam(Optimizer):
    """Adam that moves only the rows that a sparse gradient names.

    The running means of other rows stay as they are. A dense gradient is an error: use Adam.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check("learning rate", lr)
        check("epsilon value", eps)
        check_betas(betas)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize}
        super().__init__(params, defaults)
        sparse = []
        for i, group in enumerate(self.param_groups):
            for j, p in enumerate(group["params"]):
                if p.is_complex():
                    raise ValueError(
                        f"SparseAdam does not support complex parameters: parameter {j} of group "
                        f"{i}{at_user_line()}"
                    )
                sparse += [[i, j]] if is_compound(p) else []
        if sparse:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
                f"{at_user_line()}"
            )

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        state = self.state[p]
        state.update(step=0, exp_avg=zeros_for(p), exp_avg_sq=zeros_for(p))
        return state

    def _step_group(self, group: dict[str, Any], params: list[Any]) -> None:
        raise RuntimeError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
            f"{at_user_line()}"
        )

    def _update_rows(self, group: dict[str, Any], p: Any, g: Any) -> None:
        beta1, beta2 = map(float, group["betas"])
        state = self.state.get(p) or self._new_state(group, p)
        lr = group["lr"]

        def size(step: int) -> tuple[float]:
            return (number(lr) * math.sqrt(1 - beta2**step) / (1 - beta1**step),)

        attrs = (beta1, beta2, float(group["eps"]), bool(group["maximize"]))
        rate = scalars(p, [_Steps(state)], size)
        step_rows(_sparse_adam, attrs, rate, g, p, state["exp_avg"], state["exp_avg_sq"])


def sparse_adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    state_steps: list[int],
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: float,
    maximize: bool,
) -> None:
    """One step of SparseAdam, for parameters and states in lists, which it writes in place.

    state_steps: the numbers of this step.
    """
    group = {"lr": lr, "betas": (beta1, beta2), "eps": eps, "maximize": maximize}
    optimizer = object.__new__(SparseAdam)
    with grad_mode(False):
        for p, g, mean, square, step in zip(
            params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True
        ):
            state = {"step": step - 1, "exp_avg": mean, "exp_avg_sq": square}
            optimizer.state = defaultdict(dict, {p: state})
            optimizer._update_rows(group, p, g)


class _Steps:
    """The count of steps of a state, which is a number here, as in PyTorch."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    @property
    def count(self) -> int:
        return int(self.state["step"])

    @count.setter
    def count(self, value: int) -> None:
        self.state["step"] = value

    def write(self) -> None:
        """The state has the number itself."""


def _sparse_adam(
    attrs: Any, g: Node, rate: Node, p: Node, mean: Node, square: Node
) -> tuple[Node, ...]:
    beta1, beta2, eps, maximize = attrs
    g, p, mean, square = widened(rate.dtype, g, p, mean, square)
    if maximize:
        g = -g
    mean = mean + (g - mean) * (1 - beta1)
    square = square + (g * g - square) * (1 - beta2)
    return p - mean / (ops.sqrt(square) + eps) * rate, mean, square
