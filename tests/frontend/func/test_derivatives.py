"""torch.func's derivatives against PyTorch's, in any nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from transforms import same, same_error

import tilewright as tw

pytestmark = [
    pytest.mark.computes,
    pytest.mark.usefixtures("torch"),
    pytest.mark.filterwarnings("ignore"),  # of PyTorch
]

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(5, 3)).astype("f")
W = _RNG.normal(size=(4, 3)).astype("f")
Y = _RNG.normal(size=(5, 4)).astype("f")


def layer(m: Any) -> Any:
    return lambda w, x: m.tanh(w @ x.T)


PROGRAMS = {
    "grad": lambda m, x, w: m.func.grad(lambda a: (a.sin() * a).sum())(x),
    "argnums": lambda m, x, w: m.func.grad(lambda a, b: (a @ b.T).tanh().sum(), (1, 0))(x, w),
    "one tensor twice": lambda m, x, w: m.func.grad(
        lambda a, b: (a * b.exp()).sum(), (0, 1))(x, x),
    "aux": lambda m, x, w: m.func.grad_and_value(lambda a: ((a**2).sum(), a * 2), has_aux=True)(x),
    "unused": lambda m, x, w: m.func.grad(lambda a, b: b.sum())(x, w),
    "twice": lambda m, x, w: m.func.grad(
        lambda a: m.func.grad(lambda b: (b**3).sum())(a).sin().sum())(x),
    "perturbations apart": lambda m, x, w: m.func.grad(
        lambda a: (a * m.func.grad(lambda b: (a * b).sum())(m.ones_like(a))).sum())(x),
    "vjp": lambda m, x, w: (lambda o, f: (o, f(o)))(*m.func.vjp(lambda a: a.exp(), x)),
    "vjp of two": lambda m, x, w: m.func.vjp(layer(m), w, x)[1](m.ones(4, 5)),
    "jvp": lambda m, x, w: m.func.jvp(lambda a: (a.exp(), {"s": a.sum()}), (x,), (x,)),
    "jvp of two": lambda m, x, w: m.func.jvp(layer(m), (w, x), (w * 2, x.cos())),
    "linearize": lambda m, x, w: (lambda o, f: (o, f(x)))(*m.func.linearize(m.exp, x)),
    "jacrev": lambda m, x, w: m.func.jacrev(layer(m), argnums=(0, 1))(w, x),
    "jacfwd": lambda m, x, w: m.func.jacfwd(lambda w, x: {"a": layer(m)(w, x)}, 1)(w, x),
    "chunks": lambda m, x, w: m.func.jacrev(layer(m), chunk_size=3)(w, x),
    "tree": lambda m, x, w: m.func.jacrev(lambda d: d["x"] @ d["w"][0])({"x": x, "w": [w[0]]}),
    "hessian": lambda m, x, w: m.func.hessian(lambda a: (a.sin() * a).sum().tanh())(x),
    "hessian of two": lambda m, x, w: m.func.hessian(
        lambda a, b: (a @ b).tanh().sum(), (0, 1))(w, x[0]),
    "jacobians of jacobians": lambda m, x, w: m.func.jacrev(m.func.jacfwd(
        lambda a: (a @ w.T).tanh()))(x[0]),
    "jvp of grad": lambda m, x, w: m.func.jvp(
        m.func.grad(lambda a: a.sin().prod()), (x[0],), (x[1],)),
    "vmap of hessian": lambda m, x, w: m.vmap(m.func.hessian(lambda a: (a @ w.T).exp().sum()))(x),
    "vmap of jacfwd": lambda m, x, w: m.vmap(m.func.jacfwd(lambda a: (w @ a).tanh()))(x),
    "grad of vmap": lambda m, x, w: m.func.grad(
        lambda w: m.vmap(lambda a: (w @ a).tanh().sum())(x).prod())(w),
    "grad of vmap of grad": lambda m, x, w: m.func.grad(lambda w: m.vmap(
        m.func.grad(lambda a: (w @ a).tanh().sum()))(x).pow(2).sum())(w),
    "vmap of vjp": lambda m, x, w: m.vmap(m.func.vjp(m.sin, x)[1])(
        m.eye(15).reshape(15, 5, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_against_torch(name: str) -> None:
    same(PROGRAMS[name], X, W, tolerance=1e-4)


def test_gradients_of_samples() -> None:
    def program(m: Any, w: Any, x: Any, y: Any) -> Any:
        loss = lambda w, x, y: ((w @ x - y) ** 2).sum()  # noqa: E731
        return m.vmap(m.func.grad(loss), (None, 0, 0))(w, x, y)

    same(program, W, X, Y)


@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_samples_of_a_convolutional_net(groups: int) -> None:
    rng = np.random.default_rng(1)
    shapes = {"conv": (4, 2 // groups, 3, 3), "bias": (4,), "linear": (5, 36), "last": (5,)}
    arrays = {k: rng.normal(size=s).astype("f") * 0.3 for k, s in shapes.items()}
    pictures = rng.normal(size=(6, 2, 8, 8)).astype("f")

    def program(m: Any) -> Any:
        F = m.nn.functional

        def loss(p: Any, x: Any, y: Any) -> Any:
            h = F.relu(F.conv2d(x[None], p["conv"], p["bias"], groups=groups))
            h = F.max_pool2d(h, 2).flatten(1)
            return F.cross_entropy(F.linear(h, p["linear"], p["last"]), y[None])

        given = {k: m.tensor(v) for k, v in arrays.items()}
        one_each = m.vmap(m.func.grad(loss), in_dims=(None, 0, 0))
        return one_each(given, m.tensor(pictures), m.arange(6) % 5)

    same(program, tolerance=1e-4)


def test_closures_and_modes() -> None:
    def program(m: Any, x: Any, w: Any) -> Any:
        w.requires_grad_()
        out = m.vmap(lambda a: w @ a)(x)
        g = m.func.grad(lambda a: (w @ a).sum() * w.sum())(x[0])
        with m.no_grad():
            inside = m.func.grad(lambda a: (w @ a).pow(2).sum())(x[0])

        def partly(a: Any) -> Any:
            with m.no_grad():
                c = a**2
            return (a * c).sum()

        return out, g, inside, m.func.grad(partly)(x), m.autograd.grad(g.sum() + out.sum(), w)

    same(program, X, W)


def test_values_that_are_read_in_between() -> None:
    def program(m: Any, x: Any) -> Any:
        def f(a: Any) -> Any:
            s = (a**2).sum()
            return s * 2 if s.item() > 0 else s

        out, pull = m.func.vjp(lambda a: a.sin() * a, x)
        float(out.sum())
        (first,) = pull(m.ones_like(x))
        float(first.sum())
        return m.func.grad(f)(x), out, first, pull(x), m.func.grad(lambda v: pull(v)[0].prod())(x)

    same(program, X[:2])


def test_a_function_with_its_own_backward_in_a_batch() -> None:
    class Twice(tw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 10  # not the derivative, so that it shows

    x = tw.tensor(X)
    inside = tw.vmap(tw.func.grad(lambda a: Twice.apply(a).sum()))(x)
    assert (inside == 10).all()
    with pytest.raises(RuntimeError, match="from outside of the vmap"):
        tw.func.grad(lambda a: tw.vmap(Twice.apply)(a).sum())(x)


ERRORS = {
    "return a scalar tensor": lambda m: m.func.grad(lambda a: a)(m.ones(3)),
    "return a Tensor": lambda m: m.func.grad(lambda a: 3)(m.ones(3)),
    "Got argnum=2": lambda m: m.func.grad(lambda a: a.sum(), argnums=2)(m.ones(3)),
    "require gradients": lambda m: m.func.grad(lambda a: a.sum())(m.ones(3, dtype=m.int64)),
    "to be Tensors": lambda m: m.func.grad(lambda a: a)(3.0),
    "shape of its primal": lambda m: m.func.jvp(m.sin, (m.ones(3),), (m.ones(2),)),
    "same python structure": lambda m: m.func.jvp(m.sin, (m.ones(3),), (m.ones(3),) * 2),
    "to be a tuple": lambda m: m.func.jvp(m.sin, m.ones(3), (m.ones(3),)),
    "return only Tensors": lambda m: m.func.vjp(lambda a: 3, m.ones(3)),
    "structure of cotangents": lambda m: m.func.vjp(m.sin, m.ones(3))[1]((m.ones(3),) * 2),
    "(output, aux)": lambda m: m.func.grad(lambda a: a.sum(), has_aux=True)(m.ones(3)),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    assert text in same_error(ERRORS[text])
