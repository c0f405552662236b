"""Random training scripts beside PyTorch; see fuzz_programs.py."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fuzz_programs import STEPS, check, wrong
from random_training import program_of, repaired, script, smallest, text_of

from tilewright import recording

BLOCK = 20


@pytest.fixture(autouse=True)
def quiet(torch: Any, recwarn: pytest.WarningsRecorder) -> None:
    """PyTorch's warnings don't matter here."""


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(pytest.param(n, marks=pytest.mark.slow) for n in range(BLOCK, 200, BLOCK)),
    ],
)
def test_random_scripts(torch: Any, first: int) -> None:
    for seed in range(first, first + BLOCK):
        found = check(seed, torch)
        assert found is None, found
    recording.clear_tables()


FOUND = {
    "a view of a leaf that is a view, used in a later epoch": """
        w1 = draw(4, 3)
        for step in range(100):
            h2 = w1.detach().requires_grad_(True)
            h3 = h2.t()
            h4 = h3.tolist()
            h3.pow(2).sum().backward()
            yield [h2, w1]""",
    "an in-place activation that begins an epoch": """
        w1 = draw(4, 3, requires_grad=True)
        for step in range(100):
            h2 = w1 * 2
            h3 = h2.tolist()
            torch.nn.functional.leaky_relu(h2, 0.1, inplace=True)
            h2.pow(2).sum().backward()
            yield [h2, w1]""",
    "a parameter made in the epoch of its step": """
        m1 = draw.into(torch.nn.Linear(3, 3))
        o2 = torch.optim.Adam(m1.parameters())
        for step in range(100):
            m1.weight = torch.nn.Parameter(m1.weight.detach() * 0.5)
            o2.param_groups[0]["params"] = list(m1.parameters())
            m1(draw(4, 3)).pow(2).sum().backward()
            o2.step()
            yield [m1]""",
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("on", ["auto", "fused", "eager", "numpy"])
def test_what_was_found(torch: Any, name: str, on: str) -> None:
    texts = [t.strip() for t in FOUND[name].split("\n")[1:] if not t.strip().startswith("for ")]
    inside = FOUND[name].split("\n").index("        for step in range(100):") - 1
    lines = [(t, i >= inside) for i, t in enumerate(texts)]
    for late in (False, True):
        assert wrong(lines, torch, on, late) is None


def test_scripts_train(torch: Any) -> None:
    """Most have a backward pass and an update left after what PyTorch refuses is out."""
    texts = [text_of(repaired(script(random.Random(s)), torch, STEPS)) for s in range(30)]
    assert sum("backward(" in t for t in texts) > 15
    assert sum(".step()" in t or "-= 0." in t or "add_(" in t for t in texts) > 10


def test_a_difference_is_found_and_cut_down(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import tilewright as tw

    lines = [("w1 = draw(4, 3, requires_grad=True)", False)]
    lines += [(f"h{i} = draw(4, 3)", True) for i in range(2, 5)]
    lines += [("l5 = (w1.sinh() + h3).sum()", True), ("l5.backward()", True)]
    lines += [("yield [w1, l5, h2]", True)]
    assert wrong(lines, torch, "auto", False) is None
    monkeypatch.setattr(tw.Tensor, "sinh", tw.Tensor.cosh)

    def fails(fewer: Any) -> bool:
        try:
            return wrong(fewer, torch, "auto", False) is not None
        except Exception:
            return False

    assert fails(lines)
    shorter = smallest(lines, fails)
    assert len(shorter) < len(lines) and "sinh" in text_of(shorter)
    assert program_of(shorter).name == "script"
