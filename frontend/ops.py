"""torch.ops: the user's own operators, by namespace and name: torch.ops.mylib.add(x, y)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn

from .library.custom import defined


class _Overloads:
    """An operator with its one overload, `default`."""

    def __init__(self, namespace: str, name: str, op: Any):
        self.__name__, self._qualified_op_name, self._op = name, f"{namespace}::{name}", op
        self.default = op

    def overloads(self) -> list[str]:
        return ["default"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._qualified_op_name.replace('::', '.')}')>"


class _Namespace:
    """The operators of one namespace."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        op = None if name.startswith("__") else defined(f"{self._name}::{name}")
        if op is None:
            raise AttributeError(
                f"'_OpNamespace' '{self._name}' object has no attribute '{name}': define it with "
                "torch.library.custom_op"
            )
        return _Overloads(self._name, name, op)


class _Ops(ModuleType):
    """A module whose attributes are namespaces."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"torch.ops has no {name!r}")
        found = _Namespace(name)
        setattr(self, name, found)
        return found


def load_library(path: str) -> NoReturn:
    """Refused: libraries of operators are built on PyTorch's own compiled part."""
    raise OSError(
        f"torch.ops.load_library: {path} is made for PyTorch's own binaries, which tilewright "
        "doesn't have"
    )


sys.modules[__name__].__class__ = _Ops
