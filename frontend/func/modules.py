"""Modules as functions of their parameters and buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir.location import at_user_line

from .._tensor import Tensor
from ..functions.joining import stack
from ..nn.module import Module
from ..nn.normalization import _BatchNorm


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module` with other tensors in the place of its parameters and buffers.

    parameter_and_buffer_dicts: tensors by the names of `named_parameters` and `named_buffers`, in
        one dict or several without common names.
    args: the argument of the call, or a tuple of them.
    tie_weights: whether a tensor that the module has under several names is replaced under all.
    strict: whether names that are missing, or that the module hasn't, are a RuntimeError.
    """
    if isinstance(parameter_and_buffer_dicts, Mapping):
        given = dict(parameter_and_buffer_dicts)
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        given = {}
        for each in parameter_and_buffer_dicts:
            if not isinstance(each, Mapping):
                raise ValueError(
                    "Expected all elements of parameter_and_buffer_dicts to be dictionaries"
                    + at_user_line()
                )
            twice = sorted(given.keys() & each.keys())
            if twice:
                raise ValueError(
                    f"{twice} appeared in multiple dictionaries; behavior of functional call is "
                    f"ambiguous{at_user_line()}"
                )
            given |= each
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}{at_user_line()}"
        )
    if not isinstance(module, Module):
        raise TypeError(f"functional_call: expected a Module, got {type(module).__name__}")
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, given, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def _slots(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Where the module holds each parameter and buffer: name -> (a dict, the key in it)."""
    return {
        f"{prefix}.{name}" if prefix else name: (entries, name)
        for prefix, each in module.named_modules(remove_duplicate=False)
        for entries in (each._parameters, each._buffers)
        for name in entries
    }


@contextmanager
def _reparametrize_module(
    module: Module, given: dict[str, Any], tie_weights: bool = False, strict: bool = False
) -> Iterator[None]:
    """Put other tensors in the place of the module's parameters and buffers until the block
    ends."""
    slots = _slots(module)
    held = {name: entries[key] for name, (entries, key) in slots.items()}
    if tie_weights:
        given = _tied(held, given)
    if strict:
        missing = [n for n, t in held.items() if t is not None and n not in given]
        unexpected = [name for name in given if name not in slots]
        if missing or unexpected:
            raise RuntimeError(
                f"Error(s) in reparametrizing for {type(module).__name__}:"
                + (f"\n\tUnexpected key(s): {', '.join(unexpected)}." if unexpected else "")
                + (f"\n\tMissing key(s): {', '.join(missing)}." if missing else "")
                + at_user_line()
            )
    plain = _plain_slots(module, [name for name in given if name not in slots])
    before = {name: entries.get(key, _NOTHING) for name, (entries, key) in plain.items()}
    try:
        for name, value in given.items():
            if name in slots or name in plain:
                entries, key = slots.get(name) or plain[name]
                entries[key] = value
        yield
    finally:
        for name, (entries, key) in slots.items():
            entries[key] = held[name]
        for name, (entries, key) in plain.items():
            if before[name] is _NOTHING:
                entries.pop(key, None)
            else:
                entries[key] = before[name]


_NOTHING: Any = object()


def _plain_slots(module: Module, names: Sequence[str]) -> dict[str, tuple[dict[str, Any], str]]:
    """As `_slots`, of attributes that are neither parameters nor buffers; they may be new.
    TypeError for one that isn't a tensor."""
    below = dict(module.named_modules(remove_duplicate=False)) if names else {}
    found = {}
    for name in names:
        prefix, _, key = name.rpartition(".")
        owner = below.get(prefix)
        if owner is None or hasattr(type(owner), key):
            continue
        entries = vars(owner)
        if key in owner._modules or not isinstance(entries.get(key), Tensor | None):
            raise TypeError(
                f"attribute {name!r} is not an instance of torch.Tensor{at_user_line()}"
            )
        found[name] = entries, key
    return found


def _tied(held: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`given` with an entry for each name of a tensor that has an entry under another."""
    names: dict[int, list[str]] = {}
    for name, value in held.items():
        if value is not None:
            names.setdefault(id(value), []).append(name)
    made = dict(given)
    for name in given:
        if name not in held or held[name] is None:
            continue
        for other in names[id(held[name])]:
            if other in given and given[other] is not given[name]:
                raise ValueError(
                    f"functional_call got multiple values for keys {[name, other]}, which are "
                    f"tied. Consider using tie_weights=False{at_user_line()}"
                )
            made[other] = given[name]
    return made


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of models of one class, by name, each stacked along a new first
    dimension. The parameters are leaves that require a gradient where the models' do."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = _stacked([dict(m.named_parameters()) for m in models])
    buffers = _stacked([dict(m.named_buffers()) for m in models])
    return parameters, buffers


def _stacked(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    made = {}
    for name, first in states[0].items():
        tensors = [state[name] for state in states]
        if any(t.requires_grad != first.requires_grad for t in tensors):
            raise RuntimeError(
                f"Expected {name} from each model to have the same .requires_grad{at_user_line()}"
            )
        made[name] = stack(tensors).detach().requires_grad_(first.requires_grad)
    return made


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func` itself. Recorded graphs have no writes and no views, so there are none to remove.

    remove: "mutations" or "mutations_and_views".
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): expected remove to be 'mutations' or "
            f"'mutations_and_views', got {remove!r}{at_user_line()}"
        )

    @functools.wraps(func)
    def wrapper(*args: Any, **options: Any) -> Any:
        return func(*args, **options)

    return wrapper


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let all batch norms of a module use the statistics of the batch, and keep none: under vmap
    there is no running mean to update. Returns the module."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
