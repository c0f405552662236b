"""Sequences of two or three layers, each with a class that says which."""

from __future__ import annotations

from typing import Any

from .... import nn


class _FusedModule(nn.Sequential):
    """Layers that run one after another."""

    _layers: tuple[type, ...] = ()

    def __init__(self, *modules: Any):
        if tuple(map(type, modules)) != self._layers:
            names = " and ".join(type(m).__name__ for m in modules)
            raise AssertionError(f"Incorrect types for input modules: {names}")
        super().__init__(*modules)


def _fused(name: str, *layers: type) -> Any:
    said = ", ".join(each.__name__ for each in layers)
    return type(
        name,
        (_FusedModule,),
        {"_layers": layers, "__module__": __name__, "__doc__": f"{said}, in this order."},
    )


ConvReLU1d, ConvReLU2d, ConvReLU3d = (
    _fused(f"ConvReLU{n}d", conv, nn.ReLU)
    for n, conv in enumerate((nn.Conv1d, nn.Conv2d, nn.Conv3d), 1)
)
_NORMED = (
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
)
ConvBn1d, ConvBn2d, ConvBn3d = (
    _fused(f"ConvBn{n}d", *layers) for n, layers in enumerate(_NORMED, 1)
)
ConvBnReLU1d, ConvBnReLU2d, ConvBnReLU3d = (
    _fused(f"ConvBnReLU{n}d", *layers, nn.ReLU) for n, layers in enumerate(_NORMED, 1)
)
BNReLU2d = _fused("BNReLU2d", nn.BatchNorm2d, nn.ReLU)
BNReLU3d = _fused("BNReLU3d", nn.BatchNorm3d, nn.ReLU)
LinearReLU = _fused("LinearReLU", nn.Linear, nn.ReLU)
LinearBn1d = _fused("LinearBn1d", nn.Linear, nn.BatchNorm1d)
