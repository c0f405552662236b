"""NumPy without its warnings."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")
_silent = contextvars.copy_context()
_silent.run(np.seterr, all="ignore")
_is_silent = contextvars.ContextVar("is_silent", default=False)
_silent.run(_is_silent.set, True)
_one_at_a_time = threading.Lock()
_enter, _run, _leave = _one_at_a_time.acquire, _silent.run, _one_at_a_time.release


def bare(form: Callable[..., Any]) -> Callable[..., Any]:
    """Declare that a form makes an array of its own, and that NumPy doesn't warn of it."""
    form.is_bare = True  # type: ignore[attr-defined]
    return form


def quiet(form: Callable[..., Any]) -> Callable[..., Any]:
    """Declare that NumPy doesn't warn of a form."""
    form.is_quiet = True  # type: ignore[attr-defined]
    return form


def quietly(compute: Callable[..., _T], *args: Any) -> _T:
    """compute(*args) without NumPy's warnings. A context that ignores them is entered several times
    as fast as a new one is made, but by one caller at a time. It isn't entered within itself."""
    if not _enter(False):
        if _is_silent.get():
            return compute(*args)
        with np.errstate(all="ignore"):
            return compute(*args)
    try:
        return _run(compute, *args)
    finally:
        _leave()
