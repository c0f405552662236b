"""Errors that come from outside: a signal's handler raises them wherever Python happens to be."""

from __future__ import annotations

from types import FrameType


def is_interruption(error: BaseException) -> bool:
    """Whether the handler of a signal has raised an error, such as the exception of a timeout.

    Python passes a handler the frame that it interrupts. No other function of an error's traceback
    has a frame among its values, other than a trace function, which interrupts, too.
    """
    at = error.__traceback__
    while at is not None:
        for value in at.tb_frame.f_locals.values():
            parts = value if type(value) is tuple else (value,)
            if any([type(part) is FrameType for part in parts]):
                return True
        at = at.tb_next
    return False


def pass_on(error: Exception) -> None:
    """Raise an error again if it is an interruption: what it met has not failed, so there is no
    other way to try, and nothing to put off.

    It is called where an `except Exception` goes on without the error.
    """
    if is_interruption(error):
        raise error
