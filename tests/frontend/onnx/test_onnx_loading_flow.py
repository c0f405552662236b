"""Branches, loops and recurrent layers beside onnxruntime; models that are trained further."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.onnx import load

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper
from onnx_models import RNG, model_of, normal, same

pytestmark = pytest.mark.computes


def graph(nodes: list[Any], inputs: dict[str, Any], outputs: str, **weights: np.ndarray) -> Any:
    """A body. inputs: dtypes by name."""
    made = [
        helper.make_node(o, i.split(), w.split(), **(r[0] if r else {})) for o, i, w, *r in nodes
    ]

    def told(names: Any) -> list[Any]:
        return [
            helper.make_tensor_value_info(n, inputs.get(n, TensorProto.FLOAT), None) for n in names
        ]

    initial = [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()]
    return helper.make_graph(made, "body", told(inputs), told(outputs.split()), initial)


LOOP = {"i": TensorProto.INT64, "going": TensorProto.BOOL}


def doubling() -> Any:
    """Doubles x until its sum is above a limit, which is an input; gives all sums, too."""
    body = graph(
        [
            ("Add", "s s", "s2"),
            ("ReduceSum", "s2", "sum", {"keepdims": 0}),
            ("Less", "sum limit", "again"),
        ],
        {**LOOP, "s": TensorProto.FLOAT},
        "again s2 sum",
    )
    body.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    for info in body.input:
        info.type.tensor_type.shape.SetInParent()
    nodes: list[Any] = [("Loop", "most true x", "y sums", {"body": body})]
    weights = {"true": np.array(True), "most": np.array(50)}
    return model_of(nodes, {"x": [3], "limit": []}, weights, "y sums")


def test_a_loop_that_ends_by_its_values() -> None:
    proto = doubling()
    model = load(proto)
    x = np.abs(normal(3)) + 0.1
    for limit in (10.0, 1000.0, 0.0):
        same(model, proto, x, np.array(limit, np.float32))


def test_a_loop_that_never_turns() -> None:
    body = graph(
        [("Identity", "going", "again"), ("Add", "s s", "t")], {**LOOP, "s": 1}, "again t s2"
    )
    body.node.append(helper.make_node("Identity", ["s"], ["s2"]))
    body.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    body.output[2].type.tensor_type.shape.dim.add().dim_value = 3
    nodes: list[Any] = [("Loop", "most - x", "y all", {"body": body})]
    proto = model_of(nodes, {"most": (TensorProto.INT64, []), "x": [3]}, {}, "y all")
    y, every = load(proto)(tw.tensor(0), tw.ones(3))
    assert y.equal(tw.ones(3)) and every.shape == (0, 3) and every.dtype is tw.float32
    assert load(proto)(tw.tensor(2), tw.ones(3))[1].tolist() == [[1] * 3, [2] * 3]


def branches() -> Any:
    yes = graph([("MatMul", "x w", "a")], {}, "a", w=normal(4, 4))
    no = graph([("Neg", "x", "b")], {}, "b")
    nodes: list[Any] = [
        ("ReduceSum", "x", "sum", {"keepdims": 0}),
        ("Greater", "sum zero", "positive"),
        ("If", "positive", "z", {"then_branch": yes, "else_branch": no}),
        ("Add", "z x", "y"),
    ]
    return model_of(nodes, {"x": [2, 4]}, {"zero": np.float32(0)})


def test_a_branch_with_weights() -> None:
    proto = branches()
    model = load(proto)
    x = np.abs(normal(2, 4))
    same(model, proto, x)
    same(model, proto, -x)
    assert list(model.state_dict()) == ["w"]
    model(tw.tensor(x)).sum().backward()
    np.testing.assert_allclose(model.w.grad.numpy(), np.repeat(x.sum(0)[:, None], 4, 1), rtol=1e-5)


def test_a_scan_in_both_directions() -> None:
    body = graph([("Add", "s v", "t"), ("Identity", "t", "o")], {"s": 1, "v": 1}, "t o")
    for backward in (0, 1):
        options = {"body": body, "num_scan_inputs": 1, "scan_input_directions": [backward],
                   "scan_output_directions": [1 - backward]}  # fmt: skip
        proto = model_of([("Scan", "s0 x", "s y", options)], {"s0": [2], "x": ["t", 2]}, {}, "s y")
        model = load(proto)
        for time in (5, 1):
            same(model, proto, normal(2), normal(time, 2))


DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
PARTS = {"LSTM": 4, "GRU": 3, "RNN": 1}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", PARTS)
def test_recurrent_layers(kind: str, direction: str) -> None:
    count, parts, size, hidden, time, n = DIRECTIONS[direction], PARTS[kind], 3, 4, 5, 2
    weights = {
        "w": normal(count, parts * hidden, size), "r": normal(count, parts * hidden, hidden),
        "b": normal(count, 2 * parts * hidden), "lengths": np.array([5, 3], np.int32),
        "h": normal(count, n, hidden), "c": normal(count, n, hidden),
        "p": normal(count, 3 * hidden),
    }  # fmt: skip
    options: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    reads, outputs = "x w r b lengths h", "y last"
    if kind != "LSTM":  # of which onnxruntime doesn't clip what h reads
        options["clip"] = 2.5
    if kind == "LSTM":
        reads, outputs = f"{reads} c p", f"{outputs} cell"
    if kind == "GRU":
        options["linear_before_reset"] = int(direction == "reverse")
        options["activations"] = ["HardSigmoid", "Relu"] * count
    used = {name: value for name, value in weights.items() if name in reads.split()}
    proto = model_of(
        [(kind, reads, outputs, options)], {"x": [time, n, size]}, used, outputs, opset=14
    )
    same(load(proto), proto, normal(time, n, size), tolerance=1e-4)


def test_quantized_products() -> None:
    """As a quantizer of onnxruntime writes them."""
    w = RNG.integers(-100, 100, (6, 5)).astype(np.int8)
    nodes: list[Any] = [
        ("DynamicQuantizeLinear", "x", "q s z"),
        ("MatMulInteger", "q w z wz", "m"),
        ("Cast", "m", "f", {"to": TensorProto.FLOAT}),
        ("Mul", "s ws", "scale"),
        ("Mul", "f scale", "a"),
        ("QuantizeLinear", "a ys yz", "aq"),
        ("DequantizeLinear", "aq ys yz", "y"),
    ]
    weights = {"w": w, "wz": np.int8(3), "ws": normal(5) ** 2 + 0.01,
               "ys": np.float32(0.05), "yz": np.uint8(120)}  # fmt: skip
    proto = model_of(nodes, {"x": [4, 6]}, weights)
    same(load(proto), proto, normal(4, 6))


def test_fine_tuning() -> None:
    nodes: list[Any] = [
        ("Gemm", "x w1 b1", "h", {"transB": 1}), ("Relu", "h", "r"), ("Gemm", "r w2", "y"),
    ]  # fmt: skip
    weights = {"w1": normal(8, 4), "b1": normal(8), "w2": normal(8, 1) / 8}
    proto = model_of(nodes, {"x": ["n", 4]}, weights)
    model = load(proto)
    x, y = tw.tensor(normal(32, 4)), tw.tensor(normal(32, 1))
    optimizer = tw.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    fresh = load(proto)
    fresh.load_state_dict(model.state_dict())
    assert fresh(x).equal(model(x))


def test_dropout_in_training() -> None:
    nodes: list[Any] = [("Dropout", "x ratio train", "y mask")]
    weights = {"ratio": np.float32(0.25), "train": np.array(True)}
    model = load(model_of(nodes, {"x": [4000]}, weights, "y mask"))
    y, mask = model(tw.ones(4000))
    assert mask.dtype is tw.bool and 0.7 < mask.float().mean().item() < 0.8
    assert y.equal(mask / 0.75)
    assert not model(tw.ones(4000))[1].equal(mask)


def test_texts_in_and_out() -> None:
    nodes: list[Any] = [
        ("StringConcat", "a b", "c"),
        ("StringSplit", "c", "y n", {"delimiter": "-"}),
    ]
    kind = TensorProto.STRING
    proto = model_of(nodes, {"a": (kind, [2]), "b": (kind, [1])}, {}, "y n", opset=20)
    parts, counts = load(proto)(np.array(["x", "y-z"], object), np.array(["-end"], object))
    assert parts.tolist() == [["x", "end", ""], ["y", "z", "end"]] and counts.tolist() == [2, 3]


def test_float8_that_we_export_loads_again() -> None:
    x = tw.tensor(normal(8) * 100)
    program = tw.onnx.export(lambda x: x.to(tw.float8_e4m3fn).float(), x, opset_version=21)
    assert load(program)(x).equal(x.to(tw.float8_e4m3fn).float())
