"""torch.distributed.autograd: gradients through calls in other processes. None can be made yet."""

from __future__ import annotations

from typing import Any, NoReturn

from . import _Absent, _refuse

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]


def is_available() -> bool:
    """False: no calls are made in other processes."""
    return False


class context(_Absent):
    """A block whose calls in other processes are differentiated. None can be made."""


class DistAutogradContext(_Absent):
    """What a block keeps of its calls. None can be made."""


def backward(*args: Any, **options: Any) -> NoReturn:
    _refuse("autograd.backward")


def get_gradients(*args: Any, **options: Any) -> NoReturn:
    _refuse("autograd.get_gradients")
