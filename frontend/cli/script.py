"""Run a script as `python SCRIPT ARGS` does, and a module as `python -m MODULE ARGS` does."""

from __future__ import annotations

import os
import runpy
import sys
import tokenize
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from ..as_torch.distribution import torch_means_tilewright
from ..recording.threads import gives_way
from .errors import fail


def script_file(path: Path) -> Path:
    if not path.exists():
        fail(f"can't open {str(path)!r}: no such file")
    if not path.is_file():
        fail(f"can't run {str(path)!r}: it is a folder, expected a Python file")
    return path


def run_script(path: Path, args: Sequence[str]) -> int:
    """Run the file as __main__ with `torch` meaning tilewright. Returns its exit status.

    Its errors are printed as Python prints them, from the script's own first frame on.
    """
    # As in Python, __file__ and tracebacks have the absolute path, sys.argv the typed one.
    file = os.path.abspath(path)
    return _run(lambda: _execute(_compiled(file), file, [str(path), *args]), file)


def run_module(name: str, args: Sequence[str]) -> int:
    """Run a module, or the `__main__` of a package, with `torch` meaning tilewright. Returns its
    exit status."""
    return _run(lambda: _execute_module(name, args), runpy.run_module.__code__.co_filename)


def _run(execute: Callable[[], None], file: str) -> int:
    """Execute a program, and print an error's traceback from the first frame of `file` on."""
    try:
        with torch_means_tilewright():
            execute()
    except SystemExit as stop:
        return _status(stop.code)
    except BaseException as error:  # KeyboardInterrupt too: Python prints that as well
        error.__traceback__ = _from_script(error.__traceback__, file)
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _compiled(file: str) -> CodeType:
    with tokenize.open(file) as source:
        return compile(source.read(), file, "exec", dont_inherit=True)


@gives_way
def _execute(code: CodeType, file: str, argv: Sequence[str]) -> None:
    module = ModuleType("__main__")
    module.__file__ = file
    module.__dict__["__builtins__"] = __builtins__
    module.__dict__["__cached__"] = None
    sys.argv = list(argv)
    # `python -m` and an entry point put their own folder first; a script expects its own.
    sys.path[0] = os.path.dirname(os.path.realpath(file))
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


@gives_way
def _execute_module(name: str, args: Sequence[str]) -> None:
    sys.argv = [name, *args]
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _from_script(traceback: TracebackType | None, path: str) -> TracebackType | None:
    """The traceback from the script's first frame on; None for a syntax error in the script."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != path:
        traceback = traceback.tb_next
    return traceback
