"""The names of functions that graphs call, and the functions that tracing watches."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ..overriding import SPACES

_PACKAGE = __package__.partition(".")[0]


def namespaces() -> Iterator[tuple[str, ModuleType]]:
    """The modules whose functions take tensors: (PyTorch's path, module)."""
    for path, home in SPACES.items():
        yield path, importlib.import_module(f"{_PACKAGE}.{home}" if home else _PACKAGE)


@functools.cache
def _public() -> tuple[dict[int, str], tuple[Callable[..., Any], ...]]:
    names: dict[int, str] = {}
    functions: list[Callable[..., Any]] = []
    for path, module in namespaces():
        listed = getattr(module, "__all__", None) or dir(module)
        hidden = ("_assert",) if path == "torch" else ()
        for name in (*listed, *hidden):
            if name.startswith("_") and name not in hidden:
                continue
            found = getattr(module, name, None)
            if not callable(found) or inspect.isclass(found) or inspect.ismodule(found):
                continue
            if id(found) not in names:
                names[id(found)] = f"{path}.{name}"
                functions.append(found)
    return names, tuple(functions)


def public_functions() -> tuple[Callable[..., Any], ...]:
    """The public functions of torch that may take tensors."""
    return _public()[1]


def qualified_name(function: Callable[..., Any]) -> str:
    """The path of a function: torch.relu, torch.nn.functional.linear, _operator.add, mine.f."""
    known = _public()[0].get(id(function))
    if known is not None:
        return known
    name = getattr(function, "__name__", None)
    if name is None:
        raise NotImplementedError(f"a function without a name can't be written: {function!r}")
    module = getattr(function, "__module__", None) or _home(function, name)
    if module == "builtins":
        return str(name)
    if module.partition(".")[0] == _PACKAGE:
        module = "torch" + module[len(_PACKAGE) :]
    return f"{module}.{getattr(function, '__qualname__', name)}"


def _home(function: Any, name: str) -> str:
    for path, module in list(sys.modules.items()):
        if getattr(module, name, None) is function:
            return path
    raise RuntimeError(f"module for {name} not found")


@functools.cache
def inner_functions() -> tuple[Callable[..., Any], ...]:
    """Functions of layers that aren't public: a concrete trace shows them whole."""
    rnn = importlib.import_module(f"{_PACKAGE}.nn.rnn")
    normalization = importlib.import_module(f"{_PACKAGE}.nn.functional.normalization")
    narrow = importlib.import_module(f"{_PACKAGE}.nn.functional.narrow")
    return rnn.run_layer, rnn.run_cell, normalization.batch_norm_step, *narrow.LAYERS


def quantized_functions() -> tuple[Callable[..., Any], ...]:
    """The operations of quantized models, once such a model is there."""
    operations = sys.modules.get(f"{_PACKAGE}.ao.nn.quantized.operations")
    names = ("add", "add_scalar", "cat", "matmul", "mul", "mul_scalar")
    return tuple(getattr(operations, name) for name in names) if operations else ()


def keeps_whole(module: Any) -> bool:
    """Whether a graph calls a layer as a whole: one of quantized tensors."""
    home = type(module).__module__
    ours = (f"{_PACKAGE}.ao.nn.quantized.", f"{_PACKAGE}.ao.nn.intrinsic.quantized")
    return home.startswith(ours) and ".dynamic" not in home
