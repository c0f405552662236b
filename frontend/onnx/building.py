"""The ONNX model of a recorded call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..inspection.tracing import Call, Recording
from . import forms
from .align import Traced, Varying
from .axes import Axis, Dynamic
from .errors import GraphsDiffer, OnnxExporterError, SizeUnknown
from .exporter import Exporter
from .functions import grouped
from .package import require_onnx
from .protos import reads
from .scopes import Scopes
from .sizes import fresh, probes
from .whole import Counts, stand_ins

OLDEST_OPSET = 18


@dataclass(frozen=True)
class Options:
    """What an export may do beside its usual work.

    translations: builder -> the form of its calls, from the user's table. functions: whether
    modules become functions of the model, or the classes of those that do.
    """

    translations: Mapping[Any, Any] = field(default_factory=dict)
    functions: bool | Collection[type] = False

    def stand_ins(self, counts: Counts) -> Mapping[Any, Any]:
        return stand_ins(counts, self.translations)


@dataclass(frozen=True)
class Built:
    """A model, and the sizes at which to compare it with onnxruntime: each in words and by axis,
    the example's first."""

    proto: Any
    checks: list[tuple[str, dict[Axis, int]]]


def build(
    call: Call,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    dynamic: Dynamic,
    opset: int,
    more: Options = Options(),
) -> Built:
    """The model of a call. dynamic: the axes of variable size."""
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
    scopes = Scopes(call.model)
    for recordings, symbols, checks in _recordings(call, dynamic, more, scopes):
        try:
            proto = _assemble(call, recordings, symbols, names, output_names, opset, more, scopes)
            return Built(proto, checks)
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


def _recordings(call: Call, dynamic: Dynamic, more: Options, scopes: Scopes) -> Any:
    """Yield lists of recordings at different sizes, to try in turn, with the sizes of each name,
    and the sizes for checks."""
    counts = Counts(())
    with scopes.watching():
        first = call.record({}, more.stand_ins(counts))
    wanted: dict[str, int] = {}
    for (number, axis), size in dynamic.items():
        wanted.setdefault(size.name, size.back(call.inputs[number].shape[axis]))
    of_data = [_unused(f"count_{i}", wanted) for i in range(counts.found)]
    wanted |= {name: counts.usual + i for i, name in enumerate(of_data)}
    checks: list[tuple[str, dict[Axis, int]]] = [("", {})]
    if not wanted:
        yield [first], {}, checks
        return

    def places(sizes: Mapping[str, int]) -> dict[Axis, int]:
        return {place: size.of(sizes[size.name]) for place, size in dynamic.items()}

    error: Exception | None = None
    done = False
    for chosen, last in zip(probes(wanted), fresh(wanted), strict=True):
        try:
            recordings = [
                call.record(
                    places(sizes), more.stand_ins(Counts([sizes[name] for name in of_data]))
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
        if dynamic:  # a model that needed other probes is checked at the sizes of these, too
            named = {k: v for k, v in last.items() if k not in of_data}
            checks.append((_tried([named]), places(last)))
        yield recordings, {name: Varying(s[name] for s in chosen) for name in wanted}, checks
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
    more: Options,
    scopes: Scopes,
) -> Any:
    exporter = Exporter(recordings, dict(enumerate(names)), opset)
    exporter.translations, exporter.scopes = more.translations, scopes.paths
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
            exporter.paths.append("")
    modules = dict(call.model.named_modules()) if scopes.called else {}
    return _model(
        call,
        exporter,
        inputs,
        list(zip(outputs, traced, strict=True)),
        renamed,
        more.functions,
        {path: modules[path] for path in sorted(scopes.called)},
    )


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
    functions: bool | Collection[type],
    modules: Mapping[str, Any],
) -> Any:
    onnx = exporter.onnx
    helper = onnx.helper
    for node in exporter.nodes:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = renamed.get(name, name)
    nodes = _live(exporter.nodes, [name for name, _ in outputs])
    if functions:
        nodes = grouped(exporter, nodes, [name for name, _ in outputs], modules, functions)
    used = {name for node in nodes for name in reads(node)}
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
    opsets = [
        helper.make_opsetid(d, v) for d, v in {"": exporter.opset, **exporter.domains}.items()
    ]
    from ..version import tilewright

    return helper.make_model(
        graph,
        producer_name="tilewright",
        producer_version=tilewright,
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(opsets[:1]),
        functions=list(exporter.functions.values()),
    )


def _live(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """The nodes that the outputs depend on."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(reads(node))
            kept.append(node)
    return kept[::-1]
