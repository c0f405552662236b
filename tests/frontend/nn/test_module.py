"""The rules of Module: attributes, states, conversions, copies, hooks, containers."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from oracle import close

import tilewright as tw
import tilewright.nn as nn
import tilewright.nn.functional as F

pytestmark = pytest.mark.computes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8, 3))
        self.scale = nn.Parameter(tw.ones(3))
        self.register_buffer("offset", tw.zeros(3))
        self.register_buffer("scratch", tw.zeros(2), persistent=False)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu()) * self.scale + self.offset


def test_walks_and_state_dict():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        "scale", "conv.weight", "conv.bias", "norm.weight", "norm.bias", "head.1.weight",
        "head.1.bias",
    ]  # fmt: skip
    assert [n for n, _ in net.named_buffers()] == [
        "offset", "scratch", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    ]  # fmt: skip
    assert [n for n, _ in net.named_modules()] == ["", "conv", "norm", "head", "head.0", "head.1"]
    assert [n for n, _ in net.named_children()] == ["conv", "norm", "head"]
    state = net.state_dict()
    assert list(state) == [
        "scale", "offset", "conv.weight", "conv.bias", "norm.weight", "norm.bias",
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "head.1.weight",
        "head.1.bias",
    ]  # fmt: skip
    assert isinstance(state, OrderedDict) and not state["scale"].requires_grad
    state["scale"].fill_(5)  # shares memory, as in PyTorch
    assert net.scale.detach().numpy().tolist() == [5, 5, 5]
    assert net.get_submodule("head.1") is net.head[1]
    assert net.get_parameter("head.1.bias") is net.head[1].bias
    with pytest.raises(AttributeError, match="has no attribute `nothing`"):
        net.get_submodule("head.nothing")
    assert net.scale is net.__dict__["scale"]  # found without __getattr__


def test_shared_parameters_are_listed_once():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert len(net.state_dict()) == 4


def test_load_state_dict_messages():
    net = Net()
    state = net.state_dict()
    assert repr(net.load_state_dict(state)) == "<All keys matched successfully>"
    del state["conv.bias"]
    state["other"] = tw.ones(1)
    state["scale"] = tw.ones(4)
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    assert str(error.value) == (
        "Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "conv.bias". \n'
        '\tUnexpected key(s) in state_dict: "other". \n'
        "\tsize mismatch for scale: copying a param with shape torch.Size([4]) from checkpoint, "
        "the shape in current model is torch.Size([3])."
    )
    del state["scale"]
    found = net.load_state_dict(state, strict=False)
    assert found.missing_keys == ["scale", "conv.bias"] and found.unexpected_keys == ["other"]
    with pytest.raises(TypeError, match="dict-like"):
        net.load_state_dict([1])
    fresh = Net()
    own = fresh.scale
    fresh.load_state_dict(net.state_dict())
    assert fresh.scale is own and own.requires_grad
    x = tw.randn(2, 1, 4, 4)
    np.testing.assert_array_equal(fresh(x).detach().numpy(), net(x).detach().numpy())
    taken = Net()
    given = {k: v.clone() for k, v in net.state_dict().items()}
    taken.load_state_dict(given, assign=True)
    assert taken.scale is not own and isinstance(taken.scale, nn.Parameter)


def test_attribute_rules():
    net = Net()
    with pytest.raises(TypeError, match="cannot assign 'int' as parameter 'scale'"):
        net.scale = 3
    with pytest.raises(TypeError, match="cannot assign 'str' as child module 'conv'"):
        net.conv = "x"
    with pytest.raises(TypeError, match="cannot assign 'int' as buffer 'offset'"):
        net.offset = 3
    net.offset = tw.ones(3)
    assert net._buffers["offset"] is net.offset
    net.scale = None
    assert net.scale is None and "scale" not in dict(net.named_parameters())
    del net.scale
    assert not hasattr(net, "scale")
    net.offset = nn.Parameter(tw.ones(3))  # a buffer becomes a parameter
    assert "offset" in net._parameters and "offset" not in net._buffers
    with pytest.raises(KeyError, match="already exists"):
        net.register_buffer("forward", tw.ones(1))
    with pytest.raises(KeyError, match="name can"):
        net.add_module("a.b", nn.ReLU())
    net._modules["conv"] = nn.Identity()
    assert isinstance(net.conv, nn.Identity)

    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"before Module\.__init__"):
        Early()
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        nn.Module()(1)
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = net.nothing
    with pytest.raises(AttributeError, match="no 'Nothing'"):
        _ = nn.Nothing


def test_conversions_to_views_keep_the_gradients_of_views():
    layer, memory = nn.Linear(2, 2, bias=False), tw.ones(3, 2)
    layer._apply(lambda _: memory[:2])
    row = layer.weight[0]
    row.tolist()  # the epoch ends
    assert row.requires_grad
    row.sum().backward()
    assert layer.weight.grad.tolist() == [[1, 1], [0, 0]]


def test_modes_conversions_and_apply():
    net = Net()
    assert net.training and net.head[1].training
    net.eval()
    assert not net.norm.training
    parameter = net.scale
    net.double()
    assert net.scale is parameter and parameter.dtype is tw.float64 and parameter.requires_grad
    assert net.offset.dtype is tw.float64 and net.norm.num_batches_tracked.dtype is tw.int64
    assert net(tw.randn(1, 1, 4, 4, dtype=tw.float64)).dtype is tw.float64
    net.to(tw.float32).to("cpu")
    net(tw.randn(1, 1, 4, 4)).sum().backward()
    assert parameter.grad is not None
    net.zero_grad(set_to_none=False)
    assert not parameter.grad.numpy().any()
    net.zero_grad()
    assert parameter.grad is None
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Conv2d", "BatchNorm2d", "Flatten", "Linear", "Sequential", "Net"]
    with pytest.raises(TypeError, match="only accepts floating point"):
        net.to(tw.int64)


def test_copies_are_independent():
    net = Net()
    net(tw.randn(2, 1, 4, 4)).sum().backward()
    x = tw.randn(2, 1, 4, 4)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        other.eval(), net.eval()
        np.testing.assert_array_equal(other(x).detach().numpy(), net(x).detach().numpy())
        with tw.no_grad():
            other.scale.zero_()
        assert net.scale.detach().numpy().all()
        assert other.conv is other._modules["conv"] and other.conv.weight.requires_grad
        other.conv = nn.Identity()
        assert isinstance(other._modules["conv"], nn.Identity)


def test_parameter_shares_memory():
    data = tw.zeros(3)
    parameter = nn.Parameter(data)
    assert parameter.is_leaf and parameter.requires_grad and not data.requires_grad
    data.add_(1)
    assert parameter.detach().numpy().tolist() == [1, 1, 1]
    with tw.no_grad():
        parameter.mul_(3)
    assert data.numpy().tolist() == [3, 3, 3]
    (parameter * 2).sum().backward()
    assert parameter.grad.numpy().tolist() == [2, 2, 2]
    optimizer = tw.optim.SGD([parameter], lr=1.0)
    optimizer.step()
    assert data.numpy().tolist() == [1, 1, 1]
    assert (
        repr(nn.Parameter(tw.ones(1))) == "Parameter containing:\ntensor([1.], requires_grad=True)"
    )
    alone = nn.Parameter(tw.ones(2))
    assert alone._storage is None  # a temporary hands its memory over
    frozen = nn.Parameter(tw.ones(2), requires_grad=False)
    assert not frozen.requires_grad
    with pytest.raises(TypeError, match="has to be a Tensor"):
        nn.Parameter([1.0])


def test_forward_hooks():
    layer, calls = nn.Linear(2, 2), []
    first = layer.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    second = layer.register_forward_hook(lambda m, args, out: calls.append(args) or out + 1)
    x = tw.ones(1, 2)
    with tw.no_grad():
        plain = F.linear(x * 2, layer.weight, layer.bias) + 1
    np.testing.assert_allclose(layer(x).detach().numpy(), plain.numpy(), rtol=1e-6)
    assert len(calls) == 1
    first.remove(), second.remove()
    np.testing.assert_allclose(
        layer(x).detach().numpy(), F.linear(x, layer.weight, layer.bias).detach().numpy()
    )
    layer.register_forward_pre_hook(lambda m, args, kwargs: (args, {"input": x}), with_kwargs=True)
    layer(input=None)


def test_full_backward_hooks(torch):
    found = {}
    for name, lib in (("ours", tw), ("theirs", torch)):
        weight = np.arange(6, dtype=np.float32).reshape(2, 3)
        layer = lib.nn.Linear(3, 2, bias=False)
        with lib.no_grad():
            layer.weight.copy_(lib.tensor(weight))
        seen = []
        layer.register_full_backward_hook(lambda m, gi, go, seen=seen: seen.append((gi[0], go[0])))
        layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
        x = lib.ones(4, 3, requires_grad=True)
        (layer(x * 2) ** 2).sum().backward()
        found[name] = (*seen[0], x.grad, layer.weight.grad)
    for a, b in zip(found["ours"], found["theirs"], strict=True):
        close(a, b)
    replaced = nn.Identity()
    replaced.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    x = tw.ones(2, requires_grad=True)
    replaced(x * 1).sum().backward()
    assert x.grad.numpy().tolist() == [10, 10]


def test_containers():
    seq = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU()))
    assert (
        seq.a is seq[0] and len(seq) == 2 and list(seq[:1].state_dict()) == ["a.weight", "a.bias"]
    )
    seq.append(nn.Linear(3, 1))
    assert seq(tw.ones(1, 2)).shape == (1, 1)
    plain = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Tanh())
    del plain[1]
    assert [type(m) for m in plain] == [nn.Linear, nn.Tanh]
    del seq[1]  # PyTorch numbers what is left
    assert list(seq.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    plain[-1] = nn.Identity()
    plain.insert(1, nn.ReLU())
    assert [type(m) for m in plain] == [nn.Linear, nn.ReLU, nn.Identity]
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    layers += [nn.ReLU()]
    assert len(layers) == 4 and layers[-1] is layers[3] and len(list(layers.parameters())) == 6
    assert "(0-2): 3 x Linear" in repr(layers)
    assert isinstance(layers[1:], nn.ModuleList) and len(layers[1:]) == 3
    named = nn.ModuleDict({"x": nn.Linear(1, 1)})
    named["y"] = nn.ReLU()
    assert list(named) == ["x", "y"] and "x" in named and len(named) == 2
    assert list(named.state_dict()) == ["x.weight", "x.bias"]
    numbers = nn.ParameterList([tw.ones(2), tw.zeros(1)])
    numbers.append(tw.ones(3))
    assert len(numbers) == 3 and list(numbers.state_dict()) == ["0", "1", "2"]
    assert isinstance(numbers[-1], nn.Parameter) and [p.numel() for p in numbers] == [2, 1, 3]
    table = nn.ParameterDict({"a": tw.ones(2)})
    assert table["a"].requires_grad and list(table.keys()) == ["a"]
    with pytest.raises(IndexError):
        layers[9]


@pytest.mark.parametrize("overwrite", [False, True])
def test_conversions_may_make_new_parameters(torch, overwrite):
    seen = []
    for m in (tw, torch):
        future = m.__future__
        future.set_overwrite_module_params_on_conversion(overwrite)
        try:
            layer = m.nn.Linear(2, 1)
            layer(m.ones(1, 2)).sum().backward()
            before = layer.weight
            layer.double()
            seen.append((
                layer.weight is before, layer.weight.dtype is m.float64, layer.weight.is_leaf,
                layer.weight.grad.tolist(), layer.weight.grad.dtype is m.float64,
                future.get_overwrite_module_params_on_conversion(),
                future.get_swap_module_params_on_conversion(),
            ))  # fmt: skip
        finally:
            future.set_overwrite_module_params_on_conversion(False)
    assert seen[0] == seen[1]


def test_a_getattr_of_the_class_is_asked_for_parameters(torch):
    def run(m):
        class Handler:
            def __getattr__(self, name):
                value = super().__getattr__(name)
                return m.view_as_complex(value) if m.is_tensor(value) else value

        class Complex(Handler, m.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = m.nn.Parameter(m.arange(4.0).reshape(2, 2))
                self.register_buffer("b", m.ones(2, 2))
                self.inner = m.nn.Linear(1, 1)

        class Wrapper(m.nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def __getattr__(self, name):
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(self.module, name)

        made = Complex()
        wrapped = copy.deepcopy(Wrapper(made))
        (made.w * made.b).abs().sum().backward()
        compiled = m.compile(lambda: made.w * 2, backend="eager")
        found = [compiled().tolist() for _ in range(3)]
        names = [n for n, _ in wrapped.named_parameters()]
        wrapped.module.w = m.nn.Parameter(m.ones(1, 2))
        del made.w
        return found, names, wrapped.w.tolist(), wrapped.inner.in_features, hasattr(made, "w")

    assert run(tw) == run(torch)


def test_a_copy_by_dict_has_the_parameters_that_it_is_given(torch):
    """Libraries of meta-learning copy modules this way, to give them computed weights."""

    def copied(module):
        made = type(module).__new__(type(module))
        made.__dict__ = module.__dict__.copy()
        for kind in ("_parameters", "_buffers", "_modules"):
            setattr(made, kind, getattr(made, kind).copy())
        for name, value in module._parameters.items():
            made._parameters[name] = None if value is None else value.clone() * 2
        for name, child in module._modules.items():
            made._modules[name] = copied(child)
        return made

    def run(m):
        net = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.BatchNorm1d(2, affine=False))
        with m.no_grad():
            net[0].weight.copy_(m.arange(4.0).reshape(2, 2))
            net[0].bias.fill_(1.0)
        made = copied(net).eval()
        made[1]._buffers["running_mean"] = m.ones(2)
        made(m.arange(6.0).reshape(3, 2)).square().sum().mul(made[0].bias[0]).backward()
        first = (
            made[0].weight.tolist(), made[0].bias.is_leaf, made[1].running_mean.tolist(),
            net[0].bias.grad.round().tolist(), net[1].running_mean.tolist(), made.training,
        )  # fmt: skip
        made[0]._parameters = {"weight": None, "other": net[0].bias}
        return *first, hasattr(made[0], "bias"), made[0].weight, made[0].other is net[0].bias

    assert run(tw) == run(torch)


def test_data_of_a_parameter_without_a_shape(torch):
    """Programs draw into it before the first batch, which has no effect."""

    def run(m):
        layer = m.nn.LazyLinear(2, dtype=m.float64)
        drawn = layer.weight.data.normal_(0, 0.01)
        layer.bias.data.fill_(0)
        found = type(drawn) is m.Tensor, drawn.shape, drawn.dtype is m.float64
        with pytest.raises(ValueError, match="uninitialized parameter"):
            layer.weight.normal_()
        return *found, layer(m.ones(1, 3, dtype=m.float64)).shape, layer.weight.shape

    assert run(tw) == run(torch)


def test_children_with_an_apply_of_their_own_are_asked(torch):
    def run(m):
        class Metric(m.nn.Module):
            """Has tensors that are no buffers, as those of torchmetrics have."""

            def __init__(self):
                super().__init__()
                self.total, self.inner = m.zeros(2), m.nn.Linear(1, 1)
                self.inner.own = Kept()

            def _apply(self, fn, *args, **options):
                made = super()._apply(fn, *args, **options)
                made.total = fn(made.total)
                return made

        class Kept(m.nn.Module):
            count = 0

            def _apply(self, fn, recurse=True):
                self.count += 1
                return super()._apply(fn)

        metric = Metric()
        model = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.Sequential(metric), metric)
        model.to(m.float64)
        found = [str(p.dtype) for p in model.parameters()] + [str(metric.total.dtype)]
        model[0].weight.grad = m.ones(2, 2, dtype=m.float64)
        model.float()
        counts = metric.inner.own.count > 0, model[0].weight.grad.dtype is m.float32
        return found, metric.total.dtype is m.float32, counts

    ours, theirs = run(tw), run(torch)
    assert [n.replace("tilewright", "torch") for n in ours[0]] == theirs[0]
    assert ours[1:] == theirs[1:] == (True, (True, True))


def test_a_sequential_takes_the_modules_of_another() -> None:
    first = nn.Sequential(nn.ReLU())
    assert first.extend(sequential=nn.Sequential(nn.Linear(2, 3), nn.Tanh())) is first
    assert [type(m) for m in first] == [nn.ReLU, nn.Linear, nn.Tanh]
