"""The source of what runs: the classes and functions of a program, to be saved with its values.

A program is any Python, so its source is what can hold it: a graph would have to leave branches
out. A *unit* is one class or function that isn't tilewright's, nor of an installed base (Python's
library, NumPy). A unit has its source, without what scripted programs don't run, and the objects
that its names mean. These are saved too, so the program runs where its modules aren't.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import symtable
import sys
import textwrap
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..nn import Module
from .modes import EXPORTED, IGNORED, UNUSED, export, ignore, is_scripting, mark_of, unused

OURS = __package__.partition(".")[0]
FLAGS = __future__.annotations.compiler_flag
"""Annotations in units are never evaluated."""

_DUNDERS = frozenset(
    f"__{name}__"
    for name in "call len getitem setitem iter next contains getattr enter exit add mul eq hash "
    "bool missing".split()
)
_PLAIN_DECORATORS = ("export", "unused", "ignore", "script_method", "_overload", "_overload_method")


def fields_of(obj: Any) -> list[str] | None:
    """The fields of a class that collections.namedtuple made: it has no source, and needs none."""
    if not isinstance(obj, type) or obj.__bases__ != (tuple,) or not hasattr(obj, "_fields"):
        return None
    try:
        inspect.getsource(obj)
    except (OSError, TypeError):
        return list(obj._fields)
    return None


LOADED: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""The source of classes and functions that came from a file."""


class NotSaved(RuntimeError):
    """A program holds something that can't be saved."""


@dataclass(frozen=True)
class Import:
    """A module that is there wherever the program is loaded, by PyTorch's path."""

    path: str


@dataclass
class Unit:
    """A class or function. is_wrapped: whether decorators made another function of it. early: the
    names that its definition needs, before it is called."""

    object: Any
    key: str
    is_wrapped: bool
    source: str = ""
    name: str = ""
    early: set[str] = field(default_factory=set)
    names: dict[str, Any] = field(default_factory=dict)


def is_foreign(obj: Any) -> bool:
    """Whether a class or function has to be saved by its source."""
    top = (getattr(obj, "__module__", None) or "builtins").partition(".")[0]
    known = top in (OURS, "numpy", "torch") or (
        top in sys.stdlib_module_names and top != "__main__"
    )
    return not known


class Sources:
    """Collects the units that a program needs."""

    def __init__(self) -> None:
        self.units: dict[int, Unit] = {}
        self.attributes: set[str] = {"forward"}  # names of attributes that some unit uses

    def key(self, obj: Any) -> str:
        """The key of a class or function, which becomes a unit."""
        wrapped = obj
        if isinstance(obj, types.FunctionType):
            obj = inspect.unwrap(obj)
        known = self.units.get(id(obj))
        if known is None:
            known = self.units[id(obj)] = Unit(
                obj, f"u{len(self.units)}_{obj.__name__}", wrapped is not obj
            )
            if not known.key.isidentifier():
                raise NotSaved(
                    f"torch.jit.save: the program uses {_shown(obj)}, a function without a name of "
                    "its own: define it with def, at a place that has a source file"
                )
        return known.key

    def analyse(self) -> None:
        """Give each unit its source and names; new units may come of them."""
        for unit in list(self.units.values()):
            _Analysis(self, unit).run()


def _shown(obj: Any) -> str:
    return f"{getattr(obj, '__module__', '?')}.{getattr(obj, '__qualname__', obj)}"


class _Analysis:
    """Finds out the source and the names of one unit."""

    def __init__(self, sources: Sources, unit: Unit):
        self.sources, self.unit, self.object = sources, unit, unit.object
        self.bound: dict[str, Any] = {}  # names given to bases and defaults

    def run(self) -> None:
        mark = mark_of(self.object)
        if mark == IGNORED:
            raise NotSaved(
                f"torch.jit.save: Could not export Python function call '{self.object.__name__}'. "
                "Remove calls to Python functions before export: it is marked @torch.jit.ignore, "
                "so its source isn't part of the program"
            )
        tree = self._tree()
        self.space = self._space()
        if isinstance(tree, ast.ClassDef):
            self._class(tree)
        else:
            tree = self._function(tree, self.object, self.unit.is_wrapped)
        module = ast.fix_missing_locations(ast.Module([tree], []))
        self.unit.name, self.unit.source = tree.name, ast.unparse(module) + "\n"
        self._names(tree)

    def _tree(self) -> Any:
        try:
            text = LOADED.get(self.object) or textwrap.dedent(inspect.getsource(self.object))
        except (OSError, TypeError) as error:
            raise NotSaved(
                f"torch.jit.save: the source of {_shown(self.object)} isn't there ({error}), so it "
                "can't be saved: define it in a file"
            ) from None
        try:
            tree = ast.parse(text).body[0]
        except SyntaxError:
            tree = ast.Pass()
        if not isinstance(tree, (ast.ClassDef, ast.FunctionDef)):
            raise NotSaved(
                f"torch.jit.save: {_shown(self.object)} is written inside of another statement; "
                "define it with def"
            )
        return tree

    def _space(self) -> dict[str, Any]:
        """What the names outside of the unit mean."""
        space: dict[str, Any] = {}
        if isinstance(self.object, type):
            space |= vars(sys.modules.get(self.object.__module__, builtins))
            functions = [f for _, f in _functions_of(self.object)]
        else:
            functions = [self.object]
        for function in functions:
            space |= {k: v for k, v in function.__globals__.items() if k not in space}
        for function in functions:
            for name, cell in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            ):
                try:
                    space[name] = cell.cell_contents
                except ValueError:  # not bound yet
                    continue
        return space

    # ---- definitions -------------------------------------------------------------------------

    def _class(self, tree: ast.ClassDef) -> None:
        own = dict(_functions_of(self.object))
        whole = not issubclass(self.object, Module)
        body: list[ast.stmt] = []
        for each in tree.body:
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                exported = mark_of(own.get(each.name)) == EXPORTED
                used = each.name in self.sources.attributes or each.name in _DUNDERS
                if not (whole or exported or used):
                    continue
                method = self._method(each, own.get(each.name))
                if exported:
                    method.decorator_list.append(self._bind("_export", export))
                body.append(method)
            elif isinstance(each, ast.AnnAssign):
                note = ast.Constant(ast.unparse(each.annotation))
                body.append(ast.AnnAssign(each.target, note, each.value, each.simple))
            elif not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
                body.append(each)
        tree.body = body or [ast.Pass()]
        originals = getattr(self.object, "__orig_bases__", None)
        plain = [b for b in (originals or self.object.__bases__) if b is not object]
        tree.bases = [self._bind(f"_base{i}", base) for i, base in enumerate(plain)]
        tree.decorator_list = [d for d in tree.decorator_list if not self._only_registers(d)]
        tree.keywords = [k for k in tree.keywords if k.arg == "metaclass"]

    def _only_registers(self, tree: ast.expr) -> bool:
        """Whether a decorator of a class is the program's own: it gave the class back, so what it
        did was to note it somewhere. Python's, as dataclass, change the class."""
        found = self._meaning(tree.func if isinstance(tree, ast.Call) else tree)
        return found is None or is_foreign(found)

    def _method(self, tree: Any, function: Any) -> Any:
        mark = mark_of(function) if function is not None else None
        found = vars(self.object).get(tree.name)
        mark = mark or (mark_of(found) if found is not None else None)
        if mark == UNUSED:
            return _unused(tree)
        if mark == IGNORED:
            raise NotSaved(
                f"torch.jit.save: Could not export Python function call '{tree.name}' of "
                f"{_shown(self.object)}. Remove calls to Python functions before export: it is "
                "marked @torch.jit.ignore, so its source isn't part of the program"
            )
        inner = getattr(found, "fget", None) or getattr(found, "__func__", found)
        return self._function(tree, function, inner is not function)

    def _function(self, tree: Any, function: Any, is_wrapped: bool) -> Any:
        if mark_of(function) == UNUSED:
            return _unused(tree)
        tree.decorator_list = [
            d
            for d in tree.decorator_list
            if not self._is_mark(d) and (is_wrapped or _makes_method(d))
        ]
        tree.returns = None
        args = tree.args
        for each in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if each is not None:
                each.annotation = None
        if function is not None:
            self._defaults(tree, function)
        return _Folding(self._meaning).visit(tree)

    def _is_mark(self, tree: ast.expr) -> bool:
        """Whether a decorator only marks a function for scripting."""
        name = tree.func if isinstance(tree, ast.Call) else tree
        found = self._meaning(name)
        if found in (export, unused, ignore):
            return True
        last = getattr(name, "attr", getattr(name, "id", None))
        home = getattr(found, "__module__", None) or ""
        return last in (*_PLAIN_DECORATORS, "script", "script_if_tracing") and home.startswith(
            f"{OURS}.jit"
        )

    def _defaults(self, tree: Any, function: Any) -> None:
        """Defaults become the values that they have."""
        values = function.__defaults__ or ()
        offset = len(tree.args.defaults) - len(values)
        for i, value in enumerate(values):
            tree.args.defaults[offset + i] = self._bind(f"default_{tree.name}_{i}", value)
        for i, each in enumerate(tree.args.kwonlyargs):
            if tree.args.kw_defaults[i] is not None:
                value = (function.__kwdefaults__ or {})[each.arg]
                tree.args.kw_defaults[i] = self._bind(f"default_{tree.name}_{each.arg}", value)

    def _bind(self, name: str, value: Any) -> ast.expr:
        if value is None or type(value) in (bool, int, str) or value is ...:
            return ast.Constant(value)
        self.bound[name] = value
        return ast.Name(name, ast.Load())

    # ---- names -------------------------------------------------------------------------------

    def _meaning(self, tree: ast.AST) -> Any:
        """The object that a name, or an attribute of modules, means; None if it isn't known."""
        if isinstance(tree, ast.Name):
            return self.space.get(tree.id, getattr(builtins, tree.id, None))
        if isinstance(tree, ast.Attribute):
            owner = self._meaning(tree.value)
            if isinstance(owner, (types.ModuleType, type)):
                return getattr(owner, tree.attr, None)
        return None

    def _names(self, tree: Any) -> None:
        used = set(_globals(symtable.symtable(self.unit.source, "unit", "exec")))
        early = {n.id for part in _early(tree) for n in ast.walk(part) if isinstance(n, ast.Name)}
        chains = list(_chains(tree))
        for each in ast.walk(tree):
            if isinstance(each, ast.Attribute):
                self.sources.attributes.add(each.attr)
            elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                self.sources.attributes.add(each.value)
        self.unit.names = {}
        for name in sorted(used):
            if name in self.bound:
                self.unit.names[name] = self.bound[name]
            elif name in self.space:
                value = self.space[name]
                if value is self.object:
                    continue
                mine = [c[1:] for c in chains if c[0] == name]
                self.unit.names[name] = _reference(value, mine)
            elif not hasattr(builtins, name) and name in early and name != self.unit.name:
                raise NotSaved(
                    f"torch.jit.save: {_shown(self.object)} uses {name!r} in its definition, which "
                    "is local to the function that made it: define it at the level of its module"
                )
        self.unit.early = early & self.unit.names.keys()


def _functions_of(kind: type) -> Iterator[tuple[str, Any]]:
    """The functions that a class defines, by name: of methods, properties and the like."""
    for name, value in vars(kind).items():
        inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
        inner = inspect.unwrap(inner) if callable(inner) else inner
        if isinstance(inner, types.FunctionType):
            yield name, inner


def _makes_method(tree: ast.expr) -> bool:
    """Whether a decorator makes a method or property of a function."""
    name = getattr(tree, "id", getattr(tree, "attr", ""))
    return name in ("staticmethod", "classmethod", "property", "setter", "getter", "deleter")


def _unused(tree: Any) -> Any:
    tree.body = [
        ast.parse(
            f"raise RuntimeError({tree.name + ' is marked @torch.jit.unused, and was called'!r})"
        ).body[0]
    ]
    tree.decorator_list = [d for d in tree.decorator_list if _makes_method(d)]
    tree.returns = None
    nothing = ast.arg("args"), ast.arg("kwargs")
    tree.args = ast.arguments([], [], nothing[0], [], [], nothing[1], [])
    return tree


def _early(tree: Any) -> Iterator[ast.AST]:
    """The parts of a definition that are evaluated when it is made."""
    if isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from tree.decorator_list
        yield from tree.args.defaults
        yield from (d for d in tree.args.kw_defaults if d is not None)
    elif isinstance(tree, ast.ClassDef):
        yield from (*tree.decorator_list, *tree.bases, *(k.value for k in tree.keywords))
        for each in tree.body:
            yield from _early(each)
    else:
        yield tree


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """The names that a program asks its module for."""
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        outside = symbol.is_global() if not top else not symbol.is_assigned()
        if symbol.is_referenced() and outside:
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)


def _chains(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """Names with their attributes: a.b.c."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inside:
            parts, at = [node.attr], node.value
            while isinstance(at, ast.Attribute):
                inside.add(id(at))
                parts.append(at.attr)
                at = at.value
            if isinstance(at, ast.Name):
                yield (at.id, *reversed(parts))


def _reference(value: Any, chains: list[tuple[str, ...]]) -> Any:
    """What a name means, to be saved: of a module only what is used."""
    if not isinstance(value, types.ModuleType):
        return value
    top = value.__name__.partition(".")[0]
    if top == OURS:
        return Import("torch" + value.__name__[len(OURS) :])
    if top in sys.stdlib_module_names or top == "numpy":
        return Import(value.__name__)
    parts: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in (c for c in chains if c):
        if hasattr(value, first):
            parts.setdefault(first, []).append(tuple(rest))
    return types.SimpleNamespace(
        **{name: _reference(getattr(value, name), rest) for name, rest in parts.items()}
    )


class _Folding(ast.NodeTransformer):
    """Takes out the branches that scripted programs don't take."""

    def __init__(self, meaning: Callable[[ast.AST], Any]):
        self._meaning = meaning

    def _known(self, test: ast.expr) -> bool | None:
        if isinstance(test, ast.Call) and self._meaning(test.func) is is_scripting:
            return True
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._known(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            found = [self._known(each) for each in test.values]
            decides = isinstance(test.op, ast.Or)
            if decides in found:
                return decides
            return None if None in found else not decides
        return None

    def visit_If(self, node: ast.If) -> Any:
        known = self._known(node.test)
        self.generic_visit(node)
        if known is None:
            return node
        return (node.body if known else node.orelse) or ast.Pass()

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        known = self._known(node.test)
        self.generic_visit(node)
        return node if known is None else (node.body if known else node.orelse)
