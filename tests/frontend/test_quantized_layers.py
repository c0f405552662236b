"""Layers and functions of quantized tensors, beside PyTorch's."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.functions.quantized import QuantizedTensor

pytestmark = [  # what PyTorch says of its own
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
]

LEVELS = 60
"""Weights stay below this: on processors without VNNI PyTorch's products overflow beyond."""


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(7)


def part(of: Any, path: str) -> Any:
    """A module below torch.ao.nn."""
    return importlib.import_module(f"{of.__name__.partition('.')[0]}.ao.nn.{path}")


def numbers(draw: Any, shape: Any) -> np.ndarray:
    found: np.ndarray = draw.normal(size=shape).astype("float32")
    return found


def of_channels(of: Any, values: np.ndarray) -> Any:
    widest = np.abs(values).max(tuple(range(1, values.ndim)))
    scales = of.tensor((widest / LEVELS).astype("float64"))
    zeros = of.zeros(len(values), dtype=of.int64)
    return of.quantize_per_channel(of.tensor(values), scales, zeros, 0, of.qint8)


def rounded(of: Any, values: np.ndarray, scale: float = 0.03, zero: int = 120) -> Any:
    return of.quantize_per_tensor(of.tensor(values), scale, zero, of.quint8)


def same(ours: Any, theirs: Any) -> None:
    assert ours.is_quantized and theirs.is_quantized
    assert str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape)
    assert ours.q_scale() == theirs.q_scale() and ours.q_zero_point() == theirs.q_zero_point()
    np.testing.assert_array_equal(ours.int_repr().numpy(), theirs.int_repr().numpy())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "path", ["quantized.Linear", "intrinsic.quantized.LinearReLU"], ids=["linear", "with relu"]
)
def test_linear_layers(torch: Any, draw: Any, path: str, bias: bool) -> None:
    x, w, b = numbers(draw, (3, 5, 40)), numbers(draw, (6, 40)), numbers(draw, 6)
    home, _, name = path.rpartition(".")
    found = []
    for of in (tw, torch):
        layer = getattr(part(of, home), name)(40, 6, bias)
        layer.set_weight_bias(of_channels(of, w), of.tensor(b) if bias else None)
        layer.scale, layer.zero_point = 0.1, 100
        found.append(layer(rounded(of, x)))
        again = getattr(part(of, home), name)(40, 6, bias)
        again.load_state_dict(layer.state_dict())
        assert again.scale == pytest.approx(0.1) and again.zero_point == 100
        keys = ["_packed_params._packed_params", "_packed_params.dtype", "scale", "zero_point"]
        assert sorted(layer.state_dict()) == keys
        assert tuple(layer.weight().shape) == (6, 40) and (layer.bias() is None) is not bias
    same(*found)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"groups": 2, "bias": False}, {"dilation": 2}],
    ids=str,
)
@pytest.mark.parametrize("relu", [False, True])
def test_convolutions(torch: Any, draw: Any, dims: int, options: Any, relu: bool) -> None:
    groups = options.get("groups", 1)
    x = numbers(draw, (2, 4, *(6,) * dims))
    w, b = numbers(draw, (6, 4 // groups, *(2,) * dims)), numbers(draw, 6)
    path, name = ("intrinsic.quantized", "ConvReLU") if relu else ("quantized", "Conv")
    found, texts = [], []
    for of in (tw, torch):
        layer = getattr(part(of, path), f"{name}{dims}d")(4, 6, 2, **options)
        bias = of.tensor(b) if options.get("bias", True) else None
        layer.set_weight_bias(of_channels(of, w), bias)
        layer.scale, layer.zero_point = 0.06, 110
        found.append(layer(rounded(of, x)))
        texts.append(repr(layer))
        assert sorted(layer.state_dict()) == ["bias", "scale", "weight", "zero_point"]
        with pytest.raises(ValueError, match="Input shape"):
            layer(rounded(of, numbers(draw, (4, 4))))
    same(*found)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("dims", [1, 2])
def test_transposed_convolutions(torch: Any, draw: Any, dims: int) -> None:
    x, w, b = numbers(draw, (2, 4, *(4,) * dims)), numbers(draw, (4, 6, *(3,) * dims)), None
    b = numbers(draw, 6)
    found, texts = [], []
    for of in (tw, torch):
        layer = getattr(part(of, "quantized"), f"ConvTranspose{dims}d")(
            4, 6, 3, stride=2, padding=1, output_padding=1
        )
        weight = of.quantize_per_tensor(of.tensor(w), 0.05, 0, of.qint8)
        layer.set_weight_bias(weight, of.tensor(b))
        layer.scale, layer.zero_point = 0.06, 110
        found.append(layer(rounded(of, x)))
        texts.append(repr(layer))
    same(*found)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["Conv1d", "Conv2d", "ConvTranspose2d"])
def test_dynamic_convolutions(draw: Any, name: str) -> None:
    dims = int(name[-2])
    x = tw.tensor(numbers(draw, (2, 4, *(6,) * dims)))
    layer = getattr(part(tw, "quantized.dynamic"), name)(4, 6, 3, stride=2)
    shape = (4, 6) if "Transpose" in name else (6, 4)
    w = numbers(draw, (*shape, *(3,) * dims))
    b = tw.tensor(numbers(draw, 6))
    weight = tw.quantize_per_tensor(tw.tensor(w), 0.03, 0, tw.qint8)
    layer.set_weight_bias(weight, b)
    function = getattr(tw.nn.functional, layer._function())
    seen = tw.quantize_per_tensor_dynamic(x, tw.quint8, True).dequantize()
    wanted = function(seen, weight.dequantize(), b, stride=2)
    np.testing.assert_allclose(layer(x).numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert repr(layer).startswith("DynamicQuantized" + name.replace("d", "d("))


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "adaptive_avg_pool2d": (3,),
    "avg_pool2d": (2,),
    "clamp": (-1.0, 1.0),
    "hardsigmoid": (),
    "hardswish": (0.1, 3),
    "hardtanh": (),
    "leaky_relu": (0.1,),
    "max_pool2d": (3,),
    "threshold": (0.5, 1.0),
    "interpolate": (None, 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(torch: Any, draw: Any, name: str) -> None:
    x = numbers(draw, (1, 2, 6, 6))
    found = [
        getattr(part(of, "quantized.functional"), name)(rounded(of, x), *FUNCTIONS[name])
        for of in (tw, torch)
    ]
    if name == "leaky_relu":  # PyTorch rounds halves of a product in another way
        steps = found[0].int_repr().int() - tw.tensor(found[1].int_repr().numpy()).int()
        assert steps.abs().max() <= 1
        return
    same(*found)


def test_functions_at_the_root(torch: Any, draw: Any) -> None:
    x = numbers(draw, (1, 2, 6, 6))
    found: list[list[Any]] = []
    for of in (tw, torch):
        q = rounded(of, x)
        statistics = (of.ones(2), of.zeros(2), of.tensor([0.1, 0.2]), of.tensor([0.5, 2.0]))
        found.append(
            [
                of.quantized_max_pool2d(q, [2, 2]),
                of.quantized_max_pool2d(q, [3, 3], [1, 1], 1),
                of.quantized_max_pool1d(q[0], [2]),
                of.quantized_batch_norm(q, *statistics, 1e-5, 0.2, 2),
                part(of, "quantized").ReLU6()(q),
                part(of, "quantized").Quantize(0.1, 10, of.quint8)(of.tensor(x)),
                q.permute(0, 2, 3, 1),
                q.reshape(-1),
            ]
        )
        assert isinstance(q, of.Tensor) and q.layout == of.strided
        dense = part(of, "quantized").DeQuantize()(q)
        assert not dense.is_quantized and dense.shape == (1, 2, 6, 6)
    for ours, theirs in zip(*found, strict=True):
        same(ours, theirs)


def test_printed(torch: Any) -> None:
    texts = []
    for of in (tw, torch):
        x = of.tensor([-1.0, 0.0, 1.0, 2.0])
        texts.append(
            [
                repr(of.quantize_per_tensor(x, 0.1, 10, of.quint8)),
                repr(of.quantize_per_tensor_dynamic(x, of.quint8, False)),
                repr(part(of, "quantized").Linear(4, 3)),
            ]
        )
    assert texts[0] == texts[1]


def test_embeddings(torch: Any, draw: Any) -> None:
    values = np.abs(numbers(draw, (5, 4)))
    codes = np.round(values / 0.02 + 3).astype("uint8")
    weight = QuantizedTensor(
        tw.tensor(codes), tw.full((5,), 0.02), tw.full((5,), 3.0), tw.quint8, 0
    )
    table = part(tw, "quantized").Embedding(5, 4)
    table.set_weight(weight)
    rows = tw.tensor([[1, 4], [0, 1]])
    wanted = (codes.astype("float32") - 3) * np.float32(0.02)
    np.testing.assert_allclose(table(rows).numpy(), wanted[rows.numpy()], rtol=1e-6)
    bags = part(tw, "quantized").EmbeddingBag(5, 4, _weight=weight, include_last_offset=True)
    sums = bags(tw.tensor([1, 4, 0]), tw.tensor([0, 2, 3]))
    np.testing.assert_allclose(sums.numpy(), [wanted[1] + wanted[4], wanted[0]], rtol=1e-5)
    assert str(table.weight().qscheme()) == "torch.per_channel_affine_float_qparams"
    for ours, theirs in ((table, "Embedding"), (bags, "EmbeddingBag")):
        assert repr(ours) == repr(getattr(part(torch, "quantized"), theirs)(5, 4))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_state_dicts_of_embeddings_in_files(torch: Any, name: str) -> None:
    """A file of either framework gives the other one its table."""
    index, made = [[1, 2], [3, 9]], {}
    for t in (torch, tw):
        for seed in (0, 1):  # the second is another table, which reads the file
            net = t.nn.Sequential(getattr(t.nn, name)(10, 8))
            rows = np.random.default_rng(seed).standard_normal((10, 8)).astype(np.float32)
            with t.no_grad():
                net[0].weight.copy_(t.from_numpy(rows))
            own = t.ao.quantization
            config = {type(net[0]): own.float_qparams_weight_only_qconfig}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made[t, seed] = own.quantize_dynamic(net, config, dtype=t.quint8)
    for writer, reader in ((tw, tw), (torch, tw), (tw, torch)):
        file = io.BytesIO()
        writer.save(made[writer, 0].state_dict(), file)
        file.seek(0)
        read = copy.deepcopy(made[reader, 1])
        keys = str(read.load_state_dict(reader.load(file, weights_only=False)))
        assert keys == "<All keys matched successfully>"
        found, want = read(reader.tensor(index)), made[writer, 0](writer.tensor(index))
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-6, atol=1e-6)


def test_layers_that_are_fused(torch: Any) -> None:
    for of in (tw, torch):
        fused = of.nn.intrinsic.LinearReLU(of.nn.Linear(2, 2), of.nn.ReLU())
        assert fused(of.ones(1, 2)).min() >= 0
        with pytest.raises(AssertionError, match="Incorrect types"):
            of.nn.intrinsic.ConvReLU2d(of.nn.ReLU(), of.nn.Conv2d(1, 1, 1))
        layer = of.nn.intrinsic.quantized.dynamic.LinearReLU(20, 30)
        assert layer(of.randn(4, 20)).shape == (4, 30)


def test_what_is_refused(torch: Any, draw: Any) -> None:
    x = numbers(draw, (1, 2, 3, 3))
    for of in (tw, torch):
        functional = part(of, "quantized.functional")
        q = rounded(of, x)
        with pytest.raises(NotImplementedError):
            functional.conv2d(q, q, None)
        with pytest.raises(ValueError, match="must be quantized"):
            functional.avg_pool2d(of.tensor(x), 2)
    with pytest.raises(AssertionError, match="observed layer"):
        part(tw, "quantized").Linear.from_float(tw.nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="qint8"):
        part(tw, "quantized").Linear(2, 2).set_weight_bias(rounded(tw, x), None)


def test_quantized_tensors_among_other_calls() -> None:
    x = tw.quantize_per_tensor(tw.tensor([1.0, 2.0]), 0.1, 3, tw.quint8)
    for call in (
        tw.exp,
        lambda q: tw.ones(2) + q,
        lambda q: tw.add(q, q),
    ):
        with pytest.raises((NotImplementedError, TypeError)):
            call(x)
    stacked = tw.stack([x, x])
    assert stacked.dtype is tw.quint8 and stacked.dequantize().tolist() == [[1.0, 2.0]] * 2
    file = io.BytesIO()
    tw.save({"x": x}, file)
    file.seek(0)
    copies = (
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
        tw.load(file, weights_only=False)["x"],
    )
    for each in copies:
        assert each.equal(x) and each.q_zero_point() == 3 and each.dtype is tw.quint8


MOVED: dict[str, Any] = {
    "transpose": lambda m, q: m.transpose(q, 1, 2),
    "permute": lambda m, q: m.permute(q, (2, 0, 1)),
    "flatten": lambda m, q: m.flatten(q, 1),
    "unsqueeze": lambda m, q: m.unsqueeze(q, 1),
    "chunk": lambda m, q: m.chunk(q, 2, dim=1),
    "chunk, a method": lambda m, q: q.chunk(2, dim=1),
    "split": lambda m, q: m.split(q, 3, 1),
    "split, a method": lambda m, q: q.split([1, 3], 1),
    "unbind": lambda m, q: q.unbind(0),
    "shuffled channels": lambda m, q: (
        m.transpose(q.view(2, 2, 2, 3), 1, 2).contiguous().view(2, 4, 3)
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_functions_that_move_elements(torch: Any, name: str) -> None:
    values = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("f")
    found = []
    for m in (tw, torch):
        moved = MOVED[name](m, m.quantize_per_tensor(m.tensor(values), 0.05, 3, m.qint8))
        parts = moved if isinstance(moved, tuple) else (moved,)
        found.append([(p.int_repr().numpy(), p.q_scale(), p.q_zero_point()) for p in parts])
    for (ours, *mine), (theirs, *yours) in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert mine == yours


def test_engines(torch: Any) -> None:
    for name in ("qnnpack", "onednn", "fbgemm", "none", None, "avx", "x86"):
        found = []
        for m in (tw, torch):
            engines = m.backends.quantized
            try:
                engines.engine = name
                found.append(engines.engine)
            except RuntimeError as error:
                found.append(str(error))
        assert found[0] == found[1]
    assert set(tw.backends.quantized.supported_engines) == {"qnnpack", "onednn", "fbgemm", "x86"}
    with pytest.raises(RuntimeError, match="Assignment not supported"):
        tw.backends.quantized.supported_engines = []
