"""An ONNX graph as a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from ...nn import Module, Parameter
from ...recording import Handle
from ..errors import OnnxLoaderError
from . import inputs as kinds
from .files import Source
from .functions import inlined
from .graph import Graph
from .step import FAILURES, Step, dense
from .table import standard
from .values import LARGEST_HOST, NARROW, Host, Narrow, given, returned, tensor_of


def read(source: Any) -> OnnxModel:
    """Read a model from a file (a path or a binary stream), a ModelProto or an ONNXProgram."""
    try:
        return OnnxModel(Source(source))
    except (OnnxLoaderError, OSError):
        raise
    except FAILURES as error:
        raise OnnxLoaderError(f"load: the model is damaged: {error!r}") from error


class OnnxModel(Module):
    """An ONNX graph as a module. It takes the graph's inputs in order or by name, and returns its
    output, or a tuple of outputs.

    Weights keep their names in the file, also in `state_dict()`. Numbers, and the integers of
    shapes and positions, are part of the graph. The module runs inference as the file defines it,
    even in train mode. A sequence is a list. Values of dtypes that tensors don't have, such as int4
    and strings, are NumPy arrays.

    inputs: name, dtype and sizes of each input. outputs: the names of the outputs. metadata: what
    the file tells of itself: its producer, its operator sets, its own properties.
    """

    def __init__(self, source: Source):
        super().__init__()
        proto = inlined(source.proto)
        self.metadata = _metadata(source.proto)
        opsets = {standard(o.domain): int(o.version) for o in proto.opset_import}
        self._graph = Graph(proto.graph, opsets)
        for graph in self._graph.nested():
            self._take_initializers(graph, source)
        infos = {i.name: i for i in proto.graph.input}
        self.inputs = [kinds.Input(infos[name]) for name in self._graph.inputs]
        self.outputs = list(self._graph.outputs)
        self.eval()

    def _take_initializers(self, graph: Graph, source: Source) -> None:
        """Keep the initializers as parameters, buffers or constants."""
        uses: dict[str, list[tuple[Step, int]]] = {}
        for inner in graph.nested():  # its initializers may be read inside a loop
            for step in inner.steps:
                for place, name in enumerate(step.inputs):
                    uses.setdefault(name, []).append((step, place))
        for initializer in graph.initializers:
            sparse = hasattr(initializer, "indices")
            name = initializer.values.name if sparse else initializer.name
            array = dense(initializer) if sparse else source.array(initializer)
            floating = array.dtype.kind in "fc" or array.dtype.name.startswith(("bfloat", "float"))
            small = array.ndim == 0 if floating else array.size <= LARGEST_HOST
            readers = uses.get(name, [])
            if (
                small
                or array.dtype.kind in "OSUT"
                or any(step.on_host(place) for step, place in readers)
            ):
                graph.constants[name] = Host(array)
                continue
            state = any(step.parameters[p] in step.operator.state for step, p in readers)
            narrow = array.dtype if array.dtype in NARROW else None
            if narrow is not None:
                array = array.astype(NARROW[narrow].np)
            trained = floating and not state and narrow is None
            owner, attribute = self._keep(name, tensor_of(array), trained)
            graph.weights[name] = owner, attribute, narrow
        graph.initializers = []  # which hold the file's bytes

    def _keep(self, name: str, tensor: Any, trained: bool) -> tuple[Module, str]:
        """Keep a weight in nested modules, one for each dot of its name, so that state dicts have
        that name. Returns its module and attribute."""
        *path, last = name.split(".")
        owner: Module = self
        for part in path:
            owner = owner._modules.setdefault(_free(owner, part, owner._modules), Module())
        table = owner._parameters if trained else owner._buffers
        last = _free(owner, last, {})
        table[last] = Parameter(tensor) if trained else tensor
        return owner, last

    def forward(self, *inputs: Any, **named: Any) -> Any:
        arguments = self._arguments(inputs, named)
        tensors = [v.carrier if isinstance(v, Narrow) else v for v in arguments]
        device = next((t.device for t in tensors if isinstance(t, Handle)), None)
        found = [returned(v, device) for v in self._graph.run({}, arguments, device)]
        return found[0] if len(found) == 1 else tuple(found)

    def _arguments(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = [i.name for i in self.inputs]
        values = dict(zip(names, inputs, strict=False))
        wanted = ", ".join(map(str, self.inputs))
        if len(inputs) > len(names) or values.keys() & named or {*values, *named} != {*names}:
            got = ", ".join([str(len(inputs)), *named])
            raise TypeError(f"expected the inputs {wanted}; got {got}{at_user_line()}")
        values.update(named)
        sizes: dict[str, int] = {}
        found = [given(values[each.name]) for each in self.inputs]
        for each, value in zip(self.inputs, found, strict=True):
            each.check(value, sizes)
        return found

    def extra_repr(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        return f"{inputs} -> {', '.join(self.outputs)}, {len(self._graph.steps)} nodes"


def _free(owner: Module, name: str, table: Mapping[str, Any]) -> str:
    """A name that is no attribute yet: `name`, lengthened if necessary. ONNX allows any names."""
    while hasattr(owner, name) and name not in table:
        name += "_"
    return name


def _metadata(proto: Any) -> dict[str, Any]:
    return {
        "ir_version": proto.ir_version,
        "opsets": {o.domain or "ai.onnx": o.version for o in proto.opset_import},
        "producer_name": proto.producer_name,
        "producer_version": proto.producer_version,
        "domain": proto.domain,
        "model_version": proto.model_version,
        "doc_string": proto.doc_string,
        "properties": {p.key: p.value for p in proto.metadata_props},
    }
