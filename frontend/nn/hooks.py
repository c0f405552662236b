"""Hooks of modules: called around `forward`, and when gradients pass a module."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line, warn

from .._tensor import Tensor
from ..autograd import is_grad_enabled
from ..autograd.function import Function
from ..autograd.hooks import RemovableHandle, add_hook, arguments_of
from ..functions.creation import zeros
from ..recording import threads

if TYPE_CHECKING:
    from ..nn.module import Module

FORWARD_PRE, FORWARD = "_forward_pre_hooks", "_forward_hooks"
BACKWARD_PRE, BACKWARD = "_backward_pre_hooks", "_backward_hooks"
WITH_KWARGS = {kind: f"{kind}_with_kwargs" for kind in (FORWARD_PRE, FORWARD)}
ALWAYS = "_forward_hooks_always_called"
NAMES = (FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD, *WITH_KWARGS.values(), ALWAYS)
"""The attributes of a module that hold hooks by id, or mark some of them, under PyTorch's names."""


class Hooks(dict[str, OrderedDict[int, Any]]):
    """The hooks of one module, by the names of its attributes."""

    def __init__(self) -> None:
        super().__init__({name: OrderedDict() for name in NAMES})

    def add(
        self, kind: str, hook: Callable[..., Any], prepend: bool, **marks: bool
    ) -> RemovableHandle:
        """Add a hook. marks: whether attributes that mark hooks (`ALWAYS`, …) mark this one."""
        wanted = [self[name] for name, wants in marks.items() if wants]
        return add_hook(hook, self[kind], *wanted, prepend=prepend)

    def of(self, kind: str) -> list[tuple[Callable[..., Any], bool]]:
        """Each hook of a kind, and whether it takes keyword arguments."""
        with_kwargs: Any = self[WITH_KWARGS[kind]] if kind in WITH_KWARGS else ()
        common = [] if self is EVERYWHERE else EVERYWHERE.of(kind)
        return common + [(hook, number in with_kwargs) for number, hook in self[kind].items()]

    @threads.gives_way
    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `forward` with the hooks around it; returns the result of `module(*args, …)`."""
        for hook, with_kwargs in self.of(FORWARD_PRE):
            if with_kwargs:
                replaced = hook(module, args, kwargs)
                args, kwargs = arguments_of(replaced, args, kwargs, "forward")
            else:
                replaced = hook(module, args)
                if replaced is not None:
                    args = replaced if isinstance(replaced, tuple) else (replaced,)
        watched = is_grad_enabled() and (self.of(BACKWARD) or self.of(BACKWARD_PRE))
        state = None
        if watched:
            state = _Passing(module, self)
            args = state.through_inputs(args)
        try:
            result = module.forward(*args, **kwargs)
        except Exception:
            self._after_failure(module, args, kwargs)
            raise
        for hook, with_kwargs in self.of(FORWARD):
            replaced = (
                hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            )
            if replaced is not None:
                result = replaced
        return result if state is None else state.through_outputs(result)

    def _after_failure(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the hooks that were registered with always_call."""
        for number, hook in list(self[FORWARD].items()):
            if number in self[ALWAYS]:
                given = (kwargs,) if number in self[WITH_KWARGS[FORWARD]] else ()
                try:
                    hook(module, args, *given, None)
                except Exception as error:
                    warnings.warn(
                        "module forward hook with ``always_call=True`` raised an exception that "
                        f"was silenced as another error was raised in forward: {error}",
                        stacklevel=2,
                    )


EVERYWHERE = Hooks()
"""The hooks of all modules."""

REGISTRATIONS: dict[str, OrderedDict[int, Any]] = {
    kind: OrderedDict() for kind in ("parameter", "buffer", "module")
}
"""The hooks that see what modules are given, by its kind."""


def registered(module: Any, kind: str, name: str, value: Any) -> Any:
    """What a module keeps of a parameter, buffer or module that it is given: what the hooks make of
    it."""
    for hook in REGISTRATIONS[kind].values():
        replaced = hook(module, name, value)
        value = value if replaced is None else replaced
    return value


OF_OUTPUTS: weakref.WeakSet[Any] = weakref.WeakSet()
"""Full backward hooks to which it makes no difference that no argument requires a gradient."""


class _Passing:
    """The gradients of one call on their way through a module."""

    def __init__(self, module: Any, hooks: Hooks):
        self.module, self.count = module, 0
        self.before, self.after = hooks.of(BACKWARD_PRE), hooks.of(BACKWARD)
        self.grad_output: tuple[Any, ...] = ()
        self.has_inputs = False

    def through_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.count = len(args)
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not places:
            return args
        self.has_inputs = True
        self.places, self.args_missing = places, _missing(args)
        passed = _Inputs.apply(self, *[args[i] for i in places])
        out = list(args)
        for i, t in zip(places, passed, strict=True):
            out[i] = t
        return tuple(out)

    def through_outputs(self, result: Any) -> Any:
        single = isinstance(result, Tensor)
        outputs = (
            (result,) if single else tuple(result) if isinstance(result, (tuple, list)) else ()
        )
        places = [i for i, o in enumerate(outputs) if isinstance(o, Tensor) and o.requires_grad]
        if not places:
            return result
        self.out_places, self.outputs_missing = places, _missing(outputs)
        passed = _Outputs.apply(self, *[outputs[i] for i in places])
        out = list(outputs)
        for i, t in zip(places, passed, strict=True):
            out[i] = t
        return out[0] if single else type(result)(out)

    def outputs_known(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        whole: list[Any] = [make and make() for make in self.outputs_missing]
        for i, g in zip(self.out_places, grads, strict=True):
            whole[i] = g
        for hook, _ in self.before:
            replaced = hook(self.module, tuple(whole))
            if replaced is not None:
                whole = _replacement(replaced, len(whole), "Backward pre hook", "grad_output")
        self.grad_output = tuple(whole)
        if not self.has_inputs:
            self._without_inputs()
        return tuple(whole[i] for i in self.out_places)

    def _without_inputs(self) -> None:
        """Call the hooks of a module none of whose inputs requires a gradient."""
        if not self.after:
            return
        if any(hook not in OF_OUTPUTS for hook, _ in self.after):
            warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients."
            )
        grad_input = (None,) * self.count
        for hook, _ in self.after:
            replaced = hook(self.module, grad_input, self.grad_output)
            if replaced is not None and any(g is not None for g in replaced):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    f"return None or None for all gradients.{at_user_line()}"
                )

    def inputs_known(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        whole: list[Any] = [make and make() for make in self.args_missing]
        for i, g in zip(self.places, grads, strict=True):
            whole[i] = g
        for hook, _ in self.after:
            replaced = hook(self.module, tuple(whole), self.grad_output)
            if replaced is not None:
                whole = _replacement(replaced, self.count, "Backward hook", "grad_input")
        return tuple(whole[i] for i in self.places)


def _replacement(replaced: Any, count: int, kind: str, name: str) -> list[Any]:
    """The gradients that a hook has returned in the place of `count` others."""
    if len(replaced) != count:
        raise RuntimeError(
            f"{kind} returned an invalid number of {name}, got {len(replaced)}, but expected "
            f"{count}{at_user_line()}"
        )
    return list(replaced)


Stand = Callable[[], Tensor] | None


def _missing(values: Sequence[Any]) -> list[Stand]:
    """What makes the gradients of arguments or results that get none: zeros for a tensor that
    requires no gradient, and None for what is no tensor."""
    return [
        functools.partial(zeros, v.shape, dtype=v.dtype, device=v.device)
        if isinstance(v, Tensor) and not v.requires_grad
        else None
        for v in values
    ]


class _Inputs(Function):
    """Passes the arguments of a module on; their gradients are the last that the module makes."""

    @staticmethod
    def forward(ctx: Any, passing: _Passing, *tensors: Any) -> tuple[Any, ...]:
        ctx.passing = passing
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.passing.inputs_known(grads))


class _Outputs(Function):
    """Passes the results of a module on; their gradients are the first that the module sees."""

    @staticmethod
    def forward(ctx: Any, passing: _Passing, *tensors: Any) -> tuple[Any, ...]:
        ctx.passing = passing
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.passing.outputs_known(grads))
