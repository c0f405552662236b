"""ONNX models as modules: a graph is read once, and runs on our own ops."""

from __future__ import annotations

from .model import OnnxModel, read

__all__ = ["OnnxModel", "read"]
