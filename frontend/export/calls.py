"""Which call of which module makes each node of an exported graph."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..fx.concrete import Watcher
from ..fx.patching import patches
from ..nn import Module
from ..utils._pytree import TreeSpec, tree_flatten

__all__ = ["Call", "watched_calls"]


@dataclass
class Call:
    """A module's call: the nodes or constants that are the leaves of its arguments and results."""

    path: str
    inputs: list[Any]
    in_spec: TreeSpec
    outputs: list[Any]
    out_spec: TreeSpec


class _Calls:
    """Tells a watcher, for each node to come, in which calls of modules it is made.

    kept: the paths of the modules whose arguments and results are noted: of the first call of each.
    """

    def __init__(self, watch: Watcher, module: Module, kept: Collection[str]):
        self.watch, self.kept = watch, kept
        self.found: dict[str, Call] = {}
        self._paths: dict[int, list[str]] = {}
        for path, each in module.named_modules(remove_duplicate=False):
            self._paths.setdefault(id(each), []).append(path)
        self._counts: dict[str, int] = {}
        self._thread = threading.get_ident()

    def _path(self, module: Module) -> str | None:
        """The path of a module: if it has several, one inside of the module that calls it."""
        paths = self._paths.get(id(module))
        if paths is None:
            return None
        around = [path for path, _ in self.watch.module_stack.values()]
        inside = f"{around[-1]}." if around and around[-1] else ""
        return next((p for p in paths if p.startswith(inside)), paths[0])

    @contextmanager
    def inside(self, module: Module) -> Iterator[str | None]:
        """The block in which a module is called. Gives its path if the call is to be noted."""
        seen = self.watch.depth == 0 and self._thread == threading.get_ident()
        path = self._path(module) if seen else None
        if path is None:
            yield None
            return
        count = self._counts[path] = self._counts.get(path, -1) + 1
        key = f"L__self__{path}" + (f"@{count}" if count else "")
        before = self.watch.module_stack
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        self.watch.module_stack = {**before, key: (path, kind)}
        try:
            yield path if path in self.kept and not count else None
        finally:
            self.watch.module_stack = before

    def note(self, path: str, given: Any, result: Any) -> None:
        (inputs, in_spec), (outputs, out_spec) = tree_flatten(given), tree_flatten(result)
        nodes = self.watch.create_arg
        self.found[path] = Call(
            path, [nodes(x) for x in inputs], in_spec, [nodes(x) for x in outputs], out_spec
        )


@contextmanager
def watched_calls(watch: Watcher, module: Module, kept: Collection[str]) -> Iterator[_Calls]:
    """The block in which nodes get `nn_module_stack`: the path and the class of each module around
    them, from the outermost to the innermost, by keys that tell the calls of a module apart."""
    calls = _Calls(watch, module, kept)
    own = Module.__call__

    def called(m: Module, *args: Any, **kwargs: Any) -> Any:
        with calls.inside(m) as noted:
            result = own(m, *args, **kwargs)
        if noted is not None:
            calls.note(noted, (args, kwargs), result)
        return result

    with patches() as made:
        made.put(Module, "__call__", called)
        yield calls
