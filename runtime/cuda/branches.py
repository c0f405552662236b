"""Branches of a graph: which launches needn't wait for each other.

A kernel of few programs leaves most multiprocessors idle. So in a run of such kernels each one
waits only for those whose memory it shares, and others may run at the same time. A kernel that
fills the GPU gains nothing from company. It waits for all launches before it, and those behind it
wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .memory import Buffer, Memory


@dataclass(frozen=True)
class Use:
    """The use that a launch makes of memory, and of the GPU.

    own: an object that stands for memory which only launches of the same kernel use. fills: whether
    it has a program for each multiprocessor.
    """

    written: Sequence[Buffer] = ()
    read: Sequence[Buffer] = ()
    own: Any = None
    fills: bool = False


@dataclass
class _Accesses:
    """The launches that used some memory since the last one that filled the GPU: its last writer
    and the readers since."""

    written: int | None = None
    read: list[int] = field(default_factory=list)


@dataclass
class _Range:
    """The use of the bytes [start, stop) of the temporaries by one launch."""

    start: int
    stop: int
    launch: int
    writes: bool


def predecessors(uses: Iterable[Use], temporaries: Memory | None) -> list[list[int]]:
    """For each launch the earlier ones that it waits for. Those are left out for which another one
    of them waits.

    temporaries: memory in which a plan has fixed places. Elsewhere two launches share memory if
    they share a block, as parts of a block may be elsewhere in the next run.
    """
    out: list[list[int]] = []
    blocks: dict[Any, _Accesses] = {}
    ranges: list[_Range] = []
    ends: set[int] = set()  # launches for which nobody waits so far
    full: int | None = None  # the last launch that filled the GPU
    start = 0  # its number, or 0
    ancestors: list[int] = []  # of the launches from `start` on, as bits from `start` on
    for number, use in enumerate(uses):
        if use.fills:
            out.append(sorted(ends))
            blocks, ranges, ancestors, ends = {}, [], [0], {number}
            full = start = number
            continue
        found = set() if full is None else {full}
        accesses = [(b, True) for b in use.written] + [(b, False) for b in use.read]
        for buffer, writes in accesses:
            if buffer.memory is temporaries:
                ranges = _note_range(ranges, buffer, number, writes, found)
            else:
                _note(blocks.setdefault(buffer.memory.pointer, _Accesses()), number, writes, found)
        if use.own is not None:
            _note(blocks.setdefault(use.own, _Accesses()), number, True, found)
        found.discard(number)
        kept, known = [], 0
        for each in sorted(found, reverse=True):
            if not known >> (each - start) & 1:
                kept.append(each)
                known |= ancestors[each - start] | 1 << (each - start)
        ancestors.append(known)
        out.append(kept[::-1])
        ends.difference_update(kept)
        ends.add(number)
    return out


def _note(accesses: _Accesses, launch: int, writes: bool, found: set[int]) -> None:
    """Note an access to a block, and add to `found` those that must come before it."""
    if accesses.written is not None:
        found.add(accesses.written)
    if writes:
        found.update(accesses.read)
        accesses.written, accesses.read = launch, []
    else:
        accesses.read.append(launch)


def _note_range(
    ranges: list[_Range], buffer: Buffer, launch: int, writes: bool, found: set[int]
) -> list[_Range]:
    """The accesses to temporaries with a new one. Adds to `found` those that must come before it.
    What is overwritten as a whole needs no further account."""
    start, stop = buffer.pointer, buffer.pointer + buffer.nbytes
    left = []
    for each in ranges:
        if each.start < stop and start < each.stop and (writes or each.writes):
            found.add(each.launch)
        if not (writes and start <= each.start and each.stop <= stop):
            left.append(each)
    left.append(_Range(start, stop, launch, writes))
    return left


def sharing(buffers: Sequence[Buffer]) -> list[int]:
    """For each buffer the place of the first one in the same block of memory."""
    first: dict[int, int] = {}
    return [first.setdefault(b.memory.pointer, i) for i, b in enumerate(buffers)]


def is_new(pattern: Sequence[int], known: Sequence[int]) -> bool:
    """Whether buffers share a block in `pattern` that don't in `known`. Both are of `sharing`."""
    return any(known[i] != known[first] for i, first in enumerate(pattern))
