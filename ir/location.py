"""The line of the user's code at which something was recorded."""

from __future__ import annotations

import os
import sys

# The directories of the installed package; a frame outside of them is the user's.
_ROOTS: tuple[str, ...] = ()


def _package_roots() -> tuple[str, ...]:
    global _ROOTS
    if not _ROOTS:
        package = sys.modules[__name__.split(".")[0]]
        roots = [os.path.dirname(os.path.abspath(package.__file__ or ""))]
        for layer in ("ir", "codegen", "runtime"):
            module = sys.modules.get(f"{package.__name__}.{layer}")
            if module is not None and module.__file__:
                roots.append(os.path.dirname(os.path.abspath(module.__file__)))
        _ROOTS = tuple(root + os.sep for root in roots)
    return _ROOTS


def user_location() -> tuple[str, int]:
    """(file name, line) of the innermost frame outside of the package."""
    frame = sys._getframe(1)
    while True:
        name = frame.f_code.co_filename
        own = _own.get(name)
        if own is None:
            own = _own[name] = name.startswith(_package_roots()) or name.startswith("<")
        if not own or frame.f_back is None:
            return name, frame.f_lineno
        frame = frame.f_back


_own: dict[str, bool] = {}  # file name -> whether its frames are not the user's


def at_user_line() -> str:
    """` at file.py:12`, to end an error message with."""
    name, line = user_location()
    return f", at {os.path.basename(name)}:{line}"
