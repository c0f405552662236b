"""Names that mean something else for a while: how traces see the calls of a program."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ..nn import Module

_OURS = __package__.partition(".")[0]


# "torch" is another name of tilewright's modules, or PyTorch itself.
_WITHOUT = sys.stdlib_module_names | {"torch", "functorch", "numpy", "scipy", "sympy", "triton"}
_WITHOUT -= {"__main__"}


class Patches:
    """New values of names in modules, classes and dicts, which `undo` takes back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any, bool]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Give an attribute, or an item of a dict, another value."""
        space = owner if isinstance(owner, dict) else vars(owner)
        self._before.append((owner, name, space.get(name), name in space))
        _set(owner, name, value)

    def replace(
        self,
        functions: Mapping[int, Callable[..., Any]],
        by: Callable[[Callable[..., Any]], Callable[..., Any]],
        spaces: Iterator[dict[str, Any]],
    ) -> None:
        """Put `by` of a function in the place of each of `functions` (by id), wherever the spaces
        and the classes of modules have it."""
        new = {key: by(function) for key, function in functions.items()}
        for space in spaces:
            for name, value in list(space.items()):
                if id(value) in new and functions[id(value)] is value:
                    self.put(space, name, new[id(value)])
        for kind in _classes(Module):
            for name, value in list(vars(kind).items()):
                inner = getattr(value, "__func__", None)
                if isinstance(value, staticmethod) and id(inner) in new:
                    self.put(kind, name, staticmethod(new[id(inner)]))

    def undo(self) -> None:
        for owner, name, value, there in reversed(self._before):
            if there:
                _set(owner, name, value)
            elif isinstance(owner, dict):
                del owner[name]
            else:
                delattr(owner, name)
        self._before.clear()


@contextmanager
def patches() -> Iterator[Patches]:
    """The block in which the patches that it makes hold."""
    made = Patches()
    try:
        yield made
    finally:
        made.undo()


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def _classes(kind: type) -> Iterator[type]:
    yield kind
    each: type
    for each in kind.__subclasses__():
        yield from _classes(each)


def spaces(function: Any, root: Any, watched: Sequence[ModuleType]) -> Iterator[dict[str, Any]]:
    """The dicts in which traced code finds functions: all modules, closures' globals, and what the
    modules of the root keep as attributes, those in lists too. Python's modules, and packages that
    never import torch, are left out."""
    inside = (f"{_OURS}.ir", f"{_OURS}.codegen", f"{_OURS}.runtime", f"{_OURS}.recording")
    seen: set[int] = set()
    found: list[Any] = [getattr(inspect.unwrap(function), "__globals__", {})]
    found += [
        vars(module)
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and not name.startswith((*inside, __package__))
        and (module in watched or name.partition(".")[0] not in _WITHOUT)
    ]
    if isinstance(root, Module):
        found += map(vars, _modules(root))
    for space in found:
        if id(space) not in seen:
            seen.add(id(space))
            yield space


def _modules(root: Module) -> Iterator[Module]:
    """All modules that a module has: its children, and what its attributes hold in containers."""
    seen: set[int] = set()
    stack: list[Any] = [root]
    while stack:
        each = stack.pop()
        is_list = type(each) in (list, tuple)  # of other classes anything may iterate
        if not (is_list or isinstance(each, (Module, dict))) or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Module):
            yield each
            stack += vars(each).values()
        else:
            stack += each if is_list else each.values()
