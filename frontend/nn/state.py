"""Saving and loading the state of modules."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import recording
from .._tensor import Tensor
from ..autograd.hooks import RemovableHandle, add_hook
from ..functions import from_data
from .parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
HOOKS = (
    *("_state_dict_hooks", "_state_dict_pre_hooks"),
    *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)
"""The attributes of a module that hold hooks of its state, by id. They are made on first use."""


class _IncompatibleKeys(NamedTuple):
    """The result of load_state_dict: the keys that only one side has."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )

    def __str__(self) -> str:
        return repr(self)


class State:
    """The part of Module that turns it into a state_dict and back."""

    _version = 1

    def get_extra_state(self) -> Any:
        """More state to save under the key '_extra_state'. Define it with set_extra_state."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never run.")

    def set_extra_state(self, state: Any) -> None:
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never run.")

    def state_dict(
        self: Any,
        *args: Any,
        destination: Any = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Every parameter and persistent buffer by dotted name, sharing memory with the module.

        keep_vars: the parameters themselves instead of detached tensors.
        """
        if args:
            destination, prefix, keep_vars = (*args, prefix, keep_vars)[:3]
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            metadata[prefix[:-1]] = {"version": self._version}
        for hook in _hooks(self, "_state_dict_pre_hooks"):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}{name}."
                module.state_dict(destination=destination, prefix=below, keep_vars=keep_vars)
        for hook in _hooks(self, "_state_dict_hooks"):
            replaced = hook(self, destination, prefix, metadata)
            if replaced is not None:
                destination = replaced
        return destination

    def _save_to_state_dict(self: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, value in self._parameters.items():
            if value is not None:
                destination[prefix + name] = value if keep_vars else value.detach()
        for name, value in self._buffers.items():
            if value is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = value if keep_vars else value.detach()
        if type(self).get_extra_state is not State.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def load_state_dict(
        self: Any, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy a state_dict into this module's parameters and buffers.

        strict: keys that don't match are an error. assign: take the tensors instead of copying.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"Expected state_dict to be dict-like, got {type(state_dict).__name__}."
            )
        metadata = getattr(state_dict, "_metadata", None) or {}
        state = OrderedDict(state_dict)
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []

        def load(module: Any, state: Any, prefix: str) -> None:
            local = dict(metadata.get(prefix[:-1], {}))
            local["assign_to_params_buffers"] = assign
            module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:  # its hooks see what is its own
                    below = f"{prefix}{name}."
                    own = {key: each for key, each in state.items() if key.startswith(below)}
                    load(child, own, below)
            found = _IncompatibleKeys(missing, unexpected)
            for hook in _hooks(module, "_load_state_dict_post_hooks"):
                hook(module, found)

        with recording.grad_mode(False):
            load(self, state, "")
        # The copies get an epoch of their own, so every step has the same graph as the first.
        recording.flush()
        if strict:
            if unexpected:
                listed = ", ".join(f'"{k}"' for k in unexpected)
                errors.insert(0, f"Unexpected key(s) in state_dict: {listed}. ")
            if missing:
                listed = ", ".join(f'"{k}"' for k in missing)
                errors.insert(0, f"Missing key(s) in state_dict: {listed}. ")
        if errors:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
                + "\n\t".join(errors)
            )
        return _IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self: Any,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        arguments = (
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs,
        )  # fmt: skip
        for hook in _hooks(self, "_load_state_dict_pre_hooks"):
            hook(*arguments)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = {**self._parameters}
        for name, value in self._buffers.items():
            if name not in self._non_persistent_buffers_set:
                own[name] = value
        for name, value in own.items():
            if value is None:
                continue
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            error = _load(self, name, value, state_dict[key], key, assign)
            if error:
                error_msgs.append(error)
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not State.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            else:
                missing_keys.append(extra)
        elif extra in state_dict:
            unexpected_keys.append(extra)
        for key in state_dict:
            if key.startswith(prefix) and key != extra:
                head, dot, _ = key[len(prefix) :].partition(".")
                if (head not in self._modules) if dot else (head not in own):
                    unexpected_keys.append(key)

    # Hooks of state_dict and load_state_dict.

    def register_state_dict_post_hook(self: Any, hook: Callable[..., Any]) -> RemovableHandle:
        return _registered(self, "_state_dict_hooks", hook)

    def register_state_dict_pre_hook(self: Any, hook: Callable[..., Any]) -> RemovableHandle:
        return _registered(self, "_state_dict_pre_hooks", hook)

    def register_load_state_dict_pre_hook(self: Any, hook: Callable[..., Any]) -> RemovableHandle:
        # A partial can be pickled and copied with its module, a function in here can't.
        return _registered(self, "_load_state_dict_pre_hooks", partial(hook, self))

    def register_load_state_dict_post_hook(self: Any, hook: Callable[..., Any]) -> RemovableHandle:
        return _registered(self, "_load_state_dict_post_hooks", hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def _register_load_state_dict_pre_hook(
        self: Any, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return _registered(self, "_load_state_dict_pre_hooks", hook)


def _hooks(module: Any, kind: str) -> list[Any]:
    return list(module.__dict__.get(kind, {}).values())


def _registered(module: Any, kind: str, hook: Callable[..., Any]) -> RemovableHandle:
    return add_hook(hook, module.__dict__.setdefault(kind, OrderedDict()))


def _load(module: Any, name: str, own: Any, given: Any, key: str, assign: bool) -> str | None:
    """Give tensor `own` of `module` the value `given`. Returns the error if that is impossible."""
    if isinstance(given, np.ndarray):
        given = from_data.tensor(given)
    if not isinstance(given, Tensor):
        return (
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(given)}"
        )
    if is_lazy(own):  # a lazy module took the shapes of other tensors before
        return None
    if given.shape != own.shape:
        if own.shape == () and given.shape == (1,):
            given = given[0]
        else:
            return (
                f"size mismatch for {key}: copying a param with shape {given.shape} from "
                f"checkpoint, the shape in current model is {own.shape}."
            )
    if not assign:
        if own.is_meta and not given.is_meta:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta "
                "parameter in the current model, which is a no-op. (Did you mean to pass "
                "`assign=True` to assign items in the state dictionary to their corresponding key "
                "in the module instead of copying them in place?)",
                stacklevel=2,
            )
        own.copy_(given)
        return None
    if name in module._parameters:
        if not isinstance(given, Parameter):
            given = Parameter(given, own.requires_grad)
        module._parameters[name] = given
    else:
        module._buffers[name] = given
    return None
