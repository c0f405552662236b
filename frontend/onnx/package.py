"""The onnx package, imported on first need."""

from __future__ import annotations

from typing import Any


def require_onnx(what: str = "exporting to ONNX") -> Any:
    """The module `onnx`, or an error that says how to install it."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            f"{what} needs the package onnx, which is not installed: pip install tilewright[onnx]"
        ) from error
    return onnx
