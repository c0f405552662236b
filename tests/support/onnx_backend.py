"""The cases of ONNX's own backend suite: models, their inputs, and the outputs that ONNX expects.

The package `onnx` brings all of them, so nothing is fetched. As a program it prints the failures
among a share of the cases: `python onnx_backend.py PART OF` runs part 0, 1, … of that many.
"""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import tilewright as tw

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
"""What the suite calls its parts. `real` are architectures with weights that are made up."""

Arrays = list[Any]


@functools.cache
def cases() -> dict[str, Any]:
    """The cases by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the expected outputs overflow and divide by zero
        found = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return {case.name: case for case in found}


_DRAWN = "its expected numbers are one draw of NumPy's generator"
_NEARER = (
    "its expected numbers were rounded to float16 at each step; ours are nearer to the truth, and "
    "differ by up to two units in the last place"
)
_FRACTION = (
    "its expected numbers count with a fractional length; the text of the standard, onnxruntime "
    "and PyTorch count with the whole one"
)
FORM_ONLY: dict[str, str] = {
    "test_squeezenet": "a softmax of numbers of 9e9, where those of float32 are 1,024 apart: each "
    "rounding of the products before it, which depends on the processor, is a one or a zero",
    **{
        f"test_bernoulli{kind}{form}": _DRAWN
        for kind in ("", "_double", "_seed")
        for form in ("", "_expanded")
    },
    **{
        f"test_training_dropout{kind}": _DRAWN
        for kind in ("", "_mask", "_default", "_default_mask")
    },
}
"""Cases of which only shapes and dtypes can be compared, with the reason."""
ROUNDED: dict[str, str] = {
    "test_attention_4d_causal_fp16": _NEARER,
    "test_attention_4d_causal_fp16_expanded": _NEARER,
}
"""Cases of float16 that are compared by two units in the last place, with the reason."""
EXCEPTIONS: dict[str, str] = {
    "test_resize_downsample_scales_cubic_align_corners": _FRACTION,
    "test_resize_downsample_scales_linear_align_corners": _FRACTION,
}
"""The cases that fail, with the reason."""


def failures(names: Sequence[str], calls: int = 1) -> dict[str, str]:
    """Why cases fail on tilewright. calls: how often each model is called; the last call counts."""
    found = {name: failure(name, calls) for name in names}
    return {name: reason for name, reason in found.items() if reason is not None}


def failure(name: str, calls: int = 1) -> str | None:
    """Why the case fails on tilewright, or None if it passes. A warning is a failure, too, where
    warnings are errors."""
    try:
        check(cases()[name], name not in FORM_ONLY, calls)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def check(case: Any, values: bool = True, calls: int = 1) -> None:
    """Compare what tilewright computes with what ONNX expects; without `values` only the form."""
    source, data = _model_and_data(case)
    model = tw.onnx.load(source)
    for inputs, expected in data:
        given = [_value(value) for value in inputs]
        for _ in range(calls):
            found = model(*given)
        outputs = found if isinstance(found, tuple) else (found,)
        assert len(outputs) == len(expected), f"{len(outputs)} outputs instead of {len(expected)}"
        for mine, other in zip(outputs, expected, strict=True):
            if values:
                rtol = 2**-9 if case.name in ROUNDED else case.rtol
                compare(_array(mine), other, rtol, case.atol)
            else:
                form = mine.shape, _array(mine).dtype
                assert form == (other.shape, other.dtype), f"{form} instead of {other}"


def compare(mine: Any, expected: Any, rtol: float, atol: float) -> None:
    """Compare as ONNX's runner does."""
    if expected is None:
        assert mine is None
    elif isinstance(expected, (list, tuple)):
        assert isinstance(mine, list) and len(mine) == len(expected)
        for one, other in zip(mine, expected, strict=True):
            compare(one, other, rtol, atol)
    elif isinstance(expected, dict):
        assert isinstance(mine, dict) and mine.keys() == expected.keys()
        for key, other in expected.items():
            compare(mine[key], other, rtol, atol)
    else:
        expected = np.asarray(expected)
        assert mine.shape == expected.shape, f"shape {mine.shape} instead of {expected.shape}"
        if expected.dtype.kind in "OSU":
            np.testing.assert_array_equal(mine, expected.astype(object))
            return
        assert mine.dtype == expected.dtype, f"dtype {mine.dtype} instead of {expected.dtype}"
        if mine.dtype.name == "bfloat16":
            rtol = max(rtol, 2**-6)  # two units in the last place
        if mine.dtype.isbuiltin == 2:  # NumPy's comparison takes no dtypes of ml_dtypes
            mine, expected = mine.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol)


def _value(value: Any) -> Any:
    """An input as a user gives it: a tensor where its dtype has tensors."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [_value(v) for v in value]
    if isinstance(value, np.ndarray) or np.isscalar(value):
        array = np.asarray(value)
        try:
            return tw.tensor(array)
        except TypeError:
            return array
    return value


def _array(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_array(v) for v in value]
    return value.detach().numpy() if isinstance(value, tw.Tensor) else value


def _model_and_data(case: Any) -> tuple[Any, Sequence[tuple[Arrays, Arrays]]]:
    """The model, and pairs of inputs and expected outputs."""
    if case.model is not None:
        return case.model, [
            ([_plain(v) for v in inputs], [_plain(v) for v in outputs])
            for inputs, outputs in case.data_sets
        ]
    if case.model_dir is None:
        path = Path(onnx.__file__).parent.parent / case.url
        return path, [_light(path)]
    folder = Path(case.model_dir)
    graph = onnx.load(folder / "model.onnx").graph
    return folder / "model.onnx", [
        (_stored(each, "input", graph.input), _stored(each, "output", graph.output))
        for each in sorted(folder.glob("test_data_set*"))
    ]


def _light(path: Path) -> tuple[Arrays, Arrays]:
    """The inputs that the suite makes up for an architecture, and the outputs beside it."""
    graph = onnx.load(path).graph
    given = {i.name for i in graph.initializer}
    inputs = []
    for info in graph.input:
        if info.name not in given:
            shape = [d.dim_value or 1 for d in info.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    outputs = [
        numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_{i}.pb")))
        for i in range(len(graph.output))
    ]
    return inputs, outputs


def _stored(folder: Path, kind: str, infos: Sequence[Any]) -> Arrays:
    """The values in a folder of files, in order."""
    count = len(list(folder.glob(f"{kind}_*.pb")))
    found = []
    for i, info in zip(range(count), infos, strict=False):
        data = (folder / f"{kind}_{i}.pb").read_bytes()
        if info.type.HasField("sequence_type"):
            found.append(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
        elif info.type.HasField("optional_type"):
            found.append(numpy_helper.to_optional(onnx.OptionalProto.FromString(data)))
        else:
            found.append(numpy_helper.to_array(onnx.TensorProto.FromString(data)))
    return found


def _plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


if __name__ == "__main__":
    _part, _of = map(int, sys.argv[1:])
    json.dump(failures(sorted(cases())[_part::_of]), sys.stdout)
