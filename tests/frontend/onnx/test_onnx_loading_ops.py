"""Everything that is exported can be loaded, and computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_oracle import Case

import tilewright as tw
from tilewright import recording
from tilewright.ir.op import REGISTRY

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_cases import (
    CHOSEN,
    DIVISORS,
    EDGES,
    EDGY,
    INTEGER_CASES,
    INTEGERS,
    exported,
    opsets,
    unsupported,
)
from onnx_session import operators

from tilewright.onnx.loading.table import find

SUPPORTED = [c for c in CHOSEN if not unsupported(c)]


def result(program: Any, *arrays: np.ndarray) -> np.ndarray:
    opset = program.model_proto.opset_import[0].version
    missing = [name for name in operators(program) if find(name, opset) is None]
    if missing:
        pytest.skip(f"loading has no {', '.join(missing)}")
    model: Any = tw.onnx.load(program)
    found: np.ndarray = model(*(tw.tensor(a) for a in arrays)).detach().numpy()
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("each", SUPPORTED, ids=lambda c: c.name)
def test_case(each: Case) -> None:
    """In every opset; nodes and versions of operators that came before load as they did then."""
    loaded = []
    for opset in opsets():
        program, arrays, expected = exported(each, np.float32, opset)
        graph = program.model_proto.graph.SerializeToString()
        parts = graph, [find(name, opset) for name in operators(program)]
        if parts in loaded and None not in parts[1]:
            continue
        loaded.append(parts)
        got = result(program, *arrays)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize("each", SUPPORTED, ids=lambda c: c.name)
def test_case_of_other_width(each: Case, dtype: Any) -> None:
    program, arrays, expected = exported(each, dtype, 18)
    if each.name == "det" and dtype is np.float16:  # PyTorch has no factorizations of halves
        with pytest.raises(tw.onnx.errors.OnnxLoaderError, match="not implemented for 'Half'"):
            result(program, *arrays)
        return
    got = result(program, *arrays).astype(np.float64)
    # Attributes, such as an epsilon, are float32 in ONNX.
    tolerance = 2e-2 if dtype is np.float16 else 1e-6
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def same_as_recorded(f: Callable[..., Any], *arrays: np.ndarray) -> None:
    """The loaded export of `f` beside `f` itself, on which test_onnx_ops has onnxruntime's word."""

    def recorded(*tensors: Any) -> Any:
        return recording.record(f, *tensors)

    tensors = tuple(tw.tensor(a) for a in arrays)
    expected, got = (
        recorded(*tensors).numpy(),
        result(tw.onnx.export(recorded, tensors, verify=False), *arrays),
    )
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("name", INTEGER_CASES)
def test_integers(name: str) -> None:
    same_as_recorded(INTEGER_CASES[name], INTEGERS, DIVISORS)


@pytest.mark.parametrize("name", EDGY.split())
def test_edges(name: str) -> None:
    same_as_recorded(REGISTRY[name], EDGES.astype(np.float32))
