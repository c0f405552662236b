"""The ONNX model of a recorded call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime import files

from ..inspection.tracing import Call, Recording
from . import forms
from .align import Traced, Varying
from .errors import GraphsDiffer, OnnxExporterError, SizeUnknown
from .exporter import Exporter
from .package import require_onnx
from .sizes import probes
from .whole import Counts, stand_ins

OLDEST_OPSET = 18

Axis = tuple[int, int]
"""(number of the input, axis)."""


class ONNXProgram:
    """The result of an export: `model_proto`, and `save(path)`."""

    def __init__(self, model_proto: Any):
        self.model_proto = model_proto

    def save(self, destination: Any) -> None:
        """Write the model to a path or a binary file. Beyond protobuf's limit of 2 GB the weights
        go to a separate file beside it."""
        onnx = require_onnx()
        if not isinstance(destination, (str, os.PathLike)):
            destination.write(self.model_proto.SerializeToString())
            return
        path = Path(destination)
        if self.model_proto.ByteSize() < 2**31 - 1:
            with files.whole(path) as file:
                file.write(self.model_proto.SerializeToString())
            return
        location = path.name + ".data"
        onnx.save(self.model_proto, str(path), save_as_external_data=True, location=location)

    def __repr__(self) -> str:
        graph = self.model_proto.graph
        return f"<ONNXProgram {graph.name}: {len(graph.node)} nodes>"


def build(
    call: Call,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    dynamic: Mapping[Axis, str],
    opset: int,
) -> Any:
    """The ModelProto of a call. dynamic: names of the axes of variable size."""
    onnx = require_onnx()
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise ValueError(
            f"export: opset_version must be {OLDEST_OPSET} to {newest} "
            f"(what the installed onnx {onnx.__version__} knows), got {opset}"
        )
    names = _names("input", input_names, call.names)
    forms.register()
    error: OnnxExporterError | None = None
    for recordings, symbols in _recordings(call, dynamic):
        try:
            return _assemble(call, recordings, symbols, names, output_names, opset)
        except (GraphsDiffer, SizeUnknown) as e:
            # These sizes may be unlucky: at some of them a reshape may change nothing.
            error = error or e
    assert error is not None, "there is at least one way to choose sizes"
    raise error


def _names(kind: str, given: Sequence[str] | None, default: Sequence[str]) -> list[str]:
    names = [*(given or ())]
    if len(names) > len(default):
        raise ValueError(
            f"export: {len(names)} {kind}_names were given, but the model has {len(default)} "
            f"{kind}s: {', '.join(default)}"
        )
    for name in default[len(names) :]:
        number, free = 0, name
        while free in names:
            number += 1
            free = f"{name}_{number}"
        names.append(free)
    if len(set(names)) != len(names):
        raise ValueError(f"export: two {kind}_names are the same: {', '.join(names)}")
    return names


def _recordings(call: Call, dynamic: Mapping[Axis, str]) -> Any:
    """Yield lists of recordings at different sizes, to try in turn, with the sizes of each name."""
    counts = Counts(())
    first = call.record({}, stand_ins(counts))
    wanted: dict[str, int] = {}
    for (number, axis), name in dynamic.items():
        shape = call.inputs[number].shape
        wanted.setdefault(name, shape[axis])
    of_data = [_unused(f"count_{i}", wanted) for i in range(counts.found)]
    wanted |= {name: counts.usual + i for i, name in enumerate(of_data)}
    if not wanted:
        yield [first], {}
        return
    error: Exception | None = None
    done = False
    for chosen in probes(wanted):
        try:
            recordings = [
                call.record(
                    {place: sizes[name] for place, name in dynamic.items()},
                    stand_ins(Counts([sizes[name] for name in of_data])),
                )
                for sizes in chosen
            ]
        except OnnxExporterError:
            raise
        except Exception as e:
            error = error or OnnxExporterError(
                f"export: the model can't be recorded with other sizes of its dynamic axes "
                f"({_tried(chosen)}): {type(e).__name__}: {e}"
            )
            continue
        done = True
        yield recordings, {name: Varying(s[name] for s in chosen) for name in wanted}
    if not done:
        assert error is not None
        raise error


def _unused(name: str, names: Mapping[str, int]) -> str:
    return name if name not in names else _unused(f"{name}_", names)


def _tried(chosen: Sequence[Mapping[str, int]]) -> str:
    return "; ".join(", ".join(f"{k} = {v}" for k, v in sizes.items()) for sizes in chosen)


def _assemble(
    call: Call,
    recordings: Sequence[Recording],
    symbols: Mapping[str, Varying],
    names: Sequence[str],
    output_names: Sequence[str] | None,
    opset: int,
) -> Any:
    exporter = Exporter(recordings, dict(enumerate(names)), opset)
    for name, sizes in symbols.items():
        exporter.symbols.setdefault(sizes, name)
    first = recordings[0]
    if any(list(r.outputs) != list(first.outputs) for r in recordings):
        raise GraphsDiffer("export: how many results the model returns depends on a dynamic axis")
    inputs = [_input(exporter, recordings, i, name) for i, name in enumerate(names)]
    traced = [
        exporter.alignment.trace([r.outputs[key] for r in recordings]) for key in first.outputs
    ]
    exporter.results += traced
    values = [exporter.value(t) for t in traced]
    outputs = _names("output", output_names, [_free(exporter, n) for n in first.outputs])
    renamed: dict[str, str] = {}
    for name, value in zip(outputs, values, strict=True):
        if name in names or name in exporter.initializers:
            raise ValueError(f"export: the output name {name!r} is taken by an input or parameter")
        is_made = value not in exporter.initializers and value not in names
        if is_made and value not in renamed and value not in outputs:
            renamed[value] = name
        else:
            exporter.nodes.append(
                exporter.onnx.helper.make_node("Identity", [value], [name], name=f"{name}/Identity")
            )
    return _model(call, exporter, inputs, list(zip(outputs, traced, strict=True)), renamed)


def _free(exporter: Exporter, name: str) -> str:
    return exporter.fresh(name)


def _input(exporter: Exporter, recordings: Sequence[Recording], number: int, name: str) -> Any:
    """The description of an input. The exporter learns its sizes."""
    arrays = [r.values[r.sources.index(number)] for r in recordings]
    shape = tuple(
        sizes[0] if len(set(sizes)) == 1 else Varying(sizes)
        for sizes in zip(*(a.shape for a in arrays), strict=True)
    )
    from tilewright.ir.dtype import from_numpy

    dtype = from_numpy(arrays[0].dtype)
    exporter.know(name, dtype, shape)
    return _described(exporter, name, dtype, shape)


def _described(exporter: Exporter, name: str, dtype: Any, shape: Sequence[Any]) -> Any:
    sizes = [_size(exporter, s) if isinstance(s, Varying) else s for s in shape]
    return exporter.onnx.helper.make_tensor_value_info(name, exporter.element_type(dtype), sizes)


def _size(exporter: Exporter, size: Varying) -> str | None:
    """The name or formula of a size, or None, which means unknown to ONNX."""
    from .sizes import express

    found = express(size, list(exporter.symbols))
    return None if found is None else found.text(exporter.symbols)


def _model(
    call: Call,
    exporter: Exporter,
    inputs: Sequence[Any],
    outputs: Sequence[tuple[str, Traced]],
    renamed: Mapping[str, str],
) -> Any:
    onnx = exporter.onnx
    helper = onnx.helper
    for node in exporter.nodes:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = renamed.get(name, name)
    nodes = _live(exporter.nodes, [name for name, _ in outputs])
    used = {name for node in nodes for name in _reads(node)}
    made = {name for node in nodes for name in node.output} - {name for name, _ in outputs}
    graph = helper.make_graph(
        nodes,
        getattr(call.model, "__name__", type(call.model).__name__),
        list(inputs),
        [_described(exporter, name, t.dtype, t.shape) for name, t in outputs],
        initializer=[
            onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            for name, array in exporter.initializers.items()
            if name in used
        ],
        value_info=[
            _described(exporter, name, *exporter.types[name])
            for name in exporter.types
            if name in made
        ],
    )
    opsets = [helper.make_opsetid("", exporter.opset)]
    from ..version import tilewright

    return helper.make_model(
        graph,
        producer_name="tilewright",
        producer_version=tilewright,
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(opsets),
    )


def _live(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """The nodes that the outputs depend on."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(_reads(node))
            kept.append(node)
    return kept[::-1]


def _reads(node: Any) -> Iterator[str]:
    """The values that a node reads, and the nodes of its graphs."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)
