"""The errors of export, with PyTorch's names, and of loading."""

from __future__ import annotations


class OnnxExporterError(RuntimeError):
    """The model can't be exported. The message names the op, the line and the reason."""


class UnsupportedOperatorError(OnnxExporterError):
    """An op of the graph has no ONNX form."""


class GraphsDiffer(OnnxExporterError):
    """Recordings at different sizes have different graphs."""


class SizeUnknown(OnnxExporterError):
    """A size or number depends on the dynamic axes by no formula that is known."""


class OnnxLoaderError(RuntimeError):
    """The model can't be loaded or run. The message names the operators or the node."""
