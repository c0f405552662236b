"""gradcheck and gradgradcheck beside PyTorch: their options, and what they find."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def wrong(m: Any, scale: Any) -> Any:
    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return scale() * x * g

    return Square.apply


def numbers(m: Any) -> Any:
    return m.linspace(-1, 1, 6, dtype=m.float64).reshape(2, 3).requires_grad_()


@pytest.mark.parametrize(
    "options",
    [
        {"fast_mode": True},
        {"check_batched_grad": True, "check_grad_dtypes": True},
        {"check_undefined_grad": False, "nondet_tol": 1e-5},
        {"check_forward_ad": True, "masked": True},
    ],
    ids=str,
)
def test_options(torch: Any, options: dict[str, Any]) -> None:
    for m in (tw, torch):
        x, w = numbers(m), m.ones(3, dtype=m.float64, requires_grad=True)

        def f(x, w, m=m):
            return (x @ w).tanh(), x.exp()

        assert m.autograd.gradcheck(f, (x, w), **options)
        assert m.autograd.gradgradcheck(f, (x, w))
        cotangents = (m.ones(2, dtype=m.float64), 2 * m.ones(2, 3, dtype=m.float64))
        assert m.autograd.gradgradcheck(f, (x, w), cotangents)


def test_failures(torch: Any) -> None:
    for m in (tw, torch):
        x = numbers(m)
        assert m.autograd.gradcheck(wrong(m, lambda: 2), (x,))
        assert not m.autograd.gradcheck(wrong(m, lambda: 3), (x,), raise_exception=False)
        calls: list[int] = []

        def rising(calls=calls):
            calls.append(1)
            return 2 + 1e-7 * len(calls)

        with pytest.raises(RuntimeError, match="Backward is not reentrant"):
            m.autograd.gradcheck(wrong(m, rising), (x,))
        assert m.autograd.gradcheck(wrong(m, rising), (x,), nondet_tol=1e-3)
        with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
            m.autograd.gradcheck(m.sin, (x.detach(),))


def test_the_tangent_of_a_dual_tensor_is_the_one_given(torch: Any) -> None:
    for m in (tw, torch):
        x, t = numbers(m).detach(), m.ones(2, 3, dtype=m.float64)
        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(x, t)
            assert m.autograd.forward_ad.unpack_dual(dual).tangent is t
            pushed = m.autograd.forward_ad.unpack_dual(dual * 3)
            assert pushed.tangent.tolist() == [[3, 3, 3]] * 2
        assert m.autograd.forward_ad.unpack_dual(dual).tangent is None


def test_a_first_derivative_that_forgets_an_input_fails_the_second_check():
    class Sinh(tw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slope = x.cosh()
            return x.sinh()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.slope

    x = tw.tensor([0.3, 0.8], dtype=tw.float64, requires_grad=True)
    assert tw.autograd.gradcheck(Sinh.apply, x)
    with pytest.raises(RuntimeError, match=r"numerical:tensor\(\[\[(?s:.)*analytical:tensor"):
        tw.autograd.gradgradcheck(Sinh.apply, x)
