"""torch.ao.quantization: the markers of models that may be quantized. Nothing is quantized here."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

from ..nn import Module

__all__ = ["DeQuantStub", "QuantStub"]


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


def __getattr__(name: str) -> Any:
    if name not in _REFUSED:
        raise AttributeError(f"torch.ao.quantization has no {name!r}")

    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            f"torch.ao.quantization.{name}: tilewright has no quantized types{at_user_line()}"
        )

    return refuse


_REFUSED = frozenset(
    "convert fuse_modules fuse_modules_qat get_default_qat_qconfig get_default_qconfig prepare "
    "prepare_qat quantize quantize_dynamic".split()
)
