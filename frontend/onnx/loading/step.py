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
from .table import Operator
from .values import Host, Value, array_of

_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


class Step:
    """A node whose operator is known.

    inputs, outputs: names of values, "" for a missing one. parameters: the function's parameter for
    each input.
    """

    def __init__(self, node: Any, operator: Operator, opset: int):
        import onnx

        self.name = node.name or node.output[0]
        self.op_type = node.op_type
        self.operator = operator
        self._proto = node.SerializeToString()
        self.opset = opset
        self.inputs = list(node.input)
        self.outputs = list(node.output)
        while self.outputs and not self.outputs[-1]:
            self.outputs.pop()
        self.attributes = {a.name: _plain(onnx, a) for a in node.attribute}
        if "outputs" in operator.signature.parameters:
            self.attributes["outputs"] = len(self.outputs)
        self.parameters = self._bind()
        self._last: tuple[list[Value], list[Value]] | None = None

    def __str__(self) -> str:
        return f"the node {self.name!r} ({self.op_type})"

    def _bind(self) -> list[str]:
        """The function's parameter for each input."""
        parameters = self.operator.signature.parameters.values()
        kinds = inspect.Parameter
        names = [p.name for p in parameters if p.kind is kinds.POSITIONAL_OR_KEYWORD]
        rest = [p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL]
        names += rest * (len(self.inputs) - len(names))
        try:
            self.operator.signature.bind(*self.inputs, **self.attributes)
        except TypeError as error:
            raise OnnxLoaderError(f"load: {self} can't be computed: {error}") from None
        return names[: len(self.inputs)]

    def on_host(self, place: int) -> bool:
        """Whether the function takes this input on the host, if possible."""
        return self.parameters[place] in self.operator.host | self.operator.either

    def __call__(self, values: Mapping[str, Value], device: Any) -> list[Value]:
        """The outputs, from the graph's values so far."""
        inputs = [values[name] if name else None for name in self.inputs]
        known = all(v is None or isinstance(v, Host) for v in inputs)
        if known and self._last is not None:
            before, outputs = self._last
            if all(a is b for a, b in zip(before, inputs, strict=True)):
                return outputs
        try:
            outputs = self._compute_on_host(inputs) if known else self._compute(inputs, device)
        except OutOfMemoryError:
            raise
        except _FAILURES as error:
            raise OnnxLoaderError(f"{self} failed: {error}") from error
        if len(outputs) < len(self.outputs):
            raise OnnxLoaderError(f"{self} has outputs that aren't computed: {self.outputs[1:]}")
        outputs = self._same(outputs)
        self._last = (inputs if known else []), outputs
        if not all(isinstance(v, Host) for v in outputs):
            self._last = None  # don't keep tensors beyond the call
        return outputs

    def _same(self, outputs: list[Value]) -> list[Value]:
        """Replace outputs that equal those of the last call by the same objects. Steps that read
        them then find their last outputs again."""
        if self._last is None:
            return outputs
        return [
            old if isinstance(new, Host) and _equal(new.array, old.array) else new
            for new, old in zip(outputs, self._last[1], strict=True)
        ]

    def _compute(self, inputs: Sequence[Value], device: Any) -> list[Value]:
        arguments: list[Any] = []
        for name, value in zip(self.parameters, inputs, strict=True):
            if value is None:
                arguments.append(None)
            elif name in self.operator.host:
                arguments.append(array_of(value))
            elif isinstance(value, Host):
                either = name in self.operator.either
                arguments.append(value if either else value.tensor(device))
            else:
                arguments.append(value)
        found = self.operator.function(*arguments, **self.attributes)
        found = found if isinstance(found, tuple) else (found,)
        return [v if isinstance(v, Handle) else Host(v) for v in found]

    def _compute_on_host(self, inputs: Sequence[Value]) -> list[Value]:
        """Compute by ONNX's reference implementation in NumPy: for shapes, and values that depend
        on constants alone."""
        reference = _reference(self._proto, self.opset)
        feed = {n: v.array for n, v in zip(self.inputs, inputs, strict=True) if v is not None}
        with np.errstate(all="ignore"):
            return [Host(v) for v in reference.run(None, feed)]


def _plain(onnx: Any, attribute: Any) -> Any:
    """An attribute as a number, a string, an array, or a list of these."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [v.decode() for v in value]
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


@functools.lru_cache(maxsize=4096)
def _reference(proto: bytes, opset: int) -> Any:
    """A reference evaluator for a single node."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    node = onnx.NodeProto.FromString(proto)

    def untyped(names: Sequence[str]) -> list[Any]:
        return [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in names if n]

    graph = onnx.helper.make_graph(
        [node], "node", untyped(list(dict.fromkeys(node.input))), untyped(node.output)
    )
    imports = [onnx.helper.make_opsetid("", opset)]
    return ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports))


def _equal(a: np.ndarray, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
