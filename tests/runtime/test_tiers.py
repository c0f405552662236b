"""Which tier computes a graph, and that no program can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import recording
from tilewright.runtime import tiers

pytestmark = pytest.mark.usefixtures("fresh_tables")


@pytest.fixture(autouse=True)
def auto(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tiers, "mode", tiers.AUTO)
    # torch.compile lowers them
    for name, value in (("OFTEN", 512), ("GRAPH", 0), ("PRODUCT", 0), ("COMPILER", 0)):
        monkeypatch.setattr(tiers, name, value)
    yield
    recording.flush()
    recording.clear_tables()


def counts() -> tuple[int, int]:
    """The numbers of compiled plans and of graphs that run op by op."""
    return len(tiers.plans()), len(tiers.baselines())


def step(size: int) -> float:
    x = tw.from_numpy(np.arange(float(size), dtype=np.float32))
    return float((x * 2 + 1).sum())


def test_a_graph_is_compiled_when_it_came_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "OFTEN", 3)
    seen = []
    for _ in range(5):
        assert step(10) == 100
        seen.append(counts())
    patience = 2  # tensors of some bytes take a little off the three
    assert seen == [(0, 1)] * patience + [(1, 0)] * (5 - patience)


def runs_until_compiled(run: Callable[[], object]) -> int:
    before, runs = counts()[0], 0
    while counts()[0] == before:
        run()
        runs += 1
    return runs


def test_what_takes_long_to_compile_comes_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler itself is loaded when that pays, a product when it has saved as much."""
    monkeypatch.setattr(tiers, "OFTEN", 20)
    monkeypatch.setattr(tiers, "_ran", 0.0)
    monkeypatch.setattr(tiers, "COMPILER", 200)
    first = runs_until_compiled(lambda: step(10))
    assert 40 < first <= 100  # its two or three ops have run 200 times
    second = runs_until_compiled(lambda: float(tw.arange(8.0).exp().sum() * 2 + 1))
    assert second <= 21
    monkeypatch.setattr(tiers, "PRODUCT", 3)
    x = tw.ones(3, 3)
    assert second < runs_until_compiled(lambda: float((x @ x).exp().sum() * 2 + 1)) < 4 * second


def test_another_size_of_a_compiled_structure_waits_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "OFTEN", 5)
    waits = []
    for size in (10, 11, 12):
        before, runs = counts()[0], 0
        while counts()[0] == before:
            step(size)
            runs += 1
        waits.append(runs)
    assert waits == [5, 10, 15]


def test_large_tensors_are_compiled_at_once() -> None:
    x = tw.zeros(8, 1 << 21)
    assert float((x + 1).exp().sum(0)[0]) == pytest.approx(8 * np.e)
    assert counts()[1] == 0


def test_a_reader_may_ask_for_compiled_code() -> None:
    x = tw.ones(4)
    with tiers.fused():
        assert float((x + 1).sum()) == 8
    assert counts()[1] == 0 and tiers.mode == tiers.AUTO
    assert len(tw.explain(lambda: (x * 3).exp()).plans) == 1


def test_results_do_not_tell_the_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """An elementwise step has the same bits before and after it is compiled."""
    monkeypatch.setattr(tiers, "OFTEN", 4)
    values = []
    for _ in range(8):
        x = tw.linspace(-4, 4, 1001)
        y = tw.nn.functional.gelu(x.sin() * 1.7 - x.exp() / 3) + tw.tanh(x) ** 3
        values.append(y.numpy().copy())
    assert counts()[0] == 1
    assert all(np.array_equal(v, values[0]) for v in values)


def test_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop whose graph grows at each step doesn't keep the program of each."""
    monkeypatch.setattr(tiers, "MOST_STEPS", 100)
    for _again in range(2):
        for length in range(1, 25):
            x = tw.ones(2, dtype=tw.float64)
            for _ in range(length):
                x = x * 2 + 1
            assert x[0].item() == 2 ** (length + 1) - 1
            held = [b.program.steps for b in tiers.baselines() if b.program is not None]
            assert sum(map(len, held)) < 100 + 4 * 60
    assert len(tiers.baselines()) > 20


def test_an_error_is_that_of_a_plan() -> None:
    x = tw.arange(4.0)
    good = x * 2
    bad = x[tw.tensor([1, 9])]
    with pytest.raises(IndexError, match=r"index 9 is out of bounds.*test_tiers\.py"):
        bad.tolist()
    assert good.tolist() == [0, 2, 4, 6]
    with pytest.raises(IndexError):
        bad.tolist()


def test_a_written_leaf_and_its_readers() -> None:
    """Nothing of an op-by-op run is shared with what is written later."""
    x = tw.arange(6.0)
    view, turned, same = x.view(2, 3), x.view(2, 3).T.contiguous(), x.reshape(6)
    y = x + 0
    x += 1
    assert y.tolist() == [0, 1, 2, 3, 4, 5]
    assert view.tolist() == [[1, 2, 3], [4, 5, 6]] and same.tolist() == x.tolist()
    assert turned.tolist() == [[0, 3], [1, 4], [2, 5]]
    y.mul_(3)
    assert x.tolist() == [1, 2, 3, 4, 5, 6]


TRAINING = """
import tilewright as torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
x, y = torch.randn(9, 5), torch.arange(9) % 2
for i in range(40):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x[: 5 + i % 5]), y[: 5 + i % 5])
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_training_is_near_in_all_modes(run_python: Any) -> None:
    found = {
        mode: [float(line) for line in run_python(TRAINING, env={"TW_TIER": mode}).split()]
        for mode in tiers.MODES
    }
    for losses in found.values():
        assert losses[-1] < losses[0] / 2
        np.testing.assert_allclose(losses, found["fused"], rtol=1e-4)


def test_an_unknown_mode_is_an_error(run_python: Any) -> None:
    code = """
try:
    import tilewright
    tilewright.ones(2).sum().item()
except RuntimeError as error:
    print(error)
"""
    assert "expected one of auto, fused, baseline" in run_python(code, env={"TW_TIER": "fast"})


def test_debug_tells_the_tier(run_python: Any) -> None:
    code = """
import sys, tilewright as torch
sys.stderr = sys.stdout
for _ in range(30):
    x = torch.ones(3)
    for _ in range(10):
        x = x.exp() - 1
    x.sum().item()
"""
    told = run_python(code, env={"TW_TIER": "auto", "TW_DEBUG": "1"})
    first, second, third, *_ = told.splitlines()
    assert "computed when they are made" in first
    assert "the same work comes again: calls are recorded" in second
    assert "compiled after" in third
