"""CyclicLR."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from ..optimizer import Optimizer
from .composed import _each
from .schedules import LRScheduler

_SCALES: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "triangular": ("cycle", lambda gamma, x: 1.0),
    "triangular2": ("cycle", lambda gamma, x: 1 / 2.0 ** (x - 1)),
    "exp_range": ("iterations", lambda gamma, x: gamma**x),
}


class CyclicLR(LRScheduler):
    """Up from base_lr to max_lr in step_size_up steps and down again in step_size_down, over and
    over, while momentum goes the other way; Smith, arXiv 1506.01186.

    mode: the height of a cycle stays ("triangular"), is halved each time ("triangular2") or shrinks
    by gamma with each step ("exp_range"). scale_fn: a function that gives the height instead, from
    the number of the cycle (scale_mode "cycle") or of the step ("iterations").
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer{at_user_line()}")
        if mode not in _SCALES and scale_fn is None:
            raise ValueError(f"mode is invalid and scale_fn is None{at_user_line()}")
        groups = optimizer.param_groups
        base_lrs = _each("base_lr", base_lr, groups)
        if last_epoch == -1:
            for group, lr in zip(groups, base_lrs, strict=True):
                group["lr"] = lr
        self.max_lrs = _each("max_lr", max_lr, groups)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _SCALES[mode][0]
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise ValueError(
                    "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
                    f"{at_user_line()}"
                )
            self.use_beta1 = "betas" in optimizer.defaults
            self.base_momentums = _each("base_momentum", base_momentum, groups)
            self.max_momentums = _each("max_momentum", max_momentum, groups)
            if last_epoch == -1:
                both = zip(groups, self.max_momentums, self.base_momentums, strict=True)
                for group, high, low in both:
                    self._set_momentum(group, high)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The height of cycle or step `x`, as a share of the full height."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return _SCALES[self.mode][1](self.gamma, x)

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        share = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            groups = self.optimizer.param_groups
            for group, low, high in zip(
                groups, self.base_momentums, self.max_momentums, strict=True
            ):
                self._set_momentum(group, high - (high - low) * share * scale)
        return [
            low + (high - low) * share * scale
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer. If scale_fn is an object, its attributes are saved; a
        function can't be saved."""
        state = super().state_dict()
        custom = state["_scale_fn_custom"]
        plain = custom is None or isinstance(custom, types.FunctionType)
        state["_scale_fn_custom"] = None if plain else dict(vars(custom))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        saved = state.pop("_scale_fn_custom")
        super().load_state_dict(state)
        if saved is not None:
            vars(self._scale_fn_custom).update(saved)
