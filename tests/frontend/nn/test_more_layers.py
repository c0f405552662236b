"""Layers beside the most common ones, against PyTorch: values, gradients, repr and errors."""

from __future__ import annotations

import copy
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
from graph_oracle import assert_close

import tilewright as tw
import tilewright.nn.functional as F
from tilewright import nn

pytestmark = pytest.mark.torch
rng = np.random.default_rng(0)


def check(torch, call, *arrays, tolerance=1e-5):
    """call(module of functions, *tensors) of both, and the gradients of what is float."""
    results = []
    for lib in (tw, torch):
        tensors = [
            lib.tensor(a, requires_grad=a.dtype.kind == "f" and a.dtype.itemsize == 4)
            for a in map(np.asarray, arrays)
        ]
        y = call(lib, *tensors)
        weight = np.random.default_rng(1).standard_normal(tuple(y.shape)).astype(np.float32)
        (y * lib.tensor(weight)).sum().backward()
        grads = [t.grad.numpy() for t in tensors if t.requires_grad and t.grad is not None]
        results.append([y.detach().numpy(), *grads])
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape
        assert_close(a, b, tolerance)


def real(*shape):
    return rng.standard_normal(shape).astype(np.float32)


SIZES = [
    ((2, 3, 5), {"size": 8, "mode": "linear"}),
    ((2, 3, 5), {"scale_factor": 2.6}),
    ((2, 3, 4, 5), {"scale_factor": 2}),
    ((2, 3, 4, 5), {"size": (7, 3), "mode": "nearest-exact"}),
    ((2, 3, 4, 5), {"size": (7, 3), "mode": "bilinear"}),
    ((2, 3, 4, 5), {"scale_factor": (1.5, 0.7), "mode": "bilinear"}),
    (
        (2, 3, 4, 5),
        {"scale_factor": (1.5, 0.7), "mode": "bilinear", "recompute_scale_factor": True},
    ),
    ((2, 3, 4, 5), {"size": (1, 9), "mode": "bilinear", "align_corners": True}),
    ((2, 3, 4, 5), {"size": (9, 3), "mode": "bicubic"}),
    ((2, 3, 4, 5), {"size": (9, 3), "mode": "bicubic", "align_corners": True}),
    ((1, 2, 2, 3, 4), {"size": (3, 2, 5), "mode": "trilinear"}),
    ((1, 2, 2, 3, 4), {"scale_factor": 2}),
    ((2, 3, 6, 5), {"size": (3, 2), "mode": "area"}),
    ((2, 3, 11, 5), {"size": (3, 9), "mode": "bilinear", "antialias": True}),
    ((2, 3, 11, 9), {"scale_factor": (0.3, 0.4), "mode": "bicubic", "antialias": True}),
    (
        (2, 3, 11, 9),
        {"size": (4, 3), "mode": "bicubic", "antialias": True, "align_corners": True},
    ),
]


@pytest.mark.parametrize(("shape", "options"), SIZES, ids=str)
def test_interpolate(torch, shape, options):
    check(torch, lambda t, x: t.nn.functional.interpolate(x, **options), real(*shape))


def test_upsampling_layers(torch):
    for make in (
        lambda n: n.Upsample(scale_factor=2, mode="bilinear"),
        lambda n: n.Upsample(size=(3, 7)),
        lambda n: n.UpsamplingNearest2d(scale_factor=3),
        lambda n: n.UpsamplingBilinear2d(size=(5, 6)),
        lambda n: n.PixelUnshuffle(2),
        lambda n: n.ChannelShuffle(2),
    ):
        assert repr(make(nn)) == repr(make(torch.nn))
        check(torch, lambda t, x, make=make: make(t.nn)(x), real(2, 4, 4, 6))
    for bad, error in (
        ({"size": 2, "scale_factor": 2}, ValueError),
        ({}, ValueError),
        ({"size": 2, "mode": "trilinear"}, NotImplementedError),
        ({"size": 2, "align_corners": True}, ValueError),
        ({"size": (2, 2, 2)}, ValueError),
        ({"size": 2, "antialias": True}, ValueError),
        ({"size": 0}, RuntimeError),
    ):
        with pytest.raises(error):
            F.interpolate(tw.ones(1, 1, 2, 2), **bad)


def test_gradients_of_embeddings_by_frequency(torch):
    def read(t, weight):
        places = t.tensor([[1, 2, 1], [4, 1, 0]])
        return t.nn.functional.embedding(places, weight, padding_idx=0, scale_grad_by_freq=True)

    check(torch, read, real(5, 3))
    weight = tw.ones(5, 1, requires_grad=True)
    bags = F.embedding_bag(
        tw.tensor([[1, 2, 1], [4, 1, 0]]), weight, mode="sum", scale_grad_by_freq=True
    )
    bags.sum().backward()
    assert weight.grad.flatten().tolist() == [1, 1, 1, 0, 1]
    total = F.embedding_bag(tw.tensor([[1, 2]]), weight, mode="sum", max_norm=0.5)
    assert_close(total.detach().numpy(), np.ones((1, 1)), 1e-5)
    assert_close(weight.detach().numpy()[:, 0], np.array([1, 0.5, 0.5, 1, 1]), 1e-5)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(torch, mode):
    weight, flat = real(7, 3), np.array([1, 2, 4, 5, 4, 3, 2, 6])
    make = lambda t: t.nn.functional.embedding_bag  # noqa: E731
    for offsets in ([0, 4], [0, 0, 3, 8]):
        check(torch, lambda t, w, i, o: make(t)(i, w, o, mode=mode), weight, flat, offsets)
    check(torch, lambda t, w, i: make(t)(i, w, mode=mode), weight, flat.reshape(2, 4))
    check(
        torch,
        lambda t, w, i, o: make(t)(i, w, o, mode=mode, include_last_offset=True, padding_idx=4),
        *(weight, flat, [0, 3, 8]),
    )
    if mode == "sum":
        check(
            torch,
            lambda t, w, s, i: make(t)(i, w, mode="sum", per_sample_weights=s),
            *(weight, real(2, 4), flat.reshape(2, 4)),
        )
    ours = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=-1)
    assert repr(ours) == repr(torch.nn.EmbeddingBag(7, 3, mode=mode, padding_idx=-1))
    assert ours(tw.tensor([[6, 6]])).tolist() == [[0, 0, 0]]
    with pytest.raises(ValueError, match="dimension"):
        ours(tw.tensor([1, 2]))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(torch, reduction):
    classes, labels = np.array([1, 0, 3]), np.array([[0, 1, 1, 0]] * 3, np.float64)
    weight = np.array([0.5, 1, 2, 1], np.float64)
    for p in (1, 2):
        check(
            torch,
            lambda t, x, y, w, p=p: t.nn.MultiMarginLoss(
                p, 0.7, w.to(t.float32), reduction=reduction
            )(x, y),
            *(real(3, 4), classes, weight),
        )
    check(
        torch,
        lambda t, x, y, w: t.nn.MultiLabelSoftMarginLoss(w.to(t.float32), reduction=reduction)(
            x, y.to(t.float32)
        ),
        *(real(3, 4), labels, weight),
    )
    listed = np.array([[1, -1, 3, 0], [0, 2, -1, -1], [-1, 0, 1, 2]])
    for scores, classes in ((real(3, 4), listed), (real(4), listed[1])):
        check(
            torch,
            lambda t, x, y: t.nn.MultiLabelMarginLoss(reduction=reduction)(x, y),
            *(scores, classes),
        )
    for swap in (False, True):
        check(
            torch,
            lambda t, a, b, c, swap=swap: t.nn.TripletMarginWithDistanceLoss(
                swap=swap, reduction=reduction
            )(a, b, c),
            *(real(3, 4), real(3, 4), real(3, 4)),
        )
    with pytest.raises(ValueError, match="p == 1"):
        nn.MultiMarginLoss(3)


def test_other_layers(torch):
    x = real(2, 3, 4, 6, 5)
    for make in (
        lambda n: n.ReflectionPad3d(1),
        lambda n: n.ReplicationPad3d((1, 2, 0, 1, 2, 0)),
        lambda n: n.CircularPad3d(1),
        lambda n: n.LPPool3d(2, 2),
    ):
        assert repr(make(nn)) == repr(make(torch.nn))
        check(torch, lambda t, x, make=make: make(t.nn)(x), abs(x) + 0.1)
    check(torch, lambda t, x: t.nn.LPPool2d(3, (2, 3), 2)(x), abs(x[0]) + 0.1)
    check(torch, lambda t, x: t.nn.LPPool1d(2, 3, ceil_mode=True)(x), abs(x[0, 0]) + 0.1)
    check(torch, lambda t, x, y: t.nn.PairwiseDistance(3, keepdim=True)(x, y), x[0], x[1])
    for name, args in (("elu_", (0.5,)), ("leaky_relu_", (0.2,)), ("hardtanh_", ()),
                       ("threshold_", (0.1, 3.0)), ("celu_", ()), ("selu_", ())):  # fmt: skip
        a = tw.tensor(x)
        assert getattr(F, name)(a, *args) is a
        expected = getattr(torch.nn.functional, name)(torch.tensor(x), *args)
        assert_close(a.numpy(), expected.numpy(), 1e-6)


def test_parametrize(torch):
    def both(lib):
        P = lib.nn.utils.parametrize

        class Symmetric(lib.nn.Module):
            def forward(self, x):
                return x.triu() + x.triu(1).transpose(-1, -2)

            def right_inverse(self, x):
                return x.triu()

        class Doubled(lib.nn.Module):
            def forward(self, x):
                return 2 * x

            def right_inverse(self, x):
                return x / 2

        layer = lib.nn.Linear(3, 3)
        with lib.no_grad():
            layer.weight.copy_(lib.arange(9.0).reshape(3, 3))
            layer.bias.fill_(0.5)
        P.register_parametrization(layer, "weight", Symmetric())
        P.register_parametrization(layer, "weight", Doubled())
        assert P.is_parametrized(layer) and not P.is_parametrized(layer, "bias")
        names = list(layer.state_dict())
        optimizer = lib.optim.SGD(layer.parameters(), lr=0.1)
        layer(lib.ones(2, 3)).sum().backward()
        optimizer.step()
        seen = [layer.weight.detach().numpy(), layer.parametrizations.weight.original.grad.numpy()]
        P.remove_parametrizations(layer, "weight")
        assert type(layer) is lib.nn.Linear and not P.is_parametrized(layer)
        assert sorted(n for n, _ in layer.named_parameters()) == ["bias", "weight"]
        with pytest.raises(ValueError, match="parametrization"):
            P.remove_parametrizations(layer, "weight")
        with pytest.raises(ValueError, match="does not have a parameter"):
            P.register_parametrization(layer, "nothing", Doubled())
        return names, [*seen, layer.weight.detach().numpy()]

    (names, ours), (expected, theirs) = both(tw), both(torch)
    assert names == expected
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, 1e-6)


def test_what_is_missing_says_so():
    for module, name in ((nn, "intrinsics"), (F, "handle_torch_function"), (nn.utils, "memory")):
        with pytest.raises(AttributeError, match=f"has no '{name}'.*not implemented yet"):
            getattr(module, name)


@pytest.mark.parametrize("stride, more, dilation", [(1, 1, 2), (2, 2, 3), (1, 2, 3), (3, 2, 2)])
def test_transposed_convolutions_with_room_for_further_windows(torch, stride, more, dilation):
    """The output padding may be as large as the stride, where the dilation is larger."""

    def made(m):
        x = m.arange(96.0, dtype=m.float64).reshape(2, 3, 4, 4).sin().requires_grad_()
        w = m.arange(54.0, dtype=m.float64).reshape(3, 2, 3, 3).cos().requires_grad_()
        y = m.nn.functional.conv_transpose2d(
            x, w, stride=stride, padding=1, output_padding=more, dilation=dilation
        )
        y.pow(2).sum().backward()
        return [y.detach().numpy(), x.grad.numpy(), w.grad.numpy()]

    for ours, theirs in zip(made(tw), made(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [True, False])
def test_images_sampled_far_outside(torch, mode, padding, aligned):
    """Elements that lie outside count as zero, whatever the border holds; and gradients where
    positions are whole numbers."""
    x = rng.standard_normal((2, 5, 6, 7)).astype(np.float32)
    grid = rng.uniform(-1.4, 1.4, (2, 4, 9, 2)).astype(np.float32)
    grid[0, 0, :4] = [[-1, 1], [1, -1], [0, 0], [-1, 0]]
    far = grid.copy()
    far[1, 0, :3] = [[3e4, -1.5], [-2e4, 0.3], [0.2, 50]]

    def call(m, *xs):
        return m.nn.functional.grid_sample(*xs, mode, padding, aligned)

    if mode == "nearest":  # which has no slope
        check(torch, lambda m, x: call(m, x, m.tensor(grid)), x)
    else:
        check(torch, call, x, grid, tolerance=2e-4)
    border = x.copy()
    border[:, :, 0], border[:, :, :, -1] = np.inf, np.nan
    ours, theirs = (call(m, m.tensor(border), m.tensor(far)).numpy() for m in (tw, torch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_counts_of_batches_stay_where_a_state_has_none(torch):
    for lib in (tw, torch):
        layer = lib.nn.BatchNorm1d(2)
        layer(lib.ones(3, 2))
        layer.load_state_dict({}, strict=False)
        assert layer.num_batches_tracked.item() == 1


def test_the_order_of_a_parameter_dict(torch):
    def names(lib):
        def pairs(text):
            return [(c, lib.zeros(1)) for c in text]

        made = lib.nn.ParameterDict(dict(pairs("ba")))
        made.update(OrderedDict(pairs("dc")))
        made.update(pairs("fe"))
        made.update(lib.nn.ParameterDict(OrderedDict(pairs("hg"))))
        return list(made.keys())

    assert names(tw) == names(torch)


def _loss(name, lib, x, target):
    return getattr(lib.nn.functional, name)(x, target)


def test_classes_as_bytes(torch):
    scores = rng.normal(size=(5, 3)).astype(np.float32)
    for name in ("nll_loss", "cross_entropy"):
        classes = np.array([0, 2, 1, 1, 0], np.uint8)
        call = partial(_loss, name)
        check(torch, call, scores, classes)


def test_buffers_and_sizes_that_are_known_later(torch):
    for lib in (tw, torch):
        parameter = lib.nn.UninitializedParameter()
        parameter.materialize(4)
        assert parameter.shape == (4,)
        module = lib.nn.Module()
        module.late = lib.nn.UninitializedBuffer()
        assert list(module._buffers) == ["late"]
        module.late.materialize((2, 3))
        assert module.late.shape == module._buffers["late"].shape == (2, 3)


def note(module, *state):
    module.noted = True


def test_hooks_of_states_go_with_a_copy(torch):
    for lib in (tw, torch):
        layer = lib.nn.Linear(1, 1)
        layer.register_load_state_dict_pre_hook(note)
        copied = copy.deepcopy(layer)
        copied.load_state_dict(layer.state_dict())
        assert copied.noted
        assert not hasattr(layer, "noted")


def test_nothing_to_pack(torch):
    for lib in (tw, torch):
        with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
            lib.nn.utils.rnn.pack_padded_sequence(lib.zeros(0, 0), [])


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_same_padding_of_kernels_in_turn(torch):
    for _ in range(2):
        for length in (9, 10, 12):
            for size in (1, 3, 2, 5, 4):
                x, weight = real(2, 2, length), real(3, 2, size)
                expected, ours = (
                    lib.nn.functional.conv1d(lib.tensor(x), lib.tensor(weight), padding="same")
                    for lib in (torch, tw)
                )
                assert_close(ours.numpy(), expected.numpy(), 1e-5)


def test_hooks_of_states_see_what_is_their_modules(torch):
    def seen(lib):
        model = lib.nn.Sequential(lib.nn.Sequential(lib.nn.Linear(1, 1)), lib.nn.Linear(1, 1))
        found = []
        for module in model.modules():
            module.register_load_state_dict_pre_hook(
                lambda module, state, prefix, *_: found.append((prefix, list(state)))
            )
        model.load_state_dict(model.state_dict())
        return found

    assert seen(tw) == seen(torch)
