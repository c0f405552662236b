"""What the tuner keeps on disk: many processes, kills, broken files, exports."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.runtime.results import key, portable
from tilewright.runtime.results.database import Database
from tilewright.runtime.results.record import About, Found

pytestmark = pytest.mark.usefixtures("own_database")
ABOUT = About("sum", "reduction", "float32", 9)


def some_key(number: int = 0, size: int = 64) -> key.Key:
    return key.Key(f"structure{number}", (size, 2 * size), "a machine", "versions 1")


def test_results_come_back_as_they_were_kept(own_database: Path) -> None:
    found = {"{}": Found("measured", 1e-3, 0.1, 7), '{"work":4}': Found("crashed", reason="-11")}
    with Database() as results:
        assert results.records() == [] and results.record(some_key()) is None
        assert not own_database.exists(), "reading makes no file"
        results.add(some_key(), ABOUT, found)
        results.choose(some_key(), ABOUT, '{"work":8}', 5e-4, 1e-3)
    with Database() as results:
        record = results.record(some_key())
        assert record is not None and record.candidates == found and record.effort == ""
        assert record.chosen == {"work": 8} and record.gain == pytest.approx(2.0)
        results.finish(some_key(), ABOUT, "full")
        assert [r.effort for r in results.records("a machine", "versions 1")] == ["full"]
        assert results.records("another machine") == []


def test_a_prediction_never_replaces_a_measurement() -> None:
    with Database() as results:
        results.add(some_key(), ABOUT, {"{}": Found("measured", 1e-3, 0.1, 7)})
        results.add(some_key(), ABOUT, {"{}": Found("prior", 9.0), "{1}": Found("prior", 8.0)})
        results.add(some_key(), ABOUT, {"{1}": Found("wrong", reason="x")})
        record = results.record(some_key())
    assert record is not None
    assert {o: f.status for o, f in record.candidates.items()} == {"{}": "measured", "{1}": "wrong"}


WRITER = """
import sys
from tilewright.runtime.results.database import Database
from tilewright.runtime.results.record import About, Found
from tilewright.runtime.results.key import Key
with Database() as results:
    for i in range(40):
        own = Key(f"structure{i % 3}", (1,), "d", "v")
        results.add(own, About("n", "f", "t", 1), {f"{sys.argv[1]}-{i}": Found("measured", 1.0)})
"""


def test_many_processes_write_at_once() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", WRITER]
    writers = [subprocess.Popen([*command, str(n)], env=environment) for n in range(3)]
    assert [p.wait(60) for p in writers] == [0, 0, 0]
    with Database() as results:
        records = [results.record(r.key) for r in results.records()]
    assert sum(len(r.candidates) for r in records if r) == 3 * 40


KILLED = """
import sys
from tilewright.runtime.results.database import Database
from tilewright.runtime.results.record import About, Found
from tilewright.runtime.results.key import Key
with Database() as results:
    for i in range(10**6):
        found = {str(i): Found("measured", 1.0)}
        results.add(Key("s", (1,), "d", "v"), About("n", "f", "t", 1), found)
        print(i, flush=True)
"""


def test_it_survives_a_kill_in_the_middle_of_writing(own_database: Path) -> None:
    for round_ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdout is not None
        for _ in range(20 + round_):
            last = int(process.stdout.readline())
        process.kill()
        process.wait()
        process.stdout.close()
        with Database() as results:
            record = results.record(key.Key("s", (1,), "d", "v"))
        # All that was said to be kept is there.
        assert record is not None and {str(i) for i in range(last)} <= set(record.candidates)


@pytest.mark.parametrize(
    "damage",
    [
        b"this is no database, but it is long enough to be looked at" * 20,
        b"SQLite format 3\0" + b"\xff" * 4000,
        None,  # torn in the middle
    ],
)
def test_a_broken_file_is_set_aside_with_a_warning(
    own_database: Path, damage: bytes | None
) -> None:
    with Database() as results:
        results.add(some_key(), ABOUT, {str(i): Found("measured", 1.0) for i in range(300)})
    whole = own_database.read_bytes()
    own_database.write_bytes(damage if damage is not None else whole[: len(whole) // 2])
    with Database() as results, pytest.warns(RuntimeWarning, match="a new file is begun"):
        results.add(some_key(1), ABOUT, {"{}": Found("measured", 1.0)})
    with Database() as results:
        assert [r.key.structure for r in results.records()] == ["structure1"]
    (aside,) = own_database.parent.glob("tuning.sqlite.broken-*")
    assert aside.read_bytes() == (whole[: len(whole) // 2] if damage is None else damage)


def test_a_file_of_another_format_is_set_aside(own_database: Path) -> None:
    with sqlite3.connect(own_database) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with Database() as results, pytest.warns(RuntimeWarning, match="format 99"):
        results.add(some_key(), ABOUT, {})


def test_results_go_to_another_database_and_back(tmp_path: Path) -> None:
    with Database() as results:
        for number in range(3):
            results.add(some_key(number), ABOUT, {"{}": Found("measured", 2.0, 0.1, 5)})
            results.choose(some_key(number), ABOUT, '{"work":4}', 1.0, 2.0)
        results.finish(some_key(1), ABOUT, "full")
        records = [results.record(r.key) for r in results.records()]
    file = tmp_path / "tuned.json"
    assert portable.write(file, [r for r in records if r]) == 3
    assert file.read_text().count("\n") == 5, "a line for each kernel, to be read in a diff"
    with Database(tmp_path / "other.sqlite") as other:
        for record in portable.read(file):
            other.put(record)
        assert [other.record(r.key) for r in records if r] == records
        newer = replace(records[0], chosen={"work": 9}, changed=time.time() + 5)  # type: ignore[type-var]
        older = replace(records[1], chosen={"work": 9}, changed=5.0)  # type: ignore[type-var]
        other.put(newer)
        other.put(older)
        assert other.record(newer.key).chosen == {"work": 9}  # type: ignore[union-attr]
        assert other.record(older.key).chosen == {"work": 4}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "tune export"),
        ('{"tilewright": "tuning results", "format": 7}', "expected format 1"),
        (
            '{"tilewright": "tuning results", "format": 1, "kernels": [\n{"name": 1}]}',
            r"tuned\.json:2",
        ),
    ],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        portable.read(file)


def test_prune_removes_what_is_old_or_of_other_versions() -> None:
    other = replace(some_key(7), versions="versions 0")
    with Database() as results:
        for each in (some_key(), other):
            results.add(each, ABOUT, {"{}": Found("measured", 1.0)})
        assert results.prune(versions=["versions 1"]) == 1
        assert [r.key for r in results.records()] == [some_key()]
        assert results.prune(before=time.time() - 10) == 0
        assert results.prune(before=time.time() + 10) == 1
        assert results.records() == []
        with pytest.raises(ValueError, match="prune"):
            results.prune()
