"""onnxruntime, imported on first need."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

LIMIT = 2**31 - 1
"""The most bytes of a message of protobuf."""


def require_onnxruntime(what: str) -> Any:
    """The module `onnxruntime`, or an error that says how to install it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            f"{what} needs the package onnxruntime, which is not installed: "
            "pip install tilewright[onnx]"
        ) from error
    return onnxruntime


def session_of(proto: Any, what: str = "running an ONNX program") -> Any:
    """A session on the CPU. A model beyond protobuf's limit goes through a file."""
    runtime = require_onnxruntime(what)
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what is wrong comes as an error too
    providers = ["CPUExecutionProvider"]
    if proto.ByteSize() < LIMIT:
        return runtime.InferenceSession(proto.SerializeToString(), options, providers=providers)
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        onnx.save(copy, path, save_as_external_data=True, location="model.onnx.data")
        return runtime.InferenceSession(path, options, providers=providers)


def arrays_of(tensors: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(t.detach().cpu()._array()).reshape(t.shape) for t in tensors]


def has_no_kernel(error: Exception) -> bool:
    """Whether onnxruntime refused a valid model for want of an operator, a type or an opset."""
    text = str(error)
    return any(
        each in text
        for each in ("NOT_IMPLEMENTED", "Could not find an implementation", "is under development")
    )
