"""Hooks of all modules: torch.nn.modules.module.register_module_forward_hook and its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.hooks import RemovableHandle, add_hook
from .hooks import BACKWARD, BACKWARD_PRE, EVERYWHERE, FORWARD, FORWARD_PRE, REGISTRATIONS
from .module import Module

_global_parameter_registration_hooks = REGISTRATIONS["parameter"]
_global_buffer_registration_hooks = REGISTRATIONS["buffer"]
_global_module_registration_hooks = REGISTRATIONS["module"]


def _everywhere(kind: str, hook: Callable[..., Any], **marks: bool) -> RemovableHandle:
    Module._hooks = EVERYWHERE  # so a call of a module without hooks sees these
    return EVERYWHERE.add(kind, hook, False, **marks)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, args) before each module's `forward`; its result replaces the arguments."""
    return _everywhere(FORWARD_PRE, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call hook(module, args, output) after each module's `forward`; its result replaces the
    output."""
    return _everywhere(
        FORWARD,
        hook,
        _forward_hooks_with_kwargs=with_kwargs,
        _forward_hooks_always_called=always_call,
    )


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, grad_input, grad_output) for each module that a gradient passes."""
    return _everywhere(BACKWARD, hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, grad_output) before a gradient passes each module."""
    return _everywhere(BACKWARD_PRE, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, parameter) when a module is given a parameter; a result replaces
    it."""
    return add_hook(hook, REGISTRATIONS["parameter"])


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, buffer) when a module is given a buffer; a result replaces it."""
    return add_hook(hook, REGISTRATIONS["buffer"])


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, child) when a module is given a module; a result replaces it."""
    return add_hook(hook, REGISTRATIONS["module"])
