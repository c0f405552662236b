"""The line of the user's code at which something was recorded."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

COMMAND_LINE = ("typer", "click")
"""Packages that call ours for a user at the command line: their frames are not the user's."""

# The directories of the installed package; a frame outside of them is the user's.
_ROOTS: tuple[str, ...] = ()


def _package_roots() -> tuple[str, ...]:
    global _ROOTS
    if not _ROOTS:
        package = __name__.split(".")[0]  # the module itself says "torch" where it stands for it
        layers = (package, *(f"{package}.{layer}" for layer in ("ir", "codegen", "runtime")))
        roots = []
        for name in (*layers, *COMMAND_LINE):
            module = sys.modules.get(name)
            if module is not None and module.__file__:
                roots.append(os.path.dirname(os.path.abspath(module.__file__)))
        _ROOTS = tuple(root + os.sep for root in roots)
    return _ROOTS


class _Own(dict[str, bool]):
    """File name -> whether its frames are the package's, or Python's own."""

    def __missing__(self, name: str) -> bool:
        found = self[name] = name.startswith(_package_roots()) or name.startswith("<")
        return found


_own = _Own()
_locations: dict[tuple[str, int], tuple[str, int]] = {}  # one object for equal ones: nodes keep it


def user_location(depth: int = 1) -> tuple[str, int]:
    """(file name, line) of the innermost frame outside of the package, none of which is among the
    first `depth`."""
    frame = sys._getframe(depth)
    while _own[frame.f_code.co_filename] and (outer := frame.f_back) is not None:
        frame = outer
    found = frame.f_code.co_filename, frame.f_lineno
    return _locations.setdefault(found, found)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame from `frame` outwards that is the user's."""
    while frame is not None and _own[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame


def at_user_line() -> str:
    """` at file.py:12`, to end an error message with."""
    name, line = user_location()
    return f", at {os.path.basename(name)}:{line}"


_shown: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}
_said: set[str] = set()


def warn(message: str, category: type[Warning] = UserWarning, *, once: bool = False) -> None:
    """Warn at the user's line. By default that is shown once for each line.

    once: whether one warning is enough for a whole run, as PyTorch's kernels have it.
    """
    if once and message in _said:
        return
    _said.add(message)
    name, line = user_location()
    warnings.warn_explicit(message, category, name, line, registry=_shown.setdefault(name, {}))
