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
GRID = RNG.uniform(-1.2, 1.2, (2, 5, 6, 2)).astype(np.float32)
ROIS = np.array([[0, 0, 4, 5], [1, 2, 6, 7], [2, 1, 3, 3]], np.float32)
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
    case("LpPool", [IMAGE], kernel_shape=[3, 2], strides=[2, 1], p=2),
    case("GlobalLpPool", [IMAGE], p=2),
    case("AveragePool", [IMAGE], opset=19, kernel_shape=[3, 2], dilations=[2, 2],
         pads=[1, 1, 0, 1]),
    case("GridSample", [IMAGE, [GRID]], opset=20),
    case("GridSample", [IMAGE, [GRID]], opset=20, mode="nearest", padding_mode="border"),
    case("GridSample", [IMAGE, [GRID]], opset=20, mode="cubic", padding_mode="reflection",
         align_corners=1),
    case("AffineGrid", [real(2, 2, 3), [ints(2, 4, 5, 6)]], opset=20),
    case("RoiAlign", [IMAGE, [ROIS], [ints(0, 1, 1)]], output_height=2, output_width=3,
         sampling_ratio=2, spatial_scale=0.9),
    case("RoiAlign", [IMAGE, [ROIS], [ints(0, 1, 1)]], output_height=2, output_width=2, mode="max",
         sampling_ratio=1),
    case("DeformConv", [IMAGE, [real(6, 4, 3, 2)], [real(2, 12, 8, 7)], [real(6)],
                        [np.abs(real(2, 6, 8, 7))]], opset=19, pads=[1, 1, 0, 0]),
    case("MaxRoiPool", [IMAGE, [np.array([[0, 0, 0, 4, 5], [1, 2, 1, 6, 6]], np.float32)]],
         pooled_shape=[2, 2]),
    case("ReverseSequence", [real(5, 3, 2), [ints(2, 5, 1)]], time_axis=0, batch_axis=1),
    case("ReverseSequence", [real(3, 5), [ints(2, 5, 1)]], time_axis=1, batch_axis=0),
    case("CenterCropPad", [IMAGE, [ints(5, 9)]], axes=[2, 3]),
    case("Col2Im", [real(2, 18, 12), [ints(4, 5)], [ints(3, 3)]], pads=[0, 1, 1, 0]),
    case("Hardmax", [IMAGE], axis=1),
    case("Det", [real(3, 4, 4)]),
    case("DFT", [real(2, 9, 1)], opset=17, onesided=1),
    case("STFT", [real(2, 64, 1), [np.int64(8)], [np.abs(real(16))]], opset=17),
    case("NegativeLogLikelihoodLoss", [real(4, 5), [ints(0, 4, 2, 2)], [np.abs(real(5))]],
         ignore_index=2),
    case("LayerNormalization", [IMAGE, [real(7)], [real(7)]], epsilon=1e-3),
    case("Attention", [real(2, 4, 5, 8), [real(2, 2, 6, 8)], [real(2, 2, 6, 3)]], opset=23,
         is_causal=1, softcap=2.0),
    case("Attention", [real(2, 4, 5, 8), [real(2, 4, 6, 8)], [real(2, 4, 6, 3)], [real(5, 6)]],
         opset=23, softcap=0.5),
    case("RotaryEmbedding", [real(2, 3, 5, 8), [real(9, 4)], [real(9, 4)],
                             [RNG.integers(0, 9, (2, 5))]], opset=23, interleaved=1),
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
    proto, arrays = model_with(each, 1)
    same(load(proto), proto, *arrays)


def model_with(each: Case, outputs: int) -> tuple[Any, list[np.ndarray]]:
    """A model of one node, and its inputs."""
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
    results = " ".join("yabc"[:outputs])
    nodes = [(op_type, " ".join(names), results, attributes)]
    return model_of(nodes, inputs, weights, results, opset), arrays


def onnx_type(array: np.ndarray) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


SEVERAL = [
    case("MaxPool", [IMAGE], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1]),
    case("MaxPool", [IMAGE], kernel_shape=[2, 2], storage_order=1),
    case("TopK", [IMAGE, ints(3)], axis=1, largest=0),
    case("Dropout", [ROWS, np.float32(0.5)]),
    case("LayerNormalization", [IMAGE, [real(9, 7)]], axis=2, opset=17),
    case("SoftmaxCrossEntropyLoss", [real(4, 5, 2), [ints(*[0, 4] * 4).reshape(4, 2)]]),
    case("Attention", [real(2, 5, 8), [real(2, 2, 8)], [real(2, 2, 6)], None,
                       [real(2, 2, 3, 4)], [real(2, 2, 3, 3)]], opset=23, q_num_heads=2,
         kv_num_heads=2),
]  # fmt: skip
OUTPUTS = {"LayerNormalization": 3, "Attention": 3}


@pytest.mark.parametrize("each", SEVERAL, ids=lambda c: f"{c[0]}-{dict(c[2])}")
def test_several_outputs(each: Case) -> None:
    proto, arrays = model_with(each, OUTPUTS.get(each[0], 2))
    same(load(proto), proto, *arrays)


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [{}, {"axis": 0}, {"axis": 1}], ids=str)
def test_unique(axis: dict[str, int], ordered: int) -> None:
    x = np.array([[2, 1, 1], [0, 3, 3], [2, 1, 1]], np.float32)
    each = case("Unique", [x], sorted=ordered, **axis)
    proto, arrays = model_with(each, 4)
    same(load(proto), proto, *arrays)


@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression(centred: int) -> None:
    corners = RNG.random((2, 30, 4)).astype(np.float32)
    options = [np.array(5), np.float32(0.3), np.float32(0.2)]
    each = case(
        "NonMaxSuppression", [corners, [RNG.random((2, 3, 30)).astype(np.float32)], *options],
        center_point_box=centred,
    )  # fmt: skip
    proto, arrays = model_with(each, 1)
    same(load(proto), proto, *arrays)


BLOCKS: list[tuple[int, Any, dict[str, int]]] = [
    (21, np.int8, {"axis": 1}), (21, np.uint8, {"axis": 0}), (21, np.int16, {"axis": 1}),
    (21, np.uint8, {"axis": 1, "block_size": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "dtype", "options"), BLOCKS)
def test_quantization(opset: int, dtype: Any, options: dict[str, int]) -> None:
    x = real(4, 6) * 20
    sizes = [4, 3] if "block_size" in options else [x.shape[options["axis"]]]
    scale = (np.abs(real(*sizes)) + 0.1).astype(np.float32)
    zero = RNG.integers(0, 9, sizes).astype(dtype)
    nodes = [("QuantizeLinear", "x s z", "q", options), ("DequantizeLinear", "q s z", "y", options)]
    proto = model_of(nodes, {"x": [4, 6]}, {"s": scale, "z": zero}, "q y", opset)
    same(load(proto), proto, x)


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
