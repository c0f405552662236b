"""torch.compile with a backend of the program's own: graphs, and values beside PyTorch's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import _dynamo, fx, nn, recording
from tilewright._dynamo.testing import EagerAndRecordGraphs
from tilewright.nn import functional as F

pytestmark = pytest.mark.computes
Compile = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def fresh() -> Any:
    recording.flush()
    yield
    recording.flush()


def steps_of_training(lib: ModuleType, compile: Compile) -> Any:
    net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.ReLU())
    with lib.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(lib.arange(p.numel()).reshape(p.shape) * 0.1 + i)
    run, optimizer = compile(net), lib.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for i in range(3):
        optimizer.zero_grad()
        loss = run(lib.arange(18.0).reshape(6, 3).sin() * (i + 1)).square().mean()
        loss.backward()
        optimizer.step()
        yield loss
    yield net[0].weight, net[1].running_mean, net[1].num_batches_tracked


def whole_steps(lib: ModuleType, compile: Compile) -> Any:
    layer = lib.nn.Linear(3, 2)
    with lib.no_grad():
        layer.weight.fill_(0.1), layer.bias.fill_(0.2)
    optimizer = lib.optim.SGD(layer.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = compile(step)
    for i in range(3):
        yield run(lib.ones(4, 3) * i)
    yield layer.weight


def branches(lib: ModuleType, compile: Compile) -> Any:
    def f(a: Any, b: Any) -> Any:
        x = a / (a.abs() + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    run = compile(f)
    for sign in (1, -1, 1):
        a = lib.arange(4.0, requires_grad=True)
        y = run(a, lib.ones(4) * sign)
        y.sum().backward()
        yield y, a.grad


def reads_amid(lib: ModuleType, compile: Compile) -> Any:
    def f(x: Any) -> Any:
        y = x * int(x.detach().sum().item())
        v = y[0]
        return y.sum() + float(v.detach()), v

    x = lib.tensor([1.0, 2.0], requires_grad=True)
    a, b = compile(f)(x)
    (a + b).backward()
    yield a, b, x.grad


def no_grad_inside(lib: ModuleType, compile: Compile) -> Any:
    w = lib.ones(3, requires_grad=True)

    def f(x: Any) -> Any:
        a = x * w
        with lib.no_grad():
            b = a * 2
        return a + b

    y = compile(f)(lib.arange(3.0))
    y.sum().backward()
    yield y, w.grad


def writes(lib: ModuleType, compile: Compile) -> Any:
    z, other = lib.zeros(3, 4), lib.zeros(2)
    row = z[0]

    def f(i: int) -> Any:
        z[:, i] = i + 1.0
        v = z[1]
        v += 5
        z.T[0] = 7
        other.add_(i)
        return z * 2, other

    run = compile(f)
    for i in (1, 2, 1):
        yield (*run(i), z, row)


def kept_elsewhere(lib: ModuleType, compile: Compile) -> Any:
    kept = []

    def f(x: Any) -> Any:
        y = x * 2
        kept.append(y)
        kept.append(y + 1)
        return y.sum()

    x = lib.ones(3, requires_grad=True)
    total = compile(f)(x)
    (total + kept[1].sum()).backward()
    yield total, *kept, x.grad


def own_functions(lib: ModuleType, compile: Compile) -> Any:
    class Triple(lib.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

    def f(x: Any) -> Any:
        h = Triple.apply(x * 2)
        h.register_hook(lambda g: g * 10)
        return (h + 1) * 2

    x = lib.ones(2, requires_grad=True)
    y = compile(f)(x)
    y.sum().backward()
    yield y, x.grad


def casts_inside(lib: ModuleType, compile: Compile) -> Any:
    def f(x: Any) -> Any:
        with lib.autocast("cpu", dtype=lib.bfloat16):
            h = x @ x
        return h, x @ x

    a, b = compile(f)(lib.eye(2))
    yield a.float(), b, lib.tensor(float(a.dtype == lib.bfloat16))


def structures(lib: ModuleType, compile: Compile) -> Any:
    class Out:
        def __init__(self, x: Any) -> None:
            self.x = x

    def f(x: Any, *, scale: float = 1.0) -> Any:
        return {"a": [x * scale, x], "o": Out(x + 1), "n": (x[x > 0], scale)}

    x = lib.tensor([1.0, -1.0])
    found = compile(f)(x, scale=3.0)
    assert found["a"][1] is x and found["n"][1] == 3.0
    yield found["a"][0], found["o"].x, found["n"][0]


CASES = (
    *(steps_of_training, whole_steps, branches, reads_amid, no_grad_inside, writes),
    *(kept_elsewhere, own_functions, casts_inside, structures),
)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.detach().numpy().copy()


@pytest.mark.parametrize("case", CASES)
def test_the_same_values(case: Any, torch: ModuleType) -> None:
    asked = EagerAndRecordGraphs()
    found = map(_plain, case(tw, lambda f: tw.compile(f, backend=asked)))
    for got, want in zip(found, map(_plain, case(torch, lambda f: f)), strict=True):
        for a, b in zip(got, want, strict=True) if isinstance(got, list) else [(got, want)]:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert asked.graphs


def test_a_backend_gets_graphs_and_inputs() -> None:
    given = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        given.append((gm, inputs))
        return gm.forward

    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    run, x = tw.compile(net, backend=backend), tw.ones(2, 4)
    run(x), run(tw.zeros(2, 4))
    ((gm, inputs),) = given  # of one shape: it is compiled once
    assert isinstance(gm, fx.GraphModule)
    assert {id(t) for t in inputs} == {id(x), *map(id, net.parameters())}
    nodes = list(gm.graph.nodes)
    assert [n.op for n in nodes] == [*["placeholder"] * 3, *["call_function"] * 2, "output"]
    assert [n.target for n in nodes[3:5]] == [F.linear, F.relu]
    assert nodes[4].meta["example_value"].shape == (2, 3)
    run(tw.ones(5, 4))
    assert len(given) == 2
    epoch = recording.clock.number
    run(x)
    assert recording.clock.number == epoch  # the call is recorded as any other


def test_what_it_returns_is_used() -> None:
    run = tw.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda *a: (tw.zeros(3),))
    assert run(tw.ones(2)).tolist() == [0, 0, 0]

    def without_relu(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        for node in gm.graph.nodes:
            if node.target is F.relu:
                node.target, node.kwargs = tw.neg, {}
                node.args = node.args[:1]
        gm.recompile()
        return gm

    assert tw.compile(lambda x: F.relu(x - 5), backend=without_relu)(tw.zeros(1)).item() == 5


def test_draws_are_those_of_the_program() -> None:
    run = tw.compile(
        lambda x: tw.dropout(x, 0.5, True) + tw.rand(4), backend=EagerAndRecordGraphs()
    )
    tw.manual_seed(0)
    found = run(tw.ones(4)), tw.rand(1)
    tw.manual_seed(0)
    expected = tw.dropout(tw.ones(4), 0.5, True) + tw.rand(4), tw.rand(1)
    assert [t.tolist() for t in found] == [t.tolist() for t in expected]


def test_a_batch_norm_is_that_of_functional() -> None:
    asked = EagerAndRecordGraphs()
    tw.compile(nn.BatchNorm1d(3), backend=asked)(tw.ones(2, 3))
    calls = [n.target for n in asked.graphs[0].graph.nodes if n.op.startswith("call")]
    assert calls == ["add_", F.batch_norm]


def test_breaks() -> None:
    asked = EagerAndRecordGraphs()

    @tw.compiler.disable
    def outside(x: Any) -> Any:
        return x.sin()

    def f(x: Any) -> Any:
        y = outside(x + 1) * 2
        _dynamo.graph_break()
        return y * 3

    found = tw.compile(f, backend=asked)(tw.ones(2))
    np.testing.assert_allclose(found.numpy(), np.sin([2.0, 2.0]) * 6, rtol=1e-6)
    targets = [[n.target for n in g.graph.nodes if n.op == "call_function"] for g in asked.graphs]
    assert targets == [[operator.add], [operator.mul], [operator.mul]]
    with pytest.raises(_dynamo.exc.Unsupported, match=r"outside.. is not to be compiled"):
        tw.compile(f, backend=asked, fullgraph=True)(tw.ones(2))


def test_explain() -> None:
    def f(a: Any, b: Any) -> Any:
        x = a / (tw.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    found = _dynamo.explain(f)(tw.ones(3), tw.ones(3))
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 5)
    assert found.ops_per_graph == [
        [tw.abs, operator.add, operator.truediv, operator.lt],
        [operator.mul],
    ]
    (reason,) = found.break_reasons
    assert reason.user_stack[0].line == "if b.sum() < 0:"
    assert "Graph Count: 2" in str(found) and "it reads a value (bool)" in str(found)


def test_names_of_backends() -> None:
    asked = EagerAndRecordGraphs()
    _dynamo.register_backend(asked, name="recorder_of_this_test")
    assert "recorder_of_this_test" in _dynamo.list_backends()
    tw.compile(lambda x: x + 1, backend="recorder_of_this_test")(tw.ones(1))
    assert len(asked.graphs) == 1
    assert tw.compile(lambda x: x + 1, backend="aot_eager")(tw.ones(1)).item() == 2
    with pytest.raises(_dynamo.exc.InvalidBackend, match="Invalid backend: 'nosuch'"):
        tw.compile(lambda x: x, backend="nosuch")
    tw.compiler.set_default_backend(asked)
    try:
        tw.compile(lambda x: x + 2)(tw.ones(1))
    finally:
        tw.compiler.set_default_backend(None)
    layer = nn.Linear(1, 1)
    layer.compile(backend=asked)
    layer(tw.ones(1))
    assert len(asked.graphs) == 3


def test_errors_of_backends() -> None:
    def bad(gm: Any, inputs: Any) -> Any:
        raise ValueError("oops")

    failed = _dynamo.exc.BackendCompilerFailed
    with pytest.raises(failed, match="backend='bad' raised:\nValueError: oops") as caught:
        tw.compile(lambda x: x + 1, backend=bad)(tw.ones(1))
    assert isinstance(caught.value.inner_exception, ValueError)
    with pytest.raises(failed, match="did not return callable"):
        tw.compile(lambda x: x + 1, backend=lambda gm, inputs: None)(tw.ones(1))
    with pytest.raises(RuntimeError, match=r"1 outputs, .* gives 0"):
        tw.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda *a: ())(tw.ones(1))


def test_what_no_graph_can_write() -> None:
    """Values that stand in memory of NumPy's are written when the program runs."""
    array = np.zeros(3, np.float32)
    asked = EagerAndRecordGraphs()
    run = tw.compile(lambda t: t.add_(1) * 2, backend=asked)
    with pytest.warns(UserWarning, match="isn't asked for a part of .*memory that NumPy sees"):
        assert run(tw.from_numpy(array)).tolist() == [2, 2, 2]
    assert array.tolist() == [1, 1, 1] and not asked.graphs


def test_an_error_of_the_program_leaves_nothing_behind() -> None:
    def f(x: Any) -> Any:
        x.add_(1)
        raise KeyError("k")

    x = tw.ones(1)
    with pytest.raises(KeyError):
        tw.compile(f, backend=EagerAndRecordGraphs())(x)
    assert x.item() == 2 and tw.relu(x).item() == 2
    assert not fx.concrete.is_watching()


def test_a_function_that_was_taken_while_watched() -> None:
    """A module that is imported amid a trace keeps what the names meant then."""
    kept = []

    def f(x: Any) -> Any:
        kept.append(tw.nn.functional.softplus)
        return kept[0](x) + 1

    run = tw.compile(f, backend=EagerAndRecordGraphs())
    x = tw.ones(2)
    first = run(x)
    assert tw.equal(kept[0](x), F.softplus(x))  # nobody watches any more
    assert tw.equal(run(x), first)
