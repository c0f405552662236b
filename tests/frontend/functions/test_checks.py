"""Errors that depend on values are raised whether or not anything reads the op's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, installed

import tilewright as tw
from tilewright import recording
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import intern
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.recording import epoch
from tilewright.runtime import tiers

# name: a program of `torch`, `F`, a 3 x 4 matrix x, a vector v of 4, and L for integer tensors.
WRONG = {
    "gather": "x.gather(1, L([[0, 9]]))",
    "gather, -1": "x.gather(1, L([[0, -1]]))",
    "index_select": "x.index_select(0, L([3]))",
    "index_select, -1": "v.index_select(0, L([-1]))",
    "scatter": "x.scatter(1, L([[9]]), 1.0)",
    "scatter, -1": "x.scatter(1, L([[-1]]), x)",
    "scatter_add, -1": "x.scatter_add(1, L([[-1]]), x)",
    "scatter_reduce": "x.scatter_reduce(1, L([[4]]), x, 'sum')",
    "index_add": "x.index_add(0, L([-1]), x[:1])",
    "index_add of a vector": "v.index_add(0, L([9]), v[:1])",
    "index_copy": "x.index_copy(0, L([5]), x[:1])",
    "index_fill": "x.index_fill(0, L([-5]), 1.0)",
    "take": "x.take(L([99]))",
    "gather from a number": "v[0].gather(0, L(3))",
    "scatter to a number": "v[0].scatter(0, L(-1), 1.0)",
    "scatter_add to a number": "v[0].scatter_add(0, L([1]), v[:1])",
    "index_select of a number": "v[0].index_select(0, L(1))",
    "index_fill of a number": "v[0].index_fill(0, L([1]), 5.0)",
    "embedding": "F.embedding(L([[1, 9]]), x)",
    "embedding, -1": "F.embedding(L([-1]), x)",
    "embedding_bag": "F.embedding_bag(L([[9]]), x)",
    "index": "x[L([3])]",
    "index, -5": "x[:, L([-5])]",
    "two indices": "x[L([0]), L([7])]",
    "index of equal elements": "torch.ones(4)[L([9])].sum()",
    "index of a part": "x[L([0, 9])][:1]",
    "index_put": "x.index_put((L([9]),), torch.ones(()))",
    "one_hot": "F.one_hot(L([4]), 4)",
    "one_hot, -1": "F.one_hot(L([-1]), 4)",
    "cross_entropy": "F.cross_entropy(x, L([0, 1, 4]))",
    "cross_entropy, -1": "F.cross_entropy(x, L([0, 1, -1]), reduction='none')",
    "cross_entropy, weight": "F.cross_entropy(x, L([0, 1, 9]), weight=torch.ones(4))",
    "cross_entropy, smooth": "F.cross_entropy(x, L([0, 1, 9]), label_smoothing=0.1)",
    "nll_loss": "F.nll_loss(x, L([0, 1, 9]))",
    "nll_loss of images": "F.nll_loss(x[None], L([[0, 1, 9, 0]]), reduction='sum')",
    "linear_cross_entropy": "F.linear_cross_entropy(x, torch.ones(5, 4), L([0, 1, 9]))",
    "multi_margin_loss": "F.multi_margin_loss(x, L([0, 1, 9]))",
    "multilabel_margin_loss": "F.multilabel_margin_loss(x, L([[0, 1, 9, 0]] * 3))",
    "multinomial of zeros": "torch.multinomial(torch.zeros(3), 1)",
    "multinomial of a row": "torch.multinomial(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), 1, True)",
    "multinomial, negative": "torch.multinomial(torch.tensor([1.0, -1.0]), 1)",
    "multinomial, nan": "torch.multinomial(torch.tensor([1.0, float('nan')]), 1)",
    "multinomial, inf": "torch.multinomial(torch.tensor([1.0, float('inf')]), 1)",
    "bernoulli": "torch.bernoulli(v)",
    "bernoulli, nan": "torch.bernoulli(torch.tensor([float('nan')]))",
    "bernoulli_": "torch.zeros(4).bernoulli_(v)",
    "binary_cross_entropy": "F.binary_cross_entropy(torch.tensor([1.5]), torch.tensor([1.0]))",
    "binary_cross_entropy, target": "F.binary_cross_entropy(torch.tensor([0.5]), v[3:])",
    "normal": "torch.normal(torch.zeros(2), torch.tensor([-1.0, 1.0]))",
    "repeat_interleave": "x.repeat_interleave(L([1, -2, 1]), 0)",
    "where": "torch.where(v, v, v)",
    "grad of another shape": "setattr(torch.nn.Parameter(v), 'grad', v[:3])",
    "grad of another dtype": "setattr(torch.nn.Parameter(v), 'grad', v.double())",
    "grad of no tensor": "setattr(torch.nn.Parameter(v), 'grad', 3)",
    "no such memory": "torch.zeros(2**62, 2**62)",
    "no such memory, computed": "torch.zeros(1).expand(2**60, 2) + 1",
}
RIGHT = {
    "index, -1": "x[L([-1])]",
    "take, -1": "x.take(L([-1]))",
    "index_fill, -1": "x.index_fill(0, L([-1]), 1.0)",
    "take_along_dim": "torch.take_along_dim(x, L([[-1], [9], [1]]), 1)",
    "cross_entropy, ignored": "F.cross_entropy(x, L([0, 1, -100]))",
    "nothing": "v[L([]).long()]",
    "cross_entropy, NaN": "F.cross_entropy(x * float('nan'), L([0, 1, 3]))",
    "probabilities of 0 and 1": "F.binary_cross_entropy(torch.ones(3), torch.ones(3))",
    "one weight": "torch.multinomial(torch.tensor([0.0, 1.0, 0.0]), 1)",
    "expand": "torch.zeros(1).expand(2**60, 2)[:1, 0]",
}


def setting(torch: Any) -> dict[str, Any]:
    x, v = torch.arange(12.0).reshape(3, 4), torch.arange(4.0)
    return {"torch": torch, "F": torch.nn.functional, "x": x, "v": v, "L": torch.tensor}


def raised(program: Callable[[], Any]) -> type[Exception] | None:
    """The class of PyTorch's that the error of a program has, if there is one."""
    try:
        program()
    except (RuntimeError, IndexError, TypeError) as error:
        return type(error)
    return None


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_where_nothing_reads_it(name: str, torch: Any) -> None:
    expected = raised(lambda: eval(WRONG[name], setting(torch)))
    assert expected is not None

    def dead() -> None:
        eval(WRONG[name], setting(tw))
        recording.flush()

    def read() -> None:
        eval(WRONG[name], setting(tw)).tolist()

    # Twice: a program that repeats meets its nodes and its plan.
    assert [raised(dead), raised(read), raised(dead), raised(read)] == [expected] * 4
    assert (tw.ones(2) + 1).tolist() == [2, 2]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_computed(name: str, torch: Any) -> None:
    expected = eval(RIGHT[name], setting(torch))
    found = eval(RIGHT[name], setting(tw))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
    eval(RIGHT[name], setting(tw))
    recording.flush()


ELSEWHERE = """
import sys
import tilewright as torch
from tilewright import recording
for name, text in {programs!r}.items():
    x, v = torch.arange(12.0).reshape(3, 4), torch.arange(4.0)
    try:
        eval(text, {{"torch": torch, "F": torch.nn.functional, "x": x, "v": v, "L": torch.tensor}})
        if {flush}: recording.flush()
        print(name, "passed")
    except (RuntimeError, IndexError, TypeError):
        recording.flush()
"""


@pytest.mark.slow
@pytest.mark.parametrize("env", [{"TW_CPU": "numpy"}, {"TW_CPU": "llvm"}, {"TW_EAGER": "1"}])
def test_on_each_engine(env: dict[str, str], run_python: Any) -> None:
    """With TW_EAGER=1 the call itself raises, so there nothing is flushed."""
    code = ELSEWHERE.format(programs=WRONG, flush="TW_EAGER" not in env)
    assert run_python(code, env=env) == ""


@pytest.mark.triton
@pytest.mark.parametrize(
    "name", ["gather", "index of equal elements", "cross_entropy", "bernoulli"]
)
def test_in_a_kernel_of_triton(name: str) -> None:
    pytest.importorskip("triton")
    given = {
        k: v.to("interpret") if isinstance(v, tw.Tensor) else v for k, v in setting(tw).items()
    }
    given["L"] = lambda data: tw.tensor(data, device="interpret")
    if name == "index of equal elements":
        program = 'torch.ones(4, device="interpret")[L([9])].sum()'
    else:
        program = WRONG[name]
    with pytest.raises((IndexError, RuntimeError), match=r"out of bounds|p_in >= 0"):
        eval(program, given)
        recording.flush()


# ---- what is said ----------------------------------------------------------------------------


@pytest.mark.parametrize("index, told", [(-5, "-5"), (9, "9"), (-(2**40), str(-(2**40)))])
def test_the_index_is_the_users(index: int, told: str) -> None:
    recording.flush()
    recording.clear_tables()  # a node keeps the line that recorded it first
    x = tw.arange(4.0) + 0
    for program in (lambda i: x[i], lambda i: (x[i] * 2).sum(), lambda i: x.take(i)):
        with pytest.raises(IndexError, match=rf"index {told} is out .* 4 \(test_checks.py:\d+\)"):
            program(tw.tensor([0, index])).tolist()


def test_the_class_is_named() -> None:
    with pytest.raises(IndexError, match=r"Target 7 is out of bounds. \(test_checks.py:\d+\)"):
        tw.nn.functional.cross_entropy(tw.zeros(2, 3), tw.tensor([0, 7])).item()


def test_it_is_said_once() -> None:
    x = tw.arange(4.0)
    recording.flush()
    x[tw.tensor([9])]
    with pytest.raises(IndexError):
        (x + 1).tolist()
    recording.flush()
    assert (x + 1).tolist() == [1, 2, 3, 4]


def test_a_call_that_is_replayed_is_checked() -> None:
    x = tw.arange(4.0)
    unread = tw.compile(lambda t, i: t + t[i].sum() * 0 if i is None else (t[i], t + 1)[1])
    for step in range(6):
        unread(x, tw.tensor([step % 4]))
        recording.flush()
        unread(x, tw.tensor([4]))
        with pytest.raises(IndexError, match="index 4"):
            recording.flush()
    assert unread.replays > 4


def test_only_a_gradient_is_used() -> None:
    """The loss is dropped: its gradient doesn't pick the score of the class."""
    w = tw.ones(2, 3, requires_grad=True)
    tw.nn.functional.cross_entropy(w, tw.tensor([0, 3])).backward()
    with pytest.raises(IndexError, match="Target 3"):
        recording.flush()
    assert w.grad is None


def test_what_is_computed_beside_it_has_its_value() -> None:
    x = tw.arange(3.0)
    recording.flush()
    x.add_(1)
    y = x * 2
    x[tw.tensor([3])]
    with pytest.raises(IndexError):
        recording.flush()
    assert (x.tolist(), y.tolist()) == ([1, 2, 3], [2, 4, 6])


def test_a_launch_that_fails_takes_no_value_with_it() -> None:
    x, at = tw.arange(12.0).reshape(3, 4), tw.tensor([2, 0, -1])
    right, wrong = x[at], x[at + 2]
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        wrong.tolist()
    assert right[:, 0].tolist() == [8, 0, 8]
    with pytest.raises(IndexError):
        wrong.tolist()


# ---- what it costs ---------------------------------------------------------------------------


def launches(program: Callable[[], Any]) -> int:
    """The number of kernels that a step launches once it has been met."""
    for _ in range(3):
        recording.flush()
        before = {id(p): p.runs for p in tiers.plans()}
        program()
        recording.flush()
    ran = [p for p in tiers.plans() if p.runs > before.get(id(p), 0)]
    return sum(p.launches for p in ran)


def test_a_language_models_checks_take_no_launch(monkeypatch: Any) -> None:
    """An op that picks rows or classes checks them, and so does its gradient."""
    model = tw.nn.Sequential(tw.nn.Embedding(9, 4), tw.nn.Linear(4, 9))
    optimizer = tw.optim.SGD(model.parameters(), lr=0.1)
    x, y = tw.tensor([[1, 2], [3, 4]]), tw.tensor([[2, 3], [4, 5]])

    def step(read: bool) -> None:
        optimizer.zero_grad()
        loss = tw.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        if read:
            loss.item()

    for read in (False, True):
        recording.clear_tables()
        with_checks = launches(lambda read=read: step(read))
        recording.clear_tables()
        with monkeypatch.context() as patch:
            patch.setattr(epoch, "add_check", lambda _node: None)
            assert launches(lambda read=read: step(read)) == with_checks


@pytest.mark.usefixtures("fused")
def test_checks_that_nothing_else_makes_share_a_kernel() -> None:
    x = tw.arange(6.0).reshape(2, 3)
    index = tw.tensor([[0, 1], [2, 0]])
    alone = launches(lambda: x.gather(1, index))
    assert alone == 1
    assert launches(lambda: (x.gather(1, index), x.scatter(1, index, 1.0))) == alone


@pytest.mark.parametrize(
    "known",
    [
        lambda: tw.arange(3),
        lambda: tw.zeros(2, dtype=tw.int64),
        lambda: tw.rand(3, 4).argmax(1),
        lambda: tw.rand(4).argsort(),
        lambda: tw.rand(3).sort()[1].flip(0)[:2],
        lambda: (tw.rand(3) > 0.5).long(),
        lambda: tw.arange(9).minimum(tw.full((9,), 3)),
        lambda: tw.arange(9) % 4,
        lambda: tw.where(tw.rand(3) > 0.5, tw.arange(3), 0),
        lambda: tw.full((2,), -1),
    ],
)
def test_positions_that_are_known_are_not_checked(known: Callable[[], Any]) -> None:
    recording.flush()
    tw.ones(4)[known()]
    (node,) = recording.fallible
    (lowered,) = lower_graph([node])
    assert ops.unmet([], [lowered]) == []


def test_unmet_checks() -> None:
    """A check is made where all of it is evaluated: not of copies of one element, nor of a part."""

    def leaf(place: int, *shape: int, dtype: Any = dt.float32) -> Any:
        return intern(ops.leaf, (), (place, shape, dtype), "cpu")

    x, i = leaf(0, 4, 3), leaf(1, 5, dtype=dt.int64)
    check = ops.checked(i, 4, 0, "index")
    rows = ops.gather(x, check, 0)
    same = ops.gather(ops.expand(ops.slice_axis(x, 0, 0, 1), (4, 3)), check, 0)
    assert ops.unmet([rows], [rows]) == []
    assert ops.unmet([ops.sum(rows * 2, (0, 1))], [rows]) == []
    assert ops.unmet([ops.slice_axis(rows, 0, 0, 2)], [rows]) == [check]
    assert ops.unmet([ops.sum(same, (0,))], [same]) == [check]
    assert ops.unmet([x], [rows]) == [check]


def test_long_histories_of_positions() -> None:
    """Finding the bounds of a position takes no deep stack, and one look at each node before it."""
    index = intern(ops.leaf, (), (0, (5,), dt.int64), "cpu")
    for _ in range(3000):
        index = index + index
    assert ops.checked(index, 4, 0, "position").op is ops.check


def test_a_long_history_of_what_is_read() -> None:
    """Whether elements differ is asked once of each node, however often it is used."""
    number = intern(ops.leaf, (), (0, (1,), dt.float32), "cpu")
    index = intern(ops.leaf, (), (1, (5,), dt.int64), "cpu")
    x = ops.expand(number, (4,))
    for _ in range(100):
        x = x * x + x
    check = ops.checked(index, 4, 0, "position")
    assert ops.unmet([ops.gather(x, check, 0)], [check]) == [check]


def test_positions_that_wrap_around_when_they_are_cast(torch: Any) -> None:
    read = [m.arange(256.0)[m.arange(256).to(m.int8).long()].tolist() for m in (torch, tw)]
    assert read[0] == read[1]


# ---- GPUs ------------------------------------------------------------------------------------


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed() as driver:
        yield driver


@pytest.mark.triton
def test_on_a_gpu_it_is_said_when_the_host_waits(fake: FakeCuda) -> None:
    x = tw.arange(4.0, device="cuda")
    for index, error in ((9, IndexError), (-5, IndexError)):
        for _ in range(5):  # graphs of the driver replay it
            tw.ones(4, device="cuda")[tw.tensor([0, index], device="cuda")]
            recording.flush()
            with pytest.raises(error, match=f"index {index} is out of bounds"):
                x.tolist()
            assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.triton
def test_a_captured_graph_is_checked(fake: FakeCuda) -> None:
    x, index = tw.arange(4.0, device="cuda"), tw.zeros(2, dtype=tw.int64, device="cuda")
    graph = tw.cuda.CUDAGraph()
    with tw.cuda.graph(graph):
        tw.ones(4, device="cuda")[index]
        y = x + 1
    for value in (1, 7, 2):
        index.fill_(value)
        graph.replay()
        if value == 7:
            with pytest.raises(IndexError, match="index 7"):
                y.tolist()
        assert y.tolist() == [1, 2, 3, 4]


@pytest.mark.triton
def test_all_checks_are_read_by_one_copy(fake: FakeCuda) -> None:
    x = tw.arange(4.0, device="cuda")
    one, two = (tw.zeros(n, dtype=tw.int64, device="cuda") for n in (2, 3))
    for _ in range(2):
        before = fake.calls.get("cuMemcpyDtoHAsync_v2", 0)
        picked = x[one].sum() + x.flip(0)[two].prod()
        tw.nn.functional.one_hot(two, 2)
        picked.item()
    assert fake.calls["cuMemcpyDtoHAsync_v2"] - before == 2
