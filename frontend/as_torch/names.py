"""PyTorch's names of classes: packages compare them, and show them to users.

Where tilewright stands for torch, `torch.nn.Linear` says of itself that it is
`torch.nn.modules.linear.Linear`, a path at which it is found. A class gets its name when its module
has been imported; a lazy module's when that comes.
"""

from __future__ import annotations

import functools
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, ForwardRef

OURS = "tilewright"

_HOMES = {
    "distributions.composed_transforms": "distributions.transforms",
    "distributions.elementwise_transforms": "distributions.transforms",
    "distributions.matrix_transforms": "distributions.transforms",
    "distributions.transform": "distributions.transforms",
    "fx.tracing": "fx._symbolic_trace",
    "fx.writing": "fx.graph",
    "jit.scripting": "jit._script",
    "nn.parameter": "nn.parameter",
    "optim.adafactor": "optim",
    "optim.muon": "optim",
    "optim.lr_scheduler.composed": "optim.lr_scheduler",
    "optim.lr_scheduler.cyclic": "optim.lr_scheduler",
    "optim.lr_scheduler.schedules": "optim.lr_scheduler",
    "serialization.options": "serialization",
    "utils.data.loader": "utils.data.dataloader",
    "utils.selective": "utils.checkpoint",
}
"""Our modules -> PyTorch's module of their public classes, below torch."""
_TOP = {
    "_tensor": "Tensor",
    "devices": "device",
    "functions.limits": "finfo iinfo",
    "ir.dtype": "dtype",
    "ir.shape": "Size",
    "layouts": "layout memory_format",
    "runtime.device": "OutOfMemoryError",
    "streams": "Event Stream",
}
"""Our modules -> their classes that PyTorch has in torch itself."""
_CALLED = {f"{OURS}.jit": "torch.jit"}
"""Our modules -> their `__name__`, which packages compare. Such a module has imported all below it:
an import by `from` looks below this name."""
_SAME = ("autograd", "cuda", "distributions", "fx", "nn", "optim", "utils")
"""Packages whose other modules are called as PyTorch's are."""


@functools.cache
def _known() -> dict[tuple[str, str], str]:
    """(our module, name) -> PyTorch's module, of classes for which a table says it."""
    from ..nn.modules import _PATHS as LAYERS
    from ..paths import PATHS

    tables = (("nn.modules.", "nn.", LAYERS), ("", "", PATHS), ("", "", {"": _TOP}))
    return {
        (f"{ours}{home}", name): f"{theirs}{path}"
        for theirs, ours, table in tables
        for path, homes in table.items()
        for home, names in homes.items()
        for name in names.split()
    }


def _path(home: str, name: str) -> str | None:
    """PyTorch's module of a class of our module `home`, both below the top; None if there is
    none."""
    found = _known().get((home, name))
    if found is not None or name.startswith("_"):
        return found
    return _HOMES.get(home, home if home.partition(".")[0] in _SAME else None)


class Namer(importlib.abc.MetaPathFinder):
    """Gives the classes of our modules PyTorch's names: of those that are there at once, of others
    when they are imported."""

    def __init__(self) -> None:
        self._before: list[tuple[type, str, dict[str, Any]]] = []
        self._unseen: dict[tuple[str, ModuleType], None] = {}
        self._shown: list[str] = []
        self._called: list[ModuleType] = []
        sys.meta_path.insert(0, self)
        for name, module in list(sys.modules.items()):
            if name.startswith(f"{OURS}."):
                self._rename(module, name)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{OURS}."):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_rename(module: ModuleType) -> None:
            run(module)
            self._rename(module, fullname)

        spec.loader.exec_module = run_and_rename  # type: ignore[method-assign]
        return spec

    def _rename(self, module: ModuleType, name: str) -> None:
        if name in _CALLED:
            self._called.append(module)
            module.__name__ = _CALLED[name]
        for kind in list(vars(module).values()):
            if not isinstance(kind, type) or kind.__module__ != name:
                continue
            path = _path(name[len(OURS) + 1 :], kind.__qualname__.partition(".")[0])
            if path is not None:
                said = vars(kind).get("__annotations__", {})
                self._before.append((kind, name, dict(said)))
                said.update((k, _told(a, name)) for k, a in said.items() if isinstance(a, str))
                kind.__module__ = f"torch.{path}".rstrip(".")
                self._unseen[path, module] = None
        self._show()

    def _show(self) -> None:
        """Let `inspect` find the sources of classes: it looks for the file of what is imported at
        the path that a class names. A path that stands for parts of several modules has the file of
        the one that is called alike, or of the first."""
        for path, module in list(self._unseen):
            theirs, name = sys.modules.get(f"{OURS}.{path}"), f"torch.{path}"
            if theirs is None:  # it is being made
                continue
            del self._unseen[path, module]
            if name not in sys.modules:
                sys.modules[name] = theirs
                self._shown.append(name)
            alike = module.__name__.rpartition(".")[2] == path.rpartition(".")[2]
            has_file = theirs.__spec__ is not None and theirs.__spec__.origin is not None
            if not has_file and (alike or getattr(theirs, "__file__", None) is None):
                theirs.__file__ = module.__file__

    def take_back(self) -> None:
        """Give all classes the names that they had."""
        sys.meta_path.remove(self)
        for each in self._shown:
            sys.modules.pop(each, None)
        for module in self._called:
            module.__name__ = {theirs: ours for ours, theirs in _CALLED.items()}[module.__name__]
        for kind, name, said in self._before:
            kind.__module__ = name
            if said:
                kind.__annotations__.update(said)


def _told(annotation: str, name: str) -> ForwardRef:
    """An annotation that is evaluated in our module `name`: packages ask for the types of a class
    (`typing.get_type_hints`), which are looked up in the module that it names."""
    return ForwardRef(annotation, module=name, is_class=True)
