"""no_grad, enable_grad, inference_mode, set_grad_enabled: context managers and decorators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .. import recording
from ..recording import epoch, threads

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F", bound=Callable[..., Any])


def is_grad_enabled() -> bool:
    """Whether operations are recorded for differentiation, unless inference mode is on."""
    return recording.asked_grad()


def within(mode: AbstractContextManager[Any], function: F) -> F:
    """Run `function` in a mode that can be entered repeatedly. Each step of a generator runs in the
    mode; code between its steps doesn't."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        @threads.gives_way
        def generate(*args: Any, **options: Any) -> Any:
            with mode:
                generator = function(*args, **options)
            while True:
                with mode:
                    try:
                        value = next(generator)
                    except StopIteration as end:
                        return end.value
                yield value

        return generate  # type: ignore[return-value]

    @functools.wraps(function)
    @threads.gives_way
    def call(*args: Any, **options: Any) -> Any:
        with mode:
            return function(*args, **options)

    return call  # type: ignore[return-value]


def is_inference_mode_enabled() -> bool:
    return epoch.inferring


class _Mode:
    """A block (or a function) in which the grad mode is `enabled`."""

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self.before: list[bool] = []

    def __enter__(self) -> _Mode:
        self.before.append(recording.asked_grad())
        recording.ask_grad(self.enabled)
        return self

    def __exit__(self, *exc: object) -> None:
        recording.ask_grad(self.before.pop())

    def __call__(self, function: F) -> F:
        return within(self, function)


class no_grad(_Mode):
    """Operations are not recorded for differentiation."""

    def __init__(self) -> None:
        super().__init__(False)

    @overload
    def __new__(cls, function: None = None) -> Self: ...

    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]

    def __new__(cls, function: Any = None) -> Any:
        # Used as a decorator without parentheses.
        return cls()(function) if callable(function) else super().__new__(cls)


class enable_grad(no_grad):
    """Operations are recorded for differentiation, also inside of no_grad."""

    def __init__(self) -> None:
        _Mode.__init__(self, True)


class inference_mode(_Mode):
    """Works as no_grad, for code that never differentiates its results. Tensors that it makes are
    inference tensors: outside of it they aren't written to, and no derivative may read them."""

    def clone(self) -> inference_mode:
        return inference_mode(self.mode)

    def __init__(self, mode: bool = True):
        super().__init__(not mode)
        self.mode = mode
        self.outer: list[bool] = []

    def __enter__(self) -> _Mode:
        self.outer.append(epoch.inferring)
        entered = super().__enter__()
        recording.set_inference(self.mode)
        return entered

    def __exit__(self, *exc: object) -> None:
        recording.set_inference(self.outer.pop())
        super().__exit__(*exc)


class set_multithreading_enabled:
    """Whether backward passes may use threads, as PyTorch's engine does: there is no such engine
    here, so it changes nothing."""

    def __init__(self, mode: bool):
        self.mode = mode

    def clone(self) -> Self:
        return type(self)(self.mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


class enforce_grad_layout_policy:
    """Whether gradients get the strides of their leaves. They always have the strides of dense
    memory in the order of its dimensions, so it changes nothing."""

    def __init__(self, enable: bool = True):
        self.enable = enable

    def clone(self) -> Self:
        return type(self)(self.enable)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


class set_grad_enabled(_Mode):
    """Set the grad mode at once; as a context manager, until the block ends."""

    def __init__(self, mode: bool):
        if not isinstance(mode, bool):
            raise TypeError(
                f"set_grad_enabled(): argument 'enabled' must be bool, not {type(mode).__name__}"
            )
        super().__init__(mode)
        self.outer = recording.asked_grad()
        recording.ask_grad(self.enabled)

    def clone(self) -> Any:
        """The same mode, set at once as each of them."""
        return set_grad_enabled(self.enabled)

    def __enter__(self) -> _Mode:
        self.before.append(self.outer)
        recording.ask_grad(self.enabled)
        return self

    def __call__(self, function: F) -> F:
        recording.ask_grad(self.outer)
        return super().__call__(function)
