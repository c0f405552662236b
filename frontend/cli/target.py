"""MODEL and SHAPE[,DTYPE], as `tilewright export` takes them."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from tilewright.ir.dtype import float32, named

from .. import nn
from ..as_torch.distribution import torch_means_tilewright
from ..devices import default
from ..functions import creation, sampling
from .errors import fail, user_errors


def find_object(text: str) -> Any:
    """The object at MODULE:OBJECT. MODULE is importable from here, or the path of a .py file.

    ValueError with a message for the user if there is none.
    """
    module_name, colon, attributes = text.rpartition(":")
    if not colon or not module_name or not attributes:
        raise ValueError(f"expected MODULE:OBJECT, such as model:net, got {text!r}")
    found = _module(module_name)
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise ValueError(f"{module_name} has no {attributes!r}") from None
    return found


def _module(name: str) -> Any:
    path = Path(name)
    if name.endswith(".py"):
        if not path.is_file():
            raise ValueError(f"no such file: {name}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        sys.path.insert(0, str(path.resolve().parent))
        spec.loader.exec_module(module)
        return module
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ValueError(f"no module {name!r} here or on sys.path") from None
        raise


def as_model(found: Any, text: str) -> Any:
    """A module or function to export. A class of modules, or a function without arguments, is
    called first."""
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise ValueError(f"{text} is a {type(found).__name__}, expected a module or a function")
    if inspect.isclass(found) or not inspect.signature(found).parameters:
        try:
            return found()
        except TypeError as error:
            raise ValueError(f"{text}() can't be called without arguments: {error}") from error
    return found


def is_onnx(source: str) -> bool:
    return source.endswith(".onnx")


def parse_input(text: str) -> Any:
    """A tensor for SHAPE[,DTYPE], such as 1x1x8x8 or 2x16,int64; `scalar` is the shape ()."""
    shape_text, _, dtype_name = text.partition(",")
    try:
        dtype = named(dtype_name.strip()) if dtype_name else float32
    except KeyError:
        raise ValueError(f"no dtype {dtype_name.strip()!r}, in the input {text!r}") from None
    try:
        shape = (
            ()
            if shape_text.strip() == "scalar"
            else tuple(int(size) for size in shape_text.lower().split("x"))
        )
    except ValueError:
        shape = (-1,)
    if any(size < 0 for size in shape):
        raise ValueError(f"expected an input such as 1x1x8x8 or 2x16,int64, got {text!r}")
    if dtype.is_floating_point:
        return sampling.randn(shape).to(dtype)
    return creation.zeros(shape, dtype=dtype)


def model_of(
    source: str, inputs: list[str], weights: Path | None, device: str = ""
) -> tuple[Any, tuple[Any, ...]]:
    """(model, input tensors) on `device`, or on the default one. The model comes from MODULE:OBJECT
    or a .onnx file, and its weights from `weights`."""
    from .. import onnx, serialization

    kinds = ValueError, RuntimeError, OSError, ImportError
    with user_errors(*kinds), torch_means_tilewright(), default(device or None):
        model = onnx.load(source) if is_onnx(source) else as_model(find_object(source), source)
        args = tuple(parse_input(text) for text in inputs)
    if weights is not None:
        if not weights.is_file():
            fail(f"no such file: {weights}")
        with user_errors(RuntimeError, AttributeError):
            model.load_state_dict(serialization.load(weights))
    return model, args
