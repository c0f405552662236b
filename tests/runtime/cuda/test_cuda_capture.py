"""torch.cuda.CUDAGraph: what a capture records, and what each replay computes anew."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, installed
from networks import values

import tilewright as tw
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright.recording import clock

pytestmark = pytest.mark.triton


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed() as driver:
        yield driver


def on_device(*shape: int, seed: int = 0) -> tw.Tensor:
    return tw.tensor(values(*shape, seed=seed), device="cuda")


def chain(x: Any) -> Any:
    """Three launches at least."""
    return (x @ x.T).softmax(0).cumsum(1) @ x


def reference(x: np.ndarray) -> np.ndarray:
    scores = np.exp((x @ x.T).astype(np.float64))
    return np.cumsum(scores / scores.sum(0), 1) @ x


def captured(call: Callable[[], Any], **options: Any) -> tuple[tw.cuda.CUDAGraph, Any]:
    graph = tw.cuda.CUDAGraph()
    with tw.cuda.graph(graph, **options):
        out = call()
    return graph, out


def address(t: Any) -> int:
    return (t._storage or t)._buffer.pointer


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        found.detach().cpu().numpy(), expected, rtol=tolerance, atol=tolerance
    )


# ---- replays -----------------------------------------------------------------------------------


def test_a_replay_computes_on_what_the_inputs_hold(fake: FakeCuda) -> None:
    x = on_device(6, 4)
    tw.cuda.synchronize()
    assert not tw.cuda.is_current_stream_capturing()
    graph = tw.cuda.CUDAGraph()
    with tw.cuda.graph(graph):
        assert tw.cuda.is_current_stream_capturing()
        y = chain(x)
    assert not tw.cuda.is_current_stream_capturing()
    assert not fake.launches and not fake.graph_launches
    place, view = address(y), y[1:, ::2]
    for seed in range(4):
        x.copy_(tw.tensor(values(6, 4, seed=seed)))
        graph.replay()
        close(y, reference(values(6, 4, seed=seed)))
        close(view, reference(values(6, 4, seed=seed))[1:, ::2])
        assert address(y) == place
    assert fake.graph_launches == 4, "from the first one on"
    updates = fake.updates
    graph.replay()
    assert fake.updates == updates, "where nothing moved nothing is set anew"


def test_results_of_few_launches(fake: FakeCuda) -> None:
    x = on_device(3)
    graph, y = captured(lambda: x * 2)
    graph.replay()
    close(y, values(3) * 2)


def test_in_place_changes_are_made_by_replays_only(fake: FakeCuda) -> None:
    count, total = tw.zeros(2, device="cuda"), on_device(3, 3)
    row = total[1]

    def call() -> tw.Tensor:
        count.add_(1)
        row.mul_(2)
        total.copy_(chain(total))
        return total.sum() + count[0]

    graph, out = captured(call)
    close(count, [0, 0])
    close(total, values(3, 3))
    expected = values(3, 3).astype(np.float64)
    for step in range(1, 4):
        graph.replay()
        expected[1] *= 2
        expected = reference(expected)
        close(count, [step] * 2)
        close(total, expected, 1e-4)
        close(row, expected[1], 1e-4)
        close(out, expected.sum() + step, 1e-4)


def training(
    graphed: bool, kind: str, **options: Any
) -> tuple[list[float], dict[str, Any], dict[str, Any]]:
    tw.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 4)
    ).cuda()
    optimizer = getattr(tw.optim, kind)(model.parameters(), **options)
    x, y = tw.zeros(5, 8, device="cuda"), tw.zeros(5, 4, device="cuda")

    def step() -> tw.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = []
    graph, loss = captured(step) if graphed else (None, None)
    for seed in range(5):
        x.copy_(tw.tensor(values(5, 8, seed=seed)))
        y.copy_(tw.tensor(values(5, 4, seed=seed + 50)))
        if graph is None:
            loss = step()
        else:
            graph.replay()
        assert loss is not None
        losses.append(loss.item())
    weights = {k: v.cpu().numpy() for k, v in model.state_dict().items()}
    state = {
        f"{number} {name}": value.cpu().numpy()
        for number, each in optimizer.state_dict()["state"].items()
        for name, value in each.items()
    }
    return losses, weights, state


@pytest.mark.parametrize(
    "kind, options",
    [
        ("Adam", {"lr": 0.05, "capturable": True}),
        ("Rprop", {}),
        *(
            pytest.param(kind, options, marks=pytest.mark.slow)
            for kind, options in {
                "AdamW": {"lr": 0.05, "amsgrad": True},
                "SGD": {"lr": 0.1, "momentum": 0.9},
                "Adagrad": {"lr": 0.1, "lr_decay": 0.1},
                "RMSprop": {"momentum": 0.5, "centered": True},
                "NAdam": {"lr": 0.05},
                "RAdam": {"betas": (0.9, 0.7)},
            }.items()
        ),
    ],
)
def test_a_training_step(kind: str, options: dict[str, Any]) -> None:
    """Each replay is one more step: other dropout, another step count, statistics that go on."""
    with installed() as fake:
        losses, weights, state = training(True, kind, **options)
        assert fake.graph_launches == 5
    with installed():
        plain_losses, plain_weights, plain_state = training(False, kind, **options)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
    for name, value in weights.items():
        np.testing.assert_allclose(value, plain_weights[name], rtol=1e-4, atol=1e-6)
    assert state.keys() == plain_state.keys()
    for name, value in state.items():
        np.testing.assert_allclose(value, plain_state[name], rtol=1e-4, atol=1e-6)


def test_a_learning_rate_is_captured_unless_it_is_in_a_tensor(fake: FakeCuda) -> None:
    for rate, expected in ((0.5, 0.5), (tw.tensor(0.5), 0.25)):
        p = nn.Parameter(tw.zeros(3, device="cuda"))
        optimizer = tw.optim.SGD([p], lr=rate)

        def step(p: Any = p, optimizer: Any = optimizer) -> None:
            p.grad = None
            p.sum().backward()
            optimizer.step()

        graph, _ = captured(step)
        graph.replay()
        close(p, [-0.5] * 3)
        if isinstance(rate, tw.Tensor):
            rate.fill_(0.25)
        else:
            optimizer.param_groups[0]["lr"] = 0.25
        graph.replay()
        close(p, [-0.5 - expected] * 3)


def test_gradients_accumulate_in_place(fake: FakeCuda) -> None:
    x, w = on_device(4, 3), nn.Parameter(on_device(3, 2, seed=1))
    w.grad = tw.ones(3, 2, device="cuda")
    graph, _ = captured(lambda: (x @ w).square().sum().backward())
    close(w.grad, np.ones((3, 2)))
    each = 2 * values(4, 3).T @ (values(4, 3) @ values(3, 2, seed=1))
    for count in (1, 2):
        graph.replay()
        close(w.grad, 1 + count * each, 1e-4)


# ---- random numbers ----------------------------------------------------------------------------


def test_each_replay_draws_other_numbers(fake: FakeCuda) -> None:
    def draw() -> list[tw.Tensor]:
        return [F.dropout(tw.ones(64, device="cuda")), tw.randn(5, device="cuda")]

    tw.manual_seed(5)
    expected = [[t.cpu().numpy() for t in draw()] for _ in range(3)]
    tw.manual_seed(5)
    graph, out = captured(draw)
    for each in expected:
        graph.replay()
        for found, wanted in zip(out, each, strict=True):
            np.testing.assert_array_equal(found.cpu().numpy(), wanted)
    assert not np.array_equal(expected[0][0], expected[1][0])
    tw.manual_seed(5)  # replays follow the generator
    graph.replay()
    np.testing.assert_array_equal(out[1].cpu().numpy(), expected[0][1])


def test_a_generator_of_ones_own(fake: FakeCuda) -> None:
    own = tw.Generator("cuda").manual_seed(9)
    expected = [tw.rand(4, device="cuda", generator=own).cpu().numpy() for _ in range(2)]
    own.manual_seed(9)
    graph = tw.cuda.CUDAGraph()
    graph.register_generator_state(own)
    with tw.cuda.graph(graph):
        out = tw.rand(4, device="cuda", generator=own)
    for each in expected:
        graph.replay()
        np.testing.assert_array_equal(out.cpu().numpy(), each)


# ---- memory ------------------------------------------------------------------------------------


def test_results_stay_the_graphs(fake: FakeCuda) -> None:
    """Writing to a result, dropping it, or other work in between: none of it meets a replay."""
    x = on_device(6, 4)
    graph, (y, z) = captured(lambda: (chain(x), x + 1))
    graph.replay()
    y.zero_()
    y += 1
    close(y, np.ones((6, 4)))
    kept = z.detach()
    del z
    for seed in range(3):
        chain(on_device(6, 4, seed=seed)).cpu()
    graph.replay()
    close(y, reference(values(6, 4)))
    close(kept, values(6, 4) + 1)


def test_memory_ends_with_the_graph(fake: FakeCuda) -> None:
    x = on_device(64, 64)
    before = tw.cuda.memory_allocated()
    graph, y = captured(lambda: (x + 1, x * 2))
    graph.replay()
    assert tw.cuda.memory_allocated() - before == 2 * 64 * 64 * 4
    del y
    gc.collect()
    assert tw.cuda.memory_allocated() - before == 2 * 64 * 64 * 4
    graph.reset()
    gc.collect()
    assert tw.cuda.memory_allocated() == before


def test_graphs_that_follow_each_other_share_a_pool(fake: FakeCuda) -> None:
    x = on_device(6, 4)
    pool = tw.cuda.graph_pool_handle()
    assert pool != tw.cuda.graph_pool_handle()
    first, y = captured(lambda: chain(x), pool=pool)
    assert first.pool() == pool
    second, z = captured(lambda: chain(y) + x, pool=first.pool())
    for seed in (1, 2):
        x.copy_(tw.tensor(values(6, 4, seed=seed)))
        first.replay()
        second.replay()
        y_now = reference(values(6, 4, seed=seed))
        close(z, reference(y_now) + values(6, 4, seed=seed), 1e-4)


def test_a_graph_knows_memory_not_tensors(fake: FakeCuda) -> None:
    w = nn.Parameter(on_device(3))
    alias = w.detach()
    graph, y = captured(lambda: w * 2)
    w.data = on_device(3, seed=1)
    alias.fill_(4.0)
    graph.replay()
    close(y, [8.0] * 3)
    held = [alias]
    graph, y = captured(lambda: held.pop().detach()[1:] * 2)
    del alias
    graph.replay()
    close(y, [8.0] * 2)


def test_odd_results(fake: FakeCuda) -> None:
    """One value twice, an input, views of each other, none or one element, several dtypes."""
    x = on_device(4, 6)
    ints = tw.arange(4, device="cuda")

    def call() -> list[tw.Tensor]:
        y = x + 1
        return [
            y, x + 1, x.clone(), y[2:], y.T, x.sum(), x[:0] * 2, ints * 3, x > 0,
            x.bfloat16() + 1, tw.full((2,), 7.0, device="cuda"), x.reshape(-1)[3:9], x.detach(),
        ]  # fmt: skip

    graph, out = captured(call)
    for seed in (1, 2, 3):
        x.copy_(tw.tensor(values(4, 6, seed=seed)))
        ints += 1
        graph.replay()
        expected = [t.cpu() for t in call()]
        for found, wanted in zip(out, expected, strict=True):
            assert found.dtype is wanted.dtype and found.shape == wanted.shape
            np.testing.assert_array_equal(found.cpu().float().numpy(), wanted.float().numpy())
        out[1].zero_()  # in memory of its own
        close(out[0], values(4, 6, seed=seed) + 1)


STEPS: list[Callable[[Any, Any, list[Any]], Any]] = [
    lambda a, b, out: a.add_(b),
    lambda a, b, out: a.mul_(0.5),
    lambda a, b, out: a.copy_(b),
    lambda a, b, out: a[1:].add_(b[:3]),
    lambda a, b, out: a[:, 0].fill_(0.25),
    lambda a, b, out: a.view(-1)[2:9].mul_(b.view(-1)[:7]),
    lambda a, b, out: a.t().sub_(b.mean(0).unsqueeze(1)),
    lambda a, b, out: b.tanh_(),
    lambda a, b, out: a.copy_((a @ b.t()).softmax(1) @ b),
    lambda a, b, out: out.append(a + b),
    lambda a, b, out: out.append(a[::2]),
    lambda a, b, out: out.append(a.sum()),
    lambda a, b, out: out.append(a.clone()),
    lambda a, b, out: out[-1].mul_(2) if out and out[-1].dim() else None,
    lambda a, b, out: out.append(out[0].cumsum(-1)) if out else None,
]


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(torch: Any, fake: FakeCuda, seed: int) -> None:
    """Replays leave in all tensors what PyTorch's calls leave in them."""
    rng = np.random.default_rng(seed)
    program = [(rng.integers(len(STEPS)), *rng.choice(3, 2, replace=False)) for _ in range(12)]

    def run(env: list[Any]) -> list[Any]:
        out: list[Any] = []
        for step, a, b in program:
            STEPS[step](env[a], env[b], out)
        return out

    arrays = [values(4, 3, seed=i) for i in range(3)]
    ours = [tw.tensor(a, device="cuda") for a in arrays]
    theirs = [torch.tensor(a) for a in arrays]
    graph, out = captured(lambda: run(ours))
    for a, b in zip(ours, arrays, strict=True):
        close(a, b)
    for replay in range(4):
        expected = run(theirs)
        graph.replay()
        for found, wanted in zip([*out, *ours], [*expected, *theirs], strict=True):
            close(found, wanted.numpy(), 1e-4)
        if replay == 1:  # and calls in between
            for env in (ours, theirs):
                env[0].mul_(0.5)


def test_backward_of_what_was_replayed(fake: FakeCuda) -> None:
    """A capture of a forward pass alone: gradients are those of the last replay, with its mask."""
    x, w = on_device(4, 3), nn.Parameter(on_device(3, 2, seed=1))

    def forward() -> tw.Tensor:
        return F.dropout((x @ w).tanh(), 0.5)

    graph, y = captured(forward)
    for seed in (1, 2):
        tw.manual_seed(seed)
        expected = forward()
        (grad,) = tw.autograd.grad(expected.square().sum(), w)
        tw.manual_seed(seed)
        graph.replay()
        (found,) = tw.autograd.grad(y.square().sum(), w, retain_graph=True)
        close(y, expected.detach().cpu().numpy())
        close(found, grad.cpu().numpy())


def test_backward_in_a_graph_of_its_own(fake: FakeCuda) -> None:
    """What the first graph saved is that of one replay; both in one graph are captured."""
    x, w = on_device(4, 3), nn.Parameter(on_device(3, 2, seed=1))
    graph, y = captured(lambda: (x @ w).tanh())
    graph.replay()
    with pytest.raises(RuntimeError, match="Capture both in one graph"):
        captured(lambda: tw.autograd.grad(y.square().sum(), w, retain_graph=True))
    (grad,) = tw.autograd.grad(y.square().sum(), w)
    values = np.tanh(x.cpu().numpy() @ w.detach().cpu().numpy())
    close(grad, x.cpu().numpy().T @ (2 * values * (1 - values**2)))


# ---- what else a block may hold ----------------------------------------------------------------


def test_more_calls_than_an_epoch_takes(fake: FakeCuda) -> None:
    x = on_device(3)

    def call() -> tw.Tensor:
        y = x
        for _ in range(2500):
            y = (y + 1) - 1.5
        return y

    graph, y = captured(call)
    graph.replay()
    close(y, values(3) - 1250.0, 1e-4)


def test_work_of_the_host_is_done_at_once(fake: FakeCuda) -> None:
    """As in PyTorch it is no part of a graph; what a graph reads there it reads at each replay."""
    x, host = on_device(3), tw.ones(3)
    seen = []

    def call() -> list[tw.Tensor]:
        ready = tw.arange(3) + host
        seen.append(ready.tolist())
        return [ready, x * host.cuda(), tw.tensor([1.0, 2.0, 3.0], device="cuda") + x]

    graph, (ready, y, z) = captured(call)
    assert seen == [[1, 2, 3]] and ready.tolist() == [1, 2, 3]
    for factor in (2.0, 3.0):
        host.fill_(factor)
        graph.replay()
        close(y, values(3) * factor)
        close(z, values(3) + np.arange(1, 4))


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_streams(seed: int | None) -> None:
    """Replays in several streams, whatever the order in which these are served."""
    with installed(seed=seed):
        _replays_in_streams()


def _replays_in_streams() -> None:
    x = on_device(6, 4)
    side, other = tw.cuda.Stream(), tw.cuda.Stream()

    def call() -> tw.Tensor:
        assert tw.cuda.current_stream() == side
        other.wait_stream(side)
        with tw.cuda.stream(other):
            y = chain(x)
        side.wait_stream(other)
        return y + 1

    graph, y = captured(call, stream=side)
    assert tw.cuda.current_stream() == tw.cuda.default_stream()
    for seed, stream in enumerate((None, other, side)):
        x.copy_(tw.tensor(values(6, 4, seed=seed)))
        with tw.cuda.stream(stream):
            graph.replay()
        close(y, reference(values(6, 4, seed=seed)) + 1)


def test_begin_and_end(fake: FakeCuda) -> None:
    x = on_device(3)
    graph = tw.cuda.CUDAGraph()
    graph.capture_begin()
    y = x + 1
    graph.capture_end()
    graph.instantiate()
    graph.replay()
    close(y, values(3) + 1)
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        graph.capture_begin()
    graph.reset()
    close(y, values(3) + 1)
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with tw.cuda.graph(graph):
        z = x * 3
    graph.replay()
    close(z, values(3) * 3)


def test_two_devices() -> None:
    with installed(devices=2):
        x = on_device(3)
        graph, y = captured(lambda: (x + 1).to("cuda:1") * 2)
        for seed in (1, 2):
            x.copy_(tw.tensor(values(3, seed=seed)))
            graph.replay()
            close(y, (values(3, seed=seed) + 1) * 2)


def test_run_op_by_op(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "limit", 0)
    monkeypatch.setattr(clock, "usual_limit", 0)
    x = on_device(6, 4)
    graph, y = captured(lambda: chain(x))
    graph.replay()
    close(y, reference(values(6, 4)))


# ---- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        lambda y, x: y.sum().item(),
        lambda y, x: x.sum().item(),
        lambda y, x: x[0, 0].item(),
        lambda y, x: print(y),
        lambda y, x: bool((y > 0).any()),
        lambda y, x: y.cpu().numpy(),
        lambda y, x: y.cpu(),
        lambda y, x: y.to("cpu", non_blocking=True),
        lambda y, x: x.tolist(),
        lambda y, x: tw.cuda.synchronize(),
        lambda y, x: tw.cuda.current_stream().synchronize(),
        lambda y, x: y.nonzero(),
        lambda y, x: tw.manual_seed(1),
    ],
)
def test_what_a_capture_refuses(fake: FakeCuda, look: Callable[[Any, Any], Any]) -> None:
    x, count = on_device(6, 4), tw.zeros(1, device="cuda")
    p = nn.Parameter(on_device(2))
    optimizer = tw.optim.Adam([p])
    p.grad = tw.ones(2, device="cuda")
    optimizer.step()
    tw.manual_seed(2)
    graph = tw.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match=r"captur(ing|ed).*, at .*test_cuda_capture.py"),
        tw.cuda.graph(graph),
    ):
        y = chain(x) + tw.randn(4, device="cuda")
        count.add_(1)
        optimizer.step()
        kept = look(y, x)  # noqa: F841
    assert not tw.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    # Nothing has happened.
    assert count.item() == 0 and optimizer.state[p]["step"] == 1
    close(chain(x), reference(values(6, 4)))
    with tw.cuda.graph(graph):
        y = chain(x)
    graph.replay()
    close(y, reference(values(6, 4)))


def test_draws_of_an_abandoned_capture_are_given_back(fake: FakeCuda) -> None:
    tw.manual_seed(2)
    expected = tw.randn(4).tolist()
    tw.manual_seed(2)
    with pytest.raises(ZeroDivisionError), tw.cuda.graph(tw.cuda.CUDAGraph()):
        tw.randn(4, device="cuda")
        _ = 1 / 0
    assert tw.randn(4).tolist() == expected


def test_captures_and_replays_inside_a_capture(fake: FakeCuda) -> None:
    x = on_device(3)
    graph, _ = captured(lambda: x + 1)
    with pytest.raises(RuntimeError, match="under way already"), tw.cuda.graph(tw.cuda.CUDAGraph()):
        captured(lambda: x + 1)
    with pytest.raises(RuntimeError, match="can't be called in a capture"):
        captured(graph.replay)
    assert not tw.cuda.is_current_stream_capturing()
    graph.replay()


def test_what_the_host_changes_in_a_capture(fake: FakeCuda) -> None:
    x = on_device(3)
    with pytest.raises(RuntimeError, match="host is changed in a capture"):
        host = tw.ones(3)
        captured(lambda: x * host.add_(1).cuda())
    assert host.tolist() == [1, 1, 1]


def test_an_empty_capture_warns(fake: FakeCuda) -> None:
    graph = tw.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"), tw.cuda.graph(graph):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()


def test_positions_out_of_range_are_told(fake: FakeCuda) -> None:
    table, at = on_device(6, 4), tw.tensor([0, 5, 1], device="cuda")
    graph, y = captured(lambda: chain(table[at]))
    graph.replay()
    close(y, reference(values(6, 4)[[0, 5, 1]]))
    at.fill_(6)
    graph.replay()
    with pytest.raises(IndexError, match="index 6 is out of bounds for dimension 0 with size 6"):
        tw.cuda.synchronize()
    at.fill_(2)
    graph.replay()
    close(y, reference(values(6, 4)[[2, 2, 2]]))


def test_a_graph_of_an_accelerator_records_as_a_block(fake: FakeCuda) -> None:
    first = tw.accelerator.Graph()
    x = on_device(6, 4)
    with first:
        y = chain(x)
    graph = tw.accelerator.Graph(pool=first.pool(), capture_error_mode="relaxed")
    with graph:
        z = chain(y)
    assert graph.pool() == first.pool()
    for seed in range(2):
        x.copy_(tw.tensor(values(6, 4, seed=seed)))
        first.replay()
        graph.replay()
        close(z, reference(reference(values(6, 4, seed=seed))))
    with pytest.raises(ZeroDivisionError), tw.accelerator.Graph():
        chain(x / (1 // 0))
    assert not tw.cuda.is_current_stream_capturing()


def test_without_a_gpu() -> None:
    if tw.cuda.is_available():
        pytest.skip("there is one")
    assert not tw.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="No CUDA GPUs are available"):
        tw.cuda.CUDAGraph()


# ---- make_graphed_callables --------------------------------------------------------------------


def test_graphed_callables(fake: FakeCuda) -> None:
    tw.manual_seed(0)
    model, twin = nn.Linear(4, 3).cuda(), nn.Linear(4, 3).cuda()
    twin.load_state_dict(model.state_dict())

    def loss_of(y: Any, target: Any) -> Any:
        return (y - target).square().mean()

    x, target = on_device(5, 4), on_device(5, 3, seed=1)
    graphed, loss_fn = tw.cuda.make_graphed_callables((model, loss_of), ((x,), (target, target)))
    assert graphed is model and not fake.launches
    optimizers = [tw.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin)]
    for seed in range(8):
        x, target = on_device(5, 4, seed=seed), on_device(5, 3, seed=seed + 20)
        losses = []
        for m, fn, optimizer in zip((graphed, twin), (loss_fn, F.mse_loss), optimizers):
            optimizer.zero_grad()
            loss = fn(m(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert loss_fn.replays and model.forward.replays, "later calls don't run their Python"


def test_what_can_be_graphed() -> None:
    hooked, model = nn.Linear(2, 2), nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    x = tw.ones(1, 2)
    with pytest.raises(AssertionError, match="must not have hooks"):
        tw.cuda.make_graphed_callables(hooked, (x,))
    with pytest.raises(AssertionError, match="must contain only Tensors"):
        tw.cuda.make_graphed_callables(model, (1.0,))
    model.register_buffer("b", tw.ones(1, requires_grad=True))
    with pytest.raises(AssertionError, match="only parameters may be trainable"):
        tw.cuda.make_graphed_callables(model, (x,))
