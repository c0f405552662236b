"""Branches and loops on values: Python reads the value, and goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from ..recording import Handle
from ..utils import _pytree as pytree

__all__ = ["cond", "while_loop"]


def _truth(name: str, value: Any) -> bool:
    whole = isinstance(value, Handle) and value.numel() == 1  # type: ignore[attr-defined]
    if not whole and not isinstance(value, (bool, int, float)):
        raise RuntimeError(
            f"Expected {name} to be bool or single-element tensor, but got {value}.{at_user_line()}"
        )
    return bool(value)


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
) -> Any:
    """true_fn(*operands) if `pred` holds, else false_fn(*operands). Only the chosen one is called.

    pred: a bool, or a tensor of one element, whose value is read. operands: a tuple or list of
    nested containers of tensors.
    """
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError(f"Expect both branches to be callable.{at_user_line()}")
    leaves = pytree.tree_leaves(operands)
    nested = isinstance(operands, (tuple, list))
    if not nested or any(not isinstance(x, Handle) for x in leaves):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists "
            f"of tensor leaves, but got {operands}.{at_user_line()}"
        )
    return (true_fn if _truth("pred", pred) else false_fn)(*operands)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]
) -> Any:
    """The values that `body_fn` carries on while `cond_fn` of them holds.

    cond_fn, body_fn: functions of the carried values. body_fn returns as many, as a tuple or list.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError(f"Expect cond_fn and body_fn to be callable.{at_user_line()}")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            f"Expect carried_inputs to be a tuple or list, but got {type(carried_inputs)}."
            + at_user_line()
        )
    carried = tuple(carried_inputs)
    while _truth("the result of cond_fn", cond_fn(*carried)):
        made = body_fn(*carried)
        if not isinstance(made, (tuple, list)) or len(made) != len(carried):
            raise RuntimeError(
                f"Expect body_fn to return a tuple of {len(carried)} values, as carried_inputs, "
                f"but got {made}.{at_user_line()}"
            )
        carried = tuple(made)
    return carried
