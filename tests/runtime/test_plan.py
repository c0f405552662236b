"""Plans: results, memory, several devices, and what a run leaves behind."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tilewright
from tilewright import recording
from tilewright.runtime import devices, plan, tiers
from tilewright.runtime.arena import Arena


@pytest.fixture(autouse=True)
def fresh_epoch():
    recording.flush()
    yield
    recording.flush()


def test_a_result_that_is_used_again_is_not_overwritten():
    x = tilewright.tensor(np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30))
    centered = x - x.mean(0)
    scaled = centered * 3
    shifted = (scaled + 1).relu()
    expected = x.numpy() - x.numpy().mean(0)
    np.testing.assert_allclose(shifted.numpy(), np.maximum(expected * 3 + 1, 0), atol=1e-5)
    np.testing.assert_allclose(scaled.numpy(), expected * 3, atol=1e-5)
    np.testing.assert_allclose(centered.numpy(), expected, atol=1e-6)


@pytest.mark.triton
def test_what_a_later_segment_reads_is_not_overwritten():
    """Of one device, before and behind a copy from another."""
    s, c = tilewright.tensor([2.0, 3.0], device="interpret"), tilewright.ones(2)
    y = s * c.to("interpret")
    s.mul_(3)
    assert y.tolist() == [2, 3] and s.tolist() == [6, 9]


def test_kernels_of_one_structure_in_one_launch_keep_their_own_buffers():
    a, b = (tilewright.tensor(np.full(3, v, dtype=np.float32)) for v in (1.0, 5.0))
    first, second = a + 1, b + 1
    assert first.tolist() == [2.0] * 3
    assert second.tolist() == [6.0] * 3


def test_temporaries_share_the_arena():
    x = tilewright.tensor(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    before = tiers.plans()
    y = x
    for _ in range(6):
        y = (y @ x).tanh()
    total = float(y.sum())
    value = x.numpy().astype(np.float64)
    expected = value
    for _ in range(6):
        expected = np.tanh(expected @ value)
    assert total == pytest.approx(expected.sum(), rel=1e-3)
    (made,) = [p for p in tiers.plans() if p not in before]
    segment = made.segments[0]
    temporaries = sum(
        int(np.prod(s.shape)) * s.dtype.itemsize for _, s in segment.arena_slots.values()
    )
    assert segment.arena_bytes < temporaries


def test_a_plan_that_is_forgotten_leaves_no_temporaries_behind():
    # Another segment may get its address, and would run in its memory.
    from tilewright.ir import dtype, ops
    from tilewright.ir.shape import Size

    arena = Arena.of(devices.get("cpu"))
    x = ops.leaf(0, Size((7, 7)), dtype.float32)
    made = plan.Plan([ops.matmul(ops.matmul(x, x), x)])
    made.run([np.eye(7, dtype=np.float32)], [])
    key = id(made.segments[0])
    assert key in arena.bound
    del made
    gc.collect()
    assert key not in arena.bound


def test_outputs_of_a_run_are_not_reused_while_they_are_held():
    x = tilewright.tensor(np.arange(1 << 15, dtype=np.float32))
    kept = []
    for i in range(6):
        y = x * 1.0 + i
        recording.flush()
        kept.append(y)
    for i, y in enumerate(kept):
        assert y[0].item() == i
        assert y.numpy()[-1] == (1 << 15) - 1 + i


@pytest.mark.triton
def test_a_graph_over_two_devices_is_cut_at_the_copies():
    x = tilewright.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (x * 2).to("interpret").exp()
    z = (y + y.to("interpret")).cpu().sum()
    z.backward()
    expected = 2 * np.exp(2 * np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(z.item(), expected.sum(), rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), 2 * expected, rtol=1e-5)
    assert {s.device.name for p in tiers.plans() for s in p.segments} >= {"cpu", "interpret"}


@pytest.mark.triton
def test_tensors_of_two_devices_do_not_meet_by_accident():
    x = tilewright.ones(3)
    y = tilewright.ones(3, device="interpret")
    with pytest.raises(RuntimeError, match="at least two devices, cpu and interpret!"):
        x + y


def test_a_missing_gpu_is_a_clear_error():
    with pytest.raises(RuntimeError, match="No CUDA GPUs are available"):
        tilewright.ones(3, device="cuda")


def test_a_repeated_step_meets_its_plan():
    x = tilewright.tensor([1.0, 2.0])
    counts = []
    for _ in range(4):
        float((x * 3 + 1).sum())
        counts.append(len(tiers.plans()))
    assert counts[1:] == counts[1:2] * 3


def test_a_parameter_is_updated_in_its_own_memory():
    p = tilewright.tensor(np.ones(1 << 14, dtype=np.float32))
    recording.flush()
    p.mul_(1.0)
    recording.flush()
    before = p._array().__array_interface__["data"][0]
    for _ in range(3):
        p.add_(p * 0.5)
        recording.flush()
        assert p._array().__array_interface__["data"][0] == before
    np.testing.assert_allclose(p.numpy(), 1.5**3)


def test_memory_that_somebody_refers_to_is_not_overwritten():
    p = tilewright.tensor(np.ones(1 << 14, dtype=np.float32))
    recording.flush()
    copy = p.clone()
    same = p * 1.0
    twin = p * 1.0
    recording.flush()
    p.add_(1)
    recording.flush()
    assert copy.numpy()[0] == 1.0 and p.numpy()[0] == 2.0
    same.numpy()[0] = 7.0
    assert twin.numpy()[0] == 1.0 and p[0].item() == 2.0
    old = p.reshape(128, 128) * 1.0
    p.mul_(0)
    assert old.sum().item() == 2.0 * (1 << 14)


def test_a_run_that_fails_changes_nothing():
    table = tilewright.tensor(np.arange(8, dtype=np.float32))
    count = tilewright.zeros(1)
    recording.flush()
    bad = table[tilewright.tensor([9])]
    count.add_(1)
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        bad.tolist()
    with pytest.raises(IndexError):
        bad.tolist()
    del bad
    assert count.tolist() == [1.0]


def test_batches_at_changing_places_are_one_plan():
    data = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    for source in (tilewright.tensor(data), tilewright.from_numpy(data)):
        weight = tilewright.ones(4, requires_grad=True)
        before = len(tiers.plans())
        for i in range(0, 100, 10):
            loss = ((source[i : i + 10] * weight) ** 2).sum()
            loss.backward()
            np.testing.assert_allclose(loss.item(), (data[i : i + 10] ** 2).sum(), rtol=1e-5)
            weight.grad = None
        assert len(tiers.plans()) - before <= 3


def test_a_part_that_was_read_alone_sees_later_writes():
    base = tilewright.zeros(10, 4)
    recording.flush()
    part = base[2:4]
    early = part + 1
    base.add_(5)
    late = part + 1
    part.mul_(2)
    assert (early.sum().item(), late.sum().item()) == (8.0, 48.0)
    assert base.sum().item() == 8 * 4 * 5 + 2 * 4 * 10
    assert part.tolist() == [[10.0] * 4] * 2


def test_a_launch_that_fails_among_many_made_by_one_call():
    x, at = tilewright.ones(5), tilewright.tensor([0, 7])
    recording.flush()
    before, wrong, after = x.cumsum(0) + 1, x[at] * 3, (x * 4).softmax(0)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        recording.flush()
    assert before.tolist() == [2, 3, 4, 5, 6]
    np.testing.assert_allclose(after.tolist(), [0.2] * 5, rtol=1e-6)
    with pytest.raises(IndexError, match="index 7"):
        wrong.tolist()
    if devices.get("cpu").runs(tiers.plans()[-1].segments[0].launches):
        assert tiers.plans()[-1].segments[0].runs


def test_large_memory_begins_at_a_cache_line() -> None:
    """Results, copies, and what is made of arrays; free memory is handed out again."""
    x = tilewright.tensor(np.ones(100_000, np.float32))
    total = x + 1
    copied = total.clone()
    recording.flush()
    assert not any(t._buffer.ctypes.data % 64 for t in (x, total, copied))
    assert x.numpy() is not x._buffer and np.shares_memory(x.numpy(), x._buffer)
    device = devices.get("cpu")
    first = device.empty((50_000,), tilewright.float32)
    address = first.ctypes.data
    assert device.empty((50_000,), tilewright.float32).ctypes.data != address
    del first
    assert device.empty((50_000,), tilewright.float32).ctypes.data == address
