"""The schedule that the tuner found for a kernel, or for one much like it, if any.

TW_TUNE_FILE names a file of choices (see `portable`). Then only that file counts, and later
measurements have no effect.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache as remembered

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.lower.external import Site

from .. import debug
from . import key as keys
from . import place
from .record import Options, Record


@dataclass(frozen=True)
class Choice:
    """A chosen schedule. options: its options. origin: their source, for people. gain: the measured
    speedup over the default."""

    options: Options
    origin: str
    gain: float

    @property
    def text(self) -> str:
        """One line with the origin and the options."""
        said = " ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.origin}, {self.gain:.2f} times as fast as the default: {said or 'default'}"


class Table:
    """The choices for a device, by kernel structure."""

    def __init__(self, records: Iterable[Record], source: str):
        self.source = source
        self._records: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            if record.chosen is not None:
                self._records[record.key.structure].append(record)
        self._found: dict[keys.Key, Choice | None] = {}

    def __bool__(self) -> bool:
        return bool(self._records)

    def find(self, key: keys.Key) -> Choice | None:
        """The choice for the kernel's own sizes, else for the nearest."""
        if key not in self._found:  # each launch of an autotuned kernel asks
            self._found[key] = self._find(key)
        return self._found[key]

    def _find(self, key: keys.Key) -> Choice | None:
        near = []
        for record in self._records.get(key.structure, ()):
            away = keys.distance(key.sizes, record.key.sizes)
            if away is not None:
                near.append((away, -record.changed, record))
        if not near:
            return None
        away, _, record = min(near, key=lambda each: each[:2])
        assert record.chosen is not None
        origin = self.source if away == 0 else f"{self.source} for sizes {away:.2g} octaves away"
        return Choice(record.chosen, origin, record.gain)


@remembered
def table(device: str, versions: str) -> Table:
    """The choices for a device, or None. Each process reads them once."""
    file = place.pinned()
    if file is not None:
        from . import portable

        found = [r for r in portable.read(file) if r.key.device == device]
        if not found:
            debug.say(f"{file} has no schedules for {device}")
        return Table(found, f"pinned by {os.path.basename(file)}")
    import sqlite3

    from .database import Database

    try:
        with Database() as database:
            return Table(database.records(device, versions), "tuned")
    except (sqlite3.Error, OSError, TypeError, ValueError) as error:
        warnings.warn(
            f"tilewright can't read the tuning results in {place.default_path()}: {error}. Kernels "
            "get their default schedules",
            RuntimeWarning,
            stacklevel=2,
        )
        return Table((), "tuned")


def find(kernel: Kernel | Bundle | Site, device: str, versions: str) -> Choice | None:
    """The choice for a kernel on a device, or None."""
    known = table(device, versions)
    return known.find(keys.of(kernel, device, versions)) if known else None


def forget() -> None:
    """Forget the choices, so that the next call reads them again."""
    place.exist.cache_clear()
    table.cache_clear()
