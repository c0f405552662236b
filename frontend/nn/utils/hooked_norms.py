"""Weight norm in its older form: a hook computes the weight before each call. `parametrizations`
has the newer form."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from tilewright.ir.location import at_user_line

from ..module import Module
from ..parameter import Parameter

T = TypeVar("T", bound=Module)

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norm_except_dim(v: Any, pow: int = 2, dim: int | None = 0) -> Any:
    """The norm over all dimensions but `dim`, which keeps its place; over all if it is -1."""
    if dim is None or dim == -1:
        return v.norm(pow)
    return v.norm(pow, [i for i in range(v.dim()) if i != dim % v.dim()], keepdim=True)


def weight_of(v: Any, g: Any, dim: int | None) -> Any:
    """g v / |v|; Salimans and Kingma, arXiv 1602.07868."""
    return v * (g / norm_except_dim(v, 2, dim))


class WeightNorm:
    """The hook: sets module.<name> to <name>_g <name>_v / |<name>_v|."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Any:
        v, g = getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g")
        return weight_of(v, g, self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two weight_norm hooks on the same parameter {name}"
                    f"{at_user_line()}"
                )
        made = WeightNorm(name, dim)
        weight = getattr(module, name)
        del module._parameters[name]
        g = norm_except_dim(weight.detach(), 2, made.dim)
        module.register_parameter(f"{name}_g", Parameter(g))
        module.register_parameter(f"{name}_v", Parameter(weight.detach()))
        setattr(module, name, made.compute_weight(module))
        module.register_forward_pre_hook(made)
        return made

    def remove(self, module: Module) -> None:
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[f"{self.name}_g"], module._parameters[f"{self.name}_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: T, name: str = "weight", dim: int | None = 0) -> T:
    """Replace a parameter by its length <name>_g, one for each place along `dim`, and its direction
    <name>_v. Deprecated: parametrizations.weight_norm does it."""
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: T, name: str = "weight") -> T:
    """Make the parameter a plain one again, with its present value."""
    for number, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}{at_user_line()}")
