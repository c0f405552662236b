"""Random programs on native code, NumPy and Triton's interpreter; see fuzz_backends.py."""

from __future__ import annotations

import importlib.util
import random
from dataclasses import replace

import numpy as np
import pytest
from drawn import QUIET
from fuzz_backends import Failure, attempt, engines_of, of_seed, smallest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import Writer, scope
from random_steps import STEPS_OF, random_program

from tilewright.runtime.native import host

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

SLOWLY = [] if importlib.util.find_spec("triton") is None else ["interpret"]


def holds(choose: random.Random, small: bool = False) -> None:
    program = random_program(choose, small)
    engines = ["numpy", "llvm"] + (SLOWLY if small else [])
    try:
        attempt(program, engines)
    except Exception as error:
        pytest.fail(f"{type(error).__name__}: {error}\n{smallest(program, engines)}")


@settings(QUIET, max_examples=150)
@given(st.randoms(use_true_random=False))
def test_native_code_and_numpy_agree(choose: random.Random) -> None:
    holds(choose)


@settings(QUIET, max_examples=15)
@given(st.randoms(use_true_random=False))
def test_the_interpreter_agrees(choose: random.Random) -> None:
    holds(choose, small=True)


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 60), *(pytest.param(n, 200, marks=pytest.mark.slow) for n in range(1000, 3000, 200))],
)
def test_many_programs(first: int, count: int) -> None:
    for seed in range(first, first + count):
        program = of_seed(seed)
        engines = [e for e in engines_of(seed) if e != "interpret" or SLOWLY]
        try:
            attempt(program, engines)
        except Exception as error:
            text = f"seed {seed}: {type(error).__name__}: {error}\n{smallest(program, engines)}"
            pytest.fail(text)


FOUND = {
    "the gradient of a convolution from a constant": """
        leaf(0, (3, 1, 3), float64)
        leaf(1, (1, 1, 2), float64)
        gradient(ops.conv(n0, n1, (1,), ((0, 2),), (1,), 1), n0)""",
    "a position all lanes share, under a guard that lanes differ in": """
        leaf(0, (1, 16, 17), float32)
        leaf(1, (1,), int64)
        ops.gather(ops.neg(ops.cat([n0, n0], 2)), n1, 1)""",
    "positions that are checked under a guard of more dimensions": """
        leaf(0, (1, 7, 2), float32)
        leaf(1, (9,), int64)
        ops.gather(ops.pad(n0, [0, 1, 0], [0, 0, 1], [0, 0, 1], ops.constant(1, float32)), n1, 2)
        """,
    "a guard whose conditions read data": """
        leaf(0, (4, 3), float32)
        leaf(1, (2, 3), float32)
        leaf(2, (2,), int64)
        ops.sum(ops.gather(ops.pad(n1, [1, 0], [2, 0]), n2, 0), (1,))""",
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str) -> None:
    w = Writer(random.Random(0))
    for text in FOUND[name].split("\n")[1:]:
        text = text.strip()
        if text.startswith("leaf("):
            node = eval(text, w.names)
            data = np.arange(1, node.shape.numel() + 1).reshape(node.shape) % 2
            x = w.leaf(tuple(node.shape), node.dtype.name, data)
        elif text:
            x = w.line(text)
    attempt(replace(w.program, roots=[x.name]), ["numpy", "llvm"])


@pytest.mark.parametrize("step", [step for step, _ in STEPS_OF], ids=lambda s: s.__name__)
def test_every_kind_of_step_is_taken(step) -> None:  # type: ignore[no-untyped-def]
    """Each adds lines, so that none has quietly become nothing."""
    w = Writer(random.Random(7))
    w.leaf((3, 4), "float32")
    w.leaf((3, 4), "int32")
    before = len(w.program.lines)
    for _ in range(30):
        step(w)
    assert len(w.program.lines) > before + 10


def test_a_wrong_result_is_found_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    import fuzz_backends

    w = Writer(random.Random(0))
    x = w.leaf((5,), "float32", np.arange(5) / 4)
    for _ in range(4):
        x = w.line(f"ops.add({x.name}, {x.name})", x.bound * 2, x.grid)
    program = replace(w.program, roots=[x.name])
    fuzz_backends.attempt(program, ["numpy", "llvm"])

    right = fuzz_backends.run

    def wrong(program, device):  # type: ignore[no-untyped-def]
        values = right(program, device)
        if device is fuzz_backends.device("llvm") and "n4" in program.roots:
            values = [v + 1 for v in values]
        return values

    monkeypatch.setattr(fuzz_backends, "run", wrong)
    with pytest.raises(Failure, match="n4 on llvm: 5 of 5 differ"):
        fuzz_backends.attempt(program, ["numpy", "llvm"])
    found = smallest(program, ["numpy", "llvm"])
    assert [text for _, text in found.lines] == ["leaf(1, (5,), float32)", "ops.add(n3, n3)"]
    assert scope(True)["float32"].name == "float64"
