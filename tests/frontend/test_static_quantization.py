"""torch.ao.quantization's static quantization beside PyTorch: the same integers."""

from __future__ import annotations

import copy
import importlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ao import quantization

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch calls all of it deprecated
LEVELS = 0.4
"""Inputs and weights stay small: on processors without VNNI PyTorch's products overflow beyond."""


def part(m: Any, path: str) -> Any:
    return importlib.import_module(f"{m.__name__}.{path}")


def drawn(m: Any, seed: int, *shape: int) -> Any:
    return m.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f") * LEVELS)


def network(m: Any) -> Any:
    nn, q = m.nn, part(m, "ao.quantization")
    functional = part(m, "ao.nn.quantized").FloatFunctional

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
            self.conv, self.bn, self.relu = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
            self.conv2 = nn.Conv2d(4, 4, 3, padding=1, groups=2)
            self.sum, self.pool, self.fc = functional(), nn.MaxPool2d(2), nn.Linear(36, 5)
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            x = self.relu(self.bn(self.conv(self.quant(x))))
            x = self.pool(self.sum.add(x, self.conv2(x)))
            return self.dequant(self.fc(self.drop(m.flatten(x, 1))))

    net, rng = Net(), np.random.default_rng(0)
    running = [(name, b) for name, b in net.named_buffers() if "running" in name]
    for name, p in (*net.named_parameters(), *running):
        values = rng.standard_normal(tuple(p.shape)).astype("f") * 0.3
        p.data.copy_(m.tensor(abs(values) + 0.5 if "var" in name else values))
    return net


def seen(found: Any) -> dict[str, Any]:
    """The integers and scales of a converted model."""
    facts: dict[str, Any] = {}
    for name, value in found.state_dict().items():
        if "packed" in name:
            value = value[0] if isinstance(value, tuple) else None
        if value is not None and getattr(value, "is_quantized", False):
            facts[name] = value.int_repr().numpy()
        elif value is not None:
            facts[name] = np.asarray(value.detach().numpy())
    return facts


def same(ours: Any, theirs: Any, inputs: Callable[[Any], Any], steps: int = 0) -> None:
    """Whether converted models are equal. steps: how far integers may be apart after training,
    where a last bit of a float decides to which integer a number is rounded."""
    bounds = {"rtol": 1e-3, "atol": 1e-4} if steps else {"rtol": 1e-5, "atol": 1e-6}
    mine, yours = seen(ours), seen(theirs)
    assert list(mine) == list(yours)
    for name, value in mine.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(value, yours[name], **bounds, err_msg=name)
        else:
            assert abs(value.astype(int) - yours[name].astype(int)).max() <= steps, name
    y, expected = ours(inputs(tw)), theirs(inputs(__import__("torch")))
    scale = mine["fc.scale"].item()
    apart = abs(y.detach().numpy() - expected.detach().numpy()) / scale
    assert apart.max() <= steps + 1e-3


def shown(model: Any) -> str:
    """The modules of a model, without numbers that rounding may change."""
    named = [(name, type(each).__name__) for name, each in model.named_modules()]
    return "\n".join(f"{name}: {kind}" for name, kind in named if kind != "LinearPackedParams")


@pytest.mark.parametrize("engine", ["x86", "qnnpack", "onednn", "default"])
def test_a_small_network_after_training(engine: str, torch: Any) -> None:
    found = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = q.fuse_modules(network(m).eval(), [["conv", "bn", "relu"]])
        net.qconfig = q.default_qconfig if engine == "default" else q.get_default_qconfig(engine)
        prepared = q.prepare(net)
        for i in range(4):
            prepared(drawn(m, i, 3, 2, 8, 8) * (1 + i))
        found += [q.convert(prepared), prepared]
    assert shown(found[1]) == shown(found[3]) and shown(found[0]) == shown(found[2])
    same(found[0], found[2], lambda m: drawn(m, 9, 3, 2, 8, 8))


@pytest.mark.parametrize("engine", ["x86", "qnnpack", "default", "unfused"])
def test_a_small_network_in_training(engine: str, torch: Any) -> None:
    found, losses = [], []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = network(m).train()
        net.drop.p = 0.0
        if engine != "unfused":
            net = q.fuse_modules_qat(net, [["conv", "bn", "relu"]])
        version = 0 if engine == "unfused" else 1
        own = q.get_default_qat_qconfig(engine if engine[-1] in "6k" else "x86", version)
        net.qconfig = q.default_qat_qconfig if engine == "default" else own
        if engine == "unfused":
            net.bn.qconfig = None
            net.bn, net.relu = m.nn.Identity(), m.nn.Identity()
        prepared = q.prepare_qat(net)
        optimizer = m.optim.SGD(prepared.parameters(), 0.01)
        for i in range(4):
            optimizer.zero_grad()
            loss = (prepared(drawn(m, i, 3, 2, 8, 8)) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if i == 2:
                prepared.apply(q.disable_observer)
        found += [q.convert(prepared.eval()), prepared]
    np.testing.assert_allclose(losses[:4], losses[4:], rtol=2e-3)
    assert shown(found[1]) == shown(found[3]) and shown(found[0]) == shown(found[2])
    assert list(found[1].state_dict()) == list(found[3].state_dict())
    same(found[0], found[2], lambda m: drawn(m, 9, 3, 2, 8, 8), steps=1)


OBSERVERS: dict[str, Callable[[Any], Any]] = {
    "min and max": lambda q: q.MinMaxObserver(),
    "7 bits": lambda q: q.MinMaxObserver(reduce_range=True),
    "own range": lambda q: q.MinMaxObserver(quant_min=0, quant_max=127),
    "symmetric": lambda q: q.default_weight_observer(),
    "average": lambda q: q.MovingAverageMinMaxObserver(averaging_constant=0.1),
    "histogram": lambda q: q.HistogramObserver(),
    "few bins": lambda q: q.HistogramObserver(bins=64, reduce_range=True),
    "channels": lambda q: q.default_per_channel_weight_observer(),
    "other channels": lambda q: q.PerChannelMinMaxObserver(ch_axis=1),
    "average of channels": lambda q: q.MovingAveragePerChannelMinMaxObserver(ch_axis=1),
}


@pytest.mark.parametrize("name", OBSERVERS)
def test_observers(name: str, torch: Any) -> None:
    found = []
    for m in (tw, torch):
        observer = OBSERVERS[name](part(m, "ao.quantization"))
        texts = [repr(observer)]
        for i, size in enumerate((1.0, 0.5, 4.0, 2.0, 8.0)):
            x = drawn(m, i, 6, 5, 4) ** 3 * size
            assert observer(x) is x
        scale, zero = observer.calculate_qparams()
        again = OBSERVERS[name](part(m, "ao.quantization"))
        again.load_state_dict(observer.state_dict())
        assert again.calculate_qparams()[0].tolist() == scale.tolist()
        found.append((scale.numpy(), zero.numpy(), list(observer.state_dict()), texts))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert found[0][2:] == found[1][2:]


FAKES = (
    "default_fake_quant default_weight_fake_quant default_per_channel_weight_fake_quant "
    "default_fused_act_fake_quant default_fused_wt_fake_quant "
    "default_fused_per_channel_wt_fake_quant"
).split()


@pytest.mark.parametrize("name", FAKES)
def test_fake_quantization(name: str, torch: Any) -> None:
    found = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        fake = getattr(q, name)()
        texts, rows = [repr(fake)], []
        for i in range(5):
            if i == 3:
                fake.apply(q.disable_observer)
            if i == 4:
                fake.apply(q.disable_fake_quant)
            x = (drawn(m, i, 4, 3, 2) * (i + 1)).requires_grad_()
            y = fake(x)
            (y * y).sum().backward()
            rows += [y.detach().numpy(), x.grad.numpy(), fake.scale.tolist()]
        found.append((rows, fake.zero_point.tolist(), texts, list(fake.state_dict())))
    for ours, theirs in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert found[0][1:] == found[1][1:]


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "relu": lambda m, f, x: f.relu(x),
    "relu method": lambda m, f, x: x.relu(),
    "relu in place": lambda m, f, x: f.relu(x, inplace=True),
    "relu6": lambda m, f, x: m.nn.ReLU6()(x),
    "hardtanh": lambda m, f, x: f.hardtanh(x, -0.5, 0.5),
    "leaky": lambda m, f, x: f.leaky_relu(x, 0.1),
    "sigmoid": lambda m, f, x: m.sigmoid(x),
    "tanh": lambda m, f, x: m.tanh(x),
    "max pool": lambda m, f, x: m.nn.MaxPool2d(2)(x),
    "average pool": lambda m, f, x: f.avg_pool2d(x, 2),
    "adaptive pool": lambda m, f, x: f.adaptive_avg_pool2d(x, (1, 1)),
    "mean": lambda m, f, x: x.mean([2, 3]),
    "clamp": lambda m, f, x: m.clamp(x, -0.2, 0.3),
    "flatten": lambda m, f, x: m.nn.Flatten()(m.flatten(x, 2)),
    "interpolate": lambda m, f, x: f.interpolate(x, scale_factor=2),
    "cat": lambda m, f, x: m.cat([x, x], 1),
    "dropout": lambda m, f, x: m.nn.Dropout(0.5).eval()(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_quantized_tensors(name: str, torch: Any) -> None:
    found = []
    for m in (tw, torch):
        x = m.quantize_per_tensor(drawn(m, 3, 2, 3, 4, 4), 0.02, 60, m.quint8)
        y = CALLS[name](m, m.nn.functional, x)
        found.append((y.int_repr().tolist(), y.q_scale(), y.q_zero_point(), str(y.dtype)))
    assert found[0] == found[1]


def test_operations_at_a_scale(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        x = m.quantize_per_tensor(drawn(m, 3, 2, 3, 4), 0.02, 60, m.quint8)
        y = m.quantize_per_tensor(drawn(m, 4, 2, 3, 4), 0.03, 90, m.quint8)
        q = part(m, "ao.nn.quantized").QFunctional()
        q.scale, q.zero_point = 0.05, 100
        made = [q.add(x, y), q.mul(x, y), q.cat([x, y], 1), q.add_relu(x, y)]
        made += [q.add_scalar(x, 0.5), q.mul_scalar(x, 2.0), q.mul_scalar(x, -0.5)]
        made += [q.add_scalar(x, 9.0), q.add_scalar(x, -7.3)]
        found.append([(r.int_repr().tolist(), r.q_scale(), r.q_zero_point()) for r in made])
    for ours, theirs in zip(*found, strict=True):
        assert ours[0] == theirs[0] and ours[2] == theirs[2]
        assert ours[1] == pytest.approx(theirs[1])


def test_quantize_and_wrap(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = m.nn.Sequential(m.nn.Linear(4, 3), m.nn.ReLU(), m.nn.Linear(3, 2)).eval()
        for i, p in enumerate(net.parameters()):
            p.data.copy_(drawn(m, i, *p.shape))
        net[0].qconfig = q.get_default_qconfig("x86")
        wrapped = q.add_quant_dequant(net)
        made = q.quantize(wrapped, lambda model, x: model(x), [drawn(m, 7, 5, 4)])
        found.append((shown(made), made(drawn(m, 8, 5, 4)).detach().numpy()))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-5)


def test_wrong_uses_are_pytorchs_errors(torch: Any) -> None:
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = network(m)
        with pytest.raises(AssertionError, match="did not find fuser method for"):
            q.fuse_modules(net, [["relu", "conv"]])
        with pytest.raises(AssertionError, match="training mode"):
            q.prepare_qat(net.eval())
        with pytest.raises(AssertionError, match="not supported"):
            q.get_default_qconfig("tpu")
        with pytest.warns(UserWarning, match="must run observer"):
            scale, zero = q.MinMaxObserver().calculate_qparams()
        assert (scale.item(), zero.item()) == (1.0, 0)


TENSORS: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda m: m.quantize_per_tensor(drawn(m, 0, 2, 3), 0.1, 3, m.quint8),
    "signed": lambda m: m.quantize_per_tensor(drawn(m, 0, 2, 3), 0.1, 3, m.qint8),
    "32 bits": lambda m: m.quantize_per_tensor(drawn(m, 0, 2, 3), 0.1, 3, m.qint32),
    "turned": lambda m: m.quantize_per_tensor(drawn(m, 0, 2, 3), 0.1, 3, m.quint8).t(),
    "a row": lambda m: m.quantize_per_tensor(drawn(m, 0, 2, 3), 0.1, 3, m.quint8)[1],
    "channels": lambda m: m.quantize_per_channel(
        drawn(m, 0, 2, 3), m.tensor([0.1, 0.2, 0.3]).double(), m.tensor([0, 1, 2]), 1, m.qint8
    ),
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", TENSORS)
def test_quantized_tensors_in_files(name: str, weights_only: bool, torch: Any) -> None:
    for source, reader in ((tw, torch), (torch, tw), (tw, tw)):
        file = io.BytesIO()
        made = TENSORS[name](source)
        source.save({"x": [made]}, file)
        file.seek(0)
        found = reader.load(file, weights_only=weights_only)["x"][0]
        assert found.is_quantized and str(found.dtype) == str(made.dtype)
        assert str(found.qscheme()) == str(made.qscheme()) and found.stride() == made.stride()
        np.testing.assert_array_equal(found.int_repr().numpy(), made.int_repr().numpy())
        np.testing.assert_array_equal(found.dequantize().numpy(), made.dequantize().numpy())


def test_state_dicts_of_converted_models_in_files(torch: Any) -> None:
    models = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = q.fuse_modules(network(m).eval(), [["conv", "bn", "relu"]])
        net.qconfig = q.get_default_qconfig("x86")
        prepared = q.prepare(net)
        prepared(drawn(m, 1 + (m is torch), 3, 2, 8, 8))  # other scales in each
        models.append(q.convert(prepared))
    for a, b, of_a, of_b in ((tw, torch, *models), (torch, tw, *reversed(models))):
        file = io.BytesIO()
        a.save(of_a.state_dict(), file)
        file.seek(0)
        of_b.load_state_dict(b.load(file))
        same(models[0], models[1], lambda m: drawn(m, 9, 3, 2, 8, 8))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("rows", [False, True])
def test_the_fused_call(rows: bool, symmetric: bool, torch: Any) -> None:
    found = []
    for m in (tw, torch):
        low, high = (m.tensor([] if rows else s * float("inf")) for s in (1, -1))
        scale, zero, on = m.tensor([1.0]), m.tensor([0], dtype=m.int32), m.tensor([1])
        made = []
        for i in range(3):
            x = (drawn(m, i, 4, 3) + (0.0 if i else 2.0)).requires_grad_()
            y = m.fused_moving_avg_obs_fake_quant(
                x, on, on, low, high, scale, zero, 0.1, -128, 127, 0, rows, symmetric
            )
            y.sum().backward()
            made += [y.tolist(), x.grad.tolist(), scale.tolist(), zero.tolist(), low.tolist()]
        q = m.quantize_per_channel(
            drawn(m, 0, 2, 3), scale[:1].double().repeat(2), m.tensor([1, 2]), 0, m.qint8
        )
        made += [
            m.int_repr(q).tolist(),
            m.q_per_channel_zero_points(q).tolist(),
            m.q_per_channel_scales(q).tolist(),
            m.q_per_channel_axis(q),
        ]
        p = m.quantize_per_tensor(drawn(m, 0, 2, 3), 0.5, 3, m.qint8)
        found.append([*made, m.q_scale(p), m.q_zero_point(p)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def plain_network(m: Any) -> Any:
    """A network without stubs and modules for its functions."""
    nn, f = m.nn, m.nn.functional

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
            self.conv2, self.pool = nn.Conv2d(4, 4, 3, padding=1), nn.MaxPool2d(2)
            self.fc, self.fc2 = nn.Linear(36, 5), nn.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            x = f.relu(self.bn(self.conv(x)))
            x = self.pool(x + self.conv2(x))
            return m.exp(self.fc2(f.relu(self.fc(m.flatten(x, 1)))))

    net, rng = Net(), np.random.default_rng(0)
    running = [(name, b) for name, b in net.named_buffers() if "running" in name]
    for name, p in (*net.named_parameters(), *running):
        values = rng.standard_normal(tuple(p.shape)).astype("f") * 0.3
        p.data.copy_(m.tensor(abs(values) + 0.5 if "var" in name else values))
    return net


@pytest.mark.parametrize("chosen", ["x86", "qnnpack", "one by name", "one by a pattern"])
def test_traced_networks(chosen: str, torch: Any) -> None:
    found = []
    for m in (tw, torch):
        q, fx = part(m, "ao.quantization"), part(m, "ao.quantization.quantize_fx")
        mapping = q.get_default_qconfig_mapping("qnnpack" if chosen == "qnnpack" else "x86")
        if chosen == "one by name":
            mapping.set_module_name("conv2", None)
        elif chosen == "one by a pattern":
            mapping.set_module_name_regex("fc2.*", None)
        net = plain_network(m).eval()
        prepared = fx.prepare_fx(net, mapping, (drawn(m, 0, 3, 2, 8, 8),))
        for i in range(4):
            prepared(drawn(m, i, 3, 2, 8, 8) * (1 + i))
        converted = fx.convert_fx(prepared)
        found.append(converted(drawn(m, 9, 3, 2, 8, 8)).detach().numpy())
        assert "activation_post_process" not in converted.code
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_a_traced_network_in_training(torch: Any) -> None:
    found, losses = [], []
    for m in (tw, torch):
        q, fx = part(m, "ao.quantization"), part(m, "ao.quantization.quantize_fx")
        mapping = q.get_default_qat_qconfig_mapping("x86")
        example = (drawn(m, 0, 3, 2, 8, 8),)
        prepared = fx.prepare_qat_fx(plain_network(m).train(), mapping, example)
        optimizer = m.optim.SGD(prepared.parameters(), 0.01)
        for i in range(4):
            optimizer.zero_grad()
            loss = (prepared(drawn(m, i, 3, 2, 8, 8)) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        converted = fx.convert_fx(prepared.eval())
        found.append(converted(drawn(m, 9, 3, 2, 8, 8)).detach().numpy())
    np.testing.assert_allclose(losses[:4], losses[4:], rtol=2e-3)
    np.testing.assert_allclose(found[0], found[1], atol=0.03)  # a step of the last scale, twice


def test_a_copy_of_a_traced_module_is_whole() -> None:
    """A layer that is set in a copy is the one that the copy calls."""
    traced = tw.fx.symbolic_trace(plain_network(tw).eval())
    again = copy.deepcopy(traced)
    again.fc2 = tw.nn.Identity()
    x = drawn(tw, 0, 3, 2, 8, 8)
    assert again(x).shape == (3, 5) and traced(x).shape == (3, 3)
    assert again.state_dict().keys() == {k for k in traced.state_dict() if "fc2" not in k}


def test_older_paths_hold_the_same(torch: Any) -> None:
    paths = {
        "ao.quantization.observer": "HistogramObserver default_observer MinMaxObserver",
        "ao.quantization.qconfig": "QConfig get_default_qconfig default_qat_qconfig",
        "ao.quantization.fake_quantize": "FakeQuantize default_fake_quant disable_observer",
        "ao.quantization.qconfig_mapping": "QConfigMapping get_default_qconfig_mapping",
        "quantization": "prepare convert fuse_modules get_default_qconfig HistogramObserver",
        "quantization.quantize_fx": "prepare_fx convert_fx",
        "nn.qat": "Linear Conv2d",
        "nn.intrinsic.qat": "ConvBnReLU2d",
        "nn.quantized": "QFunctional",
    }
    for path, names in paths.items():
        for name in names.split():
            assert hasattr(part(torch, path), name)
            assert getattr(part(tw, path), name) is not None
    assert tw.quantization.prepare is tw.ao.quantization.prepare


class Traced(tw.nn.Module):
    """Layers of quantized tensors, and functions and methods between them."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.relu = tw.nn.Conv2d(1, 4, 3), tw.nn.ReLU()
        self.linear = tw.nn.Linear(36, 3)
        self.of_two = tw.ao.nn.quantized.FloatFunctional()

    def forward(self, x: tw.Tensor) -> tw.Tensor:
        x = self.relu(self.conv(self.quant(x)))
        x = self.of_two.cat([self.of_two.add(x, x), self.of_two.mul_scalar(x, 2.0)], 1)
        x = tw.nn.functional.max_pool2d(x, 2).transpose(1, 2)[:, :, :4]
        x = tw.flatten(x, 2).reshape(x.shape[0], -1)
        return self.dequant(self.linear(x))


def test_traces_of_quantized_models_take_other_batches_and_are_saved() -> None:
    tw.manual_seed(0)
    model = Traced().eval()
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    model = quantization.prepare(quantization.fuse_modules(model, [["conv", "relu"]]))
    model(tw.randn(8, 1, 8, 8))
    model = quantization.convert(model)
    traced = tw.jit.trace(model, tw.randn(2, 1, 8, 8))
    calls = [str(node.target) for node in traced.graph.nodes if node.op == "call_module"]
    assert calls == ["quant", "conv", "linear", "dequant"]
    memory = io.BytesIO()
    tw.jit.save(traced, memory)
    memory.seek(0)
    x = tw.randn(5, 1, 8, 8)
    for program in (traced, tw.jit.load(memory)):
        assert program(x).tolist() == model(x).tolist()
    with pytest.raises(RuntimeError, match="takes or gives quantized tensors"):
        tw.export.export(model, (x,))
