"""Every layer with the inputs of PyTorch's own database of modules: values, gradients and state."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from layers import INFOS, RANDOM, flat, translated

import tilewright as tw


def again(module: Any) -> None:
    """A copy of a module, and one that was pickled, are like it."""
    for made in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(made) == repr(module) and made.training == module.training
        for (name, a), (other, b) in zip(
            made.state_dict().items(), module.state_dict().items(), strict=True
        ):
            assert name == other and a.dtype is b.dtype
            np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=name)
        flags = [[p.requires_grad for p in m.parameters()] for m in (made, module)]
        assert flags[0] == flags[1]


def close(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    assert (ours is None) == (theirs is None), what
    if theirs is None:
        return
    mine, yours = ours.detach().numpy(), theirs.detach().numpy()
    assert mine.dtype == yours.dtype and mine.shape == yours.shape, what
    if not np.issubdtype(yours.dtype, np.floating):
        np.testing.assert_array_equal(mine, yours, err_msg=what)
        return
    scale = max(1.0, float(np.abs(yours[np.isfinite(yours)]).max(initial=0)))
    np.testing.assert_allclose(mine, yours, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def compare(torch: Any, info: Any, dtype: str, training: bool) -> int:
    """Run all inputs of a layer in both libraries. Returns their number."""
    torch.manual_seed(0)
    tolerance = 2e-4 if dtype == "float32" else 1e-9
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=getattr(torch, dtype), requires_grad=True, training=training
    )
    compared = 0
    for given in inputs:
        if given.forward_input is None:
            continue
        arguments, options = given.constructor_input.args, dict(given.constructor_input.kwargs)
        if options.get("options") is not None:
            continue  # how PyTorch cuts a linear cross entropy into chunks
        theirs = info.module_cls(*arguments, **options).to(getattr(torch, dtype)).train(training)
        kind = getattr(tw.nn, info.module_cls.__name__)
        ours = kind(*translated(arguments, torch), **translated(options, torch))
        ours = ours.to(getattr(tw, dtype)).train(training)
        what = f"{info.name}{given.desc and f' ({given.desc})'}: {arguments} {options}"
        args, more = given.forward_input.args, given.forward_input.kwargs
        own_args, own_more = translated(args, torch), translated(more, torch)
        lazy = any(torch.nn.parameter.is_lazy(p) for p in theirs.parameters())
        if lazy:
            theirs(*args, **more), ours(*own_args, **own_more)
        state = theirs.state_dict()
        own = ours.state_dict()
        assert list(own) == list(state), what
        for name, value in state.items():
            assert tuple(own[name].shape) == tuple(value.shape), f"{what}: {name}"
        ours.load_state_dict({k: tw.tensor(v.numpy()) for k, v in state.items()})
        assert repr(ours) == repr(theirs), what
        wanted = flat(theirs(*args, **more), torch.Tensor)
        made = flat(ours(*own_args, **own_more), tw.Tensor)
        assert len(made) == len(wanted), what
        for a, b in zip(made, wanted, strict=True):
            close(a, b, tolerance, what)
        pairs = [(a, b) for a, b in zip(made, wanted, strict=True) if b.requires_grad]
        assert all(a.requires_grad for a, _ in pairs), what
        if pairs:
            rng = np.random.default_rng(0)
            seeds = [np.asarray(rng.normal(size=tuple(b.shape)).astype(dtype)) for _, b in pairs]
            torch.autograd.backward([b for _, b in pairs], [torch.tensor(s) for s in seeds])
            tw.autograd.backward([a for a, _ in pairs], [tw.tensor(s) for s in seeds])
        leaves = zip(flat([own_args, own_more], tw.Tensor), flat([args, more], torch.Tensor))
        for a, b in leaves:
            if b.is_leaf and b.requires_grad:
                close(a.grad, b.grad, tolerance, f"{what}: gradient of an input")
        for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            close(a.grad, b.grad, tolerance, f"{what}: gradient of {name}")
        for name, value in theirs.state_dict().items():
            close(ours.state_dict()[name], value, tolerance, f"{what}: {name} after the call")
        again(ours)
        compared += 1
    return compared


FAST = (
    "nn_BatchNorm2d nn_BCELoss nn_Bilinear nn_CircularPad2d nn_Conv2d nn_ConvTranspose1d "
    "nn_CTCLoss nn_EmbeddingBag nn_FractionalMaxPool2d nn_GRUCell nn_LazyConv2d nn_LayerNorm "
    "nn_MaxPool1d nn_ReLU6 nn_RReLU nn_ZeroPad2d"
).split()
"""Those that run with the fast tests."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in INFOS],
)
def test_a_layer_is_pytorchs(torch: Any, name: str) -> None:
    info = INFOS[name]
    kind = info.module_cls.__name__
    drawn = kind.startswith(RANDOM) or kind.endswith(RANDOM)
    modes = (False,) if drawn else (True, False) if info.train_and_eval_differ else (True,)
    assert sum(compare(torch, info, "float32", training) for training in modes)
