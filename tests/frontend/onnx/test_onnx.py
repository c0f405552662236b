"""ONNX export of models: onnxruntime beside our own results, dynamic sizes, names, errors."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright.onnx import OnnxExporterError, UnsupportedOperatorError, export

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_session import operators, outputs  # noqa: E402

# ---- models ----------------------------------------------------------------------------------


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, bias=False),
            nn.AvgPool2d(2),
        )
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6, 3)

    def forward(self, image: Any) -> Any:
        return self.head(self.drop(self.features(image).flatten(1)))


class Block(nn.Module):
    """A transformer's, with the embeddings in front."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.token = nn.Embedding(7, width)
        self.place = nn.Embedding(32, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1)
        )
        self.heads = heads

    def forward(self, tokens: Any) -> Any:
        batch, time = tokens.shape
        x = self.token(tokens) + self.place(tw.arange(time))
        parts = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        seen = tw.tril(tw.ones(time, time))
        weights = F.softmax(scores.masked_fill(seen == 0, -math.inf), dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, time, -1))
        return x + self.mlp(self.norm2(x))


def same_as_ours(model: Any, program: Any, *inputs: Any) -> None:
    if isinstance(model, nn.Module):
        model.eval()
    ours = model(*inputs)
    ours = ours if isinstance(ours, (tuple, list)) else (ours,)
    theirs = outputs(program, *(np.asarray(t.detach()) for t in inputs))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert tuple(a.shape) == b.shape
        np.testing.assert_allclose(np.asarray(a.detach()), b, rtol=1e-4, atol=1e-5)


def test_mlp_of_a_fixed_batch() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3), nn.Softmax(1))
    program = export(model, tw.randn(5, 4))
    assert operators(program) == ["Gemm", "Tanh", "Gemm", "Softmax"]
    same_as_ours(model, program, tw.randn(5, 4))
    with pytest.raises(Exception, match="invalid dimensions"):
        outputs(program, np.zeros((6, 4), np.float32))


@pytest.mark.parametrize("example", [1, 2, 4])
def test_cnn_with_a_dynamic_batch(example: int) -> None:
    model = CNN()
    model(tw.randn(6, 1, 10, 10))  # moves the running statistics
    program = export(
        model,
        (tw.randn(example, 1, 10, 10),),
        input_names=["image"],
        output_names=["scores"],
        dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}},
        verify=True,
    )
    assert operators(program) == (
        ["Conv", "BatchNormalization", "Relu", "MaxPool", "Conv", "AveragePool", "Reshape", "Gemm"]
    )
    (scores,) = program.model_proto.graph.output
    assert [d.dim_param or d.dim_value for d in scores.type.tensor_type.shape.dim] == ["batch", 3]
    for n in (1, 3, 17):
        same_as_ours(model, program, tw.randn(n, 1, 10, 10))


@pytest.mark.parametrize("opset", [18, 20])
def test_transformer_with_dynamic_batch_and_length(opset: int) -> None:
    model = Block()
    program = export(
        model,
        tw.randint(0, 7, (2, 8)),
        dynamic_axes={"tokens": {0: "batch", 1: "time"}},
        opset_version=opset,
    )
    found = operators(program)
    assert found.count("LayerNormalization") == 2 and "Softmax" in found
    assert ("Gelu" in found) == (opset >= 20)
    for n, t in ((1, 8), (3, 1), (17, 32)):
        same_as_ours(model, program, tw.randint(0, 7, (n, t)))


def test_names_are_kept() -> None:
    model = CNN()
    graph = export(model, tw.randn(2, 1, 10, 10)).model_proto.graph
    assert [i.name for i in graph.input] == ["image"]
    assert [o.name for o in graph.output] == ["output"]
    named = {i.name for i in graph.initializer if not i.name.startswith("constant")}
    assert named == set(model.state_dict()) - {"features.1.num_batches_tracked"}
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    np.testing.assert_array_equal(weights["head.weight"], np.asarray(model.head.weight.detach()))
    nodes = {n.name: n for n in graph.node}
    assert nodes["head/Gemm"].doc_string.startswith("linear at ")
    assert f"{__file__}:" in nodes["head/Gemm"].doc_string


def test_the_model_is_left_as_it_was() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", tw.zeros(1))
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return self.drop(x) + self.calls

    model = Counting()
    model.drop.eval()
    pending = tw.ones(3) + 1
    export(model, tw.randn(2, 3), dynamic_axes={"x": [0]})
    assert model.training and not model.drop.training
    assert model.calls.item() == 0
    assert pending.tolist() == [2, 2, 2]
    assert tw.is_grad_enabled()


# ---- dynamic axes ----------------------------------------------------------------------------

Shapes = Sequence[tuple[int, ...]]
TABLE = tw.randn(3)
DYNAMIC: dict[str, tuple[Callable[..., Any], Shapes, list[Shapes], set[str]]] = {
    "merge two": (lambda x: x.reshape(-1, 3) + 1, [(4, 5, 3)], [[(2, 7, 3)]], set()),
    "product": (
        lambda x: x.reshape(x.shape[0] * x.shape[1], 3).sum(0), [(4, 5, 3)], [[(2, 7, 3)]], set(),
    ),
    "split": (lambda x: x.reshape(x.shape[0], -1, 2, 3), [(4, 10, 3)], [[(2, 6, 3)]], set()),
    "last": (lambda x: x[:, -1], [(4, 5, 3)], [[(2, 7, 3)]], {"Slice", "Reshape"}),
    "inner": (lambda x: x[:, 1:-1], [(4, 5, 3)], [[(2, 7, 3)]], {"Slice"}),
    "every other": (lambda x: x[:, ::2], [(4, 5, 3)], [[(2, 7, 3)], [(2, 8, 3)]], {"Slice"}),
    "first half": (
        lambda x: x[:, : x.shape[1] // 2], [(4, 5, 3)], [[(2, 7, 3)], [(2, 8, 3)]], set(),
    ),
    "mean": (lambda x: x.mean(1), [(4, 5, 3)], [[(2, 7, 3)]], {"ReduceMean", "Reshape"}),
    "variance": (lambda x: x.var(1), [(4, 5, 3)], [[(2, 7, 3)]], set()),
    "one over root": (lambda x: x / math.sqrt(x.shape[1]), [(4, 5)], [[(2, 7)]], set()),
    "number beside a parameter": (
        lambda x: x.sum(0) * (TABLE / math.sqrt(x.shape[0])), [(4, 3)], [[(9, 3)]], set(),
    ),
    "cat": (lambda x: tw.cat([x, x, x[:1]], 0), [(4, 5)], [[(2, 7)]], set()),
    "flip": (lambda x: x.flip(0), [(4, 5)], [[(2, 7)]], {"Slice"}),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), [(4, 5)], [[(2, 7)]], {"Pad"}),
    "windows": (lambda x: x.unfold(1, 3, 2), [(4, 9)], [[(2, 7)], [(2, 12)]], set()),
    "positions": (
        lambda x: x + tw.arange(x.shape[0]).unsqueeze(1) * 0.5, [(4, 5)], [[(2, 7)]], set(),
    ),
    "two inputs": (
        lambda x, y: x.unsqueeze(1).expand(-1, y.shape[0], -1) + y,
        [(4, 3), (6, 3)], [[(2, 3), (5, 3)], [(1, 3), (9, 3)]], set(),
    ),
    "convolution": (
        lambda x: F.adaptive_avg_pool2d(F.conv2d(x, tw.ones(2, 3, 3, 3), stride=2), 1).flatten(1),
        [(1, 3, 9, 12)], [[(2, 3, 16, 21)]], {"Conv", "GlobalAveragePool", "Reshape"},
    ),
    "flattened convolution": (
        lambda x: F.conv2d(x, tw.ones(2, 3, 3, 3), stride=2).flatten(2).transpose(1, 2),
        [(1, 3, 9, 12)], [[(2, 3, 16, 21)]], set(),
    ),
    "several outputs": (lambda x: (x, x + 1, [x.sum(), x + 1]), [(4, 3)], [[(2, 3)]], set()),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes(name: str) -> None:
    function, example, others, expected = DYNAMIC[name]

    def flat(*xs: Any) -> Any:
        out = function(*xs)
        return (*out[:2], *out[2]) if isinstance(out, tuple) else out

    names = ["x", "y"][: len(example)]
    static = {"convolution": (1,), "flattened convolution": (1,), "two inputs": (1,)}.get(name, ())
    every = {
        n: {i: f"{n}{i}" for i in range(len(s)) if i not in static and s[i] != 3}
        for n, s in zip(names, example)
    }
    inputs = tuple(tw.randn(*s) for s in example)
    program = export(function, inputs, input_names=names, dynamic_axes=every)
    assert not expected or set(operators(program)) == expected
    for shapes in [example, *others]:
        same_as_ours(flat, program, *(tw.randn(*s) for s in shapes))


def test_sizes_stay_within_a_limit_and_a_multiple() -> None:
    table = tw.randn(6, 3)

    def limited(x: Any) -> Any:
        return x + table[: x.shape[1]]  # no more than 6

    program = export(limited, tw.randn(2, 6, 3), dynamic_axes={"x": {1: "t"}})
    for t in (1, 4, 6):
        same_as_ours(limited, program, tw.randn(2, t, 3))

    def paired(x: Any) -> Any:
        return x.reshape(x.shape[0] // 4, 4, 3).sum(1)

    program = export(paired, tw.randn(4, 3), dynamic_axes={"x": [0]})
    same_as_ours(paired, program, tw.randn(12, 3))


def test_dynamic_shapes() -> None:
    class Dim:
        def __init__(self, name: str):
            self.__name__ = name

    class Sum(nn.Module):
        def forward(self, x: Any, more: Any, scale: float = 1.0) -> Any:
            return {"sum": (x + more["y"]) * scale}

    n = Dim("n")
    args = (tw.randn(4, 3), {"y": tw.randn(4, 3)})
    program = export(
        Sum(), args, kwargs={"scale": 2.0}, dynamic_shapes={"x": {0: n}, "more": {"y": {0: n}}}
    )
    graph = program.model_proto.graph
    assert [i.name for i in graph.input] == ["x", "more_y"]
    assert graph.output[0].name == "output_sum"
    x, y = (np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(outputs(program, x, y)[0], (x + y) * 2, rtol=1e-6)


def test_files(tmp_path: Any) -> None:
    model, x = nn.Linear(3, 2), tw.randn(2, 3)
    stream = io.BytesIO()
    export(model, x, stream)
    path = tmp_path / "model.onnx"
    program = export(model, x, path, external_data=False)
    assert path.read_bytes() == stream.getvalue() == program.model_proto.SerializeToString()
    onnx.checker.check_model(str(path), full_check=True)
    assert "1 nodes" in repr(program)


def test_parameters_whose_memory_numpy_sees() -> None:
    model = nn.Linear(3, 2)
    array = model.weight.detach().numpy()
    graph = export(model, tw.randn(2, 3)).model_proto.graph
    assert {i.name for i in graph.initializer} == {"weight", "bias"}
    array[:] = 7  # still shared
    assert (np.asarray(model.weight.detach()) == 7).all()


# ---- errors ----------------------------------------------------------------------------------


def line_of(marker: str) -> int:
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {marker}"))


def test_a_branch_on_a_value() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(OnnxExporterError, match=r"looks at a value.*torch\.where"):
        export(f, tw.randn(3))
    assert tw.ones(2).tolist() == [1, 1]  # and recording goes on


def test_a_graph_that_depends_on_a_size() -> None:
    def f(x: Any) -> Any:
        total = x[0]
        for i in range(1, x.shape[0]):
            total = total + x[i]
        return total

    with pytest.raises(OnnxExporterError, match="depends on the size of a dynamic axis"):
        export(f, tw.randn(4, 2), dynamic_axes={"x": [0]})
    assert operators(export(f, tw.randn(4, 2)))  # of a fixed size it is fine


def test_a_size_that_is_no_formula() -> None:
    def f(x: Any) -> Any:
        return x.sum(0, keepdim=True).expand(x.shape[0] ** 3 % 11 + 1, 3)

    with pytest.raises(
        OnnxExporterError, match=r"expand at test_onnx.py:\d+ .*x_dynamic_axes_1 = 8"
    ):
        export(f, tw.randn(8, 3), dynamic_axes={"x": [0]})


def test_an_unsupported_op_is_named_with_its_line() -> None:
    def f(x: Any) -> Any:
        return tw.lgamma(x)  # here

    with pytest.raises(
        UnsupportedOperatorError, match=f"lgamma at test_onnx.py:{line_of('here')} "
    ):
        export(f, tw.ones(3))


def test_random_numbers() -> None:
    with pytest.raises(UnsupportedOperatorError, match="random"):
        export(lambda x: F.dropout(x, 0.5, training=True), tw.ones(3))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"opset_version": 11}, ValueError, "opset_version must be 18 to"),
        ({"input_names": ["a", "b"]}, ValueError, "2 input_names were given"),
        ({"output_names": ["x"]}, ValueError, "'x' is taken"),
        ({"dynamic_axes": {"x": {5: "n"}}}, ValueError, "5 is no axis of input 'x'"),
        ({"dynamic_shapes": {"z": {0: "n"}}}, ValueError, "'z', which is no argument"),
        ({"nonsense": 1}, TypeError, "unexpected keyword argument 'nonsense'"),
        ({"training": "TRAINING"}, NotImplementedError, "TrainingMode.EVAL"),
        ({"dynamic_axes": {"x": [0]}, "dynamic_shapes": [{0: "n"}]}, ValueError, "not both"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type, message: str) -> None:
    def f(x: Any) -> Any:
        return x + 1

    with pytest.raises(error, match=message):
        export(f, tw.ones(3), **options)


def test_bad_models() -> None:
    with pytest.raises(TypeError, match="expected a Module or a function"):
        export(3, tw.ones(2))  # type: ignore[arg-type]
    with pytest.raises(OnnxExporterError, match="returned no tensor"):
        export(lambda x: None, tw.ones(2))
    with pytest.raises(TypeError, match="don't fit the model"):
        export(nn.Linear(2, 2), (tw.ones(2), tw.ones(2)))


def test_axes_that_must_be_one_size() -> None:
    with pytest.raises(
        OnnxExporterError, match=r"can't be recorded with other sizes.*don't broadcast"
    ):
        export(
            lambda x, y: x + y,
            (tw.ones(4), tw.ones(4)),
            dynamic_axes={"x": {0: "n"}, "y": {0: "m"}},
        )


def test_without_onnx_installed(run_python: Any) -> None:
    run_python(
        """
import sys
sys.modules["onnx"] = None
import tilewright as torch
try:
    torch.onnx.export(lambda x: x, torch.ones(2))
except ImportError as error:
    assert "pip install tilewright[onnx]" in str(error), error
else:
    raise AssertionError
"""
    )


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", tw.randn(16, 8).to(tw.float8_e4m3fn))

    def forward(self, x: Any) -> tuple[Any, ...]:
        one, narrow = tw.tensor(1.0), x.to(tw.float8_e4m3fn)
        product = tw._scaled_mm(narrow, self.w, one, one, out_dtype=tw.float32)
        return product, narrow.float(), x.to(tw.float8_e5m2).float()


def test_float8() -> None:
    """Conversions with our edge cases, and products of what they give, from opset 19 on."""
    model = Quantized()
    x = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32) * 10.0
    x[0, :4] = [1e5, -1e5, 500, np.inf]
    x[1:, :4] *= 2.0 ** np.arange(-12, 0).reshape(3, 4)
    with pytest.raises(UnsupportedOperatorError, match="pass opset_version=19"):
        export(model, (tw.tensor(x),))
    program = export(model, (tw.tensor(x),), opset_version=19)
    for ours, theirs in zip(model(tw.tensor(x)), outputs(program, x), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)
