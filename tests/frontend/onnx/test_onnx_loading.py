"""ONNX models that others made: what `load` computes beside onnxruntime, state, sizes, errors."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.onnx import OnnxLoaderError, load

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402
from onnx_models import RNG, Node, ints, model_of, normal, ours, same, theirs  # noqa: E402

# ---- making models ---------------------------------------------------------------------------


# ---- whole models ----------------------------------------------------------------------------


def residual_network() -> Any:
    """A stem, a block with a projection, and a head; the batch is open."""

    def norm(name: str, channels: int) -> dict[str, np.ndarray]:
        return {
            f"{name}.weight": normal(channels), f"{name}.bias": normal(channels),
            f"{name}.mean": normal(channels), f"{name}.var": np.abs(normal(channels)) + 0.5,
        }  # fmt: skip

    def normed(name: str) -> str:
        return " ".join(f"{name}.{part}" for part in ("weight", "bias", "mean", "var"))

    nodes: list[Node] = [
        ("Conv", "image stem.weight", "a", {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
        ("BatchNormalization", f"a {normed('n0')}", "b"),
        ("Relu", "b", "c"),
        ("MaxPool", "c", "d", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
        ("Conv", "d c1.weight", "e", {"strides": [2, 2], "pads": [1] * 4}),
        ("BatchNormalization", f"e {normed('n1')}", "f"),
        ("Relu", "f", "g"),
        ("Conv", "g c2.weight c2.bias", "h", {"pads": [1] * 4, "group": 2}),
        ("Conv", "d down.weight", "i", {"strides": [2, 2]}),
        ("Add", "h i", "j"),
        ("Relu", "j", "k"),
        ("GlobalAveragePool", "k", "l"),
        ("Flatten", "l", "m"),
        ("Gemm", "m head.weight head.bias", "y", {"transB": 1}),
    ]
    weights = {
        "stem.weight": normal(8, 3, 7, 7) / 8, **norm("n0", 8),
        "c1.weight": normal(16, 8, 3, 3) / 8, **norm("n1", 16),
        "c2.weight": normal(16, 8, 3, 3) / 8, "c2.bias": normal(16),
        "down.weight": normal(16, 8, 1, 1), "head.weight": normal(5, 16), "head.bias": normal(5),
    }  # fmt: skip
    return model_of(nodes, {"image": ["batch", 3, 33, 40]}, weights)


def test_a_residual_network_with_an_open_batch() -> None:
    proto = residual_network()
    model = load(proto)
    for batch in (1, 4, 3):
        same(model, proto, normal(batch, 3, 33, 40), tolerance=1e-4)
    assert {n for n, _ in model.named_buffers()} == {"n0.mean", "n0.var", "n1.mean", "n1.var"}
    assert set(model.state_dict()) == {i.name for i in proto.graph.initializer}
    with pytest.raises(RuntimeError, match=r"image: torch.float32\[batch, 3, 33, 40\], got .*34"):
        model(tw.zeros(1, 3, 34, 40))


def transformer() -> Any:
    """A block as exporters write it: each size is read from a shape, and put together again."""
    width, heads = 12, 3
    nodes: list[Node] = [
        ("Gather", "token.weight tokens", "e"),
        ("Shape", "tokens", "s"),
        ("Gather", "s zero", "batch"),
        ("Gather", "s one", "time"),
        ("Range", "zero time one", "places"),
        ("Gather", "place.weight places", "p"),
        ("Add", "e p", "x"),
        ("LayerNormalization", "x norm.weight norm.bias", "n", {"axis": -1}),
        ("MatMul", "n qkv.weight", "qkv_"),
        ("Add", "qkv_ qkv.bias", "qkv"),
        ("Split", "qkv", "q0 k0 v0", {"axis": -1, "num_outputs": 3}),
        ("Unsqueeze", "batch axis0", "b1"),
        ("Unsqueeze", "time axis0", "t1"),
        ("Concat", "b1 t1 heads minus", "split_shape", {"axis": 0}),
        *[("Reshape", f"{n}0 split_shape", f"{n}1") for n in "qkv"],
        *[("Transpose", f"{n}1", f"{n}2", {"perm": [0, 2, 1, 3]}) for n in "qv"],
        ("Transpose", "k1", "k2", {"perm": [0, 2, 3, 1]}),
        ("MatMul", "q2 k2", "scores0"),
        ("Shape", "q2", "qs"),
        ("Slice", "qs minus end", "depth"),
        ("Cast", "depth", "depth_f", {"to": TensorProto.FLOAT}),
        ("Sqrt", "depth_f", "root"),
        ("Div", "scores0 root", "scores"),
        ("Concat", "t1 t1", "square", {"axis": 0}),
        ("ConstantOfShape", "square", "hidden",
         {"value": helper.make_tensor("v", TensorProto.FLOAT, [1], [-np.inf])}),
        ("Trilu", "hidden one", "mask", {"upper": 1}),
        ("Add", "scores mask", "masked"),
        ("Softmax", "masked", "weights", {"axis": -1}),
        ("MatMul", "weights v2", "o0"),
        ("Transpose", "o0", "o1", {"perm": [0, 2, 1, 3]}),
        ("Mul", "heads depth", "whole"),
        ("Concat", "b1 t1 whole", "joined", {"axis": 0}),
        ("Reshape", "o1 joined", "o2"),
        ("MatMul", "o2 out.weight", "o3"),
        ("Add", "x o3", "r"),
        ("Div", "r root2", "g0"),
        ("Erf", "g0", "g1"),
        ("Add", "g1 unit", "g2"),
        ("Mul", "r g2", "g3"),
        ("Mul", "g3 half", "y"),
    ]  # fmt: skip
    weights = {
        "token.weight": normal(7, width), "place.weight": normal(16, width),
        "norm.weight": normal(width), "norm.bias": normal(width),
        "qkv.weight": normal(width, 3 * width), "qkv.bias": normal(3 * width),
        "out.weight": normal(width, width), "zero": np.int64(0), "one": np.int64(1),
        "axis0": ints(0), "heads": ints(heads), "minus": ints(-1), "end": ints(2**63 - 1),
        "root2": np.float32(2**0.5), "unit": np.float32(1), "half": np.float32(0.5),
    }  # fmt: skip
    tokens = (TensorProto.INT64, ["batch", "time"])
    return model_of(nodes, {"tokens": tokens}, weights)


def test_a_transformer_whose_sizes_are_computed() -> None:
    proto = transformer()
    model = load(proto)
    for shape in ((2, 5), (1, 16), (2, 5), (3, 1)):
        same(model, proto, RNG.integers(0, 7, shape))
    names = {"zero", "one", "axis0", "heads", "minus", "end", "root2", "unit", "half"}
    assert set(model.state_dict()) == {i.name for i in proto.graph.initializer} - names


def test_shapes_take_nothing_from_the_device() -> None:
    """A model that looked at a value couldn't be recorded, as it is for a GPU that isn't here."""
    from tilewright.inspection.tracing import Call

    proto = transformer()
    model = load(proto)
    for time in (4, 5, 4):
        recorded = Call(model, tw.zeros(2, time, dtype=tw.int64), None).record()
        assert tuple(recorded.outputs["output"].shape) == (2, time, 12)
    same(model, proto, RNG.integers(0, 7, (2, 4)))


def test_a_loaded_model_is_exported_again() -> None:
    first = transformer()
    tokens = tw.zeros(2, 8, dtype=tw.int64)
    axes = {"tokens": {0: "batch"}}
    again = tw.onnx.export(load(first), tokens, input_names=["tokens"], dynamic_axes=axes)
    same(load(again), first, RNG.integers(0, 7, (3, 8)))


def test_gradients_reach_the_weights() -> None:
    model = load(residual_network())
    model(tw.tensor(normal(2, 3, 33, 40))).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


# ---- files and state -------------------------------------------------------------------------


def test_sources(tmp_path: Path) -> None:
    proto = residual_network()
    image = normal(2, 3, 33, 40)
    plain, split = tmp_path / "plain.onnx", tmp_path / "split.onnx"
    onnx.save(proto, plain)
    external = copy.deepcopy(proto)
    onnx.save(
        external, split, save_as_external_data=True, location="weights.bin", size_threshold=64
    )
    assert split.stat().st_size < plain.stat().st_size
    (expected,) = theirs(proto, image)
    for source in (plain, str(split), io.BytesIO(plain.read_bytes())):
        np.testing.assert_allclose(ours(load(source), image)[0], expected, rtol=1e-4, atol=1e-4)


def test_state_is_loaded_and_saved() -> None:
    nodes: list[Node] = [("MatMul", "x w.1/kernel:0", "a"), ("Add", "a forward", "y")]
    proto = model_of(nodes, {"x": [2, 3]}, {"w.1/kernel:0": normal(3, 4), "forward": normal(4)})
    model, other = load(proto), load(proto)
    other.load_state_dict({n: t * 2 for n, t in model.state_dict().items()})
    x = normal(2, 3)
    np.testing.assert_allclose(ours(other, x)[0], 2 * ours(model, x)[0], rtol=1e-5)
    assert "x: torch.float32[2, 3] -> y, 2 nodes" in repr(model)
    assert set(copy.deepcopy(model).state_dict()) == {"w.1/kernel:0", "forward_"}


def test_arguments() -> None:
    nodes: list[Node] = [("Sub", "a b", "y")]
    model = load(model_of(nodes, {"a": [2], "b": [2]}, {}))
    a, b = tw.tensor([3.0, 4.0]), tw.tensor([1.0, 1.0])
    assert model(a, b=b).tolist() == model(b=b, a=a).tolist() == [2, 3]
    for call in (lambda: model(a), lambda: model(a, b, b), lambda: model(a, a=b)):
        with pytest.raises(TypeError, match=r"expected the inputs a: torch.float32\[2\], b: "):
            call()
    with pytest.raises(TypeError, match="expected a Tensor for a"):
        model([1.0, 2.0], b)
    with pytest.raises(RuntimeError, match=r"expected b: .*got torch.int64\[2\]"):
        model(a, tw.tensor([1, 2]))


# ---- errors ----------------------------------------------------------------------------------


def test_missing_operators_are_all_named() -> None:
    nodes: list[Node] = [
        ("own:Turn", "x scale", "q"),
        ("NoSuchThing", "q scale", "d"),
        ("own:Turn", "d scale", "q2"),
        ("NoSuchThing", "q2 scale", "y"),
    ]
    proto = model_of(nodes, {"x": [4]}, {"scale": np.float32(0.1)}, domains={"own": 1})
    with pytest.raises(OnnxLoaderError) as caught:
        load(proto)
    assert str(caught.value) == (
        "load: there is no function for the operators own.Turn (node 'Turn_0'), "
        "NoSuchThing (node 'NoSuchThing_1')"
    )


def test_a_node_that_fails_is_named() -> None:
    proto = model_of([("MatMul", "x w", "y")], {"x": ["n", "m"]}, {"w": normal(3, 4)})
    with pytest.raises(OnnxLoaderError, match=r"the node 'MatMul_0' \(MatMul\) failed: "):
        load(proto)(tw.zeros(2, 5))


def test_an_attribute_that_is_unknown() -> None:
    proto = model_of([("Relu", "x", "y", {"slope": 0.5})], {"x": [3]}, {})
    with pytest.raises(OnnxLoaderError, match=r"'Relu_0' \(Relu\) can't be computed: .*slope"):
        load(proto)


def test_what_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(OnnxLoaderError, match="is no ONNX model"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.onnx")


def test_without_onnx_installed(run_python: Any) -> None:
    run_python(
        """
import sys
sys.modules["onnx"] = None
import tilewright as torch
try:
    torch.onnx.load("model.onnx")
except ImportError as error:
    assert "loading an ONNX model needs" in str(error), error
    assert "pip install tilewright[onnx]" in str(error), error
else:
    raise AssertionError
"""
    )
