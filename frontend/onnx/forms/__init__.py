"""The ONNX forms of the ops, one family a file. Forms without parameters are in the op records."""

from __future__ import annotations


def register() -> None:
    """Fill exporter.FORMS and exporter.UNSUPPORTED."""
    # `fused` wraps forms of the other families.
    from . import (  # noqa: F401 -- importing them registers the forms
        activation,
        elementwise,
        fused,
        gather,
        linear,
        loop,
        movement,
        normalization,
        pooling,
        recurrent,
        reduction,
        resampling,
        scan,
        sized,
        unsupported,
    )
