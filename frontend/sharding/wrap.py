"""Policies that say which modules of a model to wrap, and wrapping by them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..nn import Module, ModuleDict, ModuleList, MultiheadAttention

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]


def always_wrap_policy(*args: Any, **options: Any) -> bool:
    """Wrap every module."""
    return True


class ModuleWrapPolicy:
    """Wrap the modules of these classes."""

    def __init__(self, module_classes: Iterable[type[Module]]):
        self._module_classes = set(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **options: Any) -> bool:
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._module_classes})"


class CustomPolicy:
    """Wrap the modules for which `lambda_fn` is true, or gives a dictionary of options."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]):
        self._lambda_fn = lambda_fn


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Wrap the modules for which `lambda_fn` is true."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: set[type[Module]],
) -> bool:
    """Wrap the layers of a transformer, which are of these classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Wrap modules with so many parameters that aren't wrapped yet."""
    leaves = size_based_auto_wrap_policy.FORCE_LEAF_MODULES  # type: ignore[attr-defined]
    excluded = size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES  # type: ignore[attr-defined]
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, tuple(force_leaf_modules or leaves))
    return large and not isinstance(module, tuple(exclude_wrap_modules or excluded))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {  # type: ignore[attr-defined]
    ModuleList,
    ModuleDict,
}
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {MultiheadAttention}  # type: ignore[attr-defined]

_wrapper: list[Callable[[Module], Module]] = []


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **options: Any) -> Iterator[None]:
    """Inside the block `wrap` makes a `wrapper_cls` of a module, with these options."""
    _wrapper.append(functools.partial(wrapper_cls, **options))
    try:
        yield
    finally:
        _wrapper.pop()


def wrap(module: Module, **options: Any) -> Module:
    """The module as `enable_wrap` says; outside of it the module itself."""
    return _wrapper[-1](module, **options) if _wrapper else module
