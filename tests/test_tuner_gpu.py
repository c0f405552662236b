"""Tuning on a GPU, on the driver that interprets launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")

import fake_cuda

import tilewright as tw
from tilewright.codegen.kernel import Kernel
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.schedule.choices import space
from tilewright.codegen.target import gpu
from tilewright.nn import functional as F
from tilewright.runtime.cuda.tuning import Gpu
from tilewright.runtime.results import choices, key
from tilewright.runtime.results.database import Database
from tilewright.runtime.results.record import About, text_of
from tilewright.runtime.tuner import engines, worker
from tilewright.runtime.tuner.gpu import Offline
from tilewright.runtime.tuner.session import rank
from tilewright.tuning import families
from tilewright.tuning.work import recorded

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("own_database")]
TARGET = gpu("sm_90")
ABOUT = About("kernel", "product", "float32", 9)


KERNELS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "product": (lambda a, b: a @ b, [(40, 48), (48, 33)]),
    "rows": (lambda x: F.softmax(x, -1), [(5, 130)]),
    "long rows": (lambda x: x.sum(-1), [(2, 9000)]),
    "columns": (lambda x: x.sum(0), [(60, 40)]),
    "elementwise": (lambda x: x.exp() * 2 + 1, [(700,)]),
    "attention": (F.scaled_dot_product_attention, [(1, 2, 40, 20)] * 3),
}


def kernel_named(name: str) -> Kernel:
    function, shapes = KERNELS[name]
    kernel = recorded(function, [tw.zeros(s) for s in shapes], "sm_90")[0].kernel
    assert isinstance(kernel, Kernel)
    return kernel


@pytest.mark.parametrize("name", KERNELS)
def test_a_space_holds_the_default_and_what_fits_by_the_model(name: str) -> None:
    kernel = kernel_named(name)
    found = space(kernel, TARGET)
    assert found.default == default_schedule(kernel, TARGET) and len(found) > 3
    assert all(seconds > 0 for seconds in found.predicted.values())
    assert {*found.predicted} == {*found.schedules} == {*found.ranked}
    if kernel.reduction and not kernel.has_dot:
        extent = kernel.reduction[0].extent
        assert all(s.looped == (s.block_r < extent) for s in found.schedules)


@pytest.mark.parametrize("name", KERNELS)
def test_schedules_of_a_space_give_the_right_values(name: str) -> None:
    """Launched through the runtime, with every access to memory checked."""
    kernel = kernel_named(name)
    with fake_cuda.installed():
        engine: Gpu = engines.named("cuda:0")  # type: ignore[assignment]
        trial = worker.Trial(kernel, engine)
        found = engine.space(kernel)
        step = max(len(found) // 5, 1)
        options = [engine.options(s) for s in (found.default, *found.schedules[1::step])]
        assert trial.prepare(options, lambda message: None) == [None] * len(options)
        assert engine.identity.startswith("sm_90 ") and "triton" in engine.versions


def test_one_that_needs_too_much_memory_does_not_harm_the_others() -> None:
    kernel = kernel_named("product")
    with fake_cuda.installed():
        engine = engines.named("cuda:0")
        trial = worker.Trial(kernel, engine)
        good = engine.options(engine.space(kernel).default)
        bad = engine.options(Schedule(num_stages=1000))
        found = trial.prepare([good, bad, good], lambda message: None)
    assert found[0] is None and found[2] is None
    assert found[1] is not None and "more shared memory than this GPU has" in found[1][1]


def test_a_device_takes_what_was_found() -> None:
    kernel = kernel_named("product")
    with fake_cuda.installed():
        engine = engines.named("cuda:0")
        chosen = engine.space(kernel).schedules[3]
        own = key.of(kernel, engine.identity, engine.versions)
        with Database() as database:
            database.choose(own, ABOUT, text_of(engine.options(chosen)), 1.0, 2.0)
        choices.forget()
        device: Any = engine.device()
        assert device._tuned(kernel, device.target) == chosen
        other = kernel_named("rows")
        assert device._tuned(other, device.target) == default_schedule(other, device.target)


def test_a_search_begins_with_what_was_predicted_offline() -> None:
    from tilewright.runtime.tuner.session import Session, _Search

    kernel = kernel_named("product")
    with fake_cuda.installed(), Database() as database:
        ranking = rank(Offline("sm_90"), database, kernel, "quick")
        assert len(ranking.first) > 10 and ranking.compiled >= 4
        engine = engines.named("cuda:0")
        search = _Search(Session(engine, database), kernel, "product")
        seeds = search._seeds()
        assert [engine.options(s) for s in seeds] == [o for o, _ in ranking.first[:3]]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["matmul", "attention"])
def test_the_first_of_a_ranking_compile_and_do_not_spill(family: str) -> None:
    from tilewright.ir.dtype import bfloat16
    from tilewright.runtime.tuner.gpu import compiled_ranks

    shape = {"matmul": (1024, 1024, 1024), "attention": (2, 8, 1024, 64)}[family]
    (work,) = families.kernels_of(family, [shape], bfloat16, target="sm_90")
    engine = Offline("sm_90")
    first = engine.space(work.kernel).ranked[:8]
    found = compiled_ranks(engine, work.kernel, first)
    seconds, usage = next(iter(found.values()))
    assert len(found) == 8 and 0 < seconds < 1 and usage is not None and usage.spills == 0
