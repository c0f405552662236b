"""Parameters that are computed from others each time they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ... import recording
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = [
    "ParametrizationList",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
]


class ParametrizationList(ModuleList):
    """Modules applied one after another to `original`, the parameter that is trained."""

    original: Any

    def __init__(self, modules: list[Module], original: Tensor) -> None:
        super().__init__(modules)
        if isinstance(original, Parameter):
            self.original = original
        else:
            self.register_buffer("original", original)

    def forward(self) -> Tensor:
        value = self.original
        for module in self:
            value = module(value)
        return value


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute module.<tensor_name> as parametrization(original).

    The parameter is then `original`, under the name parametrizations.<tensor_name>.original.
    Several parametrizations apply in turn. If the first one has a method `right_inverse`, original
    becomes right_inverse(value), so the tensor keeps its value. unsafe: don't check shape and
    dtype.
    """
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        value = getattr(module, tensor_name)
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        chain, value = None, getattr(module, tensor_name)
    else:
        raise ValueError(
            f"Module '{type(module).__name__}' does not have a parameter, a buffer, or a "
            f"parametrized element with name '{tensor_name}'{at_user_line()}"
        )
    inverse = getattr(parametrization, "right_inverse", None)
    with recording.grad_mode(False):
        original = value if inverse is None else inverse(value)
        made = parametrization(original)
    if not unsafe and (made.shape != value.shape or made.dtype is not value.dtype):
        raise ValueError(
            "Registering a parametrization may not change the shape or dtype of the tensor: got "
            f"{tuple(made.shape)} {made.dtype} for {tuple(value.shape)} {value.dtype}; "
            f"unsafe=True allows it{at_user_line()}"
        )
    if chain is not None:
        chain.append(parametrization)
        return module
    if isinstance(value, Parameter) and original is not value:
        original = Parameter(original, value.requires_grad)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _derive(module)
        module.add_module("parametrizations", ModuleDict())
    module.parametrizations[tensor_name] = ParametrizationList([parametrization], original)
    setattr(type(module), tensor_name, property(lambda self: self.parametrizations[tensor_name]()))
    return module


def _derive(module: Module) -> None:
    """Give the module a class of its own, which can hold properties."""
    base = type(module)
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), {"__module__": __name__})


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or that tensor of it, is parametrized."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return bool(len(found)) if tensor_name is None else tensor_name in found


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make the tensor a plain parameter again, with its computed value or, without
    leave_parametrized, the value of `original`."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(
            f"Module {type(module).__name__} does not have a parametrization on {tensor_name}"
            f"{at_user_line()}"
        )
    original = module.parametrizations[tensor_name].original
    if leave_parametrized:
        with recording.grad_mode(False):
            value = getattr(module, tensor_name).detach()
        plain = Parameter(value, original.requires_grad)
    else:
        plain = original
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, plain)
    else:
        module.register_buffer(tensor_name, plain)
    if not len(module.parametrizations):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module
