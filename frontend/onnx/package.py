"""The onnx package, imported when an export begins and not before."""

from __future__ import annotations

from typing import Any


def require_onnx() -> Any:
    """The module `onnx`, or an error that says how to get it."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "exporting to ONNX needs the package onnx, which is not installed: "
            "pip install tilewright[onnx]"
        ) from error
    return onnx
