"""The tuner on the CPU: spaces, workers and what candidates may do to them, choices, `tune`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tuning_engines
from paths import SUPPORT
from tuning_engines import AllFail, Counting

import tilewright as tw
from tilewright import recording
from tilewright.codegen import llvm
from tilewright.codegen.kernel import Kernel
from tilewright.codegen.kernel.structure import structure
from tilewright.codegen.schedule.space import Space
from tilewright.nn import functional as F
from tilewright.runtime.native import host
from tilewright.runtime.results import choices, key, portable
from tilewright.runtime.results.database import Database
from tilewright.runtime.results.record import About, Found, text_of
from tilewright.runtime.tuner import bench, engines, worker
from tilewright.runtime.tuner.session import Session
from tilewright.tuning import families, launched_by, tune_kernels

pytestmark = pytest.mark.usefixtures("own_database")
needs_llvm = pytest.mark.skipif(host.reason_against() is not None, reason="no native code here")
ABOUT = About("sum", "reduction", "float32", 9)


def kernel_of(run: Callable[[], Any]) -> Kernel:
    kernel = launched_by(run)[0].kernel
    assert isinstance(kernel, Kernel)
    return kernel


def product(m: int = 96, n: int = 80, k: int = 64) -> Kernel:
    a, b = tw.rand(m, k), tw.rand(k, n)
    return kernel_of(lambda: a @ b)


# Spaces


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
@pytest.mark.parametrize(
    "name",
    [n if n in ("scan", "halves") else pytest.param(n, marks=pytest.mark.slow) for n in KERNELS],
)
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


# Workers


@pytest.fixture
def sums() -> Kernel:
    x = tw.rand(400, 300)
    return kernel_of(lambda: x.exp().sum(1))


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find the engines."""
    monkeypatch.syspath_prepend(str(SUPPORT))


BAD_ENGINES = {
    "Crashing": ("crashed", "ended with -11"),
    "CompilerCrash": ("crashed", "ended with 7"),
    "Hanging": ("hung", "no answer"),
    "Wrong": ("wrong", "element 3"),
    "Failing": ("crashed", "no such tile"),
}


@needs_llvm
@pytest.mark.parametrize(
    "name",
    [
        n if n in ("Crashing", "Wrong") else pytest.param(n, marks=pytest.mark.slow)
        for n in BAD_ENGINES
    ],
)
def test_a_bad_candidate_is_recorded_and_harms_nothing_else(
    name: str, sums: Kernel, importable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "RUN", 4.0)
    engine = getattr(tuning_engines, name)()
    with Database() as results:
        found = Session(engine, results, "exhaustive", engine_name=f"tuning_engines:{name}").tune(
            sums
        )
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
        Session(AllFail(), results, engine_name="tuning_engines:AllFail").tune(sums)


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
@pytest.mark.slow
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
    recording.clear_tables()
    report = tw.explain(lambda: a @ b)
    assert "schedule: tuned, 1.50 times as fast as the default: columns=128" in report.text()
    exact = a.numpy().astype(np.float64) @ b.numpy()
    np.testing.assert_allclose((a @ b).numpy(), exact, rtol=1e-5)
    recording.clear_tables()


@needs_llvm
def test_numpy_is_a_choice_too() -> None:
    a, b = tw.rand(70, 40), tw.rand(40, 50)
    choose(kernel_of(lambda: a @ b), {"native": False})
    recording.clear_tables()
    assert "the tuner found NumPy faster" in tw.explain(lambda: a @ b).text()
    recording.clear_tables()


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


@pytest.mark.slow
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
        first = Session(Counting(), results, engine_name="tuning_engines:Counting").tune(sums)
        grown = Counting()
        whole = Counting.space(grown, sums)
        more = (*whole.schedules, llvm.Schedule(vectors=1), llvm.Schedule(vectors=2))
        monkeypatch.setattr(
            grown, "space", lambda kernel: Space(more, {s: (i,) for i, s in enumerate(more)}, {})
        )
        session = Session(grown, results, "exhaustive", engine_name="tuning_engines:Counting")
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


@pytest.mark.slow
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
