"""Branches of CUDA graphs: small kernels that share no memory don't wait for each other.

The fake driver runs the nodes of a graph in any order that its edges allow, and finds unordered
accesses to the same memory in all tests of graphs.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import triton_kernels
from fake_cuda import installed
from networks import values

import tilewright
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright.ir import dtype as dt
from tilewright.runtime import devices
from tilewright.runtime.cuda import driver, graphs, image
from tilewright.runtime.cuda.branches import Use, is_new, predecessors, sharing
from tilewright.runtime.cuda.graphs import WARM

pytestmark = pytest.mark.triton
ARENA = SimpleNamespace(pointer=1 << 20)
BLOCKS = [SimpleNamespace(pointer=k << 12) for k in range(6)]


def buffer(draw: random.Random) -> Any:
    """A part of the temporaries, or of a block."""
    if draw.random() < 0.6:
        start, size = draw.randrange(8), draw.randrange(1, 4)
        return SimpleNamespace(memory=ARENA, pointer=ARENA.pointer + start, nbytes=size)
    block = draw.choice(BLOCKS)
    return SimpleNamespace(memory=block, pointer=block.pointer + draw.randrange(8), nbytes=4)


def conflict(a: Use, b: Use) -> bool:
    def meet(x: Any, y: Any) -> bool:
        if x.memory is not y.memory:
            return False
        if x.memory is not ARENA:
            return True
        return x.pointer < y.pointer + y.nbytes and y.pointer < x.pointer + x.nbytes

    if a.fills or b.fills or (a.own is not None and a.own == b.own):
        return True
    return any(
        meet(x, y)
        for mine, theirs in (
            (a.written, (*b.written, *b.read)),
            (a.read, b.written),
        )
        for x in mine
        for y in theirs
    )


@pytest.mark.parametrize("seed", range(60))
def test_exactly_what_conflicts_is_ordered(seed: int) -> None:
    """Edges are the transitive reduction of the conflicts between earlier and later launches."""
    draw = random.Random(seed)
    uses = [
        Use(
            [buffer(draw) for _ in range(draw.randrange(1, 3))],
            [buffer(draw) for _ in range(draw.randrange(3))],
            draw.choice([None, None, None, "a kernel"]),
            draw.random() < 0.1,
        )
        for _ in range(24)
    ]
    expected = nx.DiGraph()
    expected.add_nodes_from(range(24))
    expected.add_edges_from(
        (i, j) for j in range(24) for i in range(j) if conflict(uses[i], uses[j])
    )
    expected = nx.transitive_reduction(expected)
    found: Any = predecessors(uses, ARENA)
    assert [sorted(expected.predecessors(j)) for j in range(24)] == found


def test_what_shares_memory_is_noticed() -> None:
    parts = [SimpleNamespace(memory=BLOCKS[i]) for i in (0, 1, 0, 2)]
    known = sharing(parts)
    assert known == [0, 1, 0, 3]
    parts[3].memory = BLOCKS[1]
    assert is_new(sharing(parts), known) and not is_new(known, sharing(parts))
    parts[2].memory, parts[3].memory = BLOCKS[4], BLOCKS[5]
    assert not is_new(sharing(parts), known)


def longest(fake: Any) -> tuple[int, int]:
    """(kernels, those of the longest way) of the largest graph."""
    from fake_kernels import Ready

    ready = max(
        (h for h in fake._handles.values() if isinstance(h, Ready)), key=lambda r: len(r.launches)
    )
    depth: dict[int, int] = {}
    for node, before in ready.after.items():
        depth[node] = 1 + max((depth[each] for each in before), default=0)
    return len(depth), max(depth.values())


def trained(device: str) -> list[float]:
    tilewright.manual_seed(0)
    towers = nn.ModuleList(
        nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)) for _ in range(3)
    ).to(device)
    optimizer = tilewright.optim.SGD(towers.parameters(), lr=0.1)
    losses = []
    for seed in range(WARM + 3):
        x = tilewright.tensor(values(4, 6, seed=seed), device=device)
        loss = F.mse_loss(sum(t(x).cumsum(0) for t in towers), x[:, :3])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("seed", [None, 3])
def test_towers_are_branches(seed: int | None) -> None:
    """Three networks side by side, their gradients and updates."""
    expected = trained("cpu")
    with installed(seed=seed) as fake:
        np.testing.assert_allclose(trained("cuda"), expected, rtol=1e-5)
        assert fake.graph_launches
        kernels, way = longest(fake)
    assert way < 0.7 * kernels


@pytest.mark.parametrize("branches", [True, False])
def test_kernels_that_fill_a_gpu_are_a_chain(
    branches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "BRANCHES", branches)
    with installed(multiprocessors=1 if branches else 132) as fake:
        trained("cuda")
        kernels, way = longest(fake)
    assert way == kernels


@pytest.mark.parametrize("seed", range(4))
def test_memory_that_comes_to_be_shared_makes_another_graph(seed: int) -> None:
    """Three sums that lie apart from each other in some runs, and of each other in others."""
    kernel = triton_kernels.scan("sum", 2, 5, dt.float32)
    slots = {0: (0, 1), 1: (2, 3), 2: (4, 5)}  # result and operand of each launch
    with installed(seed=seed) as fake:
        card = devices.get("cuda:0")
        launch = card.compile(kernel)
        run = graphs.Replay(card, [(launch, used, ()) for used in slots.values()])
        data = np.random.default_rng(seed).standard_normal((3, 2, 5)).astype(np.float32)

        def ran(chained: bool) -> None:
            inputs = [card.from_numpy(x) for x in data]
            outputs = [card.empty((2, 5), dt.float32) for _ in data]
            if chained:
                inputs[1:] = outputs[:2]
            assert run([b for pair in zip(outputs, inputs) for b in pair], ()) == 3
            sums = [data[0] if chained else x for x in data]
            for i, found in enumerate(outputs):
                expected = sums[i]
                for _ in range(i + 1 if chained else 1):
                    expected = expected.cumsum(1)
                np.testing.assert_allclose(card.to_numpy(found), expected, rtol=1e-4)

        made = []
        for chained in (*[False] * (WARM + 2), True, False, True, True, False):
            ran(chained)
            made.append(fake.calls.get("cuGraphInstantiateWithFlags", 0))
    # The chain suits both forms.
    assert made == [*[0] * WARM, 1, 1, 2, 2, 2, 2, 2]


def test_kernels_start_while_those_ahead_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every edge between kernels that wait by themselves is programmatic; the values are the
    same."""
    expected = trained("cpu")
    monkeypatch.setattr(image, "EARLY", True)
    for has_edges in (True, False):
        with installed(seed=2) as fake:
            if not has_edges:
                monkeypatch.delattr(driver._driver, "cuGraphAddDependencies_v2")
            np.testing.assert_allclose(trained("cuda"), expected, rtol=1e-5)
            kernels, way = longest(fake)
            assert way < kernels and (fake.early >= kernels - 1) == has_edges


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_older_gpus_have_no_early_starts(
    capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "EARLY", True)
    with installed(capability=capability) as fake:
        trained("cuda")
        assert bool(fake.early) == (capability >= (9, 0))
        assert all(("gdc_wait" in n.request.body) == (capability >= (9, 0)) for n in fake.launches)
