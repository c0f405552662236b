"""The statements of an emitted function, and the memory of their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Array:
    """A variable of the emitted function.

    extent: the size along each dimension; () for a scalar without dimensions.
    root: the variable that owns the memory. `owned`: whether that is a temporary of this function,
        and this array holds each of its elements once.
    strides: in elements, where they are known (0 for size 1).
    """

    name: str
    dtype: np.dtype
    extent: tuple[int, ...]
    root: str
    owned: bool
    strides: tuple[int, ...] | None = None

    @property
    def is_scalar(self) -> bool:
        return not self.extent


@dataclass
class Statement:
    """`target = call`, or a bare call such as a store; `writes` is the memory it writes.

    is_ufunc: whether the call may get `out=`.
    by_rows: whether a part of the result along dimension 0 is the call on parts of the operands.
    """

    call: str
    target: Array | None
    reads: tuple[Array, ...]
    is_ufunc: bool = False
    by_rows: bool = False
    writes: Array | None = None
    out: Array | None = None

    def text(self) -> str:
        call = self.call if self.out is None else f"{self.call[:-1]}, out={self.out.name})"
        return call if self.target is None else f"{self.target.name} = {call}"


@dataclass
class Program:
    """Statements in order. may_warn: whether NumPy might warn about overflow, 0 / 0, and so on."""

    statements: list[Statement] = field(default_factory=list)
    may_warn: bool = False

    def add(self, statement: Statement) -> None:
        self.statements.append(statement)

    def prune(self) -> None:
        """Drops statements whose results nothing reads and no buffer receives."""
        targets = [s.target for s in self.statements if s.target is not None]
        made = {t.name for t in targets if t.root == t.name}
        live: set[str] = set()
        kept: list[Statement] = []
        for statement in reversed(self.statements):
            result = statement.target or statement.writes
            if result is not None and result.root in made and result.root not in live:
                continue
            live.update(a.root for a in statement.reads)
            kept.append(statement)
        self.statements = kept[::-1]

    def place_results(self, sizes: Mapping[str, int]) -> None:
        """Lets ufuncs write to the memory where their results are stored, or over a dead operand.

        sizes: of the buffers, in bytes.
        """
        self._write_to_places(sizes)
        last = self._last_reads()
        # A result that is computed in the buffer it is stored to is no scratch memory.
        stored = {
            s.target.root for s in self.statements if s.target is not None and s.out is not None
        }
        for at, statement in enumerate(self.statements):
            target = statement.target
            if not statement.is_ufunc or target is None or statement.out is not None:
                continue
            for array in statement.reads:
                dies = array.owned and last[array.root] == at and array.root not in stored
                if dies and array.dtype == target.dtype and array.extent == target.extent:
                    statement.out = array
                    break

    def _last_reads(self) -> dict[str, int]:
        return {a.root: at for at, s in enumerate(self.statements) for a in s.reads}

    def _write_to_places(self, sizes: Mapping[str, int]) -> None:
        last = self._last_reads()
        made = {s.target.name: at for at, s in enumerate(self.statements) if s.target is not None}
        kept: list[Statement] = []
        for at, store in enumerate(self.statements):
            place = store.writes
            value = store.reads[0] if store.reads else None
            maker = None if value is None else made.get(value.name)
            if (
                store.target is None
                and place is not None
                and value is not None
                and maker is not None
                and store.call == f"{place.name}[...] = {value.name}"
                and self.statements[maker].is_ufunc
                and value.dtype == place.dtype
                and value.extent == place.extent
                and place.root in sizes
                and last[value.root] == at
                and self._undisturbed(maker, at, place.root, sizes)
            ):
                self.statements[maker].out = place
                continue
            kept.append(store)
        self.statements = kept

    def _undisturbed(self, maker: int, at: int, root: str, sizes: Mapping[str, int]) -> bool:
        """Whether a store can run early: no statement in between reads memory that it may
        overwrite. That is any buffer of its size, because an output may have the memory of a dead
        input."""
        for statement in self.statements[maker + 1 : at]:
            if statement.writes is not None and statement.writes.root == root:
                return False
            if any(sizes.get(a.root) == sizes[root] for a in statement.reads):
                return False
        return True

    def lines(self) -> list[str]:
        return [line for s in self.statements for line in s.text().split("\n")]
