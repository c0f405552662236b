"""Work in a stream of its own inside a segment, as collectives will be.

The fake driver finds accesses to memory that nothing orders, and tells whether a launch and the
work beside it are ordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import triton_kernels
from fake_cuda import FakeCuda, installed

from tilewright.codegen.lower.host import Routine
from tilewright.codegen.program import Program, Slot, Step
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import intern
from tilewright.ir.op import REGISTRY, Kind
from tilewright.ir.shape import Size
from tilewright.runtime import devices
from tilewright.runtime.cuda import beside
from tilewright.runtime.cuda.graphs import WARM
from tilewright.runtime.run import run_segment
from tilewright.runtime.segments import segment

pytestmark = pytest.mark.triton
SHAPE = (2, 5)
OP = next(op for op in REGISTRY.values() if op.kind is Kind.HOST)
TYPE = (SHAPE, dt.float32)
failing: list[Exception] = []


def copies(routine: Routine) -> beside.Work:
    """Work that copies its operands to its results."""

    def work(buffers: Sequence[Any], stream: int) -> None:
        if failing:
            raise failing.pop()
        count = len(routine.outputs)
        driver = devices.get("cuda:0").driver  # type: ignore[attr-defined]
        for target, source in zip(buffers[:count], buffers[count:], strict=True):
            driver.cuMemcpyDtoDAsync_v2(target.pointer, source.pointer, source.nbytes, stream)

    return work


@pytest.fixture(params=[None, 1, 2, 3])
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    monkeypatch.setitem(beside.WORK, OP, copies)
    failing.clear()
    with installed(seed=request.param) as driver:
        yield driver


def program(between: int, behind: int = 1) -> Program:
    """x summed, and handed on by work beside; y summed several times meanwhile; what was handed on
    summed, and both handed on."""
    kernel = triton_kernels.scan("sum", *SHAPE, dt.float32)
    work = Routine(OP, (), (TYPE,), (TYPE,))
    steps = [Step(kernel, (2,), (0,)), Step(work, (3,), (2,))]
    slot = 1
    count = 4
    for _ in range(between):
        steps.append(Step(kernel, (count,), (slot,)))
        slot, count = count, count + 1
    last = 3
    for _ in range(behind):  # the first one waits
        steps.append(Step(kernel, (count,), (last,)))
        last, count = count, count + 1
    steps += [Step(work, (count,), (last,)), Step(work, (count + 1,), (slot,))]
    slots = tuple(Slot(SHAPE, dt.float32, None) for _ in range(count + 2))
    leaves = {intern(ops.leaf, (), (i, Size(SHAPE), dt.float32), None): i for i in range(2)}
    return Program(slots, leaves, (), tuple(steps), (count, count + 1))


def ran(made: Any, x: np.ndarray, y: np.ndarray) -> tuple[list[Any], list[Exception]]:
    card = devices.get("cuda:0")
    failures: list[Exception] = []
    given = [card.from_numpy(x), card.from_numpy(y)]
    found = run_segment(made, given, (), {}, (), failures)
    return [b if isinstance(b, Exception) else card.to_numpy(b) for b in found], failures


def sums(x: np.ndarray, times: int) -> np.ndarray:
    x = x.astype(np.float64)
    for _ in range(times):
        x = x.cumsum(1)
    return x


@pytest.mark.parametrize("between, behind", [(0, 1), (1, 1), (4, 1), (1, 3), (3, 3)])
def test_only_what_uses_it_waits(fake: FakeCuda, between: int, behind: int) -> None:
    """Launches one by one, and as graphs: a graph ends where another one has to wait."""
    card = devices.get("cuda:0")
    made = segment(card, program(between, behind), [SHAPE, SHAPE])
    rng = np.random.default_rng(between)
    for _ in range(WARM + 2):
        x, y = rng.standard_normal((2, *SHAPE)).astype(np.float32)
        before = len(fake.races.work)
        (first, second), failures = ran(made, x, y)
        assert not failures
        np.testing.assert_allclose(first, sums(x, 1 + behind), rtol=1e-4)
        np.testing.assert_allclose(second, sums(y, between), rtol=1e-4)
        steps = [
            i
            for i in range(before, len(fake.races.work))
            if fake.races.work[i].name in ("sum", "a copy")
        ]
        # By place: the sum of x, the work, the sums of y, the sum of what was handed on.
        names = [fake.races.work[i].name for i in steps]
        assert names == ["sum", "a copy", *["sum"] * (between + behind), "a copy", "a copy"]
        work = steps[1]
        assert fake.races.ordered(steps[0], work)
        assert fake.races.ordered(work, steps[2 + between])
        assert not any(fake.races.ordered(work, i) for i in steps[2 : 2 + between])
    assert fake.graph_launches == 2 * ((between >= 3) + (behind >= 3))


def test_after_an_error_all_work_is_waited_for(fake: FakeCuda) -> None:
    card = devices.get("cuda:0")
    made = segment(card, program(4), [SHAPE, SHAPE])
    x, y = np.ones((2, *SHAPE), np.float32)
    for run in range(WARM + 4):
        if run % 2:
            failing.append(RuntimeError("a neighbour is gone"))
        (first, second), failures = ran(made, x, y)
        np.testing.assert_allclose(second, sums(y, 4), rtol=1e-5)
        if run % 2:
            assert isinstance(first, Exception) and "neighbour" in str(failures[0])
        else:
            np.testing.assert_allclose(first, sums(x, 2), rtol=1e-5)


def test_a_routine_without_such_work_is_refused(fake: FakeCuda) -> None:
    del beside.WORK[OP]
    with pytest.raises(NotImplementedError, match="runs no routines of the host"):
        segment(devices.get("cuda:0"), program(1), [SHAPE, SHAPE])
