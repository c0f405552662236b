"""Outlines that are made with the package: their names, and that they are what would be learned."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunPython

import tilewright as tw
import tilewright.nn.functional as F
from tilewright.ir import ops
from tilewright.ir.dtype import float32, int64
from tilewright.ir.ops.generate import constant
from tilewright.recording import epoch, lessons, novelty
from tilewright.recording.epoch import clock
from tilewright.runtime.baseline.outlines import Line, Outline
from tilewright.runtime.baseline.templates import Template
from tilewright.runtime.native import pack

TOOL = Path(__file__).parents[3] / "tools" / "usual_calls.py"

MADE = """
from tilewright.recording import lessons
from tilewright.ir.dtype import float32
from tilewright.ir import ops

def outer(n, scale=2.0):
    def build(x):
        return x * n * scale
    return build

for family in ((ops.relu, (float32, 2)), (outer(3), None, "mean", 1.5), (outer(4), True, (1, 2))):
    print(lessons.name(family))
"""


def test_names_are_the_same_in_another_process(run_python: RunPython) -> None:
    first = run_python(MADE)
    assert first == run_python(MADE) and len({*first.splitlines()}) == 3


def test_names_tell_functions_apart_by_what_they_took() -> None:
    def outer(n: Any) -> Any:
        def build(x: Any) -> Any:
            return x * n

        return build

    assert lessons.name((outer(2),)) == lessons.name((outer(2),)) != lessons.name((outer(3),))
    assert lessons.name((outer(ops.relu),)) != lessons.name((outer(ops.tanh),))
    assert lessons.name((1,)) != lessons.name((1.0,)) != lessons.name((True,))
    two, wide = constant(2.0, float32), constant(2, int64)
    assert lessons.name((two,)) != lessons.name((wide,))


@pytest.mark.parametrize("part", [object(), [1], {1: 2}, ops.leaf(0, (2,), float32)])
def test_what_has_no_name_is_not_known(part: Any) -> None:
    with pytest.raises(lessons.Unsaid):
        lessons.name((ops.relu, part))
    assert lessons.outlines((ops.relu, part)) == []


def test_a_function_that_knows_itself_has_no_name() -> None:
    def outer() -> Any:
        def build(x: Any) -> Any:
            return build(x)

        return build

    with pytest.raises(lessons.Unsaid):
        lessons.name((outer(),))


def test_a_function_that_has_not_taken_yet_what_it_reads_is_not_known() -> None:
    def outer() -> Any:
        def build(x: Any) -> Any:
            return x * later

        assert lessons.outlines((build,)) == []
        later = 2
        return build

    outer()


needs_file = pytest.mark.skipif(
    not pack.is_here() or not lessons.FILE.exists(), reason="nothing was made for this machine"
)


@needs_file
def test_the_file_has_what_the_tool_learns(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(TOOL.parent)!r})\n"
        "from pathlib import Path\n"
        "from tilewright.recording import lessons\n"
        f"lessons.FILE = Path({str(tmp_path / 'calls.pack')!r})\n"
        "import usual_calls; usual_calls.main()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True)
    again = pickle.loads((tmp_path / "calls.pack").read_bytes())
    assert again == pickle.loads(lessons.FILE.read_bytes())
    assert len(again[1]) > 1000


@needs_file
def test_usual_calls_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is learned by a step of a usual model."""
    epoch.families.clear()
    epoch.known.clear()
    monkeypatch.setattr(novelty, "REPEATS", 1 << 60)
    monkeypatch.setattr(clock, "volatile", True)
    monkeypatch.setattr(clock, "taping", True)
    nn = tw.nn
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.Sequential(layer, nn.Linear(16, 5))
    updates = tw.optim.AdamW(model.parameters())
    model(tw.ones(2, 7, 16))
    epoch.families.clear()
    x, targets = tw.randn(3, 6, 16), tw.arange(18) % 5
    x.sum().item()
    loss = F.cross_entropy(model(x).reshape(-1, 5), targets)
    loss.backward()
    updates.step()
    loss.item()
    assert epoch.families
    learned = [
        str(place)
        for place, family in epoch.families.items()
        if any(examples for _, examples in family.templates)
    ]
    assert learned == []


@needs_file
def test_nothing_is_known_of_another_default_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "volatile", True)
    epoch.families.clear()
    epoch.known.clear()
    x = tw.rand(3, 4)
    x.tanh()
    (family,) = epoch.families
    assert lessons.outlines(family)
    try:
        tw.set_default_dtype(tw.float64)
        assert lessons.outlines(family) == []
    finally:
        tw.set_default_dtype(tw.float32)
    assert lessons.outlines(family)


def test_a_stale_or_broken_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = (ops.relu, (float32, 1))
    file = tmp_path / "calls.pack"
    monkeypatch.setattr(lessons, "FILE", file)
    monkeypatch.setattr(pack, "is_here", lambda: True)
    lessons._known.cache_clear()
    try:
        assert lessons.outlines(family) == []
        assert lessons.write({family: ["outline"], (object(),): ["unnamed"]}) == 1
        assert lessons.outlines(family) == ["outline"]
        for content in (b"", b"nothing", pickle.dumps(("other sources", {"a": b""}))):
            file.write_bytes(content)
            lessons._known.cache_clear()
            assert lessons.outlines(family) == []
    finally:
        lessons._known.cache_clear()


def test_numbers_of_lessons_have_the_dtypes_that_native_calls_know() -> None:
    number = pickle.loads(pickle.dumps(np.full((), 3, np.float32)))
    line = Line(ops.constant_op, (number,), (), float32, ())
    made = Template(Outline(1, (float32,), True, (), (), (line,), (1,))).seen(
        [np.zeros(2, np.float32)], [(2,)], {}
    )
    assert made == 3 and made.dtype is float32.np
