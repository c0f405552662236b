"""What scripts ask of torch.cuda, torch.backends and torch.accelerator beside computing."""

from __future__ import annotations

from typing import Any

import pytest
from fake_cuda import installed

import tilewright as tw
from tilewright import cuda

pytestmark = pytest.mark.triton


def test_without_a_gpu() -> None:
    assert not tw.accelerator.is_available() and tw.accelerator.current_accelerator() is None
    assert tw.version.cuda is None and tw.version.hip is None
    assert cuda.get_rng_state_all() == [] and not cuda.is_tf32_supported()
    cuda.set_rng_state_all([])


def test_devices() -> None:
    with installed(devices=2):
        assert tw.version.cuda == "13.0" and cuda.is_tf32_supported()
        assert cuda.can_device_access_peer(0, 1) and not cuda.can_device_access_peer(1, 1)
        assert tw.get_device_module("cuda:1") is cuda
        assert tw.accelerator.current_accelerator() == tw.device("cuda")
        with tw.accelerator.device_index(1):
            assert tw.accelerator.current_device_index() == 1
        assert tw.accelerator.current_device_index() == 0
        x = tw.ones(2, device="cuda:1")
        assert x.type() == "torch.cuda.FloatTensor"
        assert tw.zeros(2, dtype=tw.int64).type_as(x).device == x.device
    assert tw.get_device_module("cpu") is tw.cpu
    with pytest.raises(RuntimeError, match="does not have a corresponding module"):
        tw.get_device_module("meta")


def test_memory() -> None:
    with installed():
        x = tw.ones(1000, device="cuda")
        assert cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == 4096
        assert x.sum().item() == 1000
        assert cuda.device_memory_used() > 0 and cuda.memory_cached() == cuda.memory_reserved()
        assert cuda.get_per_process_memory_fraction() == 1
        assert cuda.get_allocator_backend() == "cudaMallocAsync"
        assert cuda.memory_stats()["allocation.all.allocated"] > 0
        cuda.reset_accumulated_memory_stats()
        assert cuda.memory_stats()["allocation.all.allocated"] == 0
        assert cuda.memory_stats()["num_ooms"] == 0
        cuda.set_per_process_memory_fraction(0.5)
        assert cuda.get_per_process_memory_fraction() == 0.5


def test_random_numbers() -> None:
    with installed(devices=2):
        states = cuda.get_rng_state_all()
        one = tw.rand(3, device="cuda").tolist()
        cuda.set_rng_state_all(states)
        assert cuda.default_generators == (tw.default_generator,) * 2
        assert len(states) == 2 and tw.rand(3, device="cuda").tolist() == one


def test_ranges() -> None:
    with cuda.nvtx.range("step {}", 1):
        assert cuda.nvtx.range_push("inner") == 1
        cuda.nvtx.mark("here")
        assert cuda.nvtx.range_pop() == 1
    assert cuda.nvtx.range_pop() == 0
    cuda.nvtx.range_end(cuda.nvtx.range_start("elsewhere"))


def test_switches() -> None:
    cudnn = tw.backends.cudnn
    assert cudnn.enabled and not cudnn.is_available() and cudnn.version() is None
    with cudnn.flags(enabled=False, benchmark=True):
        assert cudnn.benchmark and not cudnn.enabled
    assert cudnn.enabled and not cudnn.benchmark
    assert not tw.backends.mps.is_available() and tw.backends.cuda.is_built()
    matmul: Any = tw.backends.cuda.matmul
    matmul.fp32_precision = "tf32"
    assert matmul.allow_tf32 and tw.get_float32_matmul_precision() == "high"
    matmul.fp32_precision = "ieee"
    assert not matmul.allow_tf32
    with pytest.raises(RuntimeError, match="ieee"):
        matmul.fp32_precision = "bf16"


def test_determinism() -> None:
    tw.use_deterministic_algorithms(True, warn_only=True)
    assert tw.are_deterministic_algorithms_enabled()
    assert tw.is_deterministic_algorithms_warn_only_enabled()
    tw.set_deterministic_debug_mode("error")
    assert tw.get_deterministic_debug_mode() == 2
    with pytest.raises(RuntimeError, match="debug_mode"):
        tw.set_deterministic_debug_mode("never")
    tw.use_deterministic_algorithms(False)
    assert not tw.are_deterministic_algorithms_enabled()
