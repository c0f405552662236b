"""What export raises, under PyTorch's names, and what loading does."""

from __future__ import annotations


class OnnxExporterError(RuntimeError):
    """The model can't be exported; the message says which op, at which line, and why."""


class UnsupportedOperatorError(OnnxExporterError):
    """An op of the graph has no ONNX form."""


class GraphsDiffer(OnnxExporterError):
    """Recordings at different sizes are not of one graph."""


class OnnxLoaderError(RuntimeError):
    """The model can't be loaded or run; the message names the operators, or the node."""
