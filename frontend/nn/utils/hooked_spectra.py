"""Spectral norm in its older form: a hook divides the weight before each call. `parametrizations`
has the newer form."""

from __future__ import annotations

from typing import Any, TypeVar

from tilewright.ir.location import at_user_line

from ...autograd import no_grad
from ...functions.sampling import randn
from .. import functional as F
from ..module import Module
from ..parameter import Parameter

T = TypeVar("T", bound=Module)

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """The hook: sets module.<name> to <name>_orig / its largest singular value, which power
    iteration finds step by step from <name>_u and <name>_v."""

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got n_power_iterations="
                f"{n_power_iterations}{at_user_line()}"
            )
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def reshape_weight_to_matrix(self, weight: Any) -> Any:
        return weight.movedim(self.dim, 0).flatten(1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Any:
        """The divided weight. do_power_iteration: whether its vectors are improved first."""
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t() @ u, dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix @ v, dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()
        return weight / (u * (matrix @ v)).sum()

    def remove(self, module: Module) -> None:
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False).detach()
        delattr(module, self.name)
        for end in ("_u", "_v", "_orig"):
            delattr(module, self.name + end)
        module.register_parameter(self.name, Parameter(weight))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    @staticmethod
    def apply(
        module: Module, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two spectral_norm hooks on the same parameter {name}"
                    f"{at_user_line()}"
                )
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(
                f"`SpectralNorm` cannot be applied as parameter `{name}` is None{at_user_line()}"
            )
        matrix = made.reshape_weight_to_matrix(weight.detach())
        del module._parameters[name]
        module.register_parameter(f"{name}_orig", weight)
        setattr(module, name, weight.detach())
        for end, size in zip(("_u", "_v"), matrix.shape, strict=True):
            start = randn(size, dtype=matrix.dtype, device=matrix.device)
            module.register_buffer(name + end, F.normalize(start, dim=0, eps=eps))
        module.register_forward_pre_hook(made)
        return made


def spectral_norm(
    module: T,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> T:
    """Divide a weight by its largest singular value as a matrix of `dim` against the rest; Miyato
    et al., arXiv 1802.05957. By default `dim` is that of the outputs."""
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: T, name: str = "weight") -> T:
    """Make the parameter a plain one again, with its present value."""
    for number, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"spectral_norm of '{name}' not found in {module}{at_user_line()}")
