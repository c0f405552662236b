"""torch.utils._python_dispatch: what packages ask of PyTorch's dispatcher.

There is no dispatcher: a call becomes nodes of a graph, and no operator runs that somebody could
stand before. `torch.overrides.TorchFunctionMode` sees each call of a public function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

__all__ = [
    "TorchDispatchMode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
]


class TorchDispatchMode:
    """A mode that PyTorch asks before each operator. It can be made, and not entered."""

    def __init__(self, _dispatch_key: Any = None):
        pass

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        raise NotImplementedError

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}: tilewright has no __torch_dispatch__, as a call records a "
            "graph and runs no operators. torch.overrides.TorchFunctionMode sees the calls of "
            f"public functions, and torch.utils.flop_counter counts operations{at_user_line()}"
        )

    def __exit__(self, *exc: object) -> None:
        pass

    @classmethod
    def is_infra_mode(cls) -> bool:
        return False


def is_traceable_wrapper_subclass(t: object) -> bool:
    """False: there are no wrappers of tensors with a `__torch_dispatch__`."""
    return False


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """False; see `is_traceable_wrapper_subclass`."""
    return False


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """`out`: results share memory as the calls that made them say."""
    return out


def _get_current_dispatch_mode() -> None:
    """None: there is no such mode."""


def _get_current_dispatch_mode_stack() -> list[Any]:
    return []


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """A block like any other: there are no such modes."""
    yield []
