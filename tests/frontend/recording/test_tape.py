"""Calls that gradients flow through, computed at once and noted on a tape, beside PyTorch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.recording import epoch, novelty, roots, tape
from tilewright.recording.epoch import clock
from tilewright.runtime.baseline.derivatives import DifferentiatedTemplate


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every call is computed at once, from its first example on."""
    epoch.families.clear()
    epoch.known.clear()
    monkeypatch.setattr(novelty, "REPEATS", 1 << 60)
    monkeypatch.setattr(novelty, "UNTAPED", 1 << 60)
    monkeypatch.setattr(clock, "volatile", True)
    monkeypatch.setattr(clock, "taping", True)
    monkeypatch.setattr(novelty, "_untaped", 0)
    yield
    tw.zeros(1).add_(1).item()


def data(m: Any, seed: int, *shape: int, grad: bool = False) -> Any:
    drawn = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return m.tensor(drawn, requires_grad=grad)


def is_on_the_tape(t: Any) -> bool:
    return isinstance((t._storage or t)._history, tape.Taped)


# ---- programs ------------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def trained(m: Any, model: Any, make: Callable[[int], Any], sizes: Any, optimizer: Any) -> Any:
    with m.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(data(m, i, *p.shape) * 0.3)
    steps = optimizer(model.parameters())
    losses = []
    for n in sizes:
        steps.zero_grad()
        x, y = make(n)
        loss = m.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses, [p.grad for p in model.parameters()], list(model.state_dict().values())


@program
def perceptron(m: Any) -> Any:
    nn = m.nn
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
    make = lambda n: (data(m, n, n, 4), m.arange(n) % 3)  # noqa: E731
    return trained(m, model, make, range(2, 9), lambda p: m.optim.SGD(p, lr=0.1))


@program
def convolutions(m: Any) -> Any:
    nn = m.nn
    layers = [nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3))
    make = lambda n: (data(m, n, 4, 3, n), m.arange(4) % 3)  # noqa: E731
    return trained(m, model, make, range(6, 12), lambda p: m.optim.SGD(p, lr=0.1))


@program
def recurrences(m: Any) -> Any:
    class Model(m.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = m.nn.Embedding(7, 4)
            self.layer = m.nn.LSTM(4, 5)
            self.cell = m.nn.GRUCell(5, 4)
            self.head = m.nn.Linear(4, 3)

        def forward(self, tokens: Any) -> Any:
            out, _ = self.layer(self.words(tokens))
            h = m.zeros(tokens.shape[1], 4)
            for each in out:
                h = self.cell(each, h)
            return self.head(h)

    make = lambda n: (m.arange(2 * n).reshape(n, 2) % 7, m.arange(2))  # noqa: E731
    return trained(m, Model(), make, (3, 5, 4, 6), lambda p: m.optim.SGD(p, lr=0.1))


@program
def alike_views(m: Any) -> Any:
    """Two views alike in one call, and one that is like that of a write which was refused."""
    x = data(m, 0, 3, 4, grad=True)
    y, out = x * 1.5, []
    for of in (x, y):
        u, v = of[:, 0], of[:, 0]
        out += m.autograd.grad((u + v).sum(), [of, u, v], retain_graph=True)
    with pytest.raises(RuntimeError, match="leaf"):
        x[:, 1] = 2.0
    z = x[:, 1]
    return [*out, *m.autograd.grad((z * z).sum(), [x, z])]


@program
def hooks_on_views_that_were_read(m: Any) -> Any:
    """A hook sees the sum of what comes from all calls, also those before it."""
    x = data(m, 0, 3, 4, grad=True)
    y, out = x * 1.5, []
    for of in (x, y):
        seen: list[list[Any]] = [[], [], []]
        whole = of.t()
        part, (_, second) = whole[1:3], whole.split(2)
        loss = (part * part).sum() + (second * whole[:2]).sum() + of.sum() + part[0].sum()
        for view, each in zip((part, second, whole), seen, strict=True):
            view.register_hook(lambda g, each=each: each.append(g * 1))
        kept = (part.exp() * whole.mean()).sum()
        (loss + kept).backward(retain_graph=True)
        out += m.autograd.grad(loss, [of, part, whole], retain_graph=True)
        out.append(seen)
    part.retain_grad()
    (loss * part.sum()).backward()
    return out, part.grad, x.grad


@program
def hooks_on_views_before_a_write(m: Any) -> Any:
    """The gradient that goes on through the write is none of the hook's."""
    x = data(m, 0, 4, 4, grad=True) * 2
    seen: list[Any] = []
    whole = x.view_as(x)
    last = whole[:, 3:]
    whole.register_hook(lambda g: seen.append(g * 1))
    loss = last.exp().sum()
    last.sub_(1.0)
    loss.backward(retain_graph=True)
    (x * 3).sum().backward()
    return seen


@program
def views_of_detached_tensors_that_were_written_to(m: Any) -> Any:
    """A detached tensor gets the gradients of its views."""
    x = data(m, 0, 2, 3, grad=True)
    out = []
    for show in (
        lambda t: t.view(3, 2),
        lambda t: t.t()[1:],
        lambda t: t.as_strided((2,), (3,), 1),
    ):
        y = x.detach()
        z = show(y)
        again = z.view_as(z)
        z.copy_(show(x) * 2)
        out += m.autograd.grad((z * z).sum() + again.sum(), [y, z, x])
        out += m.autograd.grad((again * again).sum(), [y])
        out.append(z.grad_fn is not None and y.requires_grad)
    return out


@program
def strided_views_of_views(m: Any) -> Any:
    x = data(m, 0, 3, 6, grad=True)
    turned = x.permute(1, 0)
    one = turned.as_strided((), (), 2)
    loss = (turned * one).sum() * one * one
    out = m.autograd.grad(loss, [turned, one, x], retain_graph=True)
    moved = data(m, 1, 3, 6, grad=True).data
    seen, of_parts = moved.t(), moved.t().as_strided((8,), (2,), 2)
    moved.mul_(x.sum())
    return out, m.autograd.grad((seen * seen).sum() + of_parts.exp().sum(), [x, moved])


@program
def saved_parts_that_were_rewritten(m: Any) -> Any:
    """PyTorch's backward pass reads what `.data` was given; of a view, its part of it."""
    w, x = data(m, 0, 4, grad=True), data(m, 1, 3, 4)
    row = x[1]
    loss = (w * row).sum()
    x.data.mul_(3.0)
    loss.backward()
    return w.grad


@program
def writes_through_views_of_what_numpy_sees(m: Any) -> Any:
    """The derivative reads what a view showed before the write."""
    out = []
    for show in (lambda t: t[:], lambda t: t[1:], lambda t: t.t()):
        x = data(m, 0, 3, 3, grad=True)
        y, total = x * 2, x.sum()
        held = y.detach().numpy()
        show(y).mul_(total)
        (show(y) * show(y).detach()).sum().backward()
        out += [m.tensor(held), x.grad]
    return out


@program
def attention(m: Any) -> Any:
    heads = m.nn.MultiheadAttention(8, 2, batch_first=True)
    with m.no_grad():
        for i, p in enumerate(heads.parameters()):
            p.copy_(data(m, i, *p.shape) * 0.3)
    out = []
    for n in (3, 4, 5):
        x = data(m, n, 2, n, 8, grad=True)
        y, _ = heads(x, x, x, need_weights=False)
        y.square().sum().backward()
        out += [y.detach(), x.grad]
    return out, [p.grad for p in heads.parameters()]


@program
def views(m: Any) -> Any:
    x = data(m, 0, 4, 6, grad=True)
    h = x * 2
    a, b, c = h.chunk(3, 1)
    y = (a @ b.t()).sum() + (c.reshape(2, 4).transpose(0, 1)[1:] * 3).sum()
    z = h[1] * h[:, 2:3].expand(4, 6)
    (y + z.sum() + h.diagonal().exp().sum()).backward()
    return y.detach(), x.grad


@program
def views_that_repeat(m: Any) -> Any:
    """A row taken from all rows, windows, and elements of memory in any order."""
    out = []
    for n in (3, 5, 6):
        x = data(m, 0, n, 6, grad=True)
        h = x * 2
        best = h - h[0, n - 1].view(1, -1).expand(1, 6)
        y = best.exp().sum() + (h[1].expand(2, 3, 6) * h[0]).sum()
        y = (
            y
            + (h.unfold(1, 4, 1) * h[:, :3, None]).sum()
            + h.as_strided((4, 2), (3, 1), 1).cos().sum()
        )
        y = y + (h[:, 1:2].expand(n, 4) * h[:, :4]).sum() + (h[2, 3].expand(7) * 0.5).sum()
        y.backward()
        out += [y.detach(), x.grad.clone()]
    return out


@program
def a_call_with_a_tuple_of_one(m: Any) -> Any:
    """Instance norm, whose gradient is asked for as a graph."""
    out = []
    for n in (3, 5, 6):
        x = data(m, 0, 2, n, 4, 4, grad=True)
        h = m.nn.functional.instance_norm(x * 2)
        h.register_hook(lambda g: g * 2)
        (g,) = m.autograd.grad((h * x).sum(), x, create_graph=True)
        (g * g).sum().backward()
        out += [g.detach(), x.grad.clone()]
    return out


@program
def joins(m: Any) -> Any:
    """As many tensors as there are, with and without gradient, views among them."""
    x, out = data(m, 0, 4, 6, grad=True), []
    for n in (1, 2, 9, 30):
        h = x * n
        rows = [h[i % 4] * 2 if i % 3 else data(m, i, 6) for i in range(n)]
        flat = m.cat(
            [h[:, :2], h.new_zeros(4, 0), *[h[:, i % 5 : i % 5 + 2] for i in range(n)]], -1
        )
        numbers = m.stack([r.sum() for r in rows])
        y = (m.stack(rows, -1).cos().sum(0) * numbers).sum() + (flat * flat).sum()
        y.backward()
        ignored = m.cat([h, m.empty(0)], 0).shape
        out += [y.detach(), numbers.detach(), list(ignored), x.grad.clone()]
    return out


@program
def gradients_of_some(m: Any) -> Any:
    x, w = data(m, 0, 3, 4, grad=True), data(m, 1, 4, 2, grad=True)
    h = (x @ w).tanh()
    part = h[:2]
    y = (part * part).sum() + (h * 3).sum()
    some = m.autograd.grad(y, [h, w], retain_graph=True)
    of_part = m.autograd.grad(y, [part], retain_graph=True)
    weighed = m.autograd.grad(h, [x], m.ones(3, 2) * 2, retain_graph=True)
    none = m.autograd.grad(y, [data(m, 2, 1, grad=True)], allow_unused=True, retain_graph=True)
    y.backward()
    return *some, *of_part, *weighed, none[0] is None, x.grad, w.grad


@program
def second_derivatives(m: Any) -> Any:
    x, w = data(m, 0, 3, 4, grad=True), data(m, 1, 4, 2, grad=True)
    y = ((x @ w).tanh() ** 2).sum()
    (g,) = m.autograd.grad(y, [x], create_graph=True)
    (g.square().sum() + y).backward()
    return x.grad, w.grad


@program
def hooks(m: Any) -> Any:
    x, seen = data(m, 0, 3, 4, grad=True), []
    h = x.exp()
    h.register_hook(lambda g: seen.append(g.clone()))
    h.retain_grad()
    v = h[:2]
    v.register_hook(lambda g: g * 3)
    x.register_hook(lambda g: g * 2)
    ((v * v).sum() + (h * 2).sum()).backward()
    return h.grad, x.grad, seen


@program
def writes_in_place(m: Any) -> Any:
    x = data(m, 0, 3, 4, grad=True)
    h = x * 2
    h += 1
    h.mul_(x)
    h[0] = 5
    h.relu_()
    y = (h * h).sum()
    y.backward()
    return h.detach(), x.grad


@program
def leaves_that_look_at_the_memory_of_others(m: Any) -> Any:
    grid = m.linspace(-1, 1, 6).reshape(6, 1).requires_grad_()
    data_, w = data(m, 0, 4, 3), data(m, 1, 1, 3, grad=True)
    data_.numpy()
    part = data_[1:3].t().requires_grad_()
    y = (grid * w).tanh()
    (slope,) = m.autograd.grad(y.sum(), [grid], create_graph=True)
    (slope.square().sum() + (part * 2).exp().sum() + part[1].sum()).backward()
    out = [grid.grad, w.grad, part.grad.clone()]
    with m.no_grad():
        part -= part.grad * 0.1
    (part * part).sum().backward()
    z = part * 3
    z.retain_grad()
    (z * z).sum().backward(inputs=[part])
    part.data = part.data[:2]
    return *out, part, data_, slope


@program
def several_passes(m: Any) -> Any:
    x = data(m, 0, 3, grad=True)
    y = (x * 2).exp()
    y.sum().backward(retain_graph=True)
    (y * y).sum().backward()
    z = x + 1
    z.sum().backward()
    z.sum().backward()  # nothing was saved
    return x.grad


@program
def a_state_that_is_carried(m: Any) -> Any:
    w = data(m, 0, 4, 4, grad=True)
    h = m.zeros(2, 4)
    out = []
    for n in range(2, 7):
        for _ in range(n):
            h = (h @ w + data(m, n, 2, 4)).tanh()
        h.sum().backward()
        h = h.detach()
        out.append(h)
    return out, w.grad


@program
def kinds_of_numbers(m: Any) -> Any:
    x = m.tensor([1.5, -2.0, 0.5], dtype=m.float64, requires_grad=True)
    y = 2 / x + x**3 - (1 - x) * 4 + x.clamp(-1, 1) + m.where(x > 0, x, -x) * True
    y.sum().backward()
    return y.detach(), x.grad, (x * 2).argmax(), (x > 1)


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, (list, tuple)):
        for each in values:
            yield from _flat(each)
    else:
        yield values.detach().numpy() if hasattr(values, "detach") else values


@pytest.mark.usefixtures("taped")
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_pytorch(torch: Any, name: str) -> None:
    ours, theirs = list(_flat(PROGRAMS[name](tw))), list(_flat(PROGRAMS[name](torch)))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


ROUNDED: dict[str, Callable[[Any, Any], Any]] = {
    "max_pool2d": lambda m, x: m.nn.functional.max_pool2d(x, 3),
    "max_pool2d of 2": lambda m, x: m.nn.functional.max_pool2d(x, 2),
    "max_pool1d": lambda m, x: m.nn.functional.max_pool1d(x[0], 3, ceil_mode=True),
    "avg_pool2d": lambda m, x: m.nn.functional.avg_pool2d(x, 3, 2, ceil_mode=True),
    "adaptive": lambda m, x: m.nn.functional.adaptive_avg_pool2d(x, 4),
    "conv2d": lambda m, x: m.nn.functional.conv2d(x, m.ones(2, 3, 3, 3), stride=3),
    "interpolate": lambda m, x: m.nn.functional.interpolate(x, scale_factor=0.4),
    "median": lambda m, x: x.median(-1)[0],
    "median of all": lambda m, x: x.median(),
    "quantile": lambda m, x: x.quantile(0.3, -1),
    "rfft": lambda m, x: m.fft.rfft(x).abs(),
    "unfold": lambda m, x: x.unfold(-1, 4, 3) * 1,
    "steps": lambda m, x: x[..., ::3] * 1,
    "chunk": lambda m, x: x.chunk(3, -1)[1] * 1,
}


@pytest.mark.usefixtures("taped")
@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sizes", [(10, 11, 13, 14, 12, 15, 9, 17, 20), (12, 15, 16, 24, 17)])
def test_what_depends_on_parts_of_sizes(
    torch: Any, name: str, grad: bool, sizes: tuple[int, ...]
) -> None:
    """Parts of sizes, rounded to whole numbers, are equal for many sizes and then are not."""

    def found(m: Any, n: int) -> list[Any]:
        x = data(m, n, 2, 3, n, n, grad=grad)
        y = ROUNDED[name](m, x * 1)
        if not grad:
            return [y]
        y.square().sum().backward()
        return [y, x.grad]

    for n in sizes:
        for a, b in zip(_flat(found(tw, n)), _flat(found(torch, n)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert epoch.families


# ---- draws --------------------------------------------------------------------------------------


def _drawn_at_once(m: Any) -> Any:
    """Steps with dropout of all kinds, and draws without operands."""
    nn, F = m.nn, m.nn.functional
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    model = nn.Sequential(layer, nn.Dropout1d(0.3), nn.AlphaDropout(0.2), nn.Linear(8, 3))
    with m.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(data(m, i, *p.shape) * 0.3)
    m.manual_seed(3)
    steps, out = m.optim.SGD(model.parameters(), lr=0.1), []
    for n in (3, 4, 6, 5):
        steps.zero_grad()
        x = data(m, n, 2, n, 8, grad=True)
        noise = m.rand(2, n, 8) + m.randn(2, n, 8, dtype=m.float64) * m.rand_like(x)
        y = model(F.dropout(x + noise.to(x.dtype), 0.5, inplace=True))
        heads = y.reshape(2, 1, n, 3)
        y = y + F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.3)[:, 0]
        loss = (y.square() * m.bernoulli(m.full((2, n, 3), 0.5))).mean()
        second = m.autograd.grad(loss, x, create_graph=n == 6, retain_graph=True)[0]
        (loss + second.square().sum() if n == 6 else loss).backward()
        steps.step()
        out += [loss.item(), x.grad, m.rand(3)]
    return out, list(model.state_dict().values()), m.default_generator.get_offset()


@pytest.mark.usefixtures("taped")
def test_draws_at_once_are_those_of_recorded_calls(monkeypatch: Any) -> None:
    made = list(_flat(_drawn_at_once(tw)))
    x = data(tw, 0, 5, 8, grad=True)
    assert is_on_the_tape(tw.nn.functional.dropout(x, 0.5))
    monkeypatch.setattr(clock, "volatile", False)
    for a, b in zip(made, _flat(_drawn_at_once(tw)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("taped")
def test_sizes_of_one_and_zero_are_other_draws() -> None:
    for shape in ((1, 1, 8), (1, 5, 8), (1, 6, 8), (3, 1, 8), (0, 4, 8), (2, 4, 8), (1, 1, 1), ()):
        for draw in (tw.rand, tw.randn):
            made = draw(shape)
            assert tuple(made.shape) == made.numpy().shape == shape
    x = data(tw, 0, 8)
    for target in ((1, 8), (8, 1), (2, 4), (1, 1, 8), (1, 2, 4), (4, 1, 2)):
        assert (x * 1).reshape(target).numpy().shape == target


@pytest.mark.usefixtures("taped")
def test_draws_at_once_leave_nothing() -> None:
    x = data(tw, 0, 4, 8, grad=True)
    tw.nn.functional.dropout(x, 0.5).sum().backward()
    before = len(epoch.scalars), len(epoch.scalar_nodes), len(epoch.drawn)
    for _ in range(20):
        tw.nn.functional.dropout(x * tw.rand(8), 0.5).sum().backward()
    assert (len(epoch.scalars), len(epoch.scalar_nodes), len(epoch.drawn)) == before


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("taped")
def test_a_second_pass_and_a_write_to_a_saved_value_are_errors() -> None:
    x = data(tw, 0, 3, grad=True)
    y = (x * 2).exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    h = x.exp()
    loss = (h * 2).sum()
    h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    w = data(tw, 1, 3, grad=True)
    loss = (w * x).sum()
    with tw.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.usefixtures("taped")
def test_histories_compute_what_the_tape_can_not(monkeypatch: Any) -> None:
    def failing(*_: Any) -> Any:
        raise ValueError

    x = data(tw, 0, 3, grad=True)
    y = (x * 2).exp().sum()
    monkeypatch.setattr(DifferentiatedTemplate, "backward", failing)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(2 * x.detach().numpy()), rtol=1e-5)


@pytest.mark.usefixtures("taped")
def test_what_a_gradient_is_in_is_its_own_memory() -> None:
    a, b = data(tw, 0, 3, grad=True), data(tw, 1, 3, grad=True)
    given = tw.ones(3)
    (a + b).backward(given)
    a.grad.add_(1)
    assert b.grad.tolist() == given.tolist() == [1, 1, 1]


# ---- what is on the tape -------------------------------------------------------------------------


@pytest.mark.usefixtures("taped")
def test_leaves_that_are_views_are_on_the_tape() -> None:
    x = tw.linspace(-1, 1, 64).reshape(8, 8).requires_grad_()
    y = (x * 1.5).tanh()
    assert is_on_the_tape(y)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 1.5 / np.cosh(1.5 * x.detach().numpy()) ** 2, 1e-5)


@pytest.mark.usefixtures("taped")
def test_a_pass_over_the_tape_records_nothing() -> None:
    w = data(tw, 0, 4, 4, grad=True)
    for n in (3, 5, 6, 7):  # the first two are the examples
        w.grad, pending = None, len(epoch.handles)
        h = (data(tw, n, n, 4) @ w).tanh()
        h[1:].square().sum().backward()
        if n > 5:
            assert is_on_the_tape(h) and "node" not in h._storage._history.__dict__
            assert w.grad._node is None and len(epoch.handles) == pending


@pytest.mark.usefixtures("taped")
def test_a_pass_frees_what_it_has_read() -> None:
    """Who keeps a loss keeps no values of what it was computed of."""
    x, seen = data(tw, 0, 64, grad=True), []
    h = x.exp()
    y = h + x
    seen += [weakref.ref(h), weakref.ref(y)]
    part = y[:32]
    loss = part.sum()
    del h, y, part
    assert seen[0]() is not None
    loss.backward()
    assert [ref() for ref in seen] == [None, None]
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()
    z = (x + 1)[:32].sum()
    z.backward()
    first = x.grad.tolist()
    z.backward()  # nothing was saved
    (g,) = tw.autograd.grad(z, [x], create_graph=True)
    assert g.tolist() == [1] * 32 + [0] * 32
    assert x.grad.tolist() == pytest.approx([a + b for a, b in zip(first, g.tolist())])


@pytest.mark.parametrize("taping", [True, False])
@pytest.mark.parametrize("passes", [True, False])
def test_detached_losses_keep_no_graph(request: Any, taping: bool, passes: bool) -> None:
    """Who keeps `loss.detach()`, or that of a part of an output, keeps nothing of the step, once
    enough of them are kept. A history that other tensors need remains."""
    if taping:
        request.getfixturevalue("taped")
    w, kept, histories = data(tw, 0, 4, grad=True), [], []
    with_others = data(tw, 1, 4) * w
    kept += [with_others.detach() for _ in range(20)]
    view_alone = (data(tw, 2, 4) * w)[1:]
    kept.append(view_alone.detach())
    for i in range(2 * roots.FEWEST):
        out = (data(tw, i, 4) * w).tanh()
        loss = out.sum()
        if passes:
            loss.backward()
        kept += [loss.detach(), out[1:].detach(), out.data]
        tw.zeros(1).add_(1).item()
        histories.append(weakref.ref((loss._storage or loss)._history))
    del out, loss
    gc.collect()
    assert sum(ref() is not None for ref in histories) <= roots.FEWEST
    w.grad = None
    with_others.sum().backward()
    view_alone.sum().backward()
    part = data(tw, 2, 4).numpy()
    part[0] = 0
    assert np.allclose(w.grad.numpy(), data(tw, 1, 4).numpy() + part)
    assert np.allclose(kept[0].numpy(), (data(tw, 1, 4) * w).detach().numpy())


@pytest.mark.usefixtures("taped")
def test_passes_that_need_graphs_end_the_taping(monkeypatch: Any) -> None:
    monkeypatch.setattr(novelty, "UNTAPED", 8)
    monkeypatch.setattr(novelty, "_untaped", 0)
    x = data(tw, 0, 3, grad=True)
    for _ in range(6):
        y = (x * 2).exp().sum()
        assert y.grad_fn.next_functions[0][0].name() == "ExpBackward0"
    assert not clock.taping
    assert not is_on_the_tape(x * 2)


@pytest.mark.usefixtures("taped")
def test_sizes_among_attrs_are_learned() -> None:
    """The scale of attention, the counts of means and variances, the sizes of biases: from calls of
    other sizes, whose examples agree by chance in some."""
    for batch, n, width in ((2, 3, 4), (2, 5, 4), (2, 5, 6), (3, 4, 6), (3, 7, 8), (1, 2, 3)):
        for dtype in (np.float32, np.float64):
            x = tw.tensor(np.random.default_rng(n).normal(size=(batch, n, width)).astype(dtype))
            w = tw.ones(2 * width, width, dtype=x.dtype, requires_grad=True)
            b = tw.zeros(2 * width, dtype=x.dtype, requires_grad=True)
            y = tw.nn.functional.linear(x, w, b)
            z = tw.nn.functional.scaled_dot_product_attention(y, y, y)
            (z.mean(1) + z.var(1)).sum().backward()
            found = w.grad.numpy().copy(), b.grad.numpy().copy()
            clock.volatile = False
            w.grad = b.grad = None
            y = tw.nn.functional.linear(x, w, b)
            z = tw.nn.functional.scaled_dot_product_attention(y, y, y)
            (z.mean(1) + z.var(1)).sum().backward()
            for ours, wanted in zip(found, (w.grad.numpy(), b.grad.numpy()), strict=True):
                np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)
            clock.volatile = True
