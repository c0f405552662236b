"""The states of a model and its optimizers by the names of parameters, as one process has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .. import recording
from .._tensor import Tensor
from ..distributed.collectives import broadcast
from ..distributed.world import is_initialized
from ..nn import Module

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]


@dataclass
class StateDictOptions:
    """full_state_dict: changes nothing, as each process has all parameters. cpu_offload: move the
    tensors to the host. ignore_frozen_params: leave out parameters without gradients. strict: as in
    `load_state_dict`. broadcast_from_rank0: load what the first process was given."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False


_WRAPPERS = ("module.", "_checkpoint_wrapped_module.", "_orig_mod.")


def _plain(model: Module, name: str) -> str:
    """The name of a parameter without those of wrappers around the model or its parts."""
    from ..nn.parallel import DataParallel, DistributedDataParallel

    if isinstance(model, (DataParallel, DistributedDataParallel)):
        name = name.removeprefix("module.")
    for wrapper in _WRAPPERS[1:]:
        name = name.replace(wrapper, "")
    return name


def _moved(value: Any, options: StateDictOptions) -> Any:
    if isinstance(value, dict):
        return {k: _moved(v, options) for k, v in value.items()}
    if isinstance(value, Tensor) and options.cpu_offload:
        return value.cpu()
    return value


def get_model_state_dict(
    model: Module, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The model's state by plain names."""
    chosen = options or StateDictOptions()
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    return {
        _plain(model, name): _moved(value, chosen)
        for name, value in model.state_dict().items()
        if not (chosen.ignore_frozen_params and name in frozen)
    }


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Load a state with plain names. Returns the keys that don't fit."""
    chosen = options or StateDictOptions()
    names = {_plain(model, name): name for name in model.state_dict()}
    state = {names.get(name, name): value for name, value in model_state_dict.items()}
    if chosen.broadcast_from_rank0 and is_initialized():
        mine = model.state_dict()
        for name, value in mine.items():
            if isinstance(value, Tensor):
                if name in state:
                    with recording.grad_mode(False):
                        value.copy_(state[name])
                broadcast(value, group_src=0)
        state = mine
    return model.load_state_dict(state, strict=chosen.strict)


def _names(model: Module, optimizer: Any) -> list[str]:
    """The names of an optimizer's parameters, in the order of their numbers."""
    by_tensor = {id(p): _plain(model, name) for name, p in model.named_parameters()}
    return [by_tensor[id(p)] for group in optimizer.param_groups for p in group["params"]]


def _several(optimizers: Any) -> Iterable[Any]:
    return optimizers if isinstance(optimizers, (list, tuple, set)) else (optimizers,)


def get_optimizer_state_dict(
    model: Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The states of optimizers by the plain names of parameters."""
    chosen = options or StateDictOptions()
    merged: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in _several(optimizers):
        names, state = _names(model, optimizer), optimizer.state_dict()
        merged["state"].update(
            {names[number]: _moved(value, chosen) for number, value in state["state"].items()}
        )
        for group in state["param_groups"]:
            group = dict(group, params=[names[number] for number in group["params"]])
            merged["param_groups"].append(group)
    return merged


def set_optimizer_state_dict(
    model: Module,
    optimizers: Any,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load the states of optimizers, which go by the plain names of parameters."""
    by_first = {tuple(g["params"]): g for g in optim_state_dict["param_groups"]}
    for optimizer in _several(optimizers):
        names = _names(model, optimizer)
        number = {name: i for i, name in enumerate(names)}
        groups = []
        for group in optimizer.state_dict()["param_groups"]:
            own = tuple(names[i] for i in group["params"])
            found = by_first.get(own) or next(
                g for first, g in by_first.items() if set(own) <= set(first)
            )
            groups.append(dict(found, params=group["params"]))
        state = {number[k]: v for k, v in optim_state_dict["state"].items() if k in number}
        optimizer.load_state_dict({"state": state, "param_groups": groups})


def get_state_dict(
    model: Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of the model and of its optimizers."""
    return (
        get_model_state_dict(model, options=options),
        get_optimizer_state_dict(model, optimizers, options=options),
    )


def set_state_dict(
    model: Module,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Load the states of the model and of its optimizers."""
    if optim_state_dict:
        set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)
