"""Modules whose forward passes are computed again in the backward pass, or keep their values on the
host."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from ..autograd.graph import save_on_cpu
from ..nn import Module
from ..utils.checkpoint import checkpoint

_PREFIX = "_checkpoint_wrapped_module"


class CheckpointImpl(enum.Enum):
    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class ActivationWrapper(Module):
    """A module in another one, whose names in a state dictionary are those of the inner one."""

    def __init__(self, mod: Module):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    _is_mirrored = True  # `__getattr__` finds what isn't an attribute

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        inner: Any = self._checkpoint_wrapped_module
        return inner[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{_PREFIX}.", ""), parameter


def _without_prefix(module: Any, state: Any, prefix: str, *args: Any) -> None:
    start = f"{prefix}{_PREFIX}."
    for key in [k for k in state if k.startswith(start)]:
        state[prefix + key.removeprefix(start)] = state.pop(key)


def _with_prefix(module: Any, state: Any, prefix: str, *args: Any) -> None:
    start = f"{prefix}{_PREFIX}."
    for key in [k for k in state if k.startswith(prefix) and not k.startswith(start)]:
        state[start + key.removeprefix(prefix)] = state.pop(key)


class CheckpointWrapper(ActivationWrapper):
    """A module that is computed again in the backward pass. checkpoint_fn: what calls it, by
    default `torch.utils.checkpoint.checkpoint`, with these options."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **options: Any,
    ):
        super().__init__(mod)
        self.checkpoint_impl, self.checkpoint_fn = checkpoint_impl, checkpoint_fn
        self._options = options

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inner = self._checkpoint_wrapped_module
        if self.checkpoint_fn is not None:
            return self.checkpoint_fn(inner, *args, **self._options, **kwargs)
        reentrant = self.checkpoint_impl is CheckpointImpl.REENTRANT
        return checkpoint(inner, *args, use_reentrant=reentrant, **self._options, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """A module whose saved values wait on the host."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **options: Any,
) -> CheckpointWrapper:
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **options)


def offload_wrapper(module: Module) -> OffloadWrapper:
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[..., Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Wrap each module in `model` for which `check_fn` holds, the inner ones first."""
    if auto_wrap_policy is not None:
        raise NotImplementedError("apply_activation_checkpointing: give check_fn, not a policy")
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))
