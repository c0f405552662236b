"""Parameters that are computed from others each time they are read."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ... import recording
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


class ParametrizationList(ModuleList):
    """Modules applied one after another to what is trained: `original`, or original0, original1, …
    where the first module takes several tensors."""

    original: Any

    def __init__(self, modules: list[Module], original: Any, unsafe: bool = False) -> None:
        """unsafe: whether the modules may change shapes and dtypes."""
        super().__init__(modules)
        self.unsafe = unsafe
        self.is_tensor = not isinstance(original, (tuple, list))
        self.ntensors = 1 if self.is_tensor else len(original)
        names = (
            ("original",) if self.is_tensor else tuple(f"original{i}" for i in range(len(original)))
        )
        for name, value in zip(names, (original,) if self.is_tensor else original, strict=True):
            if isinstance(value, Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value)

    def _originals(self) -> list[Any]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def forward(self) -> Tensor:
        first, *others = self
        value: Any = first(*self._originals())
        for module in others:
            value = module(value)
        return value

    def right_inverse(self, value: Tensor) -> None:
        """Set what is trained such that the computed tensor becomes `value`."""
        found: Any = value
        with recording.grad_mode(False):
            for module in reversed(list(self)):
                inverse = getattr(module, "right_inverse", None)
                if inverse is None:
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse"
                        f"{at_user_line()}"
                    )
                found = inverse(found)
            several = isinstance(found, (tuple, list))
            for own, new in zip(self._originals(), found if several else [found], strict=True):
                if new.dtype is not own.dtype:
                    raise ValueError(
                        f"The tensor returned by right_inverse has dtype {new.dtype} while the "
                        f"original has dtype {own.dtype}{at_user_line()}"
                    )
                own.data = new


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute module.<tensor_name> as parametrization(original).

    The parameter is then `original`, under the name parametrizations.<tensor_name>.original.
    Several parametrizations apply in turn. If the first one has a method `right_inverse`, original
    becomes right_inverse(value), so the tensor keeps its value. unsafe: don't check shape and
    dtype.
    """
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        value = getattr(module, tensor_name)
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        chain, value = None, getattr(module, tensor_name)
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a "
            f"parametrized element with name '{tensor_name}'{at_user_line()}"
        )
    parametrization.train(module.training)
    inverse = getattr(parametrization, "right_inverse", None)
    with recording.grad_mode(False):
        original = value
        if chain is None and inverse is not None:
            with suppress(NotImplementedError):  # it can't set this value: the tensor gets another
                original = inverse(value)
        several = isinstance(original, (tuple, list))
        if not several and not isinstance(original, recording.Handle):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(original).__name__}{at_user_line()}"
            )
        if not several and not unsafe and original.dtype != value.dtype:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                f"original.dtype: {value.dtype}\n"
                f"right_inverse(original).dtype: {original.dtype}{at_user_line()}"
            )
        made = parametrization(*original) if several else parametrization(original)
        if chain is not None and inverse is not None and not unsafe:
            with suppress(NotImplementedError):  # the first one alone sets what is trained
                inverse(made)
    if not isinstance(made, recording.Handle):
        raise ValueError(
            f"A parametrization must return a tensor. Got {type(made).__name__}.{at_user_line()}"
        )
    for what in () if unsafe else ("dtype", "shape"):
        before, after = getattr(value, what), getattr(made, what)
        if before != after:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless "
                f"`unsafe` flag is enabled.\nunparametrized {what}: {before}\n"
                f"parametrized {what}: {after}{at_user_line()}"
            )
    if chain is not None:
        chain.append(parametrization)
        return module
    if isinstance(value, Parameter):
        wants = value.requires_grad

        def trained(t: Any) -> Any:
            return t if isinstance(t, Parameter) else Parameter(t.detach(), wants)

        original = [trained(t) for t in original] if several else trained(original)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _derive(module)
        module.add_module("parametrizations", ModuleDict())
    module.parametrizations[tensor_name] = ParametrizationList([parametrization], original, unsafe)
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


_cached: dict[tuple[int, str], Any] | None = None


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once in the block, however often it is read."""
    global _cached
    outer, _cached = _cached, {} if _cached is None else _cached
    try:
        yield
    finally:
        _cached = outer


def _read(module: Module, name: str) -> Any:
    if _cached is None:
        return module.parametrizations[name]()
    key = (id(module), name)
    if key not in _cached:
        _cached[key] = module.parametrizations[name]()
    return _cached[key]


def _property(name: str) -> property:
    """The computed tensor; assigning to it sets what is trained."""
    return property(
        lambda self: _read(self, name),
        lambda self, value: self.parametrizations[name].right_inverse(value),
    )


def type_before_parametrizations(module: Module) -> type:
    """The class of the module without its parametrizations."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def _derive(module: Module) -> None:
    """Give the module a class of its own, which can hold properties."""
    base = type(module)
    own: dict[str, Any] = {"__module__": __name__, "__getstate__": _no_state}
    if not hasattr(base, "__deepcopy__"):
        own["__deepcopy__"] = _deep_copy
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), own)


def _no_state(module: Module) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(): its class "
        f"exists in this process alone{at_user_line()}"
    )


def _deep_copy(module: Any, memo: dict[int, Any]) -> Any:
    made = memo[id(module)] = module.__new__(type(module))
    made.__dict__ = copy.deepcopy(module.__dict__, memo)
    return made


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or that tensor of it, is parametrized."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return bool(len(found)) if tensor_name is None else tensor_name in found


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give a module the parametrizations of another one, or those of one tensor, and the tensors
    that are trained. Returns it."""
    for name, found in from_module.parametrizations.items():
        if tensor_name is not None and name != tensor_name:
            continue
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for each in found:
            register_parametrization(to_module, name, each)
        made = to_module.parametrizations[name]
        for own, theirs in zip(made._originals(), found._originals(), strict=True):
            with recording.grad_mode(False):
                own.copy_(theirs)
    return to_module


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make the tensor a plain parameter again, with its computed value or, without
    leave_parametrized, the value of `original`."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(
            f"Module {type(module).__name__} does not have a parametrization on {tensor_name}"
            f"{at_user_line()}"
        )
    chain = module.parametrizations[tensor_name]
    if not leave_parametrized and not chain.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            f"parametrized in terms of a sequence of tensors.{at_user_line()}"
        )
    original = chain._originals()[0]
    plain = original
    if leave_parametrized:
        with recording.grad_mode(False):
            value = getattr(module, tensor_name).detach()
        if chain.is_tensor:
            original.data = value  # the same object, which an optimizer may hold
        else:
            plain = Parameter(value, original.requires_grad)
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, plain)
    else:
        module.register_buffer(tensor_name, plain)
    if not len(module.parametrizations):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module
