"""Plans that repeat as CUDA graphs: what changes between two launches of one, and what must not."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from chains import chain, reference
from fake_cuda import FakeCuda, installed
from networks import values

import tilewright
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright import recording
from tilewright.runtime.cuda import graphs
from tilewright.runtime.cuda.graphs import WARM

pytestmark = pytest.mark.triton


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed() as driver:
        yield driver


def on_device(*shape: int, seed: int = 0) -> tilewright.Tensor:
    return tilewright.tensor(values(*shape, seed=seed), device="cuda")


def test_a_plan_becomes_a_graph_when_it_repeats(fake: FakeCuda) -> None:
    x = on_device(6, 4)
    for run in range(1, WARM + 4):
        np.testing.assert_allclose(
            chain(x).cpu().numpy(), reference(values(6, 4)), rtol=1e-5, atol=1e-6
        )
        assert fake.graph_launches == max(0, run - WARM)
    assert fake.calls["cuGraphInstantiateWithFlags"] == 1


def test_the_same_buffers_need_no_update(fake: FakeCuda) -> None:
    """Weights and temporaries stay where they are; only what is handed out is elsewhere."""
    x = on_device(6, 4)
    kept = []
    for _ in range(WARM + 3):
        kept.append(chain(x))
        tilewright.cuda.synchronize()
    nodes = fake.calls["cuGraphAddKernelNode_v2"]
    assert nodes >= 3 and fake.updates == 2, "one launch writes the result"
    for y in kept:
        np.testing.assert_allclose(y.cpu().numpy(), reference(values(6, 4)), rtol=1e-5, atol=1e-6)


def test_changed_inputs(fake: FakeCuda) -> None:
    for seed in range(WARM + 3):
        x = on_device(6, 4, seed=seed)
        y = chain(x)
        np.testing.assert_allclose(
            y.cpu().numpy(), reference(values(6, 4, seed=seed)), rtol=1e-5, atol=1e-6
        )
    assert fake.graph_launches == 3


def test_changed_numbers(fake: FakeCuda) -> None:
    """A float that changes is bound at each run; zeros have signs, and a NaN is a number too."""
    x = on_device(6, 4)
    for factor in (0.5, 0.25, 0.125, 2.0, 3.0, 0.75, 1.5):
        np.testing.assert_allclose(
            chain(x, factor).cpu().numpy(), reference(values(6, 4), factor), rtol=1e-5, atol=1e-5
        )
    assert fake.graph_launches
    zero = tilewright.zeros(6, 4, device="cuda")
    for factor in (1.0, 2.0, 3.0, 4.0, 5.0, -0.0, 0.0, float("nan"), float("nan"), -0.0):
        y = ((zero @ zero.T).cumsum(0) @ zero).copysign(tilewright.tensor(1.0)) * factor
        found = y.cpu().numpy()
        assert np.isnan(found).all() == np.isnan(factor)
        assert (np.signbit(found) == np.signbit(factor)).all() or np.isnan(factor)


def test_random_numbers_go_on(fake: FakeCuda) -> None:
    """The seed and the number of the draw are bound at each run, in a graph as well."""
    x = on_device(6, 4)

    def drawn(device: str) -> list[float]:
        tilewright.manual_seed(7)
        return [F.dropout(chain(x.to(device)), 0.5).count_nonzero().item() for _ in range(WARM + 4)]

    on_gpu = drawn("cuda")
    assert on_gpu == drawn("cpu") and len(set(on_gpu)) > 1
    assert fake.graph_launches >= 3


@pytest.fixture
def no_collector() -> Iterator[None]:
    """No garbage is collected: what a cycle of references holds stays held."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("fresh_tables", "no_collector")
def test_a_training_step_updates_in_place(fake: FakeCuda) -> None:
    """Only launches that meet this step's batch or make a gradient or the loss are set anew. The
    first step, which compiles, leaves nothing behind that refers to the weights' memory."""
    tilewright.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).cuda()
    optimizer = tilewright.optim.Adam(model.parameters())
    addresses = set()
    for seed in range(WARM + 5):
        x, y = on_device(5, 8, seed=seed), on_device(5, 4, seed=seed + 50)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        addresses.add(model[0].weight._buffer.pointer)
    assert fake.graph_launches >= 4
    assert len(addresses) == 1, "weights are written where they are"


def test_a_larger_arena_in_between(fake: FakeCuda) -> None:
    """Another plan that makes the temporaries move."""
    x, large = on_device(6, 4), on_device(70, 8, seed=3)
    for _ in range(WARM + 1):
        chain(x).cpu().numpy()
    np.testing.assert_allclose(
        chain(large).cpu().numpy(), reference(values(70, 8, seed=3)), rtol=2e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        chain(x).cpu().numpy(), reference(values(6, 4)), rtol=1e-5, atol=1e-6
    )


def test_tables_of_addresses_live_with_the_graph(fake: FakeCuda) -> None:
    """One launch for many parameters reads their addresses from a table, a new one each time."""
    tilewright.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4))).cuda()
    twin = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    twin.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
    for seed in range(WARM + 6):
        for each, device in ((model, "cuda"), (twin, "cpu")):
            each(
                tilewright.tensor(values(2, 3, seed=seed), device=device)
            ).square().sum().backward()
            with tilewright.no_grad():
                for p in each.parameters():
                    p.sub_(0.1 * p.grad)
                    p.grad = None
    for p, q in zip(model.parameters(), twin.parameters()):
        np.testing.assert_allclose(
            p.detach().cpu().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-6
        )


def test_errors_in_a_graph_are_told(fake: FakeCuda) -> None:
    table = on_device(6, 4)
    for _ in range(WARM + 2):
        rows = chain(table[tilewright.tensor([0, 5, 1], device="cuda")])
        rows.cpu().numpy()
    assert fake.graph_launches == 2
    rows = chain(table[tilewright.tensor([0, 6, 1], device="cuda")])
    with pytest.raises(IndexError, match=r"index 6 is out of bounds for dimension 0 with size 6"):
        rows.sum().item()
    rows = chain(table[tilewright.tensor([0, 5, 1], device="cuda")])
    np.testing.assert_allclose(
        rows.cpu().numpy(), reference(values(6, 4)[[0, 5, 1]]), rtol=1e-5, atol=1e-6
    )


def test_graphs_end_with_their_plans(
    fake: FakeCuda,
) -> None:
    x = on_device(6, 4)
    for _ in range(WARM + 1):
        chain(x).cpu().numpy()
    recording.clear_tables()
    gc.collect()  # nodes, their plans and what remembers them may be a cycle
    assert fake.calls["cuGraphExecDestroy"] == fake.calls["cuGraphDestroy"] == 1


def test_few_launches_are_no_graph(fake: FakeCuda) -> None:
    x = on_device(6, 4)
    for _ in range(WARM + 2):
        (x + 1).cpu().numpy()
    assert "cuGraphCreate" not in fake.calls


def test_a_loop_of_many_steps_is_no_graph(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_MOST", 20)
    tilewright.manual_seed(0)
    model = nn.RNN(3, 4)
    x = tilewright.tensor(values(30, 1, 3))
    expected = model(x)[0].detach().numpy()
    model.cuda()
    for _ in range(WARM + 2):
        found = model(x.cuda())[0].detach().cpu().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert "cuGraphCreate" not in fake.calls


@pytest.mark.parametrize(
    "name",
    [
        "cuGraphAddKernelNode_v2",
        "cuGraphInstantiateWithFlags",
        "cuGraphExecKernelNodeSetParams_v2",
    ],
)
def test_what_is_refused_as_a_graph_is_launched(
    name: str,
    fake: FakeCuda,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TW_DEBUG", "1")
    fake.refused.add(name)
    for seed in range(WARM + 4):
        x = on_device(6, 4, seed=seed)
        y = chain(x)
        np.testing.assert_allclose(
            y.cpu().numpy(), reference(values(6, 4, seed=seed)), rtol=1e-5, atol=1e-6
        )
    assert fake.calls[name] == 1 and fake.graph_launches <= 1
    assert "not made a graph: CUDA error: couldn't" in capsys.readouterr().err
    made, ended = (fake.calls.get(f"cuGraph{end}", 0) for end in ("Create", "Destroy"))
    assert made == ended == 1
