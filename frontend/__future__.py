"""torch.__future__: how `Module.to` and its like replace the parameters of a module."""

from __future__ import annotations

from .nn import conversion

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Have `module.to(…)` make new parameters (True), instead of giving those that are there
    another value."""
    conversion.overwrites = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What `set_overwrite_module_params_on_conversion` was given last."""
    return conversion.overwrites


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Have `module.to(…)` exchange tensors. Parameters stay the same objects with and without."""
    conversion.swaps = value


def get_swap_module_params_on_conversion() -> bool:
    """What `set_swap_module_params_on_conversion` was given last."""
    return conversion.swaps
