"""Programs on AMD's GPUs: the runtime of CUDA devices over a fake libamdhip64."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from fake_cuda import installed
from fake_hip import FakeHip, FakeHip950, compiled

import tilewright as tw
import tilewright.nn as nn
import tilewright.optim
from tilewright.runtime import devices
from tilewright.runtime.cuda import driver
from tilewright.runtime.driver import CudaError

pytestmark = pytest.mark.triton


@pytest.fixture
def fake() -> Iterator[FakeHip]:
    with installed(library=FakeHip) as library:
        assert isinstance(library, FakeHip)
        yield library


def steps(device: str, count: int) -> list[float]:
    """Losses of a classifier that is trained on `device`."""
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
    with tw.no_grad():
        for p in model.parameters():
            p.copy_(tw.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) / 4))
    model.to(device)
    x = tw.from_numpy(rng.standard_normal((8, 12)).astype(np.float32)).to(device)
    y = tw.from_numpy(rng.integers(0, 3, 8)).to(device)
    optimizer = tw.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("library", [FakeHip, FakeHip950])
def test_training_with_kernels_compiled_for_this_chip(library: type[FakeHip]) -> None:
    """Every kernel compiles, takes the parameters that a launch passes, and gives the CPU's values;
    repeated steps are launches of a graph."""
    with installed(library=library, compiler=compiled, multiprocessors=304) as fake:
        found = steps("cuda", 6)
        assert devices.get("cuda:0").target.name == library.chip
        assert fake.graph_launches > 0
        assert {launch.request.target for launch in fake.launches} == {library.chip}
        assert all(launch.threads[0] == 64 * launch.request.num_warps for launch in fake.launches)
    np.testing.assert_allclose(found, steps("cpu", 6), rtol=2e-5)


def test_cuda_means_hip(fake: FakeHip) -> None:
    assert tw.cuda.is_available() and tw.ones(2, device="cuda").is_cuda
    assert tw.version.hip == tw.version.rocm == "7.1.25424" and tw.version.cuda is None
    found = tw.cuda.get_device_properties()
    assert found.gcnArchName == "gfx942" and found.warp_size == 64
    assert tw.cuda.get_device_capability() == (9, 4) and tw.cuda.get_arch_list() == ["gfx942"]
    assert tw.cuda.is_tf32_supported() and tw.cuda.is_bf16_supported()


def test_without_hip_there_is_no_version() -> None:
    with installed():
        assert tw.version.cuda == "13.0" and tw.version.hip is tw.version.rocm is None
        assert tw.cuda.get_device_properties().gcnArchName == "sm_90"


def test_streams_copies_and_events(fake: FakeHip) -> None:
    """Work of two streams, pinned copies, and the time between events."""
    x = tw.arange(1000, dtype=tw.float32).pin_memory().to("cuda", non_blocking=True)
    side = tw.cuda.Stream()
    begin, end = (tw.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    with tw.cuda.stream(side):
        y = (x * 2).sum()
    tw.cuda.current_stream().wait_stream(side)
    end.record()
    assert y.item() == 999000.0
    tw.cuda.synchronize()
    assert begin.elapsed_time(end) >= 0
    assert fake.calls["cuStreamWaitEvent"] and fake.calls["cuLaunchKernel"]


def test_two_cards() -> None:
    with installed(2, library=FakeHip) as fake:
        x = tw.arange(6.0, device="cuda:0")
        y = x.to("cuda:1") + 1
        assert y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        assert fake.opened == {(0, 1)} and fake.calls["cuMemcpyPeerAsync"] == 1
        assert tw.cuda.can_device_access_peer(0, 1)


def test_errors_name_what_hip_calls_them(fake: FakeHip) -> None:
    with pytest.raises(CudaError, match=r"HIP error.*hipErrorInvalidValue.*from hipFreeAsync"):
        tw.ones(1, device="cuda").sum().item()
        driver.get().cuMemFreeAsync(12345, None)
    with pytest.raises(CudaError, match="HIP_VISIBLE_DEVICES"):
        driver.get().number("cuDeviceGet", 7)
    fake.refused.add("cuLaunchKernel")
    with pytest.raises(CudaError, match=r"couldn't launch a kernel.*from hipModuleLaunchKernel"):
        (tw.ones(3, device="cuda") * 3).tolist()
    fake.refused.clear()


def test_a_machine_with_hip_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """libcuda is looked for first, then libamdhip64."""
    asked = []
    with installed(library=FakeHip) as fake:

        def load(name: str) -> FakeHip:
            asked.append(name)
            if "cuda" in name:
                raise OSError(name)
            return fake

        monkeypatch.setattr(ctypes, "CDLL", load)
        driver.use(None)
        assert driver.get().name == "HIP" and driver.count() == 1
        assert asked == ["libcuda.so.1", "libamdhip64.so"]


def test_a_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise OSError(name)

    driver.use(None)
    monkeypatch.setattr(ctypes, "CDLL", load)
    try:
        assert driver.reason_against() == (
            "neither the NVIDIA driver's libcuda.so.1 nor the AMD driver's libamdhip64.so was found"
        )
    finally:
        driver.use(None)
