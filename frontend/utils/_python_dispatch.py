"""torch.utils._python_dispatch: modes that are asked for operators (`frontend/dispatching/`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import overriding
from ..dispatching.asking import enter, leave, modes
from ..dispatching.calls import answers

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "TorchDispatchMode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
]


class TorchDispatchMode:
    """A block in which `__torch_dispatch__` is asked for each operator of `aten`.

    It is asked for the calls of public functions; backward passes and steps of optimizers ask
    nobody.
    """

    def __init__(self, _dispatch_key: Any = None):
        pass

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Self:
        enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        leave(self)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Self:
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        return False


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether a tensor wraps others and can be taken apart: it has `__tensor_flatten__` and
    `__tensor_unflatten__`."""
    return answers(t) and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """As `is_traceable_wrapper_subclass`, of a class."""
    return all(
        hasattr(t, name)
        for name in ("__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__")
    )


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """`out`; or the first argument, if `func` writes to it."""
    return args[0] if func.overloadpacket.__name__.endswith("_") else out


def _get_current_dispatch_mode() -> Any:
    """The innermost mode, or None."""
    return (_get_current_dispatch_mode_stack() or [None])[-1]


def _get_current_dispatch_mode_stack() -> list[Any]:
    return list(modes())


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """A block in which no mode is asked."""
    before = overriding.state.dispatching
    overriding.state.dispatching = []
    try:
        yield before
    finally:
        overriding.state.dispatching = before
