"""Quantized norms, activations, embeddings and recurrent layers, and defaults, beside PyTorch's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch calls all of it deprecated


def part(m: Any, path: str) -> Any:
    return importlib.import_module(f"{m.__name__}.{path}")


def drawn(m: Any, seed: int, *shape: int) -> Any:
    return m.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f"))


def rounded(m: Any, shape: tuple[int, ...]) -> Any:
    return m.quantize_per_tensor(drawn(m, 0, *shape), 0.03, 120, m.quint8)


def same(ours: Any, theirs: Any) -> None:
    assert ours.q_scale() == theirs.q_scale() and ours.q_zero_point() == theirs.q_zero_point()
    np.testing.assert_array_equal(ours.int_repr().numpy(), theirs.int_repr().numpy())


def parameter(m: Any, seed: int, *shape: int) -> Any:
    return m.nn.Parameter(drawn(m, seed, *shape))


LAYERS: dict[str, tuple[tuple[int, ...], Any]] = {
    "LayerNorm": ((2, 3, 5), lambda m: ([5], parameter(m, 1, 5), parameter(m, 2, 5), 0.05, 90)),
    "GroupNorm": ((2, 4, 5), lambda m: (2, 4, parameter(m, 1, 4), parameter(m, 2, 4), 0.05, 90)),
    "InstanceNorm1d": ((2, 4, 5), lambda m: (4, parameter(m, 1, 4), parameter(m, 2, 4), 0.05, 90)),
    "InstanceNorm2d": (
        (2, 4, 5, 3),
        lambda m: (4, parameter(m, 1, 4), parameter(m, 2, 4), 0.05, 90),
    ),
    "Hardswish": ((3, 7), lambda m: (0.04, 100)),
    "LeakyReLU": ((3, 7), lambda m: (0.04, 100, 0.2)),
    "ELU": ((3, 7), lambda m: (0.04, 100, 0.7)),
    "Sigmoid": ((3, 7), lambda m: (1 / 256, 0)),
    "Softmax": ((3, 7), lambda m: (1, 1 / 256, 0)),
    "PReLU": ((3, 7), lambda m: (0.04, 100)),
    "Dropout": ((3, 7), lambda m: (0.5,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_numbers(torch: Any, name: str) -> None:
    shape, arguments = LAYERS[name]
    found = []
    for m in (tw, torch):
        layer = getattr(part(m, "ao.nn.quantized"), name)(*arguments(m))
        if name == "PReLU":
            layer.set_weight(m.quantize_per_tensor(m.tensor([0.3]), 0.01, 0, m.quint8))
        state = {k: np.asarray(v.detach().numpy()) for k, v in layer.state_dict().items()}
        found.append((layer(rounded(m, shape)), repr(layer), state))
    (ours, text, state), (theirs, wanted, known) = found
    same(ours, theirs)
    assert text == wanted and list(state) == list(known)
    for key in known:
        np.testing.assert_array_equal(state[key], known[key])


def network(m: Any) -> Any:
    nn, q = m.nn, part(m, "ao.quantization")

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
            self.table = nn.Embedding(9, 6)
            self.table.qconfig = q.float_qparams_weight_only_qconfig
            self.norm, self.act = nn.LayerNorm(6), nn.Hardswish()
            self.batch, self.relu = nn.BatchNorm2d(2), nn.ReLU()
            self.leaky, self.elu, self.drop = nn.LeakyReLU(0.1), nn.ELU(), nn.Dropout()

        def forward(self, i: Any) -> Any:
            x = self.drop(self.act(self.norm(self.quant(self.table(i)))))
            x = self.relu(self.batch(x.reshape(2, 2, 3, 6)))
            return self.dequant(self.elu(self.leaky(x)))

    net = Net().eval()
    for seed, (name, p) in enumerate((*net.named_parameters(), *net.named_buffers())):
        if "num_batches" not in name:
            values = drawn(m, seed, *p.shape)
            p.data.copy_(values.abs() + 0.5 if "var" in name else values)
    return net


def test_static_quantization_of_norms_and_tables(torch: Any) -> None:
    places = np.random.default_rng(3).integers(0, 9, (4, 3))
    results = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = q.fuse_modules(network(m), [["batch", "relu"]])
        net.qconfig = q.get_default_qconfig("fbgemm")
        ready = q.prepare(net)
        ready(m.tensor(places))
        seen = q.get_observer_state_dict(ready)
        made = q.convert(ready)
        table = made.table.weight()
        scales = table.q_per_channel_scales(), table.q_per_channel_zero_points()
        results.append((
            made(m.tensor(places)).detach().numpy(),
            [n for each in made.modules() if (n := type(each).__name__) != "EmbeddingPackedParams"],
            table.int_repr().numpy(),
            [s.numpy() for s in scales],
            sorted(seen),
        ))  # fmt: skip
    ours, theirs = results
    assert ours[1] == theirs[1] and ours[4] == theirs[4]
    np.testing.assert_array_equal(ours[2], theirs[2])
    np.testing.assert_allclose(ours[3], theirs[3], rtol=1e-6)
    # The same integers, at scales that may differ in their last bit.
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


KINDS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "LSTM": ((5, 3, 6), {"num_layers": 2, "bidirectional": True}),
    "GRU": ((3, 5, 6), {"batch_first": True}),
    "LSTMCell": ((3, 6), {}),
    "GRUCell": ((3, 6), {}),
    "RNNCell": ((3, 6), {"nonlinearity": "relu"}),
}


@pytest.mark.parametrize("half", [False, True], ids=["int8", "float16"])
@pytest.mark.parametrize("name", KINDS)
def test_recurrent_layers(torch: Any, name: str, half: bool) -> None:
    shape, options = KINDS[name]
    theirs = getattr(torch.nn, name)(6, 8, **options)
    ours = getattr(tw.nn, name)(6, 8, **options)
    ours.load_state_dict({k: tw.from_numpy(v.numpy()) for k, v in theirs.state_dict().items()})
    results = []
    for m, layer in ((tw, ours), (torch, theirs)):
        q = part(m, "ao.quantization")
        kind = m.float16 if half else m.qint8
        made = q.quantize_dynamic(m.nn.Sequential(layer), dtype=kind)[0]
        assert type(made) is getattr(part(m, "ao.nn.quantized.dynamic"), name)
        found, states = made(drawn(m, 1, *shape)), made.get_bias()
        found = found[0] if isinstance(found, tuple) else found
        text = repr(made)
        results.append((found.detach().numpy(), text, list(made.get_weight()), list(states)))
    (mine, text, weights, _), (yours, wanted, known, _) = results
    assert text == wanted and weights == known
    # A number may be rounded to the next step, as sums differ in their last bits.
    np.testing.assert_allclose(mine, yours, atol=2e-3)


def test_packed_sequences_through_a_quantized_lstm(torch: Any) -> None:
    layer = tw.nn.LSTM(4, 5, bidirectional=True)
    made = tw.ao.quantization.quantize_dynamic(tw.nn.Sequential(layer))[0]
    x = drawn(tw, 0, 6, 3, 4)
    lengths = [6, 4, 1]
    rnn = tw.nn.utils.rnn
    packed = rnn.pack_padded_sequence(x, lengths)
    y, (h, c) = made(packed)
    whole, (wanted, cells) = layer(packed)
    padded, _ = rnn.pad_packed_sequence(y)
    np.testing.assert_allclose(y.data.numpy(), whole.data.detach().numpy(), atol=0.03)
    np.testing.assert_allclose(h.numpy(), wanted.detach().numpy(), atol=0.03)
    np.testing.assert_allclose(c.numpy(), cells.detach().numpy(), atol=0.03)
    for i, n in enumerate(lengths):
        assert not padded[n:, i].any()


def test_embeddings_of_bytes(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = m.nn.Sequential(m.nn.EmbeddingBag(7, 5, mode="sum"))
        net[0].weight.data.copy_(drawn(m, 0, 7, 5))
        config = {m.nn.EmbeddingBag: q.float_qparams_weight_only_qconfig}
        made = q.quantize_dynamic(net, config, dtype=m.quint8)
        rows, bags = m.tensor([1, 2, 4, 5, 4]), m.tensor([0, 3])
        found.append((made[0](rows, bags).numpy(), made[0].weight().int_repr().numpy(), repr(made)))
    np.testing.assert_array_equal(found[0][1], found[1][1])
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-5)
    assert found[0][2] == found[1][2]


def test_training_of_a_linear_layer_and_a_norm(torch: Any) -> None:
    results = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = m.nn.Sequential(
            q.QuantStub(), m.nn.Linear(4, 3), m.nn.BatchNorm1d(3), q.DeQuantStub()
        )
        for seed, p in enumerate(net.parameters()):
            p.data.copy_(drawn(m, seed, *p.shape) * 0.3)
        net = q.fuse_modules_qat(net.train(), [["1", "2"]])
        net.qconfig = q.get_default_qat_qconfig("fbgemm")
        net = q.prepare_qat(net)
        for step in range(3):
            loss = net(drawn(m, 10 + step, 6, 4)).square().sum()
            loss.backward()
        grads = [p.grad.numpy() for p in net.parameters()]
        made = q.convert(net.eval())
        kinds = [type(each).__name__ for each in made]
        results.append((loss.item(), grads, made(drawn(m, 9, 6, 4)).numpy(), kinds))
    ours, theirs = results
    assert ours[3] == theirs[3]
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4)
    for mine, yours in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(ours[2], theirs[2], atol=1e-6)


def test_training_of_a_table(torch: Any) -> None:
    results = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        table = part(m, "ao.nn.qat").Embedding(6, 4, qconfig=q.default_embedding_qat_qconfig)
        table.weight.data.copy_(drawn(m, 0, 6, 4))
        found = table(m.tensor([1, 3, 3]))
        found.square().sum().backward()
        results.append((found.detach().numpy(), table.weight.grad.numpy()))
    for mine, yours in zip(*results, strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-5)


DEFAULTS = (
    "default_qconfig default_debug_qconfig default_per_channel_qconfig float16_static_qconfig "
    "default_dynamic_qconfig per_channel_dynamic_qconfig float_qparams_weight_only_qconfig "
    "default_qat_qconfig default_qat_qconfig_v2 default_dynamic_qat_qconfig "
    "default_weight_only_qconfig default_activation_only_qconfig default_embedding_qat_qconfig "
    "default_symmetric_qnnpack_qconfig default_per_channel_symmetric_qnnpack_qconfig "
    "default_symmetric_qnnpack_qat_qconfig default_per_channel_symmetric_qnnpack_qat_qconfig "
    "default_reuse_input_qconfig default_quint8_weight_qconfig float16_dynamic_qconfig"
).split()


@pytest.mark.parametrize("name", DEFAULTS)
def test_default_qconfigs(torch: Any, name: str) -> None:
    results = []
    for m in (tw, torch):
        config = getattr(part(m, "ao.quantization.qconfig"), name)
        facts: list[Any] = []
        for which in (config.activation, config.weight):
            made = which()
            facts.append([type(made).__name__, *map(str, (
                getattr(made, "dtype", None), getattr(made, "qscheme", None),
                getattr(made, "quant_min", None), getattr(made, "quant_max", None),
                getattr(made, "ch_axis", None), getattr(made, "is_dynamic", None)))])  # fmt: skip
            x = drawn(m, 0, 3, 4)
            facts.append(np.asarray(made(x).detach().numpy()))
            if facts[-2][0] not in _WITHOUT_SCALES:
                facts += [np.asarray(t.numpy()) for t in made.calculate_qparams()]
        results.append(facts)
    for mine, yours in zip(*results, strict=True):
        if isinstance(mine, list):
            assert mine == yours
        else:
            np.testing.assert_allclose(mine, yours, rtol=1e-5, atol=1e-6)


_WITHOUT_SCALES = (
    "PlaceholderObserver", "NoopObserver", "ReuseInputObserver", "RecordingObserver", "Identity",
)  # fmt: skip


def test_scales_that_do_not_change(torch: Any) -> None:
    results = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        made = q.default_fixed_qparams_range_neg1to1_fake_quant()
        observer = q.FixedQParamsObserver(0.1, 3)
        results.append((
            made(drawn(m, 0, 5)).numpy(),
            [float(x) for each in (made, observer) for x in each.calculate_qparams()],
            list(made.state_dict()),
            q.qconfig_equals(q.default_qconfig, q.get_default_qconfig("qnnpack")),
            q.qconfig_equals(q.default_qconfig, q.default_qconfig),
        ))  # fmt: skip
        with pytest.raises(Exception, match="calculate_qparams should not be called"):
            q.ReuseInputObserver().calculate_qparams()
    assert results[0][2:] == results[1][2:]
    np.testing.assert_allclose(results[0][1], results[1][1])
    np.testing.assert_array_equal(results[0][0], results[1][0])


def recurrent_net(m: Any, **options: Any) -> Any:
    nn, q = m.nn, part(m, "ao.quantization")

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
            self.rnn, self.fc = nn.LSTM(3, 4, 2, **options), nn.Linear(8, 2)

        def forward(self, x: Any) -> Any:
            y, _ = self.rnn(self.quant(x))
            return self.dequant(self.fc(y))

    net = Net()
    for seed, p in enumerate(net.parameters()):
        p.data.copy_(drawn(m, seed, *p.shape) * 0.3)
    return net


@pytest.mark.parametrize("training", [False, True], ids=["static", "qat"])
def test_an_observed_lstm(torch: Any, training: bool) -> None:
    results = []
    for m in (tw, torch):
        q = part(m, "ao.quantization")
        net = recurrent_net(m, bidirectional=True, batch_first=True).train(training)
        if training:
            net.qconfig = q.get_default_qat_qconfig("fbgemm")
            net = q.prepare_qat(net)
        else:
            net.qconfig = q.QConfig(
                q.MinMaxObserver.with_args(reduce_range=True), q.default_weight_observer
            )
            net = q.prepare(net)
        seen = net(drawn(m, 50, 2, 5, 3))
        grads = []
        if training:
            seen.square().sum().backward()
            grads = [p.grad.numpy() for p in net.parameters()]
        made = q.convert(net.eval())
        found = made(drawn(m, 50, 2, 5, 3))
        kinds = [(n, type(each).__name__) for n, each in made.named_modules() if "_packed" not in n]
        scales = [float(v) for k, v in made.state_dict().items() if k.endswith(".scale")]
        results.append((seen.detach().numpy(), found.detach().numpy(), kinds, scales, grads))
    ours, theirs = results
    assert ours[2] == theirs[2]
    # In training a number may be rounded to the next step, as sums differ in their last bits, and
    # the averages of what is observed follow.
    step = max(ours[3])
    np.testing.assert_allclose(ours[0], theirs[0], atol=step * 1.01 if training else 1e-5)
    np.testing.assert_allclose(ours[3], theirs[3], rtol=2e-3 if training else 1e-4, atol=1e-6)
    assert np.abs(ours[1] - theirs[1]).max() <= step * 1.01
    for mine, yours in zip(ours[4], theirs[4], strict=True):
        np.testing.assert_allclose(mine, yours, atol=0.02 * max(1.0, np.abs(yours).max()))


def test_a_quantizable_lstm_of_floats(torch: Any) -> None:
    texts = []
    for m in (tw, torch):
        kinds = part(m, "ao.nn.quantizable")
        assert part(m, "nn.quantizable").LSTM is kinds.LSTM
        cell = m.nn.LSTMCell(3, 4)
        cell.qconfig = part(m, "ao.quantization").default_qconfig
        made = kinds.LSTMCell.from_float(cell)
        x, states = drawn(m, 0, 2, 3), (drawn(m, 1, 2, 4), drawn(m, 2, 2, 4))
        for given in (states, None):
            for a, b in zip(made(x, given), cell(x, given), strict=True):
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-6)
        texts.append([repr(kinds.LSTM(3, 4, 2, bias=False)), repr(made)])
        with pytest.raises(AssertionError, match="must have qconfig"):
            kinds.LSTM.from_float(m.nn.LSTM(3, 4))
        with pytest.raises(NotImplementedError, match="non-observed LSTM"):
            part(m, "ao.nn.quantized").LSTM.from_float(m.nn.LSTM(3, 4))
        with pytest.raises(ValueError, match="dropout should be"):
            kinds.LSTM(3, 4, dropout=2.0)
    assert texts[0] == texts[1]
    plain = tw.nn.LSTM(3, 4, 2, bidirectional=True).eval()
    plain.qconfig = tw.ao.quantization.default_qconfig
    observed = tw.ao.nn.quantizable.LSTM.from_float(plain)
    x, states = drawn(tw, 0, 5, 2, 3), (drawn(tw, 1, 4, 2, 4), drawn(tw, 2, 4, 2, 4))
    (y, (h, c)), (z, (k, d)) = observed(x, states), plain(x, states)
    for a, b in ((y, z), (h, k), (c, d)):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-6)


ATTENTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "others": {"kdim": 6, "vdim": 10, "add_bias_kv": True, "add_zero_attn": True},
    "batch first, no bias": {"bias": False, "batch_first": True},
}
MASKS: dict[str, Any] = {
    "none": lambda m: {},
    "causal": lambda m: {"attn_mask": m.ones(3, 5).bool().triu(1), "average_attn_weights": False},
    "floats": lambda m: {"attn_mask": drawn(m, 9, 4, 3, 5)},
    "padding": lambda m: {"key_padding_mask": m.tensor([[0, 0, 1, 0, 1], [0, 1, 0, 0, 0]]).bool()},
}


def attentive(m: Any, options: dict[str, Any]) -> Any:
    nn, q = m.nn, part(m, "ao.quantization")

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, **options)
            self.q, self.k, self.v = q.QuantStub(), q.QuantStub(), q.QuantStub()
            self.dequant = q.DeQuantStub()

        def forward(self, x: Any, y: Any, z: Any, **masks: Any) -> Any:
            out, weights = self.attention(self.q(x), self.k(y), self.v(z), **masks)
            return self.dequant(out), self.dequant(weights)

    net = Net()
    for seed, p in enumerate(net.parameters()):
        p.data.copy_(drawn(m, seed, *p.shape) / 2)
    net.qconfig = q.get_default_qconfig("fbgemm")
    return net.eval()


@pytest.mark.parametrize(
    ("case", "mask"),
    [
        ("plain", "causal"),
        ("others", "none"),
        ("others", "floats"),
        ("others", "padding"),
        ("batch first, no bias", "padding"),
    ],
)
def test_attention_of_several_heads(torch: Any, case: str, mask: str) -> None:
    found = []
    for m in (tw, torch):
        options = ATTENTIONS[case]
        turned = options.get("batch_first", False)
        if m is torch and turned:  # its layer mixes up batch and length
            options = {**options, "batch_first": False}
        q = part(m, "ao.quantization")
        net = attentive(m, options)
        sizes = ((3, 2, 8), (5, 2, options.get("kdim", 8)), (5, 2, options.get("vdim", 8)))
        inputs = [drawn(m, 20 + i, *s) for i, s in enumerate(sizes)]
        if turned and m is tw:
            inputs = [x.transpose(0, 1) for x in inputs]
        masks = MASKS[mask](m)
        plain = net(*inputs, **masks)
        ready = q.prepare(net)
        observed = ready(*inputs, **masks)
        for a, b in zip(observed, plain, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=2e-6)
        made = q.convert(ready)
        whole = made.attention
        out, shares = made(*inputs, **masks)
        if turned and m is torch:
            out = out.transpose(0, 1)
        rounded = [whole._modules[f"linear_{n}"] for n in "QKV"] + [whole.out_proj]
        if m is tw:  # PyTorch's refuses biases
            back = whole.dequantize()
            same_sizes = back.in_proj_weight is not None
            weights = (
                back.in_proj_weight.chunk(3) if same_sizes
                else (back.q_proj_weight, back.k_proj_weight, back.v_proj_weight)
            )  # fmt: skip
            weights = [*weights, back.out_proj.weight]
            bias = back.in_proj_bias
            biases = [*(bias.chunk(3) if bias is not None else [None] * 3), back.out_proj.bias]
            extra = [back.bias_k, back.bias_v]
        else:
            weights = [layer.weight().dequantize() for layer in rounded]
            biases = [layer.bias() for layer in rounded]
            extra = [None if b is None else b.dequantize() for b in (whole.bias_k, whole.bias_v)]
        found.append((
            [x.detach().numpy() for x in (out, shares)],
            list(ready.attention.state_dict()), list(made.attention.state_dict()),
            type(made.attention).__name__, made.attention._get_name(),
            [None if t is None else t.detach().numpy() for t in (*weights, *biases, *extra)],
            (float(whole.out_proj.scale), float(whole.quant_attn_output_weights.scale)),
        ))  # fmt: skip
    ours, theirs = found
    assert ours[1:5] == theirs[1:5]
    for a, b, step in zip(ours[0], theirs[0], theirs[6], strict=True):
        # Attention of floats is rounded otherwise: a number between two steps may get the other.
        assert np.isclose(a, b, rtol=1e-6, atol=1e-6).mean() > 0.8
        np.testing.assert_allclose(a, b, rtol=0, atol=1.01 * step)
    for mine, wanted in zip(ours[5], theirs[5], strict=True):
        if wanted is not None:
            np.testing.assert_allclose(mine, wanted, rtol=1e-6)


def test_what_attention_refuses(torch: Any) -> None:
    for m in (tw, torch):
        layers, nn = part(m, "ao.nn.quantizable"), m.nn
        made = layers.MultiheadAttention(8, 2)
        x = drawn(m, 0, 3, 2, 8)
        with pytest.raises(AssertionError, match="causal mask"):
            made(x, x, x, is_causal=True)
        for mask in (m.ones(2, 3), m.ones(2, 3, 3), m.ones(3)):
            with pytest.raises(RuntimeError, match="attn_mask"):
                made(x, x, x, attn_mask=mask)
        with pytest.raises(AssertionError, match="qconfig"):
            layers.MultiheadAttention.from_float(nn.MultiheadAttention(8, 2))
        with pytest.raises(AssertionError, match="Expected type"):
            layers.MultiheadAttention.from_float(nn.Linear(8, 2))
        with pytest.raises(NotImplementedError, match="non-observed"):
            part(m, "ao.nn.quantized").MultiheadAttention.from_float(made)
        with pytest.raises(NotImplementedError, match="prepare an MHA"):
            layers.MultiheadAttention.from_observed(made)
