"""The module that torch.compile returns for a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .module import Module


class OptimizedModule(Module):
    """A wrapper whose calls go through `call`; everything else comes from the wrapped module.

    As in PyTorch the wrapped module is a child named `_orig_mod`, so keys of state_dict begin with
    that name.
    """

    _orig_mod: Module

    def __init__(self, module: Module, call: Callable[..., Any]):
        super().__init__()
        self._orig_mod = module
        self.__dict__["dynamo_ctx"] = call  # by PyTorch's name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.dynamo_ctx(*args, **kwargs)

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._orig_mod.training = mode

    _is_mirrored = True  # `__getattr__` finds what isn't an attribute

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)
