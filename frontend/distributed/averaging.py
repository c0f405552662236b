"""Means over processes: of tensors, and of a model's parameters now and then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line, warn

from .. import recording
from ..futures import Future
from .collectives import all_reduce
from .world import _world

if TYPE_CHECKING:
    from .._tensor import Tensor

__all__ = ["ModelAverager", "PeriodicModelAverager"]


def all_reduced(group: Any, tensor: Tensor) -> Future[Tensor]:
    """The future of the mean of all processes' tensors, which replaces this one."""
    group = group if group is not None else _world()
    tensor.div_(group.size())
    work = all_reduce(tensor, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda _: tensor)


class ModelAverager(ABC):
    """Averages the parameters of all processes' models. step: how often it was asked."""

    def __init__(self, process_group: Any = None):
        self.process_group = process_group if process_group is not None else _world()
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None: ...


class PeriodicModelAverager(ModelAverager):
    """Averages parameters in every `period`-th step, from the step `warmup_steps` on."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None):
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError(f"Arg ``warmup_steps`` must be a non-negative number.{at_user_line()}")
        if period < 1:
            raise ValueError(f"Arg ``period`` must be a positive value.{at_user_line()}")
        if period == 1:
            warn(
                "When period is 1, no need to use model averaging because the communication cost "
                "of all-reducing parameters will be no less than the cost of all-reducing "
                "gradients by DistributedDataParallel in the backward pass. Therefore, only "
                "DistributedDataParallel should be used for this case."
            )
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Average the parameters if it is time. params: parameters, or an optimizer's groups of
        them; those without a gradient are left alone."""
        due = self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0
        self.step += 1
        if not due:
            return
        listed = list(params)
        if listed and isinstance(listed[0], dict):
            listed = [p for group in listed for p in group["params"]]
        with recording.grad_mode(False):
            for each in listed:
                if each.grad is not None:
                    all_reduced(self.process_group, each).wait()
