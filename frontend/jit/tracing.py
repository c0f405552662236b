"""torch.jit.trace: the calls that a program makes for example inputs, as a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.location import at_user_line

from .. import recording
from .._tensor import Tensor
from ..fx.concrete import TracerWarning, Watcher, fresh
from ..fx.graph_module import GraphModule, take_tensors
from ..fx.targets import keeps_whole
from ..nn import Module
from ..recording import Handle
from ..utils._pytree import tree_flatten
from ._state import _enabled
from .scripting import ScriptFunction, ScriptModule, scripted

__all__ = ["skeleton", "trace", "trace_module"]


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """The calls that a module or function makes for these inputs, as a program of their own.

    Branches are those that these inputs took, with a TracerWarning where they depend on values.
    Sizes are asked of the tensors, so inputs of other sizes may be given. Calls of scripted
    functions keep their branches. With PYTORCH_JIT=0 the function is given back.
    """
    if not _enabled or isinstance(func, (ScriptModule, ScriptFunction)):
        return func
    kwargs = dict(example_kwarg_inputs or {})
    if example_inputs is None and not kwargs:
        raise RuntimeError("example_kwarg_inputs should be a dict")
    args = _as_arguments(example_inputs)
    owner = getattr(func, "__self__", None)
    if isinstance(owner, Module) and getattr(func, "__name__", "") == "forward":
        func = owner
    if isinstance(func, Module):
        inputs = {"forward": kwargs if example_inputs is None else args}
        return trace_module(func, inputs, check_trace=check_trace, check_tolerance=check_tolerance)
    made = _traced(func, Module(), args, kwargs, check_trace and check_tolerance)
    return ScriptFunction(made.forward, getattr(func, "__name__", "traced"))


def trace_module(
    mod: Module,
    inputs: Mapping[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    **options: Any,
) -> Any:
    """The calls that methods of a module make. inputs: example inputs by the names of methods."""
    if not _enabled:
        return mod
    if not isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, Mapping):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    made: dict[str, GraphModule] = {}
    for name, given in inputs.items():
        args, kwargs = ((), given) if isinstance(given, dict) else (_as_arguments(given), {})
        made[name] = _traced(
            getattr(mod, name), mod, args, kwargs, check_trace and check_tolerance, name
        )
    main = made.pop("forward", None) or next(iter(made.values()))
    main.training = mod.training
    for name, other in made.items():
        main.__dict__[name] = other.forward
    return scripted(main, {}, "TopLevelTracedModule")


def _as_arguments(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, (Handle, dict)):
        return (given,)
    return tuple(given)


def _traced(
    function: Callable[..., Any],
    owner: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tolerance: Any,
    name: str = "forward",
) -> GraphModule:
    leaves = tree_flatten((args, dict(kwargs)))[0]
    if any(isinstance(x, Handle) and x.requires_grad and not x.is_leaf for x in leaves):
        args, kwargs = _detached((args, dict(kwargs)))
    root = skeleton(owner)
    watch = _Watcher(root, holders=owner)
    result = watch.trace(function, args, kwargs)
    # The graph module has the names of all tensors, those that it doesn't use too.
    made = GraphModule(root, watch.graph, type(owner).__name__)
    take_tensors(made, root)
    if tolerance:
        _check(made, args, kwargs, result, tolerance)
    return made


class _Watcher(Watcher):
    def count(self, name: str, t: Any) -> None:
        if id(t) in self._known:
            text = f"{_COUNTED[name]}{at_user_line()}"
            warnings.warn(text, TracerWarning, stacklevel=3)


_COUNTED = {
    "__len__": "Using len to get tensor shape might cause the trace to be incorrect. Recommended "
    "usage would be tensor.shape[0]. A length is the same for all inputs",
    "__iter__": "Iterating over a tensor might cause the trace to be incorrect. Passing a tensor "
    "of different shape won't change the number of iterations executed",
}


def _detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_detached, value))
    return {k: _detached(v) for k, v in value.items()} if isinstance(value, dict) else value


def skeleton(module: Module) -> Module:
    """The tensors of a module and those in it, under their names, in plain modules."""
    memo: dict[int, Module] = {}

    def bones(m: Module) -> Module:
        if (isinstance(m, ScriptModule) or keeps_whole(m)) and m is not module:
            return m
        if id(m) not in memo:
            made = memo[id(m)] = Module()
            made.training = m.training
            for name, value in m._parameters.items():
                made.register_parameter(name, value)
            for name, value in m._buffers.items():
                made.register_buffer(name, value, name not in m._non_persistent_buffers_set)
            for name, value in vars(m).items():
                if isinstance(value, Handle) and name not in made.__dict__:
                    made.__dict__[name] = value
            for name, child in m._modules.items():
                made.add_module(name, None if child is None else bones(child))
        return memo[id(m)]

    return bones(module)


def _check(made: GraphModule, args: Any, kwargs: Any, result: Any, tolerance: float) -> None:
    """Warn if the graph gives other results for the same inputs."""
    from ..testing import assert_close

    args, kwargs = fresh((tuple(args), dict(kwargs)))
    with recording.grad_mode(False):
        again = made.forward(*args, **kwargs)
    found, wanted = tree_flatten(again)[0], tree_flatten(result)[0]
    try:
        for a, b in zip(found, wanted, strict=True):
            if isinstance(a, Handle):
                assert_close(a.detach(), b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True)
    except (AssertionError, ValueError) as error:
        warnings.warn(
            "Output of the traced function does not match the corresponding output of the Python "
            f"function: it draws random numbers, or depends on more than its inputs. {error}"
            f"{at_user_line()}",
            TracerWarning,
            stacklevel=4,
        )
