"""The arguments of a kernel's functions: 64-bit words, the same for all of its functions.

The words are addresses of buffers, numbers passed at launch, sizes, addresses of tables and of a
workspace, and pairs of words in which a failure is recorded.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass
from typing import Any

from tilewright.ir.dtype import DType

from ..kernel import Buffer, Kernel, Scalar
from ..kernel.index import Check, Index
from ..kernel.structure import starts


@dataclass(frozen=True)
class Word:
    """One word.

    role: buffer or scalar (value: its place), start (its place in `starts`), size (a number), table
        (its bytes), workspace, error.
    """

    role: str
    value: Any = None
    dtype: DType | None = None


class Arguments:
    """The words of one kernel, in order, and where each lies."""

    def __init__(self, kernel: Kernel):
        places = (*kernel.outputs, *kernel.inputs)
        self.words = [Word("buffer", i) for i in range(len(places))]
        self.words += [Word("scalar", i, v.dtype) for i, v in enumerate(kernel.scalars)]
        self.checks: list[Check] = []
        self._buffers = {b: i for i, b in enumerate(places)}
        self._scalars = {v.slot: len(places) + i for i, v in enumerate(kernel.scalars)}
        self._starts = {number: place for place, number in enumerate(starts(kernel))}
        self._places: dict[Hashable, int] = {}
        self._part = ""
        self.kept: dict[Buffer, int] = {}  # own buffers and their places in the workspace
        self.space = 0

    def part(self, name: str) -> Arguments:
        """The same words, for a function whose sizes are its own."""
        part = copy(self)
        part._part = name
        return part

    def keep(self, buffer: Buffer) -> None:
        """Makes room for a buffer in the workspace, at a multiple of 64 bytes."""
        self.kept[buffer] = self.space
        self.space += -(-buffer.size * buffer.dtype.itemsize // 64) * 64

    def buffer(self, buffer: Buffer) -> int:
        return self._buffers[buffer]

    def scalar(self, value: Scalar) -> int:
        return self._scalars[value.slot]

    def size(self, value: int, key: Hashable) -> int:
        """The place of a number; `key` tells it from others."""
        return self._place((self._part, key), Word("size", value))

    def constant_of(self, index: Index) -> int:
        """The place of an index's constant."""
        start = self._starts.get(index.const)
        word = Word("size", index.const) if start is None else Word("start", start)
        return self._place((self._part, "constant", index), word)

    def table(self, values: bytes, key: Hashable) -> int:
        """The place of the address of constant data, which lasts as long as the kernel."""
        return self._place((self._part, key), Word("table", values))

    def workspace(self) -> int:
        return self._place("workspace", Word("workspace"))

    def check(self, check: Check) -> int:
        """The place of the pair of words in which a failure is recorded."""
        self.words += [Word("error"), Word("error")]
        self.checks.append(check)
        return len(self.words) - 2

    def _place(self, key: Hashable, word: Word) -> int:
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = len(self.words)
            self.words.append(word)
        assert self.words[found] == word, f"two numbers are called {key}"
        return found
