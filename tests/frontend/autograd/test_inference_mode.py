"""Inference tensors against PyTorch: which tensors are such, and what is refused with them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle import agree

import tilewright as tw

pytestmark = pytest.mark.computes


def made(m: Any) -> tuple[Any, Any, Any]:
    """A leaf, a normal tensor and an inference tensor of the same values."""
    with m.inference_mode():
        x = m.arange(3.0) + 1
    return m.arange(3.0).requires_grad_(), m.arange(3.0) + 1, x


def parts_inside(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        parts = (n[1:], n.detach(), n.contiguous(), x[1:], n * 2, n[1:] + 1, m.ones(2))
        layer = m.nn.Linear(2, 2)
        joined = m.stack([m.ones(2)] * 30)
        parts += (layer.weight, layer.weight[0], joined, joined[0], m.from_numpy(np.ones(2)))
        return [t.is_inference() for t in parts], layer.weight.requires_grad


def parts_outside(m: Any, p: Any, n: Any, x: Any) -> Any:
    parts = (x, p, n, x.view(3), x[0], x.detach(), x.data, x.contiguous(), x.to(m.float32))
    parts += (x.clone(), x.to(m.float64), x * n, x.exp(), p + x, copy.deepcopy(x), *x.unbind())
    return [m.is_inference(t) for t in parts]


def grad_mode_inside(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        found = [m.is_grad_enabled(), m.is_inference_mode_enabled()]
        with m.enable_grad():
            leaf = m.ones(2, requires_grad=True)
            found += [m.is_grad_enabled(), (leaf * 2).requires_grad, (p * 2).requires_grad]
            found += [leaf.is_inference(), (p * 2).is_inference(), leaf.requires_grad]
            with m.no_grad():
                found += [m.is_grad_enabled()]
            found += [m.is_grad_enabled()]
        with m.inference_mode(False):
            leaf = m.ones(2, requires_grad=True)
            found += [m.is_grad_enabled(), (leaf * 2).requires_grad, leaf.is_inference()]
            (leaf * leaf).sum().backward()
            found += [leaf.grad]
        found += [m.is_grad_enabled(), m.is_inference_mode_enabled()]
    return [*found, m.is_grad_enabled(), m.is_inference_mode_enabled()]


def writes_inside(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        a = m.zeros(3)
        for i in range(3):
            a[i] = i
            a += 1
        part, whole = a[:2], a.view(3)
        part.mul_(2)
        x.add_(1)
        n.add_(1)
        p.add_(1)
    return a, part, whole.is_inference(), x, n, n._version, n.is_inference(), p, p._version


def training(m: Any, p: Any, n: Any, x: Any) -> Any:
    layer = m.nn.Linear(2, 2)
    with m.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(0.1)
    optimizer, found = m.optim.Adam(layer.parameters(), 0.1), []
    for _ in range(4):
        layer(m.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with m.inference_mode():
            y = layer(m.ones(1, 2))
            total = y.sum().item()
        found += [total, y.sum(), y.is_inference(), (y + 1).is_inference()]
    return found


def batch_norm(m: Any, p: Any, n: Any, x: Any) -> Any:
    layer = m.nn.BatchNorm1d(2)
    with m.inference_mode():
        layer(m.arange(6.0).view(3, 2))
    return layer.running_mean, layer.running_mean.is_inference()


def a_function(m: Any, p: Any, n: Any, x: Any) -> Any:
    class Product(m.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            return g * b, g * a

    with m.inference_mode():
        inside = Product.apply(p, x)
    outside = Product.apply(p, n)
    outside.sum().backward()
    return inside, inside.is_inference(), p.grad, Product.apply(p, x)


def sparse(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        s = m.eye(3).to_sparse()
        return s.is_inference(), s @ m.ones(3), s.coalesce().indices()


def derivatives_inside(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        return m.func.grad(lambda a: (a * a).sum())(m.ones(2)), m.func.vmap(lambda a: a * 2)(x)


def saved_by_an_equal_call(m: Any, p: Any, n: Any, x: Any) -> Any:
    """The same call with a normal tensor comes first."""
    (p * n).sum().backward()
    found = [p.grad.clone()]
    x.sum().item()
    return found, p * x


def pending(m: Any, p: Any, n: Any, x: Any) -> Any:
    """What an inference tensor would be computed from is a normal tensor's computation too."""
    with m.inference_mode():
        y = n * 2
    z = n * 2
    return y.is_inference(), z.is_inference(), p * z, z.add_(1), y, p * y


def layer_made_inside(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        layer = m.nn.Linear(3, 2)
        layer.weight.fill_(1.0)
        layer.bias.fill_(1.0)
    layer(n).sum().backward()
    layer.weight.data.fill_(2.0)
    return layer.bias.grad, layer(n).detach(), layer.weight.is_inference()


def step_of_inference_weights(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        layer = m.nn.Linear(3, 2)
    layer(n).sum().backward()
    m.optim.SGD(layer.parameters(), 0.1).step()


def compiled(m: Any, p: Any, n: Any, x: Any) -> Any:
    @m.compile(backend="eager")
    def f(a: Any) -> Any:
        return a * 2 + 1

    with m.inference_mode():
        for _ in range(4):
            y = f(x)
    return y, y.is_inference(), p * f(n)


def of_two(f: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda m, p, n, x: f(p, x)


def view_taken_inside(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        part = n[1:]
    part.add_(1)
    return n, n._version, part


def saved_for_weights(m: Any, p: Any, n: Any, x: Any) -> Any:
    return m.nn.Linear(3, 1)(x)


def unchecked_out(m: Any, p: Any, n: Any, x: Any) -> Any:
    m.add(n, n, out=x)


def set_requires_grad(m: Any, p: Any, n: Any, x: Any) -> Any:
    x.requires_grad = True


def targets(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        target = m.tensor([0, 1])
    return m.nn.functional.embedding(target, m.ones(3, 2, requires_grad=True))


def mask(m: Any, p: Any, n: Any, x: Any) -> Any:
    with m.inference_mode():
        chosen = m.tensor([True, False, True])
    return p.masked_fill(chosen, 0.0)


CASES: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        parts_inside, parts_outside, grad_mode_inside, writes_inside, training, batch_norm,
        a_function, sparse, derivatives_inside, saved_by_an_equal_call, pending, layer_made_inside,
        step_of_inference_weights, compiled, view_taken_inside, saved_for_weights, unchecked_out,
        set_requires_grad, targets, mask,
    )
} | {
    "version": of_two(lambda p, x: x._version),
    "write": of_two(lambda p, x: x.add_(1)),
    "setitem": of_two(lambda p, x: x.__setitem__(0, 1)),
    "zero": of_two(lambda p, x: x.zero_()),
    "write to a view": of_two(lambda p, x: x.view(3).add_(1)),
    "resize": of_two(lambda p, x: x.resize_(2)),
    "write through data": of_two(lambda p, x: (x.data.add_(1), x.detach().add_(1), x)),
    "requires_grad": of_two(lambda p, x: x.requires_grad_()),
    "requires_grad false": of_two(lambda p, x: x.requires_grad_(False)),
    "product": of_two(lambda p, x: p * x),
    "product with a part": of_two(lambda p, x: p * x.view(3)[0]),
    "product with a copy": of_two(lambda p, x: p * x.clone()),
    "product with a result": of_two(lambda p, x: p * (x + 1)),
    "product in place": of_two(lambda p, x: (p * 1).mul_(x)),
    "product of matrices": of_two(lambda p, x: p.view(1, 3) @ x.view(3, 1)),
    "sum": of_two(lambda p, x: (p + x, p - x, (p + x).exp())),
    "sum in place": of_two(lambda p, x: (p * 1).add_(x)),
    "without gradient": of_two(lambda p, x: p.detach() * x),
}  # fmt: skip


def outcome(m: Any, case: Callable[..., Any]) -> tuple[Any, str | None]:
    try:
        return case(m, *made(m)), None
    except RuntimeError as error:
        return None, str(error)[:45]


@pytest.mark.parametrize("name", CASES)
def test_inference_tensors_are_as_in_pytorch(name: str, torch: Any) -> None:
    expected, refusal = outcome(torch, CASES[name])
    found, ours = outcome(tw, CASES[name])
    assert ours == refusal
    agree(found, expected)


def test_a_program_without_the_mode_has_no_marks() -> None:
    """Nodes of a program that left the mode are those of one that never entered it."""
    x = tw.ones(3)
    before = (x * 2)._node
    with tw.inference_mode():
        assert (x * 2)._node is before
    assert (x * 2)._node is before


def test_many_blocks_look_at_few_tensors() -> None:
    """The end of a block looks at all tensors of its epoch: they mustn't grow with the blocks."""
    from tilewright import recording

    kept = []
    for i in range(1000):
        with tw.inference_mode():
            kept.append(tw.ones(2) * i)
        assert len(recording.handles) < 300
    assert all(t.is_inference() for t in kept)
    assert sum(t.sum().item() for t in kept) == 999_000


def test_an_error_of_the_epoch_before_a_block_changes_no_mode() -> None:
    from tilewright import recording

    recording.flush()
    kept = [tw.ones(1) + i for i in range(300)]
    kept.append(tw.ones(3)[tw.tensor([7])])
    with pytest.raises(IndexError), tw.inference_mode():
        pass
    assert tw.is_grad_enabled() and not tw.is_inference_mode_enabled()
    assert kept[299].item() == 300
