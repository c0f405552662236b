"""torch.compile: the same values as without it, whatever changes between calls."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import compiler, nn, optim, recording
from tilewright.ir import reference
from tilewright.ir.op import REGISTRY
from tilewright.nn import functional as F
from tilewright.replay import guards
from tilewright.replay.compiled import SIGNATURES


@pytest.fixture(autouse=True)
def fresh() -> Any:
    recording.flush()
    tw.manual_seed(0)
    yield
    recording.flush()


def count(f: Any) -> int:
    """How many calls of a compiled function were replayed."""
    return (f.dynamo_ctx if isinstance(f, nn.Module) else f).replays


def reasons(f: Any) -> list[str | None]:
    return [
        s.reason for s in (f.dynamo_ctx if isinstance(f, nn.Module) else f)._signatures.values()
    ]


def x_of(*shape: int, seed: int = 0) -> Any:
    return tw.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


class Net(nn.Module):
    def __init__(self, *, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        # A bias before a norm has no gradient but rounding errors, of which Adam makes whole steps.
        self.a, self.b = nn.Linear(4, 8, bias=not norm), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.scale = 1.0
        self.parts = [1.0]

    def forward(self, x: Any) -> Any:
        x = self.dropout(F.relu(self.norm(self.a(x))))
        return self.b(x) * self.scale * self.parts[0]


def trained(compiled: bool, steps: int = 7, **options: Any) -> tuple[Any, Any]:
    """Losses, parameters and buffers after some steps of training."""
    tw.manual_seed(3)
    net = Net(**options)
    run = tw.compile(net, fullgraph=True) if compiled else net
    optimizer = optim.Adam(net.parameters(), lr=0.05)
    losses = []
    for i in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x_of(6, 4, seed=i)), tw.arange(6) % 3)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if compiled:
        assert count(run) == steps - 2
    return losses, {k: v.tolist() for k, v in net.state_dict().items()}


@pytest.mark.parametrize("options", [{}, {"dropout": 0.5}, {"norm": True}])
def test_training_gives_the_same(options: dict[str, Any]) -> None:
    losses, state = trained(True, **options)
    expected, expected_state = trained(False, **options)
    close(losses, expected)
    for name, value in expected_state.items():
        close(state[name], value)


def close(a: Any, b: Any) -> None:
    """Equal up to rounding: leaves are numbered otherwise, so kernels may be cut otherwise."""
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def check(f: Any, g: Any, *calls: Any) -> None:
    """`f` (compiled) and `g` give the same for each tuple of arguments."""
    for args in calls:
        close(f(*args).tolist(), g(*args).tolist())


def test_modes_are_told_apart() -> None:
    net = Net(norm=True)
    run = tw.compile(net)
    for mode in (True, True, True, False, False, False, True, False):
        net.train(mode)
        assert run.training is mode
        expected = net(x_of(5, 4)).tolist() if not mode else None
        got = run(x_of(5, 4)).tolist()
        if expected is not None:
            close(got, expected)
    assert int(net.norm.num_batches_tracked) == 4


def test_what_is_reached_is_guarded() -> None:
    net = Net()
    run = tw.compile(net)
    x = x_of(2, 4)

    def same() -> None:
        for _ in range(4):
            check(run, net, (x,))

    same()
    before = count(run)
    assert before > 0
    changes: list[Any] = [
        lambda: setattr(net, "scale", 2.0),
        lambda: net.parts.__setitem__(0, 3.0),
        lambda: setattr(net, "b", nn.Linear(8, 5)),
        lambda: setattr(net.a, "bias", None),
        lambda: net.a.weight.requires_grad_(False),
        lambda: setattr(net, "forward", lambda y: net.a(y) + 1),
        lambda: net.__dict__.pop("forward"),
        lambda: net.register_forward_hook(lambda m, i, o: o * 2),
        lambda: setattr(net, "norm", nn.Sequential(nn.ReLU(), nn.Tanh())),
        lambda: net.norm.append(nn.Sigmoid()),
    ]
    for change in changes[:6]:
        change()
        same()
    assert count(run) > before


def test_functions_put_in_place_of_others() -> None:
    class Own(Net):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + self.extra(x)

        def extra(self, x: Any) -> Any:
            return x.sum()

    net = Own()
    run, x = tw.compile(net), x_of(2, 4)
    check(run, net, *[(x,)] * 4)
    assert count(run) == 2
    Own.extra = lambda self, x: x.prod()  # type: ignore[method-assign]
    check(run, net, *[(x,)] * 4)
    net.extra = lambda x: x.max()  # type: ignore[method-assign]
    check(run, net, *[(x,)] * 4)


SCALE = 1.5
WEIGHTS = {"a": 2.0}


def scaled(x: Any, offset: Any = (1.0,)) -> Any:
    return x * SCALE + WEIGHTS["a"] + offset[0]


def test_globals_and_closures(monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = tw.compile(scaled, fullgraph=True), x_of(3)
    check(f, scaled, *[(x,)] * 4)
    assert count(f) == 2
    monkeypatch.setitem(globals(), "SCALE", 2.5)
    check(f, scaled, *[(x,)] * 4)
    monkeypatch.setitem(WEIGHTS, "a", 7.0)
    check(f, scaled, *[(x,)] * 4)
    monkeypatch.setattr(scaled, "__defaults__", ((5.0,),))
    check(f, scaled, *[(x,)] * 4)
    k = 1.0

    def closed(x: Any) -> Any:
        return x * k

    g = tw.compile(closed, fullgraph=True)
    for value in (1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0):
        k = value
        assert g(x).tolist() == (x * value).tolist()


def test_arguments_are_told_apart() -> None:
    @tw.compile
    def f(x: Any, y: Any = 1, *, deep: Any = None) -> Any:
        out = x * y if not isinstance(y, float) else x / y
        return out + deep["k"][0] if deep else out

    a, b = x_of(3), x_of(3, seed=1)
    for _ in range(3):
        assert f(a, 2).tolist() == (a * 2).tolist()
        assert f(a, 2.0).tolist() == (a / 2.0).tolist()
        assert f(a, True).tolist() == (a * 1).tolist()
        assert f(a, -0.0).tolist() == (a / -0.0).tolist()
        assert f(a, 0.0).tolist() == (a / 0.0).tolist()
        assert f(a, b).tolist() == (a * b).tolist()
        assert f(a, a).tolist() == (a * a).tolist()
        assert f(x_of(2, 3), b).tolist() == (x_of(2, 3) * b).tolist()
        assert f(a.double(), b).tolist() == (a.double() * b).tolist()
        assert f(a, deep={"k": [b]}).tolist() == (a + b).tolist()
        assert f(a, deep={"k": [4]}).tolist() == (a + 4).tolist()
        assert f(x_of(3, 3).t(), b).tolist() == (x_of(3, 3).t() * b).tolist()
    assert count(f) >= 9


def test_what_python_calls_by_itself_is_not_the_functions() -> None:
    """Finders of modules and callbacks of the collector run in the middle of anything."""

    class Finder:
        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            time.perf_counter()

    def callback(phase: str, info: Any) -> None:
        time.perf_counter()

    @tw.compile
    def f(x: Any) -> Any:
        import colorsys  # noqa: F401

        rest = [[i] for i in range(50)]
        return x * 2 + len(rest)

    finder: Any = Finder()
    threshold = gc.get_threshold()
    sys.meta_path.insert(0, finder)
    gc.callbacks.append(callback)
    gc.set_threshold(5)
    try:
        for _ in range(5):
            sys.modules.pop("colorsys", None)
            assert f(tw.ones(2)).tolist() == [52, 52]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)
        sys.meta_path.remove(finder)
    assert "perf_counter" not in str(reasons(f))


def test_branches_on_values_run_each_time() -> None:
    @tw.compile
    def f(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x - 1

    for sign in (1, 1, 1, -1, 1, -1):
        x = tw.ones(3) * sign
        assert f(x).tolist() == ([2.0] * 3 if sign > 0 else [-2.0] * 3)
    assert count(f) == 0 and "reads a value" in str(reasons(f))


def test_a_function_that_ends_the_epoch_leaves_no_check_behind() -> None:
    @tw.compile
    def f(x: Any) -> Any:
        return x * 2 if len(x) < 4 else x * x.sum().item()

    for _ in range(3):
        f(tw.ones(2)).tolist()
    assert count(f) > 0
    tw.ones(3)[tw.tensor([5])]  # which nothing reads
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        f(tw.ones(5))
    assert (tw.tensor([1, 2]) + 1).tolist() == [2, 3]


def test_values_that_are_at_hand_are_read_too() -> None:
    limit = tw.tensor(1.0)

    @tw.compile
    def f(x: Any) -> Any:
        return x if limit.item() > 0 else -x

    for value in (1.0, 1.0, 1.0, -1.0):
        limit.fill_(value)
        recording.flush()
        assert f(tw.ones(2)).tolist() == [value, value]
    assert count(f) == 0


CALLS: list[int] = []


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("print", lambda: print(end="")),
        ("clock", lambda: time.perf_counter()),
        ("random", lambda: random.random()),
        ("numpy", lambda: np.random.rand()),
        ("list", lambda: CALLS.append(1)),
        ("seed", lambda: tw.manual_seed(1)),
        ("generator", lambda: tw.rand(2, generator=tw.Generator())),
        ("import", lambda: __import__("math")),
        ("host data", lambda: tw.tensor([random.Random(3)._randbelow(2)])),
        ("time", lambda: exec("1")),
    ],
)
def test_functions_with_effects_run_each_time(name: str, effect: Any) -> None:
    runs = 0

    def f(x: Any) -> Any:
        nonlocal runs
        runs += 1
        effect()
        return x + 1

    def g(x: Any) -> Any:
        effect()
        return x + 1

    compiled, quiet = tw.compile(f), tw.compile(g)
    for _ in range(5):
        assert compiled(tw.zeros(2)).tolist() == quiet(tw.zeros(2)).tolist() == [1, 1]
    assert runs == 5 and count(compiled) == count(quiet) == 0
    with pytest.raises(RuntimeError, match=r"fullgraph=True\): g can't be replayed: "):
        for _ in range(9):
            tw.compile(g, fullgraph=True)(tw.zeros(2))
            strict = tw.compile(g, fullgraph=True)
            strict(tw.zeros(2)), strict(tw.zeros(2))


def test_what_is_kept_or_iterated_is_not_replayed() -> None:
    class Keeps(nn.Module):
        last: Any = None

        def forward(self, x: Any) -> Any:
            self.last = x * 2
            return self.last + 1

    net = Keeps()
    run = tw.compile(net)
    for i in range(5):
        run(tw.ones(2) * i)
        assert net.last.tolist() == [2 * i, 2 * i]
    assert count(run) == 0
    source = iter(range(100))
    f = tw.compile(lambda x: x + next(source))
    assert [f(tw.zeros(1)).item() for _ in range(5)] == [0, 1, 2, 3, 4]


def test_writes_in_place() -> None:
    total = tw.zeros(2)

    def add(x: Any, y: Any) -> Any:
        total.add_(x)
        x.mul_(2)
        return y, x, total * 1

    f = tw.compile(add, fullgraph=True)
    running = np.zeros(2)
    for i in range(6):
        x, y = x_of(2, seed=i), tw.ones(1)
        given = np.array(x.tolist())
        version = x._version
        first, second, third = f(x, y)
        running = running + np.float32(given)
        assert first is y and second is x and x._version == version + 1
        assert x.tolist() == (2 * given).tolist()
        assert total.tolist() == third.tolist()
        np.testing.assert_allclose(total.tolist(), running, rtol=1e-6)
    assert count(f) == 4
    base = tw.zeros(3, 2)
    f = tw.compile(add)
    for i in range(4):  # memory that several tensors look at
        f(base[0], tw.ones(1))
        base.add_(1)
        assert base[1].tolist() == [i + 1] * 2 and base[0].tolist() == [2 ** (i + 1) - 1] * 2


def test_saved_values_that_are_overwritten_are_noticed() -> None:
    f = tw.compile(lambda x: x.mul_(2))
    for _ in range(4):
        w = tw.ones(2, requires_grad=True)
        x = w * 3
        y = x * x
        f(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_memory_that_numpy_sees() -> None:
    f, array = tw.compile(lambda x: x * 2), np.ones(2, np.float32)
    for i in range(5):
        array[:] = i
        y = f(tw.from_numpy(array))
        array[:] = -1
        assert y.tolist() == [2 * i] * 2
    net = nn.Linear(2, 1)
    run, x = tw.compile(net), tw.ones(1, 2)
    check(run, net, *[(x,)] * 3)
    with tw.no_grad():
        net.weight.data.numpy()[:] = 5.0
    check(run, net, *[(x,)] * 3)


Pair = namedtuple("Pair", "left right")


def test_constructors_of_named_tuples_and_templates_are_trusted() -> None:
    """Whoever calls them is watched."""
    absolute = reference.elementwise_function(REGISTRY["abs"], 1)
    with guards.Watch() as watch:
        Pair(1, 2)
        absolute(-1.0, np.float32)
    assert not watch.codes and watch.reason is None


def test_results_of_all_kinds() -> None:
    @tw.compile(fullgraph=True)
    def f(x: Any) -> Any:
        y = x * 2
        return {"pair": Pair(y, [y, 3, None, "s"]), "x": x, "view": x.view(-1), "row": (x + 1)[0]}

    for i in range(5):
        x = x_of(2, 3, seed=i)
        out = f(x)
        assert type(out["pair"]) is Pair and out["pair"].left is out["pair"].right[0]
        assert out["pair"].right[1:] == [3, None, "s"] and out["x"] is x
        assert out["row"].tolist() == (x + 1)[0].tolist()
        out["view"].zero_()
        assert x.tolist() == [[0] * 3] * 2
    assert count(f) == 3


def test_views_of_one_new_tensor_are_not_replayed() -> None:
    f = tw.compile(lambda x: (x * 2).split(1))
    for _ in range(4):
        a, b = f(tw.ones(2))
        a.add_(1)
        assert a.item() == 3 and b.item() == 2
    assert count(f) == 0


def test_several_calls_of_an_epoch_and_calls_of_calls() -> None:
    net = nn.Linear(3, 3)
    run = tw.compile(net)
    x = x_of(2, 3)
    for i in range(6):
        y = x * i
        got = run(run(y)) + run(x) * run(y + 1)
        expected = net(net(y)) + net(x) * net(y + 1)
        close(got.tolist(), expected.tolist())
        got.sum().backward()
        grads = [p.grad.tolist() for p in net.parameters()]
        net.zero_grad()
        expected.sum().backward()
        for p, grad in zip(net.parameters(), grads, strict=True):
            close(p.grad.tolist(), grad)
        net.zero_grad()
    assert count(run) > 8


def test_gradients_to_arguments_and_hooks() -> None:
    net = nn.Linear(3, 1)
    run = tw.compile(net)
    seen: list[Any] = []
    net.weight.register_hook(lambda g: seen.append(g.tolist()))
    for i in range(5):
        leaf = x_of(2, 3, seed=i).requires_grad_()
        inner = leaf * 2
        inner.sum().item()  # its epoch is over: its history goes on
        run(inner).sum().backward()
        np.testing.assert_allclose(leaf.grad.tolist(), np.tile(net.weight.tolist(), (2, 1)) * 2)
        assert len(seen) == i + 1
    with tw.no_grad():
        for _ in range(4):
            assert not run(x_of(2, 3)).requires_grad
    assert run(x_of(2, 3)).requires_grad


def test_a_whole_step() -> None:
    def losses(wrap: Any) -> list[float]:
        tw.manual_seed(1)
        net = Net()
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        return [run(x_of(6, 4, seed=i), tw.arange(6) % 3).item() for i in range(6)]

    close(losses(tw.compile), losses(lambda f: f))


def test_values_replaced_from_outside() -> None:
    net = Net(norm=True)
    run, x = tw.compile(net), x_of(4, 4)
    net.eval()
    check(run, net, *[(x,)] * 4)
    net.load_state_dict(Net(norm=True).state_dict())
    check(run, net, *[(x,)] * 2)
    net.a.weight.data = tw.ones(8, 4)
    check(run, net, *[(x,)] * 2)
    net.double()
    check(run, net, *[(x.double(),)] * 4)
    assert count(run) >= 6


def test_wrappers() -> None:
    net = Net()
    run = tw.compile(net, mode="reduce-overhead", dynamic=False)
    assert isinstance(run, nn.Module) and run.a is net.a and run._orig_mod is net
    assert callable(run.dynamo_ctx)
    assert [n for n, _ in run.named_parameters()] == [
        f"_orig_mod.{n}" for n, _ in net.named_parameters()
    ]
    run.eval()
    assert not net.training and not net.dropout.training
    run.train()
    assert net.training and tw.compile(net, disable=True) is net
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        tw.compile(net, mode="fast")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        tw.compile(net, mode="default", options={})

    class Owner:
        @tw.compile
        def double(self, x: Any) -> Any:
            """Twice."""
            return x * 2

    owner = Owner()
    for _ in range(4):
        assert owner.double(tw.ones(1)).item() == 2
    assert Owner.double.__name__ == "double" and Owner.double.__doc__ == "Twice."


def test_disable_and_reset() -> None:
    runs = []

    @compiler.disable
    def outside(x: Any) -> Any:
        runs.append(1)
        return x + len(runs)

    f = tw.compile(lambda x: outside(x) * 2)
    assert [f(tw.zeros(1)).item() for _ in range(4)] == [2, 4, 6, 8]
    g = tw.compile(lambda x: x + 1)
    for _ in range(3):
        g(tw.zeros(1))
    compiler.reset()
    assert not g._signatures and not compiler.is_compiling()
    inner = tw.compile(lambda x: x * 3)
    outer = tw.compile(lambda x: inner(x) + 1)
    assert [outer(tw.tensor([i])).item() for i in range(5)] == [1, 4, 7, 10, 13]
    assert count(outer) == 3


def test_what_changes_each_time_is_given_up() -> None:
    class Counts(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            return x + self.calls

    net = Counts()
    run = tw.compile(net)
    for i in range(30):
        net.calls = i
        assert run(tw.zeros(1)).item() == i
    assert count(run) == 0 and reasons(run) == ["what it depends on changes from call to call"]
    f = tw.compile(lambda x, k: x + k)
    for i in range(SIGNATURES + 20):
        assert f(tw.zeros(1), i).item() == i
    assert len(f._signatures) == SIGNATURES
