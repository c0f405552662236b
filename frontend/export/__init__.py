"""torch.export: a module's call as a graph with its weights, for all sizes that may differ.

A program is recorded at several sizes, and its graphs become one in which sizes are computed from
those of the inputs. Reading a value, and a course that depends on a size, are errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tilewright.ir.location import at_user_line

from .._dynamo.exc import UserError, UserErrorType
from ..jit import archive, loading
from ..nn import Module
from ..utils._pytree import register_dataclass as _register
from .decomp_utils import CustomDecompTable
from .dynamic_shapes import AdditionalInputs, Constraint, Dim, ShapesCollection, dims
from .exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    build,
    default_decompositions,
)
from .graph_signature import ExportBackwardSignature, ExportGraphSignature
from .recording import Example, generic
from .unflatten import FlatArgsAdapter, UnflattenedModule, unflatten

__all__ = [
    "AdditionalInputs",
    "Constraint",
    "CustomDecompTable",
    "Dim",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "ExportedProgram",
    "FlatArgsAdapter",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "ShapesCollection",
    "UnflattenedModule",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "load",
    "register_dataclass",
    "save",
    "unflatten",
]


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """The call mod(*args, **kwargs) as a program.

    dynamic_shapes: sizes that may differ, by argument: {"x": {0: Dim("batch")}}, or a tuple in the
    order of the arguments; nested as they are. An entry is a Dim, Dim.AUTO, Dim.DYNAMIC, an int or
    None. preserve_module_call_signature: the paths of modules that `unflatten` gives the arguments
    and results that they have in the model.

    Raises GuardOnDataDependentSymNode where the program reads a value that depends on its inputs,
    and ConstraintViolationError if it isn't the same for all sizes (both in
    torch.fx.experimental.symbolic_shapes). UserError, of torch._dynamo.exc, for dynamic_shapes that
    don't have the form of the arguments.
    """
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(
            UserErrorType.INVALID_INPUT,
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}"
            f"{at_user_line()}",
        )
    example = Example(mod, args, kwargs or {}, preserve_module_call_signature)
    if isinstance(dynamic_shapes, AdditionalInputs):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    try:
        declared = example.symbols(dynamic_shapes)
    except ValueError as error:  # they don't have the form of the arguments
        raise UserError(UserErrorType.INVALID_INPUT, f"{error}{at_user_line()}") from None
    recorded, symbols = generic(example, declared)
    return build(example, recorded, symbols)


def draft_export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    **options: Any,
) -> ExportedProgram:
    """As `export`: there is one way to record a program."""
    return export(
        mod,
        args,
        kwargs,
        dynamic_shapes=dynamic_shapes,
        preserve_module_call_signature=preserve_module_call_signature,
    )


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: Mapping[str, Any] | None = None,
    opset_version: Any = None,
    pickle_protocol: int = 2,
) -> None:
    """Write a program to a path or a binary file. torch.load reads its state_dict."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            "The 'ep' parameter must be an instance of 'ExportedProgram', got "
            f"'{type(ep).__name__}' instead."
        )
    archive.save(ep, f if hasattr(f, "write") else os.fspath(f), extra_files)


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: Any = None,
) -> ExportedProgram:
    """The program in a file of `save`. Loading runs code that the file holds: trust its source."""
    found = loading.load(f, None, extra_files)
    if not isinstance(found, ExportedProgram):
        raise RuntimeError(
            f"torch.export.load: the file holds a {type(found).__name__}, not an exported program: "
            f"use torch.jit.load{at_user_line()}"
        )
    return found


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let instances of a dataclass be among the arguments and results of exported programs."""
    _register(cls, serialized_type_name=serialized_type_name)
