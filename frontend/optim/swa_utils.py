"""torch.optim.swa_utils: averages of a model's weights over the steps of its training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from ..autograd import no_grad
from ..functions import from_data
from ..nn import Module
from ..nn.normalization import _BatchNorm
from .lr_scheduler.composed import _each
from .lr_scheduler.schedules import LRScheduler
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..types import DeviceLike

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average = Callable[[Any, Any, Any], Any]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """decay average + (1 - decay) weight."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Average:
    """The mean of all weights so far."""

    @no_grad()
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Average:
    """`get_ema_avg_fn` for lists of tensors, in place."""
    _check_decay(decay)
    return _each_in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Average:
    """`get_swa_avg_fn` for lists of tensors, in place."""
    return _each_in_place(get_swa_avg_fn())


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
            f"{at_user_line()}"
        )


def _each_in_place(average: Average) -> Average:
    @no_grad()
    def update(averages: Sequence[Any], current: Sequence[Any], num_averaged: Any) -> None:
        for p_averaged, p_model in zip(averages, current, strict=True):
            p_averaged.copy_(average(p_averaged, p_model, num_averaged))

    return update


class AveragedModel(Module):
    """A copy of `model` whose parameters are averages. `update_parameters(model)` adds the model's
    parameters; its first call copies them.

    avg_fn: (average, weight, count of weights averaged before) -> the new average. multi_avg_fn:
    the same for lists of tensors, in place. By default both give the mean. use_buffers: average
    buffers too, instead of copying the model's.
    """

    n_averaged: Any

    def __init__(
        self,
        model: Module,
        device: DeviceLike | None = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Average | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", from_data.tensor(0, dtype=dtypes.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Add the weights of `model` to the averages."""
        pairs = [
            (own.detach(), other.detach().to(own.device))
            for own, other in zip(self._averaged(self.module), self._averaged(model), strict=True)
        ]
        count = int(self.n_averaged.item())
        if count == 0:
            for own, other in pairs:
                own.copy_(other)
        elif self.avg_fn is not None:
            for own, other in pairs:
                own.copy_(self.avg_fn(own, other, self.n_averaged.to(own.device)))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            kinds: dict[Any, list[tuple[Any, Any]]] = {}
            for own, other in pairs:
                kinds.setdefault((str(own.device), own.dtype), []).append((own, other))
            for (device, _), some in kinds.items():
                owns, others = zip(*some)
                update(list(owns), list(others), self.n_averaged.to(device))
        if not self.use_buffers:
            for own, other in zip(self.module.buffers(), model.buffers(), strict=True):
                own.detach().copy_(other.detach().to(own.device))
        self.n_averaged += 1

    def _averaged(self, model: Module) -> Iterable[Any]:
        if self.use_buffers:
            return itertools.chain(model.parameters(), model.buffers())
        return model.parameters()


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: DeviceLike | None = None) -> None:
    """Compute the statistics of batch norms anew, as means over the batches of `loader`. A batch is
    a tensor, or a list or tuple that begins with one."""
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None
    for batch in loader:
        first = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(first if device is None else first.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From each group's rate to swa_lr in anneal_epochs steps, along a line or a cosine, and
    constant after that; Izmailov et al., arXiv 1803.05407."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        groups = optimizer.param_groups
        for group, lr in zip(groups, _each("swa_lr", swa_lr, groups), strict=True):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                "anneal_strategy must be one of 'cos' or 'linear', instead got "
                f"{anneal_strategy}{at_user_line()}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(
                f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}"
                f"{at_user_line()}"
            )
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """The share of the way that is done after `step` steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, end = group["lr"], group["swa_lr"]
            start = end if before == 1 else (lr - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates
