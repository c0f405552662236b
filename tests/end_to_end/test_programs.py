"""Scripts as people write them, step by step beside PyTorch; see tests/programs/."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from program_runs import Work, difference, engine, limit, run
from programs import PROGRAMS, Program, all_programs

import tilewright as tw
from tilewright import recording

SECONDS = 30
"""A program that takes longer hangs. Each takes a few tenths of a second."""


def marked(program: Program) -> Any:
    marks = []
    if program.broken:  # until it is mended
        marks.append(pytest.mark.xfail(strict=True, reason=program.broken))
    return pytest.param(program, id=program.name, marks=marks)


def slow(engine: str) -> Any:
    return pytest.param(engine, marks=pytest.mark.slow)


each_program = pytest.mark.parametrize("program", [marked(p) for p in all_programs()])


@functools.cache
def expected(name: str, steps: int, late: bool, dtype: str) -> Any:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return run(torch, PROGRAMS[name], steps, late=late, dtype=dtype)
    finally:
        torch.set_num_threads(threads)


def check(
    program: Program, on: str, steps: int, late: bool, dtype: str, around: Any = None
) -> None:
    wanted = expected(program.name, steps, late, dtype)
    for made in wanted:  # PyTorch may refuse a program, but not because of a slip in it
        if isinstance(made, tuple) and made[0] == "fails":
            assert made[1][0] not in ("NameError", "AttributeError", "TypeError"), made[2]
    with limit(SECONDS), engine(on):
        found = run(tw, program, steps, late=late, dtype=dtype, around=around)
        recording.flush()
    wrong = difference(found, wanted, program.loose, program.name)
    assert wrong is None, wrong


@each_program
@pytest.mark.parametrize("on", ["auto", *(slow(e) for e in ("fused", "eager", "numpy"))])
def test_each_step_is_as_under_torch(torch: Any, program: Program, on: str) -> None:
    check(program, on, 4, False, "float32")


@pytest.mark.slow
@each_program
def test_late_steps_are_right_and_work_as_early_ones(torch: Any, program: Program) -> None:
    """50 steps whose values nobody reads on the way. From step 45 on nothing is new, and no more
    functions are called than 20 steps before."""
    work = Work(range(25, 30), range(45, 50))
    check(program, "auto", 50, True, "float64", work.around)
    if not program.varies:
        assert work.new[1] == 0, f"{work.new} nodes and plans are new in steps 25 to 30, 45 to 50"
        early, late = work.calls
        assert late <= 1.3 * early + 500, f"{late} calls in steps 45 to 50, {early} in 25 to 30"
