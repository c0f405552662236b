"""Streams, events and devices by PyTorch's names, on a driver without a GPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from fake_cuda import FakeCuda, installed

import tilewright

pytestmark = pytest.mark.triton
cuda = tilewright.cuda


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed(devices=2) as driver:
        yield driver


@pytest.mark.slow
def test_a_timed_step_asks_the_driver_for_little() -> None:
    """Two launches and two events: no memory, no new events, no new tensor maps."""
    with installed(keeping=True) as fake:
        cache = tilewright.empty(1 << 16, device="cuda")
        x = tilewright.ones(64, 64, dtype=tilewright.float16, device="cuda")

        def steps(count: int) -> dict[str, int]:
            before = fake.calls.copy()
            for _ in range(count):
                start, end = (cuda.Event(enable_timing=True) for _ in range(2))
                cache.zero_()
                start.record()
                y = x @ x
                end.record()
                del y
            return {n: c - before.get(n, 0) for n, c in fake.calls.items() if c != before.get(n)}

        steps(3)
        assert steps(5) == {"cuCtxSetCurrent": 20, "cuLaunchKernelEx": 10, "cuEventRecord": 10}


def test_work_belongs_to_the_stream_it_was_recorded_in(fake: FakeCuda) -> None:
    """And waits for what another stream was given before, also if nobody says so."""
    x = tilewright.ones(4, 4, device="cuda")
    side = cuda.Stream()
    y = x @ x
    with cuda.stream(side):
        assert cuda.current_stream() == side != cuda.default_stream()
        z = y + x
        assert not side.query() or not z.is_cuda
    assert cuda.current_stream() == cuda.default_stream()
    np.testing.assert_array_equal((z * y).cpu().numpy(), 20)
    side.synchronize()
    assert side.query()


def test_streams_that_nobody_has_are_used_again(fake: FakeCuda) -> None:
    with cuda.stream(cuda.Stream(priority=-1)):
        x = tilewright.ones(3, device="cuda") * 2
    assert x.sum().item() == 6
    for _ in range(3):
        cuda.set_stream(cuda.Stream())  # nobody but the device holds it
        assert (x + 1).sum().item() == 9
    assert fake.calls["cuStreamCreateWithPriority"] == 3, "two take turns, and one of priority"
    cuda.set_stream(cuda.default_stream())
    assert (x + 2).sum().item() == 12


def test_a_stream_is_a_context_and_a_value(fake: FakeCuda) -> None:
    side = cuda.Stream(device="cuda:1")
    assert side.device == tilewright.device("cuda:1") and side.device_index == 1
    with side:
        assert cuda.current_stream("cuda:1") == side
        assert cuda.current_stream("cuda:0") == cuda.default_stream("cuda:0")
    borrowed = cuda.ExternalStream(side.cuda_stream, device=1)
    assert borrowed == side and hash(borrowed) == hash(side) and {side, borrowed} == {side}
    assert cuda.get_stream_from_external(side.cuda_stream, "cuda:1") == side
    with cuda.stream(borrowed):
        assert tilewright.ones(2, device="cuda:1").sum().item() == 2
    with cuda.stream(None):
        assert cuda.current_stream() == cuda.default_stream()


def test_events_take_times(fake: FakeCuda) -> None:
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    assert start.query()
    start.record()
    x = tilewright.ones(8, device="cuda").exp()
    end.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        for _ in range(1):  # the fake driver does a piece of work for each question
            start.elapsed_time(end)
    end.synchronize()
    assert end.query() and start.elapsed_time(end) > 0
    assert start.elapsed_time(end) == -end.elapsed_time(start)
    del x


def test_events_that_cannot_take_times(fake: FakeCuda) -> None:
    plain, timed = cuda.Event(), cuda.Event(enable_timing=True)
    plain.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        plain.elapsed_time(timed)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(timed)
    with pytest.raises(NotImplementedError, match="interprocess"):
        cuda.Event(interprocess=True)
    with pytest.raises(RuntimeError, match="does not match recording stream's device cuda:1"):
        plain.record(cuda.default_stream(1))


def test_waiting(fake: FakeCuda) -> None:
    a, b = cuda.Stream(), cuda.Stream()
    event = cuda.Event(blocking=True)
    event.wait()  # of nothing
    with cuda.stream(a):
        x = tilewright.ones(4, device="cuda") + 1
    event = a.record_event()
    b.wait_event(event)
    b.wait_stream(a)
    b.synchronize()
    assert event.query() and x.sum().item() == 8


def test_what_is_pending_is_computed_before_an_event(fake: FakeCuda) -> None:
    x = tilewright.tensor([1.0, 2.0], device="cuda") * 3
    event = cuda.Event()
    assert not fake.calls.get("cuLaunchKernelEx")
    event.record()
    assert fake.calls["cuLaunchKernelEx"] == 1 and not fake.launches
    event.synchronize()
    assert len(fake.launches) == 1 and x.tolist() == [3, 6]


def test_which_device(fake: FakeCuda) -> None:
    assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
    cuda.set_device("cuda:1")
    try:
        assert cuda.current_device() == 1
        assert tilewright.zeros(1, device="cuda").get_device() == 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(cuda.current_device()))
        thread.start()
        thread.join()
        assert seen == [0]
    finally:
        cuda.set_device(0)
    with cuda.device(1):
        with cuda.device(-1):
            assert cuda.current_device() == 1
        with cuda.device_of(tilewright.zeros(1, device="cuda:0")):
            assert cuda.current_device() == 0
        with cuda.device_of(tilewright.zeros(1)):
            assert cuda.current_device() == 1
    assert cuda.current_device() == 0
    assert tilewright.zeros(1).get_device() == -1
    with pytest.raises(RuntimeError, match="invalid device ordinal: cuda:5 of 2"):
        cuda.set_device(5)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        cuda.memory_allocated("cpu")


def test_what_the_device_is(fake: FakeCuda) -> None:
    assert cuda.get_device_name(1) == "Fake GPU 1"
    assert cuda.get_device_capability("cuda:0") == (9, 0)
    about = cuda.get_device_properties(0)
    assert (about.major, about.minor, about.multi_processor_count) == (9, 0, 132)
    assert about.total_memory == cuda.mem_get_info()[1] == 1 << 30
    assert cuda.is_bf16_supported() and cuda.get_arch_list() == ["sm_90"]
    assert cuda.is_initialized() and not cuda.is_current_stream_capturing()
    cuda.init(), cuda.ipc_collect()


def test_seeds_serve_every_device(fake: FakeCuda) -> None:
    draws = []
    for seed in (cuda.manual_seed, cuda.manual_seed_all, tilewright.manual_seed):
        seed(5)
        assert cuda.initial_seed() == 5
        draws.append(tilewright.rand(4, device="cuda").tolist())
    assert draws[0] == draws[1] == draws[2] == _drawn_on_the_cpu(5)
    state = cuda.get_rng_state()
    first = tilewright.rand(2, device="cuda").tolist()
    cuda.set_rng_state(state)
    assert tilewright.rand(2, device="cuda").tolist() == first


def _drawn_on_the_cpu(seed: int) -> list[float]:
    tilewright.manual_seed(seed)
    return tilewright.rand(4).tolist()


@pytest.mark.parametrize("name", ["nccl", "tunable"])
def test_what_is_missing_says_so(name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name} is not implemented"):
        getattr(cuda, name)
    assert not hasattr(cuda, "comm")
