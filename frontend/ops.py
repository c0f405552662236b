"""torch.ops: operators by namespace and name, the user's own and PyTorch's `aten`.

torch.ops.mylib.add(x, y) calls what torch.library defined; torch.ops.aten.add.Tensor(x, y) is the
function of torch of that name.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .dispatching import operators
from .library.custom import defined

if TYPE_CHECKING:
    from typing_extensions import Self


class Schema:
    """What is known of an operator of `aten`: its name, and whether it writes to an argument."""

    def __init__(self, op: OpOverload):
        self.name = op.overloadpacket._qualified_op_name
        self.overload_name = op._overloadname.replace("default", "")
        self.is_mutable = self.name.endswith("_") or "out" in self.overload_name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the schema of {self.name} has no {name!r} here")


class _Lasting:
    """What copies of its holder hold, too: graphs compare operators by identity."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class OpOverload(_Lasting):
    """One form of an operator. All forms of an operator of `aten` are one function here."""

    def __init__(self, packet: OpOverloadPacket, overload: str, op: Callable[..., Any]):
        self.overloadpacket, self._overloadname, self._op = packet, overload, op
        self.namespace = packet._qualified_op_name.partition("::")[0]
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__qualname__, self.__module__ = self.__name__, f"torch._ops.{self.namespace}"

    @property
    def op(self) -> Callable[..., Any]:
        return self._op

    @property
    def _overloadpacket(self) -> OpOverloadPacket:
        return self.overloadpacket

    @property
    def _schema(self) -> Any:
        """The text of a program's own operator; what is known of one of `aten`."""
        own = getattr(self._op, "_schema", None)
        return Schema(self) if own is None else f"{self.name()}{own}"

    def name(self) -> str:
        name = self.overloadpacket._qualified_op_name
        return name if self._overloadname == "default" else f"{name}.{self._overloadname}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self.name().replace('::', '.')}', overload='{self._overloadname}')>"
        )

    def __str__(self) -> str:
        return f"{self.overloadpacket._qualified_op_name.replace('::', '.')}.{self._overloadname}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_op"], name)  # such as register_kernel


class OpOverloadPacket(_Lasting):
    """An operator with its forms: `packet.default`, and the names that PyTorch gives to others."""

    def __init__(self, namespace: str, name: str, op: Callable[..., Any], forms: frozenset[str]):
        self.__name__, self._qualified_op_name, self._op = name, f"{namespace}::{name}", op
        self._forms = forms

    @property
    def op(self) -> Callable[..., Any]:
        return self._op

    def overloads(self) -> list[str]:
        return ["default", *sorted(self._forms & set(vars(self)))]

    def __getattr__(self, name: str) -> Any:
        if name != "default" and name not in self._forms:
            raise AttributeError(
                f"The underlying op of '{self._qualified_op_name}' has no overload name '{name}'"
            )
        found = OpOverload(self, name, self._op)
        setattr(self, name, found)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._qualified_op_name.replace('::', '.')}')>"

    def __str__(self) -> str:
        return self._qualified_op_name.replace("::", ".")


class HigherOrderOperator:
    """The class of PyTorch's operators that take functions, which `torch.cond` and its kin are not
    here: they are functions."""


class _OpNamespace:
    """The operators of one namespace."""

    def __init__(self, name: str):
        self.name = self._name = name

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            op: Callable[..., Any] | None = defined(f"{self._name}::{name}")
            forms = frozenset[str]()
            if op is None and self._name == "quantized":
                quantized = importlib.import_module(".ao.nn.quantized.operators", __package__)
                op = quantized.OPERATORS.get(name)
            if self._name == "aten":
                op, forms = operators.of_aten(name), operators.FORMS
            if op is not None:
                packet = OpOverloadPacket(self._name, name, op, forms)
                if self._name == "aten":
                    setattr(self, name, packet)  # a graph compares operators by identity
                return packet
        raise AttributeError(
            f"'_OpNamespace' '{self._name}' object has no attribute '{name}': define it with "
            "torch.library.custom_op"
        )


class _Ops(ModuleType):
    """A module whose attributes are namespaces."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"torch.ops has no {name!r}")
        found = _OpNamespace(name)
        setattr(self, name, found)
        return found


_OURS = {
    ("torchvision", "_C"): "tilewright.vision.operators",
    ("torchvision", "image"): "tilewright.vision.images",
    ("lib", "_torchaudio"): "tilewright.audio.operators",
    ("lib", "libtorchaudio"): "tilewright.audio.operators",
}
"""Libraries of packages whose operators we have: (folder, file without its endings)."""


def load_library(path: str | os.PathLike[str]) -> None:
    """Define the operators of the compiled parts of torchvision and torchaudio, which are our own.

    Other libraries are refused with an OSError: they are built on PyTorch's compiled part.
    """
    place = Path(path)
    ours = _OURS.get((place.parent.name, place.name.partition(".")[0]))
    if ours is None:
        raise OSError(
            f"torch.ops.load_library: {path} is made for PyTorch's own binaries, which tilewright "
            f"doesn't have{at_user_line()}"
        )
    importlib.import_module(ours)


def import_module(module: str) -> None:
    """Import a module that defines operators."""
    importlib.import_module(module)


sys.modules[__name__].__class__ = _Ops
