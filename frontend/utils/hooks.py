"""torch.utils.hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd.hooks import RemovableHandle
from ..nn.hooks import BACKWARD, BACKWARD_PRE, Hooks, _Passing

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]

F = TypeVar("F", bound=Callable[..., Any])


class BackwardHook:
    """Calls hooks on the gradients between two places of a module's call.

    user_hooks(module, grad_input, grad_output) and user_pre_hooks(module, grad_output) see, and may
    replace, the gradients of the tensors that pass `setup_input_hook` and `setup_output_hook`.
    """

    def __init__(
        self,
        module: Any,
        user_hooks: list[Callable[..., Any]],
        user_pre_hooks: list[Callable[..., Any]],
    ):
        hooks = Hooks()
        hooks[BACKWARD].update(enumerate(user_hooks))
        hooks[BACKWARD_PRE].update(enumerate(user_pre_hooks))
        self._passing = _Passing(module, hooks)

    def setup_input_hook(self, args: Any) -> Any:
        single = not isinstance(args, tuple)
        passed = self._passing.through_inputs((args,) if single else args)
        return passed[0] if single else passed

    def setup_output_hook(self, args: Any) -> Any:
        return self._passing.through_outputs(args)


def unserializable_hook(f: F) -> F:
    """Mark a hook that is lost, with a warning, when its tensor is saved."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn of the hooks of a tensor that is saved without them."""
    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, "
                "you can decorate the function with @torch.utils.hooks.unserializable_hook to "
                "suppress this warning",
                stacklevel=2,
            )
