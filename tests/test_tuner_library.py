"""Tuning the configs of kernels that the user wrote, on the driver that interprets launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fake_cuda
import library_kernels as kernels
import triton
from fake_kernels import compile_many

import tilewright as tw
from tilewright.codegen.lower.external import Autotuned
from tilewright.library import wrap_triton
from tilewright.runtime import offline
from tilewright.runtime.interpret import modules
from tilewright.runtime.results import choices
from tilewright.runtime.results import key as keys
from tilewright.runtime.results.database import Database
from tilewright.runtime.results.record import MEASURED, About, CannotTune, text_of
from tilewright.runtime.tuner import engines, worker
from tilewright.runtime.tuner.session import Session
from tilewright.runtime.tuner.users import Users
from tilewright.tuning.work import launched_by

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("own_database")]
ABOUT = About("tuned_scale", "custom", "float32", 5)
FIRST, SECOND, THIRD, WRONG, BROKEN = (
    {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    for config in kernels.several
)


def compiled(
    requests: list[offline.Request], processes: int | None = None
) -> list[offline.Compiled]:
    """As Triton would, one of the configs can't be compiled."""
    if any(r.constexprs.get("BLOCK") == 8 for r in requests):
        raise RuntimeError("static_assert")
    return compile_many(requests, processes)


class FakeUsers(Users):
    """In a worker: the driver that interprets, which needs the kernels' text."""

    def __init__(self) -> None:
        self._installed = fake_cuda.installed(compiler=compiled)
        self._installed.__enter__()
        function = kernels.tuned_scale.fn
        modules.adopt(function.cache_key, function)
        super().__init__("cuda:0")


def scale(x: Any, factor: float = 2.0) -> Any:
    out = tw.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)  # noqa: E731
    wrap_triton(kernels.tuned_scale)[grid](x, out, x.numel(), factor)
    return out


def launched(n: int = 300, dtype: Any = tw.float32) -> Autotuned:
    """What the tuner is given for a launch on n numbers."""
    x = tw.ones(n, dtype=dtype, device="cuda")
    work = launched_by(lambda: scale(x).tolist())
    (kernel,) = (each.kernel for each in work if isinstance(each.kernel, Autotuned))
    return kernel


def origin(n: int, factor: float = 2.0) -> str:
    """Where the config of a launch is from; its values are looked at too."""
    x = tw.tensor(np.arange(n, dtype=np.float32), device="cuda")
    report = tw.explain(lambda: np.asarray(scale(x, factor).cpu().numpy()))
    np.testing.assert_array_equal(
        scale(x, factor).cpu().numpy(), np.arange(n, dtype=np.float32) * np.float32(factor)
    )
    (found,) = (o for plan in report.plans for o in plan.origins())
    assert found in report.text()
    return found


def keep(n: int, options: dict[str, Any]) -> None:
    """What a search of that size would have found."""
    engine = engines.named("users@cuda:0")
    with Database() as database:
        own = keys.of(launched(n), engine.identity, engine.versions)
        database.choose(own, ABOUT, text_of(options), 1.0, 1.3)
    choices.forget()


def test_the_space_is_that_of_the_configs() -> None:
    with fake_cuda.installed():
        kernel = launched()
        space = engines.named("users@cuda:0").space(kernel)
    assert [dict(s) for s in space.schedules] == [FIRST, SECOND, THIRD, WRONG, BROKEN]
    # BLOCK, num_stages and num_warps, each by its values in their order
    assert [*space.places.values()] == [(2, 1, 0), (3, 1, 1), (4, 0, 1), (1, 1, 0), (0, 1, 0)]
    assert not space.predicted and space.ranked[0] == space.default
    assert [(b.name, b.size) for b in (*kernel.outputs, *kernel.inputs)] == [
        ("out_ptr", 300),
        ("x_ptr", 300),
    ]
    grids = [e.programs[0] for e in kernel.launches.values()]
    assert grids == [triton.cdiv(300, block) for block in (32, 64, 128, 16, 8)]


def test_candidates_are_compared_with_the_first_config() -> None:
    with fake_cuda.installed(compiler=compiled):
        kernel, engine = launched(), engines.named("users@cuda:0")
        trial = worker.Trial(engine.read(engine.written(kernel)), engine)
        candidates = engine.candidates(kernel, engine.space(kernel).schedules)
        found = trial.prepare(candidates, lambda message: None)
        times = trial.measure([0, 1], 2, lambda message: None)
    assert found[:3] == [None] * 3
    assert found[3] is not None and found[3][0] == "wrong" and "element 299" in found[3][1]
    assert found[4] == ("failed", "RuntimeError: RuntimeError: static_assert")
    assert len(times) == 2 and all(t > 0 for each in times for t in each)


def test_a_search_in_a_process_of_its_own() -> None:
    with fake_cuda.installed(compiler=compiled), Database() as database:
        kernel, engine = launched(), engines.named("users@cuda:0")
        session = Session(engine, database, engine_name="test_tuner_library:FakeUsers")
        result = session.tune(kernel)
        record = database.record(keys.of(kernel, engine.identity, engine.versions))
        assert result.complete and result.known == len(kernels.several)
        assert record is not None and record.about.family == "custom"
        status = {text: found.status for text, found in record.candidates.items()}
        assert status == {
            **dict.fromkeys(map(text_of, (FIRST, SECOND, THIRD)), MEASURED),
            text_of(WRONG): "wrong",
            text_of(BROKEN): "failed",
        }
        assert record.chosen in (FIRST, SECOND, THIRD)
        choices.forget()
        assert origin(300).startswith("tuned, ")
        assert session.tune(kernel).measured == 0, "it is known"


def test_one_whose_first_config_does_not_compile() -> None:
    def compiler(requests: list[offline.Request], *rest: Any) -> list[offline.Compiled]:
        if any(r.constexprs.get("BLOCK") == 32 for r in requests):
            raise RuntimeError("static_assert")
        return compiled(requests)

    with fake_cuda.installed(compiler=compiler), Database() as database:
        kernels.tuned_scale.cache[(77, *["torch.float16"] * 2)] = kernels.several[1]
        try:
            kernel = launched(77, tw.float16)
        finally:
            kernels.tuned_scale.cache.clear()
        session = Session(engines.named("users@cuda:0"), database)
        with pytest.raises(CannotTune, match=r"first config doesn't compile: .*static_assert"):
            session.tune(kernel)


def test_launches_get_what_was_found() -> None:
    with fake_cuda.installed() as fake:
        assert origin(300) == "autotune: first config"
        keep(300, SECOND)
        text = "1.30 times as fast as the default: BLOCK=64 num_stages=3 num_warps=4"
        assert origin(300) == f"tuned, {text}"
        assert fake.launches[-1].request.constexprs["BLOCK"] == 64
        near = origin(301)
        assert near.startswith("tuned for sizes ") and near.endswith(text)
        assert origin(5000) == "autotune: first config", "too far away"
        # One that isn't among the configs any more counts for nothing.
        keep(300, {**SECOND, "BLOCK": 48})
        assert origin(300) == "autotune: first config"


def test_a_pinned_config_comes_first() -> None:
    with fake_cuda.installed() as fake:
        keep(300, SECOND)
        pinned = 300, *["torch.float32"] * 2
        kernels.tuned_scale.cache[pinned] = kernels.several[2]
        try:
            assert origin(300) == "pinned in its cache"
            assert fake.launches[-1].request.constexprs["BLOCK"] == 128
        finally:
            kernels.tuned_scale.cache.clear()
        assert origin(300).startswith("tuned, ")


def test_numbers_that_change_are_those_of_a_launch() -> None:
    """A number that is an input of the run has the value of the launch that was recorded."""
    with fake_cuda.installed():
        x = tw.ones(40, device="cuda")
        for factor in (2.0, 3.0, 4.0, 5.0, 6.5):
            work = launched_by(lambda f: scale(x, f).tolist(), [factor])
        (kernel,) = (w.kernel for w in work if isinstance(w.kernel, Autotuned))
        engine: Any = engines.named("users@cuda:0")
        assert len(kernel.scalars) == 1 and kernel.scalars[0] in (5.0, 6.5)
        case = engine.case(engine.device(), engine.read(engine.written(kernel)))
        (x_before,), (out,) = case.inputs, case.expected
        np.testing.assert_allclose(out, x_before * np.float32(kernel.scalars[0]))


def test_outputs_hold_numbers_before_a_launch_and_integers_are_zeros() -> None:
    with fake_cuda.installed():
        engine = engines.named("users@cuda:0")
        case = engine.case(engine.device(), engine.read(engine.written(launched())))
        assert all(a.min() > 0 for a in (*case.before, *case.inputs))
        whole = launched(dtype=tw.int32)
        case = engine.case(engine.device(), engine.read(engine.written(whole)))
        assert all(not a.any() for a in (*case.before, *case.inputs))


def test_a_report_tells_what_is_tuned_where() -> None:
    report = tw.tune(lambda x: scale(x).tolist(), tw.ones(300), effort="quick", progress=False)
    (skipped,) = (reason for name, reason in report.skipped if name == "tuned_scale")
    assert "tuned on cuda: on cpu Triton's interpreter runs the kernel" in skipped
    (plan,) = tw.explain(lambda: scale(tw.ones(300)).tolist()).plans
    assert "autotune: first config" in plan.origins()
