"""torch.jit._get_trace_graph: the calls of a program for counters of operations, such as fvcore's.

A graph lists calls of torch's functions under TorchScript's names (`aten::linear`), each with its
operands in TorchScript's order, their sizes, and the scopes of modules that hooks have opened.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..functions import creation
from ..fx.concrete import Watcher
from ..nn import Module
from ..recording import Handle
from ..utils._pytree import tree_flatten
from .tracing import skeleton

__all__ = ["Graph", "Node", "TensorType", "TracingState", "Value", "trace_graph", "tracing_state"]


class TensorType:
    """The type of a tensor: its sizes, strides and dtype."""

    def __init__(self, value: Any):
        self._sizes, self._strides = tuple(value.shape), tuple(value.stride())
        self._dtype = value.dtype

    def sizes(self) -> list[int]:
        return list(self._sizes)

    def strides(self) -> list[int]:
        return list(self._strides)

    def dim(self) -> int:
        return len(self._sizes)

    def dtype(self) -> Any:
        return self._dtype

    def kind(self) -> str:
        return "TensorType"


class Value:
    """An operand or a result: a tensor's type, or a constant."""

    def __init__(self, node: Node, value: Any, number: int = 0):
        self._node, self._number = node, number
        self._type = TensorType(value) if isinstance(value, Handle) else None
        self._constant = None if self._type else value

    def node(self) -> Node:
        return self._node

    def offset(self) -> int:
        return self._number

    def type(self) -> Any:
        return self._type

    def isCompleteTensor(self) -> bool:
        return self._type is not None

    def toIValue(self) -> Any:
        return self._constant


class Node:
    """A call."""

    def __init__(self, kind: str, scope: str = ""):
        self._kind, self._scope = kind, scope
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []

    def kind(self) -> str:
        return self._kind

    def scopeName(self) -> str:
        """The names of the open scopes, with slashes between them."""
        return self._scope

    def inputs(self) -> Iterator[Value]:
        return iter(self._inputs)

    def outputs(self) -> Iterator[Value]:
        return iter(self._outputs)

    def inputsSize(self) -> int:
        return len(self._inputs)

    def outputsSize(self) -> int:
        return len(self._outputs)

    def output(self) -> Value:
        (only,) = self._outputs
        return only

    def _give(self, value: Any) -> Value:
        self._outputs.append(Value(self, value, len(self._outputs)))
        return self._outputs[-1]

    def __repr__(self) -> str:
        return f"{self._kind}({', '.join(each._node._kind for each in self._inputs)})"


class Graph:
    """Calls, in the order in which they were made."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._params = Node("prim::Param")

    def nodes(self) -> Iterator[Node]:
        return iter(self._nodes)

    def inputs(self) -> Iterator[Value]:
        return self._params.outputs()

    def __str__(self) -> str:
        return "\n".join(map(repr, self._nodes))


class TracingState:
    """The scopes that are open."""

    def __init__(self) -> None:
        self._scopes: list[str] = []

    def push_scope(self, name: str) -> None:
        self._scopes.append(name)

    def pop_scope(self) -> None:
        self._scopes.pop()

    def current_scope(self) -> str:
        return "/".join(self._scopes)


_states: list[TracingState] = []


def tracing_state() -> TracingState | None:
    """The state of the trace that `trace_graph` makes now."""
    return _states[-1] if _states else None


_INPUT = "input weight bias".split()
_CONVOLUTION = (
    "stride padding dilation transposed output_padding groups "
    "benchmark deterministic cudnn_enabled allow_tf32"  # which our convolutions don't have
).split()
_ORDERS = {
    "_convolution": [*_INPUT, *_CONVOLUTION],
    "batch_norm": "input weight bias running_mean running_var training momentum eps".split(),
    "instance_norm": (
        "input weight bias running_mean running_var use_input_stats momentum eps".split()
    ),
    "layer_norm": "input normalized_shape weight bias eps".split(),
    "group_norm": "input num_groups weight bias eps".split(),
    "embedding": "weight input padding_idx scale_grad_by_freq sparse".split(),
}
"""The arguments of TorchScript's operators whose order is another one than our functions'."""
_NAMES = {
    "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "pos": "positive",
    "getitem": "index", "invert": "bitwise_not", "and_": "__and__", "or_": "__or__",
    "xor": "__xor__",
}  # fmt: skip
"""TorchScript's names of Python's operators."""


class _Calls(Watcher):
    """Writes a node for each call."""

    def __init__(self, root: Module, holders: Module | None):
        super().__init__(root, holders=holders)
        self.calls = Graph()
        self.values: dict[int, Value] = {}
        self.kept: list[Any] = []  # their ids are keys

    def called(
        self, kind: str, target: Any, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        state = _states[-1]
        result = super().called(kind, target, function, args, kwargs)
        given = [x for x in tree_flatten(result)[0] if isinstance(x, Handle)]
        if given:
            name, operands = _operator(target, function, args, kwargs)
            if name == "multi_head_attention_forward":
                self.depth += 1  # shapes are made, which are no calls of the program
                try:
                    steps = list(_attention(_named(function, args, kwargs)))
                finally:
                    self.depth -= 1
                for step in steps:
                    self._write(*step, state)
                self._known_as(given[0], self.calls._nodes[-1].output())
                return result
            self._write(name, operands, given, state)
        return result

    def _write(
        self, name: str, operands: Sequence[Any], results: Sequence[Any], state: TracingState
    ) -> None:
        node = Node(f"aten::{name}", state.current_scope())
        node._inputs = [self._value(x) for x in operands]
        self.calls._nodes.append(node)
        for each in results:
            self._known_as(each, node._give(each))

    def _known_as(self, x: Any, value: Value) -> None:
        self.kept.append(x)
        self.values[id(x)] = value

    def _value(self, x: Any) -> Value:
        if isinstance(x, Handle):
            if id(x) not in self.values:
                self._known_as(x, self.calls._params._give(x))
            return self.values[id(x)]
        if isinstance(x, (list, tuple)) and any(isinstance(each, Handle) for each in x):
            made = Node("prim::ListConstruct")
            made._inputs = [self._value(each) for each in x]
        else:
            made = Node("prim::Constant")
        return made._give(x)


def _operator(
    target: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[str, list[Any]]:
    """TorchScript's name of a call, and its arguments in TorchScript's order."""
    name = target if isinstance(target, str) else target.__name__
    if target is getattr:
        return str(args[1]), [args[0]]
    if getattr(operator, name, None) is target:
        writes = name.startswith("i") and hasattr(operator, name[1:])
        plain = name[1:] if writes else name
        return _NAMES.get(plain, plain) + "_" * writes, list(args)
    given = _named(function, args, kwargs)
    if name.startswith("conv") and name[-2:] in ("1d", "2d", "3d"):
        given |= {"transposed": "transpose" in name}
        given.setdefault("output_padding", 0)
        name = "_convolution"
    elif name == "interpolate":
        mode = given["mode"].replace("-", "_")
        name = f"upsample_{mode}{given['input'].dim() - 2}d"
    elif given.get("inplace") is True and not name.endswith("_"):
        name += "_"
    for key in ("inplace", "out"):
        given.pop(key, None)
    if name == "einsum":
        first, *rest = args
        operands = rest[0] if len(rest) == 1 and isinstance(rest[0], (list, tuple)) else rest
        return name, [first, list(operands)]
    order = _ORDERS.get(name)
    return name, list(given.values()) if order is None else [given.get(n) for n in order]


def _attention(given: Mapping[str, Any]) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """The calls in attention of several heads: (name, operands, results). PyTorch makes them in
    Python. Their tensors are shapes alone, but for those that are given."""
    dtype, heads, width = given["query"].dtype, given["num_heads"], given["embed_dim_to_check"]

    def shape(*sizes: int) -> Any:
        return creation.empty(sizes, dtype=dtype, device="meta")

    def linear(x: Any, weight: Any, bias: Any) -> tuple[str, list[Any], list[Any]]:
        return "linear", [x, weight, bias], [shape(*x.shape[:-1], weight.shape[0])]

    def rows_first(x: Any) -> Any:
        """[L, N, E]"""
        sizes = x.shape if x.dim() == 3 else (x.shape[0], 1, x.shape[1])
        return shape(sizes[1], sizes[0], sizes[2]) if given["batch_first"] else shape(*sizes)

    query, key, value = (rows_first(given[n]) for n in ("query", "key", "value"))
    weight, bias = given["in_proj_weight"], given["in_proj_bias"]
    part = None if bias is None else shape(width)
    if given["use_separate_proj_weight"]:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        for x, name in zip((query, key, value), names):
            yield linear(x, given[name], part)
    elif given["query"] is given["key"] is given["value"]:
        yield linear(query, weight, bias)
    elif given["key"] is given["value"]:
        yield linear(query, shape(width, width), part)
        yield linear(key, shape(2 * width, width), None if part is None else shape(2 * width))
    else:
        for x in (query, key, value):
            yield linear(x, shape(width, width), part)
    (length, batch, _), source, depth = query.shape, key.shape[0], width // heads
    sizes = (batch * heads,) if given["need_weights"] else (batch, heads)
    q, k = shape(*sizes, length, depth), shape(*sizes, source, depth)
    scores = shape(*sizes, length, source)
    if given["need_weights"]:
        yield "bmm", [q, shape(*sizes, depth, source)], [scores]
        yield "softmax", [scores, -1, None], [scores]
        yield "bmm", [scores, k], [q]
    else:
        yield "scaled_dot_product_attention", [q, k, k], [q]
    yield linear(shape(length * batch, width), given["out_proj_weight"], given["out_proj_bias"])


def _named(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name, with defaults; by number, where there is no signature."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{str(i): x for i, x in enumerate(args)}, **kwargs}
    bound.apply_defaults()
    return dict(bound.arguments)


def trace_graph(
    f: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    strict: bool = True,
    _force_outplace: bool = False,
    return_inputs: bool = False,
    _return_inputs_states: bool = False,
) -> tuple[Any, ...]:
    """The calls that a module or function makes for these arguments, and its result; and the
    arguments, with `return_inputs`."""
    args = args if isinstance(args, tuple) else (args,)
    is_module = isinstance(f, Module)
    watch = _Calls(skeleton(f) if is_module else Module(), f if is_module else None)
    inspected = f.forward if is_module else f

    def run(*given: Any, **named: Any) -> Any:
        return f(*given, **named)

    run.__wrapped__ = inspected  # type: ignore[attr-defined]  # its globals hold functions
    _states.append(TracingState())
    try:
        result = watch.trace(run, args, dict(kwargs or {}))
    finally:
        _states.pop()
    return (watch.calls, result, args) if return_inputs else (watch.calls, result)
