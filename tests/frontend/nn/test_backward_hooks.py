"""Backward hooks of modules: what they see of the gradients of parameters, beside PyTorch."""

import warnings

import numpy as np
import pytest

import tilewright


def filled(module, draw):
    """The module with parameters that don't depend on the framework."""
    for p in module.parameters():
        p.data.copy_(p.new_tensor(draw.standard_normal(p.shape).astype("f")))
    return module


def mlp(torch, draw):
    nn = torch.nn
    return filled(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.Linear(3, 1)), draw)


def tensor(torch, draw, *shape):
    return torch.tensor(draw.standard_normal(shape).astype("f"))


def order_of_hooks(torch, draw):
    """All kinds of hooks, in the order in which they are called."""
    model, seen = mlp(torch, draw), []
    for n, p in model.named_parameters():
        p.register_hook(lambda g, n=n: seen.append(("tensor", n)))
        p.register_post_accumulate_grad_hook(lambda p, n=n: seen.append(("post", n)))
    for n, m in model.named_children():
        m.register_full_backward_pre_hook(lambda m, go, n=n: seen.append(("before", n)))
        m.register_full_backward_hook(lambda m, gi, go, n=n: seen.append(("after", n)))
    hidden = model[:2](tensor(torch, draw, 6, 4))
    hidden.register_hook(lambda g: seen.append(("hidden", "")))
    model[2:](hidden).sum().backward()
    return seen


def clipped_in_hooks(torch, draw):
    """Hooks that halve the gradients of their module's parameters, over two passes."""
    model, seen = mlp(torch, draw), []

    def halve(module, grad_input, grad_output):
        for p in module.parameters():
            seen.append(None if p.grad is None else p.grad.norm().item())
            if p.grad is not None:
                p.grad.mul_(0.5)

    for m in model:
        m.register_full_backward_hook(halve)
    for _ in range(2):
        model(tensor(torch, draw, 6, 4)).pow(2).mean().backward()
    return seen + [p.grad.sum().item() for p in model.parameters()]


def steps_in_backward(torch, draw):
    """Updates as soon as a gradient is there, which the hooks of modules see."""
    model, seen = mlp(torch, draw), []

    def update(p):
        with torch.no_grad():
            p -= 0.01 * p.grad
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    for m in model:
        m.register_full_backward_hook(
            lambda m, gi, go: seen.extend(p.sum().item() for p in m.parameters())
        )
    for _ in range(3):
        loss = model(tensor(torch, draw, 6, 4)).pow(2).mean()
        loss.backward()
        seen.append(loss.item())
    return seen


def used_three_times(torch, draw):
    """A gradient is whole when its last part has come."""
    layer, seen = filled(torch.nn.Linear(3, 3), draw), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append(m.weight.grad is not None))
    layer(layer(layer(tensor(torch, draw, 2, 3).requires_grad_())).tanh()).sum().backward()
    return seen


def values_read_between(torch, draw):
    """A forward pass in several parts, some of which share a weight."""
    model, seen = mlp(torch, draw), []
    for m in model:
        m.register_full_backward_hook(
            lambda m, gi, go: seen.append([p.grad is not None for p in m.parameters()])
        )
    first = model[:2](tensor(torch, draw, 6, 4))
    seen.append(first.sum().item())
    scaled = model[2](first) * model[3].weight.sum()
    seen.append(scaled.sum().item())
    model[3](scaled).mean().backward()
    return seen + [p.grad.sum().item() for p in model.parameters()]


def left_operand(torch, draw):
    weight = tensor(torch, draw, 3, 3).requires_grad_()
    x, seen = tensor(torch, draw, 3, 2).requires_grad_(), []
    y = x * 2
    y.register_hook(lambda g: seen.append((weight.grad is not None, x.grad is not None)))
    (weight @ y).sum().backward()
    return seen


def failing_hook(torch, draw):
    """An exception leaves the gradients that were there by then."""
    model = mlp(torch, draw)

    def fail(*args):
        raise ValueError("stop")

    model[1].register_full_backward_hook(fail)
    with pytest.raises(ValueError, match="stop"):
        model(tensor(torch, draw, 2, 4)).sum().backward()
    return [p.grad is not None for p in model.parameters()]


def other_inputs(torch, draw):
    """Arguments that need no gradient: zeros for tensors, None for what isn't one."""

    class Two(torch.nn.Module):
        def forward(self, x, y, k):
            return x * k, y + x

    two, seen = Two(), []
    two.register_full_backward_hook(
        lambda m, gi, go: seen.append([None if g is None else g.tolist() for g in gi])
    )
    x = tensor(torch, draw, 2).requires_grad_()
    a, b = two(x, tensor(torch, draw, 2), 2)
    (a.sum() + b.pow(2).sum()).backward()
    return seen


def removed_after_forward(torch, draw):
    model, seen = mlp(torch, draw), []
    handle = model[2].register_full_backward_hook(lambda m, gi, go: seen.append("called"))
    out = model(tensor(torch, draw, 2, 4)).sum()
    handle.remove()
    model[3].register_full_backward_hook(lambda m, gi, go: seen.append("too late"))
    out.backward()
    return seen


def parts_not_asked_for(torch, draw):
    """A pass for some tensors calls no code on the way to others."""
    seen = []

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.name)
            (x,) = ctx.saved_tensors
            return 2 * x * g, None

    a, b = (tensor(torch, draw, 3).requires_grad_() for _ in range(2))
    loss = (Square.apply(a, "a") * Square.apply(b, "b")).sum()
    seen.append(torch.autograd.grad(loss, [a], retain_graph=True)[0].tolist())
    loss.backward(inputs=[b])
    return [*seen, a.grad, b.grad.tolist()]


PROGRAMS = [
    order_of_hooks,
    clipped_in_hooks,
    steps_in_backward,
    used_three_times,
    values_read_between,
    left_operand,
    failing_hook,
    other_inputs,
    removed_after_forward,
    parts_not_asked_for,
]


def flat(values):
    """The leaves of nested lists: (numbers, the rest)."""
    if isinstance(values, (list, tuple)):
        for v in values:
            yield from flat(v)
    else:
        yield values


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_hooks(program, torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = list(flat(program(tilewright, np.random.RandomState(0))))
        theirs = list(flat(program(torch, np.random.RandomState(0))))
    assert len(ours) == len(theirs)
    for own, other in zip(ours, theirs, strict=True):
        if isinstance(other, float):
            assert own == pytest.approx(other, rel=2e-5, abs=1e-6)
        else:
            assert own == other


@pytest.mark.parametrize("given", [(None, None), []], ids=["two", "none"])
def test_wrong_number_of_gradients(given):
    layer = tilewright.nn.Linear(3, 1)
    layer.register_full_backward_hook(lambda m, gi, go: given)
    with pytest.raises(RuntimeError, match="invalid number of grad_input, got"):
        layer(tilewright.ones(2, 3, requires_grad=True)).sum().backward()


def test_module_without_inputs_that_require_gradients(torch):
    """It warns, and its hook may not return gradients."""
    for framework in (tilewright, torch):
        layer = framework.nn.Linear(3, 1)
        layer.register_full_backward_hook(lambda m, gi, go: go)
        with (
            pytest.warns(UserWarning, match="Full backward hook is firing"),
            pytest.raises(RuntimeError, match="should always return None"),
        ):
            layer(framework.ones(2, 3)).sum().backward()
