"""Gradients against PyTorch and finite differences, with values read in between at every place."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle import agree

import tilewright as tw
from tilewright import recording
from tilewright.autograd import gradcheck, gradgradcheck
from tilewright.recording import clock

SCRIPTS: dict[str, Any] = {}


def script(function: Any) -> Any:
    SCRIPTS[function.__name__] = function
    return function


def leaf(m: Any, *values: float) -> Any:
    return m.tensor(list(values), dtype=m.float64, requires_grad=True)


# Scripts call look(tensor) where a value may be read. Each is run with every such place on and off.


@script
def introduction(m: Any, look: Any) -> Any:
    x = m.ones(2, 2, requires_grad=True)
    y = x + 2
    look(y)
    z = y * y * 3
    look(z)
    out = z.mean()
    look(out)
    out.backward()
    look(x.grad)
    return x.grad, y, z, out


@script
def accumulated(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2, 3)
    for k in range(3):
        loss = (w * w * (k + 1)).sum()
        look(loss)
        loss.backward()
        look(w.grad)
    return w.grad


@script
def several_losses(m: Any, look: Any) -> Any:
    w, v = leaf(m, 1, 2), leaf(m, 3, 4)
    h = (w * v).tanh()
    look(h)
    a, b = (h * w).sum(), (h * v).sum()
    look(a)
    a.backward(retain_graph=True)
    look(w.grad)
    b.backward()
    return w.grad, v.grad


@script
def backward_twice(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    loss = w.exp().sum()
    look(loss)
    loss.backward(retain_graph=True)
    look(w.grad)
    loss.backward(retain_graph=True)
    look(w.grad)
    loss.backward()
    return w.grad


@script
def kept_losses(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    losses = []
    for k in range(4):
        loss = ((w - k) ** 2).sum()
        losses.append(loss)
        loss.backward()
        look(loss)
        with m.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
    return [loss.detach() for loss in losses], w


@script
def partial_graphs(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    h = w * 3
    look(h)
    d = h.detach().requires_grad_()
    out = (d * d).sum()
    look(out)
    out.backward()
    look(d.grad)
    h.backward(d.grad)
    return w.grad, d.grad


@script
def seeds(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    y = w * w
    look(y)
    y.backward(m.tensor([1.0, 10.0]))
    m.autograd.backward([(w * 2).sum(), w * 3], [None, m.tensor([1.0, 2.0], dtype=m.float64)])
    return w.grad


@script
def a_long_chain(m: Any, look: Any) -> Any:
    w, x = leaf(m, 0.5, 0.25), m.tensor([1.0, 2.0], dtype=m.float64)
    h = x
    for _ in range(6):
        h = (h * w + 0.1).sin()
        look(h)
    h.sum().backward()
    return w.grad, h


@script
def diamonds(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    a = w * 2
    look(a)
    b, c = a.exp(), a * a
    look(b)
    look(c)
    d = b * c + a
    look(d)
    d.sum().backward()
    return w.grad


@script
def grad_of_inner_tensors(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    a = w * w
    look(a)
    b = a * 3 + w
    look(b)
    c = (a * b).sum()
    look(c)
    return m.autograd.grad(c, [a, b, w])


@script
def grad_of_views(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2, 3)
    h = w * 2
    v = h[1:]
    look(v)
    out = (v * v).sum()
    look(out)
    return m.autograd.grad(out, [v, h, w])


@script
def unused_inputs(m: Any, look: Any) -> Any:
    w, v = leaf(m, 1, 2), leaf(m, 3, 4)
    out = (w * 2).sum()
    look(out)
    a, b = m.autograd.grad(out, [w, v], allow_unused=True, retain_graph=True)
    assert b is None
    return a, m.autograd.grad(out, [w, v], materialize_grads=True)


@script
def chosen_inputs(m: Any, look: Any) -> Any:
    w, v = leaf(m, 1, 2), leaf(m, 3, 4)
    out = (w * v).sum()
    look(out)
    out.backward(inputs=[w])
    assert v.grad is None
    return w.grad


@script
def second_derivative(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    y = (w**3).sum()
    look(y)
    (g,) = m.autograd.grad(y, w, create_graph=True)
    look(g)
    (h,) = m.autograd.grad(g.sum(), w, create_graph=True)
    look(h)
    (t,) = m.autograd.grad(h.sum(), w)
    return g, h, t


@script
def gradient_penalty(m: Any, look: Any) -> Any:
    w = leaf(m, 0.5, -1.5)
    x = m.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=m.float64, requires_grad=True)
    out = (x @ w).tanh()
    look(out)
    (g,) = m.autograd.grad(out.sum(), x, create_graph=True)
    look(g)
    loss = ((g.norm(dim=1) - 1) ** 2).mean() + out.mean()
    look(loss)
    loss.backward()
    return w.grad, x.grad


@script
def hessian_vector_product(m: Any, look: Any) -> Any:
    w, v = leaf(m, 1, 2, 3), m.tensor([1.0, -1.0, 2.0], dtype=m.float64)
    loss = (w.prod() * w.sum()).exp().log()
    (g,) = m.autograd.grad(loss, w, create_graph=True)
    look(g)
    return m.autograd.grad((g * v).sum(), w)


@script
def backward_with_a_graph(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    (w**3).sum().backward(create_graph=True)
    look(w.grad)
    first = w.grad
    w.grad = None
    first.sum().backward()
    result = w.grad
    w.grad = None
    return first.detach(), result


@script
def hooks_of_leaves(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    seen = []
    handle = w.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    loss = (w * w).sum()
    look(loss)
    loss.backward()
    handle.remove()
    (w * w).sum().backward()
    return w.grad, m.tensor(seen)


@script
def hooks_of_others(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    h = w * 3
    seen = []
    h.register_hook(lambda g: seen.append(g.clone()))
    h.register_hook(lambda g: g * 10)
    look(h)
    a = h.exp()
    look(a)
    (a.sum() + (h * h).sum()).backward()
    return w.grad, seen


@script
def retained_gradients(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    h = w * 3
    h.retain_grad()
    look(h)
    y = h * h
    look(y)
    y.retain_grad()
    y.sum().backward()
    return w.grad, h.grad, y.grad


@script
def hooks_after_use(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    h = w * 3
    y = (h * h).sum()
    look(y)
    h.retain_grad()
    look(h)
    y.backward()
    return w.grad, h.grad


@script
def hooks_that_look(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    h = w.exp()
    values = []
    h.register_hook(lambda g: values.append(float(g.sum()) + float(h.detach().sum())))
    w.register_hook(lambda g: values.append(g.numpy().copy().sum()))
    (h * w).sum().backward()
    return w.grad, m.tensor(values)


@script
def after_accumulation(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)

    def step(p: Any) -> None:
        with m.no_grad():
            p.sub_(p.grad, alpha=0.1)
        p.grad = None

    w.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        loss = (w * w).sum()
        look(loss)
        loss.backward()
    assert w.grad is None
    return w


@script
def modes(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    with m.no_grad():
        a = w * 2
        look(a)
        with m.enable_grad():
            b = w * 3
    c = a * w + b
    look(c)
    c.sum().backward()

    @m.no_grad()
    def quiet(x: Any) -> Any:
        return x * 2

    with m.inference_mode():
        d = w * 5
    flags = [float(t.requires_grad) for t in (a, b, c, quiet(w), d)]
    m.set_grad_enabled(False)
    e = w * 2
    m.set_grad_enabled(True)
    return w.grad, m.tensor([*flags, float(e.requires_grad), float(m.is_grad_enabled())])


@script
def detached_parts(m: Any, look: Any) -> Any:
    w = leaf(m, 1, 2)
    h = w * w
    look(h)
    out = (h * h.detach()).sum() + h.detach().sum()
    out.backward()
    return w.grad


@script
def frozen_and_thawed(m: Any, look: Any) -> Any:
    w, v = leaf(m, 1, 2), leaf(m, 3, 4)
    v.requires_grad_(False)
    (w * v).sum().backward()
    look(w.grad)
    v.requires_grad_(True)
    (w * v).sum().backward()
    return w.grad, v.grad


def tensors_of(result: Any) -> Any:
    return result


pytestmark = [pytest.mark.computes, pytest.mark.filterwarnings("ignore:Using backward")]


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(torch: Any, name: str) -> None:
    expected = SCRIPTS[name](torch, lambda t: None)
    places = [0]

    def count(t: Any) -> None:
        places[0] += 1

    agree(SCRIPTS[name](tw, count), expected)
    for chosen in itertools.islice(
        itertools.product((False, True), repeat=min(places[0], 6)), 1, None
    ):
        turns = itertools.chain(chosen, itertools.repeat(chosen[-1]))
        agree(
            SCRIPTS[name](tw, lambda t, turns=turns: next(turns) and t.detach().tolist()), expected
        )


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_with_an_epoch_for_each_op(torch: Any, name: str, monkeypatch: Any) -> None:
    expected = SCRIPTS[name](torch, lambda t: None)
    monkeypatch.setattr(clock, "limit", 0)
    monkeypatch.setattr(clock, "usual_limit", 0)
    agree(SCRIPTS[name](tw, lambda t: None), expected)


# ---- errors ----------------------------------------------------------------------------------

ERRORS = {
    "twice": lambda m: [t.backward() for t in [leaf(m, 1.0).exp().sum()] * 2],
    "twice after a look": lambda m: _twice(m),
    "through a freed part": lambda m: _freed_part(m),
    "no grad": lambda m: m.ones(1).backward(),
    "not a scalar": lambda m: (leaf(m, 1, 2) * 2).backward(),
    "seed of another shape": lambda m: (leaf(m, 1, 2) * 2).backward(m.ones(3)),
    "unused": lambda m: m.autograd.grad(leaf(m, 1).sum(), leaf(m, 2)),
    "input without grad": lambda m: m.autograd.grad(leaf(m, 1).sum(), m.ones(1)),
    "hook without grad": lambda m: m.ones(1).register_hook(lambda g: g),
    "retain without grad": lambda m: (
        m.ones(1).retain_grad() if False else (_ for _ in ()).throw(RuntimeError())
    ),
    "post hook of another": lambda m: (leaf(m, 1) * 2).register_post_accumulate_grad_hook(print),
    "flag of another": lambda m: (leaf(m, 1) * 2).requires_grad_(False),
    "empty inputs": lambda m: leaf(m, 1).sum().backward(inputs=[]),
}


def _twice(m: Any) -> None:
    loss = leaf(m, 1.0, 2.0).exp().sum()
    loss.item()
    loss.backward()
    loss.item()
    loss.backward()


def _freed_part(m: Any) -> None:
    w = leaf(m, 1.0, 2.0)
    h = w.exp()
    (h * 2).sum().backward()
    h.tolist()
    (h * 3).sum().backward()


@pytest.mark.parametrize("name", ERRORS)
def test_error(torch: Any, name: str) -> None:
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch)
    with pytest.raises(theirs.type):
        ERRORS[name](tw)


def test_graphs_that_save_nothing_can_be_used_twice(torch: Any) -> None:
    for m, look in itertools.product((torch, tw), (False, True)):
        w = leaf(m, 1, 2)
        loss = (w + 1).sum()
        if look:
            loss.item()
        loss.backward()
        loss.backward()
        assert w.grad.tolist() == [2, 2]


def test_results_of_one_expression_are_told_apart() -> None:
    w = leaf(tw, 1, 2)
    for a, b in ((w * 2, w * 2), ((w * 2)[:], (w * 2)[:])):
        (g,) = tw.autograd.grad((a * b * b).sum(), a)
        assert g.tolist() == [4, 16]


@pytest.mark.parametrize("read", [False, True])
def test_hooks_of_twins(torch: Any, read: bool) -> None:
    """Two tensors of one expression have one node; each hook sees the gradient of its own."""

    def seen(m: Any) -> Any:
        w, found, total = leaf(m, 1, 2), [], 0
        for i in range(3):
            h = (w * 2).exp()
            h.register_hook(lambda g, i=i: found.append((i, g.tolist())))
            total = total + (h * (i + 1)).sum()
        a = w * 2
        a.retain_grad()
        b, view = w * 2, (w * 2).view(2)
        view.retain_grad()
        total = total + (a * b * view).sum()
        if read:
            total.item()
        total.backward()
        return sorted(found), a.grad.tolist(), view.grad.tolist()

    assert seen(tw) == seen(torch)


# ---- finite differences ----------------------------------------------------------------------

FUNCTIONS = {
    "polynomial": lambda x, y: x**3 * y + x / (y * y + 1),
    "matmul": lambda x, y: (x.reshape(2, 3) @ y.reshape(3, 2)).tanh(),
    "softmax": lambda x, y: (x.reshape(2, 3).softmax(-1) * y.reshape(2, 3)).sum(),
    "views and writes": lambda x, y: _written(x, y),
    "max": lambda x, y: tw.maximum(x, y).amax() + tw.minimum(x, y).amin(),
    "sort": lambda x, y: (x.sort().values * y).cumsum(0),
    "gather": lambda x, y: x[[0, 0, 2]] * y[1:4] + x.index_select(0, tw.tensor([3, 3, 3])),
    "norm": lambda x, y: x.norm() * y.norm(1) + (x.reshape(2, 3).norm(dim=1)).sum(),
    "var": lambda x, y: x.var() + y.std() + x.reshape(3, 2).var(0).sum(),
    "cat": lambda x, y: tw.cat([x, y]).reshape(3, 4).t().cumprod(1),
    "where": lambda x, y: tw.where(x > y, x * x, y.exp()),
    "einsum": lambda x, y: tw.einsum("ij,kj->ik", x.reshape(2, 3), y.reshape(2, 3)),
    "logaddexp": lambda x, y: tw.logaddexp(x, y) + tw.xlogy(x * x, y * y) + tw.hypot(x, y),
    "median": lambda x, y: x.median() * y + x.kthvalue(2).values,
    "cdist": lambda x, y: tw.cdist(x.reshape(3, 2), y.reshape(3, 2)).sum(),
    "kron": lambda x, y: tw.kron(x[:2], y[:2]) + tw.cross(x[:3], y[:3], 0).sum(),
}


def _written(x: Any, y: Any) -> Any:
    out = x * 2
    out[1:3] = y[:2] * y[2:4]
    out[0] += x[1]
    out.view(2, 3)[1] *= y[:3]
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_finite_differences(name: str) -> None:
    rng = np.random.default_rng(1)
    x = tw.tensor(rng.uniform(0.5, 2, 6), requires_grad=True)
    y = tw.tensor(rng.uniform(0.5, 2, 6), requires_grad=True)
    assert gradcheck(FUNCTIONS[name], (x, y))
    assert gradgradcheck(FUNCTIONS[name], (x, y))


def test_gradcheck_finds_a_wrong_derivative() -> None:
    class Wrong(tw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, leaf(tw, 1, 2))
    assert not gradcheck(Wrong.apply, leaf(tw, 1, 2), raise_exception=False)


FUNCTIONALS = {
    "jacobian": lambda m, f, x: m.autograd.functional.jacobian(f, x),
    "jacobian of two": lambda m, f, x: m.autograd.functional.jacobian(
        lambda a, b: (a * b, a.sum()), (x, x * 2)
    ),
    "hessian": lambda m, f, x: m.autograd.functional.hessian(lambda a: f(a).sum(), x),
    "vjp": lambda m, f, x: m.autograd.functional.vjp(f, x, m.ones(3, dtype=m.float64)),
    "jvp": lambda m, f, x: m.autograd.functional.jvp(f, x, m.ones(3, dtype=m.float64)),
    "hvp": lambda m, f, x: m.autograd.functional.hvp(
        lambda a: f(a).sum(), x, m.ones(3, dtype=m.float64)
    ),
    "vhp": lambda m, f, x: m.autograd.functional.vhp(
        lambda a: f(a).sum(), x, m.ones(3, dtype=m.float64)
    ),
}


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_functional(torch: Any, name: str) -> None:
    def run(m: Any) -> Any:
        return FUNCTIONALS[name](
            m, lambda a: a**3 + a.prod(), m.tensor([1.0, 2.0, 3.0], dtype=m.float64)
        )

    agree(run(tw), run(torch))


@pytest.mark.triton
@pytest.mark.parametrize("name", ["topk", "median", "gather", "scatter_add"])
def test_a_gradient_after_the_value_was_read(name: str) -> None:
    """What is kept for it are values of the tensor's device, and no positions."""
    index = np.array([[0, 3, 3], [1, 0, 2]])
    calls: dict[str, Any] = {
        "topk": lambda x, i: x.topk(2, 1).values,
        "median": lambda x, i: x.median(1).values,
        "gather": lambda x, i: x.gather(1, i),
        "scatter_add": lambda x, i: x.scatter_add(1, i, x * 2),
    }
    values = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    found = []
    for device in ("cpu", "interpret"):
        x = tw.from_numpy(values).to(device).requires_grad_()
        y = calls[name](x, tw.from_numpy(index).to(device))
        shown = y.detach().cpu().numpy()
        (y * y.detach()).sum().backward()
        assert x.grad is not None
        found.append((shown, x.grad.cpu().numpy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("read", [0, 1, 2])
@pytest.mark.parametrize("own", [False, True])
def test_hooks_see_second_derivatives(read: int, own: bool) -> None:
    """Also where the first pass goes through a tensor that an earlier epoch computed."""
    oracle = pytest.importorskip("torch")

    def gradient(torch: Any) -> Any:
        w = torch.tensor([[0.3, 0.2], [-0.4, 0.5]], requires_grad=True)
        x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
        h = (x @ w).tanh()
        h.register_hook(lambda g: g * 0.5)
        loss = h.sum() * 0.1
        if read:
            loss.item()
        (g,) = torch.autograd.grad(loss, [w], create_graph=True)
        if read > 1:
            g.sum().item()
        (g.pow(2).sum() + (loss if own else 0)).backward()
        return w.grad.tolist()

    np.testing.assert_allclose(gradient(tw), gradient(oracle), rtol=1e-5)


RESULTS: dict[str, Any] = {
    "quotient": lambda m, x, y: x / y,
    "reciprocal": lambda m, x, y: 1 / x,
    "erfinv": lambda m, x, y: (x / 4).erfinv(),
    "unit": lambda m, x, y: m.nn.functional.normalize(x, dim=0),
    "exp": lambda m, x, y: x.exp(),
    "reciprocal()": lambda m, x, y: x.reciprocal(),
    "root": lambda m, x, y: x.sqrt(),
    "softmax": lambda m, x, y: x.softmax(0),
    "quotient squared": lambda m, x, y: (x / y).square_(),
}


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_results_that_may_be_overwritten(torch: Any, name: str, read: bool) -> None:
    """A quotient may be, as its derivative needs the operands alone; a power of e may not."""

    def gradients(m: Any) -> Any:
        x, y = leaf(m, 1, 2, 3), leaf(m, 2, 0.5, 1.5)
        h = RESULTS[name](m, x, y)
        if read:
            h.sum().item()
        h.add_(1)
        try:
            h.pow(2).mean().backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return "refused"
        return [x.grad.tolist(), y.grad.tolist() if y.grad is not None else 0]

    ours, theirs = gradients(tw), gradients(torch)
    if theirs == "refused":
        assert ours == theirs
    else:
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_quotient_that_others_read_may_not_be_overwritten() -> None:
    x, y = leaf(tw, 1, 2, 3), leaf(tw, 2, 0.5, 1.5)
    h = x / y
    z = h * h
    h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_copy_of_scores_may_be_overwritten() -> None:
    """The loss keeps a copy of its own, also where the program made an equal one."""
    x = leaf(tw, 1, 2, 3)
    scores = x.relu()
    loss = tw.nn.functional.cross_entropy(scores, tw.tensor(1))
    copy = scores.clone()
    with tw.no_grad():
        copy.mul_(0.5)
    loss.backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.tolist(), [0.09003057, -0.75527153, 0.66524096], rtol=1e-6)
    assert copy.tolist() == [0.5, 1, 1.5]


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("loss", ["cross_entropy", "l1_loss", "mse_loss"])
def test_scores_that_may_be_overwritten_after_a_loss(torch: Any, loss: str, read: bool) -> None:
    """Those of cross entropy and of the L1 loss may be, also in a step of their own."""

    def gradients(m: Any) -> Any:
        x, w = m.tensor([[1.0, -2.0, 3.0]]), leaf(m, 1, 0.5, -1)
        target = m.tensor([1]) if loss == "cross_entropy" else m.tensor([[0.5, 0.5, 0.5]])
        scores = x * w
        value = getattr(m.nn.functional, loss)(scores, target)
        if read:
            value.item()
        with m.no_grad():
            scores.add_(7)
        try:
            value.backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return "refused"
        return [*w.grad.tolist(), *scores.tolist()[0]]

    ours, theirs = gradients(tw), gradients(torch)
    if theirs == "refused":
        assert ours == theirs
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("read", [False, True])
def test_what_a_copy_replaces_gets_a_gradient_of_zeros(torch: Any, read: bool) -> None:
    """Also if the copied value has a history of its own."""

    def gradients(m: Any) -> Any:
        x, y, z = leaf(m, 1, 2, 3), leaf(m, 4, 5, 6), leaf(m, 7, 8, 9)
        whole, part = x * 2, z * 2
        whole.copy_(y.sum())
        part[:] = y
        part[1:].mul_(y[1:])
        if read:
            whole.tolist(), part.tolist()
        (whole.square().sum() + part.sum()).backward()
        return [t.grad.tolist() for t in (x, y, z)]

    assert gradients(tw) == gradients(torch)


@pytest.mark.parametrize("read", [False, True])
def test_one_of_two_equal_tensors_may_be_overwritten(read: bool) -> None:
    """The loss reads a tensor that the same expression computed, as PyTorch has two."""
    x, w = tw.tensor([1.0, 2.0]), leaf(tw, 3, 4)
    h = x + 1
    loss = ((x + 1) * w).pow(2).sum()
    if read:
        loss.item()
    h.zero_()
    loss.backward()
    assert w.grad is not None and w.grad.tolist() == [24, 72] and h.tolist() == [0, 0]


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("view", [lambda x: x[:], lambda x: x.view_as(x)])
def test_the_gradient_of_a_view_of_a_whole_leaf(view: Any, read: bool) -> None:
    x = tw.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = view(x)
    loss = (v**3).sum()
    if read:
        loss.item()
    (first,) = tw.autograd.grad(loss, v, create_graph=True)
    assert first.tolist() == [3.0, 12.0, 27.0]
    assert tw.autograd.grad(first.sum(), [x, v])[1].tolist() == [6.0, 12.0, 18.0]


WHOLE_VIEWS = {
    "view": lambda x: x.view(-1),
    "slice": lambda x: x[:],
    "squeeze": lambda x: x.squeeze(),
    "reshape": lambda x: x.reshape(2),
    "expand": lambda x: x.expand(2),
    "transpose": lambda x: x.transpose(0, 0),
    "view_as": lambda x: x.view_as(x),
    "permute": lambda x: x.permute(0),
    "narrow": lambda x: x.narrow(0, 0, 2),
}


@pytest.mark.parametrize("name", WHOLE_VIEWS)
def test_the_gradient_of_a_view_of_a_whole_result(torch: Any, name: str) -> None:
    """The view's gradient is a part of that of the result, which is used beside it."""

    def run(m: Any) -> Any:
        x = leaf(m, 1, 2) * 2
        v = WHOLE_VIEWS[name](x)
        loss = (v * v).sum() + x[0] ** 3
        return [g.tolist() for g in m.autograd.grad(loss, [v, x])]

    assert run(tw) == run(torch) == [[4, 8], [16, 8]]


def test_jacobians_of_results_and_of_constants(torch: Any) -> None:
    """A Jacobian that is differentiated itself, as an extended Kalman filter has it."""

    def run(m: Any) -> Any:
        def step(x: Any) -> Any:
            return m.stack([x[0] + x[1] * x[0], x[1] - m.sin(x[0])])

        w, out = leaf(m, 0.5, -1.0), []
        for x in (m.tensor([1.0, 2.0]), w * 2):
            j = m.autograd.functional.jacobian(step, x, create_graph=True)
            y = (j @ step(x)).sum() + j.square().sum()
            out += [j.tolist(), x.requires_grad, y.item()]
        (g,) = m.autograd.grad(y, w)
        return [*out, g.tolist()]

    ours, theirs = run(tw), run(torch)
    assert ours[1] is theirs[1] is False and ours[4] is theirs[4] is True
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_hooks_of_a_tensor_get_the_same_object(torch: Any) -> None:
    """One may leave something on it for the next, or keep it, as captum's propagation rules do."""

    def run(m: Any, moves: bool) -> list[Any]:
        x, out, kept = m.arange(3.0, requires_grad=True), [], []
        inner = x * 3
        inner.register_hook(lambda g: out.append(hasattr(kept[0], "mark")))
        h = inner.relu()
        h.register_hook(kept.append)
        if moves:
            h.data = m.ones(3)

        def mark(g: Any) -> Any:
            assert g is kept[0]
            g.mark = True
            return g * 2

        h.register_hook(mark)
        h.register_hook(lambda g: out.append((hasattr(g, "mark"), g.tolist())))
        (h * 2).sum().backward()
        return [*out, x.grad.tolist()]

    for moves in (False, True):
        assert run(tw, moves) == run(torch, moves)


WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mul": lambda m, t, x: t.mul_(3.0),
    "tracked": lambda m, t, x: t.add_(x.sum()),
    "untracked": lambda m, t, x: m.no_grad()(t.mul_)(3.0),
    "masked": lambda m, t, x: t.masked_fill_(t > 0, 5.0),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_kept_gradient_is_that_of_the_latest_value(torch: Any, write: str) -> None:
    """Hooks stay with the value that they were set on."""

    def run(m: Any, show: Any, kept: int, written: int) -> list[Any]:
        x, seen = m.ones(4, requires_grad=True), []
        y = x * 2
        both = y, show(y)
        both[kept].retain_grad()
        both[kept].register_hook(lambda g: seen.append(g.tolist()))
        WRITES[write](m, both[written], x)
        ((y * m.tensor([1.0, 2.0, 3.0, 4.0])).sum() + both[1].sum() * 10).backward()
        return [both[kept].grad.tolist(), seen, x.grad.tolist()]

    for show in (lambda t: t, lambda t: t[1:], lambda t: t.view(2, 2)):
        for kept, written in itertools.product(range(2), repeat=2):
            assert run(tw, show, kept, written) == run(torch, show, kept, written)


def test_views_alike_of_several_functions(torch: Any) -> None:
    """A call that is met again doesn't give the node of the view that it gave before."""

    def run(m: Any) -> list[Any]:
        y = m.ones(2, 2, requires_grad=True) * 3
        u, v, w = y.reshape(4), y.view(4), y.view(4)
        return [g.tolist() for g in m.autograd.grad((u + v * 2 + w * 3).sum(), [u, v, w, y])]

    with recording.novelty.recorded():
        ours = run(tw)
    assert ours == run(torch)
