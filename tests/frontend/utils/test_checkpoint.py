"""torch.utils.checkpoint: gradients as without it, and less memory."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

import tilewright as tw
from tilewright import nn
from tilewright.runtime import tiers
from tilewright.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

pytestmark = pytest.mark.computes
REENTRANT = pytest.mark.parametrize("reentrant", [False, True])


def blocks(count: int = 3, width: int = 8) -> nn.ModuleList:
    tw.manual_seed(0)
    return nn.ModuleList(
        nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.4), nn.Linear(width, width))
        for _ in range(count)
    )


def gradients(reentrant: bool | None, read: bool) -> list[Any]:
    model = blocks()
    tw.manual_seed(1)
    x = tw.randn(5, 8, requires_grad=True)
    for _ in range(2):
        h = x
        for block in model:
            h = block(h) if reentrant is None else checkpoint(block, h, use_reentrant=reentrant)
        loss = (h * h).sum()
        if read:
            loss.item()
        loss.backward()
    return [x.grad, *(p.grad for p in model.parameters()), tw.rand(3)]


@REENTRANT
@pytest.mark.parametrize("read", [False, True])
def test_gradients_and_draws_are_those_of_the_plain_call(reentrant: bool, read: bool) -> None:
    for wanted, got in zip(gradients(None, read), gradients(reentrant, read), strict=True):
        tw.testing.assert_close(got, wanted)


@REENTRANT
def test_a_function_runs_once_before_and_once_in_the_backward_pass(reentrant: bool) -> None:
    calls = []

    def double(x: Any) -> Any:
        calls.append(x.requires_grad)
        return x * 2, "text", x.sum()

    x = tw.ones(3, requires_grad=True)
    y, text, total = checkpoint(double, x, use_reentrant=reentrant)
    assert text == "text" and len(calls) == 1 and y.requires_grad and total.item() == 3
    (y.sum() + total).backward()
    assert calls[1:] == [True] and x.grad.tolist() == [3.0, 3.0, 3.0]


def test_without_gradients_it_is_the_plain_call() -> None:
    with tw.no_grad():
        assert not checkpoint(
            lambda x: x * 2, tw.ones(2, requires_grad=True), use_reentrant=False
        ).requires_grad


def test_what_the_function_reads_besides_gets_gradients() -> None:
    x, w = tw.tensor([2.0, 3.0]), tw.tensor([5.0, 7.0], requires_grad=True)
    inner = w * 1.0  # no leaf
    checkpoint(lambda x: x * w * inner, x, use_reentrant=False).sum().backward()
    assert w.grad.tolist() == [20.0, 42.0]
    y = checkpoint(lambda x: (x * w).sum(), x, use_reentrant=False)
    assert tw.autograd.grad(y, [w])[0].tolist() == [2.0, 3.0]
    with pytest.warns(UserWarning, match="use_reentrant"):  # gradients come by an argument then
        y = checkpoint(lambda x: (x * w).sum(), x.clone().requires_grad_())
    assert y.grad_fn.name() == "CheckpointFunctionBackward"


def test_reentrant_without_inputs_that_need_gradients_warns() -> None:
    w = tw.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not checkpoint(lambda x: x * w, tw.ones(2), use_reentrant=True).requires_grad


def test_keywords_and_nested_arguments() -> None:
    a, b = tw.ones(2, requires_grad=True), tw.full((2,), 3.0, requires_grad=True)

    def run(pair: Any, *, scale: float, more: dict[str, Any]) -> Any:
        return {"out": (pair[0] * more["b"] * scale).sum()}

    checkpoint(run, (a, 2), scale=4.0, more={"b": b}, use_reentrant=False)["out"].backward()
    assert a.grad.tolist() == [12.0, 12.0] and b.grad.tolist() == [4.0, 4.0]
    with pytest.raises(ValueError, match="Unexpected keyword arguments: scale"):
        checkpoint(run, (a, 2), scale=4.0, use_reentrant=True)


def test_second_derivatives_go_through() -> None:
    x = tw.tensor([0.5, 2.0], requires_grad=True)
    y = checkpoint(lambda x: (x**3).sum(), x, use_reentrant=False)
    (first,) = tw.autograd.grad(y, x, create_graph=True)
    (second,) = tw.autograd.grad(first.sum(), x)
    tw.testing.assert_close(second, 6 * x.detach())


def test_autocast_is_that_of_the_first_run() -> None:
    seen = []

    def run(x: Any) -> Any:
        seen.append((x @ x).dtype)
        return (x @ x).float().sum()

    x = tw.eye(2).requires_grad_()
    with tw.autocast("cpu", dtype=tw.bfloat16):
        y = checkpoint(run, x, use_reentrant=False)
    y.backward()
    assert seen == [tw.bfloat16, tw.bfloat16]


def test_a_second_run_that_differs_is_an_error() -> None:
    sizes = iter([2, 3])
    x = tw.ones(4, requires_grad=True)
    y = checkpoint(lambda x: x[: next(sizes)], x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="different metadata"):
        y.sum().backward()


def _longer(x: Any) -> Any:
    return (x * x).sin().exp()


def _shorter(x: Any) -> Any:
    return (x * x).exp()


def _smaller(x: Any) -> Any:
    return (x * x)[:2].sin().exp().sum() + x


@pytest.mark.parametrize(
    "first, second, message",
    [
        (_longer, _shorter, "A different number of tensors was saved"),
        (lambda x: (x * x).sin().exp().sum() + x, _smaller, "different metadata|different number"),
    ],
)
def test_a_second_run_that_saves_something_else_is_an_error(
    torch: Any, first: Any, second: Any, message: str
) -> None:
    for lib in (tw, torch):
        module = lib.utils.checkpoint
        runs = iter([first, second])
        x = lib.ones(4, requires_grad=True)
        y = module.checkpoint(lambda x, runs=runs: next(runs)(x), x, use_reentrant=False)
        with pytest.raises(module.CheckpointError, match=message):
            y.sum().backward()


def test_the_check_can_be_turned_off() -> None:
    runs = iter([_longer, _shorter])
    x = tw.ones(4, requires_grad=True)
    y = checkpoint(lambda x: next(runs)(x), x, use_reentrant=False, determinism_check="none")
    y.sum().backward()
    tw.testing.assert_close(x.grad, tw.full((4,), 2 * 2.718281828))


def test_reading_a_value_on_the_way_is_no_difference() -> None:
    looks = iter([True, False])

    def f(x: Any) -> Any:
        y = x.sin()
        if next(looks):
            assert y.sum().item() > 0
        return y.exp() * y

    x = tw.ones(4, requires_grad=True)
    checkpoint(f, x, use_reentrant=False).sum().backward()
    got, x.grad = x.grad, None
    (x.sin().exp() * x.sin()).sum().backward()
    tw.testing.assert_close(got, x.grad)


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_a_sequence_in_segments(segments: int) -> None:
    model = nn.Sequential(*blocks()).eval()
    x = tw.randn(4, 8, requires_grad=True)
    model(x).sum().backward()
    wanted, x.grad = x.grad, None
    checkpoint_sequential(model, segments, x, use_reentrant=False).sum().backward()
    tw.testing.assert_close(x.grad, wanted)


@pytest.mark.slow
@REENTRANT
def test_what_lies_between_inputs_is_not_kept(reentrant: bool) -> None:
    model = [nn.Sequential(*blocks(3, 64).eval()) for _ in range(4)]
    x = tw.randn(2048, 64, requires_grad=True)
    x.sum().item()
    one = x.nbytes

    def kept(checkpointed: bool) -> float:
        """What forward passes leave in NumPy's memory, in sizes of the input."""
        gc.collect()
        before = _numpy_bytes()
        h = x
        for block in model:
            h = checkpoint(block, h, use_reentrant=reentrant) if checkpointed else block(h)
        h.sum().item()
        return (_numpy_bytes() - before) / one

    tracemalloc.start()
    try:
        kept(False)  # arenas of plans grow in a first run
        kept(True)
        # Op by op, as new graphs run, a Function's result is a copy of what it returned.
        most = 5.5 if tiers.mode == tiers.FUSED else 8.5
        assert kept(True) <= most < 20 <= kept(False)
    finally:
        tracemalloc.stop()


def _numpy_bytes() -> int:
    domain = tracemalloc.DomainFilter(True, 389047)  # NumPy's own
    return sum(t.size for t in tracemalloc.take_snapshot().filter_traces([domain]).traces)
