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


def calls_within(make: Callable[[], AbstractContextManager[Any]], function: F) -> F:
    """Run `function` inside of a block that `make` makes for each call, so that calls of several
    threads share nothing."""

    @functools.wraps(function)
    @threads.gives_way
    def call(*args: Any, **options: Any) -> Any:
        with make():
            return function(*args, **options)

    return call  # type: ignore[return-value]


def within(make: Callable[[], AbstractContextManager[Any]], function: F) -> F:
    """As `calls_within`, with a block for each step of a generator; code between its steps runs
    outside of them."""
    if not inspect.isgeneratorfunction(function):
        return calls_within(make, function)

    @functools.wraps(function)
    @threads.gives_way
    def generate(*args: Any, **options: Any) -> Any:
        with make():
            generator = function(*args, **options)
        step: Callable[[Any], Any] = generator.send
        said: Any = None
        while True:
            with make():
                try:
                    value = step(said)
                except StopIteration as end:
                    return end.value
            try:
                said = yield value
                step = generator.send
            except GeneratorExit:
                with make():
                    generator.close()
                raise
            except BaseException as error:
                step, said = generator.throw, error

    return generate  # type: ignore[return-value]


class _DecoratorContextManager:
    """A block that also decorates functions, which then run in a clone of it each time."""

    def __call__(self, function: F) -> F:
        return within(self.clone, function)

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another block of this kind; a kind with arguments writes its own."""
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """Such a block without arguments, which decorates without parentheses, too."""

    @overload
    def __new__(cls, function: None = None) -> Self: ...

    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]

    def __new__(cls, function: Any = None) -> Any:
        return cls()(function) if callable(function) else super().__new__(cls)


def is_inference_mode_enabled() -> bool:
    return epoch.inferring


class _Mode(_DecoratorContextManager):
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


class no_grad(_NoParamDecoratorContextManager, _Mode):
    """Operations are not recorded for differentiation."""

    def __init__(self) -> None:
        _Mode.__init__(self, False)


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
        recording.make_room_for_inference()  # first: an error of the epoch changes no mode
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

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.enabled})"

    def clone(self) -> Any:
        """The same mode, set at once as each of them."""
        return set_grad_enabled(self.enabled)

    def __enter__(self) -> _Mode:
        self.before.append(self.outer)
        recording.ask_grad(self.enabled)
        return self

    def __call__(self, function: F) -> F:
        recording.ask_grad(self.outer)
        return within(functools.partial(_Mode, self.enabled), function)
