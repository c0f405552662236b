"""ONNX models as modules. A graph is read once, and runs on tilewright's ops."""

from __future__ import annotations

from .model import OnnxModel, read

__all__ = ["OnnxModel", "read"]
