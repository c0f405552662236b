"""autograd.Function: derivatives written by the user, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from oracle import agree

import tilewright as tw
from tilewright.autograd import gradcheck, gradgradcheck
from tilewright.recording import clock


def leaf(m: Any, *values: float) -> Any:
    return m.tensor(list(values), dtype=m.float64, requires_grad=True)


def functions(m: Any) -> Any:
    """The same classes over either library."""

    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2 * x

    class Exp(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            result = x.exp()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (result,) = ctx.saved_tensors
            return g * result

    class Scaled(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, factor: float, name: str) -> Any:
            ctx.factor = factor
            assert name == "name" and ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
            return x * factor

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.factor, None, None

    class Two(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y + h, g * x + h

    class SetUp(m.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    class Marked(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            mask = (x > 1).to(x.dtype)
            ctx.mark_non_differentiable(mask)
            ctx.save_for_backward(mask)
            ctx.set_materialize_grads(False)
            return x * mask, mask

        @staticmethod
        def backward(ctx: Any, g: Any, unused: Any) -> Any:
            assert unused is None
            return g * ctx.saved_tensors[0]

    class Dirty(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(5)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5

    class Once(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @m.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0]

    class ByNumPy(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            import numpy as np

            ctx.save_for_backward(x)
            return m.from_numpy(np.sin(x.detach().numpy()))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            import numpy as np

            (x,) = ctx.saved_tensors
            return m.from_numpy(np.cos(x.detach().numpy()) * g.numpy())

    return Square, Exp, Scaled, Two, SetUp, Marked, Dirty, Once, ByNumPy


def composed(m: Any, look: bool) -> Any:
    Square, Exp, Scaled, Two, SetUp, Marked, Dirty, Once, ByNumPy = functions(m)
    w, v = leaf(m, 1.5, 0.5), leaf(m, 2, -1)
    a = Square.apply(w)
    b = Exp.apply(a)
    if look:
        b.tolist()
    c, d = Two.apply(b, v)
    e = Scaled.apply(c, 3.0, "name") + SetUp.apply(d)
    f, mask = Marked.apply(e)
    assert not mask.requires_grad
    if look:
        f.tolist()
    h = v * 1
    dirty = Dirty.apply(h)
    out = (f + Once.apply(w) + ByNumPy.apply(v) + dirty).sum()
    if look:
        out.item()
    out.backward()
    return out, w.grad, v.grad, h


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("limit", [4096, 0])
def test_composed_functions(torch: Any, look: bool, limit: int, monkeypatch: Any) -> None:
    expected = composed(torch, look)
    monkeypatch.setattr(clock, "limit", limit)
    monkeypatch.setattr(clock, "usual_limit", limit)
    for _ in range(2):
        agree(composed(tw, look), expected)


@pytest.mark.parametrize("index", [0, 1, 3, 4])
def test_derivatives(index: int) -> None:
    function = functions(tw)[index]
    inputs = (leaf(tw, 0.5, 1.5), leaf(tw, 2, 3)) if index == 3 else (leaf(tw, 0.5, 1.5),)
    assert gradcheck(function.apply, inputs)
    assert gradgradcheck(function.apply, inputs)


@pytest.mark.parametrize("look", [False, True])
def test_double_backward_through_a_saved_output(torch: Any, look: bool) -> None:
    def run(m: Any) -> Any:
        w = leaf(m, 0.5, 1)
        y = functions(m)[1].apply(w)
        if look:
            y.tolist()
        (g,) = m.autograd.grad(y.sum(), w, create_graph=True)
        if look:
            g.tolist()
        return m.autograd.grad((g * g).sum(), w)

    agree(run(tw), run(torch))


def test_a_pass_that_ends_in_an_earlier_epoch(torch: Any) -> None:
    """The gradient of a Function that may be derived once, scaled by a leaf: its derivative reaches
    the leaf, and fails on the way to the Function's argument."""
    for m in (tw, torch):

        class Once(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x**2

            @staticmethod
            @m.autograd.function.once_differentiable
            def backward(ctx: Any, g: Any) -> Any:
                return 2 * g * ctx.saved_tensors[0]

        x, scale = (m.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        (first,) = m.autograd.grad((Once.apply(x) * scale).sum(), x, create_graph=True)
        assert first.tolist() == [2.0, 8.0]
        with pytest.raises(RuntimeError, match="differentiate twice"):
            first.sum().backward()


def test_once_differentiable_is_an_error_the_second_time(torch: Any) -> None:
    for m in (torch, tw):
        w = leaf(m, 1, 2)
        (g,) = m.autograd.grad(functions(m)[7].apply(w).sum(), w, create_graph=True)
        with pytest.raises(RuntimeError):
            g.sum().backward()


def test_errors(torch: Any) -> None:
    for m in (torch, tw):

        class Short(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                return x * y

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

        class Bad(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward("text")
                return x

        with pytest.raises(RuntimeError, match="incorrect number of gradients"):
            Short.apply(leaf(m, 1), leaf(m, 2)).sum().backward()
        with pytest.raises(TypeError, match="save_for_backward"):
            Bad.apply(leaf(m, 1))
        with pytest.raises(RuntimeError, match="leaf"):
            functions(m)[6].apply(leaf(m, 1, 2))
        x = leaf(m, 1, 2) * 1
        y = functions(m)[0].apply(x)
        with m.no_grad():
            x.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            y.sum().backward()


@pytest.mark.parametrize("is_read", [False, True])
def test_a_saved_result_that_is_written_to_is_refused(torch, is_read):
    for m in (tw, torch):
        exp = functions(m)[1]
        x = leaf(m, 1, 2)
        y = exp.apply(x)
        z = y * 2
        if is_read:
            z.tolist()
        y.add_(1)
        for result in (y, z):
            with pytest.raises(RuntimeError, match="modified by an inplace"):
                result.sum().backward(retain_graph=True)
        exp.apply(x).mul_(1).detach_().add_(1)
        (exp.apply(x) + 1).sum().backward()  # what nobody can write to any more
        assert x.grad is not None


def test_a_failed_pass_leaves_nothing_behind() -> None:
    fail = [True]

    class Sometimes(tw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if fail[0]:
                raise KeyError("not yet")
            return g * 2

    w = leaf(tw, 1, 2)
    y = (Sometimes.apply(w) + Sometimes.apply(w)).sum()
    with pytest.raises(KeyError):
        y.backward(retain_graph=True)
    fail[0] = False
    y.backward()
    assert w.grad.tolist() == [4, 4]


def test_without_grad_it_is_a_plain_call() -> None:
    Square = functions(tw)[0]
    with tw.no_grad():
        assert not Square.apply(leaf(tw, 1)).requires_grad
    assert not Square.apply(tw.ones(2)).requires_grad


def test_fresh_zeros_in_both_directions_are_not_one_tensor() -> None:
    """Both directions write in place to memory of their own, which is one node until then."""

    class Twice(tw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            out = tw.zeros(3)
            out.add_(x)
            return out * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            out = tw.zeros(3)
            out.add_(g)
            return out * x

    x = tw.tensor([1.0, 2.0, 3.0], requires_grad=True)
    Twice.apply(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 2.0, 3.0]  # what backward says


def test_hooks_of_the_outputs() -> None:
    def program(m: Any) -> list[Any]:
        Square, Two = (f for f in functions(m) if f.__name__ in ("Square", "Two"))
        x = leaf(m, 0.5, -1.0, 2.0)
        seen: list[Any] = []

        def see(factor: float) -> Any:
            return lambda g: seen.append(g) or g * factor

        squares = [Square.apply(x * i) for i in range(4)]
        for i, y in enumerate(squares):
            y.register_hook(see(i + 1.0))
        (a, b), (c, d) = Two.apply(*squares[1:3]), Two.apply(*squares[1:3])
        for y, factor in ((a, 2.0), (c, 5.0), (d, 3.0)):
            y.register_hook(see(factor))
        (sum(squares).sum() + a.sum() + (b * c).sum() + d.exp().sum()).backward()
        return [x.grad, *sorted(seen, key=lambda g: g.tolist())]

    torch = pytest.importorskip("torch")
    agree(program(tw), program(torch))


def test_a_gradient_of_an_argument_that_needs_none_is_not_looked_at(torch):
    """As of the times of an equation, whose gradient may have any shape."""
    seen = []
    for m in (tw, torch):

        class Scaled(m.autograd.Function):
            @staticmethod
            def forward(ctx, x, t):
                ctx.save_for_backward(t)
                return x * t.sum()

            @staticmethod
            def backward(ctx, g):
                (t,) = ctx.saved_tensors
                return g * t.sum(), g.new_zeros(7, 5, 1)

        x = m.ones(3, requires_grad=True)
        Scaled.apply(x, m.ones(4, 1)).sum().backward()
        seen.append(x.grad.tolist())
    assert seen[0] == seen[1] == [4, 4, 4]


def test_a_derivative_under_its_other_name(torch):
    found = []
    for m in (tw, torch):

        class Square(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**2

            @staticmethod
            def vjp(ctx, g):
                return 2 * ctx.saved_tensors[0] * g

        class Both(Square):
            @staticmethod
            def backward(ctx, g):
                return g

        x = m.tensor([1.0, 3.0], requires_grad=True)
        Square.apply(x).sum().backward()
        found.append(x.grad.tolist())
        with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
            Both.apply(x).sum().backward()
    assert found[0] == found[1] == [2, 6]


def _functions_with_a_jvp(m: Any) -> list[Any]:
    class Scaled(m.autograd.Function):
        """It has no `backward`."""

        @staticmethod
        def forward(x: Any, y: Any, n: float) -> Any:
            return x * x * n, (x * y).sum()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, y, ctx.n = inputs
            ctx.save_for_forward(x, y)

        @staticmethod
        def jvp(ctx: Any, dx: Any, dy: Any, _: Any) -> Any:
            x, y = ctx.saved_tensors
            return 2 * x * dx * ctx.n, (x * dy + y * dx).sum()

    class Rounded(m.autograd.Function):
        """Its derivatives differ."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def jvp(ctx: Any, dx: Any) -> Any:
            return dx * 3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5

    x, v = m.tensor([1.0, 2.5]), m.tensor([1.0, 2.0])
    ad = m.autograd.forward_ad
    with ad.dual_level():
        dual = ad.make_dual(x, v)
        parts = Scaled.apply(dual, x, 3.0)
        both = Scaled.apply(dual, ad.make_dual(x, v), 2.0)
        found = [ad.unpack_dual(t * 2) for t in (*parts, *both, Rounded.apply(dual.sin()))]
    leaf = x.clone().requires_grad_()
    Rounded.apply(leaf).sum().backward()
    with pytest.raises(NotImplementedError, match="either the backward or vjp method"):
        Scaled.apply(leaf, x, 1.0)[0].sum().backward()
    return [t for pair in found for t in pair] + [leaf.grad]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_functions_with_a_forward_derivative(torch: Any) -> None:
    for ours, theirs in zip(_functions_with_a_jvp(tw), _functions_with_a_jvp(torch), strict=True):
        agree(ours, theirs)


@pytest.mark.parametrize("is_read", [False, True])
def test_grad_fn_has_what_the_context_has(is_read: bool) -> None:
    class Scaled(tw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            ctx.save_for_backward(x, x * k)
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, _ = ctx.saved_tensors
            return grad * ctx.k * x, None

    x = tw.ones(3, requires_grad=True)
    y = Scaled.apply(x * 2, 3.0)
    if is_read:
        y.sum().item()
    node = y.grad_fn
    assert [t.tolist() for t in node.saved_tensors] == [[2.0] * 3, [6.0] * 3]
    assert (node.k, node.needs_input_grad, node.metadata) == (3.0, (True, False), {})
    for name in ("other", "dirty", "_versions"):
        with pytest.raises(
            AttributeError, match=f"'ScaledBackward' object has no attribute '{name}'"
        ):
            getattr(node, name)
    y.sum().backward()
    assert x.grad.tolist() == [12.0] * 3
    with pytest.raises(RuntimeError, match="a second time"):
        _ = node.saved_tensors
