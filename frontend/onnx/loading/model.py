"""An ONNX graph as a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from ...nn import Module, Parameter
from ...recording import Handle
from ..errors import OnnxLoaderError
from ..package import require_onnx
from .step import Step
from .table import find
from .values import Host, Value, dtype_of, tensor_of

LARGEST_HOST = 4096
"""The most elements of an integer array that counts as a shape or position."""

_STANDARD = ("", "ai.onnx")


def read(source: Any) -> OnnxModel:
    """Read a model from a file (a path or a binary stream), a ModelProto or an ONNXProgram."""
    onnx = require_onnx()
    proto = getattr(source, "model_proto", source)
    if not isinstance(proto, onnx.ModelProto):
        try:
            proto = onnx.load(proto)
        except OSError:
            raise
        except Exception as error:  # protobuf's DecodeError, or onnx's errors for bad data
            raise OnnxLoaderError(f"load: {source} is no ONNX model: {error}") from error
    if proto.functions:
        from onnx.inliner import inline_local_functions

        proto = inline_local_functions(proto)
    return OnnxModel(proto)


class OnnxModel(Module):
    """An ONNX graph as a module. It takes the graph's inputs in order or by name, and returns its
    output, or a tuple of outputs.

    Weights keep their names in the file, also in `state_dict()`. Numbers, and the integers of
    shapes and positions, are part of the graph. The module runs inference as the file defines it,
    even in train mode.
    """

    def __init__(self, proto: Any):
        super().__init__()
        graph = proto.graph
        opset = max((o.version for o in proto.opset_import if o.domain in _STANDARD), default=1)
        self._steps = _steps(graph, opset)
        self._constants: dict[str, Host] = {}
        self._weights: dict[str, tuple[Module, str]] = {}  # name -> (module, attribute)
        self._take_initializers(graph)
        given = {i.name for i in graph.initializer}
        self._inputs = [Input(i) for i in graph.input if i.name not in given]
        self._outputs = [o.name for o in graph.output]
        self._drops = _last_uses(self._steps, self._outputs)
        self.eval()

    def _take_initializers(self, graph: Any) -> None:
        """Keep the initializers as parameters, buffers or constants."""
        import onnx

        uses: dict[str, list[tuple[Step, int]]] = {}
        for step in self._steps:
            for place, name in enumerate(step.inputs):
                uses.setdefault(name, []).append((step, place))
        for initializer in graph.initializer:
            name = initializer.name
            array = onnx.numpy_helper.to_array(initializer)
            floating = dtype_of(initializer.data_type).is_floating_point
            small = array.ndim == 0 if floating else array.size <= LARGEST_HOST
            readers = uses.get(name, [])
            if small or any(step.on_host(place) for step, place in readers):
                self._constants[name] = Host(array)
                continue
            state = any(step.parameters[p] in step.operator.state for step, p in readers)
            self._keep(name, tensor_of(array), trained=floating and not state)

    def _keep(self, name: str, tensor: Any, trained: bool) -> None:
        """Keep a weight in nested modules, one for each dot of its name, so that state dicts have
        that name."""
        *path, last = name.split(".")
        owner: Module = self
        for part in path:
            owner = owner._modules.setdefault(_free(owner, part, owner._modules), Module())
        table = owner._parameters if trained else owner._buffers
        last = _free(owner, last, table)
        table[last] = Parameter(tensor) if trained else tensor
        self._weights[name] = owner, last

    def forward(self, *inputs: Any, **named: Any) -> Any:
        values: dict[str, Value] = dict(self._constants)
        for name, (owner, attribute) in self._weights.items():
            values[name] = getattr(owner, attribute)
        given = self._arguments(inputs, named)
        values.update(given)
        device = next((t.device for t in given.values()), None)
        for step, drops in zip(self._steps, self._drops, strict=True):
            values.update(zip(step.outputs, step(values, device), strict=False))
            for name in drops:  # values that nobody reads any more
                del values[name]
        found = [values[name] for name in self._outputs]
        results = tuple(v.tensor(device) if isinstance(v, Host) else v for v in found)
        return results[0] if len(results) == 1 else results

    def _arguments(self, inputs: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        names = [i.name for i in self._inputs]
        given = dict(zip(names, inputs, strict=False))
        wanted = ", ".join(map(str, self._inputs))
        if len(inputs) > len(names) or given.keys() & named or {*given, *named} != {*names}:
            got = ", ".join([str(len(inputs)), *named])
            raise TypeError(f"expected the inputs {wanted}; got {got}{at_user_line()}")
        given.update(named)
        for each in self._inputs:
            each.check(given[each.name])
        return given

    def extra_repr(self) -> str:
        inputs = ", ".join(map(str, self._inputs))
        return f"{inputs} -> {', '.join(self._outputs)}, {len(self._steps)} nodes"


def _free(owner: Module, name: str, table: Mapping[str, Any]) -> str:
    """A name that is no attribute yet: `name`, lengthened if necessary. ONNX allows any names."""
    while hasattr(owner, name) and name not in table:
        name += "_"
    return name


class Input:
    """An input of the graph. A size is a number, a name or None."""

    def __init__(self, info: Any):
        kind = info.type.tensor_type
        if not info.type.HasField("tensor_type"):
            raise OnnxLoaderError(f"load: the input {info.name!r} is no tensor")
        self.name = info.name
        self.dtype = dtype_of(kind.elem_type)
        self.sizes: list[Any] | None = None
        if kind.HasField("shape"):
            self.sizes = [
                d.dim_value if d.HasField("dim_value") else d.dim_param or None
                for d in kind.shape.dim
            ]

    def __str__(self) -> str:
        sizes = "..." if self.sizes is None else ", ".join(str(s or "?") for s in self.sizes)
        return f"{self.name}: {self.dtype}[{sizes}]"

    def check(self, tensor: Any) -> None:
        if not isinstance(tensor, Handle):
            raise TypeError(
                f"expected a Tensor for {self}, got {type(tensor).__name__}{at_user_line()}"
            )
        shape, sizes = tuple(tensor.shape), self.sizes
        fits = sizes is None or (
            len(sizes) == len(shape)
            and all(s == n for s, n in zip(sizes, shape, strict=True) if isinstance(s, int))
        )
        if tensor.dtype is not self.dtype or not fits:
            raise RuntimeError(f"expected {self}, got {tensor.dtype}{list(shape)}{at_user_line()}")


def _steps(graph: Any, opset: int) -> list[Step]:
    """The nodes as steps. ONNX stores them in an executable order."""
    missing: dict[str, str] = {}
    steps = []
    for node in graph.node:
        standard = node.domain in _STANDARD
        known = find(node.op_type, opset) if standard else None
        if known is None:
            name = node.op_type if standard else f"{node.domain}.{node.op_type}"
            missing.setdefault(name, node.name or node.output[0])
        else:
            steps.append(Step(node, known, opset))
    if missing:
        shown = ", ".join(f"{op_type} (node {name!r})" for op_type, name in missing.items())
        raise OnnxLoaderError(f"load: there is no function for the operators {shown}")
    return steps


def _last_uses(steps: Sequence[Step], outputs: Sequence[str]) -> list[list[str]]:
    """For each step the values that no later step reads."""
    seen = set(outputs)
    drops: list[list[str]] = []
    for step in reversed(steps):
        names = {n for n in (*step.inputs, *step.outputs) if n} - seen
        drops.append(sorted(names))
        seen |= names
    return drops[::-1]
