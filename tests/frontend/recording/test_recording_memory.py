"""What recording keeps alive: results, memory that is overwritten, tables."""

from __future__ import annotations

import gc
import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import recording
from tilewright.ir import node as graph
from tilewright.recording import epoch, flushing, viewing, views
from tilewright.runtime import tiers

pytestmark = pytest.mark.usefixtures("fresh_tables")


def test_memory_is_overwritten_only_with_a_single_owner() -> None:
    w = tw.zeros(4)
    recording.flush()
    alias, kept = w.detach(), w.clone()
    array = w.numpy()
    recording.flush()
    w += 1
    assert kept.tolist() == [0] * 4 and alias.tolist() == [1] * 4 and array.tolist() == [1] * 4
    x = tw.arange(3.0)
    y = x.clone()
    recording.flush()
    x.mul_(2)
    z = x * 1
    recording.flush()
    x.mul_(2)
    recording.flush()
    assert (x.tolist(), y.tolist(), z.tolist()) == ([0, 4, 8], [0, 1, 2], [0, 2, 4])


@pytest.mark.usefixtures("fused")
def test_an_update_really_is_in_place() -> None:
    w = tw.zeros(1000) + 1
    recording.flush()
    where = w._buffer.__array_interface__["data"][0]
    for _ in range(3):
        w.sub_(0.5)
        recording.flush()
    assert w._buffer.__array_interface__["data"][0] == where


def test_handles_kept_by_accident() -> None:
    w = tw.ones(3, requires_grad=True)
    kept: list[Any] = []
    for k in range(6):
        h = w * 2
        e = h.exp()
        loss = (e * h).sum()
        kept = [h, e][: k % 3]
        loss.backward()
        assert w.grad[0].item() == pytest.approx(math.exp(2) * 2 + 4 * math.exp(2), rel=1e-6)
        w.grad = None
        del h, e, loss
    assert len(kept) == 2 and kept[0].tolist() == [2] * 3


def test_a_flush_keeps_what_backward_needs() -> None:
    w = tw.ones(3, requires_grad=True)
    h = w.exp()
    loss = (h * h).sum()
    del h
    assert loss.item() == pytest.approx(3 * math.e**2, rel=1e-6)
    loss.backward()
    assert w.grad.tolist() == pytest.approx([2 * math.e**2] * 3, rel=1e-6)


def test_everything_pending_is_computed_at_a_read() -> None:
    xs = [tw.ones(2) * k for k in range(5)]
    assert xs[3].tolist() == [3, 3]
    assert all(x._node is None and x._buffer is not None for x in xs)


def test_dropped_results_are_not_computed() -> None:
    x = tw.ones(3)
    recording.flush()
    y = x.exp()
    z = y + 1
    del y
    w = x * 2
    w.add_(1)
    del w
    gc.collect()
    live, _ = flushing._live()
    assert live == [z] or [id(t) for t in live] == [id(z)]


def test_leaves_that_a_module_has_lost_are_not_computed() -> None:
    """As parameters that go to the meta device when they are registered. No machine holds these."""
    kept = []
    for _ in range(3):
        made = tw.nn.Parameter(tw.empty(1 << 48))
        kept.append(tw.nn.Parameter(made.to("meta")))
        del made
    assert tw.ones(2).sum().item() == 2
    assert all(p.is_meta and p.requires_grad and p.is_leaf for p in kept)


def test_a_leaf_that_only_its_history_knows_is_computed() -> None:
    leaf = tw.nn.Parameter(tw.full((2,), 3.0))
    square = leaf * leaf
    node = square.grad_fn
    del leaf
    assert square.tolist() == [9, 9]
    square.sum().backward()
    found = node.next_functions[0][0].variable
    assert found.tolist() == [3, 3] and found.grad.tolist() == [6, 6]


def test_tables_are_cleared_past_a_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(flushing, "TABLE_LIMIT", 300)
    w = tw.ones(3, requires_grad=True)
    kept = (w * 5).exp()
    sizes = []
    for n in range(1, 300):
        x = tw.arange(float(n)) * n
        assert x.sum().item() == n * n * (n - 1) / 2
        sizes.append(graph.table_size())
    # They are looked at every so many epochs, and grow by what one epoch has until then.
    each = max(b - a for a, b in itertools.pairwise(sizes))
    assert max(sizes) <= 3 * 300 + flushing.CHECKED * each < len(sizes) * each
    kept.sum().backward()
    assert w.grad[0].item() == pytest.approx(5 * math.exp(5), rel=1e-6)


@pytest.mark.slow
def test_a_loop_that_reads_nothing_is_bounded_in_memory() -> None:
    x = tw.zeros(10)
    for _ in range(5000):
        x = x * 0.5 + 1
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(8_000):
        x = x * 0.5 + 1
        assert len(recording.handles) <= epoch.clock.limit + 1
    gc.collect()
    recording.flush()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 12 << 20, grown
    assert x.tolist() == pytest.approx([2] * 10)


def test_dead_batches_are_let_go(monkeypatch: Any) -> None:
    monkeypatch.setattr(epoch, "BYTES", 1 << 20)
    epoch.clock.checked_bytes = epoch.BYTES
    total = tw.zeros(())
    for _ in range(100):
        batch = tw.tensor(np.ones(20_000))  # 160 kB each
        total = total + batch.sum()
        held = sum(b.nbytes for _, _, b in recording.leaves)
        assert held < 4 << 20
    assert total.item() == 2_000_000
    assert epoch.clock.usual_limit == epoch.clock.limit


def test_slices_at_ever_new_places_need_no_more_memory(monkeypatch: Any) -> None:
    monkeypatch.setattr(views, "REMEMBERED", 50)
    data = tw.arange(400.0)
    data.sum().item()
    for i in range(300):
        assert data[i : i + 2].tolist() == [i, i + 1]
    assert len(views._chains) <= 50 and len(viewing._unread_chains) <= 50


@pytest.mark.slow
def test_ten_thousand_steps_need_no_more_memory(fused: None) -> None:
    """Batches at new places, changing learning rates and numbers, values read and not read."""
    from tilewright import nn, optim

    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 1))
    optimizer = optim.Adam(net.parameters())
    data = tw.rand(1000, 3)
    seen = []

    def steps(first: int, last: int) -> tuple[int, ...]:
        for i in range(first, last):
            batch = data[i % 900 : i % 900 + 8]
            loss = (net(batch) - i % 7 * 0.1).square().mean()
            loss.backward()
            optimizer.param_groups[0]["lr"] = 1e-3 / (1 + i)
            optimizer.step()
            optimizer.zero_grad()
            if i % 3 == 0:
                loss.item()
        recording.flush()
        gc.collect()
        sizes = [len(t) for t in (*epoch.tables.values(), epoch.leaf_nodes, epoch.scalar_nodes)]
        return (*sizes, len(views._chains), len(flushing._outcomes), len(tiers.plans()))

    steps(0, 1000)
    tracemalloc.start()
    try:
        seen.append(steps(1000, 1500))
        used, _ = tracemalloc.get_traced_memory()
        seen.append(steps(1500, 10_000))
        assert tracemalloc.get_traced_memory()[0] < used + 100_000
    finally:
        tracemalloc.stop()
    assert seen[0] == seen[1]


def test_a_large_step_that_repeats_keeps_its_nodes(monkeypatch: Any) -> None:
    monkeypatch.setattr(flushing, "TABLE_LIMIT", 300)
    recording.clear_tables()
    x = tw.ones(3)

    def step() -> None:
        for n in range(1, 100):
            (x * n).add_(1)

    for _ in range(4):
        step()
        recording.flush()
    made = graph.table_size()
    assert made > 300
    nodes = []
    for _ in range(3 * flushing.CHECKED):
        step()
        recording.flush()
        nodes.append(graph.table_size())
    assert set(nodes) == {made}


@pytest.mark.slow
def test_nodes_of_shapes_that_are_over_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(flushing, "TABLE_LIMIT", 2000)
    w = tw.ones(3, 2, requires_grad=True)
    largest = 0
    for size in range(1, 400):
        (tw.ones(size, 3) @ w).relu().sum().backward()
        assert w.grad.sum().item() == 6 * size
        w.grad = None
        entries = sum(map(len, (*epoch.tables.values(), epoch.latest_nodes)))
        largest = max(largest, entries + graph.table_size())
    assert largest < 3 * 2000
