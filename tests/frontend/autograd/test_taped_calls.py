"""Second derivatives, hooks and Functions, on the tape and recorded, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from epoch_programs import calls_at_once

import tilewright as tw
from tilewright.autograd import api, taped
from tilewright.recording import clock, novelty


def data(m: Any, *shape: int, seed: int = 0, grad: bool = False) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return m.tensor(values, dtype=m.float64, requires_grad=grad)


def physics(m: Any) -> list[Any]:
    """Derivatives of a network by its inputs, of other sizes in each step."""
    F, seen = m.nn.functional, []
    w, v = data(m, 8, 2, grad=True), data(m, 1, 8, seed=1, grad=True)
    for n in (4, 6, 3):
        x, t = data(m, n, 1, seed=n, grad=True), data(m, n, 1, seed=9, grad=True)
        u = F.linear(F.linear(m.cat([x, t], 1), w).tanh(), v)
        ux, ut = m.autograd.grad(u.sum(), (x, t), create_graph=True)
        (uxx,) = m.autograd.grad(ux, x, m.ones_like(ux), create_graph=True)
        (ut + u * ux - 0.1 * uxx).square().mean().backward()
        seen += [ux, ut, uxx]
    return [*seen, w.grad, v.grad]


def forces(m: Any) -> list[Any]:
    """Through views that broadcast."""
    c, w, found = m.linspace(0, 2, 4, dtype=m.float64), data(m, 4, 1, seed=3, grad=True), []
    for k in (3, 5):
        x = data(m, k, 3, seed=k, grad=True)
        d = (x[:, None] - x[None]).pow(2).sum(-1).add(1e-2).sqrt()
        energy = (m.exp(-((d[..., None] - c) ** 2)) @ w).sum()
        (f,) = m.autograd.grad(energy, x, create_graph=True)
        (f[1:].square().mean() + f.t()[0].sum()).backward()
        found += [f, x.grad]
    return [*found, w.grad]


def third(m: Any) -> list[Any]:
    x = data(m, 5, grad=True)
    found: list[Any] = [(x.sin() * x.exp() + x.softmax(0) / (1 + x**2)).sum()]
    for _ in range(3):
        found.append(m.autograd.grad(found[-1].sum(), x, create_graph=True)[0])
    return found


def attention(m: Any) -> list[Any]:
    """One tensor as the query, the keys and the values."""
    x, found = data(m, 2, 6, 4, grad=True), []
    scores = m.nn.functional.scaled_dot_product_attention
    if m is not tw:  # whose second derivative PyTorch has for the formula alone

        def scores(q: Any, k: Any, v: Any) -> Any:
            return (q @ k.transpose(-2, -1) / 2).softmax(-1) @ v

    for _ in range(2):
        (g,) = m.autograd.grad(scores(x, x, x).square().mean(), x, create_graph=True)
        (g.square().sum() + x.sum()).backward()
        found += [g, x.grad.clone()]
    return found


def recurrence(m: Any) -> list[Any]:
    """One tensor as both states."""
    layer = m.nn.LSTM(3, 4).double()
    with m.no_grad():
        for i, p in enumerate(layer.parameters()):
            p.copy_(data(m, *p.shape, seed=i) * 0.4)
    x, h = data(m, 5, 2, 3, grad=True), data(m, 1, 2, 4, seed=1, grad=True)
    gs = m.autograd.grad(layer(x, (h, h))[0].square().sum(), (x, h), create_graph=True)
    sum(g.square().sum() for g in gs).backward()
    return [*gs, x.grad, h.grad]


def unused(m: Any) -> list[Any]:
    x, y, z = (data(m, 3, seed=i, grad=True) for i in range(3))
    h = x * y
    found = m.autograd.grad((h * h).sum(), (x, z, h), create_graph=True, allow_unused=True)
    assert found[1] is None
    (found[0] * found[2]).sum().backward()
    zeros = m.autograd.grad((x * y).sum(), (z, x), materialize_grads=True)
    return [found[0], found[2], x.grad, y.grad, *zeros]


def added(m: Any) -> list[Any]:
    """backward(create_graph=True) adds to gradients that go on, also by hooks of leaves."""
    x = data(m, 3, grad=True)
    x.register_hook(lambda g: g * 2)
    for _ in range(2):
        (x**3).sum().backward(create_graph=True)
    first = x.grad
    x.grad = None
    first.square().sum().backward()
    return [first, x.grad]


def hooks(m: Any) -> list[Any]:
    """Hooks see whole gradients, change them and put others in their place, in PyTorch's order."""
    x, w = data(m, 4, grad=True), data(m, 4, seed=1, grad=True)
    seen: list[Any] = []

    def keep(g: Any) -> None:
        seen.append(g.clone())

    def number(g: Any) -> None:
        seen.append(g + len(seen))

    def scale(g: Any) -> None:
        g.mul_(3)

    for step in range(4):
        h = x * w
        a, b = m.stack([h.sin(), h + 1]).unbind(0)
        y = a * b
        kept = [h.register_hook(keep) for _ in range(2)]
        h.register_hook(lambda g: g * 0.5)
        (y if step % 2 else h).register_hook(scale)
        y.retain_grad()
        h.retain_grad()
        w.register_hook(number)
        kept[1].remove()
        (y * y).sum().backward(retain_graph=True)
        seen += [h.grad.clone(), y.grad, x.grad.clone()]
        (g,) = m.autograd.grad(y.square().sum(), h)
        seen.append(g)
    return [*seen, x.grad, w.grad]


def hooked_views(m: Any) -> list[Any]:
    """Views with hooks, beside results with hooks."""
    x, seen = data(m, 2, 4, grad=True), []
    for _ in range(2):
        h = x.exp()
        h.register_hook(lambda g: g * 2)
        a, b = h.unbind(0)
        a.register_hook(lambda g: seen.append(g.clone()))
        y = a * b
        y.register_hook(lambda g: seen.append(g.clone()))
        (y + h[0]).sum().backward()
    return [*seen, x.grad]


def hooks_twice(m: Any) -> list[Any]:
    """Hooks on results that derivatives read, in passes that can be differentiated."""
    x, seen = data(m, 3, grad=True), []
    y = (x * 2).tanh()
    y.register_hook(lambda g: seen.append(g.detach()))
    y.register_hook(lambda g: g * 1.5)
    (g,) = m.autograd.grad((y**2).sum(), x, create_graph=True)
    (g.sum() + y.sum()).backward()
    return [*seen, g, x.grad]


def order(m: Any) -> list[Any]:
    """Which hook sees what amid the pass: leaves have their gradients as soon as possible."""
    x, w, told = data(m, 2, grad=True), data(m, 2, seed=1, grad=True), []

    def tell(number: int) -> Callable[[Any], None]:
        def hook(g: Any) -> None:
            told.append(m.tensor([float(number), float(w.grad is not None)]))

        return hook

    a = x * 2
    b = a.exp()
    y = b * w
    for number, t in enumerate((a, b, y, w, x)):
        t.register_hook(tell(number))
    w.register_post_accumulate_grad_hook(tell(9))
    y.sum().backward()
    return told


def _functions(m: Any) -> dict[str, Any]:
    class Squared(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * g

    class Exponential(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return ctx.saved_tensors[0] * g

    class Reversed(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return -g

    class Two(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, scale: float) -> Any:
            ctx.save_for_backward(x, y)
            ctx.scale = scale
            ctx.set_materialize_grads(False)
            places = (x > 0).nonzero()
            ctx.mark_non_differentiable(places)
            return x * y, places, x.sum() * scale

        @staticmethod
        def backward(ctx: Any, a: Any, _: Any, b: Any) -> Any:
            x, y = ctx.saved_tensors
            gx = a * y if b is None else (b * ctx.scale).expand(x.shape)
            if a is not None and b is not None:
                gx = gx + a * y
            return gx, None if a is None else a * x, None

    return {"Squared": Squared, "Exponential": Exponential, "Reversed": Reversed, "Two": Two}


def functions(m: Any) -> list[Any]:
    F, found = _functions(m), []
    x, w = data(m, 4, grad=True), data(m, 4, seed=1, grad=True)
    for step in range(3):
        h = F["Reversed"].apply(x * w)
        a, places, s = F["Two"].apply(F["Squared"].apply(h), w, 0.5)
        assert not places.requires_grad and h.grad_fn.name() == "ReversedBackward"
        out = (a.sum() + s, s, a.sum())[step]
        out.backward()
        found += [h, a, s, x.grad.clone(), w.grad.clone()]
    return found


def functions_twice(m: Any) -> list[Any]:
    F, found = _functions(m), []
    x, w = data(m, 4, grad=True), data(m, 4, seed=1, grad=True)
    for name in ("Squared", "Exponential", "Reversed"):
        y = F[name].apply(x * w)
        g = m.autograd.grad((y * w).sum(), (x, w), create_graph=True)
        (h,) = m.autograd.grad((g[0] * g[1]).sum(), x, create_graph=True)
        h.square().sum().backward()
        found += [*g, h]
    a, _, s = F["Two"].apply(x, w, 2.0)
    (g0,) = m.autograd.grad(a.square().sum() + s.square(), x, create_graph=True)
    g0.square().sum().backward()
    return [*found, g0, x.grad, w.grad]


def modules(m: Any) -> list[Any]:
    """Full backward hooks of modules, which may put other gradients in the place of theirs."""
    net, seen = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Tanh(), m.nn.Linear(4, 2)).double(), []
    with m.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(data(m, *p.shape, seed=i))
    net[1].register_full_backward_hook(lambda _, gi, go: seen.extend((gi[0], go[0])))
    net[2].register_full_backward_pre_hook(lambda _, go: (go[0] * 2,))
    net[2].register_full_backward_hook(lambda _, gi, go: (gi[0] + 1,))
    for n in (2, 5):
        net(data(m, n, 3, seed=n, grad=True)).square().sum().backward()
    return [*seen, *[p.grad for p in net.parameters()]]


PROGRAMS: list[Callable[..., list[Any]]] = [
    physics, forces, third, attention, recurrence, unused, added, hooks, hooks_twice, order,
    functions, functions_twice, modules, hooked_views,
]  # fmt: skip


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each backward pass, whether it went over the tape."""
    found: list[bool] = []
    gradients = taped.gradients

    def told(*args: Any) -> Any:
        made = gradients(*args)
        found.append(made is not None)
        return made

    monkeypatch.setattr(api.taped, "gradients", told)
    yield found


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True:UserWarning")
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_pytorch(torch: Any, passes: list[bool], program: Any, at_once: bool) -> None:
    with calls_at_once(at_once):
        ours = [program(tw) for _ in range(2)]
    is_taped = at_once and program is not hooked_views
    assert passes and (all(passes) if is_taped else not any(passes))
    expected = program(torch)
    for found in ours:
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(
                a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12
            )


def test_halves_are_rounded_as_in_recorded_calls() -> None:
    def second(m: Any) -> Any:
        x = data(m, 40).to(m.bfloat16).requires_grad_()
        (g,) = m.autograd.grad((x.tanh() * x.softmax(0)).sum(), x, create_graph=True)
        (h,) = m.autograd.grad(g.square().sum(), x)
        return h.float().numpy()

    found = []
    for at_once in (False, True):
        with calls_at_once(at_once):
            found.append(second(tw))
    np.testing.assert_allclose(*found, rtol=2**-6, atol=2**-8)


@pytest.mark.parametrize("at_once", [False, True])
def test_an_error_in_a_hook_is_the_programs(at_once: bool) -> None:
    calls: list[int] = []

    def hook(g: Any) -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise KeyError("mine")

    with calls_at_once(at_once):
        x = data(tw, 3, grad=True)
        y = x.exp()
        y.register_hook(hook)
        loss = (y * 2).sum()
        with pytest.raises(KeyError, match="mine"):
            loss.backward()
        assert calls == [0] and x.grad is None
        loss = (y * 2).sum()
        loss.backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(data(tw, 3).numpy()))


@pytest.mark.parametrize("at_once", [False, True])
def test_hooks_return_what_may_stand_for_a_gradient(at_once: bool) -> None:
    with calls_at_once(at_once):
        for made, kind, said in (
            (lambda g: g.float(), RuntimeError, "has changed the type of value"),
            (lambda g: g[:2], RuntimeError, "has changed the size of value"),
            (lambda g: 3, TypeError, "expected Variable, but hook returned 'int'"),
        ):
            y = data(tw, 3, grad=True) * 2
            y.register_hook(made)
            with pytest.raises(kind, match=said):
                y.sum().backward()


@pytest.mark.parametrize("at_once", [False, True])
def test_a_second_pass_through_a_function_is_an_error(at_once: bool) -> None:
    F = _functions(tw)
    with calls_at_once(at_once):
        x = data(tw, 3, grad=True)
        y = F["Squared"].apply(x).sum()
        y.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.backward()
        z = F["Reversed"].apply(x).sum()
        for _ in range(2):  # it has saved nothing
            z.backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * data(tw, 3).numpy() - 2)


@pytest.mark.parametrize("at_once", [False, True])
def test_writes_to_what_a_function_saved_are_errors(at_once: bool) -> None:
    F = _functions(tw)
    with calls_at_once(at_once):
        x = data(tw, 3, grad=True) * 1
        y = F["Squared"].apply(x)
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        z = F["Exponential"].apply(data(tw, 3, grad=True))
        z.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_a_hook_sees_the_programs_context() -> None:
    """Its way to treat NumPy's errors, and its context variables."""
    import contextvars

    variable = contextvars.ContextVar("variable", default=0)
    seen: list[Any] = []
    with calls_at_once(True), np.errstate(divide="raise"):
        variable.set(7)
        y = data(tw, 3, grad=True) * 2
        y.register_hook(lambda g: seen.extend((variable.get(), np.geterr()["divide"])))
        y.sum().backward()
    assert seen == [7, "raise"]


def test_reads_amid_passes_keep_calls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop whose hooks read values isn't recorded when its work comes again."""
    monkeypatch.setattr(novelty, "DUE", 8)
    monkeypatch.setattr(novelty, "REPEATS", 8)
    novelty.clear()
    try:
        w, norms = data(tw, 4, 4, grad=True), []

        def step(has_hook: bool) -> None:
            h = data(tw, 2, 4) @ w
            for _ in range(12):
                h = h.tanh()
            if has_hook:
                h.register_hook(lambda g: norms.append(g.norm().item()))
            (h**2).sum().backward()
            w.grad.sum().item()
            w.grad = None

        for _ in range(60):
            step(True)
        assert clock.volatile and len(norms) == 60
        np.testing.assert_allclose(norms, norms[0])
        for _ in range(60):
            step(False)
        assert not clock.volatile
    finally:
        novelty.clear()
