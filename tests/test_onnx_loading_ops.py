"""Everything that is exported can be loaded, and computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_oracle import Case

import tilewright as tw

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from test_onnx_ops import CHOSEN, exported, opsets, unsupported


@pytest.mark.parametrize("opset", opsets())
@pytest.mark.parametrize("each", [c for c in CHOSEN if not unsupported(c)], ids=lambda c: c.name)
def test_case(each: Case, opset: int) -> None:
    program, arrays, expected = exported(each, np.float32, opset)
    model: Any = tw.onnx.load(program)
    got = model(*(tw.tensor(a) for a in arrays))
    assert tuple(got.shape) == expected.shape
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=2e-5, atol=2e-5)
