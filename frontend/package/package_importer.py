"""Archives of objects and of the source of the modules that they need: reading."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.machinery
import importlib.util
import io
import itertools
import linecache
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ..serialization.archive import PyTorchFileReader
from ..serialization.locations import restored
from ..serialization.reading import mover
from ..serialization.rebuilding import Loaded, loaded, revealed, storage_id
from ..serialization.unpickling import Unpickler
from .file_structure_representation import Directory, tree_of
from .glob_group import GlobPattern
from .importer import Importer, demangled, is_mangled, of_torch

__all__ = ["PackageImporter", "is_from_package"]

_numbers = itertools.count()


def is_from_package(obj: Any) -> bool:
    """Whether a module, or the class of an object, was loaded from an archive."""
    if isinstance(obj, ModuleType):
        return is_mangled(obj.__name__)
    return is_mangled(type(obj).__module__)


class _Folder:
    """An archive that was unpacked to a folder, as a reader of records."""

    def __init__(self, path: Path):
        self._path = path

    def get_all_records(self) -> list[str]:
        files = (each for each in sorted(self._path.rglob("*")) if each.is_file())
        return [each.relative_to(self._path).as_posix() for each in files]

    def get_record(self, name: str) -> bytes:
        return (self._path / name).read_bytes()


class PackageImporter(Importer):
    """Reads an archive, and imports its modules: those of two archives, or of an archive and of the
    program, don't meet.

    file_or_buffer: a path, a binary file, a folder, or a reader of records.
    module_allowed: whether a module may be taken from the program, by its name.
    """

    def __init__(
        self, file_or_buffer: Any, module_allowed: Callable[[str], bool] = lambda module_name: True
    ):
        self.filename = "<binary>"
        reader: Any = file_or_buffer
        if isinstance(file_or_buffer, (str, os.PathLike)):
            path = Path(file_or_buffer)
            self.filename = str(path)
            reader = _Folder(path) if path.is_dir() else PyTorchFileReader(str(path))
        elif not hasattr(file_or_buffer, "get_record"):
            reader = PyTorchFileReader(io.BytesIO(file_or_buffer.read()))
        self.zip_reader = reader
        self.modules: dict[str, ModuleType] = {}
        self._records = set(reader.get_all_records())
        self._id = f"<torch_package_{next(_numbers)}>"
        self._files = dict(_modules_of(self._records))
        lines = self._text(".data/extern_modules") or ""
        self._externs = set(lines.split())
        for name in self._externs:
            if not module_allowed(name):
                raise ImportError(
                    f"package {self.filename!r} needs the external module {name!r} but that module "
                    f"has been disallowed{at_user_line()}"
                )
        self._builtins = {**vars(builtins), "__import__": self._import}

    def _text(self, record: str) -> str | None:
        found = record in self._records
        return self.zip_reader.get_record(record).decode() if found else None

    # ---- contents ----------------------------------------------------------------------------

    def id(self) -> str:
        """The first part of the names of this archive's modules."""
        return self._id

    def python_version(self) -> str | None:
        """The version of Python that wrote the archive."""
        version = self._text(".data/python_version")
        return version.strip() if version else None

    def file_structure(
        self, *, include: GlobPattern = "**", exclude: GlobPattern = ()
    ) -> Directory:
        """The files whose paths fit the patterns."""
        return tree_of(self.filename, sorted(self._records), include, exclude)

    def load_binary(self, package: str, resource: str) -> bytes:
        self.import_module(package)
        return self.zip_reader.get_record(  # type: ignore[no-any-return]
            f"{package.replace('.', '/')}/{resource}"
        )

    def load_text(
        self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict"
    ) -> str:
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """The object of a pickle. map_location: where its tensors go, as in torch.load."""
        data = self.load_binary(package, resource)
        move = mover(map_location)
        storages: dict[Any, Loaded] = {}
        reduced: dict[Any, Any] = {}
        swapped = self._text("byteorder") == "big"

        def persistent(saved: Any) -> Any:
            if isinstance(saved, tuple) and saved[:1] == ("reduce_package",):
                *number, call, args = saved[1:]
                key = number[0] if number else object()
                if key not in reduced:
                    reduced[key] = call(self, *args)
                return reduced[key]
            key, dtype, location = storage_id(saved, self.filename)
            if key not in storages:
                record = self.zip_reader.get_record(f".data/{key}.storage")
                raw = np.frombuffer(bytearray(record), np.uint8)
                raw, location = restored(raw, location) or (raw, location)
                storages[key] = loaded(raw, dtype, move(location), swapped)
            return storages[key]

        reader = Unpickler(io.BytesIO(data), False, persistent, self._found)
        return revealed(reader.read(self.filename), storages.values())

    def _found(self, module: str, name: str) -> Any:
        """What a pickle names. None for what is PyTorch's: the unpickler knows that."""
        if module.partition(".")[0] == "torch":
            return None
        found: Any = self.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def get_source(self, module_name: str) -> str | None:
        """The source of a module of the archive."""
        record = self._files.get(demangled(module_name))
        return "" if record is None else self._text(record)

    def get_resource_reader(self, fullname: str) -> Any:
        """What importlib.resources asks for the files of a package."""
        name = demangled(fullname)
        return _Resources(self, name) if self._is_package(name) else None

    # ---- modules -----------------------------------------------------------------------------

    def import_module(self, name: str, package: Any = None) -> ModuleType:
        """A module of the archive, or one of the program that the archive leaves to it."""
        if name.startswith("."):
            name = importlib.util.resolve_name(name, demangled(package or ""))
        return self._load(demangled(name))

    def _is_package(self, name: str) -> bool:
        return self._files.get(name, ".py").endswith("__init__.py")

    def _is_extern(self, name: str) -> bool:
        """Whether a module is left to the program: named, inside of such a one, or around it."""
        parts = name.split(".")
        inside = any(".".join(parts[: n + 1]) in self._externs for n in range(len(parts)))
        return inside or any(each.startswith(f"{name}.") for each in self._externs)

    def _load(self, name: str) -> ModuleType:
        if name in self.modules:
            return self.modules[name]
        if name == "torch_package_importer":  # code in an archive asks for its importer so
            return self  # type: ignore[return-value]
        outer, _, last = name.rpartition(".")
        if name not in self._files:
            if not self._is_extern(name):
                raise ModuleNotFoundError(
                    f'No module named "{name}" in self-contained archive "{self.filename}" and the '
                    "module is also not in the list of allowed external modules: "
                    f"{sorted(self._externs)}",
                    name=name,
                )
            module = importlib.import_module(of_torch(name))
        else:
            parent = self._load(outer) if outer else None
            if name in self.modules:  # the package has loaded it
                return self.modules[name]
            module = self._made(name)
            if parent is not None:
                setattr(parent, last, module)
        self.modules[name] = module
        return module

    def _made(self, name: str) -> ModuleType:
        record, is_package = self._files[name], self._is_package(name)
        module: Any = ModuleType(f"{self._id}.{name}")
        path = f"{self._id}.{record or name}"
        loader: Any = self
        spec = importlib.machinery.ModuleSpec(
            module.__name__, loader, origin="<package_importer>", is_package=is_package
        )
        outer = name if is_package else name.rpartition(".")[0]
        module.__dict__.update(
            __spec__=spec,
            __loader__=self,
            __file__=path,
            __cached__=None,
            __builtins__=self._builtins,
            __package__=f"{self._id}.{outer}" if outer else "",
            __torch_package__=True,
        )
        if is_package:
            module.__path__ = [path.removesuffix("/__init__.py")]
        self.modules[name] = module
        try:
            source = self._text(record) if record else ""
            linecache.lazycache(path, module.__dict__)
            exec(compile(source or "", path, "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            self.modules.pop(name, None)
            raise
        return self.modules[name]  # its code may have put something else there

    def _import(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        """What `import` does in the archive's modules."""
        if level:
            package = demangled((globals or {}).get("__package__") or "")
            name = importlib.util.resolve_name("." * level + name, package)
        module = self._load(name)
        if not fromlist:
            return self._load(name.partition(".")[0])
        wanted = list(fromlist)
        if "*" in wanted:
            wanted = [*(n for n in wanted if n != "*"), *getattr(module, "__all__", ())]
        for each in wanted:
            if hasattr(module, each) or not hasattr(module, "__path__"):
                continue
            inner = f"{name}.{each}"
            if inner in self._files:
                self._load(inner)
            elif name not in self._files:
                with contextlib.suppress(ModuleNotFoundError):  # `from` says what is missing
                    importlib.import_module(f"{module.__name__}.{each}")
        return module


def _modules_of(records: set[str]) -> Iterator[tuple[str, str]]:
    """The modules of an archive, with their records; folders without a source have "__init__.py" of
    their own name, which isn't there."""
    for record in records:
        *folders, last = record.split("/")
        if folders[:1] == [".data"]:
            continue
        for n in range(1, len(folders) + 1):
            yield ".".join(folders[:n]), "/".join([*folders[:n], "__init__.py"])
        if last.endswith(".py") and last != "__init__.py":
            yield ".".join([*folders, last[:-3]]), record


class _Resources:
    """The files of a package, as importlib.resources reads them."""

    def __init__(self, importer: PackageImporter, name: str):
        self._importer, self._folder = importer, name.replace(".", "/")

    def open_resource(self, resource: str) -> Any:
        if not self.is_resource(resource):
            raise FileNotFoundError(resource)
        return io.BytesIO(self._importer.zip_reader.get_record(f"{self._folder}/{resource}"))

    def resource_path(self, resource: str) -> str:
        raise FileNotFoundError(f"{resource} is in an archive, and has no path of its own")

    def is_resource(self, name: str) -> bool:
        return f"{self._folder}/{name}" in self._importer._records

    def contents(self) -> Iterator[str]:
        inside = (r for r in self._importer._records if r.startswith(f"{self._folder}/"))
        yield from sorted({r[len(self._folder) + 1 :].partition("/")[0] for r in inside})
