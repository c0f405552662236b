"""Imports of `torch` and its modules, such as `torch.nn`, as tilewright's.

A module has one copy under both names: `torch.nn` is `tilewright.nn`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType

from .names import OURS, Namer


class TorchFinder(importlib.abc.MetaPathFinder):
    """Finds `torch` and its modules, and `functorch`, before any installed PyTorch."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        head, _, rest = fullname.partition(".")
        if fullname == "functorch":
            return ModuleSpec(fullname, _Alias(f"{OURS}.func.older"))
        if head != "torch":
            return None
        name = f"{OURS}.{rest}" if rest else OURS
        try:
            found = importlib.util.find_spec(name) if is_public(rest) else None
        except ModuleNotFoundError:  # below what is no package
            found = None
        if found is not None:
            return ModuleSpec(fullname, _Alias(name), origin=found.origin, is_package=True)
        if not _is_import(sys._getframe(1)):
            return None
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: tilewright, which stands in for torch here, "
            "doesn't have it",
            name=fullname,
        )


def install() -> ModuleType:
    """Make `torch` mean tilewright in this process from now on. Returns the module."""
    if not any(isinstance(finder, TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchFinder())
    ours = importlib.import_module(OURS)
    sys.modules["torch"] = ours
    take_names(ours)
    return ours


def take_names(ours: ModuleType) -> Callable[[], None]:
    """Give PyTorch's names to the module and to the classes of its values: packages compare them,
    and choose a backend by the module of a value's class. Returns what takes them back."""
    name, namer = ours.__name__, Namer()
    ours.__name__ = "torch"

    def take_back() -> None:
        namer.take_back()
        ours.__name__ = name

    return take_back


def is_public(rest: str) -> bool:
    """Whether a module below torch is for programs to name: our own rooms are not."""
    from ..paths import PATHS
    from ..publish import MODULES

    head = rest.partition(".")[0]
    return not rest or head in MODULES or head in PATHS


def _is_import(frame: FrameType | None) -> bool:
    """Whether an import calls the finder, and not importlib.util.find_spec, which accepts None."""
    above = frame and frame.f_back
    return above is not None and above.f_code.co_name == "_find_and_load_unlocked"


class _Alias(importlib.abc.Loader):
    """Loads a module by importing another one."""

    def __init__(self, name: str):
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.name)
        # The import system is about to give it the alias's spec.
        self.attributes = {k: module.__dict__.get(k) for k in ("__spec__", "__loader__")}
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(self.attributes)
