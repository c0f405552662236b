"""Proxies: what a program computes with while it is traced."""

from __future__ import annotations

import dis
import enum
import importlib
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from ..devices import device
from ..overriding import watch
from ..recording import Handle
from . import traceback
from .node import Node, base_types, map_aggregate

if TYPE_CHECKING:
    from .graph import Graph

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]


class TraceError(ValueError):
    """A program does something with a value that a graph can't hold."""


_ENDS = ("placeholder", "output")


class TracerBase:
    """Writes the operations on proxies into a graph."""

    graph: Graph
    module_stack: Mapping[str, Any] = {}
    record_stack_traces = False
    trace_asserts = check_mutable_operations = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        if kind == "call_function" and self.check_mutable_operations:
            operator_schemas = importlib.import_module(".operator_schemas", __package__)
            operator_schemas.check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if traceback.has_preserved_node_meta():
            traceback.mark(node)
        elif self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        if self.record_stack_traces and not node.stack_trace and kind not in _ENDS:
            node.stack_trace = traceback.stack_of_user()
        return node

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Any:
        """Add a node, and give the proxy of its value."""
        found, options = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, found, options, name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Any:
        """A value as an argument of a node."""
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, (tuple, list)):
            parts = [self.create_arg(each) for each in a]
            if hasattr(a, "_fields"):
                return type(a)(*parts)
            return tuple(parts) if isinstance(a, tuple) else parts
        if isinstance(a, dict):
            for key in a:
                if isinstance(key, Proxy):
                    raise RuntimeError(
                        f"Keys for dictionaries used as an argument cannot contain a Node: {key}"
                    )
            return {k: self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(each) for each in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(each) for each in (a.start, a.stop, a.step)))
        if isinstance(a, (*base_types, Node, DType, device, Handle, enum.Enum)) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow"
            + at_user_line()
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            f"loop or as a *args or **kwargs function argument.{at_user_line()}"
        )

    def keys(self, obj: Proxy) -> Any:
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """A tracer that adds to a graph that is there."""

    def __init__(self, graph: Graph):
        self.graph = graph


class Proxy:
    """A value while a program is traced: what is done with it becomes nodes."""

    def __init__(self, node: Node, tracer: TracerBase | None = None):
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node
        watch()  # a proxy may be made without a trace: functions ask it from now on

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.getitem, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TypeError("'Proxy' object does not support item assignment")

    def __iter__(self) -> Iterator[Any]:
        count = _unpacked(sys._getframe(1))
        if count is not None:
            return iter([self[i] for i in range(count)])
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope"
        )

    def __contains__(self, item: Any) -> bool:
        raise TraceError(f"'in' isn't supported while a program is traced{at_user_line()}")

    def keys(self) -> Any:
        """Called by **proxy."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The node of a call with proxies among its arguments."""
        return recorded(orig_method, args, kwargs or {})


def tracer_in(args: Any) -> TracerBase | None:
    """The tracer of a proxy anywhere in nested arguments."""
    found: list[TracerBase] = []

    def look(value: Any) -> Any:
        if isinstance(value, Proxy):
            found.append(value.tracer)
        return value

    map_aggregate(args, look)
    return found[0] if found else None


def recorded(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The proxy of a call of a function, or of a method of Tensor."""
    tracer = tracer_in((args, kwargs))
    assert tracer is not None
    if getattr(function, "_fx_method", False):
        return tracer.create_proxy("call_method", function.__name__, args, kwargs)
    return tracer.create_proxy("call_function", function, args, kwargs)


class ParameterProxy(Proxy):
    """A parameter while a program is traced: its sizes are numbers, which may be compared."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any):
        super().__init__(node, tracer)
        if not isinstance(param, Handle):
            raise AssertionError(f"expected a Parameter, got {type(param)}")
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    @property
    def ndim(self) -> int:
        return int(self.param.ndim)

    def size(self) -> Any:
        return self.param.size()

    def dim(self) -> int:
        return int(self.param.dim())

    def numel(self) -> int:
        return int(self.param.numel())

    nelement = numel


class Scope:
    """The path and the type of the module around a node."""

    def __init__(self, module_path: str, module_type: Any):
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """The block in which a scope is another one."""

    def __init__(self, scope: Scope, current_scope: Scope):
        self._before = Scope(scope.module_path, scope.module_type)
        self._scope = scope
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *args: Any) -> None:
        before = self._before
        self._scope.module_path, self._scope.module_type = before.module_path, before.module_type


class Attribute(Proxy):
    """An attribute of a traced value; a method if it is called."""

    def __init__(self, root: Proxy, attr: str):
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """Added when the attribute is used, since most are methods."""
        if self._node is None:
            made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = made.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _unpacked(frame: FrameType) -> int | None:
    """How many names the line `a, b = proxy` has that asks for an iterator."""
    for each in dis.get_instructions(frame.f_code):
        if each.offset >= frame.f_lasti and each.opname not in ("CACHE", "GET_ITER"):
            if each.opname == "UNPACK_SEQUENCE":
                return each.arg
            return None
    return None


def _put(name: str, method: Any) -> None:
    method.__name__ = method.__qualname__ = name
    setattr(Proxy, name, method)


def _operator(name: str) -> None:
    target = getattr(operator, name)

    def call(*args: Any) -> Any:
        tracer = tracer_in(args)
        assert tracer is not None
        return tracer.create_proxy("call_function", target, args, {})

    _put(f"__{name.strip('_')}__", call)


def _reflected(name: str) -> None:
    target = getattr(operator, name)

    def call(self: Any, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    _put(f"__r{name.strip('_')}__", call)


_BINARY = "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor".split()
for _name in [*_BINARY, *"eq ne lt gt le ge neg pos invert abs".split()]:
    _operator(_name)
for _name in _BINARY:
    _reflected(_name)
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
