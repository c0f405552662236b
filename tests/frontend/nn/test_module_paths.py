"""The paths at which PyTorch defines its layers, and the bases that programs ask for."""

from __future__ import annotations

import importlib
import inspect
import pickle
import types

import numpy as np
import pytest
from oracle import close

import tilewright as tw
from tilewright import nn
from tilewright.nn import modules

PATHS = sorted(
    name for name, value in vars(modules).items() if isinstance(value, types.ModuleType)
    and value.__name__.startswith("tilewright.nn.modules.")
)  # fmt: skip

MISSING = {
    "activation._arg_requires_grad": "a step of the fast path of MultiheadAttention",
    "activation._check_arg_device": "a step of the fast path of MultiheadAttention",
    "activation._is_make_fx_tracing": "there is no fx",
    "batchnorm._LazyNormBase": "lazy layers have one base for both kinds of norm",
    "container.T": "a type variable",
    "container._V": "a type variable",
    "container._addindent": "a step of repr",
    "conv._LazyConvXdMixin": "a step of lazy convolutions",
    "lazy._LazyProtocol": "a type for checkers",
    "linear_cross_entropy_options._AUTO_FALLBACK": "a step of cutting into chunks",
    "linear_cross_entropy_options._AutoDefault": "a step of cutting into chunks",
    "module.T": "a type variable",
    "module._WrappedHook": "a step of hooks that are pickled",
    "module._addindent": "a step of repr",
    "module._forward_unimplemented": "a step of Module",
    "module._has_any_global_hook": "a step of calls",
    "rnn._apply_permutation": "a step of the layers",
    "transformer._detect_is_causal_mask": "a step of the fast path of encoders",
    "transformer._generate_square_subsequent_mask": "Transformer has it as a method",
    "transformer._get_clones": "a step of encoders and decoders",
    "transformer._get_seq_len": "a step of the fast path of encoders",
}
"""What PyTorch defines in a module that ours doesn't have, and why."""


@pytest.mark.parametrize("path", PATHS)
def test_a_path_has_what_pytorch_defines_there(torch, path):
    theirs = importlib.import_module(f"torch.nn.modules.{path}")
    ours = importlib.import_module(f"tilewright.nn.modules.{path}")
    defined = {
        f"{path}.{name}"
        for name, value in vars(theirs).items()
        if getattr(value, "__module__", None) == theirs.__name__
    }
    missing = {name for name in defined if not hasattr(ours, name.partition(".")[2])}
    assert missing == {name for name in MISSING if name.partition(".")[0] == path}


def test_every_path_of_pytorch_is_there(torch):
    import pkgutil

    theirs = {m.name for m in pkgutil.iter_modules(torch.nn.modules.__path__)}
    absent = {
        "_functions": "autograd functions",
        "linear_cross_entropy": "how a linear cross entropy is cut into chunks",
    }
    assert theirs - set(PATHS) == set(absent)


@pytest.mark.parametrize("path", PATHS)
def test_bases_are_pytorchs(torch, path):
    """A class derives from the bases of its namesake, as far as they have a path."""
    theirs = importlib.import_module(f"torch.nn.modules.{path}")
    for name, kind in vars(theirs).items():
        if not inspect.isclass(kind) or not issubclass(kind, torch.nn.Module):
            continue
        own = getattr(importlib.import_module(f"tilewright.nn.modules.{path}"), name, None)
        for base in kind.__mro__[1:] if own else ():
            where, _, home = base.__module__.rpartition(".")
            known = where == "torch.nn.modules" and f"{home}.{base.__name__}" not in MISSING
            if known and base.__name__ not in HIDDEN:
                ours = importlib.import_module(f"tilewright.nn.modules.{home}")
                assert issubclass(own, getattr(ours, base.__name__)), (name, base.__name__)


HIDDEN = ("Threshold",)


def test_classes_are_the_same_everywhere():
    from tilewright.nn.modules.batchnorm import _BatchNorm
    from tilewright.nn.modules.conv import Conv2d, _ConvNd, _ConvTransposeNd
    from tilewright.nn.modules.module import _IncompatibleKeys

    assert Conv2d is nn.Conv2d and nn.modules.Conv2d is nn.Conv2d and modules.conv.Conv2d is Conv2d
    assert isinstance(nn.Conv1d(1, 1, 1), _ConvNd)
    transposed = nn.ConvTranspose2d(1, 1, 1)
    assert isinstance(transposed, _ConvTransposeNd) and isinstance(transposed, _ConvNd)
    assert isinstance(nn.SyncBatchNorm(1), _BatchNorm)
    assert not isinstance(nn.InstanceNorm1d(1), _BatchNorm)
    assert isinstance(nn.Linear(1, 1).load_state_dict({}, strict=False), _IncompatibleKeys)
    assert pickle.loads(pickle.dumps(nn.Conv2d)) is nn.Conv2d


def test_a_script_imports_paths(run_python, tmp_path):
    script = tmp_path / "paths.py"
    script.write_text(
        "import torch.nn.modules.conv\n"
        "from torch.nn.modules.batchnorm import _BatchNorm\n"
        "from torch.nn.modules import Conv2d, utils\n"
        "from torch.nn.parameter import UninitializedParameter\n"
        "from torch.nn.common_types import _size_2_t\n"
        "from torch.nn.parallel.distributed import DistributedDataParallel\n"
        "import torch.nn.grad\n"
        "print(Conv2d is torch.nn.Conv2d, utils._pair(3), torch.nn.modules.conv._ConvNd.__name__)\n"
    )
    code = "import sys\nfrom tilewright.cli import main\nsys.argv = sys.argv[1:]\nmain()"
    made = run_python(code, "tilewright", "run", str(script))
    assert made.strip() == "True (3, 3) _ConvNd"


def test_a_subclass_of_the_base_names_all_options(torch):
    """As programs write layers of their own."""

    def made(nn, base, pair):
        class Own(base):
            def __init__(self):
                super().__init__(
                    2, 4, pair(3), pair(1), pair(1), pair(1), False, pair(0), 1, True, "zeros"
                )

            def forward(self, x):
                weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
                return nn.functional.conv2d(x, weight, self.bias, self.stride, self.padding)

        return Own()

    theirs = made(torch.nn, torch.nn.modules.conv._ConvNd, torch.nn.modules.utils._pair)
    ours = made(nn, modules.conv._ConvNd, modules.utils._pair)
    ours.load_state_dict({k: tw.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(0).normal(size=(1, 2, 5, 5)).astype(np.float32)
    close(ours(tw.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy())
    assert repr(ours) == repr(theirs)


def test_utils(torch):
    theirs, ours = torch.nn.modules.utils, modules.utils
    for value in (3, (1, 2), [1, 2], "ab"):
        assert ours._pair(value) == theirs._pair(value)
    assert ours._quadruple(0) == (0, 0, 0, 0)
    assert ours._reverse_repeat_tuple((1, 2), 2) == theirs._reverse_repeat_tuple((1, 2), 2)
    assert ours._list_with_default([None, 3], [5, 6, 7]) == [6, 3]
    for state in ({"module.a": 1, "module.b.c": 2, "d": 3}, {"a": 1}):
        mine, yours = dict(state), dict(state)
        ours.consume_prefix_in_state_dict_if_present(mine, "module.")
        theirs.consume_prefix_in_state_dict_if_present(yours, "module.")
        assert mine == yours
    wrapped = nn.DataParallel(nn.Sequential(nn.Linear(2, 2)))
    state, other = (
        wrapped.state_dict(),
        torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2))).state_dict(),
    )
    ours.consume_prefix_in_state_dict_if_present(state, "module.")
    theirs.consume_prefix_in_state_dict_if_present(other, "module.")
    assert list(state) == list(other) and dict(state._metadata) == dict(other._metadata)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions(torch, dims):
    rng = np.random.default_rng(dims)
    x, w = rng.normal(size=(2, 4, *[6] * dims)), rng.normal(size=(4, 2, *[3] * dims))
    options = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
    conv = getattr(torch.nn.functional, f"conv{dims}d")
    g = rng.normal(size=tuple(conv(torch.tensor(x), torch.tensor(w), **options).shape))
    for what, first, second in (("input", x.shape, w), ("weight", x, w.shape)):
        name = f"conv{dims}d_{what}"
        given = [tuple(v) if isinstance(v, tuple) else v for v in (first, second)]
        ours = [tw.tensor(v) if isinstance(v, np.ndarray) else v for v in (*given, g)]
        theirs = [torch.tensor(v) if isinstance(v, np.ndarray) else v for v in (*given, g)]
        made = getattr(nn.grad, name)(*ours, **options)
        close(made.numpy(), getattr(torch.nn.grad, name)(*theirs, **options).numpy())
    with pytest.raises(RuntimeError, match="expected a grad_output"):
        getattr(nn.grad, f"conv{dims}d_input")(x.shape, tw.tensor(w), tw.tensor(g[:1]), **options)
