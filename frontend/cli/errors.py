"""User errors: one line without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer


def fail(message: object, status: int = 2) -> NoReturn:
    print(f"tilewright: error: {message}", file=sys.stderr)
    raise typer.Exit(status)


@contextmanager
def user_errors(*kinds: type[Exception], status: int = 2) -> Iterator[None]:
    """Let exceptions of these kinds inside the block end the program with their message."""
    try:
        yield
    except kinds as error:
        fail(error, status)
