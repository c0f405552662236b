"""tilewright.onnx: `export` with torch.onnx's signature, and `load`."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import OnnxExporterError, OnnxLoaderError, UnsupportedOperatorError

if TYPE_CHECKING:
    from ..onnx.program import ONNXProgram
    from ..types import FileLike

__all__ = [
    "export",
    "is_in_onnx_export",
    "load",
    "ONNXProgram",
    "OnnxExporterError",
    "OnnxLoaderError",
    "TrainingMode",
    "UnsupportedOperatorError",
    "register_custom_op_symbolic",
]


class TrainingMode(enum.Enum):
    """PyTorch's names for the mode of an exported model. Only EVAL is supported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


# PyTorch's options that select or tune its exporters.
_IGNORED = (
    "artifacts_dir",
    "do_constant_folding",
    "dump_exported_program",
    "dynamo",
    "export_params",
    "external_data",
    "fallback",
    "optimize",
    "profile",
    "report",
    "verbose",
)


def export(
    model: Any,
    args: Any = (),
    f: FileLike | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    training: TrainingMode = TrainingMode.EVAL,
    verify: bool = False,
    **options: Any,
) -> ONNXProgram:
    """Export `model(*args, **kwargs)` to an ONNX model, and write it to `f` if that is given.

    model: a Module, recorded in eval mode, or a function of tensors.
    args: the example inputs: a tensor or a tuple, whose last element may be a dict of keywords.
    f: a path or a binary file.
    input_names, output_names: of the ONNX graph; by default the names of forward's parameters, and
    `output`. Parameters and buffers keep their names in the state_dict. The doc_string of a node
    has the user's line.
    opset_version: 18 (the default) or newer.
    dynamic_axes: {"input": {0: "batch"}} or {"input": [0]}: axes of variable size. Axes with the
    same name have the same size. dynamic_shapes is the same in torch.export's form.
    verify: compare with onnxruntime on `args`.

    Returns an ONNXProgram. An op that ONNX can't express raises OnnxExporterError, which names the
    op and the user's line.
    """
    unknown = sorted(set(options) - set(_IGNORED))
    if unknown:
        raise TypeError(f"export() got an unexpected keyword argument {unknown[0]!r}")
    if getattr(training, "name", str(training)) != "EVAL":
        raise NotImplementedError("export: only training=TrainingMode.EVAL is supported")
    from .package import require_onnx

    onnx = require_onnx()
    from ..inspection.tracing import Call
    from .axes import dynamic_axes_of
    from .program import ONNXProgram, build

    call = Call(model, args, kwargs, OnnxExporterError)
    dynamic = dynamic_axes_of(call, input_names, dynamic_axes, dynamic_shapes)
    opset = 18 if opset_version is None else opset_version
    proto = build(call, input_names, output_names, dynamic, opset)
    onnx.checker.check_model(proto, full_check=True)
    program = ONNXProgram(proto)
    if verify:
        from .check import verify_program

        verify_program(program, call)
    if f is not None:
        program.save(f)
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
    raise AttributeError(f"tilewright.onnx has no {name!r}")
