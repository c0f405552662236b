"""An export from its arguments to the program, with its report."""

from __future__ import annotations

import collections
import datetime
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..inspection.tracing import Call
from .axes import dynamic_axes_of
from .building import Built, Options, build
from .check import verify_program
from .errors import OnnxExporterError
from .exportable import ExportableModule
from .package import require_onnx
from .program import ONNXProgram
from .translating import forms_of


@dataclass(frozen=True)
class Request:
    """The arguments of torch.onnx.export that make the model."""

    model: Any
    args: Any
    kwargs: Mapping[str, Any] | None
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    opset: int
    dynamic_axes: Mapping[str, Any] | None
    dynamic_shapes: Any
    table: Mapping[Any, Any] | None
    functions: bool | Collection[type]
    verify: bool | None


def run(request: Request, report: str | os.PathLike[str] | None) -> ONNXProgram:
    """The program of a request. report: the folder of a page about it."""
    if report is None:
        return _run(request, [])
    lines: list[str] = []
    try:
        program = _run(request, lines)
    except Exception as error:
        lines += ["", "## Failed", "", f"{type(error).__name__}: {error}"]
        _write(report, "failure", request, lines)
        raise
    _write(report, "success", request, [*lines, *_contents(program.model_proto)])
    return program


def _run(request: Request, lines: list[str]) -> ONNXProgram:
    onnx = require_onnx()
    request = _completed(request)
    exported = request.model if hasattr(request.model, "graph_signature") else None
    model = request.model if exported is None else exported.module()
    call = Call(model, request.args, request.kwargs, OnnxExporterError)
    dynamic = dynamic_axes_of(
        call, request.input_names, request.dynamic_axes, request.dynamic_shapes
    )
    options = Options(forms_of(request.table), request.functions)
    built: Built = build(
        call, request.input_names, request.output_names, dynamic, request.opset, options
    )
    if built.proto.ByteSize() < 2**31 - 1:  # the checker takes larger ones as files alone
        onnx.checker.check_model(built.proto, full_check=True)
    program = ONNXProgram(built.proto, exported)
    if request.verify is not False and not options.translations:
        always = request.verify is True
        compared = verify_program(program, call, built.checks, always)
        lines += ["", "Compared with onnxruntime at: " + "; ".join(compared)] if compared else []
    return program


def _completed(request: Request) -> Request:
    """The request with what an ExportableModule or an ExportedProgram says itself."""
    model = request.model
    given = hasattr(request.args, "shape") or len(request.args) or bool(request.kwargs)
    if isinstance(model, ExportableModule):
        args, kwargs = (request.args, request.kwargs) if given else model.example_arguments()
        return replace(
            request,
            args=args,
            kwargs=kwargs or {},
            input_names=request.input_names or model.input_names(),
            output_names=request.output_names or model.output_names(),
            dynamic_shapes=request.dynamic_shapes or model.dynamic_shapes(),
        )
    if hasattr(model, "graph_signature") and not given and model.example_inputs:
        args, kwargs = model.example_inputs
        return replace(request, args=tuple(args), kwargs=dict(kwargs))
    return request


def _write(
    folder: str | os.PathLike[str], state: str, request: Request, lines: Sequence[str]
) -> None:
    from ..version import tilewright

    now = datetime.datetime.now()
    path = Path(folder) / f"onnx_export_{now:%Y-%m-%d_%H-%M-%S-%f}_{state}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    model = request.model
    head = [
        "# ONNX export",
        "",
        f"- model: {getattr(model, '__name__', type(model).__name__)}",
        f"- opset: {request.opset}",
        f"- dynamic: {request.dynamic_shapes or request.dynamic_axes or 'no axes'}",
        f"- tilewright {tilewright}, onnx {require_onnx().__version__}",
    ]
    path.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


def _contents(proto: Any) -> list[str]:
    """What the graph holds, for the report."""
    graph = proto.graph
    out = ["", "| value | type |", "|---|---|"]
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            tensor = value.type.tensor_type
            sizes = [d.dim_param or str(d.dim_value) for d in tensor.shape.dim]
            name = require_onnx().TensorProto.DataType.Name(tensor.elem_type)
            out.append(f"| {kind} {value.name} | {name} [{', '.join(sizes)}] |")
    counts = collections.Counter(node.op_type for node in graph.node)
    out += ["", "| operator | nodes |", "|---|---:|"]
    return out + [f"| {name} | {count} |" for name, count in counts.most_common()]
