"""Recurrent layers, cells and packed sequences beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from graph_oracle import assert_close

import tilewright as tw
from tilewright import nn
from tilewright.nn.utils import rnn as seq

pytestmark = pytest.mark.torch
rng = np.random.default_rng(0)


def both(torch, kind, *args, **kwargs):
    """A layer of ours with the weights of one of PyTorch's."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(*args, **kwargs)
    ours = getattr(nn, kind)(*args, **kwargs)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: tw.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def pair(torch, *shape):
    array = rng.standard_normal(shape).astype(np.float32)
    return tw.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)


def flat(result):
    """Tensors of nested tuples."""
    if isinstance(result, tuple):
        return [t for r in result for t in flat(r)]
    return [] if result is None else [result]


def check(ours, theirs, mine, other, inputs):
    """Results, and the gradients of parameters and inputs."""
    mine, other = [[t for t in flat(r) if t.dtype.is_floating_point] for r in (mine, other)]
    assert len(mine) == len(other)
    for a, b in zip(mine, other, strict=True):
        assert_close(a.detach().numpy(), b.detach().numpy(), 2e-5)
    for results in (mine, other):
        sum((r * r).sum() * (i + 1) for i, r in enumerate(results)).backward()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 2e-4, 2e-5, err_msg=name)
    for a, b in inputs:
        assert_close(a.grad.numpy(), b.grad.numpy(), 5e-5)


OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 2, "bias": False, "batch_first": True},
]


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("given", [False, True])
def test_layers(torch, kind, options, given):
    ours, theirs = both(torch, kind, 3, 5, **options)
    x = pair(torch, 4, 2, 3)
    inputs = [x]
    hx = [None, None]
    if given:
        rows = 2 if options.get("batch_first") is None else 4
        layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        states = [pair(torch, layers, rows, 5) for _ in range(2 if kind == "LSTM" else 1)]
        hx = [tuple(each) if kind == "LSTM" else each[0] for each in zip(*states, strict=True)]
        inputs += states
    check(ours, theirs, ours(x[0], hx[0]), theirs(x[1], hx[1]), inputs)


# PyTorch tells that it takes another way then.
projected = pytest.mark.filterwarnings("ignore:LSTM with projections")


@projected
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
def test_projections(torch, options):
    ours, theirs = both(torch, "LSTM", 3, 5, proj_size=2, **options)
    layers = options.get("num_layers", 1) * (2 if options else 1)
    x, h, c = pair(torch, 4, 2, 3), pair(torch, layers, 2, 2), pair(torch, layers, 2, 5)
    mine, other = ours(x[0], (h[0], c[0])), theirs(x[1], (h[1], c[1]))
    check(ours, theirs, mine, other, [x, h, c])


def test_relu_and_unbatched(torch):
    ours, theirs = both(torch, "RNN", 3, 4, nonlinearity="relu")
    x = pair(torch, 5, 3)
    check(ours, theirs, ours(x[0]), theirs(x[1]), [x])


@projected
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("in_order", [True, False])
def test_packed(torch, kind, in_order):
    options = {"bidirectional": True, "num_layers": 2}
    if kind == "LSTM":
        options["proj_size"] = 2
    ours, theirs = both(torch, kind, 3, 5, **options)
    x = pair(torch, 5, 4, 3)
    lengths = [5, 3, 3, 1] if in_order else [3, 5, 1, 3]
    states = [pair(torch, 4, 4, 2), pair(torch, 4, 4, 5)] if kind == "LSTM" else [
        pair(torch, 4, 4, 5)
    ]  # fmt: skip
    results = []
    for i, (model, utils) in enumerate(((ours, seq), (theirs, torch.nn.utils.rnn))):
        packed = utils.pack_padded_sequence(x[i], lengths, enforce_sorted=in_order)
        hx = tuple(s[i] for s in states) if kind == "LSTM" else states[0][i]
        y, last = model(packed, hx)
        assert type(y).__name__ == "PackedSequence"
        padded, back = utils.pad_packed_sequence(y, padding_value=-1.0)
        assert back.tolist() == lengths
        results.append((y.data, padded, last))
    check(ours, theirs, *results, [x, *states])


def test_training_step_repeats_its_plan(torch):
    from tilewright.runtime.tiers import plans

    ours, theirs = both(torch, "LSTM", 3, 4, num_layers=2)
    x = pair(torch, 6, 2, 3)
    losses = []
    for i, (model, lib) in enumerate(((ours, tw), (theirs, torch))):
        optimizer = lib.optim.SGD(model.parameters(), lr=0.5)
        seen = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = (model(x[i].detach())[0] ** 2).sum()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        losses.append(seen)
        if lib is tw:
            before = len(plans())
            optimizer.zero_grad()
            (model(x[0].detach())[0] ** 2).sum().backward()
            optimizer.step()
            assert len(plans()) - before <= 1  # the loss isn't read this time
    assert_close(losses[0], losses[1], 1e-4)


def test_second_derivatives(torch):
    ours, theirs = both(torch, "GRU", 2, 3)
    array = rng.standard_normal((3, 2, 2))
    x = tw.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    for lib, model, t in ((tw, ours.double(), x[0]), (torch, theirs.double(), x[1])):
        (g,) = lib.autograd.grad((model(t)[0] ** 2).sum(), t, create_graph=True)
        (g * g).sum().backward()
    assert_close(x[0].grad.numpy(), x[1].grad.numpy(), 1e-10)


def test_dropout_between_layers(torch):
    ours, _ = both(torch, "LSTM", 3, 5, num_layers=2, dropout=0.5)
    x = tw.randn(4, 2, 3)
    assert not tw.equal(ours(x)[0], ours(x)[0])
    ours.eval()
    assert tw.equal(ours(x)[0], ours(x)[0])


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("shape", [(2, 3), (3,)])
def test_cells(torch, kind, shape):
    ours, theirs = both(torch, kind, 3, 4)
    x = pair(torch, *shape)
    states = [pair(torch, *shape[:-1], 4) for _ in range(2 if kind == "LSTMCell" else 1)]
    for given in (False, True):
        hx = [tuple(s[i] for s in states) if len(states) == 2 else states[0][i] for i in (0, 1)]
        args = [(x[i], hx[i]) if given else (x[i],) for i in (0, 1)]
        for t in (*x, *(s for each in states for s in each), *ours.parameters(),
                  *theirs.parameters()):  # fmt: skip
            t.grad = None
        inputs = [x, *states] if given else [x]
        check(ours, theirs, ours(*args[0]), theirs(*args[1]), inputs)


def test_half_types(torch):
    layer = nn.LSTM(3, 4, dtype=tw.bfloat16)
    wide = nn.LSTM(3, 4)
    wide.load_state_dict({k: v.float() for k, v in layer.state_dict().items()})
    x = tw.randn(5, 2, 3).bfloat16()
    y, _ = layer(x)
    assert y.dtype is tw.bfloat16
    assert_close(y.float().detach().numpy(), wide(x.float())[0].detach().numpy(), 2e-2)
    (y * y).sum().backward()
    assert layer.weight_hh_l0.grad.dtype is tw.bfloat16


def test_empty_batch_and_errors(torch):
    layer = nn.LSTM(3, 4)
    y, (h, c) = layer(tw.ones(2, 0, 3))
    assert y.shape == (2, 0, 4) and h.shape == c.shape == (1, 0, 4)
    with pytest.raises(RuntimeError, match="larger than 0"):
        layer(tw.ones(0, 2, 3))
    with pytest.raises(ValueError, match="2D or 3D"):
        layer(tw.ones(1, 2, 3, 3))
    with pytest.raises(RuntimeError, match="Expected 3, got 5"):
        layer(tw.ones(2, 2, 5))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size"):
        layer(tw.ones(2, 2, 3), (tw.ones(1, 1, 4), tw.ones(1, 2, 4)))
    for options, error in (
        ({"hidden_size": 0}, ValueError),
        ({"hidden_size": 2.0}, TypeError),
        ({"dropout": 2}, ValueError),
        ({"num_layers": 0}, ValueError),
        ({"proj_size": 4}, ValueError),
    ):
        with pytest.raises(error):
            nn.LSTM(**{"input_size": 3, "hidden_size": 4, **options})
    with pytest.raises(ValueError, match="proj_size"):
        nn.GRU(3, 4, proj_size=2)
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        nn.GRU(3, 4, dropout=0.5)


@pytest.mark.parametrize(
    "states", [((3, 5), (3, 6)), ((3, 6), (3, 6)), ((1, 5), (1, 5)), ((3, 5), (1, 5))]
)
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_states_of_other_sizes(torch, kind, states):
    """No state is read beyond its end, and none is broadcast."""
    said = []
    for m in (tw, torch):
        cell = getattr(m.nn, kind)(4, 5)
        given = tuple(m.zeros(*s) for s in states)
        try:
            cell(m.zeros(3, 4), given if kind == "LSTMCell" else given[0])
        except RuntimeError as error:
            said.append(str(error).partition(", at ")[0])
        else:
            said.append("")
    assert said[0] == said[1]


def test_sequences(torch):
    theirs = torch.nn.utils.rnn
    arrays = [rng.standard_normal((n, 2)).astype(np.float32) for n in (4, 2, 3)]
    mine, other = [tw.tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]
    for options in ({}, {"batch_first": True}, {"padding_value": 7.0}, {"padding_side": "left"}):
        a, b = seq.pad_sequence(mine, **options), theirs.pad_sequence(other, **options)
        assert np.array_equal(a.numpy(), b.numpy())
    a, b = (s.pack_sequence(t, enforce_sorted=False) for s, t in ((seq, mine), (theirs, other)))
    for x, y in zip(a, b, strict=True):
        assert np.array_equal(x.numpy(), y.numpy())
    for x, y in zip(seq.unpack_sequence(a), arrays, strict=True):
        assert np.array_equal(x.numpy(), y)
    padded, lengths = seq.pad_packed_sequence(a, True, 3.0, total_length=6)
    expected, counts = theirs.pad_packed_sequence(b, True, 3.0, total_length=6)
    assert np.array_equal(padded.numpy(), expected.numpy()) and lengths.tolist() == counts.tolist()
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        seq.pack_sequence(mine)
    with pytest.raises(RuntimeError, match="greater than 0"):
        seq.pack_padded_sequence(tw.ones(2, 2, 1), [2, 0])
    with pytest.raises(ValueError, match="total_length"):
        seq.pad_packed_sequence(a, total_length=2)


def test_a_weight_that_changes_between_two_calls(torch):
    """What a loop makes of its weight is made once in each run, not once for all."""
    ours, theirs = both(torch, "LSTM", 24, 64)
    x, y = pair(torch, 6, 5, 24)
    for scale in (1.0, -0.5, 2.0):
        with torch.no_grad(), tw.no_grad():
            for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
                a.mul_(scale)
                b.mul_(scale)
            assert_close(ours(x)[0].numpy(), theirs(y)[0].numpy(), 2e-5)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_weights_by_the_names_that_initializers_ask_for(torch, kind):
    def run(m):
        layer = getattr(m.nn, kind)(2, 2, 2, bidirectional=True)
        for name in layer._flat_weights_names:
            if "weight" in name:
                m.nn.init.constant_(layer._parameters[name], 0.5)
        same = all(a is b for a, b in zip(layer._flat_weights, layer.parameters(), strict=True))
        total = sum(w.sum().item() for w in layer._flat_weights if w.dim() > 1)
        layer._flat_weights = [m.nn.Parameter(w.detach() * 0) for w in layer._flat_weights]
        out, _ = layer(m.ones(1, 1, 2))
        return layer._flat_weights_names, layer._all_weights, same, total, out.tolist()

    assert run(tw) == run(torch)
