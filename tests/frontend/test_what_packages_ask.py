"""What packages ask of torch beside its documentation, compared with PyTorch."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import tilewright as tw


class Named:
    """A second base class with attributes of its own."""

    def __init__(self) -> None:
        self._meta = {"a": 1}


def test_a_subclass_with_a_second_base_keeps_its_state_apart() -> None:
    class Both(Named, tw.Tensor):
        pass

    x = tw.arange(3.0).as_subclass(Both)
    x.note = "here"
    y = x > 1
    y.__dict__ = x.__dict__.copy()
    assert x.__dict__ == {"note": "here"} and y.dtype is tw.bool and y.note == "here"
    Named.__init__(x)
    assert x._meta == {"a": 1} and x.shape == (3,) and (x + 1).tolist() == [1, 2, 3]


def test_numpy_without_gradients(torch) -> None:
    for m in (tw, torch):
        x = m.ones(2, requires_grad=True)
        with m.no_grad():
            assert x.numpy().tolist() == np.asarray(x).tolist() == [1, 1]
        with pytest.raises(RuntimeError, match="requires grad"):
            x.numpy()


def test_parts_of_sizes_are_sizes(torch) -> None:
    for m in (tw, torch):
        size = m.zeros(2, 3, 4).shape
        for part in (size[1:], size[:-1] + size, size * 2, size[:0]):
            assert isinstance(part, m.Size)
        assert size[-2:].numel() == 12 and type(size[0]) is int and size[:0].numel() == 1


@pytest.mark.parametrize("length", [1, 2, 5, 8])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(torch, length: int, reverse: bool) -> None:
    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    given = np.random.RandomState(0).standard_normal((2, 2, length, 3))
    made = []
    for m in (tw, torch):
        path = f"{m.__name__}._higher_order_ops.associative_scan"
        scan = importlib.import_module(path).associative_scan
        xs = tuple(m.tensor(x) for x in given)
        found = scan(combine, xs, dim=1, reverse=reverse, combine_mode="generic")
        made.append([x.numpy() for x in found])
    for ours, theirs in zip(*made):
        assert np.abs(ours - theirs).max() < 1e-12


def test_kernels_for_autocast_come_first_and_can_be_left_out() -> None:
    library = tw.library.Library("asked", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    keys = tw._C.DispatchKeySet(tw._C.DispatchKey.AutocastCPU)

    def cast(x):
        with tw._C._ExcludeDispatchKeyGuard(keys):
            return tw.ops.asked.twice(x.double())

    library.impl("twice", cast, "AutocastCPU")
    x = tw.ones(2)
    assert tw.ops.asked.twice(x).dtype is tw.float32
    with tw.autocast("cpu", dtype=tw.bfloat16):
        assert tw.ops.asked.twice(x).dtype is tw.float64
        assert (x[:, None] @ x[None]).dtype is tw.bfloat16


def test_modules_of_devices_and_names_of_printing() -> None:
    assert tw.get_device_module("cpu") is tw.cpu and tw.get_device_module("cuda") is tw.cuda
    with pytest.raises(RuntimeError, match=r"torch\.meta"):
        tw.get_device_module("meta")
    printing = importlib.import_module("tilewright._tensor_str")
    assert printing._tensor_str(tw.arange(3), 0) == "[0, 1, 2]"
    assert printing._add_suffixes("x([1]", ["n=2"], 2) == "x([1], n=2)"
    assert not importlib.import_module("tilewright._subclasses.fake_tensor").is_fake(tw.ones(1))
    for name in ("rpc", "optim", "device_mesh"):
        assert importlib.import_module(f"tilewright.distributed.{name}") is getattr(
            tw.distributed, name
        )


def test_names_of_the_compiled_part_that_packages_mention(torch) -> None:
    for name in ("Graph", "Node", "Value", "ScriptObject"):  # in annotations and isinstance
        assert isinstance(getattr(torch._C, name), type)
        assert not isinstance(tw.ones(1), getattr(tw._C, name))
    assert tw._C._get_default_device() == torch._C._get_default_device()
    assert tw._C._get_accelerator().type == torch._C._get_accelerator().type
