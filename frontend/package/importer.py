"""Where the modules and classes of an archive come from: Python's own, or another archive's."""

from __future__ import annotations

import importlib
import pickle
import re
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

from ..serialization.naming import OURS

__all__ = ["Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter"]

_MANGLED = re.compile(r"<torch_package_\d+>(\.|$)")


def is_mangled(name: str) -> bool:
    """Whether a module's name is that of an archive's module."""
    return _MANGLED.match(name) is not None


def demangled(name: str) -> str:
    """The name that a module has in its archive."""
    return _MANGLED.sub("", name, count=1)


class ObjNotFoundError(Exception):
    """An object isn't where its name says."""


class ObjMismatchError(Exception):
    """Another object is where an object's name says."""


class Importer(ABC):
    """Finds modules, and the names of objects in them."""

    @abstractmethod
    def import_module(self, module_name: str) -> ModuleType: ...

    def whichmodule(self, obj: Any, name: str) -> str:
        return pickle.whichmodule(obj, name)  # type: ignore[attr-defined,no-any-return]

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """(module, name) by which this importer gives an object. ObjNotFoundError if it doesn't,
        and ObjMismatchError if it gives another one."""
        if name is None:
            name = getattr(obj, "__qualname__", None) or obj.__name__
        assert name is not None
        module_name = self.whichmodule(obj, name)
        own = getattr(obj, "__module__", None) or module_name
        try:
            found: Any = self.import_module(demangled(module_name))
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, KeyError, AttributeError):
            raise ObjNotFoundError(f"{obj} was not found as {own}.{name}") from None
        if found is not obj:
            raise ObjMismatchError(
                f"The object provided is from {own}.{name}, and what this importer gives for "
                f"{module_name}.{name} is another object: {obj!r} is not {found!r}. Is the object "
                "of an archive? Pass its PackageImporter to the PackageExporter, as in "
                "`importer=(package_importer, sys_importer)`"
            )
        return demangled(module_name), name


class _SysImporter(Importer):
    """Python's own import."""

    def import_module(self, module_name: str) -> ModuleType:
        return importlib.import_module(of_torch(module_name))


sys_importer = _SysImporter()


def of_torch(name: str) -> str:
    """The module that PyTorch calls `name`, as Python finds it here."""
    first, dot, rest = name.partition(".")
    return f"{OURS}{dot}{rest}" if first == "torch" else name


class OrderedImporter(Importer):
    """Several importers. The first that has an object or a module gives it."""

    def __init__(self, *args: Importer):
        self._importers = list(args)

    def import_module(self, module_name: str) -> ModuleType:
        last: ModuleNotFoundError | None = None
        for each in self._importers:
            if not hasattr(each, "import_module"):
                raise TypeError(f"{each} is no importer: it has no import_module")
            try:
                return each.import_module(module_name)
            except ModuleNotFoundError as error:
                last = error
        raise last or ModuleNotFoundError(module_name)

    def whichmodule(self, obj: Any, name: str) -> str:
        for each in self._importers:
            found = each.whichmodule(obj, name)
            if found != "__main__":
                return found
        return "__main__"

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        last: Exception | None = None
        for each in self._importers:
            try:
                return each.get_name(obj, name)
            except (ObjNotFoundError, ObjMismatchError) as error:
                last = error
        raise last or ObjNotFoundError(f"{obj} was not found")
