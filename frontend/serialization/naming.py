"""PyTorch's names of classes and functions, and its form of modules, in files."""

from __future__ import annotations

import copyreg
import functools
import importlib
import sys
import types
from collections import OrderedDict
from typing import Any

from ..nn import Module
from ..nn.hooks import NAMES
from ..nn.modules import _PATHS as MODULES
from ..paths import PATHS
from ..recording import Handle

OURS = __package__.partition(".")[0]

_STATE_HOOKS = (
    *("_state_dict_hooks", "_state_dict_pre_hooks"),
    *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)


# PyTorch's compiled functions: where they are found here.
_COMPILED = {
    "torch._C._nn": f"{OURS}.nn.functional",
    "torch._C._VariableFunctions": OURS,
    "torch._VariableFunctions": OURS,
    "torch._C._special": f"{OURS}.special",
    "torch._C._linalg": f"{OURS}.linalg",
    "torch._C._fft": f"{OURS}.fft",
}


@functools.cache
def _elsewhere() -> dict[tuple[str, str], str]:
    """PyTorch's modules of names that stand in other modules here: (our module, name) -> theirs."""
    found: dict[tuple[str, str], str] = {}
    for path, homes in PATHS.items():
        for home, names in homes.items():
            for name in names.split():
                found[f"{OURS}.{home}".rstrip("."), name] = f"torch.{path}"
    for name in ("Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"):
        found[f"{OURS}.nn.parameter", name] = "torch.nn.parameter"
    for path, homes in MODULES.items():
        for home, names in homes.items():
            for name in names.split():
                found[f"{OURS}.nn.{home}", name] = f"torch.nn.modules.{path}"
    return found


@functools.cache
def path_of(obj: Any) -> tuple[str, str] | None:
    """(module, name) by which PyTorch, and `class_at`, find a class or function of ours."""
    home, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(home, str) or home.partition(".")[0] != OURS or not name:
        return None
    known = _elsewhere().get((home, name))
    if known is not None:
        return known, name
    parts = home.split(".")
    for n in (*range(2, len(parts)), 1, len(parts)):
        module = sys.modules.get(".".join(parts[:n]))
        if module is not None and _attribute(module, name) is obj:
            return ".".join(["torch", *parts[1:n]]), name
    return None


def typename(obj: Any, /) -> str:
    """PyTorch's full name of an object's class, or of a class or function."""
    if isinstance(obj, Handle):
        return str(obj.type())
    kind: Any = obj if hasattr(obj, "__qualname__") else type(obj)
    module, name = path_of(kind) or (getattr(kind, "__module__", "builtins"), kind.__qualname__)
    return name if module == "builtins" else f"{module}.{name}"


def class_at(module: str, name: str) -> Any:
    """What PyTorch calls `module.name`. AttributeError or ImportError if there is none."""
    if module in _COMPILED:
        return _plainly(importlib.import_module(_COMPILED[module]), name)
    paths = [OURS + module[len("torch") :]]
    if module.startswith("torch.nn.modules"):
        paths.append(f"{OURS}.nn")
    for path in paths:
        try:
            found = _attribute(importlib.import_module(path), name)
        except ImportError:
            found = None
        if found is not None:
            return found
    return _plainly(importlib.import_module(paths[-1]), name)


def _plainly(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _attribute(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def is_named(obj: Any) -> bool:
    return isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType))


def reduced(module: Module) -> Any:
    """How a module is pickled: with the attributes that PyTorch's Module has. None if its class
    says itself how."""
    kind = type(module)
    own = kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__
    if not own or getattr(kind, "__getstate__", None) is not getattr(object, "__getstate__", None):
        return None
    return copyreg.__newobj__, (kind,), saved_state(module)  # type: ignore[attr-defined]


def saved_state(module: Module) -> dict[str, Any]:
    entries = {k: dict(getattr(module, k)) for k in ("_parameters", "_buffers", "_modules")}
    hooks = module.__dict__.get("_hooks") or {}
    state: dict[str, Any] = {
        "training": module.training,
        "_parameters": entries["_parameters"],
        "_buffers": entries["_buffers"],
        "_non_persistent_buffers_set": module._non_persistent_buffers_set,
        "_is_full_backward_hook": True if hooks.get("_backward_hooks") else None,
        **{name: hooks.get(name) or OrderedDict() for name in NAMES},
        **{name: module.__dict__.get(name) or OrderedDict() for name in _STATE_HOOKS},
        "_modules": entries["_modules"],
    }
    mirrored = {n for each in entries.values() for n in each}
    left = {*mirrored, *state, *module._derived, "_hooks"}
    state.update({k: v for k, v in module.__dict__.items() if k not in left})
    state.update(module._fields_of_torch())
    return state
