"""torch._subclasses.fake_tensor: no tensor here is one. Recording needs no stand-ins for values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir.location import at_user_line

from .. import Tensor

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake", "unset_fake_temporarily"]


class FakeTensor(Tensor):
    """A tensor of a FakeTensorMode. None can be made."""

    def __new__(cls, *args: Any, **options: Any) -> FakeTensor:
        return FakeTensorMode(*args, **options)  # type: ignore[return-value]


class FakeTensorMode:
    """A block in which calls compute shapes alone. It can't be made: use the device `meta`."""

    def __init__(self, *args: Any, **options: Any):
        raise NotImplementedError(
            "there are no fake tensors: make tensors with device='meta' to learn the shapes of "
            f"results without computing them{at_user_line()}"
        )


def is_fake(x: object) -> bool:
    """Whether a value is a FakeTensor: False."""
    return isinstance(x, FakeTensor)


@contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """A block in which no FakeTensorMode is active. None ever is."""
    yield None


def active_fake_mode() -> None:
    """The FakeTensorMode around the call: none, as none can be made."""


def detect_fake_mode(inputs: Any = None) -> None:
    """The FakeTensorMode of one of the values: none, as none can be made."""
