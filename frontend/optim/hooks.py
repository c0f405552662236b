"""Hooks of optimizers: called around steps, and when state is saved and loaded."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..autograd import profiler
from ..autograd.hooks import RemovableHandle, add_hook, arguments_of

STEP_PRE, STEP_POST = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
SAVE_PRE, SAVE_POST = "_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks"
LOAD_PRE = "_optimizer_load_state_dict_pre_hooks"
LOAD_POST = "_optimizer_load_state_dict_post_hooks"
NAMES = (STEP_PRE, STEP_POST, SAVE_PRE, SAVE_POST, LOAD_PRE, LOAD_POST)
"""The attributes that hold hooks by id, under PyTorch's names."""


class Hooked:
    """The part of Optimizer that has hooks. It works even if a subclass doesn't call `__init__`."""

    _stepping = False  # whether a step that has called its hooks is under way

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in vars(cls):
            cls.step = with_hooks(vars(cls)["step"])  # type: ignore[attr-defined]

    def _patch_step_function(self) -> None:
        """For those who don't call `__init__` and ask for hooks: every class has them already."""

    def __getattr__(self, name: str) -> Any:
        if name in NAMES:
            return self.__dict__.setdefault(name, OrderedDict())
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _registered(
        self, name: str, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        return add_hook(hook, getattr(self, name), prepend=prepend)

    def _hooks_of(self, name: str) -> list[Callable[..., Any]]:
        return list(self.__dict__.get(name, {}).values())

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(optimizer, args, kwargs) before each step; it may return new (args, kwargs)."""
        return self._registered(STEP_PRE, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(optimizer, args, kwargs) after each step."""
        return self._registered(STEP_POST, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(optimizer) before the state is saved."""
        return self._registered(SAVE_PRE, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(optimizer, state_dict) after saving; it may return another state_dict."""
        return self._registered(SAVE_POST, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(optimizer, state_dict) before loading; it may return another state_dict."""
        return self._registered(LOAD_PRE, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(optimizer) after a state was loaded."""
        return self._registered(LOAD_POST, hook, prepend)


COMMON: dict[str, OrderedDict[int, Any]] = {STEP_PRE: OrderedDict(), STEP_POST: OrderedDict()}
"""The hooks of all optimizers."""


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(optimizer, args, kwargs) before each step of each optimizer; it may return new
    (args, kwargs)."""
    return add_hook(hook, COMMON[STEP_PRE])


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(optimizer, args, kwargs) after each step of each optimizer."""
    return add_hook(hook, COMMON[STEP_POST])


def with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the hooks around it. They are called once, even if it calls its base's step."""

    @functools.wraps(step)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        hooked = own.get(STEP_PRE) or own.get(STEP_POST) or any(COMMON.values())
        if self._stepping or not (hooked or profiler.is_collecting()):
            return step(self, *args, **kwargs)
        own["_stepping"] = True
        try:
            with profiler.record_function(f"Optimizer.step#{type(self).__name__}.step"):
                return hooked_step(self, args, kwargs)
        finally:
            del own["_stepping"]

    def hooked_step(self: Any, args: Any, kwargs: Any) -> Any:
        args = (self, *args)
        for hook in (*COMMON[STEP_PRE].values(), *self._hooks_of(STEP_PRE)):
            args, kwargs = arguments_of(hook(self, args, kwargs), args, kwargs, "step")
        result = step(*args, **kwargs)
        for hook in (*self._hooks_of(STEP_POST), *COMMON[STEP_POST].values()):
            hook(self, args, kwargs)
        return result

    return call
