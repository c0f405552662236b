"""Kernels compiled to final binaries for GPUs that are not here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import triton_kernels as tk

from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.target import CUDA
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.runtime import modules
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import TARGETS, Compiled, compile_many, compile_offline, request

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, str], Compiled]:
    """Every representative kernel for every target, by (kernel, target)."""
    keys = [(name, target) for target in TARGETS for name in tk.REPRESENTATIVE]
    requests = []
    for name, target in keys:
        kernel = tk.REPRESENTATIVE[name]()
        requests.append(request(emit(kernel, default_schedule(kernel, CUDA)), target))
    return dict(zip(keys, compile_many(requests, processes=2)))


@pytest.mark.parametrize("name", tk.REPRESENTATIVE)
@pytest.mark.parametrize("target", TARGETS)
def test_compiles(compiled: dict[tuple[str, str], Compiled], name: str, target: str) -> None:
    found = compiled[name, target]
    assert found.binary[:4] == b"\x7fELF"
    assert 0 < found.registers <= 512
    assert found.target == target and found.num_warps >= 1
    assert found.spills <= (64 if name == "conv" else 0), f"{found.spills} bytes of spills"


@pytest.mark.parametrize("name", ["elementwise", "softmax", "columns", "gather", "bundle"])
def test_vector_loads(compiled: dict[tuple[str, str], Compiled], name: str) -> None:
    """Sizes that are multiples of 16 are loaded 128 bits at a time."""
    assert "ld.global.v4.b32" in compiled[name, "sm_90"].asm["ptx"]


def test_sizes_that_are_no_multiples_of_16() -> None:
    kernel = tk.elementwise("exp", 1001, [dt.float32], dt.float32)
    assert "ld.global.v4" not in compile_offline(kernel, "sm_90").asm["ptx"]


@pytest.mark.parametrize(
    "target, mark",
    [
        ("sm_80", "mma.sync"),
        ("sm_90", "wgmma.mma_async"),
        ("sm_100", "tcgen05.mma"),
        ("gfx942", "mfma"),
    ],
)
def test_tensor_cores(compiled: dict[tuple[str, str], Compiled], target: str, mark: str) -> None:
    asm = compiled["matmul_bf16", target].asm
    assert mark in asm.get("ptx", "") + asm.get("amdgcn", "")


def test_a_schedule_of_ones_own() -> None:
    schedule = Schedule(block_m=128, block_n=128, block_k=64, num_warps=8, num_stages=3)
    found = compile_offline(tk.matmul(4096, 4096, 4096, dt.bfloat16), "sm_90", schedule)
    assert "wgmma.mma_async" in found.asm["ptx"]
    assert found.shared == 3 * (128 + 128) * 64 * 2


def test_float32_is_multiplied_in_full() -> None:
    found = compile_offline(tk.matmul(256, 256, 256), "sm_90")
    assert "tf32" not in found.asm["ptx"]


def test_equal_structure_is_compiled_once() -> None:
    """Other sizes with the same divisibility ask for the same compilation."""
    schedule = Schedule(block=1, block_r=1024)
    one, other = (request(emit(tk.softmax(n, 1008), schedule), "sm_90") for n in (32, 64))
    assert one == other


def test_compiling_after_interpreting() -> None:
    y, x = np.zeros(5, np.float32), np.ones(5, np.float32)
    kernel = tk.elementwise("tanh", 5, [dt.float32], dt.float32)
    device = InterpretDevice()
    device.compile(kernel)([y, x], [])
    assert compile_offline(kernel, "sm_90").binary
    device.compile(kernel)([y, x], [])
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-6)


def test_failures_are_told() -> None:
    kernel = tk.elementwise("tanh", 5, [dt.float32], dt.float32)
    with pytest.raises(ValueError, match="sm_90"):
        compile_offline(kernel, "h100")
    good = request(emit(kernel, Schedule()), "sm_90")
    bad = request(emit(kernel, Schedule(block=1000)), "sm_90")
    with pytest.raises(RuntimeError, match="power of 2"):
        compile_many([good, bad], processes=2)


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TW_CACHE", "0")
    modules.load_source.cache_clear()
    emitted = emit(tk.elementwise("cos", 7, [dt.float32], dt.float32), Schedule())
    module = modules.load_source(emitted.sha, emitted.body)
    assert module.__file__ is not None and Path(module.__file__).exists()
    modules.load_source.cache_clear()
