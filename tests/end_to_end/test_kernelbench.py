"""KernelBench's problems, small: our values are PyTorch's, shapes and dtypes too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from paths import BENCH

import tilewright as tw

NUMBERS = [
    pytest.param(f"{level}.{i}", marks=[] if i % 5 == 1 else pytest.mark.slow)
    for level in (1, 2)
    for i in range(1, 101)
]
INTERPRETED = "1.12 1.37 1.51 1.82 1.92 2.3 2.31 2.45 2.89".split()
"""Of each family one: what `torch.diag`, whole sums, positions, depthwise and transposed
convolutions, numbers from the host and layer norms of them are on a GPU."""

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """bench/kernelbench.py; the modules beside it are forgotten again."""
    import importlib

    sys.path.insert(0, str(BENCH))
    before = set(sys.modules)
    try:
        yield importlib.import_module("kernelbench")
    finally:
        sys.path.remove(str(BENCH))
        ours = ("kernelbench", "card", "timing", "problems", "predicted")
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ours:
                del sys.modules[name]


def problem_of(bench: ModuleType, number: str) -> Any:
    level, i = map(int, number.split("."))
    return bench.LEVELS[level][i - 1]


@pytest.mark.filterwarnings("ignore:.*size at dim=1.*num_features")
@pytest.mark.parametrize("number", NUMBERS)
def test_problem(bench: ModuleType, torch: Any, number: str) -> None:
    bench.compare(problem_of(bench, number), bench.SMALL, "cpu", tw, torch)


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("number", INTERPRETED)
def test_problem_on_gpu_kernels(bench: ModuleType, torch: Any, number: str) -> None:
    problem = problem_of(bench, number)
    wanted = bench.prepared(problem, torch, bench.SMALL, "cpu", exact=True, dropout=False)()
    found = bench.prepared(problem, tw, bench.SMALL, "interpret", dropout=False)()
    assert bench.errors([found], [wanted.numpy()]) < 1e-5


def test_sizes(bench: ModuleType) -> None:
    """Full sizes are KernelBench's; smaller ones keep what makes a problem what it is."""
    assert [len(problems) for problems in bench.LEVELS.values()] == [100, 100]
    names = [name for name, _ in bench.chosen([1, 2], [])]
    assert len(set(names)) == 200 and names[:2] == ["1.1 matmul, square", "2.1 conv2d, relu, bias"]
    assert problem_of(bench, "1.8").shapes(bench.FULL) == [(8205, 2949), (2949, 5921)]
    (x, y) = problem_of(bench, "1.8").shapes(bench.REDUCED)
    assert x[1] == y[0] and x[1] % 2 == 1
    (deep, thin), (_, one) = problem_of(bench, "1.4").shapes(bench.REDUCED)
    assert one == 1 and thin > deep
    grouped = problem_of(bench, "1.72").model(tw, bench.SMALL)
    assert grouped.op.groups == 2 and grouped.op.weight.shape == (16, 8, 3, 5, 7)


def test_problems_are_chosen_by_number_or_name(bench: ModuleType) -> None:
    assert [n for n, _ in bench.chosen([1, 2], ["2.34", "hinge"])] == [
        "2.34 conv transpose3d, layer norm, gelu, scale",
        "1.100 hinge loss",
    ]


def test_a_wrong_result_is_told(bench: ModuleType, torch: Any) -> None:
    from problems.problem import matrix, problem

    wrong = problem("wrong", lambda t, f, m, x: x + 1e-3 * (t is tw), matrix(4, 4))
    rows = list(bench.rows([("wrong", wrong)], bench.SMALL, "cpu", tw, torch, float("inf")))
    assert "our error" in rows[0]["error"] and "ratio" not in rows[0]


def test_rows_and_summaries(bench: ModuleType, torch: Any) -> None:
    chosen = bench.chosen([1, 2], ["1.19", "2.63"])
    rows = list(bench.rows(chosen, bench.SMALL, "cpu", tw, torch, float("inf")))
    assert all(row["ratio"] > 0 and row["our_error"] < 1e-6 for row in rows)
    level1, level2 = bench.summaries(rows)
    assert level1["goal"] == 1.3 and level2["ratio"] == pytest.approx(rows[1]["ratio"])
    assert list(bench.rows(chosen, bench.SMALL, "cpu", tw, torch, 0.0)) == [
        {"name": "problems that are left", "error": "no time was left"}
    ]


@pytest.mark.slow
@pytest.mark.triton
def test_full_sizes_are_compiled_for_a_gpu_that_is_not_here(bench: ModuleType) -> None:
    import predicted

    row = predicted.predict(problem_of(bench, "2.76"), "sm_90", tw)
    assert row["launches"] == 2  # factors are written as digits first
    assert not row["spills"] and not row["fallbacks"]
    assert 0.5 < row["share"] <= 1.01


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("number", ["1.76", "1.92", "2.66"])
def test_what_once_spilled(bench: ModuleType, number: str) -> None:
    """Addresses of 64 bits, running sums of float64, and random numbers beside whole rows."""
    import predicted

    row = predicted.predict(problem_of(bench, number), "sm_90", tw)
    assert not row["spills"] and not row["fallbacks"]
