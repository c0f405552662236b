"""Symbolic tracing: a program is run once with proxies for its inputs."""

from __future__ import annotations

import builtins
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from .._tensor import Tensor
from ..nn import Module, Parameter, Sequential
from ..recording import Handle
from .graph import Graph
from .node import Node, base_types
from .patching import patches, spaces
from .proxy import ParameterProxy, Proxy, TracerBase, recorded, tracer_in
from .targets import public_functions

__all__ = ["PH", "Tracer", "is_fx_symbolic_tracing", "is_fx_tracing", "wrap"]

F = TypeVar("F")
_OURS = __package__.partition(".")[0]


class _Placeholder:
    def __repr__(self) -> str:
        return "PH"


PH = _Placeholder()
"""In concrete_args: this one is an input."""

_wrapped: list[tuple[dict[str, Any], str]] = []  # what `wrap` named: (globals, name)
_active = 0  # how many traces are under way


def is_fx_tracing() -> bool:
    """Whether a program is traced now."""
    return _active > 0


is_fx_symbolic_tracing = is_fx_tracing


def wrap(fn_or_name: F) -> F:
    """Keep a function of the calling module whole in traces: a call is one node. Returns it."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    if frame.f_back.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__  # type: ignore[attr-defined]
    _wrapped.append((frame.f_back.f_globals, name))
    return fn_or_name


class Tracer(TracerBase):
    """Traces modules and functions. Subclass it to choose which modules stay whole
    (`is_leaf_module`), and how values become arguments (`create_arg`)."""

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ):
        self._functions = {
            id(value): value
            for module in autowrap_modules
            for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        }
        self._functions |= {id(f): f for f in autowrap_functions}
        self._modules = autowrap_modules
        self.param_shapes_constant = param_shapes_constant
        self.root: Any = None
        self._paths: list[tuple[str, Module]] = []
        self._tensors: dict[int, str] = {}
        self._parameters: dict[int, Node] = {}  # the nodes of those that were used
        self.root_module_name = ""
        self.module_stack: dict[str, Any] = {}

    # ---- what a subclass may change ----------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module is one call: by default those of torch.nn and torch.ao.nn, without
        Sequential."""
        home = type(m).__module__.removeprefix(f"{_OURS}.").removeprefix("torch.")
        return home.startswith(("nn.", "ao.nn.")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule of the root."""
        for path, found in self._paths:
            if found is mod:
                return path
        raise NameError("module is not installed as a submodule")

    def call_module(
        self,
        m: Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The result of a call of a module: a node, or what its forward gives."""
        path = self.path_of_module(m)
        self.module_stack[path] = (path, type(m))
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.module_stack.pop(path, None)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What a module's attribute is to a program that is traced. A parameter of the root is a
        proxy, so that what is computed of parameters alone is in the graph, and learns. So is a
        buffer where `proxy_buffer_attributes` is set.

        parameter_proxy_cache: the proxies of this trace by their names."""
        found = isinstance(attr_val, Parameter) or (
            self.proxy_buffer_attributes and any(attr_val is b for b in self.root.buffers())
        )
        name = self._tensors.get(id(attr_val)) if found else None
        if name is None:
            return attr_val

        def sized(node: Node) -> Proxy:
            return ParameterProxy(self, node, name, attr_val)

        if name not in parameter_proxy_cache:
            sizes_known = self.param_shapes_constant and isinstance(attr_val, Parameter)
            # A subclass's create_proxy may take no factory.
            options: dict[str, Any] = {"proxy_factory_fn": sized} if sizes_known else {}
            made = self.create_proxy("get_attr", name, (), {}, **options)
            parameter_proxy_cache[name] = made
        return parameter_proxy_cache[name]

    def create_arg(self, a: Any) -> Any:
        """A value as an argument: tensors of the root by their names, others as its constants."""
        if isinstance(a, Parameter):
            if id(a) not in self._parameters:
                self._parameters[id(a)] = self._attribute(self._tensors, a, "_tensor_constant")
            return self._parameters[id(a)]
        if isinstance(a, Handle):
            return self._attribute(self._tensors, a, "_tensor_constant")
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            parts = tuple(self.create_arg(each) for each in a)
            return self.create_node("call_function", type(a), parts, {})
        return super().create_arg(a)

    def _attribute(self, known: dict[int, str], value: Any, name: str) -> Node:
        if id(value) not in known:
            known[id(value)] = self.get_fresh_qualname(name)
            setattr(self.root, known[id(value)], value)
        return self.create_node("get_attr", known[id(value)], (), {})

    def get_fresh_qualname(self, prefix: str) -> str:
        """The name of a new attribute of the root."""
        count = 0
        while hasattr(self.root, f"{prefix}{count}"):
            count += 1
        return f"{prefix}{count}"

    # ---- tracing -----------------------------------------------------------------------------

    def trace(
        self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """The graph of a module's forward, or of a function. concrete_args: values of arguments
        that are no inputs."""
        global _active
        if isinstance(root, Module):
            self.root = root
            function = getattr(type(root), self.traced_func_name)
            self.root_module_name = type(root).__name__
            self._paths = list(root.named_modules(remove_duplicate=False))
        else:
            self.root, function = Module(), root
            self._paths = []
        self._tensors = dict(tensors_of(self.root))
        self._parameters = {}
        self.graph = Graph(tracer_cls=type(self))
        args, names, rest = self._inputs(function, isinstance(root, Module), concrete_args or {})
        if rest:
            function, args, names = _unspread(function, args, names, rest)
        _active += 1
        try:
            with self._patched(function):
                result = function(*args, **names)
        finally:
            _active -= 1
        notes = getattr(function, "__annotations__", {})
        self.create_node(
            "output", "output", (self.create_arg(result),), {}, type_expr=notes.get("return")
        )
        return self.graph

    def _inputs(
        self, function: Any, is_module: bool, concrete: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], list[Any]]:
        """The arguments of the traced call, by place and by name: proxies, and concrete values.
        Then those for *args and **kwargs."""
        function = inspect.unwrap(function)
        notes = getattr(function, "__annotations__", {})
        parameters = list(inspect.signature(function).parameters.values())
        args: list[Any] = []
        names: dict[str, Any] = {}
        rest: list[Any] = []
        if is_module:
            if not parameters:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            parameters = parameters[1:]
        given = 0
        for p in sorted(parameters, key=lambda p: p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)):
            if p.kind is p.VAR_POSITIONAL or p.kind is p.VAR_KEYWORD:
                stars = "*" if p.kind is p.VAR_POSITIONAL else "**"
                value = self.create_proxy("placeholder", stars + p.name, (), {})
                rest.append(value)
                continue
            default = () if p.default is p.empty else (p.default,)
            if concrete.get(p.name, PH) is not PH:
                given += 1
                value = self._concrete(p.name, given, default, concrete[p.name])
            else:
                value = self.create_proxy(
                    "placeholder", p.name, default, {}, type_expr=notes.get(p.name)
                )
            if p.kind is p.KEYWORD_ONLY:
                names[p.name] = value
            else:
                args.append(value)
        return args, names, rest

    def _concrete(self, name: str, number: int, default: tuple[Any, ...], value: Any) -> Any:
        """A concrete argument, which stays an input that must have this value."""
        given = self.create_proxy("placeholder", f"{name}_{number}", default, {})
        if isinstance(value, base_types):
            from ..functions.assertions import _assert

            text = f"{name} has been specialized to have value {value} but got another value"
            if value is not None:
                self.create_proxy("call_function", _assert, (given == value, text), {})
        return value

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with calls on proxies recorded."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if tracer_in((args, kwargs)) is None:
                return function(*args, **kwargs)
            return recorded(function, args, kwargs)

        return call

    @contextmanager
    def _patched(self, function: Any) -> Iterator[None]:
        """The block in which calls of modules and functions come here."""

        def called(m: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*given: Any, **options: Any) -> Any:
                return before(m, *given, **options)

            return self.call_module(m, forward, args, kwargs)

        def read(m: Module, name: str) -> Any:
            value = object.__getattribute__(m, name)
            return self.getattr(name, value, proxies) if isinstance(value, Handle) else value

        proxies: dict[str, Proxy] = {}
        before = Module.__call__
        functions = {id(f): f for f in public_functions()} | self._functions
        with patches() as made:
            made.put(Module, "__call__", called)
            # Modules have their tensors in `__dict__`, where Python asks no `__getattr__`.
            made.put(Module, "__getattribute__", read)
            for name, value in list(vars(Tensor).items()):
                if isinstance(value, FunctionType) and not name.startswith("__"):
                    made.put(Tensor, name, _method(value, name))
            made.replace(functions, self._watched, spaces(function, self.root, self._modules))
            for space, name in _wrapped:
                found = space.get(name, getattr(builtins, name, None))
                if found is None:
                    raise RuntimeError(f"torch.fx.wrap: there is no function {name!r}")
                made.put(space, name, self._watched(found))
            yield


def _unspread(
    function: Any, args: list[Any], names: dict[str, Any], rest: list[Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """The function with plain arguments in the place of *args and **kwargs, which get one proxy
    each, as nobody knows how many there are."""
    function = inspect.unwrap(function)
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    plain = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    by_name = [names[n] for n in code.co_varnames[code.co_argcount : count]]
    changed = code.replace(
        co_flags=plain, co_argcount=count + len(rest), co_kwonlyargcount=0, co_posonlyargcount=0
    )
    made = FunctionType(
        changed, function.__globals__, function.__name__, None, function.__closure__
    )
    made.__annotations__ = function.__annotations__
    return made, [*args, *by_name, *rest], {}


def _method(method: Any, name: str) -> Any:
    """A method of Tensor that records its call if another argument is a proxy."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracer = tracer_in((args, kwargs)) if args or kwargs else None
        if tracer is None:
            return method(self, *args, **kwargs)
        return tracer.create_proxy("call_method", name, (self, *args), kwargs)

    return call


def tensors_of(root: Any) -> Iterator[tuple[int, str]]:
    """The tensors that a module and those in it hold: (id, name)."""
    found: dict[int, str] = {}
    for prefix, module in root.named_modules():
        dot = f"{prefix}." if prefix else ""
        own = {**vars(module), **module._parameters, **module._buffers}
        for name, value in own.items():
            if isinstance(value, Handle):
                found.setdefault(id(value), dot + name)
    return iter(found.items())
