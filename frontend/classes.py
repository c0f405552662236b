"""torch.classes: classes of libraries that are compiled for PyTorch. There are none here."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

from .ops import load_library as _load_library

loaded_libraries: set[str] = set()


def load_library(path: str | os.PathLike[str]) -> None:
    """Load what we have of a library, as `torch.ops.load_library` does."""
    _load_library(path)
    loaded_libraries.add(os.path.realpath(path))


class _ClassNamespace(ModuleType):
    """The classes of one library."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"Tried to instantiate class '{self.__name__.rpartition('.')[2]}.{name}', but it does "
            "not exist! Ensure that it is registered via torch::class_: tilewright loads no "
            f"libraries that are compiled for PyTorch{at_user_line()}"
        )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = _ClassNamespace(f"torch.classes.{name}")
    return found
