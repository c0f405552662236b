"""Quantization by its public names, beside PyTorch: rounding, models with narrow weights, files."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import nn
from tilewright.ao import quantization as q

pytestmark = [
    pytest.mark.computes,
    pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::DeprecationWarning:torch"),
]


def quiet(f: Any, *args: Any, **options: Any) -> Any:
    """PyTorch's answer without its warnings about the future of quantization."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args, **options)


EDGES = [0.0, -0.0, 1e9, -1e9, np.inf, -np.inf]
VALUES = np.concatenate([np.random.default_rng(0).normal(size=200) * 3, EDGES]).astype(np.float32)
AFFINE = [(0.1, 10), (0.05, 0), (0.0371, 127)]


@pytest.mark.parametrize("dtype", ["qint8", "quint8", "qint32"])
def test_quantized_tensors(torch: Any, dtype: str) -> None:
    for scale, zero in AFFINE:
        given = torch.tensor(VALUES[:-2]), scale, zero, getattr(torch, dtype)
        want = quiet(torch.quantize_per_tensor, *given)
        found = tw.quantize_per_tensor(tw.tensor(VALUES[:-2]), scale, zero, getattr(tw, dtype))
        np.testing.assert_array_equal(found.int_repr().numpy(), want.int_repr().numpy())
        same = np.abs(VALUES[:-2]) < 1e8  # beyond, PyTorch's difference of two int32 wraps around
        numbers = [each.dequantize().numpy()[same] for each in (found, want)]
        np.testing.assert_allclose(*numbers, rtol=1e-6)
        assert (found.q_scale(), found.q_zero_point()) == (want.q_scale(), want.q_zero_point())
        assert repr(found.dtype) == repr(want.dtype) and repr(found.qscheme()) == repr(
            want.qscheme()
        )
    small = np.ones((2, 3), np.float32)
    want = quiet(torch.quantize_per_tensor, torch.tensor(small), 0.1, 3, torch.quint8)
    assert repr(tw.quantize_per_tensor(tw.tensor(small), 0.1, 3, tw.quint8)) == repr(want)


def test_channels(torch: Any) -> None:
    x = (np.arange(-60, 60) * 0.05).reshape(3, 4, 10).astype(np.float32)
    scales, zeros = [0.1, 0.05, 0.2, 0.01], [0, 3, -5, 100]
    want, found = (
        quiet(
            m.quantize_per_channel,
            *(m.tensor(x), m.tensor(scales), m.tensor(zeros), -2 if m is tw else 1, m.qint8),
        )
        for m in (torch, tw)
    )
    np.testing.assert_array_equal(found.int_repr().numpy(), want.int_repr().numpy())
    np.testing.assert_array_equal(found.dequantize().numpy(), want.dequantize().numpy())
    assert found.q_per_channel_axis() == want.q_per_channel_axis() == 1
    np.testing.assert_allclose(found.q_per_channel_scales().numpy(), scales)
    assert found.q_per_channel_zero_points().tolist() == zeros
    several = tw.quantize_per_tensor(
        [tw.tensor(x), tw.tensor(x[0])], tw.tensor([0.1, 0.2]), tw.tensor([3, 5]), tw.qint8
    )
    scale = float(np.float32(0.2))
    assert several[1].equal(tw.quantize_per_tensor(tw.tensor(x[0]), scale, 5, tw.qint8))
    assert several[1].shape == (4, 10) and several[1].q_zero_point() == 5
    assert found.equal(found.clone()) and not found.equal(found.int_repr())
    for dtype, less in (("qint8", True), ("quint8", False), ("quint8", True)):
        a, b = (
            quiet(m.quantize_per_tensor_dynamic, m.tensor(x), getattr(m, dtype), less)
            for m in (torch, tw)
        )
        assert (a.q_scale(), a.q_zero_point()) == (b.q_scale(), b.q_zero_point())


def test_fake_quantization(torch: Any) -> None:
    """Values and gradients, which go straight through between the ends."""
    for scale, zero in AFFINE:
        pairs = []
        for m in (torch, tw):
            x = m.tensor(VALUES[:-4], requires_grad=True)
            y = m.fake_quantize_per_tensor_affine(x, scale, zero, 0, 127)
            y.backward(m.tensor(VALUES[:-4]))
            pairs.append((y.detach().numpy(), x.grad.numpy()))
        for want, found in zip(*pairs):
            np.testing.assert_array_equal(found, want)
    x = VALUES[:24].reshape(2, 3, 4)
    pairs = []
    for m in (torch, tw):
        leaf = m.tensor(x, requires_grad=True)
        zeros = m.tensor([0, 3, -5], dtype=m.int32)
        y = m.fake_quantize_per_channel_affine(leaf, m.tensor([0.1, 0.02, 0.3]), zeros, 1, -8, 7)
        (y * y).sum().backward()
        pairs.append((y.detach().numpy(), leaf.grad.numpy()))
    for want, found in zip(*pairs):
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_private_products(torch: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5, 128)).astype(np.float32)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((24, 40), (16, 40)))
    out = tw.empty(0, dtype=tw.int32)
    found = tw._int_mm(tw.tensor(a), tw.tensor(b).t(), out=out)
    assert found is out and np.array_equal(found.numpy(), a.astype(int) @ b.astype(int).T)
    w8, s8 = rng.integers(-127, 128, (48, 128)).astype(np.int8), rng.random(48, dtype=np.float32)
    w4 = rng.integers(0, 16, (48, 128)).astype(np.int32)
    both = rng.random((4, 48, 2), dtype=np.float32)
    for name, rest in (("8", (w8, s8)), ("4", (w4, both))):
        want, found = (_packed(m, name, x, *rest) for m in (torch, tw))
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-3)


def _packed(m: Any, name: str, x: Any, weight: Any, scales: Any) -> Any:
    if name == "8":
        return m._weight_int8pack_mm(m.tensor(x), m.tensor(weight), m.tensor(scales)).numpy()
    packed = m._convert_weight_to_int4pack_for_cpu(m.tensor(weight), 2)
    return m._weight_int4pack_mm_for_cpu(m.tensor(x), packed, 32, m.tensor(scales)).numpy()


# ---- models ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    tw.manual_seed(0)
    inner = nn.Sequential(nn.Linear(64, 96), nn.GELU())
    return nn.Sequential(inner, nn.Linear(96, 32, bias=False), nn.Tanh(), nn.Linear(32, 8))


X = np.random.default_rng(2).normal(size=(7, 64)).astype(np.float32)
CONFIGS = [
    (q.int8_weight_only(), 0.01),
    (q.int8_dynamic_activation_int8_weight(), 0.03),
    (q.int4_weight_only(group_size=32), 0.2),
]
"""Configs, and how far they may move the largest result of the model, as a part of it."""


def answer(model: Any, x: Any = X) -> np.ndarray:
    return model(tw.tensor(x)).detach().numpy()


@pytest.mark.parametrize(("config", "error"), CONFIGS)
def test_quantize_in_place(model: Any, config: Any, error: float) -> None:
    want, made = answer(model), copy.deepcopy(model)
    q.quantize_(made, config, filter_fn=lambda layer, name: name != "3")
    assert type(made[3]) is nn.Linear and type(made[0][0]) is type(made[1]) is not nn.Linear
    found = answer(made)
    assert 0 < np.abs(found - want).max() <= error * np.abs(want).max()
    if hasattr(made[1], "dequantized") and "Dynamic" not in type(made[1]).__name__:
        same = copy.deepcopy(model)  # with the rounded weights as floats
        for layer, other in ((same[0][0], made[0][0]), (same[1], made[1])):
            layer.weight.data = other.dequantized()
        np.testing.assert_allclose(found, answer(same), rtol=1e-4, atol=1e-5)
    file = io.BytesIO()
    tw.save(made.state_dict(), file)
    file.seek(0)
    again = copy.deepcopy(made)
    for buffer in again.buffers():
        buffer.zero_()
    again.load_state_dict(tw.load(file))
    np.testing.assert_array_equal(answer(again), found)
    assert np.abs(answer(made, X[0]) - want[0]).max() <= error * np.abs(want).max()
    assert answer(made, X[:0]).shape == (0, 8)
    for dtype in (tw.float64, tw.bfloat16):
        other = copy.deepcopy(made).to(dtype)(tw.tensor(X).to(dtype))
        assert other.dtype is dtype
        moved = np.abs(other.detach().double().numpy() - found).max()
        assert moved <= 2 * error * np.abs(want).max()


SPECS: dict[str, Any] = {
    "one scale": lambda m, q: {m.nn.Linear},
    "by channel": lambda m, q: {m.nn.Linear: q.per_channel_dynamic_qconfig},
    "by name": lambda m, q: {
        "0": q.per_channel_dynamic_qconfig, "1": None, "3": q.default_dynamic_qconfig,
        "0.0": q.default_dynamic_qconfig, m.nn.Tanh: q.default_dynamic_qconfig,
    },
    "name before type": lambda m, q: {
        "1": q.per_channel_dynamic_qconfig, m.nn.Linear: q.default_dynamic_qconfig
    },
    "type before parents": lambda m, q: {"0": q.default_dynamic_qconfig, m.nn.Linear: None},
    "with a zero point": lambda m, q: {
        m.nn.Linear: q.QConfig(
            q.default_dynamic_quant_observer, q.MinMaxObserver.with_args(dtype=m.qint8)
        )
    },
    "with zero points": lambda m, q: {
        m.nn.Linear: q.QConfig(
            q.default_dynamic_quant_observer, q.PerChannelMinMaxObserver.with_args(dtype=m.qint8)
        )
    },
}  # fmt: skip


def of_torch(torch: Any, model: Any) -> Any:
    """The same model of PyTorch."""
    theirs = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU()),
        torch.nn.Linear(96, 32, bias=False), torch.nn.Tanh(), torch.nn.Linear(32, 8),
    )  # fmt: skip
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in model.state_dict().items()})
    return theirs


@pytest.mark.parametrize("spec", SPECS)
def test_quantize_dynamic(torch: Any, model: Any, spec: str) -> None:
    """The same layers with the same integers and scales, whose results are PyTorch's."""
    made = q.quantize_dynamic(model, SPECS[spec](tw, q))
    other = quiet(
        torch.ao.quantization.quantize_dynamic,
        of_torch(torch, model),
        SPECS[spec](torch, torch.ao.quantization),
    )
    assert repr(made) == repr(other)
    assert type(model[0][0]) is nn.Linear  # a copy was quantized
    quantized = "type before parents" not in spec
    assert (type(made[0][0]) is tw.ao.nn.quantized.dynamic.Linear) == quantized
    for mine, yours in ((made[0][0], other[0][0]), (made[1], other[1]), (made[3], other[3])):
        if type(mine) is nn.Linear:
            continue
        weights = mine.weight(), yours.weight()
        assert repr(weights[0].qscheme()) == repr(weights[1].qscheme())
        codes = [weight.int_repr().numpy().astype(int) for weight in weights]
        assert np.abs(codes[0] - codes[1]).max() <= 0
        for name in ("q_scale", "q_zero_point"):
            if "channel" in repr(weights[0].qscheme()):
                name = name.replace("q_", "q_per_channel_") + "s"
                np.testing.assert_array_equal(*[getattr(w, name)().numpy() for w in weights])
            else:
                assert getattr(weights[0], name)() == getattr(weights[1], name)()
        if mine.in_features != 64:
            continue
        x = np.concatenate([X, X[:1] * 0.01])
        found, want = mine(tw.tensor(x)).detach().numpy(), yours(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(found, want, atol=5e-6)
    want = other(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(answer(made), want, atol=2e-3)
    again = q.quantize_dynamic(model, SPECS["one scale"](tw, q))
    if repr(again) == repr(made) or "channel" in spec:
        again.load_state_dict(made.state_dict())  # the scheme is that of the file
        np.testing.assert_array_equal(answer(again), answer(made))
        assert repr(again) == repr(made)


def test_quantize_dynamic_takes_what_pytorch_takes(torch: Any, model: Any) -> None:
    want = answer(model)
    half = q.quantize_dynamic(model, {"0.0": q.float16_dynamic_qconfig})
    assert half[0][0].weight().dtype is tw.float16 and type(half[1]) is nn.Linear
    assert np.abs(answer(half) - want).max() <= 1e-3
    for m in (torch, tw):
        own = m.ao.quantization
        net = m.nn.Sequential(m.nn.Conv2d(3, 4, 2), m.nn.RNN(3, 4), m.nn.Linear(3, 4))
        net[2].qconfig = own.per_channel_dynamic_qconfig
        made = quiet(own.quantize_dynamic, net, {m.nn.Conv2d, m.nn.RNN, m.nn.Linear}, inplace=True)
        assert made is net and type(made[0]) is m.nn.Conv2d and type(made[1]) is m.nn.RNN
        assert not made.training and not hasattr(made, "qconfig")
        assert repr(made[2].weight().qscheme()) == "torch.per_channel_affine"
        alone = m.nn.Linear(3, 4)
        assert type(quiet(own.quantize_dynamic, alone)) is m.nn.Linear

        class Own(m.nn.Linear):  # type: ignore[name-defined, misc]
            @classmethod
            def from_float(cls, mod: Any) -> Any:
                assert mod.qconfig.weight().dtype is not None
                return cls(mod.in_features, 5)

        net = m.nn.Sequential(m.nn.Linear(3, 4))
        assert quiet(own.quantize_dynamic, net, mapping={m.nn.Linear: Own})[0].out_features == 5
        for spec, error in ((None, ValueError), ({m.nn.Linear}, RuntimeError)):
            with pytest.raises(error, match=r"dtype|default settings"):
                quiet(own.quantize_dynamic, net, spec, dtype=m.qint32)
        wrong = own.QConfig(own.default_observer, own.MinMaxObserver)
        with pytest.raises(AssertionError, match=r"qint8 and float16, got:? torch.quint8"):
            quiet(own.quantize_dynamic, net, {m.nn.Linear: wrong})
        with pytest.raises(AssertionError, match="float_qparams_weight_only_qconfig"):
            quiet(own.quantize_dynamic, m.nn.Sequential(m.nn.Embedding(3, 4)), {m.nn.Embedding})


@pytest.mark.parametrize("spec", ["one scale", "by channels", "halves"])
def test_state_dicts_of_dynamic_layers_in_files(torch: Any, model: Any, spec: str) -> None:
    """Each framework reads what the other one has written, with the same names."""

    def made(m: Any, of: Any, fresh: bool) -> Any:
        config = {
            "one scale": "default_dynamic_qconfig", "by channels": "per_channel_dynamic_qconfig",
            "halves": "float16_dynamic_qconfig",
        }[spec]  # fmt: skip
        if fresh:
            of = m.nn.Sequential(*[copy.deepcopy(each) for each in of])
            with m.no_grad():
                for p in of.parameters():
                    p.zero_()
        chosen = {m.nn.Linear: getattr(m.ao.quantization, config)}
        return quiet(m.ao.quantization.quantize_dynamic, of, chosen)

    both = {tw: model, torch: of_torch(torch, model)}
    texts, results = [], []
    for writer, reader in ((tw, torch), (torch, tw), (tw, tw)):
        written = made(writer, both[writer], False)
        file = io.BytesIO()
        writer.save(written.state_dict(), file)
        file.seek(0)
        read = made(reader, both[reader], True)
        state = quiet(reader.load, file, weights_only=False)
        assert str(read.load_state_dict(state)) == "<All keys matched successfully>"
        texts.append((list(written.state_dict()), list(read.state_dict())))
        results.append(read(reader.tensor(X)).detach().numpy())
        assert written[1]._packed_params._weight_bias()[1] is None and written[1].scale == 1.0
    assert len({str(each) for pair in texts for each in pair}) == 1
    np.testing.assert_array_equal(results[1], results[2])
    np.testing.assert_allclose(results[0], results[2], atol=2e-3)


def test_traces_of_dynamic_layers(model: Any) -> None:
    """Programs that are traced, scripted and exported hold the product as one call."""
    made, x = q.quantize_dynamic(model), tw.tensor(X)
    want = answer(made)
    file = io.BytesIO()
    tw.jit.save(tw.jit.trace(made, x), file)
    file.seek(0)
    programs = [
        tw.jit.script(made), tw.jit.load(file), tw.export.export(made, (x,)).module(),
        tw.fx.symbolic_trace(made),
    ]  # fmt: skip
    for program in programs:
        np.testing.assert_array_equal(program(x).detach().numpy(), want)
    narrow = copy.deepcopy(model)
    q.quantize_(narrow, q.int8_weight_only())
    traced = tw.jit.trace(narrow, x)
    np.testing.assert_array_equal(traced(x).detach().numpy(), answer(narrow))
    np.testing.assert_array_equal(answer(copy.deepcopy(made).half()), want)


def test_gradients(model: Any) -> None:
    """Weights of bytes have no gradient; inputs have that of the rounded weights."""
    made = copy.deepcopy(model)
    q.quantize_(made, q.int8_weight_only())
    x = tw.tensor(X, requires_grad=True)
    made[0][0](x).square().sum().backward()
    weight, bias = made[0][0].dequantized().numpy(), made[0][0].bias.numpy()
    assert x.grad is not None
    np.testing.assert_allclose(
        x.grad.numpy(), 2 * (X @ weight.T + bias) @ weight, rtol=1e-4, atol=1e-5
    )
    q.quantize_(model_of := copy.deepcopy(model), q.int8_dynamic_activation_int8_weight())
    with pytest.raises(NotImplementedError, match="linear_by_rows has no derivative"):
        model_of(tw.tensor(X, requires_grad=True)).sum().backward()


SEEN = [
    VALUES[:120].reshape(4, 5, 6) * 3 + 2,
    VALUES[60:180].reshape(4, 5, 6),
    -np.ones((4, 5, 6), np.float32),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduce_range": True},
    {"quant_min": -8, "quant_max": 7},
    {"quant_min": 0, "quant_max": 127},
    {"eps": 1e-2},
]
OBSERVERS: dict[str, dict[str, Any]] = {
    "MinMaxObserver": {},
    "MovingAverageMinMaxObserver": {"averaging_constant": 0.1},
    "PerChannelMinMaxObserver": {"ch_axis": 1},
    "MovingAveragePerChannelMinMaxObserver": {"ch_axis": -1},
    "HistogramObserver": {"bins": 64},
}


@pytest.mark.parametrize("name", OBSERVERS)
def test_observers(torch: Any, name: str) -> None:
    """Scales, zero points and their types, or the error."""
    kind = "channel" if "Channel" in name else "tensor"
    schemes = [f"per_{kind}_{end}" for end in ("affine", "symmetric")]
    if kind == "channel":
        schemes.append("per_channel_affine_float_qparams")
    types = "quint8 qint8 qint32 quint4x2 int8 uint8 int16 uint16 int32".split()

    def seen(m: Any, dtype: str, scheme: str, options: dict[str, Any]) -> Any:
        try:
            made = getattr(m.ao.quantization, name)(
                dtype=getattr(m, dtype), qscheme=getattr(m, scheme), **options
            )
            for x in SEEN:
                made(m.tensor(x))
            return made.calculate_qparams()
        except NotImplementedError as error:
            return str(error).split(", at")[0].split()

    for dtype in types:
        for scheme in schemes:
            for options in (*OPTIONS, OBSERVERS[name]):
                want, found = (quiet(seen, m, dtype, scheme, options) for m in (torch, tw))
                if isinstance(want, list):
                    assert found == want
                    continue
                for mine, yours in zip(found, want, strict=True):
                    assert repr(mine.dtype) == repr(yours.dtype)
                    np.testing.assert_allclose(mine.numpy(), yours.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: q.quantize_(nn.Linear(3, 4), q.int8_weight_only()), ValueError, "nn.Sequential"),
        (
            lambda: q.quantize_(nn.Sequential(nn.Linear(33, 4)), q.int4_weight_only()),
            ValueError,
            "0: expected groups of a multiple of 32 .* in_features=33",
        ),
        (lambda: q.quantize_(nn.Sequential(), 8), TypeError, "expected a config"),
        (lambda: q.quantize_dynamic(nn.Module(), dtype=tw.int8), ValueError, "expected dtype"),
        (lambda: tw._int_mm(tw.ones(2, 3), tw.ones(3, 2)), RuntimeError, "of int8"),
        (lambda: tw.quantize_per_tensor(tw.ones(2), 0.1, 300, tw.quint8), RuntimeError, "above"),
        (lambda: tw.quantize_per_tensor(tw.ones(2), 0.1, 0, tw.int8), RuntimeError, "torch.qint8"),
        (lambda: tw.quantize_per_tensor(tw.ones(2), 1, 0, tw.qint8).sum(), RuntimeError, "deq"),
        (lambda: tw.zeros(2, dtype=tw.qint8), TypeError, "must be a dtype"),
        (
            lambda: tw.fake_quantize_per_tensor_affine(tw.ones(2), 0.1, 0, 3, 2),
            RuntimeError,
            "quant_min",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
