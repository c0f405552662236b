"""Transformer layers beside PyTorch's, with its weights."""

from __future__ import annotations

import numpy as np
import pytest
from graph_oracle import assert_close

import tilewright as tw
from tilewright import nn

pytestmark = [
    pytest.mark.torch,
    # PyTorch on the paths it takes.
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
    pytest.mark.filterwarnings("ignore:Support for mismatched"),
]
rng = np.random.default_rng(0)


def tensors(torch, *shape):
    array = rng.standard_normal(shape).astype(np.float32)
    return tw.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)


def both(torch, make):
    """make(nn, functional): ours with PyTorch's weights, and PyTorch's."""
    torch.manual_seed(0)
    theirs = make(torch.nn)
    ours = make(nn)
    assert repr(ours) == repr(theirs)
    ours.load_state_dict({k: tw.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def check(torch, models, arguments, masks=(), **options):
    """Outputs, and the gradients of parameters and inputs; `masks` are arrays, by name."""
    outputs = []
    for i, (model, lib) in enumerate(zip(models, (tw, torch), strict=True)):
        named = {name: lib.tensor(mask) for name, mask in dict(masks).items()}
        y = model(*(a[i] for a in arguments), **named, **options)
        (y * y * lib.arange(y.shape[-1])).sum().backward()
        outputs.append(y.detach().numpy())
    assert_close(*outputs, 2e-5)
    for (name, a), b in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 2e-3, 2e-3, err_msg=name)
    for a, b in arguments:
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 2e-3, 5e-4)


CAUSAL = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.array([[False] * 5, [False, False, False, True, True]])
ADDED = np.where(CAUSAL, -np.inf, 0).astype(np.float32)
LAYERS = [
    {},
    {"norm_first": True, "activation": "gelu"},
    {"batch_first": True, "bias": False},
]


@pytest.mark.parametrize("options", LAYERS, ids=str)
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"src_mask": CAUSAL},
        {"src_mask": ADDED, "src_key_padding_mask": PADDING},
        {"src_key_padding_mask": PADDING},
    ],
    ids=lambda masks: "-".join(masks) or "none",
)
def test_encoder_layer(torch, options, masks):
    models = both(torch, lambda n: n.TransformerEncoderLayer(8, 2, 16, 0.0, **options))
    shape = (2, 5, 8) if options.get("batch_first") else (5, 2, 8)
    check(torch, models, [tensors(torch, *shape)], masks)


def test_causal_hint_and_unbatched(torch):
    models = both(torch, lambda n: n.TransformerEncoderLayer(8, 2, 16, 0.0))
    check(torch, models, [tensors(torch, 5, 8)], {"src_mask": CAUSAL}, is_causal=True)


@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_decoder_layer(torch, options):
    models = both(torch, lambda n: n.TransformerDecoderLayer(8, 2, 16, 0.0, **options))
    first = options.get("batch_first", False)
    x, memory = (tensors(torch, *((2, n, 8) if first else (n, 2, 8))) for n in (5, 3))
    masks = {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDING[:, 2:]}
    check(torch, models, [x, memory], masks)


def test_stacks(torch):
    def encoder(n):
        layer = n.TransformerEncoderLayer(8, 2, 16, 0.0, activation=n.functional.gelu)
        return n.TransformerEncoder(layer, 2, n.LayerNorm(8))

    def decoder(n):
        return n.TransformerDecoder(n.TransformerDecoderLayer(8, 2, 16, 0.0), 2)

    x, memory = tensors(torch, 5, 2, 8), tensors(torch, 3, 2, 8)
    check(torch, both(torch, encoder), [x], {"mask": ADDED})
    for t in x:
        t.grad = None
    check(torch, both(torch, decoder), [x, memory], {"tgt_mask": ADDED}, tgt_is_causal=True)


def test_transformer(torch):
    def make(n):
        return n.Transformer(8, 2, 1, 2, 16, 0.0, batch_first=True)

    arguments = [tensors(torch, 2, 3, 8), tensors(torch, 2, 5, 8)]
    check(torch, both(torch, make), arguments, {"tgt_mask": ADDED, "tgt_key_padding_mask": PADDING})
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    assert np.array_equal(mask.numpy(), ADDED)
    with pytest.raises(RuntimeError, match="d_model"):
        make(nn)(tw.ones(2, 3, 4), tw.ones(2, 5, 8))
    with pytest.raises(RuntimeError, match="batch number"):
        make(nn)(tw.ones(1, 3, 8), tw.ones(2, 5, 8))
    with pytest.raises(RuntimeError, match="relu/gelu"):
        nn.TransformerEncoderLayer(8, 2, activation="tanh")


def test_inference_is_as_in_pytorch(torch):
    """PyTorch takes a fused path for it."""
    ours, theirs = both(torch, lambda n: n.TransformerEncoderLayer(8, 2, 16, batch_first=True))
    x = tensors(torch, 2, 5, 8)
    with tw.no_grad(), torch.no_grad():
        assert_close(ours.eval()(x[0]).numpy(), theirs.eval()(x[1]).numpy(), 2e-5)


def test_dropout_is_on_in_training_alone(torch):
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    x = tw.randn(5, 2, 8)
    assert not tw.equal(layer(x), layer(x))
    layer.eval()
    assert tw.equal(layer(x), layer(x))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_see_what_both_masks_show(torch, kind):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 2, 4, 3)).astype(np.float32)
    shown = rng.random((4, 4)) < 0.7
    shown[:, 0] = True
    results = []
    for m in (tw, torch):
        x = m.tensor(values, requires_grad=True)
        mask = m.tensor(shown) if kind == "bool" else m.tensor(shown.astype(np.float32))
        y = m.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask, is_causal=True)
        y.square().sum().backward()
        results.append((y.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(
    "kind", ["bool", "float", "not at the left", "with a mask", "with gradients"]
)
@pytest.mark.parametrize("options", [{}, {"activation": "gelu"}, {"norm_first": True}])
def test_inference_gives_zeros_behind_the_end(torch, options, kind, norm):
    """Each module's own sequences end after 3, 5 and 1 steps."""
    ours, theirs = both(
        torch,
        lambda m: m.TransformerEncoder(
            m.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **options),
            2,
            m.LayerNorm(8) if norm else None,
        ),
    )
    x = rng.standard_normal((3, 5, 8)).astype(np.float32)
    padding = np.arange(5) >= np.array([[3], [5], [1]])
    if kind == "at the right":
        padding = padding[:, ::-1].copy()
    found = []
    for m, encoder in ((tw, ours), (torch, theirs)):
        encoder.eval()
        mask = m.tensor(padding)
        if kind in ("float", "with a mask"):
            mask = m.zeros(3, 5).masked_fill(mask, -np.inf)
        with m.set_grad_enabled(kind == "with gradients"):
            square = m.zeros(5, 5) if kind == "with a mask" else None
            y = encoder(m.tensor(x), mask=square, src_key_padding_mask=mask)
        found.append(y.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
    if kind in ("bool", "float") and not norm and not options:
        assert not found[0][padding].any()
