"""Emitted kernels on disk, so that a process need not emit again what another one emitted.

The key covers the kernel with its numbers (except where the slices begin that it reads and writes),
its schedule, the machine, and the compiler's own source text. A kernel whose values can make it
fail names the user's lines. They aren't part of the key, so such a kernel is always emitted anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tilewright import codegen, ir
from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.kernel.structure import identity, starts
from tilewright.codegen.llvm import Emitted, Schedule
from tilewright.codegen.llvm.arguments import Arguments, Word

from .. import cache
from . import host

_KIND = "emitted"
_FIELDS = {"code", "words", "phases", "workspace", "prepared"}
_ENTRY = "define void @kernel("


def load(kernel: Kernel | Bundle, schedule: Schedule) -> list[Emitted] | None:
    """The stored members of a kernel, or None."""
    key = _key(kernel, schedule)
    known = _recent.get(key)
    if known is not None:
        return known
    content = cache.load_bytes(_KIND, key) if cache.enabled() else None
    if content is None:
        return None
    try:
        found = _parsed(content, _members(kernel))
        _remember(key, found)
        return found
    except (LookupError, RecursionError, TypeError, ValueError):
        # An entry in another form than this version writes.
        cache.discard(_KIND, key)
        return None


def keep(kernel: Kernel | Bundle, schedule: Schedule, emitted: Sequence[Emitted]) -> None:
    if any(each.checks for each in emitted):
        return
    key = _key(kernel, schedule)
    _remember(key, [replace(each, name="kernel", notes="") for each in emitted])
    if cache.enabled():
        cache.store_bytes(_KIND, key, _printed(emitted, _members(kernel)))


_recent: dict[str, list[Emitted]] = {}
_MOST_RECENT = 256


def _remember(key: str, emitted: list[Emitted]) -> None:
    """Keep it for kernels of this process that differ only in where their slices begin."""
    if len(_recent) >= _MOST_RECENT:
        _recent.clear()
    _recent[key] = emitted


# ---- as bytes --------------------------------------------------------------------------------
# A line of JSON, followed by the texts and tables whose sizes it gives. The kernel determines the
# words of buffers and numbers, so only the words behind them are stored.


def _printed(emitted: Sequence[Emitted], members: Sequence[Kernel]) -> bytes:
    parts: dict[bytes, int] = {}

    def place(content: bytes) -> int:
        return parts.setdefault(content, len(parts))

    said = [
        {
            "code": place(each.code.encode()),
            "words": [
                [w.role, place(w.value) if w.role == "table" else w.value]
                for w in each.words[len(Arguments(kernel).words) :]
            ],
            "phases": each.phases,
            "workspace": each.workspace,
            "prepared": None if each.prepared is None else sorted(each.prepared),
        }
        for each, kernel in zip(emitted, members)
    ]
    line = json.dumps({"sizes": [*map(len, parts)], "members": said})
    return b"\n".join([line.encode(), b"".join(parts)])


def _parsed(content: bytes, members: Sequence[Kernel]) -> list[Emitted]:
    """The inverse of `_printed`. Other bytes raise one of Python's own errors."""
    line, _, rest = content.partition(b"\n")
    said = json.loads(line)
    _expect(type(said) is dict and set(said) == {"sizes", "members"})
    _expect(len(said["members"]) == len(members))
    ends = [0, *accumulate(map(_count, said["sizes"]))]
    _expect(ends[-1] == len(rest))
    parts = [rest[start:end] for start, end in pairwise(ends)]
    codes: dict[int, str] = {}
    found = []
    for each, kernel in zip(said["members"], members):
        _expect(type(each) is dict and set(each) == _FIELDS)
        place = _count(each["code"])
        code = codes.get(place) or codes.setdefault(place, parts[place].decode())
        _expect(_ENTRY in code)
        own, begins = Arguments(kernel).words, len(starts(kernel))
        prepared = each["prepared"]
        if prepared is not None:
            _expect(all(_count(i) < len(kernel.inputs) for i in prepared))
            prepared = frozenset(prepared)
        found.append(
            Emitted(
                name="kernel",
                code=code,
                notes="",
                words=(*own, *[_word(parts, begins, *w) for w in each["words"]]),
                checks=(),
                phases=tuple([_count(n, 1) for n in each["phases"]]),
                workspace=_count(each["workspace"]),
                prepared=prepared,
            )
        )
    return found


def _word(parts: Sequence[bytes], begins: int, role: Any, value: Any) -> Word:
    if role == "start":
        _expect(_count(value) < begins)
        return Word(role, value)
    if role == "size":
        _expect(type(value) is int and -(2**63) <= value < 2**63)
        return Word(role, value)
    if role == "table":
        return Word(role, parts[_count(value)])
    _expect(role == "workspace" and value is None)
    return Word(role)


def _count(said: Any, least: int = 0) -> int:
    _expect(type(said) is int and least <= said < 2**63)
    return int(said)


def _expect(holds: bool) -> None:
    if not holds:
        raise ValueError("an entry of another form")


def _members(kernel: Kernel | Bundle) -> Sequence[Kernel]:
    return kernel.members if isinstance(kernel, Bundle) else (kernel,)


def _key(kernel: Kernel | Bundle, schedule: Schedule) -> str:
    made_for = [_compiler(), repr(host.machine()), repr(schedule)]
    return cache.digest("\n".join([*made_for, *map(identity, _members(kernel))]))


@functools.cache
def _compiler() -> str:
    """The hash of the source of `ir` and `codegen`."""
    found = hashlib.sha256()
    for package in (ir, codegen):
        for root in map(Path, package.__path__):
            for file in sorted(root.rglob("*.py")):
                found.update(f"{file.relative_to(root)}\n".encode())
                found.update(file.read_bytes())
    return found.hexdigest()
