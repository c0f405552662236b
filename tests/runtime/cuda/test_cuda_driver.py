"""What is said when the driver, a device or a kernel isn't as it should be."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import triton_kernels
from fake_cuda import FakeCuda, installed
from fake_kernels import compile_many, image

import tilewright
from tilewright.codegen.schedule import default_schedule
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import emit
from tilewright.ir import ops
from tilewright.ir.dtype import bfloat16
from tilewright.runtime import devices, offline
from tilewright.runtime.cuda import device, driver, graphs, kernels, pack
from tilewright.runtime.cuda import image as image_of
from tilewright.runtime.cuda.context import Event
from tilewright.runtime.driver import CudaError

pytestmark = pytest.mark.triton


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed() as library:
        yield library


def test_errors_have_a_name_and_advice(fake: FakeCuda) -> None:
    devices.get("cuda:0").context.use()
    with pytest.raises(CudaError) as caught:
        driver.get().cuMemFreeAsync(12345, None)
    assert str(caught.value) == (
        "CUDA error: couldn't free memory: CUDA_ERROR_INVALID_VALUE (error 1 of the fake driver), "
        "from cuMemFreeAsync"
    )
    assert (caught.value.code, caught.value.name) == (1, "CUDA_ERROR_INVALID_VALUE")
    with pytest.raises(CudaError, match="CUDA_VISIBLE_DEVICES may hide the GPU"):
        driver.get().number("cuDeviceGet", 7)


def test_a_lost_device_says_what_to_do(fake: FakeCuda) -> None:
    x = tilewright.ones(3, device="cuda") + 1
    tilewright.cuda.synchronize()
    fake.lost = True
    try:
        with pytest.raises(RuntimeError, match=r"ILLEGAL_ADDRESS.*CUDA_LAUNCH_BLOCKING=1 tells"):
            x.tolist()
    finally:
        fake.lost = False


def test_a_thread_that_has_turned_to_no_device_ends_events(fake: FakeCuda) -> None:
    context = devices.get("cuda:0").context
    start, end = (Event(context).record() for _ in range(2))
    end.synchronize()
    times, kept = [], [Event(context)]

    def work() -> None:
        kept.clear()
        times.append(start.milliseconds_to(end))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert times == [1.0]
    made = fake.calls["cuEventCreate"]
    again = Event(context).record()
    assert fake.calls["cuEventCreate"] == made, "the event that ended is recorded again"
    again.synchronize()
    many = [Event(context) for _ in range(300)]
    del again, many
    Event(context)
    assert fake.calls["cuEventDestroy_v2"] == 1, "few are kept without an owner"


def test_nothing_is_asked_of_the_driver_for_empty_copies() -> None:
    with installed(devices=2):
        first, second = (devices.get(f"cuda:{n}") for n in range(2))
        empty = first.from_numpy(np.empty((0, 3), np.float32))
        for target in (first, second):
            assert target.to_numpy(target.copied(empty, first)).shape == (0, 3)


def test_graphs_of_a_lost_device_end_in_silence(
    fake: FakeCuda, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    found = graphs.Graph(devices.get("cuda:0"), iter(()))
    fake.lost = True
    try:
        del found
        gc.collect()
    finally:
        fake.lost = False
    assert not recwarn.list and not capsys.readouterr().err


def test_a_kernel_has_its_own_name_in_the_binary(fake: FakeCuda) -> None:
    """One that the user wrote may have another there, by `repr` of triton.jit."""
    loaded = devices.get("cuda:0").kernels
    asked = offline.Request("named", "", "", {}, {}, {}, 4, 1, False, "sm_90")
    found = image_of.Image(image(asked), 0, 4, 0, entry="named")
    again = image_of.Image.read(found.binary, found.numbers())
    assert loaded.load("kernel", again) is not None
    with pytest.raises(CudaError, match="NOT_FOUND"):
        loaded.load("kernel", replace(found, entry=""))


def test_a_kernel_the_driver_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiler(requests, processes=None):
        made = compile_many(requests, processes)
        return [replace(m, binary=b"of the future" + b"\0" * 99) for m in made]

    monkeypatch.setenv("TW_CACHE", "0")
    with installed(compiler=compiler):
        x = tilewright.ones(3, device="cuda").exp()
        with pytest.raises(RuntimeError, match=r"update the driver, .* \(kernel \w+, .* sm_90"):
            x.tolist()
        del x


def test_shared_memory_beyond_48_kb_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel gets fewer stages where there is less than it wants."""

    def compiler(requests, processes=None):
        made = compile_many(requests, processes)
        return [replace(m, shared=r.num_stages * 90 << 10) for m, r in zip(made, requests)]

    monkeypatch.setenv("TW_CACHE", "0")
    with installed(compiler=compiler) as fake:
        assert tilewright.ones(3, device="cuda").exp().tolist()[0] > 2.7
        assert fake.launches[-1].shared == 2 * 90 << 10  # three would be over 227 KiB
        assert fake.calls["cuFuncSetAttribute"] == fake.calls["cuModuleLoadData"]


def test_scratch_memory_is_passed_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Device memory that each program has for itself, as kernels with descriptors want it."""

    def compiler(requests, processes=None):
        return [replace(m, scratch=640) for m in compile_many(requests, processes)]

    monkeypatch.setenv("TW_CACHE", "0")
    with installed(compiler=compiler) as fake:
        x = tilewright.tensor([1.0, 2.0], device="cuda").exp()
        assert x.tolist()[0] > 2.7
        (launch,) = fake.launches
        scratch, profile = (int.from_bytes(b, "little") for b in launch.block[-2:])
        assert fake.live[scratch][0] >= launch.grid[0] * 640 and profile == 0


def test_a_kernel_that_fits_in_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiler(requests, processes=None):
        return [replace(m, shared=300 << 10) for m in compile_many(requests, processes)]

    monkeypatch.setenv("TW_CACHE", "0")
    with installed(compiler=compiler):
        x = tilewright.ones(3, device="cuda").exp()
        with pytest.raises(RuntimeError, match=r"kernel \w+ needs more shared memory than"):
            x.tolist()
        del x


def test_a_default_schedule_that_spills_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is compiled. Another process knows from disk, and compiles neither again."""
    kernel = triton_kernels.matmul(8192, 4096, 1024, bfloat16)
    asked: list[offline.Request] = []

    def compiler(requests, processes=None):
        asked.extend(requests)
        made = compile_many(requests, processes)
        wide = [r.constexprs["BLOCK_M"] * r.constexprs["BLOCK_N"] > 128 * 128 for r in requests]
        usage = {True: {"registers": 255, "spills": 400}, False: {"registers": 168}}
        return [replace(m, shared=200 << 10, **usage[w]) for m, w in zip(made, wide)]

    def chosen() -> tuple[int, int]:
        with installed(compiler=compiler):
            card = devices.get("cuda:0")
            monkeypatch.setattr(card, "_schedule", card._tuned)
            sizes = card.compile(kernel).emitted.constexprs
        return sizes["BLOCK_M"], sizes["BLOCK_N"]

    first = default_schedule(kernel, gpu("sm_90"))
    assert (first.block_m, first.block_n) == (128, 256)
    assert chosen() == (128, 128)
    assert 2 <= len(asked) <= 4
    asked.clear()
    assert chosen() == (128, 128) and not asked


def test_kernels_are_compiled_for_the_device_at_hand() -> None:
    with installed(capability=(8, 9)) as fake:
        tilewright.ones(3, device="cuda").exp().tolist()
        assert [launch.request.target for launch in fake.launches] == ["sm_89"]


def test_work_is_cut_by_the_multiprocessors_of_the_card() -> None:
    """Products of one architecture differ in them; the table of chips has those of one product."""
    kernel = triton_kernels.matmul(8192, 8192, 4096, bfloat16)
    for count in (132, 114):
        with installed(multiprocessors=count):
            target = devices.get("cuda:0").target
            assert target.chip.multiprocessors == target.parallel == count
            assert default_schedule(kernel, target).persistent == count
            x = tilewright.arange(1000.0, device="cuda")
            assert (x * 2).sum().item() == 999000


def test_a_launch_on_the_host_loses_no_error_of_an_earlier_one(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = (tilewright.ones(n, device="cuda") for n in (100, 7))
    at = tilewright.tensor([1, 500], device="cuda")
    tilewright.cuda.synchronize()
    y = x[at]
    tilewright.cuda.Event().record()

    def none(kernel, schedule):
        raise NotImplementedError("no form")

    monkeypatch.setattr(device, "emit", none)
    with pytest.raises(IndexError, match="500 is out of bounds"):
        assert (w * 3).tolist() == [3.0] * 7
        y.tolist()


def test_a_kernel_without_a_form_in_triton_runs_on_the_host(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_erf(kernel, schedule):
        if any(getattr(value, "op", None) is ops.erf for value in kernel.values):
            raise NotImplementedError("erf has no Triton form")
        return emit(kernel, schedule)

    monkeypatch.setattr(device, "emit", without_erf)
    monkeypatch.setenv("TW_DEBUG", "1")
    x = tilewright.arange(12.0).reshape(4, 3) / 9

    def program(x):
        return ((x.T @ x).softmax(0).erf().cumsum(0) @ x.T).tolist()

    expected, x = program(x), x.cuda()
    for _ in range(4):
        assert np.array(program(x)) == pytest.approx(np.array(expected), rel=1e-5)
    assert list(devices.get("cuda:0").fallbacks.values()) == ["erf has no Triton form"]
    assert fake.launches, "the rest runs where it belongs"
    assert "runs on the host: erf has no Triton form" in capsys.readouterr().err


def test_compiled_kernels_are_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def compiler(requests, processes=None):
        made.extend(r.name for r in requests)
        return compile_many(requests, processes)

    monkeypatch.setattr(kernels, "_SHARE", 5)  # a place of its own would be more, but no other
    for _ in range(2):
        with installed(compiler=compiler):
            x = tilewright.arange(7.0, device="cuda")
            assert (x.acos() * 3).sum().isnan().item()
    assert len(made) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_forked_process_is_told_to_spawn(fake: FakeCuda) -> None:
    x = tilewright.tensor([1.0, 1.0, 1.0], device="cuda")
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child leaves be
        child = os.fork()
    if not child:
        try:
            tilewright.cuda.synchronize()
            text = "no error"
        except BaseException as error:
            text = str(error)
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert "you must use the 'spawn' start method" in answer.read()
    assert (x + 1).sum().item() == 6


CHECK = """
import sys, time
import tilewright
assert not [n for n in sys.modules if n.startswith("tilewright.runtime.cuda")]
print(tilewright.cuda.is_available(), tilewright.cuda.device_count())
for call in (tilewright.cuda.current_device, tilewright.cuda.synchronize):
    try:
        call()
    except RuntimeError as error:
        print(error)
print([n for n in ("triton", "cuda", "tilewright.runtime.cuda.device") if n in sys.modules])
tilewright.cuda.manual_seed(3)
tilewright.cuda.empty_cache()
print(tilewright.cuda.memory_allocated(), tilewright.cuda.is_bf16_supported())
"""


def test_without_a_driver(run_python: Callable[..., str]) -> None:
    """Asking costs no heavy import and raises nothing; using it says why it can't be used."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has the driver")
    lines = run_python(CHECK).splitlines()
    assert lines[0] == "False 0"
    assert [line.rsplit(", at", 1)[0] for line in lines[1:3]] == 2 * [
        "No CUDA GPUs are available: neither the NVIDIA driver's libcuda.so.1 nor the AMD "
        "driver's libamdhip64.so was found. Use device='cpu', or 'interpret' to run the GPU's "
        "kernels without one"
    ]
    assert lines[3:] == ["[]", "0 False"]


def test_without_triton(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_has_triton", lambda: False)
    monkeypatch.setattr(devices, "_devices", {"cpu": devices.get("cpu")})
    assert not tilewright.cuda.is_available()
    with pytest.raises(RuntimeError, match=r"pip install 'tilewright\[gpu\]'"):
        tilewright.ones(3, device="cuda")


def test_an_old_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def __getattr__(self, name: str) -> object:
            raise AttributeError(f"undefined symbol: {name}")

    driver.use(None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Old())
    try:
        assert driver.reason_against() == (
            "the NVIDIA driver is older than CUDA 12.0: undefined symbol: cuInit"
        )
        assert driver.count() == 0
        with pytest.raises(RuntimeError, match="older than CUDA"):
            driver.get()
    finally:
        driver.use(None)


@pytest.mark.parametrize(
    ("target", "version", "expected"),
    [
        ("sm_90", 12080, "ptxas"),
        ("sm_100", 12090, "ptxas"),
        ("sm_90", 13000, ""),
        ("sm_80", 12080, ""),
    ],
)
def test_the_assembler_suits_the_driver(
    target: str, version: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver of CUDA 12 doesn't load what the assembler of CUDA 13 makes."""
    monkeypatch.delenv("TRITON_PTXAS_BLACKWELL_PATH", raising=False)
    found = image_of.assembler_for(target, version)
    assert Path(found).name == expected and (not found or Path(found).exists())
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", "/of/the/user")
    assert image_of.assembler_for(target, version) == "/of/the/user"


def test_a_pack_serves_what_another_machine_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device takes the same schedules, those that spill among them, and compiles nothing."""
    monkeypatch.setenv("TW_CACHE", "0")
    asked: list[offline.Request] = []

    def compiler(requests, processes=None):
        asked.extend(requests)
        large = [r.constexprs.get("BLOCK_N", 0) > 128 for r in requests]
        made = compile_many(requests, processes)
        return [
            replace(m, registers=255 if x else 128, spills=400 * x) for m, x in zip(made, large)
        ]

    kernels_of = [
        triton_kernels.matmul(8192, 4096, 1024, bfloat16),
        triton_kernels.softmax(64, 1000),
        triton_kernels.sgd((4096, 160)),
    ]
    monkeypatch.setattr(offline, "compile_many", compiler)
    monkeypatch.setattr(image_of, "_compiler", lambda: "fake")
    images = pack.compiled(kernels_of, "sm_90").images
    assert len(images) == len(asked) >= 4
    file = tmp_path / "kernels.pack"
    pack.write(file, "sm_90", images)
    asked.clear()

    def launched() -> list[str]:
        with installed(compiler=compiler):
            card = devices.get("cuda:0")
            monkeypatch.setattr(card, "_schedule", card._tuned)
            return [launch.emitted.sha for launch in card.compile_all(kernels_of)]

    expected = launched()
    assert asked
    asked.clear()
    monkeypatch.setenv("TW_KERNELS", os.pathsep.join([str(tmp_path / "none"), str(file)]))
    assert launched() == expected and not asked
    # A file that is cut off is no pack, and is left out.
    file.write_bytes(file.read_bytes()[:-1])
    pack._content.cache_clear()
    assert launched() == expected and asked
    pack._content.cache_clear()


def test_a_launch_finds_its_buffers_wherever_they_are(fake: FakeCuda) -> None:
    """Only the addresses in its block are replaced, and none that aren't multiples of 16."""
    card = devices.get("cuda:0")
    kernel = triton_kernels.softmax(2, 5)
    launcher = card.compile(kernel)
    assert launcher._addresses is not None
    (read,) = kernel.inputs
    rows = np.random.default_rng(0).standard_normal((6, 12)).astype(np.float32)
    memory = [card.from_numpy(each) for each in rows]
    for place, start in ((0, 0), (1, 0), (2, 1), (1, 0), (3, 0), (3, 2), (0, 0)):
        source = memory[place].part(start, (read.size,))
        out, total = card.empty((2, 5), read.dtype), card.empty((2,), read.dtype)
        launcher([out, total, source], ())
        x = rows[place, start : start + 10].reshape(2, 5).astype(np.float64)
        x = np.exp(x - x.max(1, keepdims=True))
        expected = x.sum(1, keepdims=True)
        np.testing.assert_allclose(card.to_numpy(out), x / expected, rtol=1e-6)
        np.testing.assert_allclose(card.to_numpy(total), expected[:, 0], rtol=1e-6)
