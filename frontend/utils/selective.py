"""Policies of torch.utils.checkpoint: which results a checkpointed function keeps.

A plan decides what a backward pass reads, by the cost of computing it again, so a policy is asked
nothing. Results are the same with any policy; memory is that of a checkpoint without one.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

__all__ = [
    "CheckpointPolicy",
    "DefaultDeviceType",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "create_selective_checkpoint_contexts",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]


class CheckpointPolicy(enum.Enum):
    """What to do with a result: to keep it or to compute it again, as a rule or as a wish."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """What a policy is told. is_recompute: whether it is the second run. op_output: the result
    of the op, where it is known."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None):
        self.is_recompute, self.op_output = is_recompute, op_output


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | list[Any], allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """The contexts of both runs for `checkpoint(context_fn=…)`. See the head of the module."""
    if not callable(policy_fn_or_list) and not isinstance(policy_fn_or_list, list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    return contextlib.nullcontext(), contextlib.nullcontext()


class DefaultDeviceType:
    """The kind of device whose generators checkpoint takes care of besides the CPU's."""

    _kind = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        DefaultDeviceType._kind = device

    @staticmethod
    def get_device_type() -> str:
        return DefaultDeviceType._kind


def check_backward_validity(inputs: Any) -> None:
    """Warn if none of the inputs requires a gradient."""
    import warnings

    if not any(getattr(each, "requires_grad", False) for each in inputs):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """A block like any other: what differs between two runs is always told."""
    yield


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """A block like any other: the second run records, and what nobody reads isn't computed."""
    yield
