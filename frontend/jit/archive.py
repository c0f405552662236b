"""Files of scripted and traced programs.

A file is one of torch.save that holds the state_dict, so torch.load reads the weights, PyTorch's
too. Further records hold the program: `program/main.pkl` the module, `program/units.pkl` the source
of the classes and functions that aren't tilewright's (`sources.py`), with the objects that their
names mean. Loading runs this source: it is code, as in a file that is loaded with
weights_only=False.
"""

from __future__ import annotations

import collections
import importlib
import io
import os
import pickle
import types
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.runtime import files

from .. import recording
from ..fx.graph_module import GraphModule
from ..fx.pickling import reduced
from ..nn import Module
from ..serialization.naming import saved_state
from ..serialization.reading import Archive
from ..serialization.writing import Name, Pickler, written
from .sources import FLAGS, LOADED, Import, NotSaved, Sources, Unit, fields_of, is_foreign

_UNITS = "__program__"
_VERSION = 1
_TYPES = {
    kind: name
    for name, kind in vars(types).items()
    if isinstance(kind, type) and kind.__module__ == "builtins"
}
"""Python's own types that `builtins` doesn't name."""


class _Pickler(Pickler):
    """Writes foreign classes and functions as the keys of their units."""

    def __init__(self, file: Any, sources: Sources, storages: Any):
        super().__init__(file, 4)
        self.sources, self.storages = sources, storages
        self._named: dict[str, Name] = {}
        self._tuples: dict[int, _TupleClass] = {}

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if isinstance(obj, (type, types.FunctionType)) and is_foreign(obj):
            fields = fields_of(obj)
            if fields is not None:
                made = self._tuples.setdefault(id(obj), _TupleClass(obj.__name__, fields))
                return super().save(made, save_persistent_id)
            key = self.sources.key(obj)
            obj = self._named.setdefault(key, Name(_UNITS, key))
        elif isinstance(obj, type) and obj in _TYPES:
            obj = self._named.setdefault(_TYPES[obj], Name("types", _TYPES[obj]))
        return super().save(obj, save_persistent_id)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Import):
            return load_module, (obj.path,)
        if isinstance(obj, types.ModuleType):
            raise NotSaved(
                f"torch.jit.save: a module of Python, {obj.__name__}, is a value of the program; "
                "use it by its name in the code"
            )
        if isinstance(obj, GraphModule):
            return reduced(obj)
        original = getattr(type(obj), "original", None)
        if isinstance(obj, Module) and original is not None:
            return rebuilt, (original,), saved_state(obj)
        return super().reducer_override(obj)


class _TupleClass:
    """Stands for a class that collections.namedtuple made."""

    def __init__(self, name: str, fields: list[str]):
        self.name, self.fields = name, fields

    def __reduce__(self) -> Any:
        return tuple_class, (self.name, self.fields)


def tuple_class(name: str, fields: list[str]) -> type:
    return collections.namedtuple(name, fields, module=_UNITS)


def rebuilt(kind: type) -> Any:
    """An object of a class, whose state follows in the file."""
    return object.__new__(kind)


def load_module(path: str) -> Any:
    """A module by PyTorch's path."""
    ours = __package__.partition(".")[0]
    top, dot, rest = path.partition(".")
    return importlib.import_module(ours + dot + rest if top == "torch" else path)


def save(program: Any, f: Any, extra: Mapping[str, Any] | None = None) -> None:
    """Write a program, a module or function, to a path or binary file.

    extra: further records by name, text or bytes. NotSaved if it holds what can't be saved.
    """
    recording.flush()
    state = getattr(program, "state_dict", {})
    state = state() if callable(state) else state
    records = _records(program)
    more = {f"extra/{k}": v.encode() if isinstance(v, str) else v for k, v in (extra or {}).items()}
    whole = nullcontext(f) if hasattr(f, "write") else files.whole(os.fspath(f))
    name = "archive" if hasattr(f, "write") else os.path.splitext(os.path.basename(f))[0]
    with whole as file:
        written(state, file, name or "archive", 2, lambda storages: {**records(storages), **more})


def _records(program: Any) -> Any:
    sources = Sources()

    def records(storages: Any) -> dict[str, bytes]:
        def dumped(obj: Any, where: str = "the program") -> bytes:
            data = io.BytesIO()
            try:
                _Pickler(data, sources, storages).dump(obj)
            except NotSaved:
                raise
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                raise NotSaved(
                    f"torch.jit.save: {where} holds a value that can't be saved: {error}"
                    f"{at_user_line()}"
                ) from error
            return data.getvalue()

        main = dumped(program)
        names: dict[str, dict[str, bytes]] = {}
        before = None
        while before != (len(sources.units), len(sources.attributes)):
            before = len(sources.units), len(sources.attributes)
            sources.analyse()
            names = {
                unit.key: {
                    name: dumped(value, f"{name}, which {unit.name} uses,")
                    for name, value in unit.names.items()
                }
                for unit in list(sources.units.values())
            }
        units = {unit.key: _unit(unit, names[unit.key]) for unit in sources.units.values()}
        found = {
            "program/version": str(_VERSION).encode(),
            "program/main.pkl": main,
            "program/units.pkl": pickle.dumps(units, 2),
        }
        for unit in sources.units.values():
            found[f"program/code/{unit.key}.py"] = unit.source.encode()
        return found

    return records


def _unit(unit: Unit, names: dict[str, bytes]) -> dict[str, Any]:
    return {"name": unit.name, "early": sorted(unit.early), "names": names}


class _Program:
    """The units of a file, made when they are first asked for."""

    def __init__(self, archive: Archive):
        self.archive = archive
        self.units: dict[str, Any] = pickle.loads(archive.member("program/units.pkl"))
        self.made: dict[str, Any] = {}
        self.late: list[tuple[dict[str, Any], dict[str, bytes]]] = []
        self.open = 0

    def read(self, data: bytes) -> Any:
        """An object of the program."""
        self.open += 1
        try:
            found = self.archive.unpickle(data, False, self)
        finally:
            self.open -= 1
        if not self.open:
            self.settle()
        return found

    def settle(self) -> None:
        """Give the units that were made the rest of their names."""
        while self.late:
            space, names = self.late.pop()
            space.update({name: self.read(value) for name, value in names.items()})

    def __call__(self, module: str, name: str) -> Any:
        """The class or function of a key, or None for another module's."""
        if module != _UNITS:
            return None
        if name not in self.made:
            unit = self.units[name]
            source = self.archive.member(f"program/code/{name}.py").decode()
            space: dict[str, Any] = {"__name__": f"{_UNITS}.{name}"}
            early = {n: unit["names"][n] for n in unit["early"]}
            space.update({n: self.read(data) for n, data in early.items()})
            self.settle()  # decorators are called now
            if name not in self.made:  # what it needs may need it
                _run(source, name, space)
                self.made[name] = space[unit["name"]]
                LOADED[self.made[name]] = source
                rest = {n: data for n, data in unit["names"].items() if n not in early}
                self.late.append((space, rest))
        return self.made[name]


def _run(source: str, name: str, space: dict[str, Any]) -> None:
    import linecache

    file = f"<{_UNITS}.{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec", FLAGS, dont_inherit=True), space)


def read(archive: Archive) -> Any:
    """The program in a file of `save`."""
    if not archive.has("program/main.pkl"):
        raise RuntimeError(
            f"torch.jit.load: {archive.path!s} holds no program; torch.load reads files of "
            f"torch.save{at_user_line()}"
        )
    version = archive.member("program/version").decode()
    if version != str(_VERSION):
        raise RuntimeError(
            f"torch.jit.load: the file has version {version} of the format, and {_VERSION} is "
            f"known{at_user_line()}"
        )
    return _Program(archive).read(archive.member("program/main.pkl"))
