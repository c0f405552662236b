"""The backend suite of ONNX itself: some cases on every run, all of them behind a marker."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from paths import ROOT

pytest.importorskip("onnx")

import onnx_backend

PARTS = 2
SHARE = 100  # one case of so many is among the fast tests
KNOWN = {*onnx_backend.EXCEPTIONS}


@pytest.mark.computes
def test_a_sample_of_the_suite() -> None:
    names = [n for n in sorted(onnx_backend.cases()) if zlib.crc32(n.encode()) % SHARE == 0]
    assert len(names) > 15
    # What is kept from one call must be right in the next one.
    assert not onnx_backend.failures([n for n in names if n not in KNOWN], calls=2)


@pytest.mark.slow
@pytest.mark.onnx
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("engine", ["llvm", "numpy"])
def test_the_suite(engine: str, part: int, run_python: Any) -> None:
    """What isn't among the exceptions passes, and none of the exceptions does."""
    code = (ROOT / "tests" / "support" / "onnx_backend.py").read_text()
    found = json.loads(run_python(code, str(part), str(PARTS), env={"TW_CPU": engine}))
    names = sorted(onnx_backend.cases())[part::PARTS]
    assert found.keys() == KNOWN.intersection(names), found


def test_the_exceptions_are_cases() -> None:
    names = onnx_backend.cases().keys()
    told = {**onnx_backend.EXCEPTIONS, **onnx_backend.FORM_ONLY, **onnx_backend.ROUNDED}
    assert names >= told.keys() and len(names) - len(told) >= 1990


def test_the_page_has_all_operators() -> None:
    """`tools/onnx_suite.py --page` writes it."""
    from tilewright.onnx.loading import table

    page = (ROOT / "docs" / "onnx_loading.md").read_text(encoding="utf-8")
    told = {**onnx_backend.EXCEPTIONS, **onnx_backend.FORM_ONLY, **onnx_backend.ROUNDED}
    lacking = [n for _, n in table.names() if f"`{n}`" not in page]
    lacking += [n for n, reason in told.items() if f"`{n}`" not in page or reason not in page]
    assert not lacking, f"run tools/onnx_suite.py --page: {lacking}"


def test_random_numbers_are_no_constants() -> None:
    """What the suite can't compare: two calls draw differently, and a seed the same."""
    import onnx
    from onnx import TensorProto, helper

    import tilewright as tw

    def model(**options: Any) -> Any:
        node = helper.make_node(
            "RandomNormal", [], ["y"], shape=[4000], mean=3.0, scale=2.0, **options
        )
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4000])
        graph = helper.make_graph([node], "g", [], [output])
        return tw.onnx.load(
            helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])
        )

    free, seeded = model(), model(seed=1.5)
    first, second = free(), free()
    assert not first.equal(second)
    assert seeded().equal(seeded())
    for drawn in (first, seeded()):
        assert abs(drawn.mean().item() - 3) < 0.15 and abs(drawn.std().item() - 2) < 0.15
