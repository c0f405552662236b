"""GraphModule: a module whose forward is a graph."""

from __future__ import annotations

import copy
import linecache
from itertools import count
from pathlib import Path
from typing import Any

from .._tensor import Tensor
from ..nn import Module, Parameter
from .graph import Graph
from .tracing import Tracer
from .writing import PythonCode, _torch

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_numbers = count()


def _exec(code: PythonCode, function: str) -> Any:
    """The function of a source text, whose lines tracebacks show."""
    name = f"<eval_with_key>.{next(_numbers)}"
    lines = code.src.splitlines(keepends=True)
    linecache.cache[name] = (len(code.src), None, lines, name)
    space = dict(code.globals)
    exec(compile(code.src, name, "exec"), space)
    return space[function]


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give a module the attribute of another one at a path, with the modules on the way."""
    *prefix, name = target.split(".")
    for part in prefix:
        found = getattr(from_module, part)
        inner = getattr(to_module, part, None)
        if found is inner:
            return
        if inner is None:
            inner = Module()
            setattr(to_module, part, inner)
        from_module, to_module = found, inner
    value = getattr(from_module, name)
    if isinstance(value, Tensor) and name not in from_module._parameters:
        to_module.register_buffer(name, value)
    else:
        setattr(to_module, name, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Set an attribute at a path, with modules on the way."""
    *prefix, name = target.split(".")
    for part in prefix:
        inner = getattr(to_module, part, None)
        if inner is None:
            inner = Module()
            setattr(to_module, part, inner)
        to_module = inner
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(name, value)
    else:
        setattr(to_module, name, value)


_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(Module):
    """A module with the attributes of another one, without its class."""

    def __init__(self, body: dict[str, Any]):
        super().__init__()
        self.__dict__ = body


class GraphModule(Module):
    """A module whose forward is a Graph. Assign `graph`, or change it and call `recompile`.

    root: the module, or a dict by path, that has what the graph refers to.
    """

    def __new__(cls, *args: Any, **options: Any) -> GraphModule:
        # Each instance has a class of its own, which holds its forward.
        for base in cls.__mro__:
            if base.__dict__.get("_is_made"):
                return super().__new__(base)
        made = type("GraphModuleImpl", (cls,), {"_is_made": True})
        return super().__new__(made)

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ):
        super().__init__()
        type(self).__name__ = class_name
        targets = dict.fromkeys(
            str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")
        )
        if isinstance(root, Module):
            self.training = root.training
            for target in sorted(targets, key=lambda t: t.count(".")):
                _copy_attr(root, self, target)
        else:
            missing = targets.keys() - root.keys()
            if missing:
                raise RuntimeError(
                    f"GraphModule: the graph refers to {', '.join(sorted(missing))}, which root "
                    "doesn't have"
                )
            for target in sorted(targets, key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        self.meta: dict[str, Any] = dict(getattr(root, "meta", None) or {})
        self._tracer_cls = graph._tracer_cls
        self.graph = graph

    @property
    def graph(self) -> Graph:
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        # A graph belongs to one module.
        self._graph = copy.deepcopy(g) if g.owning_module not in (None, self) else g
        self._graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of forward."""
        return str(self._code)

    def recompile(self) -> PythonCode:
        """Write and compile forward anew, after a change of the graph."""
        code = self._graph.python_code(root_module="self")
        self._code = code.src
        type(self).forward = _exec(code, self._graph._codegen._function)  # type: ignore[method-assign]
        return code

    # ---- parts -------------------------------------------------------------------------------

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a path. Returns whether that is possible."""
        *prefix, name = target.split(".")
        at: Any = self
        for part in prefix:
            inner = getattr(at, part, None)
            if inner is None:
                inner = Module()
                setattr(at, part, inner)
            if not isinstance(inner, Module):
                return False
            at = inner
        at.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take out the module at a path. Returns whether there was one."""
        *prefix, name = target.split(".")
        at: Any = self
        for part in prefix:
            at = getattr(at, part, None)
        if not isinstance(getattr(at, name, None), Module):
            return False
        delattr(at, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the modules that the graph doesn't refer to."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
                if node.op == "call_module":
                    whole = self.get_submodule(str(node.target))
                    used |= {f"{node.target}.{n}" for n, _ in whole.named_modules() if n}
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, *args: Any, **options: Any) -> str:
        """The source of the class, printed too."""
        body = self._code.strip().replace("\n", "\n    ")
        text = f"class {type(self).__name__}(torch.nn.Module):\n    {body}\n"
        if print_output:
            print(text)
        return text

    def to_folder(self, folder: Any, module_name: str = "FxModule") -> None:
        """Write the module as a Python package: its source, and its modules and tensors."""
        from ..serialization import save

        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        save(self, path / "module.pt")
        (path / "module.py").write_text(
            "import torch\nfrom pathlib import Path\n\n\n"
            f"def {module_name}():\n"
            '    path = Path(__file__).parent / "module.pt"\n'
            "    return torch.load(path, weights_only=False)\n"
        )
        (path / "__init__.py").write_text(f"from .module import {module_name}\n")

    # ---- copies ------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = self._bare()
        memo[id(self)] = made
        entries = ("_parameters", "_buffers", "_modules")
        parts = {name for key in entries for name in getattr(self, key)}
        for name, value in self.__dict__.items():
            if name not in ("_graph", *entries) and name not in parts:
                made.__dict__[name] = copy.deepcopy(value, memo)
        for key in entries:  # they write to the attributes of their own module
            for name, value in getattr(self, key).items():
                getattr(made, key)[name] = copy.deepcopy(value, memo)
        made.graph = copy.deepcopy(self._graph, memo)
        return made

    def __copy__(self) -> GraphModule:
        return GraphModule(self, self.graph, type(self).__name__)

    def _bare(self) -> GraphModule:
        made: GraphModule = GraphModule.__new__(type(self).__mro__[1])
        Module.__init__(made)
        type(made).__name__ = type(self).__name__
        return made

    def __reduce__(self) -> Any:
        fields = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "forward")}
        known = {k: v for k, v in self._graph.python_code("self").globals.items() if k != "torch"}
        return reduce_graph_module, (fields, type(self).__name__, known)

    def __str__(self) -> str:
        more = "\n# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code]) + more


def take_tensors(module: GraphModule, root: Module) -> None:
    """Give a module the parameters, buffers and modules of another one, in their order."""
    for kind in ("_modules", "_parameters", "_buffers"):
        own = getattr(module, kind)
        own.clear()
        own.update(getattr(root, kind))
    module._non_persistent_buffers_set |= root._non_persistent_buffers_set


def reduce_graph_module(
    body: dict[str, Any], name: str = "GraphModule", known: dict[str, Any] | None = None
) -> GraphModule:
    """The module of a pickle: its forward is compiled, and traced with all modules whole."""

    class Whole(Tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    code = PythonCode(body["_code"], {"torch": _torch(), **(known or {})})
    bare = type(name, (Module,), {"forward": _exec(code, "forward")})
    root: Any = Module.__new__(bare)
    Module.__init__(root)
    root.__dict__.update(body)
    functions = tuple(f for f in (known or {}).values() if callable(f) and not isinstance(f, type))
    graph = Whole(autowrap_functions=functions).trace(root)
    graph._tracer_cls = body.get("_tracer_cls")
    made = GraphModule(root, graph, name)
    for key, value in body.items():
        made.__dict__.setdefault(key, value)
    made.meta = body.get("meta", {})
    return made
