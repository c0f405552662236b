"""Matrices that kernels read through tensor maps: made by the host, once for each address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import triton_kernels as tk
from fake_cuda import FakeCuda, installed
from fake_kernels import FAULT

from tilewright.codegen.schedule import Schedule
from tilewright.ir import dtype as dt
from tilewright.runtime.cuda import matrices
from tilewright.runtime.cuda.device import Cuda
from tilewright.runtime.cuda.image import Image
from tilewright.runtime.cuda.launch import Launcher
from tilewright.runtime.cuda.memory import Buffer
from tilewright.runtime.offline import TensorMap, compile_offline

pytestmark = pytest.mark.triton
SCHEDULE = Schedule(block_m=32, block_n=16, block_k=16, group_m=2, persistent=4)
M, N, K = 70, 48, 40
KERNEL = tk.matmul(M, N, K, dt.float16)


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed() as driver:
        yield driver


COPIED = replace(SCHEDULE, descriptors=True)
PARTS = replace(COPIED, block_n=32, parts=2)
APART = replace(COPIED, specialized=True)


def compiled(schedule: Schedule = SCHEDULE) -> tuple[Cuda, Launcher]:
    device = Cuda(0, lambda kernel, target: schedule)
    launcher = device.compile(KERNEL)
    assert isinstance(launcher, Launcher)
    return device, launcher


def operands(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"a": (M, K), "b": (K, N)}
    return [rng.standard_normal(shapes[b.name]).astype(np.float16) for b in KERNEL.inputs]


def check(device: Cuda, out: Buffer, *arrays: np.ndarray) -> None:
    a, b = (arrays[[x.name for x in KERNEL.inputs].index(name)] for name in "ab")
    expected = a.astype(np.float32) @ b.astype(np.float32)
    found = device.to_numpy(out).reshape(M, N).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-2)


def test_a_map_for_each_address(fake: FakeCuda) -> None:
    device, launcher = compiled()
    out = device.empty((M * N,), dt.float16)
    for round in range(2):
        kept = [[device.from_numpy(x.reshape(-1)) for x in operands(seed)] for seed in range(2)]
        for _ in range(3):
            for seed, buffers in enumerate(kept):
                launcher([out, *buffers], [])
                check(device, out, *operands(seed))
        assert fake.calls["cuTensorMapEncodeTiled"] <= 4 * (round + 1)


@pytest.mark.parametrize("schedule", [COPIED, PARTS, APART], ids=["tiles", "parts", "apart"])
def test_results_are_copied_by_maps(fake: FakeCuda, schedule: Schedule) -> None:
    """Results have maps, too; tiles that reach over the end store nothing there."""
    device, launcher = compiled(schedule)
    assert ".store([first_m" in launcher.emitted.body and "tl.store" not in launcher.emitted.body
    kept = [device.from_numpy(np.full(M * N + 64, 7, np.float16)) for _ in range(2)]
    for seed, out in enumerate((*kept, kept[0])):
        launcher([out, *(device.from_numpy(x.reshape(-1)) for x in operands(seed))], [])
        check(device, device.part(out, 0, (M * N,)), *operands(seed))
        assert (device.to_numpy(out)[M * N :] == 7).all()


def test_boxes_of_an_image(fake: FakeCuda) -> None:
    """Maps of four dimensions: hardware reads zeros around an image, and stores nothing there."""
    kernel = tk.conv(2, 16, 32, 7, dtype=dt.float16, last=True)
    schedule = Schedule(block_m=32, block_n=16, block_k=16, box=(1, 4, 8))
    launcher = Cuda(0, lambda *_: schedule).compile(kernel)
    assert isinstance(launcher, Launcher)
    device, size = launcher.device, kernel.outputs[0].size
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in ((2, 7, 7, 16), (32, 3, 3, 16)))
    held = {a.size: device.from_numpy(a.reshape(-1)) for a in (x, w)}
    out = device.from_numpy(np.full(size + 64, 7, np.float16))
    launcher([out, *(held[b.size] for b in kernel.inputs)], [])
    found = device.to_numpy(out)
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    wanted = np.einsum("nhwcij,oijc->nhwo", windows, w.astype(np.float32))
    close = found[:size].astype(np.float32).reshape(wanted.shape)
    np.testing.assert_allclose(close, wanted, rtol=2e-3, atol=2e-2)
    assert (found[size:] == 7).all() and fake.calls["cuTensorMapEncodeTiled"] == 3


def test_memory_at_any_address_is_read_without(fake: FakeCuda) -> None:
    device, launcher = compiled()
    out = device.empty((M * N,), dt.float16)
    first, second = operands(0)
    shifted = device.from_numpy(np.concatenate([[np.float16(7)], first.reshape(-1)]))
    part = device.part(shifted, 1, (first.size,))
    launcher([out, part, device.from_numpy(second.reshape(-1))], [])
    check(device, out, first, second)
    assert "cuTensorMapEncodeTiled" not in fake.calls


def test_matrices_the_driver_makes_no_maps_of_are_read_without(fake: FakeCuda) -> None:
    device, launcher = compiled()
    out = device.empty((M * N,), dt.float16)
    fake.refused.add("cuTensorMapEncodeTiled")
    for seed in range(2):
        launcher([out, *(device.from_numpy(x.reshape(-1)) for x in operands(seed))], [])
        check(device, out, *operands(seed))
    assert fake.calls["cuTensorMapEncodeTiled"] == 1, "it is not asked again"
    assert "INVALID_VALUE" in device.refused[launcher.emitted.name]


@pytest.mark.parametrize(
    ("version", "rows"), [(12080, 8), (13010, 1023), (13020, 8), (13000, 1025)]
)
def test_small_maps_are_mended(fake: FakeCuda, version: int, rows: int) -> None:
    """Older drivers let the hardware read beyond them."""
    fake.version = version
    device = Cuda(0)
    memory = device.empty((rows, 64), dt.float16)
    how = TensorMap(6, 2, 3, (8, 64))
    device.context.use()
    found = matrices.encoder(device.driver, how, (rows, 64), (64, 1))(memory.pointer)
    assert int.from_bytes(found[8:16], "little") == (FAULT if rows > 1024 else 0)


def test_chips_without_the_hardware_do_without() -> None:
    with installed(capability=(8, 0)) as fake:
        device, launcher = compiled()
        out = device.empty((M * N,), dt.float16)
        launcher([out, *(device.from_numpy(x.reshape(-1)) for x in operands(0))], [])
        check(device, out, *operands(0))
        assert "cuTensorMapEncodeTiled" not in fake.calls


def test_what_the_compiler_says_of_tiles() -> None:
    """Rows of 128 bytes are swizzled whole; a longer tile is copied in several boxes."""
    schedule = Schedule(block_m=128, block_n=256, block_k=64, num_warps=8, persistent=132)
    found = compile_offline(tk.matmul(4096, 4096, 4096, dt.bfloat16), "sm_90", schedule)
    bfloat16, by_128_bytes = 9, 3
    assert found.maps == (
        TensorMap(bfloat16, 2, by_128_bytes, (128, 64)),
        TensorMap(bfloat16, 2, by_128_bytes, (64, 64)),
    )
    copied = replace(schedule, descriptors=True, parts=2)
    found = compile_offline(tk.matmul(4096, 4096, 4096, dt.bfloat16), "sm_90", copied)
    assert found.maps[2] == TensorMap(bfloat16, 2, by_128_bytes, (128, 64))
    ptx = found.asm["ptx"]
    assert "cp.async.bulk.tensor.2d.global.shared" in ptx and "st.global" not in ptx
    assert found.scratch == 0 and found.spills == 0
    image = Image.of(found)
    assert Image.read(image.binary, image.numbers()) == image
