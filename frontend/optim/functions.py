"""The functions of lists beside PyTorch's optimizers, such as `torch.optim.adam.adam`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .. import recording
from .counting import Counted
from .optimizer import _begun

_FLAGS = (
    "foreach capturable maximize differentiable fused grad_scale found_inf has_complex "
    "has_sparse_grad decoupled_weight_decay"
).split()
"""Arguments with defaults, of which each function has some."""
_FREE = inspect.Parameter.POSITIONAL_OR_KEYWORD
_NAMED = inspect.Parameter.KEYWORD_ONLY


def as_function(
    name: str,
    optimizer: type[Any],
    states: dict[str, str],
    options: str,
    *,
    flags: str = "",
    counts: bool = True,
) -> Callable[..., None]:
    """The function that makes one step of `optimizer` for parameters, gradients and states in
    lists, which it writes in place.

    states: the name of each list -> that of the optimizer's state. options: the required keywords.
    flags: the optional arguments in their order. counts: whether a list of step counts follows.
    """
    lists = ["params", "d_p_list" if name == "sgd" else "grads", *states]
    lists += ["state_steps"] if counts else []
    parameters = [inspect.Parameter(each, _FREE) for each in lists]
    for each in flags.split():
        default = None if each in ("foreach", "fused", "grad_scale", "found_inf") else False
        parameters.append(inspect.Parameter(each, _FREE, default=default))
    given = set(flags.split())
    parameters += [inspect.Parameter(o, _NAMED) for o in options.split() if o not in given]
    signature = inspect.Signature(parameters)

    def step(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        for each in ("grad_scale", "found_inf"):
            if values.get(each) is not None:
                raise NotImplementedError(f"{name}: {each} is not supported; unscale the gradients")
        group = {k: v for k, v in values.items() if k not in lists and k not in _FLAGS}
        group |= {k: values[k] for k in ("maximize", "decoupled_weight_decay") if k in values}
        if "beta1" in group:
            group["betas"] = (group.pop("beta1"), group.pop("beta2"))
        if "etaminus" in group:
            group["etas"] = (group.pop("etaminus"), group.pop("etaplus"))
            group["step_sizes"] = (group.pop("step_size_min"), group.pop("step_size_max"))
        columns = {own: values[listed] for listed, own in states.items()}
        _step(
            optimizer, group, values[lists[0]], values[lists[1]], columns, values.get("state_steps")
        )

    step.__name__ = step.__qualname__ = name
    step.__doc__ = f"One step of {optimizer.__name__}, for parameters and states in lists."
    step.__signature__ = signature  # type: ignore[attr-defined]
    return step


def _step(
    optimizer: type[Any],
    group: dict[str, Any],
    params: Sequence[Any],
    grads: Sequence[Any],
    columns: dict[str, list[Any]],
    counts: Sequence[Any] | None,
) -> None:
    made = object.__new__(optimizer)
    made.defaults, made.param_groups = {}, [{**group, "params": list(params)}]
    made.state = {}
    for i, p in enumerate(params):
        known = {name: c[i] for name, c in columns.items() if i < len(c) and c[i] is not None}
        if counts is not None:
            known["step"] = counts[i]
        made.state[p] = Counted(known) if optimizer._counts else known
    before = [p._grad for p in params]
    try:
        for p, g in zip(params, grads, strict=True):
            p._grad = g
        with recording.grad_mode(False):
            made._step_group(group, list(params))
            for i, p in enumerate(params):
                for name, column in columns.items():
                    if i < len(column) and column[i] is None:
                        column[i] = made.state[p].get(name)
                if counts is not None:
                    counts[i].add_(1)
    finally:
        for p, g in zip(params, before, strict=True):
            p._grad = g
        _begun.clear()
