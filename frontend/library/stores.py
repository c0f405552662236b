"""Finds the parameters that a Triton kernel writes through, in its text.

The analysis follows names from the parameters to values computed from them. Every parameter that
the address of a store may come from counts as written. Loaded values don't count as addresses. So
the answer may have too many parameters, which costs a copy. It has all written ones, unless a
kernel makes addresses of numbers in memory.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterator, Sequence
from typing import Any

_NOTHING: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=1024)
def stored(function: Any) -> frozenset[str]:
    """The names of the parameters that a triton.JITFunction writes through."""
    (definition,) = function.parse().body
    return _Body(function, definition).stored()


class _Body:
    """One function: `comes_from` maps a name to the parameters it may have been computed from."""

    def __init__(self, function: Any, definition: ast.FunctionDef):
        self.definition = definition
        self.scope = function.get_capture_scope()
        self.comes_from = {name: frozenset([name]) for name in function.arg_names}

    def stored(self) -> frozenset[str]:
        while self._assign_all():
            pass
        calls = (n for n in ast.walk(self.definition) if isinstance(n, ast.Call))
        return _NOTHING.union(*map(self._written_by, calls))

    def _assign_all(self) -> bool:
        """Follow every assignment once; whether that changed anything."""
        before = dict(self.comes_from)
        for target, value in _assignments(self.definition):
            sources = self._sources(value)
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    known = self.comes_from.get(name.id, _NOTHING)
                    self.comes_from[name.id] = known | sources
        return self.comes_from != before

    def _sources(self, node: ast.AST) -> frozenset[str]:
        """The parameters whose memory the value of an expression may point to."""
        if isinstance(node, ast.Name):
            return self.comes_from.get(node.id, _NOTHING)
        if isinstance(node, ast.Call) and _reads(_called(node)):
            return _NOTHING
        return _NOTHING.union(*map(self._sources, ast.iter_child_nodes(node)))

    def _written_by(self, call: ast.Call) -> frozenset[str]:
        from triton.runtime import JITFunction

        found = self._resolved(call.func)
        given = [*call.args, *(k.value for k in call.keywords)]
        name = _called(call)
        if isinstance(found, JITFunction):
            if found.__module__.startswith("triton.language"):
                return _NOTHING
            return self._written_inside(found, call)
        if name == "inline_asm_elementwise" or (found is None and isinstance(call.func, ast.Name)):
            return _NOTHING.union(*map(self._sources, given))  # it may write anywhere
        if not _writes(name):
            return _NOTHING
        if found is None and isinstance(call.func, ast.Attribute):  # a method, of a descriptor
            return self._sources(call.func.value)
        return self._sources(given[0]) if given else _NOTHING

    def _written_inside(self, function: Any, call: ast.Call) -> frozenset[str]:
        """The parameters that a call of another kernel function writes through."""
        if any(isinstance(a, ast.Starred) for a in call.args):
            return _NOTHING.union(*map(self._sources, call.args))
        written = stored(function)
        passed = [*zip(function.arg_names, call.args)]
        passed += [(k.arg or "", k.value) for k in call.keywords]
        return _NOTHING.union(*(self._sources(v) for n, v in passed if n in written or not n))

    def _resolved(self, node: ast.expr) -> Any:
        """The object outside the function that an expression names, or None."""
        if isinstance(node, ast.Name):
            if node.id in self.comes_from:
                return None
            return self.scope.get(node.id, getattr(builtins, node.id, None))
        if isinstance(node, ast.Attribute):
            owner = self._resolved(node.value)
            return None if owner is None else getattr(owner, node.attr, None)
        return None


def _called(call: ast.Call) -> str:
    """The last part of the called function's name."""
    found: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return found


def _reads(name: str) -> bool:
    return "load" in name or "atomic" in name


def _writes(name: str) -> bool:
    return "store" in name or "atomic" in name or "scatter" in name


def _assignments(definition: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(target, value) of every assignment, loop and the like that binds a name."""
    for node in ast.walk(definition):
        targets: Sequence[ast.AST] = ()
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            targets = (node.target,)
        elif isinstance(node, ast.For):
            yield node.target, node.iter
        value = getattr(node, "value", None)
        if isinstance(value, ast.AST):
            yield from ((target, value) for target in targets)
