"""Training on inputs of which processes have different numbers: `Join` lets those that are through
take part in the others' collective operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line, warn

from ..functions.creation import full
from .collectives import all_reduce
from .groups import ProcessGroup, Work

__all__ = ["Join", "JoinHook", "Joinable"]

_MANY = 1000
"""Rounds after which a process that is through tells that the others still work."""


class JoinHook:
    """What a process that is through does in place of the others' operations."""

    def main_hook(self) -> None:
        """Called once for each iteration of the processes that still work: makes the collective
        operations that they make."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all processes are through. is_last_joiner: whether this one is among those
        that worked longest."""


class Joinable(ABC):
    """What may be joined: its iterations make collective operations, and begin with
    `Join.notify_join_context(self)`."""

    _joining: Join | None = None

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook for one context. kwargs: those of the context."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of the collective operations."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The processes of the collective operations."""


class Join:
    """A block in which processes may have different numbers of iterations.

    joinables: what takes part, in the order of its operations in an iteration.
    enable: whether anything is done; False for inputs that are known to be even.
    throw_on_early_termination: whether all processes get a RuntimeError as soon as one is through.
    kwargs: for the hooks.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ):
        if not joinables:
            raise ValueError(
                f"The join context manager requires at least one joinable{at_user_line()}"
            )
        groups = [each.join_process_group for each in joinables]
        if any(each is not groups[0] for each in groups):
            raise ValueError(
                "Using join context manager with multiple process groups, where one is expected"
                f"{at_user_line()}"
            )
        self._joinables, self._enable, self._throws = (
            list(joinables),
            enable,
            throw_on_early_termination,
        )
        self._group: ProcessGroup = groups[0]
        self._device = joinables[0].join_device
        self._hooks = [each.join_hook(**kwargs) for each in joinables]

    def __enter__(self) -> None:
        if self._enable:
            for each in self._joinables:
                each._joining = self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if not self._enable:
            return
        for each in self._joinables:
            each._joining = None
        if kind is not None:
            return  # the error goes on
        last, rounds = True, 0
        while self._count_working(0):
            if self._throws:
                self._agree_to_stop(True)
            last = False
            rounds += 1
            if rounds == _MANY:
                warn(
                    f"Detected uneven input skew of greater than {_MANY}. This process has "
                    "exhausted its inputs, and takes part in the operations of the others"
                )
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(last)

    def _count_working(self, own: int) -> int:
        """The number of processes that still have inputs."""
        count = full((1,), own, device=self._device)
        all_reduce(count, group=self._group)
        return int(count.item())

    def _agree_to_stop(self, through: bool) -> None:
        """RuntimeError in all processes if one is through."""
        flag = full((1,), int(through), device=self._device)
        all_reduce(flag, group=self._group)
        if flag.item():
            raise RuntimeError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks."
                f"{at_user_line()}"
            )

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Tell the processes that are through of an iteration of this one.

        The first joinable of a context tells for all. Returns its operation under way: the result
        is the number of the processes that still work. None from the others, and outside of a
        context.
        """
        context = joinable._joining
        if context is None or joinable is not context._joinables[0]:
            return None
        work = all_reduce(
            full((1,), 1, device=context._device), group=context._group, async_op=True
        )
        if context._throws:
            context._agree_to_stop(False)
        return work
