"""Scripted functions and modules: Python that runs as it is, and can be saved with its source."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir.location import at_user_line

from ..fx.concrete import watcher
from ..fx.graph_module import GraphModule
from ..nn import Module
from . import archive
from ._state import _enabled
from .modes import EXPORTED, is_scripting, mark_of, scripting

__all__ = ["Error", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "script"]


class computed(property):
    """A property that an attribute of the instance hides, so that any module may have its name."""

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is not None and self.fget is not None and self.fget.__name__ in owner.__dict__:
            return owner.__dict__[self.fget.__name__]
        return super().__get__(owner, kind)

    def __set__(self, owner: Any, value: Any) -> None:
        assert self.fget is not None
        owner.__dict__[self.fget.__name__] = value


class _Saved:
    """What scripted functions and modules have in common."""

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None, **options: Any) -> None:
        """Write the program, source and values, to a path or a binary file."""
        archive.save(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: dict[str, Any] | None = None, **options: Any) -> bytes:
        data = io.BytesIO()
        archive.save(self, data, _extra_files)
        return data.getvalue()


class Error(RuntimeError):
    """What a scripted program raises, or an assertion in it that doesn't hold."""


@contextmanager
def running() -> Iterator[None]:
    """Run a scripted program: from outside all its errors are `Error` or RuntimeError."""
    with scripting(True):
        try:
            yield
        except RuntimeError:
            raise
        except Exception as error:
            raise Error(f"{type(error).__name__}: {error}") from error


_FLOATS = (float, "float", float | None, "float | None", "Optional[float]")
"""How a parameter says that a whole number is none."""


@functools.cache
def _with_floats(function: Any) -> tuple[inspect.Signature | None, tuple[str, ...]]:
    """The signature of a function, and those of its parameters that are floats."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None, ()
    return signature, tuple(
        [n for n, p in signature.parameters.items() if any(p.annotation == f for f in _FLOATS)]
    )


def _as_declared(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """(args, kwargs) with floats where a scripted function declares them, as results have dtypes
    by the kinds of numbers."""
    if inspect.ismethod(function):  # the cache holds no modules
        (_, *rest), kwargs = _as_declared(function.__func__, (function.__self__, *args), kwargs)
        return rest, kwargs
    signature, floats = _with_floats(function)
    if signature is None or not floats:
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    for name in floats:
        if isinstance(bound.arguments[name], int):
            bound.arguments[name] = float(bound.arguments[name])
    return bound.args, bound.kwargs


class ScriptFunction(_Saved):
    """A function that runs as a scripted program. `code` is its source."""

    def __init__(self, function: Callable[..., Any], name: str | None = None):
        functools.update_wrapper(self, function)
        self._name = name or str(getattr(function, "__name__", type(function).__name__))
        self.__name__ = self._name
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watch = watcher()
        if watch is not None:  # traces keep the whole function, with its branches
            return watch.called("call_function", self, self._run, args, kwargs)
        return self._run(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        with running():
            args, kwargs = _as_declared(self.function, args, kwargs)
            return self.function(*args, **kwargs)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __reduce__(self) -> Any:
        return ScriptFunction, (self.function, self._name)

    @property
    def name(self) -> str:
        return self._name

    @property
    def qualified_name(self) -> str:
        return f"__torch__.{self.name}"

    @property
    def code(self) -> str:
        return _source(self.function)

    @property
    def graph(self) -> Any:
        """The graph of a traced function."""
        return _graph(self.function, self.name)

    inlined_graph = graph

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction {self.name}>"


class ScriptModule(_Saved, Module):
    """A scripted module; PyTorch's base class of modules whose methods are decorated with
    script_method."""

    @computed
    def code(self) -> str:
        """The source of forward."""
        return _source(type(self).forward)

    @computed
    def graph(self) -> Any:
        return _graph(self, self.original_name)

    @computed
    def inlined_graph(self) -> Any:
        return self.graph

    @computed
    def original_name(self) -> str:
        return getattr(type(self), "original", type(self)).__name__


class RecursiveScriptModule(ScriptModule):
    """A module that runs as a scripted program: an instance of a class of its own, which extends
    this one and the module's. Its parameters and buffers are those of the module."""

    original: type[Module]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_scripting():
            return super().__call__(*args, **kwargs)
        watch = watcher()
        if watch is not None and not watch.strict:  # traces keep the whole module
            path = watch.path_of(self)
            return watch.called("call_module", path, self._run_scripted, args, kwargs)
        return self._run_scripted(*args, **kwargs)

    def _run_scripted(self, *args: Any, **kwargs: Any) -> Any:
        with running():
            (_, *args), kwargs = _as_declared(type(self).forward, (self, *args), kwargs)
            return super().__call__(*args, **kwargs)

    def __repr__(self) -> str:
        lines = [f"original_name={self.original_name}"]
        for name, child in self.named_children():
            lines.append(f"({name}): {child!r}".replace("\n", "\n  "))
        if len(lines) == 1:
            return f"{self._get_name()}({lines[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    __str__ = __repr__

    def _get_name(self) -> str:
        return type(self).__name__

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__setstate__({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return made

    def __copy__(self) -> Any:
        made = object.__new__(type(self))
        made.__setstate__(dict(self.__dict__))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise pickle.PickleError(
            "ScriptModules cannot be pickled: use torch.jit.save" + at_user_line()
        )


def script(obj: Any, *args: Any, **options: Any) -> Any:
    """A scripted module or function: it runs in Python, with all branches, and can be saved.

    Unlike PyTorch's it isn't compiled beforehand, so it may be any Python. `is_scripting()` is True
    while it runs. Classes are given back as they are, and with PYTORCH_JIT=0 everything is.
    """
    if not _enabled or isinstance(obj, (ScriptModule, ScriptFunction)):
        return obj
    if isinstance(obj, Module):
        return scripted(obj, {})
    if isinstance(obj, (dict, list)):
        return copy.copy(obj)
    if isinstance(obj, type):
        return obj
    if not callable(obj):
        raise RuntimeError(
            f"torch.jit.script: expected a module, a function or a class, got {type(obj).__name__}"
            f"{at_user_line()}"
        )
    return ScriptFunction(obj)


def scripted(module: Module, memo: dict[int, Any], face: str = "RecursiveScriptModule") -> Any:
    """A module and those in it as scripted ones, with the same tensors."""
    if isinstance(module, ScriptModule):
        return module
    if id(module) not in memo:
        kind: Any = type(module)
        made: Any = object.__new__(_class_of(kind, face))
        memo[id(module)] = made
        state = dict(module.__dict__)
        for name, child in module._modules.items():
            state[name] = child and scripted(child, memo)
        state["_modules"] = {name: state[name] for name in module._modules}
        Module.__setstate__(made, state)  # whatever its class makes of a pickle's
    return memo[id(module)]


_NAMES = ("save", "save_to_buffer", "code", "graph", "inlined_graph", "original_name")
"""What scripted modules have, unless their class has it too."""


@functools.cache
def _class_of(kind: Any, face: str) -> type:
    exported = {
        name: _exported(value)
        for name, value in inspect.getmembers_static(kind)
        if mark_of(value) == EXPORTED
    }
    own = {name: inspect.getattr_static(kind, name) for name in _NAMES if hasattr(kind, name)}
    facts = {"original": kind, "__module__": RecursiveScriptModule.__module__}
    return type(face, (RecursiveScriptModule, kind), {**facts, **own, **exported})


def _exported(method: Any) -> Any:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with running():
            return method(self, *args, **kwargs)

    return call


def script_method(fn: Any) -> Any:
    """A method of a ScriptModule that runs as a scripted program."""
    return _exported(fn) if _enabled else fn


def _source(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, GraphModule):
        return owner.code
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


def _graph(program: Any, name: str) -> Any:
    owner = getattr(program, "__self__", program)
    if isinstance(owner, GraphModule):
        return owner.graph
    raise RuntimeError(
        f"{name} is a scripted program: its branches are Python, and make no graph. `code` has its "
        f"source; torch.jit.trace and torch.export.export record graphs{at_user_line()}"
    )
