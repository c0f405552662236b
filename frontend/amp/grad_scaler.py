"""GradScaler: losses are scaled so that gradients of half precision don't underflow."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .. import devices
from .._tensor import Tensor
from ..autograd import no_grad
from ..functions import from_data
from ..recording.compounds import is_compound

if TYPE_CHECKING:
    from ..optim.optimizer import Optimizer


class OptState(Enum):
    """How far a scaler is with an optimizer, between two updates."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Step:
    """The state of an optimizer between two updates. found_inf: a tensor, 1 if any gradient was
    infinite or NaN."""

    def __init__(self) -> None:
        self.stage = OptState.READY
        self.found_inf: Tensor | None = None


class GradScaler:
    """Scales losses, takes the scale out of gradients, skips steps whose gradients overflowed, and
    finds the largest scale that works.

    init_scale: the first scale. After `growth_interval` steps without overflow the scale is
    multiplied by growth_factor; after an overflow, by backoff_factor. With `enabled` False the
    scaler does nothing: steps are made and losses stay as they are.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = str(device)
        self._enabled = enabled
        if enabled and self._device == "cuda" and not devices.cuda_available():
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
        self._scale = float(init_scale)
        self._growth_factor = float(growth_factor)
        self._backoff_factor = float(backoff_factor)
        self._growth_interval = int(growth_interval)
        self._growth_tracker = 0
        self._steps: dict[int, _Step] = {}

    # ---- a step of training ------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """A tensor, or tensors in lists and tuples, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            # The scale is a tensor: a number would be a new constant, and a new graph, each time.
            return outputs * from_data.tensor(
                self._scale, dtype=dtypes.float32, device=outputs.device
            )
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(o) for o in outputs)
        if isinstance(outputs, Iterable):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, to clip them, say."""
        if not self._enabled:
            return
        step = self._steps.setdefault(id(optimizer), _Step())
        if step.stage is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
                + at_user_line()
            )
        if step.stage is OptState.STEPPED:
            raise RuntimeError(f"unscale_() is being called after step().{at_user_line()}")
        step.found_inf = self._unscaled(optimizer)
        step.stage = OptState.UNSCALED

    @no_grad()
    def _unscaled(self, optimizer: Any) -> Tensor | None:
        found: Tensor | None = None
        inverse: dict[Any, Tensor] = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.dtype is dtypes.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                if p.device not in inverse:
                    inverse[p.device] = from_data.tensor(
                        1.0 / self._scale, dtype=dtypes.float32, device=p.device
                    )
                values = p.grad._elements if is_compound(p.grad) else p.grad
                bad = (~values.isfinite()).any()
                found = bad if found is None else found.logical_or(bad.to(found.device))
                p.grad.mul_(inverse[p.device])
        return found

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Call `optimizer.step(*args)` unless a gradient is infinite or NaN. Returns its result."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise RuntimeError(
                f"Closure use is not currently supported if GradScaler is enabled.{at_user_line()}"
            )
        step = self._steps.setdefault(id(optimizer), _Step())
        if step.stage is OptState.STEPPED:
            raise RuntimeError(
                f"step() has already been called since the last update().{at_user_line()}"
            )
        if step.stage is OptState.READY:
            self.unscale_(optimizer)
        if step.found_inf is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None if step.found_inf.item() else optimizer.step(**kwargs)
        step.stage = OptState.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Set the scale for the next step: smaller after an overflow, larger after many steps
        without one, or `new_scale`."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            found = [s.found_inf for s in self._steps.values() if s.found_inf is not None]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            if any(f.item() for f in found):
                self._scale *= self._backoff_factor
                self._growth_tracker = 0
            else:
                self._growth_tracker += 1
                if self._growth_tracker == self._growth_interval:
                    self._grow()
        self._steps.clear()

    def _grow(self) -> None:
        grown = self._scale * self._growth_factor
        if np.isfinite(np.float32(grown)):
            self._scale = grown
        self._growth_tracker = 0

    # ---- its numbers -------------------------------------------------------------------------

    def is_enabled(self) -> bool:
        return self._enabled

    def get_scale(self) -> float:
        """The scale of the next loss; 1 if the scaler is off."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        return self._growth_tracker if self._enabled else 0

    def state_dict(self) -> dict[str, Any]:
        """The numbers of the scaler; an empty dict if it is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                f"instance of GradScaler.{at_user_line()}"
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]
