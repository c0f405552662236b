"""Guards: the dependencies of a call besides its arguments, and checks that they are unchanged.

`Watch` sees which functions run. `Snapshot` walks from these to everything that they can read:
globals by the names in their code, closures, attributes, containers, classes. A second call of the
same code on an equal snapshot takes the same path. Objects that can't be compared (files,
iterators, arrays, clocks, anything of an unknown extension) raise `Unguarded`.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import gc
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter, methodcaller
from types import CodeType, FrameType
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.shape import Size

from ..devices import device as Device
from ..recording import threads
from ..recording.compounds import is_compound
from ..recording.states import Handle


class Unguarded(Exception):
    """The reason why a call can't be replayed. result: of the call, if it was made."""

    result: Any = None


class Watch:
    """Collects, inside the block, the code of the user's functions that run, with their globals.

    The library's own functions, and foreign functions that they call, are left out.
    """

    def __init__(self) -> None:
        self.codes: dict[CodeType, dict[str, Any]] = {}
        self.reason: str | None = None

    def __enter__(self) -> Watch:
        if sys.getprofile() is not None:
            raise Unguarded("a profiler is active")
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if not _is_trusted(frame):
                self.codes[frame.f_code] = frame.f_globals
        elif event == "c_call" and not (self.reason or _is_pure(arg) or _is_trusted(frame)):
            self.reason = f"it calls {getattr(arg, '__qualname__', repr(arg))}()"


def _is_trusted(frame: FrameType | None) -> bool:
    """Whether `frame` runs the library's code, or foreign code called by it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(threads.PACKAGE):
            return True
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module == _LIBRARY or module in _TRANSPARENT or module.startswith("namedtuple_"):
            return True  # a constructor of `collections.namedtuple` has a module of its own
        if module not in _FOREIGN:
            return _is_called_by_python(frame)
        frame = frame.f_back  # foreign code counts as its caller's
    return False


def _is_called_by_python(frame: FrameType | None) -> bool:
    """Whether the interpreter itself called `frame`, as a module finder or a callback of the
    garbage collector. Anybody may have installed those."""
    callbacks = [getattr(function, "__code__", None) for function in gc.callbacks]
    while frame is not None:
        code = frame.f_code
        finding = code.co_name == "_find_spec" and code.co_filename.startswith("<frozen importlib")
        if finding or code in callbacks:
            return True
        frame = frame.f_back
    return False


# Stateless Python modules that user code calls through.
_TRANSPARENT = frozenset(
    ["contextlib", "functools", "collections", "typing", "enum", "abc", "dataclasses", "copyreg"]
)
_FOREIGN = frozenset([*sys.stdlib_module_names, "numpy", "ml_dtypes", "llvmlite", "networkx"]) - {
    "__main__"
}

_PURE_BUILTINS = frozenset(
    [
        *("abs", "all", "any", "callable", "divmod", "format", "isinstance", "issubclass", "iter"),
        *("len", "max", "min", "next", "ord", "chr", "pow", "repr", "round", "sorted", "sum"),
    ]
)
_LIBRARY = __name__.partition(".")[0]
_PURE_MODULES = frozenset(["math", "operator", "_operator", "itertools", "_functools"])
_PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)),
    *(slice, range, DType, Size, Device, CodeType),
)
_CONTAINERS = (list, tuple, dict, set, frozenset, OrderedDict, defaultdict)
_TYPES: tuple[type, ...] = (
    *(*_PLAIN, *_CONTAINERS, object, type, enumerate, zip, map, filter, reversed, super),
    *(property, staticmethod, classmethod, functools.partial, BaseException),
)


def _is_pure(function: Any) -> bool:
    """Whether a C function depends on its arguments alone, and changes nothing else."""
    owner = getattr(function, "__self__", None)
    if owner is None:
        return getattr(function, "__objclass__", None) in _TYPES
    if isinstance(owner, types.ModuleType):
        name = owner.__name__
        return name in _PURE_MODULES or (name == "builtins" and function.__name__ in _PURE_BUILTINS)
    if isinstance(owner, type):
        return owner in _TYPES
    return type(owner) in (*_PLAIN, *_CONTAINERS) or (
        isinstance(owner, dict) and _is_library(type(owner))
    )


_FORBIDDEN_OPCODES = frozenset(["IMPORT_NAME", "IMPORT_STAR", "STORE_GLOBAL", "DELETE_GLOBAL"])
# Attributes that nodes don't determine: memory, versions, gradients, the random seed.
_FORBIDDEN_NAMES = frozenset(
    [
        *("data_ptr", "storage_offset", "untyped_storage", "storage", "_version"),
        *("__dict__", "grad", "grad_fn", "is_leaf", "retains_grad", "initial_seed"),
    ]
)
_IGNORED = "_non_persistent_buffers_set"  # of a module: for saving only
_values = methodcaller("values")
_body = attrgetter("__code__", "__defaults__", "__kwdefaults__")
_contents = attrgetter("cell_contents")


class Snapshot:
    """Everything that running `codes` on `roots` can read, in its present state.

    tensors: the tensors among it, in the order of the walk, each once.
    """

    def __init__(self, codes: dict[CodeType, dict[str, Any]], roots: Iterable[Any]):
        self.codes = codes
        self.tensors: list[Any] = []
        self._maps: list[Any] = []
        self._lists: list[Any] = []
        self._sets: list[tuple[Any, frozenset[Any]]] = []
        self._cells: list[Any] = []
        self._functions: list[Any] = []
        self._globals: list[tuple[dict[str, Any], str]] = []
        self._classes: set[int] = set()
        self._met: dict[int, Any] = {}
        self._held: list[Any] = []  # keeps the objects alive whose ids are in `_expected`
        names: set[str] = set()
        for code in codes:
            names.update(code.co_names)
        self.names = frozenset(names)
        for name in _FORBIDDEN_NAMES & self.names:
            raise Unguarded(f"it names .{name}")
        for root in roots:
            self._visit(root)
        for code, scope in codes.items():
            self._visit_globals(code, scope)
        self._check_reached()
        for t in self.tensors:
            for name in self.names:
                if not hasattr(type(t), name) and hasattr(t, name):
                    raise Unguarded(f"it reads .{name}, an attribute of a tensor")
        self._expected = self._now()

    def holds(self) -> bool:
        """Whether nothing has changed."""
        try:
            return self._now() == self._expected
        except ValueError:  # a name of a closure was unbound
            return False

    def _now(self) -> list[Any]:
        """The ids to compare. They can't be reused, as this object holds their objects."""
        maps = self._maps
        values = [
            *chain.from_iterable(map(_values, maps)),
            *chain.from_iterable(self._lists),
            *map(_contents, self._cells),
            *chain.from_iterable(map(_body, self._functions)),
            *[scope.get(name, _MISSING) for scope, name in self._globals],
        ]
        if not self._held:
            self._held = values
        return [
            list(map(id, values)),
            list(map(len, maps)),
            list(map(len, self._lists)),
            list(chain.from_iterable(maps)),
            all(now == then for now, then in self._sets),
        ]

    # ---- the walk ----------------------------------------------------------------------------

    def _visit_globals(self, code: CodeType, scope: dict[str, Any]) -> None:
        for instruction in dis.get_instructions(code):
            if instruction.opname in _FORBIDDEN_OPCODES:
                raise Unguarded(f"{code.co_name} uses {instruction.opname}")
            if instruction.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                continue
            name = instruction.argval
            self._globals.append((scope, name))
            if name in scope:
                self._visit(scope[name])
            else:
                found = vars(builtins).get(name)
                self._globals.append((vars(builtins), name))
                self._visit(found)

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN or id(value) in self._met:
            return
        self._met[id(value)] = value
        if isinstance(value, Handle):
            if is_compound(value):  # its parts may be exchanged
                raise Unguarded("it reads a sparse or nested tensor")
            self.tensors.append(value)
        elif isinstance(value, enum.Enum) or value is _MISSING:
            pass
        elif kind in (tuple, frozenset) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
            self._visit_all(value)
        elif kind is list:
            self._lists.append(value)
            self._visit_all(value)
        elif kind is set:
            self._sets.append((value, frozenset(value)))
            self._visit_all(value)
        elif kind in (dict, OrderedDict, defaultdict):
            self._visit_map(value, value)
        elif isinstance(value, types.FunctionType):
            self._visit_function(value)
        elif kind is types.MethodType:
            self._visit_all((value.__self__, value.__func__))
        elif kind is property:
            self._visit_all(f for f in (value.fget, value.fset, value.fdel) if f is not None)
        elif kind in (staticmethod, classmethod):
            self._visit(value.__func__)
        elif kind is functools.partial:
            self._visit_all((value.func, value.args, value.keywords))
        elif kind in _NATIVE:  # its effects show when it is called
            pass
        elif isinstance(value, type):
            self._visit_class(value)
        elif isinstance(value, types.ModuleType):
            self._visit_module(value)
        else:
            self._visit_instance(value)

    def _visit_all(self, values: Iterable[Any]) -> None:
        for value in list(values):
            self._visit(value)

    def _visit_map(self, mapping: Any, items: dict[Any, Any]) -> None:
        self._maps.append(mapping)
        self._visit_all(items)
        self._visit_all(items.values())

    def _visit_function(self, function: Any) -> None:
        runs = function.__code__ in self.codes
        for cell in function.__closure__ or ():
            try:
                found = cell.cell_contents
            except ValueError:  # a name that is not bound yet
                raise Unguarded(f"{function.__qualname__} reads an unbound name") from None
            if runs or isinstance(found, _CALLABLE):  # a decorator's wrapped function may run
                self._cells.append(cell)
                self._visit(found)
        if runs:
            self._functions.append(function)
            self._visit_all((function.__defaults__, function.__kwdefaults__))

    def _check_reached(self) -> None:
        """Check that the walk met each running function as an object with its closure, or met a
        function that makes it."""
        known = {f.__code__ for f in self._functions}
        stack = list(known)
        while stack:
            inner = [c for c in stack.pop().co_consts if isinstance(c, CodeType)]
            known.update(inner)
            stack += inner
        for code in self.codes:
            if code not in known:
                raise Unguarded(f"it is not known where {code.co_name}() comes from")

    def _visit_class(self, kind: type) -> None:
        if kind in _TYPES or issubclass(kind, (BaseException, enum.Enum)):
            return
        if kind.__module__ in _PURE_MODULES:
            return
        if kind.__basicsize__ > _Plain.__basicsize__:  # it holds hidden state
            raise Unguarded(f"it can reach {kind.__module__}.{kind.__qualname__}")
        for base in kind.__mro__:
            if base in _TYPES or base.__module__ in ("typing", "abc") or id(base) in self._classes:
                continue
            self._classes.add(id(base))
            self._maps.append(base.__dict__)
            for name, value in list(base.__dict__.items()):
                if name in self.names or isinstance(value, _CALLABLE):
                    self._visit(value)

    def _visit_module(self, module: types.ModuleType) -> None:
        name = module.__name__.partition(".")[0]
        if name in _FOREIGN and name not in _PURE_MODULES | _TRANSPARENT:
            raise Unguarded(f"it uses module {module.__name__}")
        for own in self.names & vars(module).keys():
            self._globals.append((vars(module), own))
            self._visit(vars(module)[own])

    def _visit_instance(self, value: Any) -> None:
        kind = type(value)
        if _is_library(kind) and hasattr(value, "__wrapped__"):  # a compiled function
            self._visit(value.__wrapped__)
            return
        self._visit_class(kind)
        own = getattr(value, "__dict__", None)
        if type(own) is not dict or kind.__basicsize__ > _Plain.__basicsize__:
            raise Unguarded(f"it can reach a {kind.__module__}.{kind.__qualname__}")
        self._maps.append(own)
        library = _is_library(kind)
        for name, each in list(own.items()):
            if isinstance(each, dict) and _is_library(type(each)):
                # A module's entries are among its attributes too; here they are met in order.
                self._visit_all(each.values())
            elif (
                name == "_hooks"
                or name in self.names
                or isinstance(each, _CALLABLE)
                or (library and name != _IGNORED)
            ):
                self._visit(each)


def _is_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in (_LIBRARY, "torch")  # the name that it stands for


class _Plain:
    """Its instances are a header and a dictionary."""


_MISSING = object()
_CALLABLE: tuple[type, ...] = (
    *(types.FunctionType, types.MethodType, staticmethod, classmethod, property, type),
    functools.partial,
)
_NATIVE: tuple[type, ...] = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType),
    types.ClassMethodDescriptorType,
)
