"""Whole programs on CUDA devices: values, launches and errors, on a driver without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fake_cuda import FakeCuda, installed
from networks import train, train_transformer, values

import tilewright
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright.codegen.legalize import digits
from tilewright.runtime import devices

pytestmark = pytest.mark.triton


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed(devices=2) as driver:
        yield driver


def test_a_network_trains_as_on_the_cpu(fake: FakeCuda) -> None:
    """Convolutions, batch norm, dropout and Adam; from the third step on as a graph."""
    expected = train("cpu", 6)
    np.testing.assert_allclose(train("cuda", 6), expected, rtol=1e-5)
    assert fake.graph_launches == 3
    assert not devices.get("cuda:0").fallbacks


@pytest.mark.slow
def test_a_transformer_trains_as_on_the_cpu(fake: FakeCuda) -> None:
    """Batches come from the host, and each step has other numbers: a graph gets them all."""
    expected = train_transformer("cpu", 6)
    np.testing.assert_allclose(train_transformer("cuda", 6), expected, rtol=1e-4)
    assert fake.graph_launches >= 3
    assert not devices.get("cuda:0").fallbacks


def test_several_devices(fake: FakeCuda) -> None:
    x = tilewright.tensor(values(3, 4), device="cuda:0")
    y = x.to("cuda:1") * 2
    assert (x.device, y.device) == (tilewright.device("cuda:0"), tilewright.device("cuda", 1))
    z = y.to("cuda:0") + x
    np.testing.assert_allclose(z.cpu().numpy(), 3 * values(3, 4), rtol=1e-6)
    with pytest.raises(RuntimeError, match="at least two devices, cuda:1 and cuda:0!"):
        y + x
    with tilewright.cuda.device(1):
        assert tilewright.ones(3, device="cuda").device.index == 1
    assert tilewright.ones(3).cuda().device.index == 0
    with pytest.raises(RuntimeError, match="invalid device ordinal: cuda:2 of 2"):
        tilewright.ones(3, device="cuda:2")


def test_an_index_out_of_range_is_told_when_somebody_waits(fake: FakeCuda) -> None:
    x = tilewright.tensor(values(5, 2), device="cuda")
    wrong = tilewright.tensor([1, 7], device="cuda")
    y = x[wrong]
    with pytest.raises(IndexError, match=r"index 7 is out of bounds .* \(test_cuda_programs.py:"):
        tilewright.cuda.synchronize()
    del y
    np.testing.assert_array_equal(x[wrong[:1]].cpu().numpy(), values(5, 2)[[1]])


def test_blocking_launches_raise_in_place() -> None:
    with installed(blocking=True):
        x = tilewright.tensor(values(5, 2), device="cuda")
        y = x[tilewright.tensor([1, 7], device="cuda")]
        with pytest.raises(IndexError, match="index 7"):
            y.sum().item()
        with pytest.raises(IndexError, match="index 7"):
            y.cpu()
        assert x.sum().item() == pytest.approx(values(5, 2).sum(), rel=1e-5)


def test_a_batch_at_a_changing_place_is_one_plan(fake: FakeCuda) -> None:
    """Also where it begins at an address that vector loads can't take."""
    data = values(10, 3)
    x = tilewright.tensor(data, device="cuda")
    for start in range(6):
        total = (x[start : start + 4] * 2).sum(1)
        np.testing.assert_allclose(
            total.cpu().numpy(), 2 * data[start : start + 4].sum(1), rtol=1e-5
        )
    kernels = {launch.request.sha for launch in fake.launches}
    assert len(kernels) == 1 and fake.calls["cuModuleLoadData"] == 2


def test_a_recurrent_layer(fake: FakeCuda) -> None:
    """Its steps walk through rows of matrices, and become one graph."""
    tilewright.manual_seed(0)
    model = nn.LSTM(3, 5)
    x = tilewright.tensor(values(6, 2, 3))
    expected = model(x)[0].detach().numpy()
    model.cuda()
    x = x.cuda()
    with tilewright.no_grad():
        for _ in range(5):
            np.testing.assert_allclose(model(x)[0].cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert fake.graph_launches == 2


def test_mixed_precision(fake: FakeCuda) -> None:
    x = tilewright.tensor(values(4, 8), device="cuda")
    weight = tilewright.tensor(values(3, 8, seed=1), device="cuda", requires_grad=True)
    scaler = tilewright.amp.GradScaler("cuda")
    with tilewright.autocast("cuda", dtype=tilewright.bfloat16):
        y = F.linear(x, weight)
        loss = (y.float() ** 2).sum()
    assert y.dtype is tilewright.bfloat16
    scaler.scale(loss).backward()
    expected = values(4, 8) @ values(3, 8, seed=1).T
    np.testing.assert_allclose(y.float().detach().cpu().numpy(), expected, rtol=0.03, atol=0.03)
    np.testing.assert_allclose(
        weight.grad.cpu().numpy() / scaler.get_scale(),
        2 * expected.T @ values(4, 8),
        rtol=0.05,
        atol=0.1,
    )


def test_tf32_by_pytorchs_switches(fake: FakeCuda) -> None:
    """Off by default; both names are one switch, which plans that are there already obey too."""
    a, b = (tilewright.randn(32, 32, device="cuda") for _ in range(2))
    matmul = tilewright.backends.cuda.matmul

    def rounds() -> bool:
        before = len(fake.launches)
        (a @ b).tolist()
        return any('"tf32"' in launch.request.body for launch in fake.launches[before:])

    try:
        assert not matmul.allow_tf32 and not rounds()
        matmul.allow_tf32 = True
        assert tilewright.get_float32_matmul_precision() == "high" and rounds()
        tilewright.set_float32_matmul_precision("highest")
        assert not matmul.allow_tf32 and not rounds()
    finally:
        matmul.allow_tf32 = False
    with pytest.warns(UserWarning, match="'highest', 'high', or 'medium'"):
        tilewright.set_float32_matmul_precision("low")


def test_large_float32_products_are_made_of_digits(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digits, "_GAIN", 0.0)  # and so are small ones
    a, b = values(130, 72), values(72, 100, seed=1)
    product = tilewright.tensor(a, device="cuda") @ tilewright.tensor(b, device="cuda")
    np.testing.assert_allclose(product.cpu().numpy(), a @ b, rtol=2e-6, atol=2e-5)
    assert any("tw_digit" in launch.request.body for launch in fake.launches)
    device = devices.get("cuda:0")
    monkeypatch.setenv("TW_DIGITS", "0")
    with monkeypatch.context() as patch:
        patch.setattr(devices, "_devices", {})
        assert device.target.digits and not devices.get("cuda:0").target.digits


def test_convolutions_are_rounded_unless_they_must_not(fake: FakeCuda) -> None:
    """PyTorch's default for float32, apart from that of products."""
    x, w = (tilewright.randn(*s, device="cuda") for s in ((2, 16, 6, 6), (16, 16, 3, 3)))
    cudnn = tilewright.backends.cudnn

    def rounds() -> bool:
        before = len(fake.launches)
        tilewright.nn.functional.conv2d(x, w).tolist()
        return any('"tf32"' in launch.request.body for launch in fake.launches[before:])

    assert cudnn.allow_tf32 and rounds()
    with cudnn.flags(allow_tf32=False):
        assert not cudnn.allow_tf32 and not rounds()
    assert cudnn.allow_tf32 and rounds()


def test_numbers_on_the_host_meet_tensors_on_a_device(fake: FakeCuda) -> None:
    """A tensor without axes is where the others are; a larger one is not moved by itself."""
    x = tilewright.tensor(values(2, 3), device="cuda", requires_grad=True)
    number = tilewright.tensor(2.0, requires_grad=True)
    y = x * number + tilewright.where(x > 0, x, tilewright.tensor(0.0))
    assert y.is_cuda
    np.testing.assert_allclose(
        y.detach().cpu().numpy(), 2 * values(2, 3) + np.maximum(values(2, 3), 0), rtol=1e-6
    )
    y.sum().backward()
    assert not number.grad.is_cuda
    assert number.grad.item() == pytest.approx(values(2, 3).sum(), rel=1e-5)
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu!"):
        x + tilewright.ones(3)


def test_values_are_written_from_another_device(fake: FakeCuda) -> None:
    x = tilewright.zeros(3, 2, device="cuda")
    x[1] = tilewright.tensor([1.0, 2.0])
    x[2].copy_(tilewright.tensor([3.0, 4.0]))
    assert x.is_cuda and x.tolist() == [[0, 0], [1, 2], [3, 4]]
    model = nn.Linear(2, 2).cuda()
    state = {"weight": tilewright.ones(2, 2), "bias": tilewright.zeros(2)}
    model.load_state_dict(state)
    assert model.weight.is_cuda and model.weight.tolist() == [[1, 1], [1, 1]]


def test_a_batch_is_copied_once(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the host straight to the device, unless it is asked for on the host too."""
    copies = []
    host = devices.get("cpu")
    whole = host.copied
    monkeypatch.setattr(host, "copied", lambda *args: copies.append(1) or whole(*args))
    x = tilewright.tensor(values(3, 2))
    assert (x.cuda() * 2).sum().item() == pytest.approx(2 * values(3, 2).sum(), rel=1e-5)
    assert not copies
    y, z = x.cuda() + 1, x.cuda().cpu()
    z.add_(1)
    np.testing.assert_array_equal(y.cpu().numpy(), z.numpy())
    np.testing.assert_array_equal(x.numpy(), values(3, 2))
