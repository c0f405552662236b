"""Exports with all sizes dynamic that a model accepts: the table of docs/onnx_export.md."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx_table

FUNCTIONS, MODELS = dict(onnx_table.functions()), dict(onnx_table.models())

FAST = (
    "interpolate bilinear by 2",
    "interpolate nearest to another's size",
    "linspace of sizes",
    "padding to a multiple",
    "max_pool2d ceil padded",
    "adaptive_avg_pool2d to (3, 5)",
    "cummax",
    "grid_sample bicubic reflection",
    "mask of rows",
    "unique with all",
    "GRU 2: {'bidirectional': True}",
    "two sizes",
)


def holds(name: str, make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = onnx_table.examine(*make())
    expected = "right" if name not in onnx_table.EXCEPTIONS else {"fixed", "refused"}
    assert found.state in expected, found


@pytest.mark.parametrize("name", FAST)
def test_functions_of_sizes(name: str) -> None:
    holds(name, FUNCTIONS[name])


@pytest.mark.parametrize("name", ["U-Net", "examples/gpt", "LSTM tagger"])
def test_models(name: str) -> None:
    holds(name, MODELS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in (*FUNCTIONS, *MODELS) if n not in FAST])
def test_the_rest_of_functions_and_models(name: str) -> None:
    holds(name, FUNCTIONS.get(name) or MODELS[name])


@pytest.mark.slow
def test_layers(torch: Any) -> None:
    wrong = []
    for name, make in onnx_table.layers():
        try:
            holds(name, make)
        except AssertionError as error:
            wrong.append((name, str(error)))
    assert not wrong
