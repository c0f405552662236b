"""What a kernel's functions are given: 64-bit words, the same for all of its functions.

The words are addresses of buffers, numbers passed at launch, sizes, the address of a workspace, and
pairs of words in which a failure is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.ir.dtype import DType

from ..kernel import Buffer, Kernel, Scalar


@dataclass(frozen=True)
class Word:
    """One word. role: buffer (by place), scalar (by place), size, workspace, error."""

    role: str
    value: Any = None
    dtype: DType | None = None


@dataclass(frozen=True)
class Check:
    """What may go wrong: a position out of range, or (without size) a division by zero."""

    size: int | None
    axis: int
    loc: tuple[str, int]


class Arguments:
    """The words of one kernel, in order, and where each lies."""

    def __init__(self, kernel: Kernel):
        places = (*kernel.outputs, *kernel.inputs)
        self.words = [Word("buffer", i) for i in range(len(places))]
        self.words += [Word("scalar", i, v.dtype) for i, v in enumerate(kernel.scalars)]
        self.checks: list[Check] = []
        self._buffers = {b: i for i, b in enumerate(places)}
        self._scalars = {v.slot: len(places) + i for i, v in enumerate(kernel.scalars)}
        self._places: dict[Any, int] = {}

    def buffer(self, buffer: Buffer) -> int:
        return self._buffers[buffer]

    def scalar(self, value: Scalar) -> int:
        return self._scalars[value.slot]

    def size(self, value: int, key: Any) -> int:
        """The place of a number; `key` tells it from others."""
        return self._place(key, Word("size", value))

    def workspace(self) -> int:
        return self._place("workspace", Word("workspace"))

    def check(self, check: Check) -> int:
        """The place of the pair of words in which a failure is recorded."""
        self.words += [Word("error"), Word("error")]
        self.checks.append(check)
        return len(self.words) - 2

    def _place(self, key: Any, word: Word) -> int:
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = len(self.words)
            self.words.append(word)
        return found
