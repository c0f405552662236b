"""What export raises; the names are PyTorch's."""

from __future__ import annotations


class OnnxExporterError(RuntimeError):
    """The model can't be exported; the message says which op, at which line, and why."""


class UnsupportedOperatorError(OnnxExporterError):
    """An op of the graph has no ONNX form."""


class GraphsDiffer(OnnxExporterError):
    """Recordings at different sizes are not of one graph."""
