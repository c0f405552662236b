"""Nodes: the calls of a graph."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..recording import Handle
from .immutable_collections import immutable_dict, immutable_list
from .targets import qualified_name

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any
BaseArgumentTypes = Any
base_types = (str, int, float, bool, complex, type(None), type(...))
OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
_side_effects: set[Any] = set()


def has_side_effect(fn: Any) -> Any:
    """Keep calls of a function in graphs, though nothing uses their results. Returns it."""
    _side_effects.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`a` with fn of each leaf of nested tuples, lists, dicts and slices."""
    if isinstance(a, tuple):
        parts = [map_aggregate(each, fn) for each in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list(map_aggregate(each, fn) for each in a)
    if isinstance(a, dict):
        return immutable_dict((k, map_aggregate(v, fn)) for k, v in a.items())
    if isinstance(a, slice):
        return slice(*(map_aggregate(each, fn) for each in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`a` with fn of each Node in nested containers."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """A call in a Graph.

    op: 'placeholder' is an input, 'get_attr' an attribute of the module, 'call_function',
    'call_method' and 'call_module' are calls, 'output' is the result. target: the name of the input
    or attribute, the function, or the name of the method or module. args, kwargs: the arguments,
    with nodes for values. users: the nodes that use this one. meta: what passes note.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ):
        if op not in OPS:
            raise AssertionError(f"a node's op is one of {OPS}, not {op!r}")
        if op == "call_function" and not callable(target):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} "
                "but a Callable is expected"
            )
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} "
                "but a str is expected"
            )
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self._inputs: dict[Node, None] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = immutable_dict()
        self._prev = self._next = self
        self._erased = False
        self._set(args, kwargs)

    # ---- place -------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Move `x` before this node."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Move `x` behind this node."""
        self._next.prepend(x)

    def __lt__(self, other: Node) -> bool:
        return self is not other and other in list(_after(self))

    # ---- arguments ---------------------------------------------------------------------------

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, a: tuple[Any, ...]) -> None:
        self._set(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Any]) -> None:
        self._set(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._inputs)

    def _set(self, args: Any, kwargs: Any) -> None:
        for old in self._inputs:
            old.users.pop(self, None)
        self._inputs = {}

        def use(node: Node) -> Node:
            self._inputs[node] = node.users[self] = None
            return node

        self._args = map_arg(tuple(args), use)
        self._kwargs = map_arg(dict(kwargs), use)

    def update_arg(self, idx: int, arg: Any) -> None:
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        def new(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set(map_arg(self.args, new), map_arg(self.kwargs, new))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let all users use another node. Returns them."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # ---- answers -----------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does something beside giving a result."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            writes = name.endswith("_") and not name.endswith("__")
            return self.target in _side_effects or name == "_assert" or writes
        if self.op == "call_method":
            return str(self.target).endswith("_") and not str(self.target).endswith("__")
        if self.op == "call_module":
            owner = self.graph.owning_module
            return bool(getattr(owner and owner.get_submodule(self.target), "_is_impure", False))
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """The arguments of a call with all defaults, as (args, kwargs): see normalize_function.
        root: the module that has the modules. None for other nodes."""
        from .operator_schemas import normalize_function, normalize_module

        options: Any = {"normalize_to_only_use_kwargs": normalize_to_only_use_kwargs}
        target: Any = self.target
        if self.op == "call_function":
            return normalize_function(target, self.args, self.kwargs, **options)
        if self.op == "call_module":
            return normalize_module(root, target, self.args, self.kwargs, **options)
        return None

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """A line that describes the node.

        placeholder_names: takes the name of a placeholder, which has no line then.
        maybe_return_typename: its first place takes the type of an output. include_tensor_metadata:
        whether the line of a call tells dtype, sizes, strides and device of its example value.
        """
        typed = " :" if self.type is None else f" : {inspect.formatannotation(self.type)}"
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(str(self.target))
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            users = f"[num_users={len(self.users)}]"
            return f"%{self.name}{typed} {users} = placeholder[target={self.target}]{default}"
        if self.op == "get_attr":
            users = f"[num_users={len(self.users)}]"
            return f"%{self.name}{typed} {users} = get_attr[target={self.target}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename:
                maybe_return_typename[0] = f" -> {inspect.formatannotation(self.type)}"
            return f"return {self.args[0]}"
        example = next((self.meta[k] for k in _EXAMPLES if k in self.meta), None)
        if include_tensor_metadata and isinstance(example, Handle):
            typed = f" : {_told(example)}"
        else:
            typed += " "
        target = self.target if isinstance(self.target, str) else _described(self.target)
        options = _text(dict(self.kwargs))
        return (
            f"%{self.name}{typed}[num_users={len(self.users)}] = {self.op}[target={target}]"
            f"(args = {_text(self.args)}, kwargs = {options})"
        )

    def __repr__(self) -> str:
        return self.name


_EXAMPLES = ("val", "tensor_meta", "example_value")
"""Where a node's metadata has the value that the call had for example inputs."""


def _told(t: Any) -> str:
    kind = t.dtype.name.replace("_", "")
    for long, short in _SHORT.items():
        kind = kind.replace(long, short)
    return f'Tensor "{kind}{list(t.shape)}{list(t.stride())}{t.device}"'


_SHORT = {"bfloat": "bf", "float": "f", "complex": "c", "uint": "u", "int": "i", "bool": "b8"}
"""The beginnings of dtypes' names, and what stands for them in a line."""


def _described(function: Any) -> str:
    path = qualified_name(function).replace("_operator.", "operator.")
    return path if "." in path else f"builtins.{path}"


def _text(value: Any) -> str:
    """An argument as it is printed, with % before names of nodes."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, tuple):
        inner = ", ".join(map(_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
    return str(value) if not isinstance(value, builtins.str) else value


def _after(node: Node) -> Iterator[Node]:
    at = node._next
    while at.op != "root":
        yield at
        at = at._next
