"""The ONNX forms of the ops, one family a file. Those without parameters are in the op records."""

from __future__ import annotations


def register() -> None:
    """Fill exporter.FORMS and exporter.UNSUPPORTED."""
    # It builds on the forms of the others.
    from . import (  # noqa: F401 -- importing them registers the forms
        activation,
        elementwise,
        fused,
        gather,
        linear,
        movement,
        normalization,
        pooling,
        reduction,
        scan,
        unsupported,
    )
