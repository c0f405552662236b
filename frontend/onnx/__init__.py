"""tilewright.onnx: `export` with torch.onnx's signature, and `load`."""

from __future__ import annotations

import enum
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import OnnxExporterError, OnnxLoaderError, UnsupportedOperatorError

if TYPE_CHECKING:
    from ..onnx.exportable import ExportableModule
    from ..onnx.program import ONNXProgram
    from ..types import FileLike

__all__ = [
    "export",
    "is_in_onnx_export",
    "load",
    "ExportableModule",
    "ONNXProgram",
    "OnnxExporterError",
    "OnnxLoaderError",
    "OperatorExportTypes",
    "TrainingMode",
    "UnsupportedOperatorError",
    "register_custom_op_symbolic",
]


class TrainingMode(enum.Enum):
    """PyTorch's names for the mode of an exported model. Only EVAL is supported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """PyTorch's names for what becomes of operators. Only ONNX is supported."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def export(
    model: Any,
    args: Any = (),
    f: FileLike | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Any, Any] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool | None = None,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    fallback: bool = False,
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Any] | None = None,
    training: TrainingMode = TrainingMode.EVAL,
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type] = False,
    autograd_inlining: bool = True,
) -> ONNXProgram:
    """Export `model(*args, **kwargs)` to an ONNX model, and write it to `f` if that is given.

    model: a Module, recorded in eval mode, a function of tensors, an ExportedProgram, or an
        ExportableModule, which gives all that is left out.
    args: the example inputs: a tensor or a tuple, whose last element may be a dict of keywords.
        Tensors in tuples, lists and dicts are inputs too; numbers become part of the model.
    f: a path or a binary file.
    input_names, output_names: of the ONNX graph; by default the names of forward's parameters, and
        `output`. Parameters and buffers keep their names in the state_dict. The doc_string of a
        node has the user's line, its name the module.
    opset_version: 18 (the default) or newer.
    external_data: whether weights of 1 KB and more go to a file of their own, `f` + ".data".
    dynamic_shapes: the axes of variable size, in torch.export's form: {"x": {0: Dim("batch")}}.
        dynamic_axes is the same in the older one: {"input": {0: "batch"}} or {"input": [0]}. Axes
        with the same name have the same size.
    custom_translation_table: {operator: function} of your own forms: see docs/onnx.md.
    export_modules_as_functions: whether modules become functions of the model, nested as they are;
        or the classes of those that do.
    verify: compare with onnxruntime on `args` and, if axes are dynamic, at other sizes. None: where
        onnxruntime is installed.
    report: write a page about the export, also of a failed one, to `artifacts_dir`.
    export_params, keep_initializers_as_inputs: see `ONNXProgram.save`.

    PyTorch's options that select or tune its exporters have no effect: verbose, dynamo, optimize,
    profile, dump_exported_program, fallback, do_constant_folding, custom_opsets, autograd_inlining.

    Returns an ONNXProgram. An op that ONNX can't express raises OnnxExporterError, which names the
    op and the user's line.
    """
    if getattr(training, "name", str(training)) != "EVAL":
        raise NotImplementedError("export: only training=TrainingMode.EVAL is supported")
    if getattr(operator_export_type, "name", str(operator_export_type)) != "ONNX":
        raise NotImplementedError("export: only OperatorExportTypes.ONNX is supported")
    from .exporting import Request, run

    request = Request(
        model,
        args,
        kwargs,
        input_names,
        output_names,
        18 if opset_version is None else opset_version,
        dynamic_axes,
        dynamic_shapes,
        custom_translation_table,
        export_modules_as_functions,
        verify,
    )
    program = run(request, artifacts_dir if report else None)
    if f is not None:
        program.save(
            f,
            include_initializers=export_params,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
            external_data=external_data,
        )
    return program


def load(f: Any) -> Any:
    """Load the model of an ONNX file as a module that runs on tilewright's ops.

    f: a path, whose folder also has any external weights; or a binary stream, an onnx.ModelProto or
        an ONNXProgram.

    The module takes the graph's inputs, in order or by name, and returns its output, or a tuple of
    outputs. Initializers become its parameters and buffers, with their own names; numbers and small
    arrays of integers become part of the graph. A sequence is a list; texts, and numbers of dtypes
    that tensors don't have, such as int4, are NumPy arrays. `metadata`, `inputs` and `outputs` tell
    about the file.

    Supports opset 7 and newer, and much of what is older. Missing operators raise OnnxLoaderError,
    which names all of them, and so does a file that is damaged or means harm.
    """
    from .package import require_onnx

    require_onnx("loading an ONNX model")
    from .loading import read

    return read(f)


def is_in_onnx_export() -> bool:
    """False: what is exported runs as any other."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Accept a function of PyTorch's older exporter, which is not run: a custom op is exported as
    what it records."""


def __getattr__(name: str) -> Any:
    if name == "ONNXProgram":
        from .program import ONNXProgram

        return ONNXProgram
    if name == "ExportableModule":
        from .exportable import ExportableModule

        ExportableModule._export = staticmethod(export)
        return ExportableModule
    raise AttributeError(f"tilewright.onnx has no {name!r}")
