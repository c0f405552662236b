"""Errors that come from outside: a signal's handler raises them wherever Python happens to be."""

from __future__ import annotations

from inspect import CO_OPTIMIZED, CO_VARARGS
from types import FrameType
from typing import Any


def is_interruption(error: BaseException) -> bool:
    """Whether the handler of a signal has raised an error, such as the exception of a timeout.

    Python passes a handler the frame that it interrupts. Next to no other function of an error's
    traceback has a frame among its arguments; a trace function has, and interrupts, too.
    """
    at = error.__traceback__
    while at is not None:
        for value in _arguments(at.tb_frame):
            parts = value if type(value) is tuple else (value,)
            if any([type(part) is FrameType for part in parts]):
                return True
        at = at.tb_next
    return False


def _arguments(frame: FrameType) -> list[Any]:
    """The positional arguments of a function that runs in a frame."""
    code = frame.f_code
    count = code.co_argcount + bool(code.co_flags & CO_VARARGS)
    if not count or not code.co_flags & CO_OPTIMIZED:
        return []
    first = code.co_argcount + code.co_kwonlyargcount
    names = [*code.co_varnames[: code.co_argcount], *code.co_varnames[first : first + 1]]
    values = frame.f_locals
    found = [values.get(name) for name in names[:count]]
    if type(values) is dict:  # a copy that the frame keeps, with all that its variables held
        values.clear()
    return found


def pass_on(error: Exception) -> None:
    """Raise an error again if it is an interruption: what it met has not failed, so there is no
    other way to try, and nothing to put off.

    It is called where an `except Exception` goes on without the error.
    """
    if is_interruption(error):
        raise error
