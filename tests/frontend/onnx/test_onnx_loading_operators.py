"""Operators with the attributes that exporters give them, each beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.onnx import load

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_models import ints, model_of, same

RNG = np.random.default_rng(1)


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def numbers(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


Case = tuple[str, Any, Mapping[str, Any], int]
"""(operator, its inputs, attributes, opset). The first input and those in a list of their own are
given when the model runs; other arrays are initializers, and None is one that is left out."""

IMAGE, ROWS = real(2, 4, 9, 7), real(3, 5)
KERNEL = real(6, 4, 3, 2)
CONV = [IMAGE, [KERNEL]]
UP = [real(2, 4, 5, 3), [real(4, 3, 3, 2)], [real(3)]]
NORM = [IMAGE, [real(4)], [real(4)]]


def case(op_type: str, inputs: Any, opset: int = 18, **attributes: Any) -> Case:
    return op_type, inputs, attributes, opset


CASES = [
    case("Conv", CONV, auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", CONV, auto_pad="SAME_LOWER", strides=[3, 2]),
    case("Conv", CONV, auto_pad="VALID"),
    case("Conv", CONV, pads=[1, 0, 2, 1]),
    case("Conv", [real(2, 4, 9), [real(6, 2, 3)], [real(6)]], group=2, pads=[1, 1]),
    case("Conv", [real(1, 2, 5, 6, 4), [real(3, 2, 2, 3, 2)]], strides=[1, 2, 1]),
    case("ConvTranspose", UP, strides=[2, 2], pads=[1, 0, 1, 0], output_padding=[1, 1]),
    case("ConvTranspose", UP, strides=[2, 2], pads=[1, 0, 0, 1]),
    case("ConvTranspose", UP, strides=[2, 3], output_shape=[10, 8]),
    case("ConvTranspose", UP, strides=[2, 2], auto_pad="SAME_UPPER"),
    case("ConvTranspose", [real(1, 4, 6), [real(4, 2, 3)]], group=2, dilations=[2]),
    case("MaxPool", [IMAGE], kernel_shape=[3, 2]),
    case("MaxPool", [IMAGE], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("MaxPool", [IMAGE], kernel_shape=[3, 3], pads=[0, 1, 2, 1], dilations=[2, 1]),
    case("MaxPool", [IMAGE], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    case("AveragePool", [IMAGE], kernel_shape=[3, 2], pads=[1, 0, 1, 1]),
    case("AveragePool", [IMAGE], kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1),
    case("AveragePool", [IMAGE], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
    case("AveragePool", [IMAGE], opset=19, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("GlobalMaxPool", [IMAGE]),
    case("LRN", [IMAGE], size=3, alpha=0.1, beta=0.5, bias=2.0),
    case("InstanceNormalization", NORM, epsilon=1e-3),
    case("LayerNormalization", [IMAGE, [real(9, 7)]], axis=2),
    case("GroupNormalization", [IMAGE, [real(2)], [real(2)]], num_groups=2),
    case("GroupNormalization", NORM, opset=21, num_groups=2),
    case("LpNormalization", [ROWS], axis=0, p=2),
    case("Gemm", [ROWS, [real(5, 4)], [real(3, 1)]], alpha=0.5, beta=2.0),
    case("Gemm", [real(5, 3), [real(4, 5)], [real(4)]], transA=1, transB=1),
    case("Gemm", [ROWS, [real(5, 4)]]),
    case("Einsum", [real(2, 3, 4), [real(2, 5, 4)]], equation="bij,bkj->bik"),
    case("Softmax", [real(2, 3, 4)], opset=11, axis=1),
    case("LogSoftmax", [real(2, 3, 4)], opset=12),
    case("LogSoftmax", [real(2, 3, 4)], axis=0),
    case("HardSigmoid", [ROWS], alpha=0.3, beta=0.4),
    case("Selu", [ROWS], alpha=1.5, gamma=2.0),
    case("PRelu", [IMAGE, [real(4, 1, 1)]]),
    case("ThresholdedRelu", [ROWS], alpha=0.5),
    case("Shrink", [ROWS], lambd=0.4, bias=0.2),
    case("Clip", [ROWS], opset=10, min=-0.5, max=0.5),
    case("Clip", [ROWS, None, np.float32(0.5)]),
    case("Pow", [ROWS, np.int64(3)]),
    case("Max", [ROWS, [real(5)], [real(3, 1)]]),
    case("Mean", [ROWS, [real(5)]]),
    case("Mod", [[np.array([7, -7, 5])], [np.array([3, 3, -3])]]),
    case("Div", [[np.array([7, -7, 5])], [np.array([2, 2, -2])]]),
    case("IsInf", [numbers(1, np.inf, -np.inf)], detect_negative=0),
    case("Where", [[np.array([True, False])], [real(3, 2)], [real(2)]]),
    case("Cast", [numbers(-1.5, 2.7, 0)], to=7),
    case("ReduceMean", [IMAGE], opset=13, axes=[-1, 1], keepdims=0),
    case("ReduceMean", [IMAGE, ints(2, 3)]),
    case("ReduceL2", [IMAGE, ints(1)], keepdims=0),
    case("ReduceSum", [IMAGE], opset=13, keepdims=0),
    case("ReduceSum", [IMAGE, ints()], noop_with_empty_axes=1),
    case("ReduceProd", [ROWS, ints(0, -1)], keepdims=0),
    case("ReduceMax", [np.float32(3)]),
    case("ReduceLogSumExp", [ROWS, ints(-1)]),
    case("ReduceSumSquare", [ROWS, ints(0)], keepdims=0),
    case("ReduceMax", [[np.array([[1, 5], [7, 2]])], ints(1)]),
    case("ArgMax", [[np.array([[1, 5, 5], [7, 2, 7]])]], axis=1, select_last_index=1),
    case("ArgMin", [ROWS], axis=0, keepdims=0),
    case("CumSum", [ROWS, np.int64(1)], exclusive=1, reverse=1),
    case("CumSum", [ROWS, np.int64(-2)], exclusive=1),
    case("Slice", [IMAGE, ints(-1, 5), ints(-(2**63), 0), ints(2, 3), ints(-2, -1)]),
    case("Slice", [IMAGE, ints(1, -100), ints(100, -1), ints(1, -1)]),
    case("Slice", [IMAGE], opset=9, starts=[1], ends=[3], axes=[1]),
    case("Slice", [ROWS, ints(5), ints(9)]),
    case("Pad", [ROWS, ints(1, 0, 0, 2), np.float32(3)]),
    case("Pad", [ROWS, ints(0, -1, 1, 0)]),
    case("Pad", [IMAGE, ints(1, 2), None, ints(-1)], mode="reflect"),
    case("Pad", [IMAGE, ints(0, 0, 2, 1, 0, 0, 1, 0)], mode="edge"),
    case("Pad", [ROWS], opset=10, pads=[0, 1, 1, 0], value=2.0),
    case("Gather", [ROWS, ints(-1, 0)], axis=1),
    case("Gather", [ROWS, np.int64(-2)]),
    case("Gather", [ROWS, [np.array([[2, -1]])]]),
    case("GatherElements", [ROWS, [np.array([[0, -1], [2, 1], [1, 1]])]], axis=1),
    case("GatherND", [real(2, 3, 4), [np.array([[[1], [-1]], [[0], [2]]])]], batch_dims=1),
    case("GatherND", [real(2, 3, 4), [np.array([[1, -1], [0, 2]])]]),
    case("ScatterND", [ROWS, [np.array([[0], [2]])], [real(2, 5)]]),
    case("ScatterND", [ROWS, [np.array([[0, 1], [0, 1]])], [real(2)]], reduction="add"),
    case("ScatterElements", [ROWS, [np.array([[1, -1]])], [real(1, 2)]], axis=1),
    case("ScatterElements", [ROWS, [np.array([[1, 1]])], [real(1, 2)]], axis=1, reduction="mul"),
    case("OneHot", [[np.array([[1, -1], [0, 3]])], np.int64(4), [numbers(0.5, 2)]], axis=1),
    case("NonZero", [numbers(0, 1, 2, 0)]),
    case("Expand", [real(3, 1), ints(2, 1, 4)]),
    case("Tile", [ROWS, ints(2, 3)]),
    case("Trilu", [ROWS, np.int64(1)]),
    case("Trilu", [ROWS], upper=0),
    case("EyeLike", [ROWS], k=1),
    case("Flatten", [IMAGE], axis=-1),
    case("Flatten", [IMAGE], axis=0),
    case("Transpose", [IMAGE]),
    case("Reshape", [IMAGE, ints(0, -1, 7)]),
    case("Squeeze", [real(1, 3, 1)], opset=11, axes=[0]),
    case("Squeeze", [real(1, 3, 1)]),
    case("Unsqueeze", [ROWS, ints(-1, 0)]),
    case("Unsqueeze", [ROWS], opset=11, axes=[1, 3]),
    case("DepthToSpace", [IMAGE], blocksize=2),
    case("DepthToSpace", [IMAGE], blocksize=2, mode="CRD"),
    case("SpaceToDepth", [real(1, 2, 4, 6)], blocksize=2),
    case("Dropout", [ROWS]),
    case("Size", [IMAGE]),
    case("Shape", [IMAGE], start=1, end=-1),
]  # fmt: skip

SCALES = numbers(1, 1, 2, 1.5)
CASES += [
    case("Resize", [IMAGE, None, scales], mode=mode, coordinate_transformation_mode=coordinates)
    for scales in (SCALES, numbers(1, 1, 0.6, 2))
    for mode in ("nearest", "linear", "cubic")
    for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
] + [
    case("Resize", [IMAGE, None, None, ints(2, 4, 5, 14)], mode="linear"),
    case("Resize", [IMAGE, None, numbers(2, 2)], axes=[2, 3], nearest_mode="ceil"),
    case("Resize", [IMAGE, SCALES], opset=10),
    case("Upsample", [IMAGE, SCALES], opset=9, mode="linear"),
]


@pytest.mark.parametrize("each", CASES, ids=lambda c: f"{c[0]}-{c[3]}-{dict(c[2])}")
def test_operator(each: Case) -> None:
    op_type, given, attributes, opset = each
    inputs, weights, names, arrays = {}, {}, [], []
    for i, value in enumerate(given):
        name = "-" if value is None else f"v{i}"
        names.append(name)
        if isinstance(value, list) or (i == 0 and value is not None):
            array = value[0] if isinstance(value, list) else value
            inputs[name] = onnx_type(array), list(array.shape)
            arrays.append(np.asarray(array))
        elif value is not None:
            weights[name] = value
    nodes = [(op_type, " ".join(names), "y", attributes)]
    proto = model_of(nodes, inputs, weights, opset=opset)
    same(load(proto), proto, *arrays)


def onnx_type(array: np.ndarray) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


@pytest.mark.parametrize("sizes", [{"split": ints(1, 3, 1)}, {"num_outputs": 3}], ids=str)
def test_split(sizes: dict[str, Any]) -> None:
    split = sizes.pop("split", None)
    weights = {} if split is None else {"s": split}
    nodes = [("Split", " ".join(["x", *weights]), "a b c", {"axis": 1, **sizes})]
    proto = model_of(nodes, {"x": [3, 5]}, weights, outputs="a b c")
    same(load(proto), proto, ROWS)


def test_top_k_of_equal_elements() -> None:
    proto = model_of(
        [("TopK", "x k", "values places", {"axis": 1})],
        {"x": [2, 6]}, {"k": ints(4)}, outputs="values places",
    )  # fmt: skip
    same(load(proto), proto, np.array([[1, 3, 3, 0, 3, 1], [0, 0, 0, 0, 0, 0]], np.float32))


def test_a_place_that_is_not_there() -> None:
    proto = model_of([("Gather", "x i", "y")], {"x": [3, 5]}, {"i": ints(3)})
    with pytest.raises(tw.onnx.OnnxLoaderError, match="out of range for the dimension 0"):
        load(proto)(tw.tensor(ROWS))
