"""FakeTensorMode: shapes, dtypes and devices of tensors without values, beside PyTorch's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw


def fakes(m: Any) -> Any:
    return importlib.import_module(f"{m.__name__}._subclasses.fake_tensor")


def model(m: Any) -> list[Any]:
    n = m.nn
    net = n.Sequential(
        n.Conv2d(3, 4, 3), n.BatchNorm2d(4), n.ReLU(), n.AdaptiveAvgPool2d(1), n.Flatten(),
        n.Linear(4, 2),
    )  # fmt: skip
    weight, optimizer = net[0].weight, m.optim.AdamW(net.parameters())
    told = [weight, isinstance(weight, n.Parameter), isinstance(weight, fakes(m).FakeTensor)]
    for _ in range(2):
        optimizer.zero_grad()
        loss = n.functional.cross_entropy(net(m.randn(5, 3, 8, 8)), m.randint(2, (5,)))
        loss.backward()
        optimizer.step()
    return [*told, loss.shape, loss.device, weight.grad, net.state_dict()["0.weight"]]


def calls(m: Any) -> list[Any]:
    x = m.ones(2, 3)
    x.add_(1), x.__setitem__(0, 3.0)
    y = m.ones(2, 3, requires_grad=True)
    (y * x).sum().backward()
    return [
        x, x.T, x[0], x[:, None], x.expand(4, 2, 3), m.stack([x, x]).sum((0, 1)), x @ x.mT,
        m.einsum("ij,kj->ik", x, x), x.to(m.int32), x.new_zeros(4), x.data, x > 0, x.half(),
        *x.split(1), *x.topk(2), m.where(x > 0, x, 0), y, y.grad, y.is_leaf, x.stride(), x.dtype,
        m.arange(3), m.tensor([1, 2]), m.full((2,), 1.0), m.randperm(4), m.eye(2), x.numel(),
        x.element_size(), x.untyped_storage().nbytes(), m.fft.rfft(x), m.nn.Parameter(x), x.is_meta,
    ]  # fmt: skip


def devices(m: Any) -> list[Any]:
    x = m.randn(4, 2, device="cuda")
    y = (x * 2).sum(0)
    return [
        x, y, y.device, m.zeros_like(y).device, y.cpu(), m.ones(2).device, x.to("cpu", m.float64),
        m.ones(1).to(x).device, (x * m.tensor(2.0)).device, x.is_cuda, y.cpu().is_cuda,
    ]  # fmt: skip


def large(m: Any) -> list[Any]:
    layer = m.nn.Linear(4096, 1 << 30)
    sizes = sum(p.numel() * p.element_size() for p in layer.parameters())
    return [sizes, layer(m.empty(1, 4096)).shape, m.nn.LSTM(3, 4)(m.ones(5, 2, 3))[0].shape]


@pytest.mark.parametrize("program", [model, calls, devices, large])
def test_what_tensors_tell(torch: Any, program: Callable[[Any], list[Any]]) -> None:
    def run(m: Any) -> list[str]:
        with fakes(m).FakeTensorMode():
            return [repr(each).replace("tilewright", "torch") for each in program(m)]

    ours, theirs = run(tw), run(torch)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other


REFUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "item": lambda m, x, real: x.sum().item(),
    "branch": lambda m, x, real: 1 if x[0] else 2,
    "nonzero": lambda m, x, real: m.nonzero(x),
    "mask": lambda m, x, real: x[x > 0],
    "numpy": lambda m, x, real: x.numpy(),
    "real": lambda m, x, real: x + real,
    "sizes": lambda m, x, real: x @ m.ones(4),
    "devices": lambda m, x, real: x + m.ones(3, device="cuda"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_values_is_an_error(torch: Any, name: str) -> None:
    def run(m: Any) -> list[str]:
        real = m.ones(3)
        with fakes(m).FakeTensorMode():
            x = m.ones(3)
            with pytest.raises(Exception) as caught:
                REFUSED[name](m, x, real)
        text = str(caught.value).split(". Found in")[0].split(", at ")[0].rstrip(".")
        known = name not in ("sizes", "mask")
        return [caught.type.__name__, text if known else ""]

    assert run(tw) == run(torch)


def test_modes_and_their_tensors(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        home, guards = fakes(m), importlib.import_module(f"{m.__name__}._guards")
        mode = home.FakeTensorMode(allow_non_fake_inputs=True)
        real = m.ones(2, 3)[:, 1:]
        x = mode.from_tensor(real)
        told = [repr(x), x.stride(), repr(x * 2), (x * 2).fake_mode is mode, home.is_fake(x)]
        told += [guards.detect_fake_mode([real, x]) is mode, home.is_fake(real)]
        with mode:
            told += [repr(m.ones(2, 1) + real), guards.active_fake_mode() is mode]
            with home.unset_fake_temporarily() as outer:
                told += [m.ones(1).item(), outer is mode]
        told += [guards.active_fake_mode() is None, m.ones(1).item()]
        return told

    assert run(tw) == run(torch)


def test_a_module_moves() -> None:
    """Without a driver, too: PyTorch needs its own build for that."""
    with fakes(tw).FakeTensorMode():
        layer = tw.nn.Linear(2, 2).to("cuda").half()
        y = layer(tw.ones(1, 2, device="cuda", dtype=tw.half))
    assert layer.weight.device == y.device == tw.device("cuda:0")
    assert layer.weight.dtype is tw.half
