"""The meta device: shapes without memory."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import nn


def test_calls_give_shapes_and_read_as_errors() -> None:
    x = tw.randn(3, 4, device="meta")
    y = (x @ x.T).softmax(-1)[:, None].expand(3, 2, 3)
    assert y.shape == (3, 2, 3) and y.is_meta and y.device == tw.device("meta")
    assert repr(x) == "tensor(..., device='meta', size=(3, 4))"
    assert (x + tw.tensor(2.0)).is_meta and tw.cat([x, x]).shape == (6, 4)
    x += 1
    x[0] = 3
    x.copy_(tw.ones(3, 4))
    assert tw.zeros_like(x).is_meta and tw.empty_like(x, device="cpu").tolist() is not None
    for read in (x.tolist, x.cpu):
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
            read()
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        bool(x[0, 0] > 0)
    with pytest.raises(TypeError, match="can't convert meta device type tensor"):
        x.numpy()
    with pytest.raises(RuntimeError, match="meta and cpu"):
        x + tw.ones(3, 4)


def test_copies_and_pickles() -> None:
    x = tw.randn(3, 4, device="meta")
    part = x[1:]
    model = nn.Linear(3, 4, device="meta")
    model.shared = model.weight
    for copied in (copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t))):
        assert copied(x).is_meta and copied(x).shape == (3, 4)
        both = copied([x, part])
        assert [(t.shape, t.stride(), t.is_meta) for t in both] == [
            ((3, 4), (4, 1), True),
            ((2, 4), (4, 1), True),
        ]
        again = copied(model)
        assert isinstance(again.weight, nn.Parameter) and again.weight.is_meta
        assert again.weight.requires_grad and again.shared is again.weight
    filled = copy.deepcopy(model).to_empty(device="cpu")
    assert filled.weight.tolist() is not None and model.weight.is_meta


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_nothing_is_allocated(run_python) -> None:
    code = (
        "import pathlib, tilewright as tw\n"
        "with tw.device('meta'):\n"
        "    model = tw.nn.Linear(200_000, 200_000)\n"
        "    out = model(tw.ones(8, 200_000))\n"
        "out.sum().backward()\n"
        "tw.optim.Adam(model.parameters()).step()\n"
        "tw.ones(1).item()\n"
        "assert model.weight.grad.shape == (200_000, 200_000) and model.weight.data_ptr() == 0\n"
        "assert model.weight.untyped_storage().nbytes() == 160_000_000_000\n"
        "peak = pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]\n"
        "print(int(peak) < 1_000_000)\n"  # KB
    )
    assert run_python(code) == "True\n"


def test_values_beside_are_computed() -> None:
    absent, there = tw.ones(2, device="meta") * 2, tw.ones(2, requires_grad=True) * 3
    assert there.tolist() == [3.0, 3.0] and absent.shape == (2,)
    (there * there).sum().backward()
    other = tw.ones(1, device="meta") + 1
    with pytest.raises(IndexError):
        tw.ones(2)[tw.tensor(5)].item()
    assert (other + 1).is_meta


def test_modules_get_their_values_later() -> None:
    state = {"weight": tw.ones(2, 3), "bias": tw.zeros(2)}
    module = nn.Linear(3, 2, device="meta").to_empty(device="cpu")
    module.load_state_dict(state)
    assigned = nn.Linear(3, 2, device="meta")
    assigned.load_state_dict(state, assign=True)
    assert module(tw.ones(3)).tolist() == assigned(tw.ones(3)).tolist() == [3.0, 3.0]
    moved = nn.Linear(3, 2).to("meta")
    assert moved.weight.is_meta and moved.weight.requires_grad
    with pytest.raises(NotImplementedError, match="to_empty"):
        moved.to("cpu")


@pytest.mark.parametrize("pair", ["float32 uint8", "uint8 float64", "int16 int64", "bfloat16 int8"])
def test_bytes_are_seen_as_elements_of_another_size(torch: Any, pair: str) -> None:
    first, second = pair.split()
    raw = np.arange(48, dtype=np.uint8).reshape(3, 16)

    def seen(lib: Any) -> Any:
        return lib.tensor(raw).view(getattr(lib, first)).view(getattr(lib, second))

    ours, theirs = seen(tw), seen(torch)
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert ours.view(tw.uint8).tolist() == raw.tolist()
    assert tw.empty(2, 4, device="meta").view(tw.uint8).shape == (2, 16)
    for lib in (tw, torch):
        with pytest.raises(RuntimeError, match=r"self.size\(-1\) must be divisible by 4"):
            lib.zeros(3, dtype=lib.uint8).view(lib.float32)
        with pytest.raises(RuntimeError, match=r"self.dim\(\) cannot be 0"):
            lib.tensor(1.0).view(lib.uint8)


def test_what_is_loaded_to_meta_is_lost_with_a_warning(torch: Any) -> None:
    for m in (tw, torch):
        with m.device("meta"):
            layer = m.nn.Linear(2, 2, bias=False)
        with pytest.warns(UserWarning, match="for weight: copying from a non-meta parameter"):
            layer.load_state_dict(m.nn.Linear(2, 2, bias=False).state_dict())
        assert layer.weight.is_meta
