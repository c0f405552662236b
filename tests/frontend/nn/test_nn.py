"""Layers, losses and modules against PyTorch."""

from __future__ import annotations

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
from oracle import close

import tilewright as tw
import tilewright.nn as nn
import tilewright.nn.functional as F

pytestmark = pytest.mark.computes

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def copied(module, oracle):
    """Give `module` the weights of PyTorch's `oracle`."""
    state = oracle.state_dict()
    own = module.state_dict()
    assert list(own) == list(state)
    assert [tuple(v.shape) for v in own.values()] == [tuple(v.shape) for v in state.values()]
    module.load_state_dict({k: tw.tensor(v.numpy()) for k, v in state.items()})


LAYERS = [
    ("Linear(5, 3)", (4, 5)),
    ("Linear(5, 3, bias=False)", (2, 4, 5)),
    ("Linear(5, 3)", (5,)),
    ("Conv1d(4, 6, 3, padding=1, stride=2)", (2, 4, 9)),
    ("Conv1d(4, 6, 3, padding='same', dilation=2)", (2, 4, 9)),
    ("Conv2d(3, 6, 3)", (2, 3, 7, 8)),
    ("Conv2d(3, 6, (3, 2), stride=(2, 1), padding=(1, 0), bias=False)", (2, 3, 7, 8)),
    ("Conv2d(4, 6, 3, groups=2, dilation=2, padding=2)", (2, 4, 7, 8)),
    ("Conv2d(3, 6, 3, padding=1, padding_mode='reflect')", (2, 3, 7, 8)),
    ("Conv2d(3, 6, 3, padding=1, padding_mode='circular')", (2, 3, 7, 8)),
    ("Conv2d(3, 6, 3, padding='valid', padding_mode='replicate')", (2, 3, 7, 8)),
    ("Conv2d(3, 6, 4, padding='same', padding_mode='replicate')", (2, 3, 7, 8)),
    ("Conv2d(3, 6, 3)", (3, 7, 8)),
    ("Conv3d(2, 3, 2, stride=2)", (2, 2, 4, 5, 6)),
    ("ConvTranspose1d(4, 6, 3, stride=2, output_padding=1)", (2, 4, 5)),
    ("ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2)", (2, 4, 5, 4)),
    ("ConvTranspose2d(4, 6, 3, dilation=2, bias=False)", (4, 5, 4)),
    ("BatchNorm1d(5)", (6, 5)),
    ("BatchNorm1d(5, momentum=None)", (6, 5, 3)),
    ("BatchNorm2d(3, eps=1e-3, momentum=0.3)", (2, 3, 4, 5)),
    ("BatchNorm2d(3, affine=False)", (2, 3, 4, 5)),
    ("BatchNorm2d(3, track_running_stats=False)", (2, 3, 4, 5)),
    ("BatchNorm3d(2)", (2, 2, 3, 4, 2)),
    ("LayerNorm(6)", (3, 4, 6)),
    ("LayerNorm((4, 6), eps=1e-3)", (3, 4, 6)),
    ("LayerNorm(6, elementwise_affine=False)", (3, 6)),
    ("LayerNorm(6, bias=False)", (3, 6)),
    ("RMSNorm(6)", (3, 4, 6)),
    ("RMSNorm(6, eps=1e-3, elementwise_affine=False)", (3, 4, 6)),
    ("GroupNorm(2, 6)", (3, 6, 4)),
    ("GroupNorm(6, 6, affine=False)", (3, 6, 4, 2)),
    ("InstanceNorm1d(3, affine=True)", (2, 3, 5)),
    ("InstanceNorm2d(3)", (2, 3, 5, 4)),
    ("InstanceNorm2d(3, track_running_stats=True, affine=True)", (2, 3, 5, 4)),
    ("LocalResponseNorm(3)", (2, 5, 4, 4)),
    ("PReLU()", (3, 4)),
    ("PReLU(4)", (3, 4, 2)),
    ("MaxPool1d(3)", (2, 3, 8)),
    ("MaxPool2d(2)", (2, 3, 7, 8)),
    ("MaxPool2d(3, stride=2, padding=1, ceil_mode=True)", (2, 3, 7, 8)),
    ("MaxPool2d((3, 2), stride=1, dilation=2)", (3, 7, 8)),
    ("AvgPool1d(2, stride=1)", (2, 3, 8)),
    ("AvgPool2d(3, stride=2, padding=1)", (2, 3, 7, 8)),
    ("AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)", (2, 3, 7, 8)),
    ("AdaptiveAvgPool1d(3)", (2, 3, 8)),
    ("AdaptiveAvgPool2d((1, 1))", (2, 3, 7, 8)),
    ("AdaptiveAvgPool2d((3, None))", (2, 3, 7, 8)),
    ("AdaptiveMaxPool2d((3, 5))", (2, 3, 7, 8)),
    ("Flatten()", (2, 3, 4)),
    ("Flatten(0, 1)", (2, 3, 4)),
    ("Unflatten(1, (2, 3))", (2, 6, 4)),
    ("Identity(3, x=2)", (2, 6)),
    ("Fold((4, 5), (2, 2))", (2, 12, 12)),
    ("Unfold((2, 3), padding=1, stride=2)", (2, 3, 5, 6)),
    ("PixelShuffle(2)", (2, 8, 3, 2)),
    ("ZeroPad2d((1, 2, -1, 0))", (2, 3, 4, 5)),
    ("ReflectionPad1d(2)", (2, 3, 4)),
    ("ReplicationPad2d((1, 0, 2, 3))", (2, 3, 4, 5)),
    ("ConstantPad1d((1, 2), 3.5)", (2, 3, 4)),
    ("Dropout(0.0)", (2, 3)),
    *[
        (f"{name}()", (3, 4))
        for name in [
            "ReLU",
            "ReLU6",
            "GELU",
            "SiLU",
            "Mish",
            "Sigmoid",
            "Tanh",
            "ELU",
            "CELU",
            "SELU",
            "LeakyReLU",
            "Softplus",
            "Hardtanh",
            "Hardswish",
            "Hardsigmoid",
            "Hardshrink",
            "Softshrink",
            "Softsign",
            "Tanhshrink",
            "LogSigmoid",
            "GLU",
        ]
    ],
    ("GELU('tanh')", (3, 4)),
    ("ELU(alpha=0.5)", (3, 4)),
    ("LeakyReLU(0.2, inplace=False)", (3, 4)),
    ("Softplus(2, threshold=1.5)", (3, 4)),
    ("Threshold(0.1, 20.0)", (3, 4)),
    ("Softmax(dim=1)", (3, 4)),
    ("Softmax(-2)", (3, 4, 2)),
    ("LogSoftmax(dim=0)", (3, 4)),
    ("Softmin(dim=1)", (3, 4)),
    ("Softmax2d()", (2, 3, 4, 2)),
]


@pytest.mark.parametrize(("text", "shape"), LAYERS, ids=[f"{t}-{s}" for t, s in LAYERS])
def test_layer_is_pytorchs(torch, text, shape):
    ours, theirs = eval(f"nn.{text}"), eval(f"torch.nn.{text}")
    copied(ours, theirs)
    assert repr(ours) == repr(theirs)
    array = normal(*shape) * 2
    for training in (True, False):
        ours.train(training), theirs.train(training)
        x, t = tw.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
        y, u = ours(x), theirs(t)
        close(y, u)
        weight = normal(*u.shape)
        (y * tw.tensor(weight)).sum().backward()
        (u * torch.tensor(weight)).sum().backward()
        close(x.grad, t.grad, 1e-4)
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            assert q.grad is not None, name
            close(p.grad, q.grad, 1e-4)
            p.grad = q.grad = None
        for b, c in zip(ours.buffers(), theirs.buffers(), strict=True):
            close(b, c)


LOSSES = [
    ("MSELoss()", "same"),
    ("MSELoss(reduction='sum')", "same"),
    ("L1Loss(reduction='none')", "same"),
    ("SmoothL1Loss(beta=0.5)", "same"),
    ("HuberLoss(delta=0.7)", "same"),
    ("BCELoss()", "probability"),
    ("BCELoss(reduction='none')", "probability"),
    ("BCEWithLogitsLoss()", "unit"),
    ("BCEWithLogitsLoss(pos_weight=W, reduction='sum')", "unit"),
    ("KLDivLoss(reduction='batchmean')", "unit"),
    ("KLDivLoss(reduction='sum', log_target=True)", "same"),
    ("CrossEntropyLoss()", "class"),
    ("CrossEntropyLoss(weight=W, label_smoothing=0.1)", "class"),
    ("CrossEntropyLoss(reduction='none', ignore_index=1)", "class"),
    ("CrossEntropyLoss()", "unit"),
    ("NLLLoss()", "class"),
    ("NLLLoss(weight=W, reduction='sum')", "class"),
    ("PoissonNLLLoss()", "unit"),
    ("HingeEmbeddingLoss()", "sign"),
    ("SoftMarginLoss()", "sign"),
]


@pytest.mark.parametrize(("text", "kind"), LOSSES, ids=[f"{t}-{k}" for t, k in LOSSES])
def test_loss_is_pytorchs(torch, text, kind):
    weight = np.abs(normal(5)) + 0.1
    ours = eval(f"nn.{text}", {"nn": nn, "W": tw.tensor(weight)})
    theirs = eval(f"nn.{text}", {"nn": torch.nn, "W": torch.tensor(weight)})
    assert repr(ours) == repr(theirs)
    array = normal(4, 5)
    target = {
        "same": normal(4, 5),
        "unit": RNG.uniform(size=(4, 5)).astype(np.float32),
        "probability": RNG.uniform(size=(4, 5)).astype(np.float32),
        "class": np.array([0, 4, 1, 2]),
        "sign": np.sign(normal(4, 5)),
    }[kind]
    if kind == "probability":
        array = RNG.uniform(0.05, 0.95, size=(4, 5)).astype(np.float32)
    x, t = tw.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    y, u = ours(x, tw.tensor(target)), theirs(t, torch.tensor(target))
    close(y, u)
    y.sum().backward(), u.sum().backward()
    close(x.grad, t.grad)


FUNCTIONS = [
    "F.normalize(x, dim=0)",
    "F.cosine_similarity(x, y, dim=1)",
    "F.pairwise_distance(x, y)",
    "F.triplet_margin_loss(x, y, x * 2)",
    "F.gaussian_nll_loss(x, y, y * y)",
    "F.margin_ranking_loss(x, y, x.sign())",
    "F.softmax(x, dim=-1, dtype=torch.float64)",
    "F.pad(x, (1, 2, 3, 0), value=2.0)",
    "F.scaled_dot_product_attention(q, k, v)",
    "F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)",
    "F.scaled_dot_product_attention(q, k, v, attn_mask=m > 0.2)",
    "F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "F.bilinear(x, y, w, x[0])",
    "F.max_pool2d(q, 2, return_indices=True)[1]",
    "F.adaptive_max_pool2d(q, (2, 3), return_indices=True)[1]",
    "F.one_hot(i, 7)",
    "F.embedding(i, x)",
    "x.softmax(0)",
    "torch.log_softmax(x, 1)",
]


@pytest.mark.parametrize("text", FUNCTIONS)
def test_function_is_pytorchs(torch, text):
    arrays = {
        "x": normal(4, 5), "y": normal(4, 5), "w": normal(5, 5, 5), "m": normal(6, 7),
        "q": normal(2, 3, 6, 8), "k": normal(2, 3, 7, 8), "v": normal(2, 3, 7, 4),
        "i": np.array([[0, 3], [2, 2]]),
    }  # fmt: skip

    def run(lib):
        scope = {name: lib.tensor(a) for name, a in arrays.items()}
        return eval(text, {"F": lib.nn.functional, "torch": lib, **scope})

    close(run(tw), run(torch))


def test_multihead_attention(torch):
    for options in ({}, {"batch_first": True}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True}):
        ours, theirs = (
            nn.MultiheadAttention(8, 2, **options),
            torch.nn.MultiheadAttention(8, 2, **options),
        )
        copied(ours, theirs)
        q, k, v = (
            normal(4, 3, 8),
            normal(6, 3, options.get("kdim", 8)),
            normal(6, 3, options.get("vdim", 8)),
        )
        if options.get("batch_first"):
            k, v = normal(4, 6, 8), normal(4, 6, 8)
        batch = 4 if options.get("batch_first") else 3
        hidden = np.zeros((batch, 6), bool)
        hidden[1, 4:] = True
        args = [normal(*a.shape) for a in (q, k, v)]
        got = ours(*map(tw.tensor, args), key_padding_mask=tw.tensor(hidden))
        want = theirs(*map(torch.tensor, args), key_padding_mask=torch.tensor(hidden))
        close(got[0], want[0])
        close(got[1], want[1])
        fast, _ = ours(
            *map(tw.tensor, args), key_padding_mask=tw.tensor(hidden), need_weights=False
        )
        close(fast, want[0])
        got[0].sum().backward(), want[0].sum().backward()
        for p, r in zip(ours.parameters(), theirs.parameters(), strict=True):
            close(p.grad, r.grad, 1e-4)


def test_projections_and_static_keys_of_multi_head_attention(torch):
    """What isn't used of the weights may be anything: WavLM passes an empty tensor for them."""
    q, k, whole, bias, static = (
        normal(*s) for s in ((3, 2, 8), (4, 2, 8), (24, 8), (24,), (4, 5, 4))
    )
    each, out = [normal(8, 8) for _ in range(3)], normal(8, 8)
    hidden = np.zeros((2, 5), bool)
    hidden[1, 3:] = True

    def run(lib, in_weight=whole, padding=None, **named):
        named = {n: lib.tensor(a) if isinstance(a, np.ndarray) else a for n, a in named.items()}
        leaf, other = lib.tensor(q, requires_grad=True), lib.tensor(k)
        made = lib.nn.functional.multi_head_attention_forward(
            leaf, other, other, 8, 2, None if in_weight is None else lib.tensor(in_weight),
            lib.tensor(bias), named.pop("bias_k", None), named.pop("bias_v", None),
            named.pop("zero", False), 0.0, lib.tensor(out), None, False,
            None if padding is None else lib.tensor(padding), **named,
        )  # fmt: skip
        (made[0].sum() + made[1].square().sum()).backward()
        return [*made, leaf.grad]

    three = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), each))
    cases = [
        {"in_weight": np.zeros(0, np.float32), "use_separate_proj_weight": True, **three},
        {"use_separate_proj_weight": True, **three},
        three,
        {"static_k": static, "static_v": static, "padding": hidden, "zero": True},
        {"static_k": static[:, :4]},
    ]
    for case in cases:
        for x, y in zip(run(tw, **case), run(torch, **case), strict=True):
            assert x is y is None or close(x, y) is None
    wrong = [
        {"in_weight": None}, {"use_separate_proj_weight": True, "q_proj_weight": each[0]},
        {"static_k": static[:3]}, {"static_v": static[:, :, :3], "static_k": static},
        {"static_k": static, "bias_k": normal(1, 1, 8), "bias_v": normal(1, 1, 8)},
    ]  # fmt: skip
    for case in wrong:
        with pytest.raises(AssertionError) as theirs:
            run(torch, **case)
        with pytest.raises(AssertionError, match=re.escape(str(theirs.value))):
            run(tw, **case)


def test_embedding(torch):
    ours, theirs = nn.Embedding(6, 3, padding_idx=-2), torch.nn.Embedding(6, 3, padding_idx=-2)
    assert repr(ours) == repr(theirs)
    assert not ours.weight[4].detach().numpy().any()
    copied(ours, theirs)
    index = np.array([[0, 4, 4], [5, 0, 1]])
    y, u = ours(tw.tensor(index)), theirs(torch.tensor(index))
    close(y, u)
    weight = normal(2, 3, 3)
    (y * tw.tensor(weight)).sum().backward(), (u * torch.tensor(weight)).sum().backward()
    close(ours.weight.grad, theirs.weight.grad)
    ours, theirs = nn.Embedding(6, 3, max_norm=0.5), torch.nn.Embedding(6, 3, max_norm=0.5)
    copied(ours, theirs)
    close(ours(tw.tensor(index)), theirs(torch.tensor(index)))
    close(ours.weight, theirs.weight)


def test_batch_norm_over_several_steps(torch):
    for momentum in (0.1, None):
        ours, theirs = (
            nn.BatchNorm2d(3, momentum=momentum),
            torch.nn.BatchNorm2d(3, momentum=momentum),
        )
        for _ in range(4):
            array = normal(4, 3, 5, 5) * 3 + 1
            close(ours(tw.tensor(array)), theirs(torch.tensor(array)))
        close(ours.running_mean, theirs.running_mean)
        close(ours.running_var, theirs.running_var)
        assert ours.num_batches_tracked.item() == 4
        ours.eval(), theirs.eval()
        close(ours(tw.tensor(array)), theirs(torch.tensor(array)))
        ours.train().reset_running_stats()
        assert ours.num_batches_tracked.item() == 0 and ours.running_var.sum().item() == 3


# ---- without PyTorch -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "conv2d", "sigmoid", "tanh", "relu", "selu"])
def test_gains_are_printed_as_pytorchs(torch, name):
    assert repr(nn.init.calculate_gain(name)) == repr(torch.nn.init.calculate_gain(name))


def test_linear_and_layer_norm_against_numpy():
    layer = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)).double()
    x = RNG.normal(size=(3, 4))
    w, b = layer[0].weight.detach().numpy(), layer[0].bias.detach().numpy()
    y = x @ w.T + b
    y = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(layer(tw.tensor(x)).detach().numpy(), y, atol=1e-12)


def test_conv2d_against_numpy():
    conv = nn.Conv2d(2, 3, 3, stride=2, padding=1).double()
    x = RNG.normal(size=(2, 2, 5, 6))
    w, b = conv.weight.detach().numpy(), conv.bias.detach().numpy()
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    y = np.empty((2, 3, 3, 3))
    for i in range(3):
        for j in range(3):
            patch = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            y[:, :, i, j] = np.einsum("nchw,ochw->no", patch, w) + b
    np.testing.assert_allclose(conv(tw.tensor(x)).detach().numpy(), y, atol=1e-12)


def test_dropout():
    tw.manual_seed(0)
    drop, x = nn.Dropout(0.25), tw.ones(4000, requires_grad=True)
    y = drop(x)
    y.sum().backward()
    values = y.detach().numpy()
    assert set(np.unique(values)) == {0.0, np.float32(4 / 3)}
    assert abs((values == 0).mean() - 0.25) < 0.03
    np.testing.assert_array_equal(x.grad.numpy(), values)  # the same mask in the backward pass
    assert not np.array_equal(drop(x).detach().numpy(), values)
    tw.manual_seed(0)
    np.testing.assert_array_equal(drop(x).detach().numpy(), values)
    assert drop.eval()(x) is x
    channels = nn.Dropout2d(0.5)(tw.ones(8, 16, 3, 3)).numpy()
    assert (channels.reshape(8, 16, 9).std(-1) == 0).all()
    with pytest.raises(ValueError, match=r"between 0 and 1, but got 1\.5"):
        nn.Dropout(1.5)
    with pytest.raises(ValueError, match="between 0 and 1, but got -1"):
        F.dropout(x, -1)
    alpha = nn.AlphaDropout(0.3)(tw.randn(20000)).numpy()
    assert abs(alpha.mean()) < 0.05 and abs(alpha.std() - 1) < 0.05


def test_default_initializations_are_pytorchs():
    """The distributions of PyTorch's defaults: bounds and deviations."""
    tw.manual_seed(1)
    w = nn.Linear(100, 200).weight.detach().numpy()
    assert abs(np.abs(w).max() - 0.1) < 1e-3 and abs(w.std() - 0.1 / np.sqrt(3)) < 2e-3
    b = nn.Conv2d(4, 500, 5).bias.detach().numpy()
    assert np.abs(b).max() <= 0.1 and abs(b.std() - 0.1 / np.sqrt(3)) < 4e-3
    e = nn.Embedding(100, 100).weight.detach().numpy()
    assert abs(e.mean()) < 0.04 and abs(e.std() - 1) < 0.03


def test_init_functions():
    tw.manual_seed(2)
    t = tw.empty(200, 300)
    init = nn.init
    assert abs(init.xavier_normal_(t).std().item() - np.sqrt(2 / 500)) < 2e-3
    assert init.xavier_uniform_(t).abs().max().item() <= np.sqrt(6 / 500)
    assert (
        abs(init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu").std().item() - 0.1) < 2e-3
    )
    q = init.orthogonal_(tw.empty(4, 9), gain=2).numpy()
    np.testing.assert_allclose(q @ q.T, 4 * np.eye(4), atol=1e-5)
    cut = init.trunc_normal_(t, 1.0, 2.0, 0.0, 2.0).numpy()
    assert cut.min() >= 0 and cut.max() <= 2 and abs(cut.mean() - 1) < 0.02
    assert init.constant_(t, 3.0).numpy().std() == 0
    np.testing.assert_array_equal(init.eye_(tw.empty(2, 3)).numpy(), np.eye(2, 3))
    x = normal(1, 3, 5, 5)
    np.testing.assert_allclose(
        F.conv2d(tw.tensor(x), init.dirac_(tw.empty(3, 3, 3, 3)), padding=1).numpy(), x
    )
    assert (init.sparse_(tw.empty(10, 4), 0.3).numpy() == 0).sum(0).tolist() == [3] * 4
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        init.kaiming_uniform_(tw.empty(3))
    p = nn.Parameter(tw.empty(3, 3))
    assert init.ones_(p) is p and p.requires_grad and p.is_leaf


def test_verbatim_module_of_introductions():
    import tilewright as torch

    class SimpleNet(nn.Module):
        def __init__(self):
            super(SimpleNet, self).__init__()  # noqa: UP008 -- as introductions write it
            self.fc1 = nn.Linear(28 * 28, 128)
            self.relu = nn.ReLU()
            self.fc2 = nn.Linear(128, 10)

        def forward(self, x):
            x = x.view(-1, 28 * 28)
            x = self.fc1(x)
            x = self.relu(x)
            x = self.fc2(x)
            return x

    model = SimpleNet()
    output = model(torch.randn(4, 1, 28, 28))
    assert output.shape == torch.Size([4, 10])
    probabilities = torch.softmax(output, dim=1)
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(4))
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 101770
    assert repr(model) == (
        "SimpleNet(\n"
        "  (fc1): Linear(in_features=784, out_features=128, bias=True)\n"
        "  (relu): ReLU()\n"
        "  (fc2): Linear(in_features=128, out_features=10, bias=True)\n"
        ")"
    )


# ---- utilities and errors --------------------------------------------------------------------


def test_utils(torch):
    arrays = [normal(3, 4) * 5, normal(7) * 5]
    for kind in (2.0, 1.0, float("inf")):
        ours = [nn.Parameter(tw.tensor(a)) for a in arrays]
        theirs = [torch.nn.Parameter(torch.tensor(a)) for a in arrays]
        for p, q, a in zip(ours, theirs, arrays, strict=True):
            p.grad, q.grad = tw.tensor(a), torch.tensor(a)
        close(
            nn.utils.clip_grad_norm_(iter(ours), 1.5, kind),  # as `model.parameters()` is
            torch.nn.utils.clip_grad_norm_(iter(theirs), 1.5, kind),
        )
        for p, q in zip(ours, theirs, strict=True):
            close(p.grad, q.grad)
        nn.utils.clip_grad_value_(ours, 0.1)
        assert max(p.grad.abs().max().item() for p in ours) <= np.float32(0.1)
    vector = nn.utils.parameters_to_vector(ours)
    np.testing.assert_array_equal(
        vector.detach().numpy(), np.concatenate([a.ravel() for a in arrays])
    )
    nn.utils.vector_to_parameters(vector * 2, ours)
    close(ours[0].detach(), arrays[0] * 2)


@pytest.mark.parametrize("kind", [2.0, 1.0, 3.0, 0.0, float("inf"), -float("inf")])
def test_norms_of_real_and_complex_gradients(torch, kind):
    def seen(m):
        grads = [m.tensor([3 + 4j, 1j]), m.tensor([2.0, -2.0]), m.zeros(2)]
        params = [m.nn.Parameter(m.ones_like(g)) for g in grads]
        for p, g in zip(params, grads, strict=True):
            p.grad = g.clone()
        norms = [m.nn.utils.get_total_norm(grads, kind), m.nn.utils.get_total_norm([], kind)]
        norms.append(m.nn.utils.clip_grad_norm_(params, 1.0, kind))
        infinite = [m.tensor([float("inf")])]
        with pytest.raises(RuntimeError, match="non-finite"):
            m.nn.utils.get_total_norm(infinite, 2.0, error_if_nonfinite=True)
        return [n.item() for n in norms], *(p.grad.numpy() for p in params)

    for ours, theirs in zip(seen(tw), seen(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_losses_and_lengths_of_complex_numbers(torch):
    def seen(m):
        x = m.tensor([[3 + 4j, 1j], [1.0, 2 - 1j]], requires_grad=True)
        f, y = m.nn.functional, m.tensor([[3 + 4j, 2.0], [0.5, 1j]])
        out = [f.normalize(x, dim=0), f.normalize(x, p=1), f.l1_loss(x, y, reduction="none")]
        loss = f.l1_loss(x, y) + m.view_as_real(out[0]).sin().sum()
        loss.backward()
        return *(t.detach().numpy() for t in (*out, loss)), x.grad.numpy()

    for ours, theirs in zip(seen(tw), seen(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_parametrized_modules_are_copied_and_not_pickled():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    other = copy.deepcopy(model)
    with tw.no_grad():
        model.parametrizations.weight.original0.mul_(2)
    close(model.weight.detach(), other.weight.detach() * 2)
    with pytest.raises(RuntimeError, match=r"only supported through state_dict\(\)"):
        pickle.dumps(model)


def test_errors_of_layers():
    with pytest.raises(RuntimeError, match=r"linear: expected an input of shape \(..., 5\)"):
        nn.Linear(5, 3)(tw.ones(2, 4))
    with pytest.raises(RuntimeError, match="should be the same"):
        nn.Conv2d(1, 1, 1)(tw.ones(1, 1, 2, 2, dtype=tw.float64))
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D"):
        nn.Conv2d(1, 1, 1)(tw.ones(2, 2))
    with pytest.raises(ValueError, match=r"expected 4D input \(got 2D input\)"):
        nn.BatchNorm2d(3)(tw.ones(2, 3))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm1d(3)(tw.ones(1, 3))
    with pytest.raises(RuntimeError, match="at most half"):
        F.max_pool2d(tw.ones(1, 1, 4, 4), 2, padding=2)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        nn.LayerNorm(5)(tw.ones(2, 4))
    with pytest.raises(ValueError, match="divisible by groups"):
        nn.Conv2d(3, 4, 1, groups=2)
    with pytest.raises(RuntimeError, match="No CUDA GPUs"):
        nn.Linear(2, 2).cuda()
    with pytest.warns(UserWarning, match="different to the input size"):
        nn.MSELoss()(tw.ones(2, 1), tw.ones(2))


def test_a_missing_bias_is_not_a_bias_without_a_node():
    """None as an argument and a tensor that was not used yet once shared a key."""
    x, w = tw.ones(1, 3), tw.ones(3)
    x.sum(), w.sum()
    before = F.layer_norm(x * tw.tensor([1.0, 2.0, 3.0]), (3,), w, None)
    after = F.layer_norm(x * tw.tensor([1.0, 2.0, 3.0]), (3,), w, tw.tensor([1.0, 1.0, 1.0]))
    np.testing.assert_allclose(after.numpy(), before.numpy() + 1)


def test_warning_free_import():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert F.relu(tw.tensor([-1.0, 1.0])).tolist() == [0, 1]


def test_instance_norm_of_other_channels() -> None:
    """Without weights it takes them, as PyTorch does, and says so."""
    x = tw.randn(2, 1, 3, 4)
    with pytest.warns(UserWarning, match="size at dim=1 to match num_features"):
        found = tw.nn.InstanceNorm2d(5)(x)
    assert tw.equal(found, tw.nn.InstanceNorm2d(1)(x))
    with pytest.raises(ValueError, match="size at dim=1 to match num_features"):
        tw.nn.InstanceNorm2d(5, affine=True)(x)
