"""Memory of CUDA devices: statistics, its return, and what happens when there is none left."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import numpy as np
import pytest
from fake_cuda import GARBAGE_NEW, FakeCuda, installed

import tilewright
from tilewright.exchange import pinning
from tilewright.runtime import devices
from tilewright.runtime.cuda import memory
from tilewright.runtime.cuda.context import Event
from tilewright.runtime.cuda.copies import RING, STAGED

pytestmark = pytest.mark.triton
KIB = 1 << 10


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed() as driver:
        yield driver


def zeros(count: int) -> tilewright.Tensor:
    """A tensor of `count` KiB that is in memory."""
    return tilewright.tensor(np.zeros((count, 256), np.float32), device="cuda")


def test_allocated_memory_is_counted_and_given_back(fake: FakeCuda) -> None:
    cuda = tilewright.cuda
    assert cuda.memory_allocated() == 0
    x = zeros(10)
    y = zeros(5)
    assert cuda.memory_allocated() == 15 * KIB
    del y
    assert cuda.memory_allocated() == 10 * KIB
    assert cuda.max_memory_allocated() == 15 * KIB
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == 10 * KIB
    assert cuda.memory_reserved() == 15 * KIB >= cuda.max_memory_reserved() - 15 * KIB
    del x
    cuda.empty_cache()
    assert cuda.memory_reserved() == 0 and not fake.live
    stats = cuda.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 2
    assert stats["allocated_bytes.all.current"] == 0
    assert stats["num_ooms"] == stats["num_alloc_retries"] == 0


def test_a_small_tensor_takes_what_memory_is_handed_out_in(fake: FakeCuda) -> None:
    kept = [tilewright.tensor([1.0], device="cuda") for _ in range(3)]
    assert tilewright.cuda.memory_allocated() == len(kept) * 512


def test_a_steady_loop_needs_no_more_memory(fake: FakeCuda) -> None:
    x = zeros(4)
    sizes = []
    for _ in range(6):
        x = (x @ x.T @ x + 1).tanh()
        x.sum().item()
        sizes.append(tilewright.cuda.memory_allocated())
    assert len(set(sizes[2:])) == 1
    tilewright.cuda.synchronize()
    assert tilewright.cuda.memory_allocated() == sum(size for size, _ in fake.live.values())


def test_the_summary_says_who_holds_what(fake: FakeCuda) -> None:
    kept = [zeros(3), zeros(3), zeros(64)]
    lines = tilewright.cuda.memory_summary().splitlines()
    assert lines[0] == "memory of cuda:0"
    rows = [" ".join(line.split()) for line in lines]
    assert "allocated 70.00 KiB" in rows
    assert rows[-2:] == ["1 x float32 [64, 256] 64.00 KiB", "2 x float32 [3, 256] 6.00 KiB"]
    assert "[64" not in tilewright.cuda.memory_summary(abbreviated=True)
    del kept


def test_out_of_memory_is_one_error_and_not_the_end(fake: FakeCuda) -> None:
    fake.capacity[0] = 100 * KIB
    x = zeros(40)
    with pytest.raises(
        tilewright.cuda.OutOfMemoryError, match=r"Tried to allocate 80\.00 KiB"
    ) as e:
        zeros(80)
    assert "1 x float32 [40, 256]: 40.00 KiB" in str(e.value)
    assert isinstance(e.value, RuntimeError)
    assert tilewright.OutOfMemoryError is tilewright.cuda.OutOfMemoryError
    assert (x + 1).sum().item() == 40 * 256
    assert tilewright.cuda.memory_stats()["num_ooms"] == 1


def test_a_result_that_has_no_room_fails_alone(fake: FakeCuda) -> None:
    """What was recorded beside it is computed; its own error is told again when it is read."""
    fake.capacity[0] = 100 * KIB
    x = zeros(20)
    large = (x + 1).repeat(4, 1) * 3
    small = x + 1
    with pytest.raises(tilewright.cuda.OutOfMemoryError):
        tilewright.cuda.synchronize()
    np.testing.assert_array_equal(small.cpu().numpy(), np.ones((20, 256), np.float32))
    with pytest.raises(tilewright.cuda.OutOfMemoryError):
        large.cpu()
    del large
    assert (small + x).sum().item() == 20 * 256


def test_results_that_have_room_one_by_one_are_computed_so(fake: FakeCuda) -> None:
    fake.capacity[0] = 100 * KIB
    x = zeros(20)
    a, b = (x @ x.T).exp(), (x + 1).repeat(3, 1)
    assert float(a.sum()) == 400.0
    assert b.shape == (60, 256)
    del a
    assert b.sum().item() == 60 * 256


def test_a_failed_update_leaves_the_weights(fake: FakeCuda) -> None:
    """An in-place write that had no room is undone as a whole: the old value stays."""
    fake.capacity[0] = 60 * KIB
    x, other = zeros(20), zeros(20)
    seen = x.view(-1)  # it can't be done in place
    x.add_(other.sum() + 1)
    grown = x.repeat(3, 1)
    with pytest.raises(tilewright.cuda.OutOfMemoryError):
        tilewright.cuda.synchronize()
    del grown, other
    assert set(np.unique(seen.cpu().numpy())) <= {0.0, 1.0}


def test_memory_that_is_kept_for_later_is_used_before_giving_up(fake: FakeCuda) -> None:
    """The temporaries of plans, and cycles of Python's that hold tensors."""
    fake.capacity[0] = 100 * KIB
    x = zeros(4)
    (x @ x.T @ zeros(4)).relu().sum().item()
    gc.collect()
    gc.disable()
    try:
        cycle = [zeros(60)]
        cycle.append(cycle)
        del cycle
        assert zeros(90).sum().item() == 0
    finally:
        gc.enable()
    assert tilewright.cuda.memory_stats()["num_alloc_retries"] == 1


def test_a_bound_of_ones_own(fake: FakeCuda) -> None:
    fake.capacity[0] = 100 * KIB
    tilewright.cuda.set_per_process_memory_fraction(0.5)
    with pytest.raises(tilewright.cuda.OutOfMemoryError, match=r"50\.00 KiB may be used"):
        zeros(60)
    tilewright.cuda.set_per_process_memory_fraction(1.0)
    assert zeros(60).sum().item() == 0
    with pytest.raises(ValueError, match="0~1"):
        tilewright.cuda.set_per_process_memory_fraction(2)


def test_memory_comes_as_it_is(fake: FakeCuda) -> None:
    """The fake driver hands out garbage, so that a value nobody wrote is noticed."""
    device = devices.get("cuda:0")
    array = device.to_numpy(device.empty((4,), tilewright.uint8))
    np.testing.assert_array_equal(array, GARBAGE_NEW)


@pytest.mark.parametrize(
    "count",
    [1, RING // 4 // 4, RING // 4 + 3, pytest.param(RING // 4 * 2 + 1, marks=pytest.mark.slow)],
)
def test_copies_of_any_size(fake: FakeCuda, count: int) -> None:
    """Through the ring of pinned memory, whole or in parts, also when it comes round again."""
    arrays = [np.arange(count, dtype=np.int32) + i for i in range(3)]
    moved = [tilewright.tensor(a, device="cuda") for a in arrays]
    expected = [a.copy() for a in arrays]
    for a in arrays:
        a[:] = -1  # what is copied was read at the call
    for t, a in zip(moved, expected):
        np.testing.assert_array_equal(t.cpu().numpy(), a)
    # One ring to the device, and one buffer for what is read in pieces.
    assert len(fake.pinned) == 1 + (4 * count >= STAGED)


def test_small_copies_share_an_event(fake: FakeCuda) -> None:
    """The ring comes round under them, in two streams; none overtakes what it overwrites."""
    cuda = tilewright.cuda
    side = cuda.Stream()
    count = 5 * RING // 4 // (96 << 10)
    before = fake.calls.get("cuEventRecord", 0)
    values = np.random.default_rng(0).integers(0, 256, (count, 96 << 10), np.uint8)
    moved = []
    for start in range(0, count, 40):
        with cuda.stream(side if start % 80 else cuda.default_stream()):
            moved += [tilewright.tensor(v, device="cuda") for v in values[start : start + 40]]
    assert fake.calls["cuEventRecord"] - before < count // 2
    for found, expected in zip(moved, values, strict=True):
        np.testing.assert_array_equal(found.cpu().numpy(), expected)


@pytest.mark.parametrize("size", [STAGED, RING // 4, RING + 20, 2 * RING + 4])
def test_what_is_read_comes_in_pieces(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The GPU fills further pieces of a pinned buffer while the host empties the first."""
    values = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    x = tilewright.from_numpy(values).cuda()
    tilewright.cuda.synchronize()
    before = fake.calls.get("cuMemcpyDtoHAsync_v2", 0)
    asked: list[int] = []
    waits = Event.synchronize

    def wait(event: Event) -> None:
        asked.append(fake.calls["cuMemcpyDtoHAsync_v2"] - before)
        waits(event)

    monkeypatch.setattr(Event, "synchronize", wait)
    np.testing.assert_array_equal(x.cpu().numpy(), values)
    pieces = -(-size // (RING // 4))
    assert asked == [min(i + 4, pieces) for i in range(pieces)]


def test_threads_read_into_buffers_of_their_own(fake: FakeCuda) -> None:
    device = devices.get("cuda:0")
    values = [np.full(RING // 4 + i, i, np.uint8) for i in range(3)]
    moved = [device.from_numpy(v) for v in values]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(device.to_numpy, moved * 3))
    for got, expected in zip(found, values * 3, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_copies_of_any_dtype_and_shape(fake: FakeCuda, shape: tuple[int, ...], dtype: str) -> None:
    x = tilewright.ones(shape, dtype=getattr(tilewright, dtype))
    y = x.cuda()
    assert y.dtype is x.dtype and y.shape == x.shape and y.tolist() == x.tolist()
    assert (y + y).tolist() == (x + x).tolist()


def test_gpus_reach_each_others_pools_once_they_copy() -> None:
    """The GPU that reads is let in, once; nobody else is."""
    with installed(devices=2) as fake:
        x = tilewright.arange(6.0, device="cuda:0")
        assert not fake.opened
        for _ in range(2):
            assert x.to("cuda:1").tolist() == [0, 1, 2, 3, 4, 5]
            assert fake.opened == {(0, 1)} and fake.calls["cuMemPoolSetAccess"] == 1
        assert x.to("cuda:1").to("cuda:0").tolist() == x.tolist()
        assert fake.opened == {(0, 1), (1, 0)}


@pytest.mark.parametrize("why", ["no way", "refused"])
def test_gpus_that_dont_reach_each_other_copy_all_the_same(why: str) -> None:
    with installed(devices=2) as fake:
        fake.connected = why == "refused"
        fake.refused.add("cuMemPoolSetAccess")
        for _ in range(2):
            x = tilewright.arange(6.0, device="cuda:0")
            assert x.to("cuda:1").tolist() == [0, 1, 2, 3, 4, 5]
        assert not fake.opened
        assert fake.calls.get("cuMemPoolSetAccess", 0) == (why == "refused")


def test_pinned_memory(fake: FakeCuda) -> None:
    x = tilewright.arange(6.0).reshape(2, 3)
    y = x.pin_memory()
    assert y.is_pinned() and y.pin_memory() is y and not x.is_pinned()
    assert y[1:].is_pinned() and not (y + 1).is_pinned()
    assert tilewright.tensor([True], pin_memory=True).is_pinned()
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.cuda().pin_memory()
    assert tilewright.ones(0, 3).pin_memory().cuda().shape == (0, 3)


def test_factories_that_pin(fake: FakeCuda) -> None:
    tw, like = tilewright, tilewright.ones(2, 2)
    for t in (
        tw.empty(3, pin_memory=True), tw.zeros(2, 3, pin_memory=True), tw.ones(3, pin_memory=True),
        tw.full((2,), 3.0, pin_memory=True), tw.arange(4, pin_memory=True),
        tw.linspace(0, 1, 3, pin_memory=True), tw.logspace(0, 1, 3, pin_memory=True),
        tw.eye(2, pin_memory=True), tw.rand(3, pin_memory=True), tw.randn(3, pin_memory=True),
        tw.randint(5, (3,), pin_memory=True), tw.randperm(4, pin_memory=True),
        tw.zeros_like(like, pin_memory=True), tw.empty_like(like, pin_memory=True),
        tw.full_like(like, 2, pin_memory=True), like.new_zeros(2, pin_memory=True),
        like.new_full((2,), 1, pin_memory=True),
        tw.zeros(2, pin_memory=True, requires_grad=True),
    ):  # fmt: skip
        assert t.is_pinned() and t.is_leaf
        np.testing.assert_array_equal(t.cuda().detach().cpu().numpy(), t.detach().numpy())
    assert not tw.zeros(2).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        tw.zeros(2, device="cuda", pin_memory=True)


def test_a_snapshot_lists_blocks() -> None:
    with installed(keeping=True) as fake:
        kept, dropped = zeros(3), zeros(5)
        del dropped
        found = tilewright.cuda.memory_snapshot()
        assert [(s["total_size"], s["blocks"][0]["state"]) for s in found] == [
            (size, "inactive" if size == 5 * KIB else "active_allocated")
            for _, (size, _) in sorted(fake.live.items())
        ]
        assert [s["address"] for s in found] == sorted(fake.live)
        assert sum(s["allocated_size"] for s in found) == tilewright.cuda.memory_allocated()
        assert sum(s["total_size"] for s in found) == tilewright.cuda.memory_reserved()
        assert all(s["device"] == 0 and s["stream"] == 0 for s in found)
        del kept


def test_what_is_pinned_is_copied_from_where_it_is(fake: FakeCuda) -> None:
    """Late: what is written to it meanwhile goes elsewhere."""
    large = np.arange(RING // 4 + 3, dtype=np.float32)
    x = tilewright.from_numpy(large).pin_memory()
    moved = []
    for part in (x, x[5:9]):
        moved.append(part.cuda(non_blocking=True))
        tilewright.cuda.current_stream().record_event()
    x.mul_(0)
    x[5] = 7
    assert x.sum().item() == 7
    assert len(fake.pinned) == 1, "the ring was not needed"
    np.testing.assert_array_equal(moved[0].cpu().numpy(), large)
    np.testing.assert_array_equal(moved[1].cpu().numpy(), large[5:9])


def test_pinned_memory_is_used_again(fake: FakeCuda) -> None:
    for i in range(6):
        x = tilewright.full((100,), i).pin_memory()
        y = x.cuda() + 1
        del x
        assert y.sum().item() == 100 * (i + 1)
        del y
    assert len(fake.pinned) <= 3


def test_a_loader_pins_its_batches(fake: FakeCuda) -> None:
    data = [{"x": np.full(3, i, np.float32), "y": (i, "text")} for i in range(4)]
    loader = tilewright.utils.data.DataLoader(data, batch_size=2, pin_memory=True)
    for i, batch in enumerate(loader):
        assert batch["x"].is_pinned() and batch["y"][0].is_pinned()
        assert batch["y"][1] == ["text"] * 2 or batch["y"][1] == ("text",) * 2
        assert batch["x"].cuda(non_blocking=True)[:, 0].tolist() == [2 * i, 2 * i + 1]


def test_pinned_batches_are_of_their_own_type(fake: FakeCuda) -> None:
    made: defaultdict[str, list[int]] = defaultdict(list)
    made["x"] = tilewright.ones(2)
    batch = pinning.all_pinned(made)
    assert batch["x"].is_pinned() and batch["other"] == [] and not made["x"].is_pinned()
    fixed = pinning.all_pinned(MappingProxyType({"x": tilewright.ones(2)}))
    assert type(fixed) is MappingProxyType and fixed["x"].is_pinned()


def test_a_loop_finds_its_blocks_at_the_same_addresses() -> None:
    with installed(keeping=True) as fake:
        x, addresses = zeros(4), []
        for _ in range(5):
            results = [x + 1, x + 2, x.sum(0)]
            tilewright.cuda.synchronize()
            addresses.append([r._buffer.pointer for r in results])
            del results
        assert addresses[2:] == [addresses[1]] * 3
        assert tilewright.cuda.memory_allocated() == 4 * KIB, "blocks that wait are not in use"
        assert "cuMemFreeAsync" not in fake.calls
        tilewright.cuda.empty_cache()
        assert fake.calls["cuMemFreeAsync"] == 3 and fake.calls["cuMemAllocAsync"] == 4
        assert len(fake.live) == 1


def test_a_loop_gets_back_its_largest_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of the memory it is."""
    monkeypatch.setattr(memory, "KEPT", 0)
    with installed(keeping=True) as fake:
        x, addresses = zeros(1), set()
        for _ in range(4):
            y = x.repeat(50, 1)
            tilewright.cuda.synchronize()
            addresses.add(y._buffer.pointer)
            del y
        assert len(addresses) == 1 and "cuMemFreeAsync" not in fake.calls
        tilewright.cuda.empty_cache()
        pool = devices.get("cuda:0").pool
        assert pool.most_kept() == pool.allocated // 2, "the block that went back counts no more"


def test_memory_that_is_overwritten_unread_stays() -> None:
    """Of other tensors too, in part or whole: only what nobody else sees is overwritten."""
    with installed(keeping=True) as fake:
        x, other = zeros(4), tilewright.full((4, 256), 3.0, device="cuda")
        tilewright.cuda.synchronize()
        place, before = x._buffer.pointer, fake.calls["cuMemAllocAsync"]
        for value in range(3):
            x.zero_()
            tilewright.cuda.synchronize()
            x.fill_(value)
            tilewright.cuda.synchronize()
        assert x._buffer.pointer == place
        assert fake.calls["cuMemAllocAsync"] <= before + 1, "the number of fill_, if anything"
        x.copy_(other)
        tilewright.cuda.synchronize()
        row, held = x[1], x.detach()
        total = row.sum()
        x.zero_()
        assert total.item() == 3 * 256 and held.sum().item() == row.sum().item() == 0


def test_a_failing_run_overwrites_nothing(fake: FakeCuda) -> None:
    x, positions = zeros(4) + 5, tilewright.tensor([9], device="cuda")
    tilewright.cuda.synchronize()
    found = x.new_ones(3)[positions]
    x.zero_()
    with pytest.raises(IndexError):
        tilewright.cuda.synchronize()
    del found
    assert x.unique().tolist() in ([0.0], [5.0])


def test_blocks_that_wait_are_no_reason_to_be_out_of_memory() -> None:
    with installed(keeping=True) as fake:
        fake.capacity[0] = 100 * KIB
        for size in (40, 50, 60, 70, 98):
            assert zeros(size).sum().item() == 0
        assert tilewright.cuda.memory_stats()["num_ooms"] == 0


def test_too_many_blocks_that_wait_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEPT", 20 * KIB)
    with installed(keeping=True) as fake:
        for size in (4, 5, 6, 7):
            zeros(size)
        tilewright.cuda.memory_allocated()
        assert fake.calls["cuMemFreeAsync"] == 4
