"""Layers of a model that give their place to others."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.location import at_user_line

from ...nn import Module


def replace_layers(
    model: Module, wanted: Callable[[Module, str], bool], make: Callable[[Module, str], Module]
) -> None:
    """Puts `make(layer, name)` in the place of each layer for which `wanted(layer, name)`. A layer
    that stands at several places is made once."""
    if wanted(model, ""):
        raise ValueError(
            "expected a model that holds the layers to quantize, got such a layer itself, "
            f"{model._get_name()}: put it in an nn.Sequential{at_user_line()}"
        )
    made: dict[int, Module] = {}
    for path, parent in list(model.named_modules()):
        for name, layer in list(parent.named_children()):
            whole = f"{path}.{name}" if path else name
            if wanted(layer, whole):
                if id(layer) not in made:
                    made[id(layer)] = make(layer, whole)
                setattr(parent, name, made[id(layer)])
