"""functorch: the package that became torch.func. Each of its functions warns."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.location import at_user_line, warn

from ..nn.module import Module
from . import derivatives, modules, vmapping


def _warn(name: str, newer: str) -> None:
    warn(
        "We've integrated functorch into PyTorch. As the final step of the integration, "
        f"`functorch.{name}` is deprecated as of PyTorch 2.0 and will be deleted in a future "
        f"version of PyTorch >= 2.3. Please use `{newer}` instead; see the PyTorch 2.0 release "
        "notes and/or the `torch.func` migration guide for more details "
        "https://pytorch.org/docs/main/func.migrating.html",
        FutureWarning,
    )


def _older(function: Callable[..., Any], home: str = "torch.func") -> Any:
    name = function.__name__

    @functools.wraps(function)
    def warned(*args: Any, **options: Any) -> Any:
        _warn(name, f"{home}.{name}")
        return function(*args, **options)

    return warned


_NEWER = (
    modules.functionalize,
    derivatives.grad,
    derivatives.grad_and_value,
    derivatives.hessian,
    derivatives.jacfwd,
    derivatives.jacrev,
    derivatives.jvp,
    derivatives.vjp,
)
_OLDER = {"vmap": _older(vmapping.vmap, "torch"), **{f.__name__: _older(f) for f in _NEWER}}
globals().update(_OLDER)


class FunctionalModule(Module):
    """A module as a function of its parameters: f(params, *args)."""

    def __init__(
        self, stateless_model: Module, param_names: tuple[str, ...], names_map: dict[str, list[str]]
    ):
        super().__init__()
        self.stateless_model, self.param_names = stateless_model, param_names
        self.names_map = names_map

    def forward(self, params: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self.param_names, params, strict=True))
        return modules.functional_call(self.stateless_model, given, args, kwargs)


class FunctionalModuleWithBuffers(Module):
    """A module as a function of its parameters and buffers: f(params, buffers, *args)."""

    def __init__(
        self,
        stateless_model: Module,
        param_names: tuple[str, ...],
        buffer_names: tuple[str, ...],
        param_names_map: dict[str, list[str]],
        buffer_names_map: dict[str, list[str]],
    ):
        super().__init__()
        self.stateless_model, self.param_names = stateless_model, param_names
        self.buffer_names = buffer_names
        self.names_map = {**param_names_map, **buffer_names_map}

    def forward(
        self, params: Sequence[Any], buffers: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        names = (*self.param_names, *self.buffer_names)
        given = dict(zip(names, (*params, *buffers), strict=True))
        return modules.functional_call(self.stateless_model, given, args, kwargs)


def _names(entries: Any) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    names = tuple(name for name, _ in entries)
    return names, {name: [name] for name in names}


def _taken(model: Module, tracked: bool) -> tuple[Module, tuple[Any, ...], tuple[Any, ...]]:
    """A copy of a model, and copies of its parameters and buffers."""
    own, params = copy.deepcopy(model), copy.deepcopy(model)
    taken = tuple(params.parameters())
    if not tracked:
        for each in taken:
            each.requires_grad_(False)
    return own, taken, tuple(params.buffers())


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> Any:
    """(a function of parameters and inputs, the parameters) of a model without buffers."""
    _warn("make_functional", "torch.func.functional_call")
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            f"make_functional_with_buffers(model) instead.{at_user_line()}"
        )
    own, params, _ = _taken(model, not disable_autograd_tracking)
    return FunctionalModule(own, *_names(model.named_parameters())), params


def make_functional_with_buffers(model: Module, disable_autograd_tracking: bool = False) -> Any:
    """(a function of parameters, buffers and inputs, the parameters, the buffers) of a model."""
    _warn("make_functional_with_buffers", "torch.func.functional_call")
    return _with_buffers(model, not disable_autograd_tracking)


def _with_buffers(model: Module, tracked: bool) -> Any:
    own, params, buffers = _taken(model, tracked)
    names, of_params = _names(model.named_parameters())
    others, of_buffers = _names(model.named_buffers())
    made = FunctionalModuleWithBuffers(own, names, others, of_params, of_buffers)
    return made, params, buffers


def combine_state_for_ensemble(models: Sequence[Module]) -> Any:
    """(a function of parameters, buffers and inputs, the parameters, the buffers) of models of one
    class, each stacked along a new first dimension."""
    _warn("combine_state_for_ensemble", "torch.func.stack_module_state")
    try:
        params, buffers = modules.stack_module_state(list(models))
    except RuntimeError as error:
        text = str(error).replace("stack_module_state", "combine_state_for_ensemble")
        raise RuntimeError(text) from None
    function, _, _ = _with_buffers(models[0], True)
    return function, tuple(params.values()), tuple(buffers.values())


__all__ = sorted(
    [
        *_OLDER,
        "FunctionalModule",
        "FunctionalModuleWithBuffers",
        "combine_state_for_ensemble",
        "make_functional",
        "make_functional_with_buffers",
    ]
)
