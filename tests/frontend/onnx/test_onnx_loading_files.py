"""Files from anywhere: weights in files of their own, and files that are wrong or mean harm."""

from __future__ import annotations

import copy
import io
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.onnx import OnnxLoaderError, load

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402
from onnx_models import model_of, normal, ours, theirs  # noqa: E402


def product(weight: np.ndarray) -> Any:
    return model_of([("MatMul", "x w", "y")], {"x": ["n", weight.shape[0]]}, {"w": weight})


def external(proto: Any, **entries: Any) -> Any:
    """The model with its first weight in another file."""
    made = copy.deepcopy(proto)
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return made


# ---- external data -----------------------------------------------------------------------------


def test_weights_at_an_offset(tmp_path: Path) -> None:
    weight, x = normal(64, 32), normal(2, 64)
    proto = product(weight)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 4096 + weight.tobytes() + b"rest")
    path = tmp_path / "model.onnx"
    onnx.save(external(proto, location="weights.bin", offset=4096, length=weight.nbytes), path)
    model = load(path)
    np.testing.assert_allclose(ours(model, x)[0], theirs(proto, x)[0], rtol=1e-4, atol=1e-4)
    assert [n for n, _ in model.named_parameters()] == ["w"]


def test_packed_weights(tmp_path: Path) -> None:
    import ml_dtypes

    numbers = np.arange(-8, 7).astype(ml_dtypes.int4)
    packed = helper.make_tensor("w", TensorProto.INT4, [15], numbers.astype(np.int8))
    (tmp_path / "w.bin").write_bytes(
        packed.raw_data or bytes(int(v) & 255 for v in packed.int32_data)
    )
    nodes: list[Any] = [("DequantizeLinear", "w scale", "d"), ("Add", "x d", "y")]
    proto = model_of(nodes, {"x": [15]}, {"scale": np.float32(0.5)}, opset=21)
    proto.graph.initializer.insert(0, packed)
    proto.graph.initializer[0].ClearField("int32_data")
    path = tmp_path / "model.onnx"
    onnx.save(external(proto, location="w.bin"), path)
    y = load(path)(tw.zeros(15))
    np.testing.assert_array_equal(y.numpy(), np.arange(-8, 7) * 0.5)


SIZE = normal(64, 32).nbytes
PLACES: list[tuple[dict[str, Any], str]] = [
    ({"location": "../weights.bin"}, "not in the model's folder"),
    ({"location": "{folder}/../weights.bin"}, "not in the model's folder"),
    ({"location": "/etc/passwd"}, "not in the model's folder"),
    ({"location": "link.bin"}, "not in the model's folder"),
    ({"location": ""}, "not in the model's folder"),
    ({"location": "inside.bin", "offset": 8}, f"expected {SIZE} bytes from byte 8 on"),
    ({"location": "inside.bin", "length": 12}, "but its length is 12"),
    ({"location": "inside.bin", "offset": -4}, "expected a number of bytes, got '-4'"),
]


@pytest.mark.parametrize(("entries", "message"), PLACES)
def test_wrong_places(entries: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for place in (tmp_path / "weights.bin", folder / "inside.bin"):
        place.write_bytes(bytes(SIZE))
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    made = {
        k: v.replace("{folder}", str(folder)) if isinstance(v, str) else v
        for k, v in entries.items()
    }
    path = folder / "model.onnx"
    path.write_bytes(external(product(normal(64, 32)), **made).SerializeToString())
    with pytest.raises(OnnxLoaderError, match=message):
        load(path)


def test_external_data_needs_a_folder(tmp_path: Path) -> None:
    proto = external(product(normal(64, 32)), location="weights.bin")
    with pytest.raises(OnnxLoaderError, match="load it from its path"):
        load(proto)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(FileNotFoundError, match=r"weights\.bin"):
        load(tmp_path / "model.onnx")


# ---- graphs that can't be run ------------------------------------------------------------------


def cycle() -> Any:
    proto = model_of(
        [("Relu", "x", "a"), ("Add", "a b", "b0"), ("Relu", "b0", "y")], {"x": [2]}, {}
    )
    proto.graph.node[2].output[0] = "b"
    return proto


def unknown_input() -> Any:
    return model_of([("Relu", "z", "y")], {"x": [2]}, {})


def nothing_computed() -> Any:
    return model_of([("Relu", "x", "y")], {"x": [2]}, {}, "q")


def computed_twice() -> Any:
    proto = model_of([("Relu", "x", "y"), ("Abs", "x", "y2")], {"x": [2]}, {})
    proto.graph.node[1].output[0] = "y"
    return proto


def wrong_sizes() -> Any:
    proto = product(normal(64, 32))
    proto.graph.initializer[0].dims[0] = 1 << 50
    return proto


def negative_sizes() -> Any:
    proto = product(normal(64, 32))
    proto.graph.initializer[0].dims[0] = -64
    return proto


def function(name: str, *nodes: Any) -> Any:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], list(nodes), imports)


def with_functions(*functions: Any) -> Any:
    proto = model_of([("own:f0", "x", "y")], {"x": [2]}, {}, domains={"own": 1})
    proto.functions.extend(functions)
    return proto


def own_recursion() -> Any:
    """Two functions that call each other."""
    each = [
        function(f"f{i}", helper.make_node(f"f{1 - i}", ["a"], ["b"], domain="own")) for i in (0, 1)
    ]
    return with_functions(*each)


def bomb() -> Any:
    """Each function calls the next one four times."""
    made = []
    for i in range(20):
        names = ["a", "p", "q", "r", "b"]
        made.append(
            function(f"f{i}", *(
                helper.make_node(f"f{i + 1}", [x], [y], domain="own")
                for x, y in itertools.pairwise(names)
            ))
        )  # fmt: skip
    made.append(function("f20", helper.make_node("Relu", ["a"], ["b"])))
    return with_functions(*made)


WRONG: list[tuple[Callable[[], Any], str]] = [
    (cycle, r"'Add_1' \(Add\) reads 'b', which a later node, 'Relu_2' \(Relu\), computes: .*cycle"),
    (unknown_input, r"'Relu_0' \(Relu\) reads 'z', which nothing computes"),
    (nothing_computed, "nothing computes the output 'q'"),
    (computed_twice, r"'Abs_1' \(Abs\) computes 'y', as an earlier node does"),
    (wrong_sizes, r"'w' of the sizes \[1125899906842624, 32\] has 8192 bytes; expected"),
    (negative_sizes, "negative size"),
    (own_recursion, "the function 'f[01]' calls itself"),
    (bomb, "unfold to more than"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_wrong_graphs(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(OnnxLoaderError, match=message):
        load(make())


def test_damaged_bytes() -> None:
    """A file with some other bytes loads, or raises an error of ours."""
    nodes: list[Any] = [("Conv", "x w", "c", {"pads": [1, 1, 1, 1]}), ("Relu", "c", "y")]
    whole = model_of(nodes, {"x": [1, 2, 8, 8]}, {"w": normal(3, 2, 3, 3)}).SerializeToString()
    draw = random.Random(0)
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 2, 8))):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            model = load(io.BytesIO(bytes(data)))
        except OnnxLoaderError:
            continue
        assert repr(model)


# ---- what files tell ---------------------------------------------------------------------------


def test_metadata() -> None:
    proto = product(normal(64, 32))
    proto.producer_name, proto.model_version = "maker", 3
    helper.set_model_props(proto, {"author": "somebody"})
    found = load(proto).metadata
    assert found["producer_name"] == "maker" and found["model_version"] == 3
    assert found["opsets"] == {"ai.onnx": 18} and found["properties"] == {"author": "somebody"}


def test_named_sizes_are_equal() -> None:
    model = load(model_of([("Add", "a b", "y")], {"a": ["n", 2], "b": ["n", 2]}, {}))
    assert model(tw.zeros(3, 2), tw.zeros(3, 2)).shape == (3, 2)
    with pytest.raises(RuntimeError, match=r"b: torch.float32\[n, 2\] with n = 3, .*got \[1, 2\]"):
        model(tw.zeros(3, 2), tw.zeros(1, 2))


def test_functions_of_the_file_and_of_onnx(monkeypatch: Any) -> None:
    """Operators without a form are their definitions, also those that depend on types."""
    from tilewright.onnx.loading import functions, graph

    x, target = normal(4, 5), np.array([0, 4, 2, 2])
    nodes: list[Any] = [
        ("own:twice", "x", "t"),
        ("Mish", "t", "m"),
        ("SoftmaxCrossEntropyLoss", "m target", "y"),
    ]
    proto = model_of(
        nodes, {"x": [4, 5], "target": (TensorProto.INT64, [4])}, {}, domains={"own": 1}
    )
    body = helper.make_node("Add", ["a", "a"], ["b"])
    proto.functions.append(function("twice", body))
    for module in (functions, graph):
        find = module.find
        monkeypatch.setattr(
            module,
            "find",
            lambda n, o, d, find=find: (
                None if n in ("Mish", "SoftmaxCrossEntropyLoss") else find(n, o, d)
            ),
        )
    (found,) = ours(load(proto), x, target)
    np.testing.assert_allclose(found, theirs(proto, x, target)[0], rtol=1e-5)
