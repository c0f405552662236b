"""Measurements on disk: a row for each kernel, a row for each candidate.

Many processes may use the file at once, and a process killed during a write leaves the old content.
SQLite ensures both. A torn or foreign file is set aside with a warning.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import cache
from .key import Key, bucket
from .place import default_path
from .record import PRIOR, About, Found, Record, text_of

FORMAT = 1
WAIT = 60.0
"""Seconds to wait for another process that writes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS kernels (
    id INTEGER PRIMARY KEY,
    structure TEXT NOT NULL, sizes TEXT NOT NULL, device TEXT NOT NULL, versions TEXT NOT NULL,
    bucket TEXT NOT NULL, name TEXT NOT NULL, family TEXT NOT NULL, dtype TEXT NOT NULL,
    space INTEGER NOT NULL, effort TEXT NOT NULL DEFAULT '',
    chosen TEXT, seconds REAL, default_seconds REAL, changed REAL NOT NULL,
    UNIQUE (structure, sizes, device, versions)
);
CREATE TABLE IF NOT EXISTS candidates (
    kernel INTEGER NOT NULL REFERENCES kernels,
    options TEXT NOT NULL,
    status TEXT NOT NULL, seconds REAL, spread REAL, samples INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '', changed REAL NOT NULL,
    PRIMARY KEY (kernel, options)
) WITHOUT ROWID;
"""


class Database:
    """The file at `path`, made by the first write. Use as a context manager, or close."""

    def __init__(self, path: str | Path | None = None):
        self.path = default_path() if path is None else Path(path)
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Reading

    def records(self, device: str | None = None, versions: str | None = None) -> list[Record]:
        """The records of all kernels, or of a device and versions, without their candidates."""
        wanted = {"device": device, "versions": versions}
        given = {k: v for k, v in wanted.items() if v is not None}
        where = " AND ".join(f"{name} = :{name}" for name in given) or "1"
        with self._reading() as run:
            rows = run(f"SELECT {_COLUMNS} FROM kernels WHERE {where} ORDER BY changed", given)
        return [_record(row) for row in rows]

    def record(self, key: Key) -> Record | None:
        """The record of a kernel with its candidates, or None."""
        with self._reading() as run:
            found = run(f"SELECT {_COLUMNS}, id FROM kernels WHERE {_KEY}", _named(key))
            if not found:
                return None
            *row, number = found[0]
            rows = run(
                "SELECT options, status, seconds, spread, samples, reason FROM candidates "
                "WHERE kernel = ?",
                (number,),
            )
        return _record(row, {options: Found(*rest) for options, *rest in rows})

    # Writing

    def add(self, key: Key, about: About, found: Mapping[str, Found]) -> None:
        """Store results of candidates, by the text of their options. A prediction doesn't replace a
        measurement."""
        with self._writing() as run:
            number = self._kernel(run, key, about)
            rows = [
                (number, options, f.status, f.seconds, f.spread, f.samples, f.reason, time.time())
                for options, f in found.items()
            ]
            for row in rows:
                run(
                    "INSERT INTO candidates VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (kernel, options) DO UPDATE SET status = excluded.status, "
                    "seconds = excluded.seconds, spread = excluded.spread, "
                    "samples = excluded.samples, reason = excluded.reason, "
                    "changed = excluded.changed "
                    f"WHERE excluded.status <> '{PRIOR}' OR candidates.status = '{PRIOR}'",
                    row,
                )

    def choose(
        self, key: Key, about: About, options: str, seconds: float, default_seconds: float
    ) -> None:
        """Store the best candidate so far."""
        with self._writing() as run:
            run(
                "UPDATE kernels SET chosen = ?, seconds = ?, default_seconds = ?, changed = ? "
                "WHERE id = ?",
                (options, seconds, default_seconds, time.time(), self._kernel(run, key, about)),
            )

    def finish(self, key: Key, about: About, effort: str) -> None:
        """Note that the search of a kernel is complete."""
        with self._writing() as run:
            number = self._kernel(run, key, about)
            run(
                "UPDATE kernels SET effort = ?, space = ? WHERE id = ?",
                (effort, about.space, number),
            )

    def put(self, record: Record) -> None:
        """Merge a record of another database: its candidates, and its choice if that is newer."""
        with self._reading() as run:
            known = run(f"SELECT changed, chosen FROM kernels WHERE {_KEY}", _named(record.key))
        self.add(record.key, record.about, record.candidates)
        if record.chosen is None or (known and known[0][1] and known[0][0] >= record.changed):
            return
        with self._writing() as run:
            run(
                "UPDATE kernels SET chosen = ?, seconds = ?, default_seconds = ?, effort = ?, "
                "changed = ? WHERE id = ?",
                (
                    text_of(record.chosen),
                    record.seconds,
                    record.default_seconds,
                    record.effort,
                    record.changed,
                    self._kernel(run, record.key, record.about),
                ),
            )

    def prune(self, before: float | None = None, versions: Sequence[str] | None = None) -> int:
        """Remove kernels unchanged since the time `before`, or of other versions than `versions`.
        Returns their number."""
        conditions: list[str] = []
        given: list[Any] = []
        if before is not None:
            conditions.append("changed < ?")
            given.append(before)
        if versions is not None:
            conditions.append(f"versions NOT IN ({', '.join('?' * len(versions))})")
            given += list(versions)
        if not conditions:
            raise ValueError("prune: expected a time or versions")
        with self._writing() as run:
            which = f"SELECT id FROM kernels WHERE {' OR '.join(conditions)}"
            count = len(run(which, given))
            run(f"DELETE FROM candidates WHERE kernel IN ({which})", given)
            run(f"DELETE FROM kernels WHERE {' OR '.join(conditions)}", given)
        return count

    @staticmethod
    def _kernel(run: Any, key: Key, about: About) -> int:
        run(
            "INSERT OR IGNORE INTO kernels (structure, sizes, device, versions, bucket, name, "
            "family, dtype, space, changed) VALUES (:structure, :sizes, :device, :versions, "
            ":bucket, :name, :family, :dtype, :space, :now)",
            {
                **_named(key),
                "bucket": json.dumps(bucket(key.sizes)),
                "name": about.name,
                "family": about.family,
                "dtype": about.dtype,
                "space": about.space,
                "now": time.time(),
            },
        )
        ((number,),) = run(f"SELECT id FROM kernels WHERE {_KEY}", _named(key))
        return int(number)

    # The file

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        if self._connection is None and not self.path.exists():
            yield lambda *_: []
            return
        yield self._run

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Any]:
        run = self._run
        run("BEGIN IMMEDIATE")
        try:
            yield run
        except BaseException:
            run("ROLLBACK")
            raise
        run("COMMIT")

    def _run(self, text: str, given: Any = ()) -> list[Any]:
        return self._opened().execute(text, given).fetchall()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            if not self.path.parent.is_dir():
                cache.make_private(self.path.parent)
            try:
                self._connection = _connect(self.path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise  # a fault of the disk, or no access
                self._set_aside(error)
                self._connection = _connect(self.path)
        return self._connection

    def _set_aside(self, error: Exception) -> None:
        self.close()
        aside = self.path.with_name(f"{self.path.name}.broken-{time.time_ns()}")
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            os.replace(self.path, aside)
        for suffix in ("-journal", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}{suffix}")
        warnings.warn(
            f"tilewright can't read the tuning results in {self.path} ({error}): they are kept as "
            f"{aside.name}, and a new file is begun",
            RuntimeWarning,
            stacklevel=2,
        )


def _connect(path: Path) -> sqlite3.Connection:
    """A connection to a file of ours; DatabaseError if it is torn or foreign."""
    connection = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
    try:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        if version not in (0, FORMAT):
            raise sqlite3.DatabaseError(f"it has format {version}, expected {FORMAT}")
        ((sound,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
        if sound != "ok":
            raise sqlite3.DatabaseError(sound)
        if version == 0:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


_KEY = "structure = :structure AND sizes = :sizes AND device = :device AND versions = :versions"
_COLUMNS = (
    "structure, sizes, device, versions, name, family, dtype, space, effort, chosen, seconds, "
    "default_seconds, changed"
)


def _named(key: Key) -> dict[str, str]:
    return {
        "structure": key.structure,
        "sizes": json.dumps(key.sizes),
        "device": key.device,
        "versions": key.versions,
    }


def _record(row: Sequence[Any], candidates: Mapping[str, Found] | None = None) -> Record:
    structure, sizes, device, versions, name, family, dtype, space, effort, chosen, *last = row
    seconds, default_seconds, changed = last
    return Record(
        Key(structure, tuple(json.loads(sizes)), device, versions),
        About(name, family, dtype, space),
        effort,
        None if chosen is None else json.loads(chosen),
        seconds,
        default_seconds,
        changed,
        candidates or {},
    )
