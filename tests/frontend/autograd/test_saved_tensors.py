"""torch.autograd.graph: hooks on what calls save for a backward pass, against PyTorch."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from oracle import agree

import tilewright as tw

rng = np.random.default_rng(0)
A, B = rng.standard_normal((2, 3, 4)).astype("f")

pytestmark = pytest.mark.computes


def seen_by_pack(m: Any, call: Callable[..., Any]) -> list[Any]:
    """What a pack hook sees of a call: shapes, and where each tensor comes from."""
    found = []

    def pack(t: Any) -> Any:
        name = None if t.grad_fn is None else t.grad_fn.name()
        found.append((tuple(t.shape), t.requires_grad, t.is_leaf, name, m.is_grad_enabled()))
        return t

    a, b = (m.tensor(x, requires_grad=True) for x in (A, B))
    with m.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        call(m, a, b)
    return found


CALLS: dict[str, Callable[..., Any]] = {
    "two operands": lambda m, a, b: a * b,
    "a constant operand": lambda m, a, b: a * b.detach(),
    "a number": lambda m, a, b: a * 2,
    "a result": lambda m, a, b: a.exp(),
    "the result of a layer": lambda m, a, b: m.nn.functional.relu(a),
    "softmax": lambda m, a, b: a.softmax(-1),
    "inner operand": lambda m, a, b: m.sigmoid(a + 1),
    "nothing": lambda m, a, b: a.sum() + b.view(-1)[3:].mean(),
    "positions": lambda m, a, b: a[m.tensor([0, 1])],
    "no gradient": lambda m, a, b: a.detach() * b.detach(),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_packed(torch: Any, name: str) -> None:
    assert seen_by_pack(tw, CALLS[name]) == seen_by_pack(torch, CALLS[name])


def test_leaves_are_the_tensors_themselves() -> None:
    a, found = tw.tensor(A, requires_grad=True), []
    with tw.autograd.graph.saved_tensors_hooks(found.append, lambda t: t):
        a * 2.5 * a
    assert any(t is a for t in found)


class Net:
    """A small network under each kind of hooks, with and without checkpoints."""

    def __init__(self, m: Any):
        r = np.random.default_rng(1)
        self.m, nn = m, m.nn
        self.blocks = [
            nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))
            for _ in range(3)
        ]
        self.all = nn.Sequential(*self.blocks, nn.Linear(6, 4))
        with m.no_grad():
            for p in self.all.parameters():
                p.copy_(m.from_numpy(r.standard_normal(tuple(p.shape)).astype("f") * 0.4))
        self.checkpoint = importlib.import_module(f"{m.__name__}.utils.checkpoint").checkpoint

    def hooks(self, kind: str) -> Any:
        m, graph = self.m, self.m.autograd.graph

        def to_file(t: Any) -> bytes:
            file = io.BytesIO()
            m.save(t.detach(), file)
            return file.getvalue()

        return {
            "none": nullcontext,
            "save_on_cpu": graph.save_on_cpu,
            "pinned": lambda: graph.save_on_cpu(pin_memory=True),
            "file": lambda: graph.saved_tensors_hooks(to_file, lambda b: m.load(io.BytesIO(b))),
            "doubled": lambda: graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()),
            "numpy": lambda: graph.saved_tensors_hooks(
                lambda t: t.detach().numpy().copy(), m.from_numpy
            ),
            "copies": graph.allow_mutation_on_saved_tensors,
        }[kind]()

    def losses(self, kind: str, checkpoints: bool | None, reads: bool) -> list[float]:
        m, out = self.m, []
        optimizer = m.optim.Adam(self.all.parameters(), 1e-2)
        x = m.from_numpy(np.linspace(-1, 1, 60).reshape(10, 6).astype("f"))
        for _ in range(3):
            optimizer.zero_grad()
            with self.hooks(kind):
                h = x
                for block in self.blocks:
                    if checkpoints is None:
                        h = h + block(h)
                    else:
                        h = h.requires_grad_() if h.is_leaf else h
                        h = h + self.checkpoint(block, h, use_reentrant=checkpoints)
                loss = m.nn.functional.cross_entropy(self.all[-1](h), m.arange(10) % 4)
                if reads:
                    out.append(loss.item())
                loss.backward()
            optimizer.step()
            out.append(loss.item())
        return out


KINDS = ["save_on_cpu", "pinned", "file", "doubled", "numpy", "copies"]


@pytest.mark.parametrize("checkpoints", [None, False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_training(torch: Any, kind: str, checkpoints: bool | None) -> None:
    reads = checkpoints is not True
    expected = Net(torch).losses("none", None, reads)
    np.testing.assert_allclose(Net(tw).losses(kind, checkpoints, reads), expected, rtol=2e-5)


def test_unpack_has_the_say(torch: Any) -> None:
    def run(m: Any) -> Any:
        a, b = (m.tensor(x, requires_grad=True) for x in (A, B))
        with m.autograd.graph.saved_tensors_hooks(lambda t: t.detach() * 3, lambda t: t + 1):
            y = (a * b).exp()
        return m.autograd.grad(y.sum(), [a, b])

    agree(run(tw), run(torch))


def test_second_derivatives(torch: Any) -> None:
    def run(m: Any) -> Any:
        a, b = (m.tensor(x, requires_grad=True, dtype=m.float64) for x in (A, B))
        with m.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            y = (a.exp() * b * a.softmax(1) + m.nn.functional.layer_norm(a * b, (4,))).tanh()
        g, h = m.autograd.grad(y.sum(), [a, b], create_graph=True)
        return (g, h, *m.autograd.grad((g * h).sum(), [a, b]))

    agree(run(tw), run(torch))


def test_functions(torch: Any) -> None:
    def run(m: Any) -> Any:
        class Scaled(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                result = x * y.exp()
                ctx.save_for_backward(x, y, result)
                return result

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                x, y, result = ctx.saved_tensors
                return g * y.exp(), g * result + 0 * x

        a, b = (m.tensor(x, requires_grad=True, dtype=m.float64) for x in (A, B))
        seen: list[Any] = []
        with m.autograd.graph.saved_tensors_hooks(
            lambda t: (seen.append(t.shape), t.detach().numpy())[1], m.from_numpy
        ):
            y = Scaled.apply(a, b)
        g, h = m.autograd.grad((y * y.detach()).sum(), [a, b], create_graph=True)
        second = m.autograd.grad((g * h).sum(), [a, b])
        return g, h, *second, m.tensor(len(seen))

    agree(run(tw), run(torch))


def test_errors(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        a, b = (m.tensor(x, requires_grad=True) for x in (A, B))
        graph, found = m.autograd.graph, []

        def fails(run: Callable[[], Any], start: int = 30) -> None:
            with pytest.raises((RuntimeError, TypeError)) as error:
                run()
            found.append((error.type, str(error.value)[:start]))

        def through(pack: Any, unpack: Any) -> None:
            with graph.saved_tensors_hooks(pack, unpack):
                y = (a + 0) * b
            y.sum().backward()

        def inside(outer: Any, inner: Any) -> None:
            with outer, inner:
                pass

        def identity(t: Any) -> Any:
            return t

        fails(lambda: through(identity, lambda t: None))
        fails(lambda: through(lambda t: t.add_(1), identity))
        hooks, off = graph.saved_tensors_hooks, graph.disable_saved_tensors_hooks
        fails(lambda: inside(off("not here"), hooks(identity, identity)), 8)
        fails(lambda: inside(hooks(identity, identity), off("not here")), 8)
        copies = graph.allow_mutation_on_saved_tensors
        fails(lambda: inside(copies(), copies()))
        with hooks(identity, identity):
            loss = a.exp().sum()
        loss.backward()
        fails(loss.backward)
        return found

    assert run(tw) == run(torch)
    with pytest.raises(RuntimeError, match=r"shape \(2, 4\) on cpu, where .* shape \(3, 4\)"):
        a = tw.tensor(A, requires_grad=True)
        with tw.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:2]):
            y = a.exp()
        y.sum().backward()


def test_copies_stand_writes(torch: Any) -> None:
    def run(m: Any) -> Any:
        a, b = (m.tensor(x, requires_grad=True) for x in (A, B))
        with m.autograd.graph.allow_mutation_on_saved_tensors():
            y = a.exp()
            z = y * b
            y.mul_(3)
            (z.sum() + y.sum()).backward()
        return a.grad, b.grad

    agree(run(tw), run(torch))


def test_blocks_end(torch: Any) -> None:
    """Of nested blocks the inner one has the say, and after them nobody."""

    def run(m: Any) -> list[str]:
        a, seen = m.tensor(A, requires_grad=True), []
        hooks = m.autograd.graph.saved_tensors_hooks
        with hooks(lambda t: seen.append("outer") or t, lambda t: t):
            a.exp()
            with hooks(lambda t: seen.append("inner") or t, lambda t: t):
                a.exp()
                with m.no_grad():
                    a.exp()
            a.sin()
        a.exp()
        return seen

    assert run(tw) == run(torch) == ["outer", "inner", "outer"]


@pytest.mark.slow
def test_a_packed_value_is_free(run_python: Callable[..., str]) -> None:
    """Files in the place of values hold no memory of the forward pass."""
    code = """
import tilewright as torch, tempfile, os, gc
class File:
    def __init__(self, t):
        handle, self.path = tempfile.mkstemp()
        os.close(handle)
        torch.save(t, self.path)
    def __del__(self): os.remove(self.path)
nn = torch.nn
net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(64, 64), nn.Sigmoid())])
x = torch.randn(32768, 64)
rss = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096 >> 20
before = rss()
def pack(t):
    return t if isinstance(t, nn.Parameter) else File(t.detach())
with torch.autograd.graph.saved_tensors_hooks(pack, lambda f: f):
    loss = net(x).mean()
loss.item()
gc.collect()
print(rss() - before)
"""
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("needs Linux")
    assert int(run_python(code)) < 140  # its 24 inner values take 192 MB
