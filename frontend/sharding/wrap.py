"""Policies that say which modules of a model to wrap, and wrapping by them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tilewright.ir.location import at_user_line

from ..nn import Module, ModuleDict, ModuleList, MultiheadAttention

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "_recursive_wrap",
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


def _recursive_wrap(
    module: Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Any,
    ignored_modules: set[Module],
    ignored_params: set[Any],
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[Module, int]:
    """(the module with what the policy chooses in wrappers, the number of elements in these).

    Modules inside come first: the policy of a module asks how many elements they have left.
    """
    for name, each in module.named_modules():
        if each not in ignored_modules and isinstance(wrapper_cls, type):
            assert not isinstance(each, wrapper_cls), (
                f"Child module {name} is already wrapped by {wrapper_cls}{at_user_line()}"
            )
    count = sum(p.numel() for p in module.parameters() if p not in ignored_params)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=count):
        return module, 0
    wrapped = 0
    for name, child in module.named_children():
        if child in ignored_modules:
            continue
        made, inside = _recursive_wrap(
            child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs
        )
        setattr(module, name, made)
        wrapped += inside
    left = count - wrapped
    if only_wrap_children or not auto_wrap_policy(
        module=module, recurse=False, nonwrapped_numel=left
    ):
        return module, wrapped
    return wrapper_cls(module, **kwargs), count
