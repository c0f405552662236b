"""Step: a node of a graph, run by its operator's function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.runtime.device import OutOfMemoryError

from ...recording import Handle
from ..errors import OnnxLoaderError
from .table import Operator, standard
from .values import NARROW, Host, Narrow, Value, array_of, on_device

FAILURES = (
    RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError,
    AssertionError,
)  # fmt: skip
"""What wrong models and inputs raise in the functions of operators."""


class Step:
    """A node whose operator is known.

    inputs, outputs: names of values, "" for a missing one. parameters: the function's parameter for
    each input. graphs: the graphs among the attributes, by name.
    """

    def __init__(self, node: Any, operator: Operator, opset: int, graphs: Mapping[str, Any]):
        import onnx

        self.name = node.name or next(iter(node.output), "") or node.op_type
        self.op_type = node.op_type
        self.operator = operator
        self.opset = opset
        self.inputs = list(node.input)
        self.outputs = list(node.output)
        self.graphs = dict(graphs)
        while self.outputs and not self.outputs[-1]:
            self.outputs.pop()
        self._proto = b"" if graphs else node.SerializeToString()
        self.attributes = {
            a.name: _plain(onnx, a) for a in node.attribute if a.name not in self.graphs
        }
        parameters = operator.signature.parameters
        if "outputs" in parameters:
            self.attributes["outputs"] = len(self.outputs)
        if operator.prepare is not None:
            self.attributes = self._prepared(operator.prepare)
        self.parameters = self._bind()
        self._on_host = [name in operator.host for name in self.parameters]
        self._as_is = [name in operator.either for name in self.parameters]
        self._takes_device = "device" in parameters
        self._last: tuple[list[Value], list[Value]] | None = None

    def __str__(self) -> str:
        return f"the node {self.name!r} ({self.op_type})"

    @property
    def reads(self) -> list[str]:
        """The values that the node or its graphs read."""
        outer = [name for graph in self.graphs.values() for name in graph.reads]
        named = [name for a in self.operator.named for name in _list(self.attributes.get(a, ()))]
        return [n for n in (*self.inputs, *outer, *named) if n]

    @property
    def variables(self) -> list[str]:
        """The values by which the function differentiates."""
        return [name for a in self.operator.variables for name in _list(self.attributes[a])]

    def _prepared(self, prepare: Any) -> dict[str, Any]:
        try:
            return {"prepared": prepare(**self.attributes)}
        except FAILURES as error:
            raise OnnxLoaderError(f"load: {self} can't be computed: {error}") from error

    def _bind(self) -> list[str]:
        """The function's parameter for each input."""
        parameters = self.operator.signature.parameters.values()
        kinds = inspect.Parameter
        names = [p.name for p in parameters if p.kind is kinds.POSITIONAL_OR_KEYWORD]
        rest = [p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL]
        names += rest * (len(self.inputs) - len(names))
        try:
            self.operator.signature.bind(*self.inputs, **self.attributes, **self.graphs)
        except TypeError as error:
            raise OnnxLoaderError(f"load: {self} can't be computed: {error}") from None
        return names[: len(self.inputs)]

    def on_host(self, place: int) -> bool:
        """Whether the function takes this input on the host, if possible."""
        return self.parameters[place] in self.operator.host | self.operator.either

    def __call__(self, values: Mapping[str, Value], device: Any) -> list[Value]:
        """The outputs, from the graph's values so far."""
        inputs = [values[name] if name else None for name in self.inputs]
        known = self.operator.known != "never" and all(
            v is None or isinstance(v, Host) for v in inputs
        )
        if known and self._last is not None:
            before, outputs = self._last
            if all(a is b for a, b in zip(before, inputs, strict=True)):
                return outputs
        try:
            reference = None
            if known and self.operator.known == "reference":
                reference = _reference(self._proto, self.opset)
            if reference is not None:
                outputs = self._compute_on_host(reference, inputs)
            else:
                outputs = self._compute(inputs, self._options(values, device), device)
        except (OutOfMemoryError, OnnxLoaderError):
            raise
        except FAILURES as error:
            raise OnnxLoaderError(f"{self} failed: {error or type(error).__name__}") from error
        if len(outputs) < len(self.outputs):
            lacking = self.outputs[len(outputs) :]
            raise OnnxLoaderError(f"{self} has outputs that aren't computed: {lacking}")
        outputs = self._same(outputs)
        self._last = (inputs if known else []), outputs
        if not all(isinstance(v, Host) for v in outputs):
            self._last = None  # don't keep tensors beyond the call
        return outputs

    def _options(self, values: Mapping[str, Value], device: Any) -> dict[str, Any]:
        """The attributes, with graphs as functions and names of values as these, and the device."""
        if not (self.graphs or self.operator.named or self._takes_device):
            return self.attributes
        found = dict(self.attributes)
        found |= {name: graph.bind(values, device) for name, graph in self.graphs.items()}
        found |= {name: _found(values, self.attributes[name]) for name in self.operator.named}
        if self._takes_device:
            found["device"] = device
        return found

    def _same(self, outputs: list[Value]) -> list[Value]:
        """Replace outputs that equal those of the last call by the same objects. Steps that read
        them then find their last outputs again."""
        if self._last is None:
            return outputs
        return [
            old if isinstance(new, Host) and _equal(new.array, old.array) else new
            for new, old in zip(outputs, self._last[1], strict=True)
        ]

    def _compute(
        self, inputs: Sequence[Value], options: Mapping[str, Any], device: Any
    ) -> list[Value]:
        arguments: list[Any] = []
        narrow: Any = None
        for place, value in enumerate(inputs):
            host = self._on_host[place]
            if value is None or self._as_is[place] or (isinstance(value, Handle) and not host):
                arguments.append(value)
            elif host:
                arguments.append(array_of(value))
            else:
                argument = on_device(value, device)
                if isinstance(argument, Narrow):
                    narrow, argument = argument.dtype, self._carrier(argument, place)
                elif not isinstance(argument, Handle):
                    raise TypeError(f"expected a tensor for {self.parameters[place]}")
                arguments.append(argument)
        found = self.operator.function(*arguments, **options)
        outputs = [_value(v) for v in (found if isinstance(found, tuple) else (found,))]
        if narrow is None:
            return outputs
        carrier = NARROW[narrow]
        return [
            Narrow(v, narrow) if isinstance(v, Handle) and v.dtype is carrier else v
            for v in outputs
        ]

    def _carrier(self, value: Narrow, place: int) -> Any:
        """The tensor that holds numbers of few bits, for a function that only moves them."""
        if self.operator.moves:
            return value.carrier
        raise NotImplementedError(
            f"{value.dtype} can only be moved and converted: cast {self.parameters[place]} first"
        )

    def _compute_on_host(self, reference: Any, inputs: Sequence[Value]) -> list[Value]:
        """Compute by ONNX's reference implementation in NumPy: for shapes, and values that depend
        on constants alone."""
        feed = {n: v.array for n, v in zip(self.inputs, inputs, strict=True) if v is not None}
        with np.errstate(all="ignore"):
            return [_value(v) for v in reference.run(None, feed)]


def _list(names: Any) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _found(values: Mapping[str, Value], names: Any) -> Any:
    """The values with a name or with several."""
    return values[names] if isinstance(names, str) else [values[n] for n in names]


def _value(found: Any) -> Value:
    """What a function returns, as a value."""
    if found is None or isinstance(found, (Handle, Host, Narrow, dict)):
        return found
    return [_value(v) for v in found] if isinstance(found, list) else Host(found)


def _plain(onnx: Any, attribute: Any) -> Any:
    """An attribute as a number, a string, an array, or a list of these."""
    kinds = onnx.AttributeProto
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == kinds.STRING:
        return value.decode()
    if attribute.type == kinds.TENSOR:
        return onnx.numpy_helper.to_array(value)
    if attribute.type == kinds.STRINGS:
        return [v.decode() for v in value]
    if attribute.type == kinds.SPARSE_TENSOR:
        return dense(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def dense(sparse: Any) -> np.ndarray:
    """A SparseTensorProto with all its zeros."""
    import onnx

    values = onnx.numpy_helper.to_array(sparse.values)
    places = onnx.numpy_helper.to_array(sparse.indices)
    out = np.zeros(tuple(sparse.dims), values.dtype)
    out[tuple(places.T) if places.ndim == 2 else np.unravel_index(places, out.shape)] = values
    return out


@functools.lru_cache(maxsize=4096)
def _reference(proto: bytes, opset: int) -> Any:
    """A reference evaluator for a single node, or None if ONNX has none for its operator."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    node = onnx.NodeProto.FromString(proto)

    def untyped(names: Sequence[str]) -> list[Any]:
        return [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in names if n]

    graph = onnx.helper.make_graph(
        [node], "node", untyped(list(dict.fromkeys(node.input))), untyped(node.output)
    )
    imports = [onnx.helper.make_opsetid(standard(node.domain), opset)]
    try:
        return ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports))
    except NotImplementedError:
        return None


def _equal(a: np.ndarray, b: Any) -> bool:
    if a.dtype.kind == "O":
        return False
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
