"""torch.utils.module_tracker: where in a tree of modules a program is."""

from __future__ import annotations

import weakref
from typing import Any

from ..nn.global_hooks import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from ..nn.hooks import OF_OUTPUTS

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """A block in which `parents` holds the paths of the modules that are running.

    The path of a module begins with the class of the outermost module that ran; "Global" is always
    there. is_bw: whether it is a backward pass that runs.
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: Any = weakref.WeakKeyDictionary()
        self._backward = 0
        self._handles: list[Any] = []

    @property
    def is_bw(self) -> bool:
        return self._backward > 0

    def _name(self, module: Any) -> str:
        if module not in self._names:
            root = type(module).__name__
            for path, each in module.named_modules():
                self._names.setdefault(each, f"{root}.{path}" if path else root)
        return str(self._names[module])

    def _watch_forward(self) -> list[Any]:
        def begin(module: Any, args: Any) -> None:
            self.parents.add(self._name(module))

        def end(module: Any, args: Any, output: Any) -> None:
            self.parents.discard(self._name(module))

        return [
            register_module_forward_pre_hook(begin),
            register_module_forward_hook(end, always_call=True),
        ]

    def __enter__(self) -> ModuleTracker:
        def begin_backward(module: Any, grad_output: Any) -> None:
            self._backward += 1
            self.parents.add(self._name(module))

        def end_backward(module: Any, grad_input: Any, grad_output: Any) -> None:
            self._backward -= 1
            self.parents.discard(self._name(module))

        OF_OUTPUTS.add(end_backward)
        self._handles = [
            *self._watch_forward(),
            register_module_full_backward_pre_hook(begin_backward),
            register_module_full_backward_hook(end_backward),
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._backward = 0
        self.parents = {"Global"}
