"""The markers of models that may be quantized statically."""

from __future__ import annotations

from typing import Any

from ...nn import Module


class QuantStub(Module):
    """The place where values would be quantized: the identity, until that is done."""

    def __init__(self, qconfig: Any = None):
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """The place where quantized values would become floats: the identity."""
