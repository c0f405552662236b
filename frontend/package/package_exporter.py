"""Archives of objects and of the source of the modules that they need: writing."""

from __future__ import annotations

import importlib.machinery
import io
import linecache
import os
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.runtime import files

from .. import recording
from ..autograd.hooks import RemovableHandle, add_hook
from ..serialization.archive import put
from ..serialization.naming import OURS
from ..serialization.writing import Name, Pickler, Storage
from . import mocks
from .dependencies import Graph, Node, find_files_source_depends_on
from .errors import EmptyMatchError, PackagingError, PackagingErrorReason
from .glob_group import GlobGroup, GlobPattern
from .importer import (
    Importer,
    ObjMismatchError,
    ObjNotFoundError,
    OrderedImporter,
    demangled,
    is_mangled,
    sys_importer,
)

__all__ = ["PackageExporter"]

_VERSION = b"6\n"
_EVERYWHERE = frozenset({*sys.stdlib_module_names, "torch", OURS})
"""Modules that are at every reader's, so they needn't be in an archive."""

Hook = Callable[["PackageExporter", str], None]


class _Rule:
    """What is done with the modules that fit a pattern. needed: whether one must fit."""

    def __init__(self, action: str, glob: GlobGroup, needed: bool = False):
        self.action, self.glob, self.needed = action, glob, needed


class _Pickler(Pickler):
    """Names classes and functions as the importer finds them. named: those of each module."""

    dispatch = dict(Pickler.dispatch)

    def __init__(self, file: Any, protocol: int, exporter: PackageExporter):
        super().__init__(file, protocol)
        self.exporter = exporter
        self.storages, self.kept = exporter._storages, exporter._kept
        self.named: dict[str, list[str]] = {}

    def save_global(self, obj: Any, name: str | None = None) -> None:
        try:
            module, name = self.exporter.importer.get_name(obj, name)
        except (ObjNotFoundError, ObjMismatchError) as error:
            raise pickle.PicklingError(f"Can't pickle {obj}: {error}{at_user_line()}") from None
        *outer, last = name.split(".")
        if not outer:
            self._save_path(module, name, obj)
            return
        holder: Any = self.exporter.importer.import_module(module)
        for part in outer:
            holder = getattr(holder, part)
        self.save_reduce(getattr, (holder, last), obj=obj)

    def _save_name(self, obj: Name) -> None:
        self._save_path(obj.module, obj.name, obj)

    def _save_path(self, module: str, name: str, obj: Any) -> None:
        self.named.setdefault(module, []).append(name)
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    dispatch[Name] = _save_name
    dispatch[FunctionType] = save_global

    def persistent_id(self, obj: Any) -> Any:
        if hasattr(type(obj), "__reduce_package__"):  # it says itself how it is built again
            reduces = self.exporter._reduces
            if id(obj) not in reduces:
                self.kept.append(obj)
                how = obj.__reduce_package__(self.exporter)
                reduces[id(obj)] = ("reduce_package", id(obj), *how)
            return reduces[id(obj)]
        return super().persistent_id(obj)


class PackageExporter:
    """Writes an archive to a path or a binary file, when its block ends or `close` is called.

    Modules that pickled objects and saved sources import are treated by the first of the rules that
    they fit: `intern` puts their source into the archive, `extern` leaves them to the reader's
    Python, `mock` puts something there that refuses to be used, `deny` is an error. The standard
    library and torch are left to the reader. PackagingError for modules that fit no rule.

    importer: where modules and objects come from; several are asked in turn.
    debug: whether errors tell by which path a module is needed.
    """

    def __init__(
        self,
        f: Any,
        importer: Importer | Sequence[Importer] = sys_importer,
        debug: bool = False,
    ):
        self.importer: Importer = (
            importer if isinstance(importer, Importer) else OrderedImporter(*importer)
        )
        self.debug = debug
        self.dependency_graph = Graph()
        self._target = f
        self._records: dict[str, Any] = {}
        self._rules: list[tuple[_Rule, list[str]]] = []  # with the modules that fit
        self._hooks: dict[str, OrderedDict[int, Hook]] = {
            name: OrderedDict() for name in ("extern", "mock", "intern")
        }
        self._storages: dict[Any, Storage] = {}
        self._kept: list[Any] = []
        self._reduces: dict[int, Any] = {}
        self._written: set[str] = set()  # storages
        self._unique = 0
        self._closed = False

    # ---- rules -------------------------------------------------------------------------------

    def _rule(self, action: str, include: GlobPattern, exclude: GlobPattern, needed: bool) -> None:
        glob = GlobGroup(include, exclude=exclude)
        self._rules.append((_Rule(action, glob, needed), []))

    def intern(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Put the source of these modules into the archive. allow_empty: whether none may fit."""
        self._rule("intern", include, exclude, not allow_empty)

    def extern(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Leave these modules to the reader's Python."""
        self._rule("extern", include, exclude, not allow_empty)

    def mock(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Put modules there of which nothing can be used."""
        self._rule("mock", include, exclude, not allow_empty)

    def deny(self, include: GlobPattern, *, exclude: GlobPattern = ()) -> None:
        """Refuse to write an archive that needs these modules."""
        self._rule("deny", include, exclude, False)

    def register_extern_hook(self, hook: Hook) -> RemovableHandle:
        """Call hook(exporter, module) for each module that is left to the reader."""
        return add_hook(hook, self._hooks["extern"])

    def register_mock_hook(self, hook: Hook) -> RemovableHandle:
        return add_hook(hook, self._hooks["mock"])

    def register_intern_hook(self, hook: Hook) -> RemovableHandle:
        return add_hook(hook, self._hooks["intern"])

    # ---- contents ----------------------------------------------------------------------------

    def save_text(self, package: str, resource: str, text: str) -> None:
        self.save_binary(package, resource, text.encode())

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        self._records[_path_of(package, resource)] = binary

    def save_pickle(
        self,
        package: str,
        resource: str,
        obj: Any,
        dependencies: bool = True,
        pickle_protocol: int = 3,
    ) -> None:
        """Pickle an object. dependencies: whether the modules of its classes, and what they import,
        are needed too."""
        recording.flush()
        data = io.BytesIO()
        pickler = _Pickler(data, pickle_protocol, self)
        pickler.dump(obj)
        self._records[_path_of(package, resource)] = data.getvalue()
        for storage in self._storages.values():
            if storage.key not in self._written:
                self._written.add(storage.key)
                array = np.ascontiguousarray(storage.array)
                little = array.astype(array.dtype.newbyteorder("<"), copy=False)
                self._records[f".data/{storage.key}.storage"] = little.tobytes()
        name = f"<{package}.{resource}>"
        self.dependency_graph.add(name, Node(provided=True, is_object=True))
        if not dependencies:
            return
        for module, names in pickler.named.items():
            self.dependency_graph.connect(name, module)
            self.add_dependency(module)
            node = self.dependency_graph.nodes[module]
            if node.action == "mock":
                node.error = PackagingErrorReason.MOCKED_BUT_STILL_USED.value
                node.context = (
                    f"Object(s) '{names}' from module `{module}` was mocked out during packaging "
                    f"but is being used in resource - `{resource}` in package `{package}`. "
                )

    def save_source_string(
        self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True
    ) -> None:
        """Add a module with this source."""
        node = Node("intern", src, is_package, provided=True)
        self.dependency_graph.add(module_name, node)
        if dependencies:
            self._follow(module_name, node)

    def save_source_file(
        self, module_name: str, file_or_directory: str, dependencies: bool = True
    ) -> None:
        """Add a module from its file, or a package from its folder."""
        path = Path(file_or_directory)
        if path.is_file():
            self.save_source_string(module_name, path.read_text(), False, dependencies)
            return
        for each in sorted(path.rglob("*.py")):
            parts = [module_name, *each.relative_to(path).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            self.save_source_string(name, each.read_text(), is_package, dependencies)

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Add the source of a module that can be imported."""
        if not isinstance(module_name, str):
            raise TypeError(
                "save_module() expects a string input, did you perhaps mean to pass `__name__`?"
                f"{at_user_line()}"
            )
        self._intern(module_name, dependencies)

    def get_unique_id(self) -> str:
        """A number that was not given before."""
        self._unique += 1
        return str(self._unique - 1)

    # ---- dependencies ------------------------------------------------------------------------

    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Treat a module by the rules."""
        known = self.dependency_graph.nodes.get(module_name)
        if known is not None and known.provided:
            return
        if module_name.partition(".")[0] in _EVERYWHERE:
            self.dependency_graph.add(module_name, Node("extern", provided=True))
            return
        for rule, fitting in self._rules:
            if not rule.glob.matches(module_name):
                continue
            fitting.append(module_name)
            if rule.action == "intern":
                self._intern(module_name, dependencies)
                return
            error = PackagingErrorReason.DENIED.value if rule.action == "deny" else None
            self.dependency_graph.add(module_name, Node(rule.action, error=error, provided=True))
            return
        error = PackagingErrorReason.NO_ACTION.value
        self.dependency_graph.add(module_name, Node(error=error, provided=True))

    def _intern(self, name: str, dependencies: bool) -> None:
        module = self.importer.import_module(name)
        source, reason = _source_of(module, name)
        node = Node("intern", source, hasattr(module, "__path__"), provided=True)
        node.error = reason.value if reason is not None else None
        if reason is not None and getattr(module, "__file__", None):
            node.context = module.__file__
        self.dependency_graph.add(name, node)
        if dependencies and source is not None:
            self._follow(name, node)

    def _follow(self, name: str, node: Node) -> None:
        """Treat what a module imports."""
        package = name if node.is_package else name.rpartition(".")[0]
        try:
            imports = find_files_source_depends_on(node.source or "", package)
        except SyntaxError as error:
            node.error = PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED.value
            node.context = str(error)
            return
        for module, part in imports:
            inner = f"{module}.{part}"
            found = inner if part is not None and self._exists(inner) else module
            if found and (found == inner or self._exists(found)):
                self.dependency_graph.connect(name, found)
                self.add_dependency(found)

    def _exists(self, name: str) -> bool:
        known = self.dependency_graph.nodes.get(name)
        if known is not None and known.provided:
            return True
        try:
            self.importer.import_module(name)
        except Exception:
            return False
        return True

    def _with_action(self, action: str) -> list[str]:
        return [n for n, node in self.dependency_graph.nodes.items() if node.action == action]

    def interned_modules(self) -> list[str]:
        return self._with_action("intern")

    def externed_modules(self) -> list[str]:
        return self._with_action("extern")

    def mocked_modules(self) -> list[str]:
        return self._with_action("mock")

    def denied_modules(self) -> list[str]:
        return self._with_action("deny")

    def get_rdeps(self, module_name: str) -> list[str]:
        """The modules that import this one."""
        if module_name not in self.dependency_graph.nodes:
            return []
        return self.dependency_graph.predecessors(module_name)

    def all_paths(self, src: str, dst: str) -> str:
        """All ways on which one module needs another, in Graphviz's language."""
        return self.dependency_graph.between(src, dst).to_dot()

    def dependency_graph_string(self) -> str:
        """Which modules need which, in Graphviz's language."""
        return self.dependency_graph.to_dot()

    # ---- the end -----------------------------------------------------------------------------

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.close()

    def close(self) -> None:
        """Write the archive. PackagingError if it would miss a module."""
        if self._closed:
            return
        self._closed = True
        for rule, fitting in self._rules:
            if rule.needed and not fitting:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {rule.glob}, which was marked as "
                    "allow_empty=False"
                )
        if any(node.error is not None for node in self.dependency_graph.nodes.values()):
            raise PackagingError(self.dependency_graph, self.debug)
        if self.mocked_modules():
            self._records["_mock.py"] = mocks.OBJECT.encode()
        for name, node in self.dependency_graph.nodes.items():
            for hook in list(self._hooks.get(node.action or "", {}).values()):
                hook(self, name)
            if node.action in ("intern", "mock"):
                path = name.replace(".", "/") + ("/__init__.py" if node.is_package else ".py")
                source = node.source if node.action == "intern" else mocks.MODULE
                self._records[path] = (source or "").encode()
        externs = "".join(f"{name}\n" for name in self.externed_modules())
        self._records[".data/extern_modules"] = externs.encode()
        self._records[".data/python_version"] = ".".join(map(str, sys.version_info[:3])).encode()
        self._records[".data/version"] = _VERSION
        self._records["byteorder"] = b"little"
        self._write()

    def _write(self) -> None:
        at_path = not hasattr(self._target, "write")
        path = os.fspath(self._target) if at_path else "archive"
        top = Path(path).stem or "archive"
        target = files.whole(path) if at_path else nullcontext(self._target)
        with target as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, content in self._records.items():
                put(archive, f"{top}/{name}", content)


def _path_of(package: str, resource: str) -> str:
    return f"{package.replace('.', '/')}/{resource}"


def _source_of(module: ModuleType, name: str) -> tuple[str | None, PackagingErrorReason | None]:
    """The source of a module, or why there is none."""
    if is_mangled(module.__name__):
        loader: Any = module.__loader__
        return loader.get_source(demangled(module.__name__)), None
    path = getattr(module, "__file__", None)
    if path is None:
        if hasattr(module, "__path__"):  # a folder without an __init__.py
            return "", None
        return None, PackagingErrorReason.NO_DUNDER_FILE
    if path.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return None, PackagingErrorReason.IS_EXTENSION_MODULE
    lines = linecache.getlines(path, vars(module))
    if not lines and not os.path.exists(path):
        return None, PackagingErrorReason.SOURCE_FILE_NOT_FOUND
    return "".join(lines), None
