"""torch.fx._pytree: flat lists of trees by a form that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..utils._pytree import tree_flatten

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

_flattens: dict[type, Callable[[Any, Any], list[Any]]] = {}


def register_pytree_flatten_spec(
    cls: type, flatten_fn_spec: Callable[[Any, Any], list[Any]], *args: Any
) -> None:
    """flatten_fn_spec(tree, spec) gives the children of a tree of a class."""
    _flattens[cls] = flatten_fn_spec


def tree_flatten_spec(pytree: Any, spec: Any) -> list[Any]:
    """The leaves of a tree that has the form `spec`."""
    known = _flattens.get(type(pytree))
    if known is None:
        return list(tree_flatten(pytree)[0])
    children = known(pytree, spec)
    return [leaf for child in children for leaf in tree_flatten(child)[0]]
