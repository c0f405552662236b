"""functional_call, stack_module_state and functionalize against PyTorch's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from transforms import same, same_error

import tilewright as tw

pytestmark = [pytest.mark.computes, pytest.mark.usefixtures("torch")]

X = np.random.default_rng(0).normal(size=(5, 3)).astype("f")


def models(m: Any, count: int) -> list[Any]:
    rng = np.random.default_rng(2)
    made = []
    for _ in range(count):
        model = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.BatchNorm1d(4), m.nn.Linear(4, 2)).eval()
        with m.no_grad():
            for p in model.parameters():
                p.copy_(m.tensor(rng.normal(size=tuple(p.shape)).astype("f")))
        made.append(model)
    return made


def test_an_ensemble() -> None:
    def program(m: Any, x: Any) -> Any:
        nets = models(m, 3)
        state = m.func.stack_module_state(nets)

        def call(parameters: Any, buffers: Any, x: Any) -> Any:
            return m.func.functional_call(nets[0], (parameters, buffers), (x,))

        out = m.vmap(call, in_dims=(0, 0, None))(*state, x)
        return state, out, m.autograd.grad(out.sum(), list(state[0].values()))

    same(program, X)


def test_other_tensors_for_a_call() -> None:
    def program(m: Any, x: Any) -> Any:
        net = m.nn.Linear(3, 3, bias=False)
        weight = m.eye(3, requires_grad=True)
        before = net.weight
        out = m.func.functional_call(net, {"weight": weight}, x)
        assert net.weight is before
        return out, m.func.functional_call(net, {"weight": weight * 2}, kwargs={"input": x})

    same(program, X)


def test_tied_weights() -> None:
    def program(m: Any, x: Any) -> Any:
        net = m.nn.Sequential(m.nn.Linear(3, 3, bias=False), m.nn.Linear(3, 3, bias=False))
        net[1].weight = net[0].weight
        with m.no_grad():
            net[0].weight.copy_(m.eye(3) * 3)
        given = {"0.weight": m.eye(3) * 2}
        call = m.func.functional_call
        return call(net, given, x), call(net, given, x, tie_weights=False)

    same(program, X)


def test_buffers_are_written() -> None:
    def program(m: Any, x: Any) -> Any:
        net = m.nn.BatchNorm1d(3)
        buffers = {k: v.clone() for k, v in net.named_buffers()}
        out = m.func.functional_call(net, (dict(net.named_parameters()), buffers), (x,))
        return out.detach(), buffers, dict(net.named_buffers())

    same(program, X)


def test_functionalize() -> None:
    same(lambda m, x: m.func.functionalize(lambda a: a.clone().add_(1))(x), X)


def linear(m: Any, given: Any, **options: Any) -> Any:
    return m.func.functional_call(m.nn.Linear(2, 2), given, (m.ones(2),), **options)


ERRORS = {
    "Unexpected key": lambda m: linear(m, {"x": m.ones(2)}, strict=True),
    "to be a dict": lambda m: linear(m, 3),
    "multiple dictionaries": lambda m: linear(m, ({"bias": m.ones(2)}, {"bias": m.ones(2)})),
    "at least one model": lambda m: m.func.stack_module_state([]),
    "same training/eval mode": lambda m: m.func.stack_module_state(
        [m.nn.Linear(2, 2), m.nn.Linear(2, 2).eval()]
    ),
    "the same class": lambda m: m.func.stack_module_state([m.nn.Linear(2, 2), m.nn.ReLU()]),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    assert text in same_error(ERRORS[text])


def test_a_failed_call_restores_the_module() -> None:
    net = tw.nn.Linear(3, 2)
    before = net.weight
    with pytest.raises(RuntimeError):
        tw.func.functional_call(net, {"weight": tw.ones(2, 7)}, (tw.ones(3),))
    assert net.weight is before


def test_tensors_in_the_place_of_parameters_until_a_block_ends(torch: Any) -> None:
    """The context manager that packages take from nn.utils.stateless."""
    found = []
    for m in (torch, tw):
        stateless = importlib.import_module(f"{m.__name__}.nn.utils.stateless")
        model = m.nn.Linear(2, 1)
        own = model.weight
        with stateless._reparametrize_module(model, {"weight": m.ones(1, 2), "bias": m.zeros(1)}):
            found.append(model(m.tensor([[1.0, 2.0]])).tolist())
        assert model.weight is own
        wrong = stateless._reparametrize_module(model, {"gain": own}, strict=True)
        with pytest.raises(RuntimeError, match="in reparametrizing"), wrong:
            pass
        assert model.weight is own
    assert found == [[[3.0]], [[3.0]]]


@pytest.mark.filterwarnings("ignore:We've integrated functorch:FutureWarning")
def test_the_package_that_became_torch_func(torch: Any) -> None:
    def told(m: Any, older: Any) -> Any:
        def linear() -> Any:
            made = m.nn.Linear(2, 3)
            with m.no_grad():
                for i, p in enumerate(made.parameters()):
                    p.copy_(m.sin(m.arange(float(p.numel())).reshape(p.shape) + i))
            return made

        x = m.cos(m.arange(8.0)).reshape(4, 2)
        model = linear()
        function, params = older.make_functional(model)
        grads = older.grad(lambda p: (function(p, x) ** 2).sum())(params)
        norm = m.nn.Sequential(linear(), m.nn.BatchNorm1d(3)).eval()
        whole, weights, buffers = older.make_functional_with_buffers(
            norm, disable_autograd_tracking=True
        )
        models = [linear(), linear()]
        many, stacked, none = older.combine_state_for_ensemble(models)
        each = older.vmap(many, in_dims=(0, 0, None))(stacked, none, x)
        errors = []
        for call in (
            lambda: older.make_functional(norm),
            lambda: older.combine_state_for_ensemble([]),
            lambda: older.combine_state_for_ensemble([linear(), m.nn.Tanh()]),
        ):
            with pytest.raises(RuntimeError) as raised:
                call()
            errors.append(str(raised.value).partition(", at ")[0])
        with pytest.warns(FutureWarning, match=r"`functorch.vmap` .* use `torch.vmap` instead"):
            older.vmap(m.sin)
        return (
            [g.round(decimals=3).tolist() for g in grads],
            [p.requires_grad for p in (*params, *weights)], params[0] is model.weight,
            function.param_names, function.names_map, whole.param_names, whole.buffer_names,
            whole(weights, buffers, x).round(decimals=3).tolist(), each.shape,
            each.round(decimals=3).tolist(), repr(function), errors,
        )  # fmt: skip

    theirs = importlib.import_module("functorch")
    ours = importlib.import_module("tilewright.func.older")
    assert told(tw, ours) == told(torch, theirs)


@pytest.mark.torch
def test_plain_tensors_are_replaced_too(torch):
    def seen(m):
        class Scaled(m.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale, self.count = m.tensor([2.0]), 3

            def forward(self, x):
                return x * self.scale + (self.shift if hasattr(self, "shift") else 0)

        module, x = Scaled(), m.ones(1)
        call = m.func.functional_call
        given = {"scale": m.tensor([5.0], requires_grad=True), "shift": m.tensor([1.0])}
        made = call(module, given, x)
        made.backward()
        with pytest.raises(TypeError, match="is not an instance of"):
            call(module, {"count": m.ones(1)}, x)
        after = [module(x).item(), hasattr(module, "shift"), module.count]
        return [made.item(), given["scale"].grad.item(), *after]

    assert seen(tw) == seen(torch) == [6.0, 1.0, 2.0, False, 3]
