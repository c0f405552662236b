"""The tuner: spaces, searches, workers, the database, choices, and what may go wrong with each."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen import llvm
from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.space import Space, grid
from tilewright.codegen.structure import structure
from tilewright.nn import functional as F
from tilewright.runtime.native import host
from tilewright.runtime.tuner import (
    bench,
    choices,
    engines,
    key,
    portable,
    search,
    worker,
)
from tilewright.runtime.tuner.database import Database
from tilewright.runtime.tuner.record import About, Found, text_of
from tilewright.runtime.tuner.session import Session
from tilewright.tuning import families, launched_by, tune_kernels

needs_llvm = pytest.mark.skipif(host.reason_against() is not None, reason="no native code here")
ABOUT = About("sum", "reduction", "float32", 9)


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing is read from, or written to, the user's."""
    path = tmp_path / "tuning.sqlite"
    monkeypatch.setenv("TW_TUNE_DB", str(path))
    monkeypatch.delenv("TW_TUNE_FILE", raising=False)
    choices.forget()
    yield path
    choices.forget()


def kernel_of(run: Callable[[], Any]) -> Kernel:
    kernel = launched_by(run)[0].kernel
    assert isinstance(kernel, Kernel)
    return kernel


def product(m: int = 96, n: int = 80, k: int = 64) -> Kernel:
    a, b = tw.rand(m, k), tw.rand(k, n)
    return kernel_of(lambda: a @ b)


def some_key(number: int = 0, size: int = 64) -> key.Key:
    return key.Key(f"structure{number}", (size, 2 * size), "a machine", "versions 1")


# Spaces


def test_a_grid_holds_the_default_and_what_differs_from_it() -> None:
    def effect(s: tuple[int, int]) -> Any:
        x, y = s
        return None if x * y > 12 else (min(x, 4), y)  # from 4 on, x makes no difference

    places = grid((3, 2), {"x": (1, 2, 4, 6), "y": (1, 2, 3)}, lambda x, y: (x, y), effect)
    assert places[3, 2] == (2, 1)  # among its own choices, in order
    assert set(places) == {(3, 2), *itertools.product((1, 2, 3, 4), (1, 2, 3))}
    space = Space(tuple(places), places, {})
    assert space.neighbours((3, 2))[:2] == [(2, 2), (3, 1)]
    assert space.ranked[0] == (3, 2)


KERNELS: dict[str, Callable[[], Any]] = {
    "product": lambda: tw.rand(130, 70) @ tw.rand(70, 90),
    "thin": lambda: tw.rand(20, 64) @ tw.rand(200, 64).T,
    "batched": lambda: tw.rand(3, 40, 30) @ tw.rand(3, 30, 50),
    "windows": lambda: F.conv2d(tw.rand(2, 8, 9, 9), tw.rand(12, 8, 3, 3), padding=1, stride=2),
    "rows": lambda: F.softmax(tw.rand(33, 130), -1),
    "columns": lambda: tw.rand(300, 70).sum(0),
    "attention": lambda: F.scaled_dot_product_attention(*(tw.rand(2, 3, 70, 20) for _ in "qkv")),
    "elementwise": lambda: (tw.rand(57, 33).exp() * 2 + 1).T.contiguous(),
    "gather": lambda: tw.rand(50, 20)[tw.randint(0, 50, (30,))] * 2,
    "halves": lambda: tw.rand(65, 33).bfloat16() @ tw.rand(33, 40).bfloat16(),
    "scan": lambda: tw.rand(20, 40).cumsum(1),
}


def kernel_named(name: str) -> Kernel:
    found = [k.kernel for k in launched_by(KERNELS[name])]
    return max(found, key=lambda k: len(k.values) + 100 * k.has_dot)  # type: ignore[union-attr,return-value]


@needs_llvm
@pytest.mark.parametrize("name", KERNELS)
def test_every_schedule_of_a_space_gives_the_right_values(name: str) -> None:
    """Each is compiled, run and compared with the NumPy program, as before it may win."""
    engine = engines.named("cpu")
    kernel = kernel_named(name)
    space = engine.space(kernel)
    assert len(set(space.schedules)) == len(space) > (3 if name != "scan" else 0)
    trial = worker.Trial(kernel, engine)
    picked = random.Random(name).sample(list(space.schedules), min(len(space), 14))
    options = [engine.options(s) for s in dict.fromkeys([space.default, *picked])]
    kept = json.loads(json.dumps(options))
    assert [engine.options(engine.schedule(o)) for o in kept] == options
    for each, found in zip(options, trial.prepare(options, lambda message: None)):
        assert found is None, (each, found)


@needs_llvm
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_all_schedules_of_a_space_give_the_right_values(name: str) -> None:
    engine = engines.named("cpu")
    kernel = kernel_named(name)
    trial = worker.Trial(kernel, engine)
    options = [engine.options(s) for s in engine.space(kernel).schedules]
    for each, found in zip(options, trial.prepare(options, lambda message: None)):
        assert found is None, (each, found)


@needs_llvm
def test_results_have_the_same_bits_with_any_number_of_threads() -> None:
    """Also those of schedules that aren't the default."""
    engine = engines.named("cpu")
    trial = worker.Trial(product(150, 170, 130), engine)
    schedule = llvm.Schedule(tile=(4, 2), rows=24, columns=128, depth=128)
    before = tw.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            tw.set_num_threads(threads)
            assert trial.prepare([engine.options(schedule)], lambda message: None) == [None]
            trial.launches[-1](trial.buffers, trial.scalars)
            found.append(trial.buffers[0].copy())
    finally:
        tw.set_num_threads(before)
    assert np.all(found[0] > 0)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_a_wrong_result_is_noticed() -> None:
    kernel = product()
    right = np.linspace(1, 2, 50, dtype=np.float32)
    assert worker.difference(right * (1 + 1e-6), right, kernel) is None
    for wrong in (0.0, np.nan, np.inf, 1.01):
        found = right.copy()
        found[17] = wrong
        message = worker.difference(found, right, kernel)
        assert message is not None and "element 17" in message
    assert worker.difference(np.array([np.nan]), np.array([np.nan]), kernel) is None


# Searching


class Landscape:
    """Times of a space with one valley, and noise; counts what is measured."""

    def __init__(self, width: int = 12, noise: float = 0.02, seed: int = 0):
        sizes = range(width)
        places = grid((2, 3), {"x": sizes, "y": sizes}, lambda x, y: (x, y), lambda s: s)
        self.space: Space[tuple[int, int]] = Space(tuple(places), places, {})
        self.noise, self.random = noise, random.Random(seed)
        self.asked: dict[tuple[int, int], int] = {}

    def true(self, s: tuple[int, int]) -> float:
        x, y = s
        return 1.0 + 0.08 * abs(x - 8) ** 0.8 + 0.1 * abs(y - 6) + 0.04 * ((x + y) % 3 == 0)

    def measure(
        self, schedules: Sequence[tuple[int, int]], rounds: int
    ) -> Mapping[tuple[int, int], Sequence[float]]:
        # The machine is slower in some rounds than in others, for all alike.
        speed = [self.random.choice((1.0, 1.0, 1.6)) for _ in range(rounds)]
        for schedule in schedules:
            self.asked[schedule] = self.asked.get(schedule, 0) + 1
        return {
            s: [self.true(s) * f * (1 + self.noise * self.random.random()) for f in speed]
            for s in schedules
        }

    def run(self, effort: str, state: search.State[Any] | None = None) -> tuple[int, int]:
        state = state or search.State()
        for batch in search.batches(self.space, state, effort):
            assert not any(state.knows(s) for s in batch)
            for s, times in search.measure_batch(batch, self.space.default, self.measure).items():
                state.ratios[s] = times.ratio
        self.state = state
        return search.final(state, self.space.default, self.measure)[0]


@pytest.mark.parametrize("seed", range(8))
def test_a_search_finds_the_valley_and_measures_little(seed: int) -> None:
    landscape = Landscape(seed=seed)
    winner = landscape.run("full")
    assert landscape.true(winner) <= 1.09, winner
    assert len(landscape.asked) <= 0.2 * len(landscape.space) + 1


def test_an_exhaustive_search_measures_everything_and_a_quick_one_less() -> None:
    everything, quick = Landscape(6), Landscape()
    assert everything.true(everything.run("exhaustive")) == min(
        everything.true(s) for s in everything.space.schedules
    )
    assert set(everything.asked) == set(everything.space.schedules)
    quick.run("quick")
    assert len(quick.asked) <= search.count(quick.space, "quick") + 1 <= 10


def test_the_default_stays_unless_another_is_clear_of_the_noise() -> None:
    """Of a flat landscape the winner is the default, however noisy it is."""
    kept = 0
    for seed in range(10):
        flat = Landscape(noise=0.3, seed=seed)
        flat.true = lambda s: 1.0  # type: ignore[method-assign]
        kept += flat.run("full") == flat.space.default
    assert kept >= 7  # the best of several by chance may seem clear
    flat = Landscape(noise=0.0)
    flat.true = lambda s: 1.0  # type: ignore[method-assign]
    assert flat.run("full") == flat.space.default


def test_a_search_goes_on_where_it_was_left() -> None:
    whole = Landscape(noise=0.0)
    whole.run("full")
    part = Landscape(noise=0.0)
    state: search.State[Any] = search.State()
    for batch in itertools.islice(search.batches(part.space, state, "full"), 2):
        for s, times in search.measure_batch(batch, part.space.default, part.measure).items():
            state.ratios[s] = times.ratio
    before = dict(part.asked)
    rest = Landscape(noise=0.0)
    rest.run("full", state)
    again = set(rest.asked) & set(before) - {rest.space.default}
    # What is measured once more are finalists, which are compared with one another.
    assert len(again) <= search.FINALISTS
    assert len(state.ratios) == search.count(whole.space, "full")


# Workers


class Counting(engines.Cpu):
    """The CPU, with a space of a few schedules, some of which do harm."""

    harm: str = ""

    def space(self, kernel: Kernel | Bundle) -> Space[llvm.Schedule]:
        schedules = [llvm.DEFAULT, *(llvm.Schedule(work=1 << n) for n in range(14, 21))]
        return Space(tuple(schedules), {s: (i,) for i, s in enumerate(schedules)}, {})

    def compile(
        self, device: Any, kernel: Kernel | Bundle, schedules: Sequence[llvm.Schedule]
    ) -> list[Any]:
        made = super().compile(device, kernel, schedules)
        return [
            self.harmful(launch) if s.work == 1 << 17 else launch
            for s, launch in zip(schedules, made)
        ]

    def harmful(self, launch: Any) -> Any:
        return launch


class Crashing(Counting):
    """One schedule ends the process when it runs."""

    def harmful(self, launch: Any) -> Any:
        return lambda buffers, scalars: os.kill(os.getpid(), signal.SIGSEGV)


class CompilerCrash(Counting):
    """One schedule ends the process when it is compiled."""

    def harmful(self, launch: Any) -> Any:
        os._exit(7)


class Hanging(Counting):
    def harmful(self, launch: Any) -> Any:
        return lambda buffers, scalars: time.sleep(1000)


class Wrong(Counting):
    def harmful(self, launch: Any) -> Any:
        def run(buffers: Any, scalars: Any) -> None:
            launch(buffers, scalars)
            buffers[0].reshape(-1)[3] += 1

        return run


class Failing(Counting):
    def harmful(self, launch: Any) -> Any:
        raise ValueError("no such tile")


@pytest.fixture
def sums() -> Kernel:
    x = tw.rand(400, 300)
    return kernel_of(lambda: x.exp().sum(1))


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find this module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


BAD_ENGINES = {
    "Crashing": ("crashed", "ended with -11"),
    "CompilerCrash": ("crashed", "ended with 7"),
    "Hanging": ("hung", "no answer"),
    "Wrong": ("wrong", "element 3"),
    "Failing": ("crashed", "no such tile"),
}


@needs_llvm
@pytest.mark.parametrize("name", BAD_ENGINES)
def test_a_bad_candidate_is_recorded_and_harms_nothing_else(
    name: str, sums: Kernel, importable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "RUN", 6.0)
    engine = globals()[name]()
    with Database() as results:
        found = Session(engine, results, "exhaustive", engine_name=f"test_tuner:{name}").tune(sums)
        record = results.record(found.record.key)
    assert found.complete and record is not None and len(record.candidates) == 8
    status, reason = BAD_ENGINES[name]
    bad = record.candidates[text_of({"work": 1 << 17})]
    assert bad.status == status and reason in bad.reason
    others = [f for f in record.candidates.values() if f is not bad]
    assert all(f.status == "measured" and f.seconds and f.seconds > 0 for f in others)
    assert record.chosen is not None and record.chosen.get("work") != 1 << 17


@needs_llvm
def test_a_default_that_fails_is_an_error_that_says_why(sums: Kernel, importable: None) -> None:
    with Database() as results, pytest.raises(bench.CannotTune, match=r"failed: .*no compiler"):
        Session(AllFail(), results, engine_name="test_tuner:AllFail").tune(sums)


class AllFail(Counting):
    def compile(
        self, device: Any, kernel: Kernel | Bundle, schedules: Sequence[llvm.Schedule]
    ) -> list[Any]:
        return [RuntimeError("no compiler today") for _ in schedules]


@needs_llvm
def test_a_worker_that_cannot_begin_says_why(sums: Kernel) -> None:
    with (
        bench.Bench(sums, engines.named("cpu"), "no.such.module:Engine") as broken,
        pytest.raises(bench.CannotTune, match="No module named"),
    ):
        broken.measure([llvm.DEFAULT], 1)


@needs_llvm
def test_kernels_that_cannot_be_measured_are_skipped_and_the_others_tuned() -> None:
    """The tuner's operands are positions in range, which makes some of what this one computes of
    them too large."""
    table, places, w = tw.rand(20, 30), tw.randint(0, 9, (7,)), tw.rand(30, 40)
    report = tw.tune(lambda: (table[places * 2] * 2).sum() + (tw.exp(w) * w).sum(1), effort="quick")
    ((name, reason),) = report.skipped
    assert "gather" in name and "out of bounds" in reason
    assert f"skipped {name}" in str(report)
    assert report.kernels and all(k.result.complete for k in report.kernels)


@needs_llvm
def test_a_training_step_with_an_optimizer_is_tuned() -> None:
    """Updates of many parameters are one kernel, whose members share a schedule."""
    net = tw.nn.Sequential(tw.nn.Linear(40, 30), tw.nn.ReLU(), tw.nn.Linear(30, 5))
    optimizer = tw.optim.Adam(net.parameters())
    x, y = tw.rand(16, 40), tw.randint(0, 5, (16,))

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    first = step()
    report = tw.tune(step, effort="quick")
    families_ = {k.record.about.family for k in report.kernels}
    assert "update" in families_ and "product" in families_ and report.skipped == ()
    assert all(k.result.complete for k in report.kernels)
    assert step() < first


# The database


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
from tilewright.runtime.tuner.database import Database
from tilewright.runtime.tuner.record import About, Found
from tilewright.runtime.tuner.key import Key
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
from tilewright.runtime.tuner.database import Database
from tilewright.runtime.tuner.record import About, Found
from tilewright.runtime.tuner.key import Key
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


# What kernels get


def choose(kernel: Kernel, options: dict[str, Any], gain: float = 1.5) -> key.Key:
    engine = engines.named("cpu")
    own = key.of(kernel, engine.identity, engine.versions)
    with Database() as results:
        results.choose(own, ABOUT, text_of(options), 1.0, gain)
    choices.forget()
    return own


@needs_llvm
def test_a_kernel_gets_its_own_choice_else_the_nearest_else_the_default() -> None:
    engine = engines.named("cpu")
    small, large, huge = product(64, 64, 64), product(96, 96, 96), product(900, 900, 900)
    assert structure(small) == structure(large)
    assert engine.choice(small) is None and engine.chosen(small) is None
    choose(large, {"rows": 24, "tile": [4, 2]})
    assert engine.chosen(large) == llvm.Schedule(rows=24, tile=(4, 2))
    exact, near = engine.choice(large), engine.choice(small)
    assert exact is not None and exact.origin == "tuned" and exact.gain == pytest.approx(1.5)
    assert near is not None and "octaves away" in near.origin
    assert engine.choice(huge) is None, "more than an octave away"
    choose(small, {"rows": 48})
    assert engine.chosen(small) == llvm.Schedule(rows=48)


@needs_llvm
def test_values_are_right_with_a_choice_and_explain_says_where_it_is_from() -> None:
    a, b = tw.rand(70, 40), tw.rand(40, 50)
    kernel = kernel_of(lambda: a @ b)
    choose(kernel, {"rows": 24, "columns": 128, "depth": 128, "tile": [4, 3]})
    tw.flushing.clear_tables()
    report = tw.explain(lambda: a @ b)
    assert "schedule: tuned, 1.50 times as fast as the default: columns=128" in report.text()
    exact = a.numpy().astype(np.float64) @ b.numpy()
    np.testing.assert_allclose((a @ b).numpy(), exact, rtol=1e-5)
    tw.flushing.clear_tables()


@needs_llvm
def test_numpy_is_a_choice_too() -> None:
    a, b = tw.rand(70, 40), tw.rand(40, 50)
    choose(kernel_of(lambda: a @ b), {"native": False})
    tw.flushing.clear_tables()
    assert "the tuner found NumPy faster" in tw.explain(lambda: a @ b).text()
    tw.flushing.clear_tables()


@needs_llvm
def test_a_pinned_file_is_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, engine = product(), engines.named("cpu")
    choose(kernel, {"rows": 24})
    with Database() as results:
        portable.write(tmp_path / "tuned.json", results.records())
    choose(kernel, {"rows": 48})
    monkeypatch.setenv("TW_TUNE_FILE", str(tmp_path / "tuned.json"))
    choices.forget()
    choice = engine.choice(kernel)
    assert choice is not None and choice.options == {"rows": 24}
    assert choice.origin == "pinned by tuned.json"
    with pytest.raises(RuntimeError, match=r"TW_TUNE_FILE=.* pins the schedules"):
        tw.tune(lambda: tw.rand(3) + 1)
    monkeypatch.setenv("TW_TUNE_FILE", str(tmp_path / "missing.json"))
    choices.forget()
    with pytest.raises(FileNotFoundError, match=r"missing\.json"):
        engine.choice(kernel)


def test_nothing_is_loaded_where_nothing_was_tuned() -> None:
    code = (
        "import sys, tilewright as t; (t.ones(9) + 1).sum().item();"
        "assert 'sqlite3' not in sys.modules, 'loaded'"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


# From the public interface


@needs_llvm
def test_tune_keeps_what_it_found_and_measures_nothing_twice() -> None:
    w = tw.rand(128, 96)

    def step(x: Any) -> float:
        return F.softmax(x @ w, -1).sum().item()

    x = tw.rand(100, 128)
    before = step(x)
    first = tw.tune(step, x, effort="quick")
    assert first.measured > 5 and all(k.result.complete for k in first.kernels)
    assert first.gain >= 0.99 and "matmul_dot" in str(first)
    assert step(x) == pytest.approx(before, rel=1e-5)
    again = tw.tune(step, x, effort="quick")
    assert again.measured == 0
    assert [k.record.chosen for k in again.kernels] == [k.record.chosen for k in first.kernels]
    more = tw.tune(step, x, effort="full")
    assert more.measured > 0, "a greater effort goes on"


@needs_llvm
def test_an_interrupt_keeps_the_best_and_the_next_run_goes_on(sums: Kernel) -> None:
    work = [w for w in launched_by(lambda: tw.rand(96, 64) @ tw.rand(64, 80)) if w.kernel.has_dot]  # type: ignore[union-attr]
    stop = threading.Event()
    seen: list[int] = []

    class Interrupting(Database):
        def add(self, own: key.Key, about: About, found: Mapping[str, Found]) -> None:
            super().add(own, about, found)
            seen.append(len(found))
            if not stop.is_set():
                stop.set()
                signal.raise_signal(signal.SIGINT)

    # A shell that starts this in the background has interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Interrupting() as results:
            report = tune_kernels(work, "full", progress=False, database=results)
    finally:
        signal.signal(signal.SIGINT, before)
    assert report.interrupted and report.kernels == () and "interrupted" in str(report)
    with Database() as results:
        (record,) = results.records()
        kept = results.record(record.key)
    assert kept is not None and record.effort == ""
    measured = len(kept.candidates)
    assert measured >= 6
    rest = tune_kernels(work, "full", progress=False)
    assert rest.kernels[0].result.known == rest.kernels[0].result.measured + measured
    assert rest.kernels[0].record.chosen is not None


@needs_llvm
def test_a_space_that_has_grown_is_searched_for_what_is_new(
    sums: Kernel, importable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database() as results:
        first = Session(Counting(), results, engine_name="test_tuner:Counting").tune(sums)
        grown = Counting()
        whole = Counting.space(grown, sums)
        more = (*whole.schedules, llvm.Schedule(vectors=1), llvm.Schedule(vectors=2))
        monkeypatch.setattr(
            grown, "space", lambda kernel: Space(more, {s: (i,) for i, s in enumerate(more)}, {})
        )
        session = Session(grown, results, "exhaustive", engine_name="test_tuner:Counting")
        second = session.tune(sums)
    assert second.known == len(more) == first.known + second.measured


@needs_llvm
def test_a_budget_ends_a_search_and_it_goes_on_later() -> None:
    work = launched_by(lambda: tw.rand(96, 64) @ tw.rand(64, 80))
    with Database() as results:
        session = Session(engines.named("cpu"), results, budget=1e-3)
        time.sleep(2e-3)
        found = session.tune(work[0].kernel)
    assert not found.complete and found.measured == 0
    assert tune_kernels(work[:1], "quick", progress=False).kernels[0].result.complete


TUNER = """
import sys
import tilewright as t
a, b = t.rand(96, 64), t.rand(64, 80)
report = t.tune(lambda: a @ b, effort="full")
print(report.measured, report.kernels[0].result.known)
"""


@needs_llvm
def test_two_tuners_share_the_work() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    tuners = [
        subprocess.Popen(
            [sys.executable, "-c", TUNER], stdout=subprocess.PIPE, env=environment, text=True
        )
        for _ in range(2)
    ]
    said = [t.communicate(timeout=240)[0].split() for t in tuners]
    assert [t.returncode for t in tuners] == [0, 0]
    measured, known = zip(*((int(a), int(b)) for a, b in said))
    with Database() as results:
        records = [results.record(r.key) for r in results.records()]
    most = max(len(r.candidates) for r in records if r)
    # Nobody measured what the other one had.
    assert sum(measured) <= most + 2 and max(known) == most


def test_families_take_shapes_and_say_what_is_wrong() -> None:
    assert families.parse_shape("matmul", "8x16x32") == (8, 16, 32)
    for family, text in (("matmul", "8x16"), ("conv2d", "1x2"), ("softmax", "0x4"), ("reduce", "")):
        with pytest.raises(ValueError, match=family):
            families.parse_shape(family, text)
    for name, family in families.FAMILIES.items():
        small = {"conv2d": "1x4x6x6x4x3"}.get(name, "x".join(["8"] * max(family.counts[0], 2)))
        (work,) = families.kernels_of(name, [families.parse_shape(name, small)])
        assert work.family == name and work.count == 1


def test_an_unknown_effort_is_named() -> None:
    with pytest.raises(ValueError, match="expected one of quick, full, exhaustive, got 'much'"):
        tw.tune(lambda: tw.rand(3) + 1, effort="much")
