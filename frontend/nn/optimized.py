"""What torch.compile makes of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .module import Module


class OptimizedModule(Module):
    """A module whose calls go through `call`; everything else is that of the module itself.

    As in PyTorch the module is a child called `_orig_mod`, which shows in the keys of state_dict.
    """

    _orig_mod: Module

    def __init__(self, module: Module, call: Callable[..., Any]):
        super().__init__()
        self._orig_mod = module
        self.__dict__["_call"] = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._orig_mod.training = mode

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)
