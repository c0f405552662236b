"""Concrete traces: a program runs on values, and its calls on tensors are written down.

Unlike a symbolic trace, it follows one course through branches that depend on values, and sees into
all modules: what remains are calls of torch's functions and methods, and of scripted functions,
which keep their branches. Sizes of tensors are numbers with nodes (`numbers.py`), so the graph fits
other sizes too.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node as Primitive
from tilewright.ir.shape import Size

from .. import recording
from .._tensor import Tensor
from ..functions.assertions import _assert
from ..functions.quantized import QuantizedTensor
from ..nn import Module
from ..publish import LATER
from ..recording import Handle, novelty
from .graph import Graph
from .node import Node, base_types, map_aggregate
from .numbers import Traced, plain, traced
from .patching import patches, spaces
from .proxy import TracerBase
from .targets import inner_functions, keeps_whole, public_functions, quantized_functions
from .tracing import tensors_of

__all__ = ["TracerWarning", "Watcher", "fresh", "is_watching", "prune", "watcher"]

_OPERATORS = {
    f"__{name.strip('_')}__": getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor eq ne lt "
    "gt le ge neg pos invert abs getitem iadd isub imul itruediv ifloordiv imod ipow iand ior ixor "
    "ilshift irshift".split()
}
_REFLECTED = {
    f"__r{name.strip('_')}__": getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split()
}
_ATTRIBUTES = "T mT H mH data real imag".split()
_READS = "item tolist numpy __bool__ __float__ __int__ __index__ __complex__ __array__".split()
_COUNTS = ("__len__", "__iter__")
_SIZES = ("size", "numel", "nelement")
_SIZED = (operator.getitem, getattr, *_OPERATORS.values())


class TracerWarning(Warning):
    """A trace may be wrong for other inputs: it keeps what was found for these."""


_current: list[Watcher] = []


def watcher() -> Watcher | None:
    """What watches the calls of this thread now, unless a watched call runs."""
    return next((each for each in _current if each._open()), None)


def is_watching() -> bool:
    return bool(_current)


class Watcher(TracerBase):
    """Watches a program and writes its calls into `graph`.

    root: the module whose tensors have names; it gets the constants that the program makes.
    strict: whether reading a value is an error, and facts about sizes become assertions; otherwise
        a read gives a TracerWarning, and facts are forgotten. error: the class of the error.
    holders: the modules that may hold functions as attributes, if they aren't those of the root.
    """

    def __init__(
        self,
        root: Module,
        strict: bool = False,
        error: type[Exception] = RuntimeError,
        holders: Module | None = None,
    ):
        self.root, self.strict, self.error = root, strict, error
        self._holders = root if holders is None else holders
        self.graph = Graph()
        self.depth = 0
        self.thread = threading.get_ident()
        self._known: dict[int, tuple[Any, Node]] = {}  # the tensors are kept: their ids are keys
        self._names = dict(tensors_of(root))
        self._attributes: dict[str, Node] = {}
        self._inputs: list[Any] = []

    # ---- a trace -----------------------------------------------------------------------------

    def trace(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run a function on values; its arguments become the inputs of the graph, by the names in
        its signature. Returns the result."""
        args, kwargs = self._arguments(function, args, kwargs)
        result = self.run(function, args, kwargs)
        self.graph.output(self.create_arg(result))
        prune(self.graph)
        return plainly(result)

    def run(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        with self._watching(function):
            return function(*args, **kwargs)

    def _arguments(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = fresh((tuple(args), dict(kwargs)))
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
        # A default can't stand before an argument without one.
        plain = [n for n, v in bound.arguments.items() if not isinstance(v, base_types)]
        last = list(bound.arguments).index(plain[-1]) if plain else -1
        for i, (name, value) in enumerate(bound.arguments.items()):
            kind = signature.parameters[name].kind
            stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
            if kind in stars:
                self.note_input(self.graph.placeholder(stars[kind] + name), value)
                continue
            if isinstance(value, base_types):
                default = value if i > last else ...
                node = self.graph.placeholder(name, default_value=default)
                self._specialized(node, name, value)
                continue
            self.note_input(self.graph.placeholder(name), value)
        return bound.args, bound.kwargs

    def _specialized(self, node: Node, name: str, value: Any) -> None:
        text = f"{name} has been specialized to have value {value} but got another value"
        same = self.graph.call_function(
            operator.is_ if value is None else operator.eq, (node, value)
        )
        self.graph.call_function(_assert, (same, text))

    def note_input(self, node: Node, value: Any) -> None:
        """Tell which node has the value of an input, and of what is in it."""
        if isinstance(value, Handle):
            self._known[id(value)] = value, node
            self._inputs.append(value)
            return
        for get, key, inner in _parts(value):
            if _holds_tensor(inner):
                self.note_input(self._pure(get, (node, key)), inner)

    def _pure(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        made = self.graph.call_function(target, args)
        made.meta["pure"] = True
        return made

    # ---- what happens ------------------------------------------------------------------------

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Handle):
            return self._node_of(a)
        if isinstance(a, Traced):
            return a.node
        if isinstance(a, Size):
            return tuple(self.create_arg(each) for each in a)
        if isinstance(a, Module):
            raise NotImplementedError("a module as an argument of a watched call")
        return super().create_arg(a)

    def _node_of(self, t: Any) -> Node:
        known = self._known.get(id(t))
        if known is not None:
            return known[1]
        name = self._names.get(id(t))
        if name is None:
            if self._depends(t):
                raise self.error(
                    "a tensor of this trace comes from a call that wasn't seen, since the program "
                    "holds the called function where tracing doesn't look (in a container or a "
                    f"closure): call it by its name in torch{at_user_line()}"
                )
            count = 0
            while hasattr(self.root, f"_tensor_constant{count}"):
                count += 1
            name = self._names[id(t)] = f"_tensor_constant{count}"
            self.root.register_buffer(name, t.detach(), persistent=False)
        self._known[id(t)] = t, self.graph.get_attr(name)
        return self._known[id(t)][1]

    def _depends(self, t: Any) -> bool:
        """Whether a tensor is computed from an input."""
        if t._node is None and (t._storage is None or t._storage._node is None):
            return False
        goals = {recording.resolve(each) for each in self._inputs}
        stack, seen = [recording.resolve(t)], set[Primitive]()
        while stack:
            node = stack.pop()
            if node in goals:
                return True
            if node not in seen:
                seen.add(node)
                stack += node.operands
        return False

    def called(
        self, kind: str, target: Any, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """The result of a call, which becomes a node if it gives tensors."""
        try:
            noted: Any = self.create_arg(args), self.create_arg(kwargs)
        except NotImplementedError:  # an argument that no graph can hold: the result is a constant
            noted = None
        self.depth += 1
        try:
            result = function(*plainly(args), **plainly(kwargs))
        finally:
            self.depth -= 1
        if noted is not None and _holds_tensor(result):
            node = self.create_node(kind, target, *noted)
            if self.strict:
                node.meta["stack_trace"] = at_user_line()
            if target in _SIZED and not getattr(target, "__name__", "").startswith("i"):
                node.meta["pure"] = True
            self._note(node, result)
        return result

    def path_of(self, module: Module) -> str:
        """The name of a module in the root, which gets it if it isn't there."""
        for path, found in self.root.named_modules(remove_duplicate=False):
            if found is module:
                return path
        count = 0
        while hasattr(self.root, f"_module{count}"):
            count += 1
        self.root.add_module(f"_module{count}", module)
        self._names.update(tensors_of(self.root))
        return f"_module{count}"

    def _note(self, node: Node, result: Any) -> None:
        if isinstance(result, Handle):
            self._known[id(result)] = result, node
        elif isinstance(result, (tuple, list, dict)):
            for get, key, inner in _parts(result, names=False):
                if _holds_tensor(inner):
                    self._note(self._pure(get, (node, key)), inner)

    def calculation(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        return self._pure(target, self.create_arg(args))

    def fact(self, target: Callable[..., Any], args: tuple[Any, ...], found: bool) -> None:
        """A comparison of sizes, by which the program may have chosen its course."""
        if not self.strict or self.depth:
            return
        shown = f"{target.__name__}({', '.join(map(str, map(plain, args)))})"
        text = f"the program was traced with sizes for which {shown} is {found}{at_user_line()}"
        node = self._pure(target, self.create_arg(args))
        node.meta["shown"] = text
        if not found:
            node = self._pure(operator.not_, (node,))
            node.meta["shown"] = text
        made = self.graph.call_function(_assert, (node, text))
        made.meta.update(fact=True, shown=text)

    def read(self, name: str, t: Any) -> None:
        """The program reads a value."""
        if id(t) not in self._known:
            return
        if self.strict:
            raise self.error(
                f"the program reads a value ({name}) that depends on its inputs, so its course may "
                "depend on data, which a graph can't hold: use torch.where, or keep the branch in "
                f"a function of torch.jit.script{at_user_line()}"
            )
        warnings.warn(
            f"Converting a tensor to a Python value ({name}) might cause the trace to be "
            "incorrect. The data flow of Python values isn't recorded, so this value is a constant "
            f"in the future{at_user_line()}",
            TracerWarning,
            stacklevel=3,
        )

    def count(self, name: str, t: Any) -> None:
        """The program counts the rows of a tensor; Python takes no other number than theirs."""

    def sizes(self, t: Any, shape: Size) -> Any:
        """The sizes of a tensor, each with a node that asks for it."""
        if id(t) not in self._known:
            return shape

        def asking(i: int) -> Callable[[], Node]:
            def make() -> Node:
                node = self.graph.call_method("size", (self._node_of(t), i))
                node.meta["pure"] = True
                return node

            return make

        return Size(traced(self, n, asking(i)) for i, n in enumerate(shape))

    # ---- seeing ------------------------------------------------------------------------------

    @contextmanager
    def _watching(self, function: Any) -> Iterator[None]:
        for module in LATER:
            importlib.import_module(f"..{module}", __package__)
        watched = (*public_functions(), *inner_functions(), *quantized_functions())
        functions = {id(f): f for f in watched}
        # What a tensor depends on is seen by its node.
        with novelty.recorded(), patches() as made:
            for kind in (Tensor, QuantizedTensor):
                for name, value in list(vars(kind).items()):
                    new = self._seen(name, value)
                    if new is not None:
                        made.put(kind, name, new)
            found = _found(self, QuantizedTensor.__getattr__)
            made.put(QuantizedTensor, "__getattr__", found)
            made.put(Module, "__call__", _calling(self, Module.__call__))
            made.replace(functions, self._watched, spaces(function, self._holders, ()))
            _current.append(self)
            try:
                yield
            finally:
                _current.pop()

    def _open(self) -> bool:
        """Whether calls are watched. A program may keep a watched function beyond the trace."""
        return self in _current and self.depth == 0 and self.thread == threading.get_ident()

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._open():
                return function(*args, **kwargs)
            return self.called("call_function", function, function, args, kwargs)

        call.__name__ = getattr(function, "__name__", "call")
        return call

    def _seen(self, name: str, value: Any) -> Any:
        """What an attribute of Tensor is while the program is watched; None if it stays."""
        if name == "shape":
            return property(lambda t: self._shape(t, value.__get__(t)))
        if name in _ATTRIBUTES:
            return _attribute(self, name, value)
        if not isinstance(value, FunctionType):
            return None
        if name in _SIZES:
            return _size(self, name, value)
        if name in _READS:
            return _reading(self, name, value)
        if name == "__setitem__":
            return _writing(self, value)
        if name in _COUNTS:
            return _counting(self, name, value)
        if name in _OPERATORS or name in _REFLECTED:
            return _operating(self, name, value)
        if name.startswith("_"):
            return None

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._open():
                return value(*args, **kwargs)
            return self.called("call_method", name, value, args, kwargs)

        return call

    def _shape(self, t: Any, shape: Size) -> Any:
        return self.sizes(t, shape) if self._open() else shape


def _found(watch: Watcher, own: Any) -> Any:
    """Methods that an attribute's lookup makes."""

    def get(t: Any, name: str) -> Any:
        method = own(t, name)
        if not watch._open() or name.startswith("_") or not callable(method):
            return method
        return lambda *args, **options: watch.called(
            "call_method",
            name,
            lambda _, *given, **named: method(*given, **named),
            (t, *args),
            options,
        )

    return get


def _calling(watch: Watcher, own: Any) -> Any:
    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        if not (watch._open() and keeps_whole(module)):
            return own(module, *args, **kwargs)
        if watch.strict:
            raise watch.error(
                f"{type(module).__name__} takes or gives quantized tensors, which an exported "
                f"program can't hold: use torch.jit.trace{at_user_line()}"
            )
        path = watch.path_of(module)
        return watch.called("call_module", path, functools.partial(own, module), args, kwargs)

    return call


def _attribute(watch: Watcher, name: str, own: property) -> property:
    def get(t: Any) -> Any:
        if not watch._open():
            return own.__get__(t)
        return watch.called("call_function", getattr, lambda t, _: own.__get__(t), (t, name), {})

    return property(get, own.fset)


def _size(watch: Watcher, name: str, own: Any) -> Any:
    def call(t: Any, *args: Any, **kwargs: Any) -> Any:
        if not watch._open():
            return own(t, *args, **kwargs)
        if name == "size":
            shape = watch.sizes(t, own(t))
            place = args[0] if args else kwargs.get("dim")
            return shape if place is None else shape[plain(place)]
        if id(t) not in watch._known:
            return own(t)

        def make() -> Node:
            node = watch.graph.call_method("numel", (watch._node_of(t),))
            node.meta["pure"] = True
            return node

        return traced(watch, own(t), make)

    return call


def _reading(watch: Watcher, name: str, own: Any) -> Any:
    def call(t: Any, *args: Any, **kwargs: Any) -> Any:
        if watch._open():
            watch.read(name, t)
        watch.depth += 1
        try:
            return own(t, *args, **kwargs)
        finally:
            watch.depth -= 1

    return call


def _counting(watch: Watcher, name: str, own: Any) -> Any:
    def call(t: Any) -> Any:
        if not watch._open():
            return own(t)
        watch.count(name, t)
        return iter(t.unbind(0)) if name == "__iter__" and t.dim() else own(t)

    return call


def _writing(watch: Watcher, own: Any) -> Any:
    def call(t: Any, key: Any, value: Any) -> None:
        if not watch._open():
            own(t, key, value)
            return
        noted = watch.create_arg((t, key, value))
        watch.depth += 1
        try:
            own(t, plainly(key), plainly(value))
        finally:
            watch.depth -= 1
        watch.create_node("call_function", operator.setitem, noted, {})

    return call


def _operating(watch: Watcher, name: str, own: Any) -> Any:
    swapped = name in _REFLECTED
    target = _REFLECTED[name] if swapped else _OPERATORS[name]

    def call(*args: Any) -> Any:
        if not watch._open():
            return own(*args)
        if any(each is None or isinstance(each, str) for each in args[:2]) and target is not (
            operator.getitem
        ):
            return own(*args)
        given = (args[1], args[0]) if swapped else args
        run = (lambda a, b: own(b, a)) if swapped else own
        return watch.called("call_function", target, run, given, {})

    return call


def prune(graph: Graph) -> None:
    """Take out parts, sizes and attributes that nothing uses."""
    for node in list(reversed(graph.nodes)):
        if not node.users and (node.meta.get("pure") or node.op == "get_attr"):
            graph.erase_node(node)


def plainly(value: Any) -> Any:
    """Arguments with plain numbers in place of traced ones."""
    if isinstance(value, Traced):
        return plain(value)
    if isinstance(value, Size):
        return Size(map(plain, value))
    if type(value) in (tuple, list):
        return type(value)(map(plainly, value))
    if type(value) is dict:
        return {k: plainly(v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*map(plainly, (value.start, value.stop, value.step)))
    return value


def fresh(value: Any) -> Any:
    """Arguments with copies of their tensors, which the program may write to."""
    if isinstance(value, Tensor):
        made = value.detach().clone()
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(fresh, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(fresh, value))
    if type(value) is dict:
        return {k: fresh(v) for k, v in value.items()}
    return value


def _parts(value: Any, names: bool = True) -> Iterator[tuple[Callable[..., Any], Any, Any]]:
    """What a container holds: (function, key, part), where part = function(container, key)."""
    if isinstance(value, (tuple, list)):
        yield from ((operator.getitem, i, each) for i, each in enumerate(value))
    elif isinstance(value, Mapping):
        yield from ((operator.getitem, k, each) for k, each in value.items())
    elif names and dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            yield getattr, each.name, getattr(value, each.name)


def _holds_tensor(value: Any) -> bool:
    found: list[Any] = []
    map_aggregate(value, lambda x: found.append(x) if isinstance(x, Handle) else None)
    return bool(found) or (
        dataclasses.is_dataclass(value) and any(_holds_tensor(v) for _, _, v in _parts(value))
    )
