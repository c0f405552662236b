"""torch._tensor_str: how tensors are printed, for subclasses that print themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .exchange.printing import OPTIONS, set_printoptions, text, values_text, with_suffixes

PRINT_OPTS = OPTIONS


def _tensor_str(self: Any, indent: int) -> str:
    """The elements of a tensor in brackets; further lines begin with `indent` blanks."""
    return values_text(self, indent) if self.numel() else "[]"


def _add_suffixes(
    tensor_str: str, suffixes: list[str], indent: int, force_newline: bool = False
) -> str:
    """A text and what follows it in the brackets of `tensor(…)`, which are closed."""
    return with_suffixes(tensor_str, suffixes, indent, force_newline)


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor."""
    return text(self, tensor_contents)


_str_intern = _str


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """The block in which tensors are printed with these options of set_printoptions."""
    before = dict(vars(OPTIONS))
    set_printoptions(**options)
    try:
        yield
    finally:
        vars(OPTIONS).clear()
        vars(OPTIONS).update(before)
