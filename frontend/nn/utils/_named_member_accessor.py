"""The tensors of a module, exchanged one at a time."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line

from ..._tensor import Tensor
from ..module import Module

_MISSING = object()


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor in the place of the module's parameter, buffer or attribute; returns that one.

    tensor: a Tensor, None, or `_MISSING` to take the old one out. allow_missing: whether the module
    may lack the name, for which `_MISSING` is returned; otherwise it is an AttributeError. A
    parameter's place takes any tensor.
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module{at_user_line()}")
    if not (tensor is _MISSING or tensor is None or isinstance(tensor, Tensor)):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor{at_user_line()}")
    if "." in name:
        raise KeyError(f'tensor name can\'t contain "."{at_user_line()}')
    if not name:
        raise KeyError(f'tensor name can\'t be empty string ""{at_user_line()}')
    kinds: tuple[Any, ...] = (module._parameters, module._buffers)
    place = next((kind for kind in kinds if name in kind), module.__dict__)
    old = place.get(name, _MISSING)
    if place is module.__dict__:
        if old is _MISSING and not allow_missing:
            raise AttributeError(f"{module._get_name()} has no attribute {name!r}{at_user_line()}")
        if old is not _MISSING and not isinstance(old, Tensor):
            raise TypeError(f"attribute {name!r}: {old} is not an instance of torch.Tensor")
    if tensor is _MISSING:
        place.pop(name, None)
    elif place is module.__dict__ and old is _MISSING:
        setattr(module, name, tensor)
    else:
        place[name] = tensor
    return old


def set_tensor(module: Module, name: str, tensor: Tensor) -> None:
    """Put a tensor in the place of the module's parameter, buffer or attribute, or add it."""
    swap_tensor(module, name, tensor, allow_missing=True)
