"""Streams that run side by side: PyTorch's idioms, with and without what they ask programs to say.

The driver without a GPU tells of every access that nothing orders (`fake_order.py`), in whatever
order it does its work: so each program is run with streams served late, and in random orders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from fake_cuda import FakeCuda, installed
from networks import values
from prefetching import train

import tilewright
import tilewright.nn as nn
from tilewright import recording
from tilewright.runtime import devices, tiers
from tilewright.runtime.cuda import memory
from tilewright.runtime.cuda.graphs import WARM
from tilewright.runtime.cuda.streams import Order

pytestmark = pytest.mark.triton
cuda = tilewright.cuda


@pytest.fixture(params=[None, 1], ids=["late", "random"])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeCuda]:
    with installed(devices=2, keeping=True, seed=request.param) as driver:
        yield driver


def on_device(*shape: int, seed: int = 0) -> tilewright.Tensor:
    return tilewright.tensor(values(*shape, seed=seed), device="cuda")


def chain(x: tilewright.Tensor) -> tilewright.Tensor:
    """Several launches, with temporaries between them."""
    return ((x @ x.T).softmax(0).cumsum(1) @ x).tanh()


def reference(x: np.ndarray) -> np.ndarray:
    scores = np.exp((x @ x.T).astype(np.float64))
    return np.tanh(np.cumsum(scores / scores.sum(0), 1) @ x)


def close(found: tilewright.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found.detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-6)


def places(fake: FakeCuda, name: str, since: int = 0) -> list[int]:
    """Where work of this name stands in the list of all that was given to streams."""
    work = fake.races.work
    return [i for i in range(since, len(work)) if name in work[i].name]


# -- work that overlaps


def test_two_branches(fake: FakeCuda) -> None:
    """Of one structure, so that they are one plan, and from the third run on its graph."""
    x, y = on_device(6, 4), on_device(6, 4, seed=1)
    side = cuda.Stream()
    for _ in range(WARM + 2):
        side.wait_stream(cuda.current_stream())
        before = len(fake.races.work)
        with cuda.stream(side):
            a = chain(x)
        b = chain(y)
        cuda.current_stream().wait_stream(side)
        launched = range(before, len(fake.races.work))
        kernels = [i for i in launched if fake.races.work[i].name not in QUIET]
        half = len(kernels) // 2
        assert half >= 3
        assert not any(fake.races.ordered(i, j) for i in kernels[:half] for j in kernels[half:])
        total = a + b
        close(total, reference(values(6, 4)) + reference(values(6, 4, seed=1)))
    assert fake.graph_launches == 2 * (WARM + 2) - WARM


QUIET = ("an allocation", "a release", "a copy from the host", "a copy to the host", "nothing")


@pytest.mark.parametrize("careful", [True, False], ids=["careful", "forgetful"])
@pytest.mark.parametrize(
    "read", [pytest.param(True, marks=pytest.mark.slow), False], ids=["read", "unread"]
)
def test_training_while_the_next_batch_is_copied(careful: bool, read: bool, fake: FakeCuda) -> None:
    expected = [loss.item() for loss in train("cpu", 7)]
    losses = [float(loss) for loss in list(train("cuda", 7, careful, read))]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert fake.graph_launches >= 4


def test_a_copy_and_the_step_before_it_are_unordered() -> None:
    with installed(keeping=True) as fake:
        losses = list(train("cuda", 8))
        work = fake.races.work
        copies = [i for i in places(fake, "a copy from the host") if work[i].stream]
        side = {work[i].stream for i in copies}
        kernels = [
            i for i, w in enumerate(work) if w.name not in QUIET and w.stream not in side
        ]  # also those of a graph, whose branches count as streams
        assert len(copies) == 16
        for copy in copies[-4:]:  # of steady steps: the images and labels of the last two
            before = [i for i in kernels if i < copy][-6:]
            assert not any(fake.races.ordered(copy, i) for i in before)
        assert float(losses[-1]) > 0


# -- values for the host


def test_a_value_is_fetched_while_the_host_goes_on(fake: FakeCuda) -> None:
    """Whoever reads it waits, by whatever way."""
    x, kept = on_device(6, 4), []
    target = tilewright.zeros(6, 4).pin_memory()
    waited = _waits(fake)
    for i in range(3):
        y = chain(x) + i
        kept.append(y.to("cpu", non_blocking=True))
        target.copy_(y + 1, non_blocking=True)
        cuda.current_stream().record_event()
    alias = kept[2][1:]
    assert _waits(fake) == waited, "nobody has read a value"
    assert kept[0].is_pinned() and target.is_pinned()
    expected = reference(values(6, 4))
    close(kept[0], expected)
    close(kept[1] * 2, 2 * expected + 2)
    close(alias, expected[1:] + 2)
    close(kept[2].sum(0), (expected + 2).sum(0))
    close(target, expected + 3)


def _waits(fake: FakeCuda) -> int:
    names = ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize")
    return sum(fake.calls.get(name, 0) for name in names)


def test_values_are_fetched_in_a_stream_of_their_own(fake: FakeCuda) -> None:
    """What is fetched is dropped at once, and its memory wanted for the next."""
    x, side, kept = on_device(6, 4), cuda.Stream(), []
    for i in range(6):
        y = x + i
        with cuda.stream(side):
            kept.append(y.to("cpu", non_blocking=True))
        del y
    for i, found in enumerate(kept):
        close(found, values(6, 4) + i)


@pytest.mark.parametrize(
    "tier,at_once", [(tiers.FUSED, False), (tiers.BASELINE, False), (tiers.AUTO, True)]
)
def test_calls_on_the_host_wait_for_what_is_fetched(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, tier: str, at_once: bool
) -> None:
    """Compiled, op by op, or when they are made."""
    monkeypatch.setattr(tiers, "mode", tier)
    x, side = on_device(6, 4), cuda.Stream()
    expected = values(6, 4) + 1
    reads: list[tuple[Callable[[tilewright.Tensor], tilewright.Tensor], np.ndarray]] = [
        (lambda t: t * 2, expected * 2),
        (lambda t: t[1:].sum(0), expected[1:].sum(0)),
        (lambda t: tilewright.tensor(t[2, 3].item()), expected[2, 3]),
        (lambda t: t, expected),
    ]
    for read, found in reads:
        y = x + 1
        with cuda.stream(side):
            fetched = y.to("cpu", non_blocking=True)
        recording.flush()
        monkeypatch.setattr(recording.clock, "volatile", at_once)
        close(read(fetched), found)
        monkeypatch.setattr(recording.clock, "volatile", False)
    kept = (x + 1).to("cpu", non_blocking=True)
    cuda.synchronize()
    assert devices.get("cpu").is_settled()  # also of what nobody has read
    close(kept, values(6, 4) + 1)


def test_fetched_values_that_nobody_reads(fake: FakeCuda) -> None:
    """Their memory is used again only when nothing is copied to it any more."""
    x = on_device(6, 4)
    for i in range(5):
        (x * i).to("cpu", None, True)
        y = (x + i).to("cpu", non_blocking=True)
        cuda.current_stream().record_event()
        if i < 4:
            del y
    close(y, values(6, 4) + 4)


def test_gradients_of_what_was_fetched(fake: FakeCuda) -> None:
    x = on_device(6, 4).requires_grad_()
    y = (x * x).to("cpu", non_blocking=True)
    cuda.current_stream().record_event()
    (y * y).sum().backward()
    close(x.grad, 4 * values(6, 4) ** 3)
    with tilewright.no_grad():
        shared = np.zeros((6, 4), np.float32)
        tilewright.from_numpy(shared).copy_(x, non_blocking=True)
    np.testing.assert_array_equal(shared, values(6, 4))


def test_errors_of_what_was_fetched(fake: FakeCuda) -> None:
    x = on_device(5, 2)
    y = x[tilewright.tensor([1, 7], device="cuda")].to("cpu", non_blocking=True)
    cuda.current_stream().record_event()
    for _ in range(2):
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            y.tolist()
    z = x.to("cpu", non_blocking=True)
    close(z, values(5, 2))


# -- streams that meet


def test_what_another_stream_computed(fake: FakeCuda) -> None:
    """Read, overwritten while it is read, and read again: nobody says who waits for whom."""
    x = on_device(6, 4)
    side, third = cuda.Stream(), cuda.Stream()
    with cuda.stream(side):
        a = chain(x)
    b = a + 1
    with cuda.stream(third):
        c = a * b
    with cuda.stream(side):
        a.mul_(0)
    x.add_(1)
    with cuda.stream(side):
        a.add_(x)
    y = reference(values(6, 4))
    close(a, values(6, 4) + 1)
    close(b, y + 1)
    close(c, y * (y + 1))


def test_nobody_waits_for_what_came_after_an_event(fake: FakeCuda) -> None:
    """Copies one after the other in one stream; each kernel in the other waits for its own."""
    side, events, moved = cuda.Stream(), [], []
    on_device(2)
    cuda.current_stream().wait_stream(side)
    first = len(fake.races.work)
    with cuda.stream(side):
        for i in range(3):
            moved.append(on_device(3, 5, seed=i))
            events.append(cuda.Event())
            events[-1].record()
    copies = places(fake, "a copy from the host", first)
    for i, event in enumerate(events):
        event.wait()
        before = len(fake.races.work)
        moved[i] = moved[i].exp()
        cuda.current_stream().record_event()
        (kernel,) = [
            j for j in range(before, len(fake.races.work)) if fake.races.work[j].name not in QUIET
        ]
        assert [fake.races.ordered(copy, kernel) for copy in copies] == [k <= i for k in range(3)]
    for i, found in enumerate(moved):
        close(found, np.exp(values(3, 5, seed=i)))


def test_memory_that_another_stream_uses_still(fake: FakeCuda) -> None:
    """It is given back while a copy and a kernel of the other stream read it."""
    side, results = cuda.Stream(), []
    for i in range(8):
        x = on_device(6, 4, seed=i) * 2
        with cuda.stream(side):
            results.append(x.T.cumsum(1) + 1)
        x.record_stream(side)
        del x
        results[-1] = results[-1] * 1  # in the usual stream
    for i, found in enumerate(results):
        close(found, np.cumsum(2 * values(6, 4, seed=i).T, 1) + 1)
    cuda.synchronize()
    expected = cuda.memory_allocated()
    cuda.empty_cache()
    assert cuda.memory_allocated() == expected <= cuda.memory_reserved()


def test_lent_memory_is_bounded_however_far_the_host_is_ahead(fake: FakeCuda) -> None:
    side, blocks = cuda.Stream(), set()
    total = on_device(64)
    for i in range(12):
        with cuda.stream(side):
            x = on_device(64, seed=i)
            cuda.current_stream().query()
        total.add_(x)
        blocks.add(x._buffer.pointer)
        cuda.current_stream().record_event()
        del x
    assert len(blocks) <= 4
    close(total, values(64) + sum(values(64, seed=i) for i in range(12)))


def test_blocks_of_several_streams_go_back_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEPT", 0)
    monkeypatch.setattr(memory.Pool, "most_kept", lambda pool: pool.allocated // 2)
    with installed(keeping=True, seed=4) as fake:
        side = cuda.Stream()
        kept = on_device(6, 4)
        for i in range(6):
            with cuda.stream(side if i % 2 else cuda.default_stream()):
                kept = chain(kept) + on_device(6, 4, seed=i)
        cuda.empty_cache()
        assert fake.calls["cuMemFreeAsync"] > 6
        assert np.isfinite(kept.cpu().numpy()).all()


@pytest.mark.slow
def test_no_memory_left_in_a_stream(fake: FakeCuda) -> None:
    """What the other streams keep is given back; the rest is an error of the usual kind."""
    fake.capacity[0] = 100 << 10
    side = cuda.Stream()
    zeros = np.zeros((30, 256), np.float32)
    with cuda.stream(side):
        tilewright.tensor(zeros, device="cuda").sum()
        kept = tilewright.tensor(zeros, device="cuda")
    x = tilewright.tensor(np.zeros((60, 256), np.float32), device="cuda")
    assert (x.sum() + kept.sum()).item() == 0
    with pytest.raises(cuda.OutOfMemoryError), cuda.stream(side):
        tilewright.tensor(zeros, device="cuda")
    assert cuda.memory_stats()["num_ooms"] == 1


def test_updates_of_many_parameters_in_two_streams(fake: FakeCuda) -> None:
    """One launch each that reads their addresses from a table."""
    side = cuda.Stream()
    layers = [nn.Sequential(*(nn.Linear(3, 3) for _ in range(4))).cuda() for _ in range(2)]
    before = [[p.tolist() for p in each.parameters()] for each in layers]
    optimizers = [tilewright.optim.SGD(each.parameters(), lr=0.5) for each in layers]
    for _ in range(WARM + 2):
        for each, stream in zip(layers, (side, cuda.default_stream())):
            for p in each.parameters():
                p.grad = tilewright.ones_like(p)
            with cuda.stream(stream):
                optimizers[each is layers[1]].step()
    for each, start in zip(layers, before):
        for p, q in zip(each.parameters(), start):
            np.testing.assert_allclose(p.tolist(), np.array(q) - 0.5 * (WARM + 2), rtol=1e-5)


def test_loops_in_two_streams(fake: FakeCuda) -> None:
    """A recurrent layer keeps temporaries of its own between its steps."""
    tilewright.manual_seed(0)
    model, side = nn.LSTM(3, 5), cuda.Stream()
    x = tilewright.tensor(values(6, 2, 3))
    expected = model(x)[0].detach().numpy()
    model.cuda()
    x = x.cuda()
    found = []
    with tilewright.no_grad():
        for _ in range(WARM + 1):
            with cuda.stream(side):
                found.append(model(x)[0])
            found.append(model(x)[0])
            cuda.current_stream().record_event()
    for each in found:
        np.testing.assert_allclose(each.cpu().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_positions_out_of_range_in_a_side_stream(fake: FakeCuda) -> None:
    x, side = on_device(5, 2), cuda.Stream()
    right, wrong = (tilewright.tensor([1, n], device="cuda") for n in (4, 7))
    for _ in range(2):
        with cuda.stream(side):
            y = x[wrong]
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            side.synchronize()
        with cuda.stream(side):
            y = x[right]
        np.testing.assert_array_equal((y + x[right]).cpu().numpy(), 2 * values(5, 2)[[1, 4]])


def test_positions_are_looked_at_when_anybody_waits(fake: FakeCuda) -> None:
    x, side = on_device(5, 2), cuda.Stream()
    with cuda.stream(side):
        y = x[tilewright.tensor([1, 7], device="cuda")]
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        x.tolist()
    close(x, values(5, 2))
    del y


def test_what_kernels_keep_was_there_before_the_second_stream(fake: FakeCuda) -> None:
    """The word for a position out of range, cleared in the only stream that there was."""
    x, side = on_device(5, 2), cuda.Stream()
    y = x[tilewright.tensor([1, 4], device="cuda")]
    cuda.current_stream().record_event()
    with cuda.stream(side):
        z = on_device(5, 2)[tilewright.tensor([1, 7], device="cuda")]
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        cuda.synchronize()
    del z
    close(y, values(5, 2)[[1, 4]])


def test_several_devices_and_streams(fake: FakeCuda) -> None:
    side, other = cuda.Stream("cuda:0"), cuda.Stream("cuda:1")
    x = on_device(6, 4)
    for _ in range(3):
        with cuda.stream(side):
            y = chain(x)
        with cuda.stream(other):
            z = y.to("cuda:1") * 2
        z = (z + 1).to("cuda:0")
        with cuda.stream(side):
            w = z + y
        del y, z
        close(w, 3 * reference(values(6, 4)) + 1)


def test_each_thread_has_its_own_stream(fake: FakeCuda) -> None:
    x, side = on_device(6, 4), cuda.Stream()
    inside, outside = threading.Event(), threading.Event()
    seen = []

    def work() -> None:
        with cuda.stream(side):
            seen.append(cuda.current_stream())
            y = chain(x)
            inside.set()
            outside.wait()
            seen.append(cuda.current_stream())
            seen.append(y + 1)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    assert cuda.current_stream() == cuda.default_stream()
    z = x * 2
    cuda.current_stream().synchronize()
    outside.set()
    thread.join()
    assert seen[:2] == [side, side] and cuda.current_stream() == cuda.default_stream()
    close(seen[2] + z, reference(values(6, 4)) + 1 + 2 * values(6, 4))


# -- the checks themselves


def test_one_stream_costs_no_events() -> None:
    with installed(keeping=True) as fake:
        x = on_device(6, 4)
        for _ in range(WARM + 2):
            y = chain(x)
            cuda.synchronize()
        close(y, reference(values(6, 4)))
        assert "cuEventRecord" not in fake.calls  # small copies need none either
        assert "cuStreamWaitEvent" not in fake.calls
        assert not devices.get("cuda:0").context.order._uses


def forgetful(seed: int | None) -> list[str]:
    """The races of a program that orders nothing itself."""
    with installed(keeping=True, seed=seed) as fake:
        side = cuda.Stream()
        x = on_device(6, 4)
        for i in range(4):
            with cuda.stream(side):
                y = on_device(6, 4, seed=i) * x
            x.add_(y)
            del y
        cuda.synchronize()
        found = fake.races.found.copy()
        fake.races.found.clear()
    return found


@pytest.mark.parametrize("seed", [None, 1])
def test_without_waits_there_are_races(seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not forgetful(seed)
    monkeypatch.setattr(Order, "wait", lambda *args: None)
    found = forgetful(seed)
    assert any("reads memory" in each and "is written by" in each for each in found)
    assert any("writes memory" in each and "is read by" in each for each in found)
    assert any("nothing orders them" in each for each in found)
