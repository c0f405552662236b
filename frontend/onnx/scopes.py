"""The module in whose call each node was recorded, for readable names and for functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir.node import Node

from .. import recording
from ..inspection.tracing import tensors_of
from ..nn.global_hooks import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from ..nn.module import Module


class Scopes:
    """paths: node -> the path of its module in the model, "" for the model itself. called: the
    paths of the modules that were called.

    A node that exists when a module is entered belongs to the caller, what is there beyond when it
    is left, to the module.
    """

    def __init__(self, model: Any):
        named = model.named_modules() if hasattr(model, "named_modules") else ()
        self.names = {id(module): name for name, module in named}
        self.paths: dict[Node, str] = {}
        self.called: set[str] = set()
        self._stack = [""]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note the nodes of the calls inside the block."""
        before = Module._hooks  # with hooks of all modules, each call looks for them
        hooks = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            Module._hooks = before

    def _enter(self, module: Any, args: Any) -> None:
        self._mark(args)
        self._stack.append(self.names.get(id(module), self._stack[-1]))
        self.called.add(self._stack[-1])

    def _leave(self, module: Any, args: Any, result: Any) -> None:
        self._mark(result)
        if len(self._stack) > 1:
            self._stack.pop()

    def _mark(self, values: Any) -> None:
        path = self._stack[-1]
        found = [t for _, t in tensors_of("", values)]
        stack = [recording.resolve(t._codes if t.is_quantized else t) for t in found]
        while stack:
            node = stack.pop()
            if node not in self.paths and node.operands:
                self.paths[node] = path
                stack += node.operands
