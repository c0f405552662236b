"""Many results that live share the graph beneath them in parts, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.recording import parts as graph_parts

MANY = 12  # results, more than have their graph to themselves


def _w(lib: Any, *values: float) -> Any:
    return lib.tensor(values or (0.5, -1.5, 2.0), dtype=lib.float64, requires_grad=True)


def losses_of_a_trunk(lib: Any) -> list[Any]:
    w = _w(lib)
    trunk = (w * 2).exp().tanh()
    losses = [(trunk * i).sum().sin() for i in range(MANY)]
    losses[0].item()
    sum(losses).backward()
    return [w.grad]


def losses_one_by_one(lib: Any) -> list[Any]:
    w, found = _w(lib), []
    trunk = (w * w).tanh()
    losses = [(trunk * i).exp().sum() for i in range(MANY)]
    losses[0].item()
    for loss in losses:
        w.grad = None
        loss.backward(retain_graph=True)
        found.append(w.grad)
    return found


def outputs_of_a_loop(lib: Any) -> list[Any]:
    w, state, outputs = _w(lib), lib.zeros(3, dtype=lib.float64), []
    for i in range(3 * MANY):
        state = (state * 0.9 + w).tanh()
        outputs.append(state.mean())
        if i % 10 == 9:
            state = state.detach()
        if i == 20:
            outputs[3].item()
    lib.stack(outputs).square().sum().backward()
    return [w.grad, *outputs]


def states_that_live(lib: Any) -> list[Any]:
    w, states = _w(lib), [lib.zeros(3, dtype=lib.float64)]
    for _ in range(MANY):
        states.append((states[-1] + w).sin() * w)
    states[-1].sum().item()
    (g,) = lib.autograd.grad(states[-1].sum(), [states[4]], retain_graph=True)
    more = lib.autograd.grad(states[-1].sum(), [states[2], w, states[7]], retain_graph=True)
    states[-1].sum().backward()
    return [g, *more, w.grad]


def hooks_on_the_way(lib: Any) -> list[Any]:
    w, seen = _w(lib), []
    states = [w * 2]
    for i in range(MANY):
        states.append((states[-1] * w).cos())
        if i % 3 == 0:
            states[-1].register_hook(lambda g: seen.append(g) or g * 0.5)
        if i % 4 == 0:
            states[-1].retain_grad()
    parts = [s.sum() for s in states]
    parts[0].item()
    sum(parts).backward()
    return [w.grad, *seen, *(s.grad for s in states[1::4])]


def second_derivatives(lib: Any) -> list[Any]:
    w = _w(lib)
    states = [w.sin()]
    for _ in range(MANY):
        states.append((states[-1] * w + 1).log())
    states[0].sum().item()
    (g,) = lib.autograd.grad(states[-1].sum(), [w], create_graph=True)
    (h,) = lib.autograd.grad(g.square().sum(), [w])
    return [g, h]


def functions_in_a_chain(lib: Any) -> list[Any]:
    class Square(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    w = _w(lib)
    states = [w]
    for _ in range(MANY):
        states.append(Square.apply(states[-1] * 0.7 + 0.3))
    states[-1].sum().item()
    states[-1].sum().backward()
    return [w.grad]


def a_function_of_two_results(lib: Any) -> list[Any]:
    class Both(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin(), x.cos()

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * x.cos() - h * x.sin()

    w = _w(lib)
    pairs = [Both.apply(w * i) for i in range(MANY)]
    pairs[0][0].sum().item()
    sum((s * c).sum() + c.sum() for s, c in pairs).backward()
    return [w.grad]


def views_asked_for(lib: Any) -> list[Any]:
    w = _w(lib, *[0.1 * i for i in range(12)])
    x = (w * 3).exp()
    rows = [x.view(4, 3)[i] for i in range(4)]
    sums = [(r * r).sum() + (r * i).sum() for i, r in enumerate(rows * 3)]
    sums[0].item()
    return [*lib.autograd.grad(sum(sums), [x, w])]


def writes_in_place(lib: Any) -> list[Any]:
    w = _w(lib)
    states = []
    for i in range(MANY):
        s = w * i
        s.mul_(w)
        s[0] = w[1] * 2
        states.append(s)
    states[0].sum().item()
    sum(s.square().sum() for s in states).backward()
    return [w.grad]


def two_epochs(lib: Any) -> list[Any]:
    w = _w(lib)
    first = [(w * i).tanh() for i in range(MANY)]
    first[0].sum().item()
    second = [(a * b).sum() for a, b in zip(first, reversed(first), strict=True)]
    second[0].item()
    (sum(second) + first[3].sum()).backward()
    return [w.grad]


def some_inputs_alone(lib: Any) -> list[Any]:
    w, v = _w(lib), _w(lib, 1.0, 0.2, 0.3)
    states = [w * v]
    for _ in range(MANY):
        states.append((states[-1] + v.detach()).sin() + w)
    states[0].sum().item()
    (g,) = lib.autograd.grad(states[-1].sum(), [v])
    return [g]


def halves(lib: Any) -> list[Any]:
    w = lib.tensor([0.5, -1.5, 2.0], dtype=lib.bfloat16, requires_grad=True)
    states = [w * 2]
    for _ in range(MANY):
        states.append((states[-1] * 0.75 + w).tanh())
    states[0].sum().item()
    sum(s.sum() for s in states).backward()
    return [w.grad.float()]


PROGRAMS = [
    losses_of_a_trunk, losses_one_by_one, outputs_of_a_loop, states_that_live, hooks_on_the_way,
    second_derivatives, functions_in_a_chain, a_function_of_two_results, views_asked_for,
    writes_in_place, two_epochs, some_inputs_alone, halves,
]  # fmt: skip


@pytest.mark.parametrize("few", [0, graph_parts.FEW])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_through_parts(
    program: Any, few: int, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_parts, "FEW", few)
    rtol = 2e-2 if program is halves else 1e-9
    ours, theirs = program(tw), program(torch)
    for own, other in zip(ours, theirs, strict=True):
        own, other = (t.detach().numpy() for t in (own, other))
        np.testing.assert_allclose(own, other, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("few", [0, graph_parts.FEW])
def test_a_result_that_was_written_to_is_refused(
    few: int, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_parts, "FEW", few)
    for lib in (tw, torch):
        w = _w(lib)
        states = [w.exp()]
        for _ in range(MANY):
            states.append(states[-1].tanh())
        states[0].sum().item()
        states[5].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            states[-1].sum().backward()


@pytest.mark.parametrize("few", [0, graph_parts.FEW])
def test_a_second_pass_is_refused(few: int, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_parts, "FEW", few)
    for lib in (tw, torch):
        w = _w(lib)
        states = [w.exp()]
        for _ in range(MANY):
            states.append(states[-1].tanh())
        states[0].sum().item()
        states[-1].sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            states[-1].sum().backward()


def test_each_node_is_in_one_part() -> None:
    """So what the histories of an epoch need grows with its graph, not with its square."""
    w = _w(tw)
    outputs, state = [], tw.zeros(3)
    for _ in range(40):
        state = (state * 0.9 + w).tanh()
        outputs.append(state.mean())
    roots = tuple(t._node for t in outputs)
    parts = graph_parts.partition(roots)
    inside = [n for node, stops in parts.items() for n in graph_parts.inside(node, stops)]
    assert len(inside) - len(set(inside)) <= len(parts)  # but for the leaf's variable
    assert {n for n in inside if n.op.name != "variable"} == {
        n for r in roots for n in graph_parts.differentiable(r) if n.op.name != "variable"
    }
    assert set(roots) <= set(parts)
